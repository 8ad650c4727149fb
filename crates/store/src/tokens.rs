//! Tokens: families of refresh tokens, each token found by its digest.

use paddock_model::Timestamp;
use paddock_model::tokens::{Family, RefreshToken};
use paddock_model::users::UserId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND_FAMILY: &str = "
    SELECT id, user_id, client, authenticated_at, created_at, expires_at FROM token_families WHERE id = $1";

const INSERT_FAMILY: &str = "
    INSERT INTO token_families (id, user_id, client, authenticated_at, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6)";

const PROLONG_FAMILY: &str = "
    UPDATE token_families SET expires_at = $2 WHERE id = $1";

const FIND: &str = "
    SELECT family, expires_at, used_at FROM refresh_tokens WHERE digest = $1";

const INSERT: &str = "
    INSERT INTO refresh_tokens (digest, family, expires_at) VALUES ($1, $2, $3)";

/// Only once.
const USE: &str = "
    UPDATE refresh_tokens SET used_at = $2 WHERE digest = $1 AND used_at IS NULL";

const DELETE_TOKENS: &str = "
    DELETE FROM refresh_tokens WHERE family = $1";

const DELETE_FAMILY: &str = "
    DELETE FROM token_families WHERE id = $1";

const FAMILIES_OF_USER: &str = "
    SELECT id FROM token_families WHERE user_id = $1 ORDER BY id";

const DELETE_TOKENS_OF_USER: &str = "
    DELETE FROM refresh_tokens WHERE family IN (SELECT id FROM token_families WHERE user_id = $1)";

const DELETE_FAMILIES_OF_USER: &str = "
    DELETE FROM token_families WHERE user_id = $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM token_families WHERE expires_at <= $1 LIMIT 1";

const EXPIRED_FAMILIES: &str = "
    SELECT id FROM token_families WHERE expires_at <= $1 ORDER BY id";

const DELETE_EXPIRED_TOKENS: &str = "
    DELETE FROM refresh_tokens WHERE family IN (SELECT id FROM token_families WHERE expires_at <= $1)";

const DELETE_EXPIRED_FAMILIES: &str = "
    DELETE FROM token_families WHERE expires_at <= $1";

pub async fn find_family(tx: &mut Tx, id: Uuid) -> Result<Option<Family>> {
    tx.row(FIND_FAMILY, args![id]).await
}

/// The same, for a transaction that goes on to change it or its tokens. Whoever does holds the user first, then the
/// family, then the token: two who take turns in this order never wait for each other.
pub async fn find_family_to_change(tx: &mut Tx, id: Uuid) -> Result<Option<Family>> {
    tx.row_to_change(FIND_FAMILY, args![id]).await
}

pub async fn insert_family(tx: &mut Tx, family: &Family) -> Result<()> {
    let args = args![
        family.id,
        family.user,
        &family.client,
        family.authenticated_at,
        family.created_at,
        family.expires_at
    ];
    tx.execute_one(INSERT_FAMILY, args).await
}

pub async fn find(tx: &mut Tx, digest: &[u8]) -> Result<Option<RefreshToken>> {
    tx.row(FIND, args![digest]).await
}

/// A new token of the family, which lives as long as this one.
pub async fn insert(tx: &mut Tx, digest: &[u8], token: &RefreshToken) -> Result<()> {
    tx.execute_one(INSERT, args![digest, token.family, token.expires_at]).await?;
    tx.execute_one(PROLONG_FAMILY, args![token.family, token.expires_at]).await
}

pub async fn mark_used(tx: &mut Tx, digest: &[u8], now: Timestamp) -> Result<()> {
    tx.execute_one(USE, args![digest, now]).await
}

/// Ends a family with all its tokens; whether there was one.
pub async fn delete_family(tx: &mut Tx, id: Uuid) -> Result<bool> {
    tx.execute(DELETE_TOKENS, args![id]).await?;
    Ok(tx.execute(DELETE_FAMILY, args![id]).await? > 0)
}

/// All of the user's, whose row the transaction holds: nobody adds one meanwhile.
pub async fn delete_of(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.row_to_change::<(Uuid,)>(FAMILIES_OF_USER, args![user]).await?;
    tx.execute(DELETE_TOKENS_OF_USER, args![user]).await?;
    tx.execute(DELETE_FAMILIES_OF_USER, args![user]).await
}

pub async fn any_expired(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![now]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    tx.row_to_change::<(Uuid,)>(EXPIRED_FAMILIES, args![now]).await?;
    tx.execute(DELETE_EXPIRED_TOKENS, args![now]).await?;
    tx.execute(DELETE_EXPIRED_FAMILIES, args![now]).await
}

impl FromRow for Family {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Family {
            id: row.take()?,
            user: row.take()?,
            client: row.take()?,
            authenticated_at: row.take()?,
            created_at: row.take()?,
            expires_at: row.take()?,
        })
    }
}

impl FromRow for RefreshToken {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(RefreshToken { family: row.take()?, expires_at: row.take()?, used_at: row.take_optional()? })
    }
}
