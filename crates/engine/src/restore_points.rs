//! Restore points: what a new device starts from, by what is named, by a job's keys and branches, or by default.

use paddock_model::caller::Caller;
use paddock_model::ci::{Hit, Job, RestoreSpec, Restored};
use paddock_model::devices::DeviceType;
use paddock_model::permissions::Relation;
use paddock_model::snapshots::Snapshot;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::restore_points::Fit;
use paddock_store::{Tx, restore_points, snapshots as snapshot_rows};

use crate::permissions::Decision;
use crate::{Engine, permissions, snapshots};

/// What a caller wants a device to start from.
pub(crate) struct Wish<'a> {
    pub tenant: TenantId,
    pub named: Option<&'a str>,
    pub restore: Option<&'a RestoreSpec>,
    pub device_type: Option<DeviceType>,
    pub job: Option<&'a Job>,
}

/// How often it is looked again for what others delete meanwhile.
const LOOKS: usize = 16;

/// The snapshot that a new device starts from; where one was looked for, with how it was found.
pub(crate) async fn choose(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    wish: &Wish<'_>,
) -> Result<(Snapshot, Option<Restored>)> {
    if let Some(restore) = wish.restore {
        let (snapshot, hit) = restored(engine, tx, caller, wish, restore).await?;
        let key = snapshot.origin.job().and_then(|job| job.key.clone());
        let restored = Restored { hit, snapshot: snapshot.name.clone(), key };
        return Ok((snapshot, Some(restored)));
    }
    if wish.named.is_some() {
        let snapshot =
            snapshots::choose(engine, tx, caller, wish.tenant, wish.named, wish.device_type).await?;
        require_trust(wish.job, &snapshot)?;
        return Ok((snapshot, None));
    }
    let roots = snapshots::roots(engine, tx, caller, wish.tenant, wish.device_type).await?;
    let admitted = |root: &Snapshot| wish.job.is_none_or(|job| job.admits(root.trust));
    let root = roots.into_iter().find(admitted).ok_or_else(snapshots::no_deployable_root)?;
    Ok((root, None))
}

/// Refuses what a proved job must not be given, whoever names it.
pub(crate) fn require_trust(job: Option<&Job>, snapshot: &Snapshot) -> Result<()> {
    let Some(job) = job.filter(|job| !job.admits(snapshot.trust)) else { return Ok(()) };
    let detail = format!(
        "The snapshot {} is {} and this job is {}: whatever ran before would run in it. Name one that is trusted as far.",
        snapshot.name,
        snapshot.trust.name(),
        job.trust().name()
    );
    Err(Error::conflict("untrusted_snapshot", detail))
}

/// The first that fits, in the order of the clues; where none does, the newest promoted root.
async fn restored(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    wish: &Wish<'_>,
    restore: &RestoreSpec,
) -> Result<(Snapshot, Hit)> {
    let roots = snapshots::roots(engine, tx, caller, wish.tenant, wish.device_type).await?;
    // What would be started without a job says what kind of device this is.
    let model = roots.first().ok_or_else(snapshots::no_deployable_root)?.image.clone();
    let trust = wish.job.map_or(paddock_model::trust::Trust::Internal, Job::trust);
    let fit = Fit { tenant: wish.tenant, device_type: model.device_type, abi: &model.abi, trust };
    let context = wish.job.and_then(|job| job.context.as_ref());
    let may = |snapshot: &Snapshot| {
        permissions::decide(engine, caller, Relation::CanDeploy.name(), &snapshot.object().thing())
            == Decision::Allowed
    };
    for (hit, clue) in restore.clues(context) {
        for _ in 0..LOOKS {
            let Some(name) = restore_points::newest(tx, fit, &clue).await? else { break };
            match snapshot_rows::find_any(tx, &name).await?.filter(Snapshot::is_deployable) {
                Some(snapshot) if may(&snapshot) => return Ok((snapshot, hit)),
                // Who may deploy one of a tenant's may deploy all of them: there is no older one to try.
                Some(_) => break,
                // Gone between the two looks: the one before it is the newest now.
                None => {}
            }
        }
    }
    if restore.required {
        let detail = "Nothing was captured under the key, its fallbacks or the job's branches that fits this device and is \
                      trusted as far as the job. Capture something first, or leave `required` out to start from a root.";
        return Err(Error::conflict("restore_miss", detail));
    }
    let fits = |root: &Snapshot| {
        root.image.device_type == model.device_type && root.image.abi == model.abi && root.trust >= trust
    };
    let root = roots.into_iter().find(fits).ok_or_else(snapshots::no_deployable_root)?;
    Ok((root, Hit::Root))
}
