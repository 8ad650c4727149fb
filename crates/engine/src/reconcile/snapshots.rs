//! Purges snapshots that were deleted: their children move up to their parent, and their layer goes when nothing stands on it.

use std::time::Duration;

use paddock_model::Result;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Snapshot, SnapshotState};
use paddock_store::{captures, layers, relations, snapshots, verifications};

use super::{Loop, Report, Trouble};
use crate::{Engine, templates};

pub const LOOP: Loop = Loop {
    name: "snapshots",
    watches: &["snapshots", "captures", "verifications"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

const A_RUN: i64 = 200;
/// Children that move in one commit.
const AT_ONCE: i64 = 500;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let mut changed = 0;
    for name in snapshots::deleting(&mut engine.store.read().await?, A_RUN).await? {
        changed += u64::from(purge(engine, &name).await?);
    }
    Ok(Report { changed, ..Report::default() })
}

/// False when something else has to end first; its end wakes this loop.
async fn purge(engine: &Engine, name: &Slug) -> Result<bool> {
    let mut tx = engine.store.read().await?;
    if captures::find(&mut tx, name).await?.is_some() || verifications::find(&mut tx, name).await?.is_some() {
        return Ok(false);
    }
    drop(tx);
    while lift_children(engine, name).await? {}
    let mut tx = engine.store.begin().await?;
    let Some(snapshot) = snapshots::find_any_to_change(&mut tx, name).await? else { return Ok(false) };
    let derived = snapshots::children_of(&mut tx, name, 1).await?;
    if snapshot.state != SnapshotState::Deleting || !derived.is_empty() {
        return Ok(false);
    }
    snapshots::delete(&mut tx, &snapshot).await?;
    templates::let_go(engine, &mut tx, name).await?;
    layers::release(&mut tx, snapshot.layer).await?;
    relations::take_back_all(&mut tx, &snapshot.object().thing()).await?;
    engine.commit(tx).await?;
    tracing::info!(snapshot = %name, "purged a snapshot");
    Ok(true)
}

/// Some of the children move up; false when there are none left.
async fn lift_children(engine: &Engine, name: &Slug) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let Some(parent) = snapshots::find_any(&mut tx, name).await? else { return Ok(false) };
    let children = snapshots::children_of(&mut tx, name, AT_ONCE).await?;
    for child in &children {
        let Some(child) = snapshots::find_any_to_change(&mut tx, child).await? else { continue };
        let lifted = Snapshot {
            parent: parent.parent.clone(),
            updated_at: engine.now(),
            generation: child.generation + 1,
            ..child.clone()
        };
        snapshots::update(&mut tx, &child, &lifted).await?;
    }
    engine.commit(tx).await?;
    Ok(!children.is_empty())
}
