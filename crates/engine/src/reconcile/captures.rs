//! Takes snapshots of devices while they run: the disk that a device writes to becomes a layer, the device goes on with another.
//!
//! ```text
//! wanted ──► switched ──► the layer is sealed, the snapshot waits for its verification
//!    └─────► abandoned ─► what was prepared is taken back, the snapshot says why
//! ```
//!
//! Killed at any point, it goes on from what the device itself says it writes to.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use paddock_model::drivers::disk_pools::Volume;
use paddock_model::drivers::emulator_hosts::{Consistency, Switch};
use paddock_model::drivers::{DriverError, Retry};
use paddock_model::emulators::{Emulator, Status, Wanted};
use paddock_model::snapshots::{CAPTURE_FAILED, Snapshot, SnapshotState};
use paddock_model::templates::TemplateId;
use paddock_model::vehicles::VehicleState;
use paddock_model::{Error, Result};
use paddock_store::captures::{Capture, CaptureState};
use paddock_store::layers::LayerState;
use paddock_store::{captures, disks, emulators, layers, snapshots, vehicle_states};

use super::{Loop, Report, Trouble, delay};
use crate::devices::Devices;
use crate::emulators::update;
use crate::snapshots::{await_verification, settle};
use crate::{Engine, ci, templates, vehicles};

pub const LOOP: Loop = Loop {
    name: "captures",
    watches: &["captures"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

const AT_ONCE: usize = 4;
const A_RUN: i64 = 100;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let due = captures::due(&mut engine.store.read().await?, engine.now(), A_RUN).await?;
    let outcomes =
        stream::iter(due).map(|capture| attend(engine, devices, capture)).buffer_unordered(AT_ONCE);
    let outcomes: Vec<Result<u64>> = outcomes.collect().await;
    let mut changed = 0;
    for outcome in outcomes {
        changed += outcome?;
    }
    let next = captures::next_due(&mut engine.store.read().await?).await?;
    Ok(Report { changed, next })
}

/// What became of one step.
enum Outcome {
    /// The device writes to the next disk; the one before holds this much.
    Switched(Consistency),
    /// The same of a device that does not run.
    AtRest(Consistency),
    /// The device stays where it is, and this is why.
    Abandoned(String),
    Failed(DriverError),
}

async fn attend(engine: &Engine, devices: &Devices, capture: Capture) -> Result<u64> {
    match capture.state {
        CaptureState::Wanted => {
            let emulator = emulators::find_any(&mut engine.store.read().await?, capture.emulator).await?;
            let emulator =
                emulator.ok_or_else(|| Error::internal("an emulator went while it was captured"))?;
            // What the car was like when the disk was taken, or a moment before.
            let vehicle = match vehicles::state(devices, &emulator).await {
                Ok(vehicle) => vehicle,
                Err(error) => return put_off(engine, &capture, error).await.map(|()| 1),
            };
            match switch(engine, devices, &capture, &emulator).await? {
                Outcome::Switched(consistency) => {
                    record_switch(engine, &capture, consistency, None, vehicle).await?;
                }
                Outcome::AtRest(consistency) => {
                    let missing = "The device did not run, so there was no memory to capture.";
                    record_switch(engine, &capture, consistency, Some(missing), vehicle).await?;
                }
                Outcome::Abandoned(reason) => abandon(engine, &capture, reason).await?,
                Outcome::Failed(error) => put_off(engine, &capture, error).await?,
            }
        }
        CaptureState::Switched => match devices.pool.seal_layer(capture.layer, capture.from).await {
            Ok(facts) => {
                let mut tx = engine.store.begin().await?;
                layers::complete(&mut tx, capture.layer, &facts).await?;
                disks::delete(&mut tx, capture.from).await?;
                captures::delete(&mut tx, &capture.snapshot).await?;
                let outcome = match creating(&mut tx, &capture).await? {
                    Some(snapshot) => await_verification(engine, &mut tx, &snapshot).await.map(Ok)?,
                    None => Err("It was deleted before it was there."),
                };
                ci::note(engine, &mut tx, capture.emulator, &capture.snapshot, outcome).await?;
                engine.commit(tx).await?;
            }
            Err(error) if error.retry == Retry::Never => condemn(engine, devices, &capture, error).await?,
            Err(error) => put_off(engine, &capture, error).await?,
        },
        CaptureState::Abandoned => take_back(engine, devices, &capture).await?,
    }
    Ok(1)
}

/// Prepares the next disk and has the device go on with it.
async fn switch(
    engine: &Engine,
    devices: &Devices,
    capture: &Capture,
    emulator: &Emulator,
) -> Result<Outcome> {
    let below = disks::find(&mut engine.store.read().await?, capture.from).await?;
    let below = below.ok_or_else(|| Error::internal("the disk that is captured is not in the catalogue"))?;
    let prepared = async {
        let from = devices.pool.ensure_disk(capture.from, below.layer).await?;
        let to = devices.pool.ensure_successor(capture.from, capture.layer, capture.to).await?;
        let written = devices.host.volume(capture.emulator).await?;
        Ok((from, to, written))
    };
    let (from, to, written) = match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Outcome::Failed(error)),
    };
    Ok(match written {
        // It was told before, by a process that did not live to record it.
        Some(disk) if disk == to => Outcome::Switched(Consistency::Crash),
        // Nobody writes to it, and nobody can begin to before this is over.
        None => Outcome::AtRest(at_rest(emulator)),
        Some(_) if emulator.wanted == Wanted::Gone && !emulator.is_captured_last() => {
            Outcome::Abandoned("The emulator was deleted before it could be captured.".to_owned())
        }
        Some(_) => {
            let memory = templates::wanted(&mut engine.store.read().await?, &capture.snapshot).await?;
            switch_live(devices, capture, from, to, memory).await
        }
    })
}

