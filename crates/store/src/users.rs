//! Users: the people and machines that Paddock knows by name.

use paddock_model::users::{User, UserId};

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND_BY_NAME: &str = "
    SELECT id, name, created_at, updated_at, generation FROM users WHERE name = $1";

const FIND: &str = "
    SELECT id, name, created_at, updated_at, generation FROM users WHERE id = $1";

const INSERT: &str = "
    INSERT INTO users (id, name, password_hash, created_at, updated_at, generation)
    VALUES ($1, $2, $3, $4, $5, $6)";

const PASSWORD_HASH: &str = "
    SELECT password_hash FROM users WHERE id = $1 AND password_hash IS NOT NULL";

pub async fn find_by_name(tx: &mut Tx, name: &str) -> Result<Option<User>> {
    tx.row(FIND_BY_NAME, args![name]).await
}

pub async fn find(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    tx.row(FIND, args![id]).await
}

pub async fn insert(tx: &mut Tx, user: &User, password_hash: Option<&str>) -> Result<()> {
    let args = args![user.id, &user.name, password_hash, user.created_at, user.updated_at, user.generation];
    tx.execute_one(INSERT, args).await
}

/// What a password is checked against; none for an account without one.
pub async fn password_hash(tx: &mut Tx, user: &User) -> Result<Option<String>> {
    Ok(tx.row::<(String,)>(PASSWORD_HASH, args![user.id]).await?.map(|(hash,)| hash))
}

impl FromRow for User {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(User {
            id: row.take()?,
            name: row.take()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
