//! Makes the devices match what is wanted of them: observe, compare, act, record.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use paddock_model::drivers::disk_pools::Volume;
use paddock_model::drivers::emulator_hosts::Launch;
use paddock_model::drivers::{DriverError, Retry};
use paddock_model::emulators::{Emulator, EmulatorId, Reason, Seen, Step, Wanted, address_of};
use paddock_model::error::Kind;
use paddock_model::layers::DiskId;
use paddock_model::snapshots::VerifiedBoot;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, disks, emulators, snapshots, templates, verifications};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

use super::{Loop, Report, Trouble, delay, logs};
use crate::devices::Devices;
use crate::emulators::{bury, update};
use crate::{Engine, vehicles};

pub const LOOP: Loop = Loop {
    name: "emulators",
    watches: &["emulators"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

/// Devices that are worked on at the same time.
const AT_ONCE: usize = 8;
/// Observations that are recorded at the same time: they share a commit, and nothing is done to a device meanwhile.
const LOOKS_AT_ONCE: usize = 32;
const A_RUN: i64 = 500;
/// How often it is tried again what a swap needs before the disk before takes over.
const SWAP_TRIES: i64 = 4;
/// Everything is compared as a whole when the process starts, and then this often.
const COMPARED_EVERY: Duration = Duration::from_secs(600);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let now = engine.now();
    let mut changed = 0;
    let compared_at = *devices.compared_at.lock().unwrap_or_else(PoisonError::into_inner);
    if compared_at.is_none_or(|at| now >= at + COMPARED_EVERY) {
        changed += compare(engine, devices).await?;
        *devices.compared_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
    let due = emulators::due(&mut engine.store.read().await?, now, A_RUN).await?;
    let outcomes = stream::iter(due).map(|id| attend(engine, devices, id)).buffer_unordered(AT_ONCE);
    let outcomes: Vec<Result<u64>> = outcomes.collect().await;
    for outcome in outcomes {
        changed += outcome?;
    }
    let next = emulators::next_due(&mut engine.store.read().await?).await?;
    Ok(Report { changed, next })
}

/// Looks at every device that there is or should be. What nobody wants is removed: it is a leftover of a crash.
async fn compare(engine: &Engine, devices: &Devices) -> Result<u64, Trouble> {
    let mut changed = 0;
    let mut there: HashSet<EmulatorId> = devices.host.list().await?.into_iter().collect();
    let mut after = None;
    loop {
        let ids = emulators::alive(&mut engine.store.read().await?, after, A_RUN).await?;
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        for id in &ids {
            there.remove(id);
        }
        for (_, looked) in look_at_all(engine, devices, ids).await {
            changed += u64::from(looked?);
        }
    }
    for id in verifications::emulators(&mut engine.store.read().await?).await? {
        there.remove(&id);
    }
    for id in templates::emulators(&mut engine.store.read().await?).await? {
        there.remove(&id);
    }
    for leftover in there {
        tracing::warn!(emulator = %leftover, "a device runs that nobody wants; it is removed");
        devices.host.remove(leftover).await?;
        changed += 1;
    }
    Ok(changed)
}

/// Hears what the host has noticed, and records it; that wakes the loop.
pub(super) async fn follow(engine: Engine, stop: CancellationToken) {
    let Some(devices) = engine.devices.clone() else { return };
    let mut changes = devices.host.changes();
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = stop.cancelled() => return,
        };
        match change {
            Ok(id) => {
                let mut ids = HashSet::from([id]);
                // What has been noticed meanwhile goes with it; what does not fit into one go is heard next.
                while ids.len() < A_RUN as usize {
                    match changes.try_recv() {
                        Ok(id) => drop(ids.insert(id)),
                        Err(TryRecvError::Lagged(_)) => forget_comparison(&devices),
                        Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                    }
                }
                for (id, looked) in look_at_all(&engine, &devices, ids).await {
                    if let Err(error) = looked {
                        tracing::warn!(emulator = %id, %error, "what a device does could not be recorded");
                        forget_comparison(&devices);
                    }
                }
            }
            // Some news was lost: look at everything.
            Err(RecvError::Lagged(_)) => forget_comparison(&devices),
            Err(RecvError::Closed) => return,
        }
    }
}

