//! Idempotency keys: a use-case recalls what it answered before it acts, and remembers it in the same commit.

use paddock_model::caller::Caller;
use paddock_model::idempotency_keys::{IdempotencyKey, KEPT};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, idempotency_keys};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What this very request was answered before, if it was.
pub async fn recall<T: DeserializeOwned>(tx: &mut Tx, caller: &Caller, now: Timestamp) -> Result<Option<T>> {
    let Some(once) = &caller.once else { return Ok(None) };
    let subject = caller.subject.to_string();
    let Some(known) = idempotency_keys::find(tx, &subject, &once.key, now - KEPT).await? else {
        return Ok(None);
    };
    if known.fingerprint != once.fingerprint {
        return Err(Error::conflict(
            "idempotency_mismatch",
            "This Idempotency-Key was used for another request. Use a new key for a new request.",
        ));
    }
    serde_json::from_value(known.outcome).map(Some).map_err(Error::internal)
}

/// Keeps the answer for when the request is sent again.
pub async fn remember<T: Serialize>(tx: &mut Tx, caller: &Caller, outcome: &T, now: Timestamp) -> Result<()> {
    let Some(once) = &caller.once else { return Ok(()) };
    let key = IdempotencyKey {
        subject: caller.subject.to_string(),
        key: once.key.clone(),
        fingerprint: once.fingerprint.to_vec(),
        outcome: serde_json::to_value(outcome).map_err(Error::internal)?,
        created_at: now,
    };
    match idempotency_keys::insert(tx, &key, now - KEPT).await {
        // Its twin was faster by a hair, on another replica; the caller's next try finds the answer.
        Err(paddock_store::Error::Stale) => Err(Error::unavailable(
            "request_in_progress",
            "The same request is being carried out right now. Send it again to get its answer.",
        )),
        outcome => Ok(outcome?),
    }
}
