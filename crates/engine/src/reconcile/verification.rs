//! Proves snapshots: looks at their bytes, boots a throw-away clone, asks it how it is, and removes it again.

use std::time::Duration;

use paddock_model::Result;
use paddock_model::adb;
use paddock_model::devices::{Phase, VehicleLink};
use paddock_model::drivers::disk_pools::Integrity;
use paddock_model::drivers::emulator_hosts::{Channel, Launch};
use paddock_model::drivers::{DriverError, Retry};
use paddock_model::emulators::{EmulatorId, IdentityMode, address_of};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::snapshots::{
    CHAIN_TOO_DEEP, INTEGRITY_MISMATCH, Snapshot, SnapshotState, VERIFICATION_FAILED, VerifiedBoot,
};
use paddock_store::disks::Disk;
use paddock_store::layers::LayerState;
use paddock_store::verifications::{Outcome, Trial, Verification, VerificationState};
use paddock_store::{disks, layers, slots, snapshots, verifications};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::consolidation::may_have_moved;
use super::hitch::Hitch;
use super::{Loop, Report, Trouble, delay, integrity};
use crate::Engine;
use crate::devices::Devices;
use crate::emulators::{draw_identity, take_slot};
use crate::snapshots::stands_on_all;
use crate::{templates, vehicles};

pub const LOOP: Loop = Loop {
    name: "verification",
    watches: &["verifications"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

/// How often a device that boots is looked at.
const LOOKED_AT: Duration = Duration::from_millis(250);
/// How often a clone that ends by itself is booted once more.
const TRIES: i64 = 2;
/// How often it is tried again what a verification needs before it is given up.
const HITCHES: i64 = 8;
/// How long a device that is up may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let at_once = devices.settings.verifications_at_once;
    let mut changed = 0;
    for verification in verifications::next(&mut engine.store.read().await?, at_once).await? {
        if verification.due_at <= engine.now() {
            changed += u64::from(attend(engine, devices, &verification).await?);
        }
    }
    let left = verifications::next(&mut engine.store.read().await?, at_once).await?;
    Ok(Report { changed, next: left.iter().map(|verification| verification.due_at).min() })
}

/// One step; false when there was nothing to do.
async fn attend(engine: &Engine, devices: &Devices, verification: &Verification) -> Result<bool> {
    let snapshot = snapshots::find_any(&mut engine.store.read().await?, &verification.snapshot).await?;
    let wanted = snapshot.filter(|snapshot| snapshot.state != SnapshotState::Deleting);
    let step = match (verification.state, &verification.trial, &wanted) {
        (VerificationState::Queued, _, Some(snapshot)) => {
            begin(engine, devices, verification, snapshot).await
        }
        (VerificationState::Booting, Some(trial), Some(snapshot)) => {
            boot(engine, devices, verification, trial, snapshot).await
        }
        (VerificationState::Ending, ..) => return end(engine, devices, verification).await,
        // Nobody wants to know any more.
        _ => Ok(Some(Verification { state: VerificationState::Ending, ..verification.clone() })),
    };
    let after = match step {
        Ok(Some(after)) => after,
        Ok(None) => return Ok(true),
        Err(Hitch::Engine(error)) => return Err(error),
        // Others wait behind it, and whoever asked is to be told.
        Err(Hitch::Driver(error))
            if error.retry == Retry::Never || is_late(engine, devices, verification) =>
        {
            failed(verification, VERIFICATION_FAILED, &error.message)
        }
        Err(Hitch::Driver(error)) => put_off(engine, verification, &error),
    };
    let mut tx = engine.store.begin().await?;
    verifications::update(&mut tx, &after).await?;
    engine.commit(tx).await?;
    Ok(true)
}

/// Whether it has had its time to boot, or tries enough. Time in which nobody watched does not count.
fn is_late(engine: &Engine, devices: &Devices, verification: &Verification) -> bool {
    let now = engine.now();
    let begun = verification.trial.as_ref().map(|trial| trial.started_at.max(devices.watched_since(now)));
    verification.failures >= HITCHES || begun.is_some_and(|at| now >= at + devices.settings.boot_deadline)
}

fn failed(verification: &Verification, code: &str, message: &str) -> Verification {
    tracing::warn!(snapshot = %verification.snapshot, code, message, "a snapshot did not prove itself");
    Verification {
        state: VerificationState::Ending,
        failures: 0,
        outcome: Some(Outcome::Failed { code: code.to_owned(), message: message.to_owned() }),
        ..verification.clone()
    }
}

fn put_off(engine: &Engine, verification: &Verification, error: &DriverError) -> Verification {
    tracing::warn!(snapshot = %verification.snapshot, %error, "a verification is held up");
    let failures = verification.failures + 1;
    let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), Duration::from_secs(60));
    Verification { due_at: engine.now() + pause, failures, ..verification.clone() }
}

enum Doubt {
    None,
    /// Another file with the same content is taking its place; the next look is at that one.
    Moving,
    Problem(String),
}

