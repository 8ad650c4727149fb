//! Invitations: at most one open one a user.

use paddock_model::invitations::Invitation;
use paddock_model::users::UserId;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT user_id, digest, created_at, expires_at FROM invitations WHERE digest = $1";

const REPLACE: &str = "
    INSERT INTO invitations (user_id, digest, created_at, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (user_id) DO UPDATE
    SET digest = excluded.digest, created_at = excluded.created_at, expires_at = excluded.expires_at";

const DELETE: &str = "
    DELETE FROM invitations WHERE user_id = $1";

pub async fn find(tx: &mut Tx, digest: &[u8]) -> Result<Option<Invitation>> {
    tx.row(FIND, args![digest]).await
}

/// The same, for a transaction that goes on to use it up.
pub async fn find_to_change(tx: &mut Tx, digest: &[u8]) -> Result<Option<Invitation>> {
    tx.row_to_change(FIND, args![digest]).await
}

/// An earlier invitation of the same user works no more.
pub async fn replace(tx: &mut Tx, invitation: &Invitation) -> Result<()> {
    let args = args![invitation.user, &invitation.digest, invitation.created_at, invitation.expires_at];
    tx.execute_one(REPLACE, args).await
}

pub async fn delete(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.execute(DELETE, args![user]).await.map(drop)
}

impl FromRow for Invitation {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Invitation {
            user: row.take()?,
            digest: row.take()?,
            created_at: row.take()?,
            expires_at: row.take()?,
        })
    }
}
