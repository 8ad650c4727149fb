//! Relations: who holds what on which object.

use paddock_model::Timestamp;
use paddock_model::permissions::{Object, Relation, Subject};

use crate::memory::Key;
use crate::{Result, Tx, args};

const HOLDS: &str = "
    SELECT CAST(1 AS BIGINT) FROM relations WHERE object = $1 AND relation = $2 AND subject = $3";

const INSERT: &str = "
    INSERT INTO relations (object, relation, subject, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING";

pub async fn holds(tx: &mut Tx, subject: Subject, relation: Relation, object: Object) -> Result<bool> {
    let args = || [object.to_string().into(), relation.name().into(), subject.to_string().into()];
    let found: Option<(i64,)> = tx.remembered(Key::Holds(subject, relation, object), HOLDS, args).await?;
    Ok(found.is_some())
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
