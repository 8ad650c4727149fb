//! Idempotency keys: a use-case claims the key before it acts, and keeps its answer in the same commit.

use paddock_model::caller::Caller;
use paddock_model::idempotency_keys::{IdempotencyKey, KEPT};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, idempotency_keys};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What this very request was answered before, if it was; otherwise its key is claimed for this transaction.
pub async fn recall<T: DeserializeOwned>(tx: &mut Tx, caller: &Caller, now: Timestamp) -> Result<Option<T>> {
    let Some(once) = &caller.once else { return Ok(None) };
    let claim = IdempotencyKey {
        subject: caller.subject.to_string(),
        key: once.key.clone(),
        fingerprint: once.fingerprint.to_vec(),
        // Nobody sees this: it is replaced before the commit.
        outcome: serde_json::json!({}),
        created_at: now,
    };
    let oldest = now - KEPT;
    if idempotency_keys::claim(tx, &claim, oldest).await? {
        return Ok(None);
    }
    let Some(known) = idempotency_keys::find(tx, &claim.subject, &claim.key, oldest).await? else {
        return Err(Error::internal("an idempotency key is taken but not there"));
    };
    if known.fingerprint != claim.fingerprint {
        return Err(Error::conflict(
            "idempotency_mismatch",
            "This Idempotency-Key was used for another request. Use a new key for a new request.",
        ));
    }
    serde_json::from_value(known.outcome).map(Some).map_err(Error::internal)
}

/// Keeps the answer for when the request is sent again.
pub async fn remember<T: Serialize>(tx: &mut Tx, caller: &Caller, outcome: &T) -> Result<()> {
    let Some(once) = &caller.once else { return Ok(()) };
    let outcome = serde_json::to_value(outcome).map_err(Error::internal)?;
    Ok(idempotency_keys::complete(tx, &caller.subject.to_string(), &once.key, outcome).await?)
}
