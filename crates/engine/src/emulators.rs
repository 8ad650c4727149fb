//! Emulators: devices that run. A request changes what is wanted; a loop makes it so.

use std::time::Duration;

use paddock_model::caller::Caller;
use paddock_model::ci::{CapturePolicy, Job, JobContext, JobStatement, RestoreSpec};
use paddock_model::devices::{DeviceIdentity, DeviceState, DeviceType};
use paddock_model::emulators::{
    Action, Cause, Emulator, EmulatorFilter, EmulatorId, Footing, IdentityMode, SLOTS, Seen, Start, Status,
    Wanted, address_of, fresh, identity,
};
use paddock_model::error::{Fault, Kind, Problem};
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
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::devices::Devices;
use crate::restore_points::Wish;
use crate::{Engine, audit, idempotency_keys, permissions, restore_points, snapshots, templates, tenants};

/// What a caller may say about a new emulator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmulatorSpec {
    pub tenant: Option<TenantId>,
    pub name: Option<String>,
    pub snapshot: Option<String>,
    /// Instead of a snapshot: what to look for.
    pub restore: Option<RestoreSpec>,
    pub device_type: Option<DeviceType>,
    pub labels: Labels,
    /// What is captured of it when its job ends.
    pub capture: Option<CapturePolicy>,
    /// The job that it is for.
    pub ci: Option<JobStatement>,
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
    for _ in 1..ATTEMPTS {
        let outcome = create_one(engine, caller, &spec).await;
        if !was_overtaken(&spec, &outcome) {
            return outcome;
        }
    }
    create_one(engine, caller, &spec).await
}

async fn create_one(engine: &Engine, caller: &Caller, spec: &EmulatorSpec) -> Result<Emulator> {
    let tenant = tenants::meant(engine, caller, spec.tenant).await?.id;
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanCreateEmulator, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return Ok(earlier);
    }
    let plan = plan(engine, &mut tx, caller, tenant, spec).await?;
    let emulator = deploy(engine, &mut tx, caller, &plan, spec.name.clone()).await?;
    announce(engine, &mut tx, caller, &emulator).await?;
    idempotency_keys::remember(&mut tx, caller, &emulator).await?;
    engine.commit(tx).await?;
    Ok(emulator)
}

/// What became of one of several emulators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    Emulator(Box<Emulator>),
    /// Why there is none.
    Refused(Problem),
}

/// Deploys several emulators from one snapshot, as many as the quotas allow. Where there is room for none, none is made.
pub async fn create_many(
    engine: &Engine,
    caller: &Caller,
    spec: EmulatorSpec,
    count: u32,
) -> Result<Vec<Made>> {
    for _ in 1..ATTEMPTS {
        let outcome = create_some(engine, caller, &spec, count).await;
        if !was_overtaken(&spec, &outcome) {
            return outcome;
        }
    }
    create_some(engine, caller, &spec, count).await
}

async fn create_some(engine: &Engine, caller: &Caller, spec: &EmulatorSpec, count: u32) -> Result<Vec<Made>> {
    let tenant = tenants::meant(engine, caller, spec.tenant).await?.id;
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanCreateEmulator, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return Ok(earlier);
    }
    let plan = plan(engine, &mut tx, caller, tenant, spec).await?;
    let mut made = Vec::new();
    let mut refused = None;
    for number in 1..=count {
        if refused.is_none() {
            let name = spec.name.as_ref().map(|name| format!("{name}-{number}"));
            match deploy(engine, &mut tx, caller, &plan, name).await {
                Ok(emulator) => made.push(Made::Emulator(Box::new(emulator))),
                // Of the first, and of what stands in the way of all of them, the request itself is told.
                Err(error) if made.is_empty() || !matches!(error.code, "quota_exceeded" | "no_address") => {
                    return Err(error);
                }
                Err(error) => {
                    let problem = Problem { code: error.code.into(), message: error.detail.to_string() };
                    refused = Some(problem);
                }
            }
        }
        // What one is refused, all that follow are.
        made.extend(refused.clone().map(Made::Refused));
    }
    for made in &made {
        if let Made::Emulator(emulator) = made {
            announce(engine, &mut tx, caller, emulator).await?;
        }
    }
    idempotency_keys::remember(&mut tx, caller, &made).await?;
    engine.commit(tx).await?;
    Ok(made)
}

/// Whether what was found for a job was deleted before it could be held: then there is something else to be found.
fn was_overtaken<T>(spec: &EmulatorSpec, outcome: &Result<T>) -> bool {
    spec.restore.is_some() && outcome.as_ref().is_err_and(|error| error.code == NOT_DEPLOYABLE)
}

/// So often in a row nobody is overtaken by accident.
const ATTEMPTS: u32 = 5;
const NOT_DEPLOYABLE: &str = "not_deployable";

/// What is decided once, for however many emulators.
struct Plan<'a> {
    spec: &'a EmulatorSpec,
    tenant: TenantId,
    snapshot: Snapshot,
    job: Option<Job>,
}

async fn plan<'a>(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    spec: &'a EmulatorSpec,
) -> Result<Plan<'a>> {
    let job = job(caller, spec)?;
    let wish = Wish {
        tenant,
        named: spec.snapshot.as_deref(),
        restore: spec.restore.as_ref(),
        device_type: spec.device_type,
        job: job.as_ref(),
    };
    let (snapshot, restored) = restore_points::choose(engine, tx, caller, &wish).await?;
    require_room(engine, tx, caller, tenant).await?;
    let job = job.map(|job| Job { restored, ..job });
    Ok(Plan { spec, tenant, snapshot, job })
}

