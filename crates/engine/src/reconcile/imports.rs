//! Gives up uploads that never came, and clears away what was sent for nobody.

use std::time::Duration;

use paddock_model::snapshots::SnapshotState;
use paddock_store::layers::{Layer, LayerState};
use paddock_store::{layers, snapshots};

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::devices::Devices;
use crate::imports::{PATIENCE, is_awaited};
use crate::snapshots::settle;

pub const LOOP: Loop = Loop {
    name: "imports",
    watches: &["layers"],
    every: Duration::from_secs(300),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let mut changed = clear(engine, devices).await?;
    let late = engine.now() - PATIENCE;
    for layer in layers::uploading_since(&mut engine.store.read().await?, late).await? {
        changed += u64::from(give_up(engine, devices, &layer).await?);
    }
    let oldest = layers::oldest_uploading(&mut engine.store.read().await?).await?;
    // One that is late is being sent at this moment; another look is soon enough.
    let next = oldest.map(|since| since + PATIENCE).filter(|due| *due > engine.now());
    Ok(Report { changed, next })
}

/// Removes what a process has received and could not record any more.
async fn clear(engine: &Engine, devices: &Devices) -> Result<u64, Trouble> {
    let mut changed = 0;
    for id in devices.pool.received().await? {
        let layer = layers::find(&mut engine.store.read().await?, id).await?;
        if !layer.is_some_and(|layer| is_awaited(&layer)) {
            devices.pool.discard(id).await?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// False while somebody sends it.
async fn give_up(engine: &Engine, devices: &Devices, layer: &Layer) -> Result<bool, Trouble> {
    let Some(_turn) = devices.take_turn(layer.id) else { return Ok(false) };
    devices.pool.discard(layer.id).await?;
    let mut tx = engine.store.begin().await?;
    // It may have come, or have been deleted, since it was looked at.
    if layers::find(&mut tx, layer.id).await?.is_none_or(|now| now.state != LayerState::Uploading) {
        return Ok(false);
    }
    layers::set_state(&mut tx, layer.id, LayerState::Void).await?;
    let fault = "Nobody has sent its bytes within a day. Delete it, and import the image anew.";
    for snapshot in snapshots::of_layer(&mut tx, layer.id).await? {
        if snapshot.state == SnapshotState::Creating {
            let fault = Some(("upload_missing", fault));
            settle(engine, &mut tx, &snapshot, SnapshotState::Faulted, fault).await?;
        }
    }
    engine.commit(tx).await?;
    Ok(true)
}
