//! Snapshots: what emulators boot from, and which of them a newcomer gets.

use paddock_model::caller::Caller;
use paddock_model::emulators::DeviceType;
use paddock_model::error::Kind;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::{Object, Relation};
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Snapshot, SnapshotFilter};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::layers::Layer;
use paddock_store::{Tx, layers, snapshots};

use crate::permissions::Decision;
use crate::{Engine, permissions};

/// A snapshot, and the bytes that it stands on.
pub struct Described {
    pub snapshot: Snapshot,
    pub layer: Option<Layer>,
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &SnapshotFilter,
    page: PageRequest,
) -> Result<Page<Described>> {
    let mut tx = engine.store.read().await?;
    let scope = permissions::scope(engine, caller);
    let found = snapshots::list(&mut tx, &scope, filter, page).await?;
    let mut items = Vec::with_capacity(found.items.len());
    for snapshot in found.items {
        items.push(describe(&mut tx, snapshot).await?);
    }
    Ok(Page { items, next: found.next })
}

pub async fn get(engine: &Engine, caller: &Caller, name: &str) -> Result<Described> {
    let mut tx = engine.store.read().await?;
    let snapshot = find(engine, &mut tx, caller, name).await?;
    describe(&mut tx, snapshot).await
}

async fn describe(tx: &mut Tx, snapshot: Snapshot) -> Result<Described> {
    let layer = layers::find(tx, snapshot.layer).await?;
    Ok(Described { snapshot, layer })
}

pub(crate) async fn find(engine: &Engine, tx: &mut Tx, caller: &Caller, name: &str) -> Result<Snapshot> {
    let name = Slug::parse(name).ok_or_else(|| Error::not_found("snapshot"))?;
    let scope = permissions::scope(engine, caller);
    let snapshot = snapshots::find(tx, &scope, &name).await?;
    snapshot.ok_or_else(|| permissions::invisible(engine, "snapshot", Object::Snapshot(name)))
}

/// The snapshot that a new emulator is to boot from: the one that is named, or the newest deployable promoted root that
/// the caller may deploy in this tenant.
pub(crate) async fn choose(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    named: Option<&str>,
    device_type: Option<DeviceType>,
) -> Result<Snapshot> {
    if let Some(name) = named {
        let snapshot = find(engine, tx, caller, name).await?;
        permissions::require(engine, caller, Relation::CanDeploy, snapshot.object())?;
        if snapshot.tenant.is_some_and(|owner| owner != tenant) {
            let detail =
                "The snapshot belongs to another tenant than the emulator would. Use the snapshot's tenant.";
            return Err(Error::conflict("other_tenant", detail));
        }
        return if snapshot.is_deployable() { Ok(snapshot) } else { Err(not_deployable(&snapshot)) };
    }
    let fits = |snapshot: &Snapshot| {
        snapshot.is_deployable()
            && snapshot.tenant.is_none_or(|owner| owner == tenant)
            && device_type.is_none_or(|kind| snapshot.image.device_type == kind)
            && permissions::decide(engine, caller, Relation::CanDeploy.name(), &snapshot.object().thing())
                == Decision::Allowed
    };
    let root = snapshots::newest_roots(tx).await?.into_iter().find(fits);
    root.ok_or_else(|| {
        let detail = "There is no promoted root to deploy. Name a snapshot, or promote one.";
        Error::new(Kind::Conflict, "no_deployable_root", detail)
    })
}

fn not_deployable(snapshot: &Snapshot) -> Error {
    let problems = snapshot.problems.iter().map(|code| paddock_model::error::Problem {
        code: code.clone().into(),
        message: format!("The snapshot is {}: {code}.", snapshot.state.name()),
    });
    Error::conflict("not_deployable", format!("The snapshot {} cannot be deployed yet.", snapshot.name))
        .with_problems(problems.collect())
}
