//! Forgets idempotency keys whose day is over.

use std::time::Duration;

use paddock_model::idempotency_keys::KEPT;
use paddock_store::idempotency_keys;

use super::{Loop, Report, Trouble};
use crate::Engine;

/// Watches no table: a new key has a whole day before it.
pub const LOOP: Loop = Loop {
    name: "idempotency_keys",
    watches: &[],
    every: Duration::from_secs(600),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let oldest = engine.now() - KEPT;
    if !idempotency_keys::any_expired(&mut engine.store.read().await?, oldest).await? {
        return Ok(Report::default());
    }
    let mut tx = engine.store.begin().await?;
    let changed = idempotency_keys::delete_expired(&mut tx, oldest).await?;
    tx.commit().await?;
    Ok(Report { changed, ..Report::default() })
}
