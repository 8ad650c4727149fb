//! Authorizations: found by the digest of their code.

use paddock_model::Timestamp;
use paddock_model::authorizations::Authorization;
use paddock_model::users::UserId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT user_id, client, redirect_uri, challenge, authenticated_at, expires_at, family
    FROM authorization_codes WHERE digest = $1";

const INSERT: &str = "
    INSERT INTO authorization_codes (digest, user_id, client, redirect_uri, challenge, authenticated_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

const USE: &str = "
    UPDATE authorization_codes SET family = $2 WHERE digest = $1 AND family IS NULL";

const DELETE: &str = "
    DELETE FROM authorization_codes WHERE digest = $1";

const DELETE_OF_USER: &str = "
    DELETE FROM authorization_codes WHERE user_id = $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM authorization_codes WHERE expires_at <= $1 LIMIT 1";

const DELETE_EXPIRED: &str = "
    DELETE FROM authorization_codes WHERE expires_at <= $1";

pub async fn find(tx: &mut Tx, digest: &[u8]) -> Result<Option<Authorization>> {
    tx.row(FIND, args![digest]).await
}

/// The same, for a transaction that goes on to use it up, and holds the user's row already.
pub async fn find_to_change(tx: &mut Tx, digest: &[u8]) -> Result<Option<Authorization>> {
    tx.row_to_change(FIND, args![digest]).await
}

pub async fn insert(tx: &mut Tx, authorization: &Authorization, digest: &[u8]) -> Result<()> {
    let args = args![
        digest,
        authorization.user,
        &authorization.client,
        &authorization.redirect_uri,
        &authorization.challenge,
        authorization.authenticated_at,
        authorization.expires_at
    ];
    tx.execute_one(INSERT, args).await
}

/// Says what it was exchanged for; that can be said once.
pub async fn mark_used(tx: &mut Tx, digest: &[u8], family: Uuid) -> Result<()> {
    tx.execute_one(USE, args![digest, family]).await
}

pub async fn delete(tx: &mut Tx, digest: &[u8]) -> Result<()> {
    tx.execute(DELETE, args![digest]).await.map(drop)
}

pub async fn delete_of(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(DELETE_OF_USER, args![user]).await
}

pub async fn any_expired(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![now]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    tx.execute(DELETE_EXPIRED, args![now]).await
}

impl FromRow for Authorization {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Authorization {
            user: row.take()?,
            client: row.take()?,
            redirect_uri: row.take()?,
            challenge: row.take()?,
            authenticated_at: row.take()?,
            expires_at: row.take()?,
            family: row.take_optional()?,
        })
    }
}
