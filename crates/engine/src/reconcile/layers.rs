//! Brings the bytes of layers into the pool.

use std::path::PathBuf;
use std::time::Duration;

use paddock_model::ports::disk_pools::LayerSource;
use paddock_model::ports::drivers::Retry;
use paddock_model::snapshots::{Snapshot, SnapshotState};
use paddock_store::layers::{Layer, LayerState};
use paddock_store::{layers, snapshots};

use super::{Loop, Report, Trouble};
use crate::Engine;

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
    for layer in unsettled {
        match layer.state {
            LayerState::Importing => import(engine, &layer).await?,
            LayerState::Removing | LayerState::Ready | LayerState::Quarantined => continue,
        }
        changed += 1;
    }
    Ok(Report { changed, ..Report::default() })
}

async fn import(engine: &Engine, layer: &Layer) -> Result<(), Trouble> {
    let devices = engine.devices()?;
    let source = LayerSource::File(PathBuf::from(layer.source.clone().unwrap_or_default()));
    let outcome = devices.pool.ensure_layer(layer.id, &source).await;
    let mut tx = engine.store.begin().await?;
    let (state, problem) = match outcome {
        Ok(facts) => {
            layers::complete(&mut tx, layer.id, &facts).await?;
            (SnapshotState::Ready, None)
        }
        Err(error) if error.retry == Retry::Never => {
            tracing::error!(layer = %layer.id, %error, "a disk image cannot be brought in");
            layers::set_state(&mut tx, layer.id, LayerState::Quarantined).await?;
            (SnapshotState::Faulted, Some(error.code))
        }
        Err(error) => return Err(error.into()),
    };
    for snapshot in snapshots::of_layer(&mut tx, layer.id).await? {
        let after = Snapshot {
            state,
            problems: problem.map(str::to_owned).into_iter().collect(),
            updated_at: engine.now(),
            generation: snapshot.generation + 1,
            ..snapshot.clone()
        };
        snapshots::update(&mut tx, &snapshot, &after).await?;
    }
    Ok(engine.commit(tx).await?)
}
