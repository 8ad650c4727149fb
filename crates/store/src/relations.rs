//! Relations: who was given what on which object, and in which order that came about.

use paddock_model::Timestamp;
use paddock_model::permissions::tuples::{Holder, Thing, Tuple};

use crate::row::{FromRow, Row};
use crate::{Error, Result, Tx, args};

const LIST: &str = "
    SELECT object, relation, subject FROM relations";

const ON_OBJECT: &str = "
    SELECT object, relation, subject FROM relations WHERE object = $1";

const INSERT: &str = "
    INSERT INTO relations (object, relation, subject, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING";

const DELETE: &str = "
    DELETE FROM relations WHERE object = $1 AND relation = $2 AND subject = $3";

/// Holds up other writers of relations until the commit: changes are numbered in the order in which they are seen.
const RAISE_REVISION: &str = "
    UPDATE relation_revision SET revision = revision + 1 WHERE id = 1 RETURNING revision";

const REVISION: &str = "
    SELECT revision FROM relation_revision WHERE id = 1";

const RECORD: &str = "
    INSERT INTO relation_changes (revision, given, object, relation, subject) VALUES ($1, $2, $3, $4, $5)";

const CHANGES: &str = "
    SELECT revision, given, object, relation, subject FROM relation_changes WHERE revision > $1 ORDER BY revision";

const ANY_OLD: &str = "
    SELECT revision FROM relation_changes WHERE revision <= $1 LIMIT 1";

const DELETE_OLD: &str = "
    DELETE FROM relation_changes WHERE revision <= $1";

/// A relation that was given or taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub revision: i64,
    pub given: bool,
    pub tuple: Tuple,
}

pub async fn list(tx: &mut Tx) -> Result<Vec<Tuple>> {
    tx.rows(LIST, &[]).await
}

/// The number of the newest change.
pub async fn revision(tx: &mut Tx) -> Result<i64> {
    let row: Option<(i64,)> = tx.row(REVISION, &[]).await?;
    row.map(|(revision,)| revision).ok_or_else(|| Error::unexpected("there is no revision"))
}

pub async fn changes_since(tx: &mut Tx, revision: i64) -> Result<Vec<Change>> {
    tx.rows(CHANGES, args![revision]).await
}

/// Whether the account of changes reaches back to this one or further.
pub async fn any_change_until(tx: &mut Tx, revision: i64) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_OLD, args![revision]).await?.is_some())
}

/// Forgets how the relations came about up to this change; they themselves stay.
pub async fn forget_changes_until(tx: &mut Tx, revision: i64) -> Result<u64> {
    tx.execute(DELETE_OLD, args![revision]).await
}

/// False when it was given already.
pub async fn give(tx: &mut Tx, tuple: &Tuple, now: Timestamp) -> Result<bool> {
    let args = args![tuple.object.to_string(), &*tuple.relation, tuple.holder.to_string(), now];
    let new = tx.execute(INSERT, args).await? > 0;
    if new {
        record(tx, tuple, 1).await?;
    }
    Ok(new)
}

/// False when there was nothing to take back.
pub async fn take_back(tx: &mut Tx, tuple: &Tuple) -> Result<bool> {
    let args = args![tuple.object.to_string(), &*tuple.relation, tuple.holder.to_string()];
    let gone = tx.execute(DELETE, args).await? > 0;
    if gone {
        record(tx, tuple, 0).await?;
    }
    Ok(gone)
}

/// Takes back everything that was given on an object that is going away.
pub async fn take_back_all(tx: &mut Tx, object: &Thing) -> Result<()> {
    let tuples: Vec<Tuple> = tx.rows(ON_OBJECT, args![object.to_string()]).await?;
    for tuple in tuples {
        take_back(tx, &tuple).await?;
    }
    Ok(())
}

async fn record(tx: &mut Tx, tuple: &Tuple, given: i64) -> Result<()> {
    let raised: Option<(i64,)> = tx.row(RAISE_REVISION, &[]).await?;
    let (revision,) = raised.ok_or_else(|| Error::unexpected("there is no revision"))?;
    if tx.is_shared() {
        // For the other replicas; a process that has the database to itself is told by its own commit.
        let args =
            args![revision, given, tuple.object.to_string(), &*tuple.relation, tuple.holder.to_string()];
        tx.execute_one(RECORD, args).await?;
    }
    tx.note_relation(Change { revision, given: given == 1, tuple: tuple.clone() });
    Ok(())
}

impl FromRow for Tuple {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Tuple {
            object: row.take_text(Thing::parse)?,
            relation: row.take::<String>()?.into(),
            holder: row.take_text(Holder::parse)?,
        })
    }
}

impl FromRow for Change {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Change { revision: row.take()?, given: row.take::<i64>()? == 1, tuple: Tuple::from_row(row)? })
    }
}
