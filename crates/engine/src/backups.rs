//! Backups: what a disk holds is wanted in a repository. A request records that; a loop carries it out.

use std::time::Duration;

use paddock_model::backups::{
    Backup, BackupFilter, BackupId, BackupPhase, BackupSource, Heritage, OwnedScope,
};
use paddock_model::caller::Caller;
use paddock_model::emulators::EmulatorId;
use paddock_model::error::Problem;
use paddock_model::expected::Expected;
use paddock_model::labels::Labels;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::permissions::tuples::Holder;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Snapshot, SnapshotState};
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::layers::LayerState;
use paddock_store::{Tx, backups, disks, layers, relations, restores, snapshots as snapshot_rows};
use serde_json::json;

use crate::audit::Actor;
use crate::captures::{self, Take};
use crate::emulators::find_to_change as find_emulator;
use crate::{Engine, audit, idempotency_keys, permissions, snapshots, tenants};

/// What a caller may say about a new backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSpec {
    pub tenant: Option<TenantId>,
    pub source: SourceSpec,
    pub labels: Labels,
    pub expires_in: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    Emulator(EmulatorId),
    Snapshot(String),
    Volume(DiskId),
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &BackupFilter,
    page: PageRequest,
) -> Result<Page<Backup>> {
    let scope = permissions::owned_scope(engine, caller, "backup");
    Ok(backups::list(&mut engine.store.read().await?, &scope, filter, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: BackupId) -> Result<Backup> {
    let scope = permissions::owned_scope(engine, caller, "backup");
    find(engine, &mut engine.store.read().await?, &scope, id).await
}

pub(crate) async fn find(engine: &Engine, tx: &mut Tx, scope: &OwnedScope, id: BackupId) -> Result<Backup> {
    let backup = backups::find(tx, scope, id).await?;
    backup.ok_or_else(|| permissions::invisible(engine, "backup", &id.object()))
}

/// Wants a backup of a snapshot, or of a device as it is now. The bytes that it is of stay in the pool until it is done.
pub async fn create(engine: &Engine, caller: &Caller, spec: BackupSpec) -> Result<Backup> {
    let tenant = tenants::meant(engine, caller, spec.tenant).await?;
    engine.vault()?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanCreateBackup, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let (source, layer, heritage) = match spec.source {
        SourceSpec::Snapshot(name) => of_snapshot(engine, &mut tx, caller, tenant.id, &name).await?,
        SourceSpec::Emulator(emulator) => {
            let (layer, heritage) = of_device(engine, &mut tx, caller, tenant.id, emulator).await?;
            (BackupSource::Emulator { emulator }, layer, heritage)
        }
        SourceSpec::Volume(volume) => {
            let missing = || permissions::invisible(engine, "volume", &tenant.object());
            let disk = disks::find(&mut tx, volume).await?.ok_or_else(missing)?;
            let emulator = disk.emulator;
            let found = find_emulator(engine, &mut tx, caller, emulator).await;
            if !found.is_ok_and(|emulator| emulator.disk == volume) {
                return Err(missing());
            }
            let (layer, heritage) = of_device(engine, &mut tx, caller, tenant.id, emulator).await?;
            (BackupSource::Volume { volume, emulator }, layer, heritage)
        }
    };
    let draft = Draft { tenant: tenant.id, owner: caller.subject.clone(), source, layer, heritage };
    let mut backup = draft.backup(engine, now);
    (backup.labels, backup.expires_at) = (spec.labels, spec.expires_in.map(|after| now + after));
    backups::insert(&mut tx, &backup).await?;
    let object = backup.object();
    for (relation, holder) in [("tenant", tenant.object().thing()), ("owner", caller.subject.thing())] {
        relations::give(&mut tx, &object.given_to(relation, Holder::One(holder)), now).await?;
    }
    let details = json!({ "source": backup.source });
    audit::record(engine, &mut tx, caller, "backups.create", Some(tenant.id), object, details).await?;
    idempotency_keys::remember(&mut tx, caller, &backup).await?;
    engine.commit(tx).await?;
    Ok(backup)
}

/// A backup that is wanted, and of what is known.
struct Draft {
    tenant: TenantId,
    owner: Subject,
    source: BackupSource,
    layer: LayerId,
    heritage: Heritage,
}

impl Draft {
    fn backup(self, engine: &Engine, now: Timestamp) -> Backup {
        let Draft { tenant, owner, source, layer, heritage } = self;
        Backup {
            id: BackupId::new(now, engine.random()),
            tenant,
            owner,
            source,
            layer,
            holds_layer: true,
            heritage,
            labels: Labels::default(),
            phase: BackupPhase::Queued,
            bytes_done: 0,
            bytes_total: 0,
            location: None,
            stored: None,
            checksum: None,
            disk_bytes: None,
            added_bytes: None,
            error: None,
            failures: 0,
            due_at: now,
            started_at: None,
            completed_at: None,
            expires_at: None,
            created_at: now,
            updated_at: now,
            generation: 1,
        }
    }
}

/// Wants a backup of a promoted root that is in none, without being asked for it. False where there is no need any more.
pub(crate) async fn back_up_root(engine: &Engine, name: &Slug, failed_since: Timestamp) -> Result<bool> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    // Whoever comes at the same time waits for this row, and then finds the backup.
    let Some(snapshot) = snapshot_rows::find_any_to_change(&mut tx, name).await? else { return Ok(false) };
    let Some(tenant) = snapshot.tenant.filter(|_| snapshot.is_root()) else { return Ok(false) };
    if backups::is_attended(&mut tx, name, snapshot.layer, failed_since).await? {
        return Ok(false);
    }
    let Ok((source, layer, heritage)) = whole(&mut tx, snapshot).await? else { return Ok(false) };
    let draft = Draft { tenant, owner: Subject::system(), source, layer, heritage };
    let backup = draft.backup(engine, now);
    backups::insert(&mut tx, &backup).await?;
    let (object, holder) = (backup.object(), Holder::One(tenant.object().thing()));
    relations::give(&mut tx, &object.given_to("tenant", holder), now).await?;
    let actor = Actor { request_id: "backups.roots".to_owned(), ..Actor::default() };
    let details = json!({ "source": backup.source });
    audit::record(engine, &mut tx, actor, "backups.create", Some(tenant), object, details).await?;
    engine.commit(tx).await?;
    Ok(true)
}

async fn of_snapshot(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    name: &str,
) -> Result<(BackupSource, LayerId, Heritage)> {
    let snapshot = snapshots::find_to_change(engine, tx, caller, name).await?;
    if snapshot.tenant.is_some_and(|owner| owner != tenant) {
        return Err(other_tenant("snapshot"));
    }
    whole(tx, snapshot).await?
}

/// What a backup of a snapshot is of; in its stead, why there can be none.
async fn whole(tx: &mut Tx, snapshot: Snapshot) -> Result<Result<(BackupSource, LayerId, Heritage)>> {
    let layer = layers::find(tx, snapshot.layer).await?;
    let whole = layer.is_some_and(|layer| layer.state == LayerState::Ready);
    if !whole || snapshot.state == SnapshotState::Deleting {
        let detail = format!(
            "The snapshot is {}, and its bytes are not all there. Wait until it is verified.",
            snapshot.state.name()
        );
        return Ok(Err(Error::conflict("invalid_state", detail)));
    }
    let heritage = Heritage {
        snapshot: snapshot.name.clone(),
        image: snapshot.image,
        group: snapshot.group,
        trust: snapshot.trust,
        vehicle: None,
    };
    Ok(Ok((BackupSource::Snapshot { snapshot: snapshot.name }, snapshot.layer, heritage)))
}

/// The device goes on. What it holds now becomes a layer by a capture whose snapshot nobody gets to see: it is on its way
/// out from the beginning, and is neither verified nor listed for long.
async fn of_device(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    emulator: EmulatorId,
) -> Result<(LayerId, Heritage)> {
    let emulator = find_emulator(engine, tx, caller, emulator).await?;
    if emulator.tenant != tenant {
        return Err(other_tenant("emulator"));
    }
    captures::require_ready(engine, tx, caller, &emulator).await?;
    let take = Take::of(&emulator, caller);
    let (snapshot, _) = captures::begin(engine, tx, caller, &emulator, take).await?;
    let source = snapshot_rows::find_any(tx, &emulator.snapshot).await?;
    let group = source.and_then(|source| source.group);
    let heritage = Heritage {
        snapshot: emulator.snapshot,
        image: snapshot.image.clone(),
        group,
        trust: snapshot.trust,
        vehicle: None,
    };
    snapshots::settle(engine, tx, &snapshot, SnapshotState::Deleting, None).await?;
    Ok((snapshot.layer, heritage))
}

fn other_tenant(noun: &str) -> Error {
    let detail =
        format!("The {noun} belongs to another tenant than the backup would. Use the {noun}'s tenant.");
    Error::conflict("other_tenant", detail)
}

/// Has a backup forgotten; one that is under way is given up first.
pub async fn delete(engine: &Engine, caller: &Caller, id: BackupId, expected: &Expected) -> Result<Backup> {
    /// More are not named.
    const NAMED: i64 = 10;
    let scope = permissions::owned_scope(engine, caller, "backup");
    let mut tx = engine.store.begin().await?;
    let backup = backups::find_to_change(&mut tx, &scope, id).await?;
    let backup = backup.ok_or_else(|| permissions::invisible(engine, "backup", &id.object()))?;
    permissions::require(engine, caller, Relation::CanDelete, &backup.object())?;
    expected.require(backup.generation)?;
    if backup.phase == BackupPhase::Deleting {
        return Ok(backup);
    }
    let readers = restores::under_way(&mut tx, id, NAMED).await?;
    if !readers.is_empty() {
        let problem = |id| Problem { code: "restore".into(), message: format!("{id}") };
        let detail = "It is being restored. Delete it when that is done.";
        let problems = readers.into_iter().map(problem).collect();
        return Err(Error::conflict("in_use", detail).with_problems(problems));
    }
    let now = engine.now();
    let changed = changed(&backup, now, |after| (after.phase, after.due_at) = (BackupPhase::Deleting, now));
    backups::update(&mut tx, &backup, &changed).await?;
    let (tenant, details) = (Some(backup.tenant), json!({ "phase": backup.phase.name() }));
    audit::record(engine, &mut tx, caller, "backups.delete", tenant, backup.object(), details).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// The backup after a change, of which everyone is told.
pub(crate) fn changed(before: &Backup, now: Timestamp, change: impl FnOnce(&mut Backup)) -> Backup {
    let mut after = Backup { updated_at: now, generation: before.generation + 1, ..before.clone() };
    change(&mut after);
    after
}