/// What the disk of a device that does not run holds.
fn at_rest(emulator: &Emulator) -> Consistency {
    if emulator.status() == Status::Parked { Consistency::Filesystem } else { Consistency::Crash }
}

async fn switch_live(
    devices: &Devices,
    capture: &Capture,
    from: Volume,
    to: Volume,
    memory: Option<TemplateId>,
) -> Outcome {
    let (emulator, patience) = (capture.emulator, devices.settings.freeze);
    let switch = Switch { emulator, from, to: to.clone(), patience, memory };
    let error = match devices.host.switch(&switch).await {
        Ok(consistency) => return Outcome::Switched(consistency),
        Err(error) => error,
    };
    match devices.host.volume(capture.emulator).await {
        // It has happened all the same, or the device has ended: in both cases the next disk is the one to go on with.
        Ok(Some(disk)) if disk == to => Outcome::Switched(Consistency::Crash),
        Ok(None) => Outcome::Switched(Consistency::Crash),
        Ok(Some(_)) | Err(_) => Outcome::Failed(error),
    }
}

/// From here on the emulator's disk is the next one, whatever happens.
async fn record_switch(
    engine: &Engine,
    capture: &Capture,
    consistency: Consistency,
    no_memory: Option<&str>,
    vehicle: Option<VehicleState>,
) -> Result<()> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    if let Some(emulator) = emulators::find_any_to_change(&mut tx, capture.emulator).await? {
        let after = emulator.clone().captured(capture.to, now);
        update(&mut tx, &emulator, after, now).await?;
    }
    if let Some(snapshot) = creating(&mut tx, capture).await? {
        let after = Snapshot {
            consistency: Some(consistency),
            updated_at: now,
            generation: snapshot.generation + 1,
            ..snapshot.clone()
        };
        snapshots::update(&mut tx, &snapshot, &after).await?;
    }
    if let Some(vehicle) = vehicle {
        vehicle_states::put(&mut tx, capture.layer, &vehicle).await?;
    }
    templates::take(engine, &mut tx, &capture.snapshot, no_memory).await?;
    let switched = Capture { state: CaptureState::Switched, due_at: now, failures: 0, ..capture.clone() };
    captures::update(&mut tx, &switched).await?;
    engine.commit(tx).await
}

async fn abandon(engine: &Engine, capture: &Capture, reason: String) -> Result<()> {
    tracing::warn!(snapshot = %capture.snapshot, emulator = %capture.emulator, reason, "a capture is given up");
    let abandoned = Capture {
        state: CaptureState::Abandoned,
        due_at: engine.now(),
        failures: 0,
        reason: Some(reason),
        ..capture.clone()
    };
    let mut tx = engine.store.begin().await?;
    captures::update(&mut tx, &abandoned).await?;
    engine.commit(tx).await
}