fn forget_comparison(devices: &Devices) {
    *devices.compared_at.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

async fn look_at_all(
    engine: &Engine,
    devices: &Devices,
    ids: impl IntoIterator<Item = EmulatorId>,
) -> Vec<(EmulatorId, Result<bool>)> {
    let looks = stream::iter(ids).map(|id| async move { (id, look(engine, devices, id).await) });
    looks.buffer_unordered(LOOKS_AT_ONCE).collect().await
}

/// Records what is seen of a device now; false when that is known.
async fn look(engine: &Engine, devices: &Devices, id: EmulatorId) -> Result<bool> {
    let observed = devices.host.observe(id).await.map_err(Error::internal)?;
    // Most often it is, and whoever only reads keeps no writer waiting.
    let known = find(engine, id).await?;
    if known.is_none_or(|known| known.clone().with_observation(observed.as_ref(), engine.now()) == known) {
        return Ok(false);
    }
    loop {
        let mut tx = engine.store.begin().await?;
        let Some(emulator) = emulators::find_any_to_change(&mut tx, id).await? else { return Ok(false) };
        let after = emulator.clone().with_observation(observed.as_ref(), engine.now());
        if after == emulator {
            return Ok(false);
        }
        let after = at_rest(devices, after, engine.now());
        match record(&mut tx, &emulator, after, engine.now()).await {
            Ok(()) => {
                engine.commit(tx).await?;
                return Ok(true);
            }
            Err(error) if error.kind == Kind::Stale => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes step after step for one emulator, until it has to wait.
async fn attend(engine: &Engine, devices: &Devices, id: EmulatorId) -> Result<u64> {
    let mut changed = 0;
    let mut made = None;
    // More steps than any life has between two waits.
    for _ in 0..16 {
        let Some(emulator) = find(engine, id).await? else { return Ok(changed) };
        let now = engine.now();
        let step = emulator.next_step(devices.settings.boot_deadline, devices.watched_since(now), now);
        let waits = matches!(step, Step::Settle | Step::Wait(_) | Step::Finish);
        match take(engine, devices, &emulator, step, &mut made).await {
            Ok(()) => changed += 1,
            // Somebody changed what is wanted meanwhile: look again.
            Err(Failure::Engine(error)) if error.kind == Kind::Stale => continue,
            Err(Failure::Engine(error)) => return Err(error),
            Err(Failure::Driver(error)) => {
                put_off(engine, &emulator, error).await?;
                return Ok(changed + 1);
            }
        }
        if waits {
            break;
        }
    }
    Ok(changed)
}

enum Failure {
    Driver(DriverError),
    Engine(Error),
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Failure::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Engine(error)
    }
}

impl From<paddock_store::Error> for Failure {
    fn from(error: paddock_store::Error) -> Self {
        Failure::Engine(error.into())
    }
}

/// A disk that was made sure of a moment ago.
type Made = Option<(DiskId, Volume)>;

async fn take(
    engine: &Engine,
    devices: &Devices,
    emulator: &Emulator,
    step: Step,
    made: &mut Made,
) -> Result<(), Failure> {
    let now = engine.now();
    let unchanged = emulator.clone();
    let after = match step {
        Step::MakeDisk => {
            *made = Some((emulator.disk, make_disk(engine, devices, emulator).await?));
            let made_at = Some(engine.now());
            // Nothing stands between it and its start, so the intent to start is recorded with it.
            Emulator { disk_ready_at: made_at, started_at: made_at, ..unchanged }
        }
        Step::Start if emulator.started_at.is_none() => {
            // The intent: from here on a device may run, and the clock of its boot does.
            Emulator { started_at: Some(now), ..unchanged }
        }
        Step::Start => {
            let volume = match made.take() {
                Some((disk, volume)) if disk == emulator.disk => volume,
                _ => make_disk(engine, devices, emulator).await?,
            };
            devices.host.ensure(&launch(engine, devices, emulator, volume).await?).await?;
            let observed = devices.host.observe(emulator.id).await?;
            at_rest(devices, unchanged.with_observation(observed.as_ref(), now), now)
        }
        Step::Stop => {
            devices.host.stop(emulator.id).await?;
            // With the device goes what it has said.
            logs::take_rest(engine, devices, emulator.id).await;
            devices.host.remove(emulator.id).await?;
            unchanged.with_observation(None, now)
        }
        Step::RemoveDisk => {
            devices.pool.remove_disk(emulator.disk).await?;
            Emulator { disk_ready_at: None, ..unchanged }
        }
        Step::Keep => Emulator {
            discarded: emulator.previous.as_ref().map(|old| old.disk),
            previous: None,
            ..unchanged
        },
        Step::Discard => {
            let Some(disk) = emulator.discarded else { return Ok(()) };
            devices.pool.remove_disk(disk).await?;
            let mut tx = engine.store.begin().await?;
            disks::delete(&mut tx, disk).await?;
            update(&mut tx, emulator, Emulator { discarded: None, ..unchanged }, now).await?;
            return Ok(engine.commit(tx).await?);
        }
        Step::SwapBack(reason) => {
            tracing::warn!(emulator = %emulator.id, snapshot = %emulator.snapshot, reason = reason.code, "a swap failed");
            unchanged.swapped_back(&reason, now)
        }
        Step::Finish => {
            // There may be a device and a disk of which a crash kept us from knowing.
            devices.host.remove(emulator.id).await?;
            vehicles::remove(devices, emulator.id).await?;
            devices.pool.remove_disk(emulator.disk).await?;
            let mut tx = engine.store.begin().await?;
            bury(&mut tx, emulator, now).await?;
            return Ok(engine.commit(tx).await?);
        }
        Step::GiveUp(reason) => Emulator { failed_at: Some(now), reason: Some(reason), ..unchanged },
        Step::Wait(until) => Emulator { due_at: until, failures: 0, ..unchanged },
        Step::Settle => Emulator { unsettled: false, failures: 0, ..unchanged },
    };
    if after == *emulator {
        return Ok(());
    }
    let mut tx = engine.store.begin().await?;
    record(&mut tx, emulator, after, now).await?;
    Ok(engine.commit(tx).await?)
}

/// Where there is nothing to do but to wait, that is recorded along with what it waits for.
fn at_rest(devices: &Devices, emulator: Emulator, now: Timestamp) -> Emulator {
    match emulator.next_step(devices.settings.boot_deadline, devices.watched_since(now), now) {
        Step::Wait(until) => Emulator { due_at: until, failures: 0, ..emulator },
        Step::Settle => Emulator { unsettled: false, failures: 0, ..emulator },
        _ => emulator,
    }
}

/// Records what has become of an emulator. A first boot proves the snapshot that it is a clone of.
async fn record(tx: &mut Tx, before: &Emulator, after: Emulator, now: Timestamp) -> Result<()> {
    let first = after.incarnation == 1 && after.seen == Seen::Ready && before.seen != Seen::Ready;
    if let (true, Some(duration_ms)) = (first, after.boot_duration_ms) {
        let boot = VerifiedBoot { at: after.seen_since, duration_ms, adb: true, vehicle: None };
        snapshots::prove(tx, &after.snapshot, &boot).await?;
    }
    update(tx, before, after, now).await.map(drop)
}

async fn make_disk(engine: &Engine, devices: &Devices, emulator: &Emulator) -> Result<Volume, Failure> {
    let disk = disks::find(&mut engine.store.read().await?, emulator.disk).await?;
    let disk = disk.ok_or_else(|| Error::internal("an emulator's disk is not in the catalogue"))?;
    Ok(devices.pool.ensure_disk(disk.id, disk.layer).await?)
}

async fn launch(
    engine: &Engine,
    devices: &Devices,
    emulator: &Emulator,
    volume: Volume,
) -> Result<Launch, Failure> {
    let slot = emulator.slot.ok_or_else(|| Error::internal("a running emulator has no address"))?;
    Ok(Launch {
        emulator: emulator.id,
        incarnation: emulator.incarnation,
        name: emulator.name.clone(),
        image: emulator.image.clone(),
        volume,
        identity: emulator.identity.clone(),
        adb_keys: Vec::new(),
        address: address_of(slot),
        memory_bytes: emulator.memory_bytes,
        cpus: emulator.cpus,
        template: emulator.start.template,
        vehicle: vehicles::ensure(engine, devices, emulator).await??,
    })
}

/// Obeys a driver: tries again later, or gives up.
async fn put_off(engine: &Engine, emulator: &Emulator, error: DriverError) -> Result<()> {
    tracing::warn!(emulator = %emulator.id, %error, "a device could not be brought to what is wanted");
    let now = engine.now();
    let reason = Some(Reason::new(error.code, error.message.clone()));
    let failures = emulator.failures + 1;
    let swaps = emulator.wanted == Wanted::Running && emulator.previous.is_some();
    let after = match error.retry {
        // The disk before is whole: nobody waits on this one for long.
        retry if swaps && (retry != Retry::Soon || failures >= SWAP_TRIES) => {
            emulator.clone().swapped_back(&Reason::new(error.code, error.message), now)
        }
        // There is no giving up on an end: what is to go is tried again until it is gone.
        Retry::Never if emulator.wanted == Wanted::Running => {
            Emulator { failed_at: Some(now), reason, due_at: now, ..emulator.clone() }
        }
        retry => {
            let pause = delay(retry, u32::try_from(failures).unwrap_or(u32::MAX), Duration::from_secs(60));
            Emulator { due_at: now + pause, failures, reason, ..emulator.clone() }
        }
    };
    let mut tx = engine.store.begin().await?;
    match update(&mut tx, emulator, after, now).await {
        Ok(_) => engine.commit(tx).await,
        // It is looked at again anyway.
        Err(error) if error.kind == Kind::Stale => Ok(()),
        Err(error) => Err(error),
    }
}

async fn find(engine: &Engine, id: EmulatorId) -> Result<Option<Emulator>> {
    Ok(emulators::find_any(&mut engine.store.read().await?, id).await?)
}