/// The job that an emulator is for, by the caller's credential and by what the caller says.
fn job(caller: &Caller, spec: &EmulatorSpec) -> Result<Option<Job>> {
    let proved = caller.credential.job.as_deref().cloned();
    let context = match (proved, spec.ci.clone()) {
        (Some(proved), Some(stated)) => Some(proved.with_statement(stated).map_err(contradictions)?),
        (Some(proved), None) => Some(proved),
        (None, stated) => stated.map(JobContext::stated),
    };
    let is_job = context.is_some() || spec.restore.is_some() || spec.capture.is_some();
    Ok(is_job.then(|| Job { context, restored: None, capture: spec.capture.clone(), ending: None }))
}

fn contradictions(members: Vec<&'static str>) -> Error {
    let fault = |member: &str| Fault {
        pointer: format!("/ci/{member}"),
        code: "contradicts_credential".into(),
        message: "the job's token says otherwise; leave it out".to_owned(),
    };
    Error::invalid(members.into_iter().map(fault).collect())
}

/// Records one emulator. Where it is refused, nothing is left of it.
async fn deploy(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    plan: &Plan<'_>,
    name: Option<String>,
) -> Result<Emulator> {
    let Plan { spec, tenant, snapshot, job } = plan;
    let devices = engine.devices()?;
    let now = engine.now();
    let id = EmulatorId::new(now, engine.random());
    let disk = clone_of(engine, snapshot, id);
    let slot = take_slot(tx, devices).await?;
    let more = Usage { emulators: 1, memory_bytes: snapshot.image.memory_bytes, disk_bytes: 0 };
    if let Err(error) = require_within_quota(devices, tenant_usage::add(tx, *tenant, more).await?) {
        let less = Usage { emulators: -1, memory_bytes: -snapshot.image.memory_bytes, disk_bytes: 0 };
        tenant_usage::add(tx, *tenant, less).await?;
        slots::release(tx, slot, now).await?;
        return Err(error);
    }
    let emulator = Emulator {
        id,
        tenant: *tenant,
        owner: caller.subject.clone(),
        name: name.unwrap_or_else(|| format!("{}-{}", snapshot.name, &id.to_string()[26..])),
        labels: spec.labels.clone(),
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
        job: job.clone(),
        identity: draw_identity(engine, &spec.identity, snapshot.image.device_type),
        slot: Some(slot),
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
        start: Start { template: templates::usable(tx, &snapshot.name).await?, ..Start::default() },
        vehicle: snapshot.image.needs_vehicle().then_some(1),
    };
    take_clone(tx, snapshot, &disk).await?;
    emulators::insert(tx, &emulator).await?;
    if let Some(change) = Change::between(None, &emulator, now) {
        logs::insert(tx, &change).await?;
    }
    Ok(emulator)
}

/// Says whose it is. Relations come after all rows: two who take them in another order would wait for each other.
async fn announce(engine: &Engine, tx: &mut Tx, caller: &Caller, emulator: &Emulator) -> Result<()> {
    let (object, tenant, now) = (emulator.object(), emulator.tenant, engine.now());
    relations::give(tx, &object.given_to("tenant", Holder::One(tenant.object().thing())), now).await?;
    relations::give(tx, &object.given_to("owner", Holder::One(caller.subject.thing())), now).await?;
    let details = json!({ "snapshot": emulator.snapshot, "name": emulator.name });
    audit::record(engine, tx, caller, "emulators.create", Some(tenant), object, details).await
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
    restore_points::require_trust(emulator.job.as_ref(), &snapshot)?;
    require_undisturbed(&emulator)?;
    require_room(engine, &mut tx, caller, emulator.tenant).await?;
    let disk = clone_of(engine, &snapshot, id);
    let to = Footing {
        snapshot: snapshot.name.clone(),
        snapshot_parent: snapshot.parent.clone(),
        image: snapshot.image.name.clone(),
        android_version: snapshot.image.android_version.clone(),
        disk: disk.id,
        vehicle: snapshot.image.needs_vehicle().then_some(1),
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
        return Err(Error::conflict(NOT_DEPLOYABLE, detail));
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
    } else {
        return Ok(());
    };
    Err(quota_exceeded(&exceeded, "Delete or park what nobody needs."))
}

fn quota_exceeded(quota: &str, advice: &str) -> Error {
    let detail = format!("The tenant's quota of {quota} is used up. {advice}");
    Error::new(Kind::Conflict, "quota_exceeded", detail)
}

/// Refuses who has used up the quota on disk, and what would fill the pool, and says what of that which the caller sees would make room.
pub(crate) async fn require_room(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
) -> Result<()> {
    /// A refusal must stay cheap; of more than so many, the newest are enough to give an idea.
    const MOST: u32 = 200;
    let devices = engine.devices()?;
    let quota = devices.settings.quota_disk_bytes;
    if tenant_usage::disk_bytes(tx, tenant).await? >= quota {
        let quota = format!("{} MiB on disk", quota >> 20);
        return Err(quota_exceeded(&quota, "Delete emulators or snapshots that nobody needs."));
    }
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