/// Reads a layer, and those below it that were put aside; one that is what it was is in use again, one that is not is put aside.
async fn doubt(engine: &Engine, devices: &Devices, own: LayerId) -> Result<Doubt, Hitch> {
    let mut next = Some(own);
    while let Some(id) = next {
        let Some(layer) = layers::find(&mut engine.store.read().await?, id).await? else { break };
        next = layer.parent;
        let was_aside = layer.state == LayerState::Quarantined;
        if id != own && !was_aside {
            continue;
        }
        let digest = layer.digest.unwrap_or_default();
        let which = if id == own { "Its layer".to_owned() } else { format!("The layer {id} below it") };
        let problem = match devices.pool.verify_layer(id, &digest).await? {
            Integrity::Sound if was_aside => {
                integrity::readmit(engine, devices, id).await.map_err(|trouble| trouble.error)?;
                continue;
            }
            Integrity::Sound => continue,
            Integrity::Missing => format!("{which} is not in the pool."),
            Integrity::Altered => {
                format!("{which} has not the bytes that were recorded: somebody has written to it.")
            }
            Integrity::Broken(how) => format!("{which} is damaged: {how}."),
        };
        if may_have_moved(engine, id, &digest).await? {
            return Ok(Doubt::Moving);
        }
        if !was_aside {
            integrity::put_aside(engine, devices, id, &problem).await.map_err(|trouble| trouble.error)?;
        }
        return Ok(Doubt::Problem(problem));
    }
    Ok(Doubt::None)
}

/// Looks at the bytes, then records the device that is to be booted: from here on something of it may be there.
async fn begin(
    engine: &Engine,
    devices: &Devices,
    verification: &Verification,
    snapshot: &Snapshot,
) -> Result<Option<Verification>, Hitch> {
    match doubt(engine, devices, snapshot.layer).await? {
        Doubt::None => {}
        Doubt::Moving => return Ok(Some(later(engine, verification))),
        Doubt::Problem(problem) => return Ok(Some(failed(verification, INTEGRITY_MISMATCH, &problem))),
    }
    let now = engine.now();
    let emulator = EmulatorId::new(now, engine.random());
    let disk = Disk {
        id: DiskId::new(now, engine.random()),
        emulator,
        layer: snapshot.layer,
        // Nobody is kept from deleting a snapshot because it is being tried.
        snapshot: None,
        created_at: now,
    };
    let mut tx = engine.store.begin().await?;
    let trial = Trial {
        emulator,
        disk: disk.id,
        slot: take_slot(&mut tx, devices).await?,
        identity: draw_identity(engine, &IdentityMode::Regenerate, snapshot.image.device_type),
        started_at: now,
    };
    disks::insert(&mut tx, &disk).await?;
    let booting = Verification {
        state: VerificationState::Booting,
        trial: Some(trial),
        due_at: now,
        ..verification.clone()
    };
    verifications::update(&mut tx, &booting).await?;
    engine.commit(tx).await?;
    Ok(None)
}

async fn boot(
    engine: &Engine,
    devices: &Devices,
    verification: &Verification,
    trial: &Trial,
    snapshot: &Snapshot,
) -> Result<Option<Verification>, Hitch> {
    let launch = Launch {
        emulator: trial.emulator,
        incarnation: 1,
        name: format!("verification of {}", snapshot.name),
        image: snapshot.image.name.clone(),
        volume: devices.pool.ensure_disk(trial.disk, snapshot.layer).await?,
        identity: trial.identity.clone(),
        adb_keys: Vec::new(),
        address: address_of(trial.slot),
        memory_bytes: snapshot.image.memory_bytes,
        cpus: snapshot.image.cpus,
        template: None,
        vehicle: vehicles::ensure_for_trial(engine, devices, trial, snapshot).await??,
    };
    let observed = devices.host.observe(trial.emulator).await?;
    if observed.is_none() {
        devices.host.ensure(&launch).await?;
    }
    let phase = devices.host.observe(trial.emulator).await?.map(|observed| observed.phase);
    let late = is_late(engine, devices, verification);
    let outcome = match phase {
        Some(Phase::Ready { boot_duration }) => match answers(devices, trial.emulator).await {
            Ok(true) => {
                let duration_ms = i64::try_from(boot_duration.as_millis()).unwrap_or(i64::MAX);
                Ok(Outcome::Booted { duration_ms })
            }
            Ok(false) if late => Err("The clone is up, but has not reached its vehicle.".to_owned()),
            Ok(false) => return Ok(Some(later(engine, verification))),
            Err(error) if late || error.retry == Retry::Never => Err(error.message),
            Err(error) => return Err(error.into()),
        },
        // Somebody may have killed it; what is broken ends again.
        Some(Phase::Exited { .. }) if verification.failures < TRIES => {
            devices.host.remove(trial.emulator).await?;
            let again = Verification { failures: verification.failures + 1, ..verification.clone() };
            return Ok(Some(again));
        }
        Some(Phase::Exited { message, .. }) => Err(format!("The clone ended while it booted: {message}")),
        _ if late => {
            Err(format!("The clone was not up after {} s.", devices.settings.boot_deadline.as_secs()))
        }
        _ => return Ok(Some(later(engine, verification))),
    };
    Ok(Some(match outcome {
        Ok(booted) => Verification {
            state: VerificationState::Ending,
            due_at: engine.now(),
            failures: 0,
            outcome: Some(booted),
            ..verification.clone()
        },
        Err(message) => failed(verification, VERIFICATION_FAILED, &message),
    }))
}

