//! Forgets how relations came about, once every replica has long followed.

use std::time::Duration;

use paddock_store::relations;

use super::{Loop, Report, Trouble};
use crate::Engine;

/// A replica that has missed more than this reads all relations anew.
const KEPT: i64 = 100_000;

pub const LOOP: Loop = Loop {
    name: "relation_changes",
    watches: &[],
    every: Duration::from_secs(600),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let mut tx = engine.store.read().await?;
    let oldest = relations::revision(&mut tx).await? - KEPT;
    if !relations::any_change_until(&mut tx, oldest).await? {
        return Ok(Report::default());
    }
    let mut tx = engine.store.begin().await?;
    let changed = relations::forget_changes_until(&mut tx, oldest).await?;
    tx.commit().await?;
    Ok(Report { changed, ..Report::default() })
}