/// The device never left its disk: what was prepared goes, the emulator is free again, and the snapshot says why.
async fn take_back(engine: &Engine, devices: &Devices, capture: &Capture) -> Result<()> {
    // The host waits for a switch that is under way, and closes what it left half done.
    if let Err(error) = devices.host.volume(capture.emulator).await {
        return put_off(engine, capture, error).await;
    }
    if let Err(error) = devices.pool.abandon_successor(capture.from, capture.layer, capture.to).await {
        if error.retry != Retry::Never {
            return put_off(engine, capture, error).await;
        }
        // Something was written to the next disk after all, so that is the one to go on with.
        tracing::warn!(snapshot = %capture.snapshot, %error, "a capture cannot be taken back; it goes on");
        return record_switch(engine, capture, Consistency::Crash, None, None).await;
    }
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    if let Some(emulator) = emulators::find_any_to_change(&mut tx, capture.emulator).await? {
        let after = emulator.clone().captured(capture.from, now);
        update(&mut tx, &emulator, after, now).await?;
    }
    disks::delete(&mut tx, capture.to).await?;
    layers::set_state(&mut tx, capture.layer, LayerState::Void).await?;
    templates::let_go(engine, &mut tx, &capture.snapshot).await?;
    captures::delete(&mut tx, &capture.snapshot).await?;
    let reason = capture.reason.as_deref().unwrap_or("The capture was given up.");
    let noted = ci::note(engine, &mut tx, capture.emulator, &capture.snapshot, Err(reason)).await?;
    if let Some(snapshot) = creating(&mut tx, capture).await? {
        // Who asked for it by hand looks at it and is told why; of a job's nothing is left, its emulator tells.
        let state = if noted { SnapshotState::Deleting } else { SnapshotState::Faulted };
        settle(engine, &mut tx, &snapshot, state, Some((CAPTURE_FAILED, reason))).await?;
    }
    engine.commit(tx).await
}

/// What was captured is damaged. The device goes on, on top of it; nothing else is made of it, and the snapshot says why.
async fn condemn(engine: &Engine, devices: &Devices, capture: &Capture, error: DriverError) -> Result<()> {
    tracing::error!(snapshot = %capture.snapshot, layer = %capture.layer, %error, "a captured disk is damaged");
    let put_aside = async {
        devices.pool.quarantine_layer(capture.layer).await?;
        // Its bytes keep the other name.
        devices.pool.remove_disk(capture.from).await
    };
    if let Err(error) = put_aside.await {
        return put_off(engine, capture, error).await;
    }
    let mut tx = engine.store.begin().await?;
    layers::set_state(&mut tx, capture.layer, LayerState::Quarantined).await?;
    templates::let_go(engine, &mut tx, &capture.snapshot).await?;
    disks::delete(&mut tx, capture.from).await?;
    captures::delete(&mut tx, &capture.snapshot).await?;
    ci::note(engine, &mut tx, capture.emulator, &capture.snapshot, Err(&error.message)).await?;
    if let Some(snapshot) = creating(&mut tx, capture).await? {
        let fault = Some((error.code, error.message.as_str()));
        settle(engine, &mut tx, &snapshot, SnapshotState::Faulted, fault).await?;
    }
    engine.commit(tx).await
}

/// Tries again later. What has not happened within its time, or cannot, is given up.
async fn put_off(engine: &Engine, capture: &Capture, error: DriverError) -> Result<()> {
    tracing::warn!(snapshot = %capture.snapshot, emulator = %capture.emulator, %error, "a capture is held up");
    let now = engine.now();
    let hopeless = error.retry == Retry::Never || error.code == "no_space" || now >= capture.deadline_at;
    if hopeless && capture.state == CaptureState::Wanted {
        return abandon(engine, capture, error.message).await;
    }
    let failures = capture.failures + 1;
    let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), Duration::from_secs(60));
    // What is late is given up when its time is over, and not only when its turn comes again.
    let over = Some(capture.deadline_at).filter(|at| capture.state == CaptureState::Wanted && *at > now);
    let due_at = over.map_or(now + pause, |over| over.min(now + pause));
    let later = Capture { due_at, failures, ..capture.clone() };
    let mut tx = engine.store.begin().await?;
    captures::update(&mut tx, &later).await?;
    engine.commit(tx).await
}

/// The snapshot, unless somebody has deleted it meanwhile.
async fn creating(tx: &mut paddock_store::Tx, capture: &Capture) -> Result<Option<Snapshot>> {
    let snapshot = snapshots::find_any_to_change(tx, &capture.snapshot).await?;
    Ok(snapshot.filter(|snapshot| snapshot.state == SnapshotState::Creating))
}