/// To be looked at again in a moment.
fn later(engine: &Engine, verification: &Verification) -> Verification {
    Verification { due_at: engine.now() + LOOKED_AT, ..verification.clone() }
}

/// Whether the device says that it is well, and its ADB daemon answers; false while it is still looking for its car.
pub(super) async fn answers(devices: &Devices, emulator: EmulatorId) -> Result<bool, DriverError> {
    let state = devices.host.inspect(emulator).await?;
    if state.vehicle == Some(VehicleLink::Connecting) {
        return Ok(false);
    }
    let mut stream = devices.host.open(emulator, Channel::Adb).await?;
    let silent = |cause: Option<std::io::Error>| {
        let error = DriverError::new(
            Retry::Soon,
            "adb_silent",
            "The clone is up, but its ADB daemon does not answer.",
        );
        match cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    };
    let mut answer = [0; adb::HEADER_BYTES];
    let spoken = async {
        stream.write_all(&adb::hello()).await?;
        stream.read_exact(&mut answer).await.map(drop)
    };
    match tokio::time::timeout(PATIENCE, spoken).await {
        Ok(Ok(())) if adb::is_welcome(&answer) => Ok(true),
        Ok(Ok(())) | Err(_) => Err(silent(None)),
        Ok(Err(cause)) => Err(silent(Some(cause))),
    }
}

/// Everything that was made for it goes, and what was found out is recorded.
async fn end(engine: &Engine, devices: &Devices, verification: &Verification) -> Result<bool> {
    if let Some(trial) = &verification.trial {
        let removed = async {
            devices.host.remove(trial.emulator).await?;
            vehicles::remove(devices, trial.emulator).await?;
            devices.pool.remove_disk(trial.disk).await
        };
        if let Err(error) = removed.await {
            let later = put_off(engine, verification, &error);
            let mut tx = engine.store.begin().await?;
            verifications::update(&mut tx, &later).await?;
            engine.commit(tx).await?;
            return Ok(true);
        }
    }
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    // What it is to be told with its memory waits for that; whatever becomes of it, it becomes so in time.
    let booted = matches!(verification.outcome, Some(Outcome::Booted { .. }));
    if booted && !templates::is_settled(&mut tx, &verification.snapshot).await? {
        let unwanted = snapshots::find_any(&mut tx, &verification.snapshot).await?;
        if unwanted.is_some_and(|snapshot| snapshot.state != SnapshotState::Deleting) {
            let later = Verification { due_at: now + LOOKED_AT, ..verification.clone() };
            verifications::update(&mut tx, &later).await?;
            engine.commit(tx).await?;
            return Ok(true);
        }
    }
    if let Some(snapshot) = snapshots::find_any_to_change(&mut tx, &verification.snapshot).await?
        && snapshot.state != SnapshotState::Deleting
        && let Some(outcome) = &verification.outcome
    {
        let layer = layers::find(&mut tx, snapshot.layer).await?;
        let too_deep = layer.is_some_and(|layer| layer.depth > devices.settings.hard_depth);
        // Somebody has looked at its bytes, or those below, meanwhile, and they are not what they were.
        let doubted = !stands_on_all(&mut tx, Some(snapshot.layer)).await?;
        let mut after = Snapshot { updated_at: now, generation: snapshot.generation + 1, ..snapshot.clone() };
        match outcome {
            Outcome::Booted { .. } if doubted => {}
            Outcome::Booted { duration_ms } => {
                after.state = SnapshotState::Ready;
                after.problems = too_deep.then(|| CHAIN_TOO_DEEP.to_owned()).into_iter().collect();
                after.fault = None;
                let vehicle = snapshot.image.needs_vehicle().then_some(true);
                after.verified =
                    Some(VerifiedBoot { at: now, duration_ms: *duration_ms, adb: true, vehicle });
            }
            Outcome::Failed { code, message } => {
                after.state = SnapshotState::Faulted;
                after.problems = vec![code.clone()];
                after.fault = Some(message.clone());
            }
        }
        snapshots::update(&mut tx, &snapshot, &after).await?;
    }
    if let Some(trial) = &verification.trial {
        disks::delete(&mut tx, trial.disk).await?;
        slots::release(&mut tx, trial.slot, now).await?;
    }
    verifications::delete(&mut tx, &verification.snapshot).await?;
    engine.commit(tx).await?;
    Ok(true)
}
