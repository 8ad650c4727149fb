//! Restores: a backup is wanted as a snapshot again.

use paddock_model::backups::{BackupId, BackupPhase};
use paddock_model::caller::Caller;
use paddock_model::labels::Labels;
use paddock_model::layers::LayerId;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::permissions::tuples::Holder;
use paddock_model::restores::{Restore, RestoreFilter, RestoreId, RestorePhase};
use paddock_model::snapshots::Origin;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::layers::{LayerState, NewLayer};
use paddock_store::{layers, relations, restores, vehicle_states};
use serde_json::json;

use crate::emulators::require_room;
use crate::snapshots::{self, Draft};
use crate::{Engine, audit, backups, idempotency_keys, permissions};

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &RestoreFilter,
    page: PageRequest,
) -> Result<Page<Restore>> {
    let scope = permissions::owned_scope(engine, caller, "restore");
    Ok(restores::list(&mut engine.store.read().await?, &scope, filter, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: RestoreId) -> Result<Restore> {
    let scope = permissions::owned_scope(engine, caller, "restore");
    let restore = restores::find(&mut engine.store.read().await?, &scope, id).await?;
    restore.ok_or_else(|| permissions::invisible(engine, "restore", &id.object()))
}

/// Wants a backup as a new snapshot. Its bytes come in as those of any image from outside do: checked, then booted.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    backup: BackupId,
    name: Option<&str>,
) -> Result<Restore> {
    engine.vault()?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let scope = permissions::owned_scope(engine, caller, "backup");
    let backup = backups::find(engine, &mut tx, &scope, backup).await?;
    permissions::require(engine, caller, Relation::CanCreateRestore, &backup.tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    if backup.phase != BackupPhase::Completed {
        let detail =
            format!("The backup is {}; only one that is completed can be restored.", backup.phase.name());
        return Err(Error::conflict("invalid_state", detail));
    }
    require_room(engine, &mut tx, caller, backup.tenant).await?;
    let layer = LayerId::new(now, engine.random());
    layers::insert(&mut tx, &NewLayer::new(layer, None, LayerState::Uploading), now).await?;
    if let Some(vehicle) = &backup.heritage.vehicle {
        vehicle_states::put(&mut tx, layer, vehicle).await?;
    }
    let draft = Draft {
        name: snapshots::name(name, backup.heritage.snapshot.as_str(), layer)?,
        tenant: backup.tenant,
        parent: None,
        layer,
        image: backup.heritage.image,
        origin: Origin::Restore { backup: backup.id.to_string() },
        group: backup.heritage.group,
        trust: backup.heritage.trust,
        labels: Labels::default(),
    };
    let snapshot = snapshots::begin(engine, &mut tx, caller, draft).await?;
    let restore = Restore {
        id: RestoreId::new(now, engine.random()),
        tenant: backup.tenant,
        owner: caller.subject.clone(),
        backup: backup.id,
        snapshot: snapshot.name,
        layer,
        phase: RestorePhase::Queued,
        bytes_done: 0,
        bytes_total: backup.disk_bytes.unwrap_or_default(),
        error: None,
        failures: 0,
        due_at: now,
        started_at: None,
        completed_at: None,
        created_at: now,
        updated_at: now,
        generation: 1,
    };
    restores::insert(&mut tx, &restore).await?;
    let object = restore.object();
    let holders = [("tenant", backup.tenant.object().thing()), ("owner", caller.subject.thing())];
    for (relation, holder) in holders {
        relations::give(&mut tx, &object.given_to(relation, Holder::One(holder)), now).await?;
    }
    let details = json!({ "backup": backup.id, "snapshot": restore.snapshot });
    audit::record(engine, &mut tx, caller, "restores.create", Some(backup.tenant), object, details).await?;
    idempotency_keys::remember(&mut tx, caller, &restore).await?;
    engine.commit(tx).await?;
    Ok(restore)
}

/// The restore after a change, of which everyone is told.
pub(crate) fn changed(before: &Restore, now: Timestamp, change: impl FnOnce(&mut Restore)) -> Restore {
    let mut after = Restore { updated_at: now, generation: before.generation + 1, ..before.clone() };
    change(&mut after);
    after
}
