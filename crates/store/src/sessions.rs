//! Sessions: found by the digest of what the browser's cookie holds.

use paddock_model::Timestamp;
use paddock_model::sessions::Session;
use paddock_model::users::UserId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT id, user_id, authenticated_at, created_at, expires_at, ends_at FROM sessions WHERE digest = $1";

const INSERT: &str = "
    INSERT INTO sessions (id, digest, user_id, authenticated_at, created_at, expires_at, ends_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

const PROLONG: &str = "
    UPDATE sessions SET expires_at = $2 WHERE id = $1 AND expires_at < $2";

const DELETE: &str = "
    DELETE FROM sessions WHERE id = $1";

const DELETE_OTHERS: &str = "
    DELETE FROM sessions WHERE user_id = $1 AND id <> $2";

const DELETE_OF_USER: &str = "
    DELETE FROM sessions WHERE user_id = $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM sessions WHERE expires_at <= $1 LIMIT 1";

const DELETE_EXPIRED: &str = "
    DELETE FROM sessions WHERE expires_at <= $1";

pub async fn find(tx: &mut Tx, digest: &[u8]) -> Result<Option<Session>> {
    tx.row(FIND, args![digest]).await
}

pub async fn insert(tx: &mut Tx, session: &Session, digest: &[u8]) -> Result<()> {
    let args = args![
        session.id,
        digest,
        session.user,
        session.authenticated_at,
        session.created_at,
        session.expires_at,
        session.ends_at
    ];
    tx.execute_one(INSERT, args).await
}

/// Moves the end on; a session that has ended meanwhile stays so.
pub async fn prolong(tx: &mut Tx, id: Uuid, expires_at: Timestamp) -> Result<()> {
    tx.execute(PROLONG, args![id, expires_at]).await.map(drop)
}

/// Whether there was one to end.
pub async fn delete(tx: &mut Tx, id: Uuid) -> Result<bool> {
    Ok(tx.execute(DELETE, args![id]).await? > 0)
}

/// All of the user's, but for the one that is to be kept.
pub async fn delete_of(tx: &mut Tx, user: UserId, kept: Option<Uuid>) -> Result<u64> {
    match kept {
        Some(kept) => tx.execute(DELETE_OTHERS, args![user, kept]).await,
        None => tx.execute(DELETE_OF_USER, args![user]).await,
    }
}

pub async fn any_expired(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![now]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    tx.execute(DELETE_EXPIRED, args![now]).await
}

impl FromRow for Session {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Session {
            id: row.take()?,
            user: row.take()?,
            authenticated_at: row.take()?,
            created_at: row.take()?,
            expires_at: row.take()?,
            ends_at: row.take()?,
        })
    }
}
