//! Signing keys: shared by all replicas, newest first.

use paddock_model::signing_keys::SigningKey;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, private, public, created_at FROM signing_keys ORDER BY created_at DESC, id";

const INSERT: &str = "
    INSERT INTO signing_keys (id, private, public, created_at) VALUES ($1, $2, $3, $4)";

const DELETE: &str = "
    DELETE FROM signing_keys WHERE id = $1";

pub async fn list(tx: &mut Tx) -> Result<Vec<SigningKey>> {
    tx.rows(LIST, &[]).await
}

pub async fn insert(tx: &mut Tx, key: &SigningKey) -> Result<()> {
    tx.execute_one(INSERT, args![&key.id, &key.private, &key.public, key.created_at]).await
}

pub async fn delete(tx: &mut Tx, id: &str) -> Result<()> {
    tx.execute(DELETE, args![id]).await.map(drop)
}

impl FromRow for SigningKey {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(SigningKey { id: row.take()?, private: row.take()?, public: row.take()?, created_at: row.take()? })
    }
}
