//! Relations: who holds what on which object.

use paddock_model::Timestamp;
use paddock_model::permissions::{Object, Relation, Subject};

use crate::{Result, Tx, args};

const HOLDS: &str = "
    SELECT CAST(1 AS BIGINT) FROM relations WHERE object = $1 AND relation = $2 AND subject = $3";

const INSERT: &str = "
    INSERT INTO relations (object, relation, subject, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING";

pub async fn holds(tx: &mut Tx, subject: Subject, relation: Relation, object: Object) -> Result<bool> {
    let args = args![object.to_string(), relation.name(), subject.to_string()];
    Ok(tx.row::<(i64,)>(HOLDS, args).await?.is_some())
}

pub async fn insert(
    tx: &mut Tx,
    subject: Subject,
    relation: Relation,
    object: Object,
    now: Timestamp,
) -> Result<()> {
    tx.execute(INSERT, args![object.to_string(), relation.name(), subject.to_string(), now]).await?;
    Ok(())
}
