//! Emulators: devices that run. A request changes what is wanted; a loop makes it so.

use std::time::Duration;

use paddock_model::caller::Caller;
use paddock_model::devices::{DeviceIdentity, DeviceState, DeviceType};
use paddock_model::emulators::{
    Action, Cause, Emulator, EmulatorFilter, EmulatorId, Footing, IdentityMode, SLOTS, Seen, Start, Status,
    Wanted, address_of, fresh, identity,
};
use paddock_model::error::{Kind, Problem};
use paddock_model::expected::Expected;
use paddock_model::labels::Labels;
use paddock_model::layers::DiskId;
use paddock_model::logs::Change;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::permissions::tuples::Holder;
use paddock_model::snapshots::Snapshot;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::disks::Disk;
use paddock_store::tenant_usage::Usage;
use paddock_store::{Tx, disks, emulators, logs, relations, slots, snapshots as snapshot_rows, tenant_usage};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::devices::Devices;
use crate::{Engine, audit, idempotency_keys, permissions, snapshots, templates, tenants};

/// What a caller may say about a new emulator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmulatorSpec {
    pub tenant: Option<TenantId>,
    pub name: Option<String>,
    pub snapshot: Option<String>,
    pub device_type: Option<DeviceType>,
    pub labels: Labels,
    pub identity: IdentityMode,
    pub expires_in: Option<Duration>,
    pub idle_timeout: Option<Duration>,
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &EmulatorFilter,
    page: PageRequest,
) -> Result<Page<Emulator>> {
    let mut tx = engine.store.read().await?;
    let scope = permissions::emulator_scope(engine, caller);
    Ok(emulators::list(&mut tx, &scope, filter, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Emulator> {
    let mut tx = engine.store.read().await?;
    let scope = permissions::emulator_scope(engine, caller);
    let emulator = emulators::find(&mut tx, &scope, id).await?;
    emulator.ok_or_else(|| permissions::invisible(engine, "emulator", &id.object()))
}

/// What the device says of itself right now; nothing when it cannot be asked.
pub async fn inspect(engine: &Engine, emulator: &Emulator) -> Option<DeviceState> {
    if emulator.status() != Status::Running {
        return None;
    }
    let devices = engine.devices().ok()?;
    match devices.host.inspect(emulator.id).await {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::debug!(emulator = %emulator.id, %error, "the device could not be asked");
            None
        }
    }
}

/// Deploys an emulator. When this returns it is wanted; a loop brings it up.
pub async fn create(engine: &Engine, caller: &Caller, spec: EmulatorSpec) -> Result<Emulator> {
    let tenant = tenants::meant(engine, caller, spec.tenant).await?;
    let devices = engine.devices()?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanCreateEmulator, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let named = spec.snapshot.as_deref();
    let snapshot = snapshots::choose(engine, &mut tx, caller, tenant.id, named, spec.device_type).await?;
    require_room(engine, &mut tx, caller, tenant.id).await?;
    let id = EmulatorId::new(now, engine.random());
    let disk = clone_of(engine, &snapshot, id);
    let emulator = Emulator {
        id,
        tenant: tenant.id,
        owner: caller.subject.clone(),
        name: spec.name.unwrap_or_else(|| format!("{}-{}", snapshot.name, &id.to_string()[26..])),
        labels: spec.labels,
        device_type: snapshot.image.device_type,
        android_version: snapshot.image.android_version.clone(),
        memory_bytes: snapshot.image.memory_bytes,
        cpus: snapshot.image.cpus,
        snapshot: snapshot.name.clone(),
        snapshot_parent: snapshot.parent.clone(),
        image: snapshot.image.name.clone(),
        disk: disk.id,
        previous: None,
        discarded: None,
        capturing: None,
        identity: draw_identity(engine, &spec.identity, snapshot.image.device_type),
        slot: Some(take_slot(&mut tx, devices).await?),
        wanted: Wanted::Running,
        incarnation: 1,
        cause: Cause::Deploy,
        seen: Seen::None,
        seen_incarnation: 0,
        seen_since: now,
        disk_ready_at: None,
        started_at: None,
        boot_duration_ms: None,
        failed_at: None,
        reason: None,
        unsettled: true,
        due_at: now,
        failures: 0,
        expires_at: spec.expires_in.map(|after| now + after),
        idle_timeout_seconds: spec.idle_timeout.map(|after| after.as_secs() as i64),
        active_at: now,
        created_at: now,
        updated_at: now,
        terminated_at: None,
        generation: 1,
        start: Start { template: templates::usable(&mut tx, &snapshot.name).await?, ..Start::default() },
    };
    let more = Usage { emulators: 1, memory_bytes: emulator.memory_bytes, disk_bytes: 0 };
    require_within_quota(devices, tenant_usage::add(&mut tx, tenant.id, more).await?)?;
    take_clone(&mut tx, &snapshot, &disk).await?;
    emulators::insert(&mut tx, &emulator).await?;
    if let Some(change) = Change::between(None, &emulator, now) {
        logs::insert(&mut tx, &change).await?;
    }
    let object = emulator.object();
    relations::give(&mut tx, &object.given_to("tenant", Holder::One(tenant.object().thing())), now).await?;
    relations::give(&mut tx, &object.given_to("owner", Holder::One(caller.subject.thing())), now).await?;
    let details = json!({ "snapshot": snapshot.name, "name": emulator.name });
    audit::record(engine, &mut tx, caller, "emulators.create", Some(tenant.id), object, details).await?;
    idempotency_keys::remember(&mut tx, caller, &emulator).await?;
    engine.commit(tx).await?;
    Ok(emulator)
}

/// The same device once more, from its disk as it is: same id, same address.
pub async fn restart(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Emulator> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanRestart, &emulator.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let parked = emulator.status() == Status::Parked;
    require_action(&emulator, if parked { Action::Wake } else { Action::Restart })?;
    let wanted = if parked { emulator.clone().woken(now) } else { emulator.clone().restarted(now) };
    let changed = update(&mut tx, &emulator, wanted, now).await?;
    let details = json!({ "incarnation": changed.incarnation });
    audit::record(
        engine,
        &mut tx,
        caller,
        "emulators.restart",
        Some(changed.tenant),
        changed.object(),
        details,
    )
    .await?;
    idempotency_keys::remember(&mut tx, caller, &changed).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// A clone of another snapshot takes over under the same id and address. Until it is up the disk before it is kept, and
/// comes back by itself if it does not come up.
pub async fn swap_snapshot(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    named: &str,
    expected: &Expected,
) -> Result<Emulator> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanSwapSnapshot, &emulator.object())?;
    expected.require(emulator.generation)?;
    require_action(&emulator, Action::Swap)?;
    let snapshot =
        snapshots::choose(engine, &mut tx, caller, emulator.tenant, Some(named), Some(emulator.device_type))
            .await?;
    if snapshot.image.device_type != emulator.device_type {
        let detail = format!(
            "The emulator is a {} and the snapshot boots a {}. Deploy a new emulator from it instead.",
            emulator.device_type.name(),
            snapshot.image.device_type.name()
        );
        return Err(Error::conflict("other_device_type", detail));
    }
    require_undisturbed(&emulator)?;
    require_room(engine, &mut tx, caller, emulator.tenant).await?;
    let disk = clone_of(engine, &snapshot, id);
    let to = Footing {
        snapshot: snapshot.name.clone(),
        snapshot_parent: snapshot.parent.clone(),
        image: snapshot.image.name.clone(),
        android_version: snapshot.image.android_version.clone(),
        disk: disk.id,
    };
    take_clone(&mut tx, &snapshot, &disk).await?;
    let template = templates::usable(&mut tx, &snapshot.name).await?;
    let changed = update(&mut tx, &emulator, emulator.clone().swapped(to, template, now), now).await?;
    let details =
        json!({ "from": emulator.snapshot, "to": snapshot.name, "incarnation": changed.incarnation });
    let (tenant, object) = (Some(changed.tenant), changed.object());
    audit::record(engine, &mut tx, caller, "emulators.swap_snapshot", tenant, object, details).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// A disk of its own for an emulator, as the snapshot is.
fn clone_of(engine: &Engine, snapshot: &Snapshot, emulator: EmulatorId) -> Disk {
    let now = engine.now();
    Disk {
        id: DiskId::new(now, engine.random()),
        emulator,
        layer: snapshot.layer,
        snapshot: Some(snapshot.name.clone()),
        created_at: now,
    }
}

/// Records the clone, before any file is made. Whoever deletes the snapshot at this moment is either first or refused.
async fn take_clone(tx: &mut Tx, snapshot: &Snapshot, disk: &Disk) -> Result<()> {
    if !snapshot_rows::record_use(tx, &snapshot.name, disk.created_at).await? {
        let detail = format!("The snapshot {} is being deleted. Choose another one.", snapshot.name);
        return Err(Error::conflict("not_deployable", detail));
    }
    Ok(disks::insert(tx, disk).await?)
}

/// Refuses while something is under way that has to end first.
pub(crate) fn require_undisturbed(emulator: &Emulator) -> Result<()> {
    if let Some(snapshot) = &emulator.capturing {
        let detail = format!("The snapshot {snapshot} is being captured of it. Try again when that is done.");
        return Err(Error::conflict("capture_in_progress", detail));
    }
    if emulator.previous.is_some() || emulator.discarded.is_some() {
        let detail = "The disk of an earlier swap is still being removed. Try again in a moment.";
        return Err(Error::conflict("swap_in_progress", detail));
    }
    Ok(())
}

/// Gives the compute back and keeps the disk; a restart wakes it under the same id.
pub async fn park(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Emulator> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanRestart, &emulator.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    require_action(&emulator, Action::Park)?;
    let wanted = emulator.clone().parked(now);
    let changed = update(&mut tx, &emulator, wanted, now).await?;
    audit::record(
        engine,
        &mut tx,
        caller,
        "emulators.park",
        Some(changed.tenant),
        changed.object(),
        json!({}),
    )
    .await?;
    idempotency_keys::remember(&mut tx, caller, &changed).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// The device and its disk go. One that is going already is left to it.
pub async fn delete(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    expected: &Expected,
) -> Result<Emulator> {
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanDelete, &emulator.object())?;
    expected.require(emulator.generation)?;
    if emulator.wanted == Wanted::Gone {
        return Ok(emulator);
    }
    let now = engine.now();
    let wanted = emulator.clone().removed(None, now);
    let changed = update(&mut tx, &emulator, wanted, now).await?;
    let details = json!({ "name": changed.name });
    audit::record(
        engine,
        &mut tx,
        caller,
        "emulators.delete",
        Some(changed.tenant),
        changed.object(),
        details,
    )
    .await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// Returns when the emulator has left the statuses on the way, or after so long.
pub async fn wait(engine: &Engine, caller: &Caller, id: EmulatorId, patience: Duration) -> Result<Emulator> {
    let mut news = engine.store.watch(&["emulators"]);
    let settled = async {
        loop {
            let emulator = get(engine, caller, id).await?;
            let on_its_way = matches!(
                emulator.status(),
                Status::Provisioning | Status::Restarting | Status::Swapping | Status::Terminating
            );
            if !on_its_way {
                return Ok(emulator);
            }
            news.changed().await;
        }
    };
    match tokio::time::timeout(patience, settled).await {
        Ok(outcome) => outcome,
        Err(_) => get(engine, caller, id).await,
    }
}

/// Where ADB answers.
pub fn address(emulator: &Emulator) -> Option<std::net::Ipv4Addr> {
    emulator.slot.map(address_of)
}

/// Records the emulator as it stands now, if it still is what was read, and what its log is to say of it.
pub(crate) async fn update(
    tx: &mut Tx,
    before: &Emulator,
    after: Emulator,
    now: Timestamp,
) -> Result<Emulator> {
    let after = Emulator { generation: before.generation + 1, ..after };
    emulators::update(tx, before, &after).await?;
    if let Some(change) = Change::between(Some(before), &after, now) {
        logs::insert(tx, &change).await?;
    }
    Ok(after)
}

/// Everything that an emulator held is given back, and its record becomes a tombstone.
pub(crate) async fn bury(tx: &mut Tx, emulator: &Emulator, now: Timestamp) -> Result<()> {
    if let Some(slot) = emulator.slot {
        slots::release(tx, slot, now).await?;
    }
    let less = Usage { emulators: -1, memory_bytes: -emulator.memory_bytes, disk_bytes: 0 };
    tenant_usage::add(tx, emulator.tenant, less).await?;
    disks::delete(tx, emulator.disk).await?;
    let buried = Emulator {
        slot: None,
        terminated_at: Some(now),
        expires_at: None,
        unsettled: false,
        updated_at: now,
        ..emulator.clone()
    };
    update(tx, emulator, buried, now).await.map(drop)
}

pub(crate) async fn find_to_change(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    id: EmulatorId,
) -> Result<Emulator> {
    let scope = permissions::emulator_scope(engine, caller);
    let emulator = emulators::find_to_change(tx, &scope, id).await?;
    emulator.ok_or_else(|| permissions::invisible(engine, "emulator", &id.object()))
}

pub(crate) fn require_action(emulator: &Emulator, action: Action) -> Result<()> {
    let status = emulator.status();
    if status.actions().contains(&action) {
        return Ok(());
    }
    Err(invalid_state(status, &format!("asked to {}", action.name())))
}

/// What cannot be done in this status, and what can.
pub(crate) fn invalid_state(status: Status, what: &str) -> Error {
    let allowed: Vec<&str> = status.actions().iter().map(|action| action.name()).collect();
    let detail = format!(
        "The emulator is {}; it cannot be {what} now. Allowed: {}.",
        status.name(),
        if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") }
    );
    let problem = |code: &str, message: String| Problem { code: code.to_owned().into(), message };
    let mut problems = vec![problem("status", status.name().to_owned())];
    problems.extend(allowed.into_iter().map(|action| problem("allowed_action", action.to_owned())));
    Error::conflict("invalid_state", detail).with_problems(problems)
}

fn require_within_quota(devices: &Devices, usage: Usage) -> Result<()> {
    let settings = &devices.settings;
    let exceeded = if usage.emulators > settings.quota_emulators {
        format!("{} emulators", settings.quota_emulators)
    } else if usage.memory_bytes > settings.quota_memory_bytes {
        format!("{} MiB of memory", settings.quota_memory_bytes >> 20)
    } else if usage.disk_bytes >= settings.quota_disk_bytes {
        format!("{} MiB on disk", settings.quota_disk_bytes >> 20)
    } else {
        return Ok(());
    };
    let detail = format!("The tenant's quota of {exceeded} is used up. Delete or park what nobody needs.");
    Err(Error::new(Kind::Conflict, "quota_exceeded", detail))
}

/// Refuses what would fill the pool, and says what of that which the caller sees would make room.
pub(crate) async fn require_room(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
) -> Result<()> {
    /// A refusal must stay cheap; of more than so many, the newest are enough to give an idea.
    const MOST: u32 = 200;
    let devices = engine.devices()?;
    let Some(full) = devices.fullness() else { return Ok(()) };
    let scope = permissions::emulator_scope(engine, caller);
    let filter = EmulatorFilter { tenant: Some(tenant), ..EmulatorFilter::default() };
    let page = emulators::list(tx, &scope, &filter, PageRequest { limit: MOST, after: None }).await?;
    let mut sizes: Vec<(i64, &Emulator)> =
        page.items.iter().map(|emulator| (devices.disk_bytes(emulator.disk), emulator)).collect();
    sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mebibytes = |bytes: i64| bytes / (1 << 20);
    let held = match sizes.first() {
        Some((largest, emulator)) => format!(
            "{} {} MiB, the largest of them {} ({} MiB). Delete emulators or snapshots that nobody needs, or give the pool more room.",
            match sizes.len() {
                1 => "1 emulator in this tenant holds".to_owned(),
                count => format!("{count} emulators in this tenant hold"),
            },
            mebibytes(sizes.iter().map(|(bytes, _)| bytes).sum()),
            emulator.name,
            mebibytes(*largest),
        ),
        None => "No emulator that you see in this tenant takes any of it. Ask for more room, or wait until others make some.".to_owned(),
    };
    let detail = format!(
        "The disk pool {} is full: {} MiB of {} MiB are free. {held}",
        devices.pool.name(),
        mebibytes(full.free_bytes),
        mebibytes(full.capacity_bytes),
    );
    Err(Error::unavailable("no_capacity", detail).with_retry_after(Duration::from_secs(60)))
}

pub(crate) async fn take_slot(tx: &mut Tx, devices: &Devices) -> Result<i64> {
    let slot = slots::take(tx, devices.settings.first_slot, SLOTS).await?;
    slot.ok_or_else(|| Error::unavailable("no_address", "Every loopback address is taken. Delete emulators."))
}

pub(crate) fn draw_identity(engine: &Engine, mode: &IdentityMode, device_type: DeviceType) -> DeviceIdentity {
    let seed = fresh(engine.random());
    match mode {
        IdentityMode::Regenerate => identity(&fresh(engine.random()), &seed, device_type),
        IdentityMode::Keep { seed } => {
            let drawn = |purpose: &str| {
                let mut bytes = [0; 32];
                bytes.copy_from_slice(digest(&SHA256, format!("{purpose}\n{seed}").as_bytes()).as_ref());
                bytes
            };
            identity(&drawn("identity"), &drawn("randomness"), device_type)
        }
    }
}
