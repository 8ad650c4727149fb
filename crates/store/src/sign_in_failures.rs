//! Failures to sign in: counted by the digest of what is guarded.

use paddock_model::Timestamp;
use paddock_model::sign_in_failures::Failures;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

/// Changes nothing where there is a row, but holds it: of two who count at once, the second sees what the first wrote.
const HOLD: &str = "
    INSERT INTO sign_in_failures (key, failures, updated_at) VALUES ($1, 0, $2)
    ON CONFLICT (key) DO UPDATE SET key = excluded.key";

const FIND: &str = "
    SELECT failures, paused_until, updated_at FROM sign_in_failures WHERE key = $1";

const UPDATE: &str = "
    UPDATE sign_in_failures SET failures = $2, paused_until = $3, updated_at = $4 WHERE key = $1";

const DELETE: &str = "
    DELETE FROM sign_in_failures WHERE key = $1";

const ANY_QUIET: &str = "
    SELECT CAST(1 AS BIGINT) FROM sign_in_failures WHERE updated_at <= $1 LIMIT 1";

const DELETE_QUIET: &str = "
    DELETE FROM sign_in_failures WHERE updated_at <= $1";

/// What is counted under the key; nobody else counts there before this transaction ends.
pub async fn find_to_change(tx: &mut Tx, key: &[u8], now: Timestamp) -> Result<Failures> {
    tx.execute(HOLD, args![key, now]).await?;
    let found = tx.row(FIND, args![key]).await?;
    Ok(found.unwrap_or(Failures { count: 0, paused_until: None, updated_at: now }))
}

pub async fn update(tx: &mut Tx, key: &[u8], failures: &Failures) -> Result<()> {
    tx.execute_one(UPDATE, args![key, failures.count, failures.paused_until, failures.updated_at]).await
}

pub async fn delete(tx: &mut Tx, key: &[u8]) -> Result<()> {
    tx.execute(DELETE, args![key]).await.map(drop)
}

pub async fn any_quiet(tx: &mut Tx, since: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_QUIET, args![since]).await?.is_some())
}

/// Forgets what nobody has added to since.
pub async fn delete_quiet(tx: &mut Tx, since: Timestamp) -> Result<u64> {
    tx.execute(DELETE_QUIET, args![since]).await
}

impl FromRow for Failures {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Failures { count: row.take()?, paused_until: row.take_optional()?, updated_at: row.take()? })
    }
}
