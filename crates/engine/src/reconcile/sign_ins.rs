//! Forgets sessions, tokens, tickets and codes whose time is over, and wrong passwords of long ago.

use std::time::Duration;

use paddock_model::sign_in_failures::FORGOTTEN_AFTER;
use paddock_store::{authorizations, device_authorizations, sessions, sign_in_failures, tickets, tokens};

use super::{Loop, Report, Trouble};
use crate::Engine;

/// Codes are remembered a while beyond their end: a code that comes again tells of a thief, and a machine that still
/// asks is told why it gets nothing.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Watches no table: what is over opens nothing, whether it is still there or not.
pub const LOOP: Loop = Loop {
    name: "sign_ins",
    watches: &[],
    every: Duration::from_secs(600),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let now = engine.now();
    let (codes, failures) = (now - REMEMBERED, now - FORGOTTEN_AFTER);
    let mut tx = engine.store.read().await?;
    let any = sessions::any_expired(&mut tx, now).await?
        || tickets::any_expired(&mut tx, now).await?
        || tokens::any_expired(&mut tx, now).await?
        || authorizations::any_expired(&mut tx, codes).await?
        || device_authorizations::any_expired(&mut tx, codes).await?
        || sign_in_failures::any_quiet(&mut tx, failures).await?;
    drop(tx);
    if !any {
        return Ok(Report::default());
    }
    let mut tx = engine.store.begin().await?;
    let changed = sessions::delete_expired(&mut tx, now).await?
        + tickets::delete_expired(&mut tx, now).await?
        + tokens::delete_expired(&mut tx, now).await?
        + authorizations::delete_expired(&mut tx, codes).await?
        + device_authorizations::delete_expired(&mut tx, codes).await?
        + sign_in_failures::delete_quiet(&mut tx, failures).await?;
    tx.commit().await?;
    Ok(Report { changed, ..Report::default() })
}
