//! Idempotency keys: what was answered to a request that may be sent again.

use paddock_model::Timestamp;
use paddock_model::idempotency_keys::IdempotencyKey;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT subject, key, fingerprint, outcome, created_at FROM idempotency_keys
    WHERE subject = $1 AND key = $2 AND created_at >= $3";

/// Waits for a twin that is under way elsewhere; an expired key that the loop has not yet removed gives way.
const CLAIM: &str = "
    INSERT INTO idempotency_keys (subject, key, fingerprint, outcome, created_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (subject, key) DO UPDATE
    SET fingerprint = excluded.fingerprint, outcome = excluded.outcome, created_at = excluded.created_at
    WHERE idempotency_keys.created_at < $6";

const COMPLETE: &str = "
    UPDATE idempotency_keys SET outcome = $3 WHERE subject = $1 AND key = $2";

const DELETE_EXPIRED: &str = "
    DELETE FROM idempotency_keys WHERE created_at < $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM idempotency_keys WHERE created_at < $1 LIMIT 1";

/// The key, unless it was made before `oldest`.
pub async fn find(
    tx: &mut Tx,
    subject: &str,
    key: &str,
    oldest: Timestamp,
) -> Result<Option<IdempotencyKey>> {
    tx.row(FIND, args![subject, key, oldest]).await
}

/// Takes the key for this transaction; false when it was used since `oldest`.
pub async fn claim(tx: &mut Tx, key: &IdempotencyKey, oldest: Timestamp) -> Result<bool> {
    let args = args![&key.subject, &key.key, &key.fingerprint, key.outcome.clone(), key.created_at, oldest];
    Ok(tx.execute(CLAIM, args).await? > 0)
}

/// Keeps what was answered under a key that this transaction has claimed.
pub async fn complete(tx: &mut Tx, subject: &str, key: &str, outcome: serde_json::Value) -> Result<()> {
    tx.execute_one(COMPLETE, args![subject, key, outcome]).await
}

pub async fn any_expired(tx: &mut Tx, oldest: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![oldest]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, oldest: Timestamp) -> Result<u64> {
    tx.execute(DELETE_EXPIRED, args![oldest]).await
}

impl FromRow for IdempotencyKey {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(IdempotencyKey {
            subject: row.take()?,
            key: row.take()?,
            fingerprint: row.take()?,
            outcome: row.take()?,
            created_at: row.take()?,
        })
    }
}
