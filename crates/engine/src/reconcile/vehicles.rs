//! Holds the cars of all automotive devices: takes them over when this process begins to run the loops, lets them go when it ends.

use std::collections::HashSet;
use std::time::Duration;

use paddock_model::Result;
use paddock_model::drivers::Retry;
use paddock_model::emulators::EmulatorId;
use paddock_store::{emulators, templates, verifications};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::vehicles::ensure;

pub const LOOP: Loop = Loop {
    name: "vehicles",
    watches: &[],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

const A_PART: i64 = 500;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let Some(garage) = &devices.garage else { return Ok(Report::default()) };
    // Before the look at what is wanted: what comes meanwhile is not taken for a leftover.
    let mut there: HashSet<EmulatorId> = garage.list().await?.into_iter().collect();
    let (mut after, mut held_up) = (None, None);
    loop {
        let ids = emulators::with_vehicle(&mut engine.store.read().await?, after, A_PART).await?;
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        for id in ids {
            there.remove(&id);
            let found = emulators::find_any(&mut engine.store.read().await?, id).await?;
            let Some(emulator) = found.filter(|emulator| emulator.started_at.is_some()) else { continue };
            if let Err(error) = ensure(engine, devices, &emulator).await? {
                tracing::warn!(emulator = %id, %error, "a vehicle does not stand ready");
                held_up = Some(error);
            }
        }
    }
    for id in verifications::emulators(&mut engine.store.read().await?).await? {
        there.remove(&id);
    }
    for id in templates::emulators(&mut engine.store.read().await?).await? {
        there.remove(&id);
    }
    let mut changed = 0;
    for leftover in there {
        garage.remove(leftover).await?;
        changed += 1;
    }
    match held_up {
        // Somebody else may still be letting go.
        Some(error) if error.retry == Retry::Soon => Err(error.into()),
        _ => Ok(Report { changed, next: None }),
    }
}

/// Lets every car go once another replica runs the loops, or this one stops.
pub(super) async fn follow(engine: Engine, mut leading: watch::Receiver<bool>, stop: CancellationToken) {
    let Some(garage) = engine.devices.as_ref().and_then(|devices| devices.garage.clone()) else { return };
    let mut led = *leading.borrow_and_update();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            changed = leading.changed() => if changed.is_err() { break },
        }
        let leads = *leading.borrow_and_update();
        if led && !leads {
            garage.let_go().await;
        }
        led = leads;
    }
    garage.let_go().await;
}
