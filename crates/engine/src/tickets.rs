//! Tickets: a caller gets one for a stream, and whoever comes with it opens that stream in the caller's name, once.

use paddock_model::Result;
use paddock_model::caller::Caller;
use paddock_model::drivers::emulator_hosts::Channel;
use paddock_model::emulators::EmulatorId;
use paddock_model::tickets::{Ticket, Told};
use paddock_store::tickets;
use serde_json::json;

use crate::secrets::digest_of;
use crate::{Engine, Secret, audit, idempotency_keys, streams};

/// Makes a ticket. It is told once, and not again to a request that is repeated.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    channel: Channel,
) -> Result<(Told, Option<Secret>)> {
    let emulator = streams::permitted(engine, caller, id, channel).await?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok((earlier, None));
    }
    let ticket = Ticket::new(caller, emulator.id, channel, now);
    let told = Told { expires_at: ticket.expires_at };
    let secret = Secret::new(engine.random());
    tickets::insert(&mut tx, &ticket, &secret.digest()).await?;
    let details = json!({ "channel": channel.name() });
    let tenant = Some(emulator.tenant);
    audit::record(engine, &mut tx, caller, "tickets.create", tenant, emulator.object(), details).await?;
    idempotency_keys::remember(&mut tx, caller, &told).await?;
    engine.commit(tx).await?;
    Ok((told, Some(secret)))
}

/// Uses a ticket up. Nothing if it is not valid for this stream: unknown, used, expired, or of another.
pub async fn redeem(
    engine: &Engine,
    secret: &str,
    id: EmulatorId,
    channel: Channel,
) -> Result<Option<Ticket>> {
    let mut tx = engine.store.begin().await?;
    let ticket = tickets::take(&mut tx, &digest_of(secret), id, channel, engine.now()).await?;
    if ticket.is_some() {
        engine.commit(tx).await?;
    }
    Ok(ticket)
}
