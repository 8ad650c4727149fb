//! Ends what has had its time: emulators that expire or that nobody uses, and the tombstones of those that are gone.

use std::time::Duration;

use paddock_model::emulators::{Emulator, EmulatorId, Reason, Status, Wanted};
use paddock_model::{Result, Timestamp};
use paddock_store::{emulators, relations};
use serde_json::json;

use super::{Loop, Report, Trouble};
use crate::audit::Actor;
use crate::emulators::update;
use crate::{Engine, audit};

pub const LOOP: Loop = Loop {
    name: "expiry",
    watches: &[],
    every: Duration::from_secs(15),
    run: |engine| Box::pin(run(engine)),
};

/// How long one can still ask what became of an emulator.
const TOMBSTONES_KEPT: Duration = Duration::from_secs(24 * 3600);
const AT_ONCE: i64 = 200;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let now = engine.now();
    let mut changed = 0;
    for id in emulators::expired(&mut engine.store.read().await?, now, AT_ONCE).await? {
        let reason = Reason::new("expired", "Its time was over.");
        let end = |emulator: Emulator| emulator.removed(Some(reason.clone()), now);
        changed += u64::from(change(engine, id, "emulators.expire", |_| true, end).await?);
    }
    for id in emulators::watched_for_idleness(&mut engine.store.read().await?).await? {
        changed += u64::from(look_for_use(engine, id, now).await?);
    }
    changed += forget_tombstones(engine, now - TOMBSTONES_KEPT).await?;
    Ok(Report { changed, ..Report::default() })
}

/// Parks an emulator that nobody has used for as long as its owner said.
async fn look_for_use(engine: &Engine, id: EmulatorId, now: Timestamp) -> Result<bool> {
    let devices = engine.devices()?;
    let used = devices.host.inspect(id).await.is_ok_and(|state| state.adb_connections > 0);
    if used {
        let mut tx = engine.store.begin().await?;
        let Some(emulator) = emulators::find_any_to_change(&mut tx, id).await? else { return Ok(false) };
        let after = Emulator { active_at: now, ..emulator.clone() };
        update(&mut tx, &emulator, after, engine.now()).await?;
        engine.commit(tx).await?;
        return Ok(true);
    }
    let idle = |emulator: &Emulator| {
        emulator.status() == Status::Running && emulator.idle_at().is_some_and(|at| at <= now)
    };
    let reason = Reason::new("idle", "Nobody used it for as long as its idle time-out. A restart wakes it.");
    let park = |emulator: Emulator| Emulator { reason: Some(reason.clone()), ..emulator.parked(now) };
    change(engine, id, "emulators.park", idle, park).await
}

async fn change(
    engine: &Engine,
    id: EmulatorId,
    action: &str,
    applies: impl Fn(&Emulator) -> bool,
    change: impl Fn(Emulator) -> Emulator,
) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let Some(emulator) = emulators::find_any_to_change(&mut tx, id).await? else { return Ok(false) };
    if emulator.wanted == Wanted::Gone || !applies(&emulator) {
        return Ok(false);
    }
    let after = Emulator { expires_at: None, ..change(emulator.clone()) };
    let after = update(&mut tx, &emulator, after, engine.now()).await?;
    let actor = Actor { request_id: "expiry".to_owned(), ..Actor::default() };
    audit::record(engine, &mut tx, actor, action, Some(after.tenant), after.object(), json!({})).await?;
    engine.commit(tx).await?;
    Ok(true)
}

async fn forget_tombstones(engine: &Engine, oldest: Timestamp) -> Result<u64> {
    let gone = emulators::tombstones(&mut engine.store.read().await?, oldest, AT_ONCE).await?;
    if gone.is_empty() {
        return Ok(0);
    }
    let mut tx = engine.store.begin().await?;
    for id in &gone {
        relations::take_back_all(&mut tx, &id.object().thing()).await?;
        emulators::delete(&mut tx, *id).await?;
    }
    engine.commit(tx).await?;
    Ok(gone.len() as u64)
}
