//! Brings the bytes of layers into the pool, and takes out those that nothing stands on any more.

use std::time::Duration;

use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::LayerSource;
use paddock_model::snapshots::SnapshotState;
use paddock_store::layers::{Layer, LayerState};
use paddock_store::{layers, restores, snapshots};

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::snapshots::{await_verification, settle};

pub const LOOP: Loop = Loop {
    name: "layers",
    watches: &["layers"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    if engine.devices.is_none() {
        return Ok(Report::default());
    }
    let unsettled = layers::unsettled(&mut engine.store.read().await?).await?;
    let mut changed = 0;
    let mut trouble = None;
    for layer in unsettled {
        let done = match layer.state {
            LayerState::Importing => import(engine, &layer).await,
            LayerState::Removing => remove(engine, &layer).await,
            LayerState::Uploading
            | LayerState::Capturing
            | LayerState::Ready
            | LayerState::Quarantined
            | LayerState::Void => continue,
        };
        match done {
            Ok(()) => changed += 1,
            // The others need not wait for it: what is to be removed may be the room that it lacks.
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    match trouble {
        Some(trouble) => Err(trouble),
        None => Ok(Report { changed, ..Report::default() }),
    }
}

fn source(layer: &Layer, disk: bool) -> LayerSource {
    let Layer { source, folder, expected, .. } = layer.clone();
    match (source, folder) {
        (Some(path), Some(folder)) => {
            LayerSource::Beneath { folder: folder.into(), path: path.into(), digest: expected }
        }
        (Some(path), None) => LayerSource::File(path.into()),
        (None, _) => LayerSource::Received { digest: expected.unwrap_or_default(), disk },
    }
}

async fn import(engine: &Engine, layer: &Layer) -> Result<(), Trouble> {
    let devices = engine.devices()?;
    let disk = restores::has_layer(&mut engine.store.read().await?, layer.id).await?;
    let outcome = devices.pool.ensure_layer(layer.id, &source(layer, disk)).await;
    if outcome.as_ref().is_err_and(|error| error.retry == Retry::Never && error.code != "not_received") {
        devices.pool.discard(layer.id).await?;
    }
    let mut tx = engine.store.begin().await?;
    let fault = match outcome {
        Ok(facts) => {
            layers::complete(&mut tx, layer.id, &facts).await?;
            None
        }
        // Somebody has taken it away, or a refusal could not be recorded any more: it can be sent again.
        Err(error) if error.code == "not_received" => {
            tracing::warn!(layer = %layer.id, %error, "what was sent is gone");
            layers::set_state(&mut tx, layer.id, LayerState::Uploading).await?;
            return Ok(engine.commit(tx).await?);
        }
        Err(error) if error.retry == Retry::Never => {
            tracing::warn!(layer = %layer.id, %error, "a disk image cannot be brought in");
            layers::set_state(&mut tx, layer.id, LayerState::Void).await?;
            Some(error)
        }
        Err(error) => return Err(error.into()),
    };
    for snapshot in snapshots::of_layer(&mut tx, layer.id).await? {
        if snapshot.state != SnapshotState::Creating {
            continue;
        }
        match &fault {
            None if snapshot.tenant.is_none() => {
                settle(engine, &mut tx, &snapshot, SnapshotState::Ready, None).await?;
            }
            None => await_verification(engine, &mut tx, &snapshot).await?,
            Some(error) => {
                let fault = Some((error.code, error.message.as_str()));
                settle(engine, &mut tx, &snapshot, SnapshotState::Faulted, fault).await?;
            }
        }
    }
    Ok(engine.commit(tx).await?)
}

/// Nothing stands on it, and nothing can: first its bytes go, then its record, and with that its hold on the one below.
async fn remove(engine: &Engine, layer: &Layer) -> Result<(), Trouble> {
    engine.devices()?.pool.remove_layer(layer.id).await?;
    let mut tx = engine.store.begin().await?;
    layers::delete(&mut tx, layer).await?;
    Ok(engine.commit(tx).await?)
}
