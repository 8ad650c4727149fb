//! Relations: who was given what on which object, and in which order that came about.

use paddock_model::Timestamp;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::{Holder, Thing, Tuple};

use crate::row::{FromRow, Row};
use crate::{Error, Result, Tx, args};

const LIST: &str = "
    SELECT object, relation, subject FROM relations";

const ON_OBJECT: &str = "
    SELECT object, relation, subject FROM relations WHERE object = $1 ORDER BY relation, subject";

const GIVEN: &str = "
    SELECT object, relation, subject FROM relations WHERE object = $1 AND relation = $2";

const HELD: &str = "
    SELECT object, relation, subject FROM relations WHERE subject = $1";

/// Who was given one of four relations on an object, by the order of their names.
const HOLDERS: &str = "
    SELECT relation, subject, created_at FROM relations
    WHERE object = $1 AND relation IN ($2, $3, $4, $5) AND subject > $6 ORDER BY subject LIMIT $7";

const HOLDER: &str = "
    SELECT relation, subject, created_at FROM relations
    WHERE object = $1 AND relation IN ($2, $3, $4, $5) AND subject = $6";

/// What a subject was given, by the order of objects and relations.
const HOLDINGS: &str = "
    SELECT object, relation, created_at FROM relations
    WHERE subject = $1 AND NOT (relation = 'member' AND object LIKE 'group:%') AND (object > $2 OR object = $2 AND relation > $3)
    ORDER BY object, relation LIMIT $4";

const INSERT: &str = "
    INSERT INTO relations (object, relation, subject, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT DO NOTHING";

const DELETE: &str = "
    DELETE FROM relations WHERE object = $1 AND relation = $2 AND subject = $3";

const DELETE_ON_OBJECT: &str = "
    DELETE FROM relations WHERE object = $1";

/// Holds up other writers of relations until the commit: changes are numbered in the order in which they are seen.
const RAISE_REVISION: &str = "
    UPDATE relation_revision SET revision = revision + $1 WHERE id = 1 RETURNING revision";

/// Writes nothing; holds up other writers of relations all the same.
const HOLD_REVISION: &str = "
    UPDATE relation_revision SET revision = revision WHERE id = 1";

const REVISION: &str = "
    SELECT revision FROM relation_revision WHERE id = 1";

const RECORD: &str = "
    INSERT INTO relation_changes (revision, given, object, relation, subject) VALUES ($1, $2, $3, $4, $5)";

/// Numbers all that is about to be taken back, in the order of `ON_OBJECT`.
const RECORD_ON_OBJECT: &str = "
    INSERT INTO relation_changes (revision, given, object, relation, subject)
    SELECT $2 + ROW_NUMBER() OVER (ORDER BY relation, subject), 0, object, relation, subject
    FROM relations WHERE object = $1";

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

/// Until this transaction ends, nobody else gives or takes back a relation: what is read now stays true.
pub async fn hold(tx: &mut Tx) -> Result<()> {
    tx.execute(HOLD_REVISION, &[]).await.map(drop)
}

/// What was given of one relation on an object.
pub async fn given(tx: &mut Tx, object: &Thing, relation: &str) -> Result<Vec<Tuple>> {
    tx.rows(GIVEN, args![object.to_string(), relation]).await
}

/// Everything that was given to exactly this holder.
pub async fn held_by(tx: &mut Tx, holder: &Holder) -> Result<Vec<Tuple>> {
    tx.rows(HELD, args![holder.to_string()]).await
}

/// Someone who was given a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub relation: String,
    pub holder: Holder,
    pub since: Timestamp,
}

/// Those who were given one of these relations on an object, a page at a time.
pub async fn list_holders(
    tx: &mut Tx,
    object: &Thing,
    relations: [&str; 4],
    page: &PageRequest<String>,
) -> Result<Page<Given, String>> {
    let [a, b, c, d] = relations;
    let after = page.after.clone().unwrap_or_default();
    let args = args![object.to_string(), a, b, c, d, after, page.limit + 1];
    let holders = tx.rows(HOLDERS, args).await?;
    Ok(Page::of(holders, page, |given: &Given| given.holder.to_string()))
}

/// What exactly this holder was given of these relations on an object, and since when.
pub async fn find_holder(
    tx: &mut Tx,
    object: &Thing,
    relations: [&str; 4],
    holder: &Holder,
) -> Result<Option<Given>> {
    let [a, b, c, d] = relations;
    tx.row(HOLDER, args![object.to_string(), a, b, c, d, holder.to_string()]).await
}

/// Something that a holder was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub object: Thing,
    pub relation: String,
    pub since: Timestamp,
}

/// What was granted to a holder, a page at a time; the key is the object and the relation.
pub async fn list_holdings(
    tx: &mut Tx,
    holder: &Holder,
    page: &PageRequest<(String, String)>,
) -> Result<Page<Holding, (String, String)>> {
    let (object, relation) = page.after.clone().unwrap_or_default();
    let args = args![holder.to_string(), object, relation, page.limit + 1];
    let holdings = tx.rows(HOLDINGS, args).await?;
    Ok(Page::of(holdings, page, |held: &Holding| (held.object.to_string(), held.relation.clone())))
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

/// Takes back everything that was given on an object that is going away, however much it is, in a few statements.
pub async fn take_back_all(tx: &mut Tx, object: &Thing) -> Result<()> {
    hold(tx).await?;
    let tuples: Vec<Tuple> = tx.rows(ON_OBJECT, args![object.to_string()]).await?;
    if tuples.is_empty() {
        return Ok(());
    }
    let last = raise_revision(tx, tuples.len() as i64).await?;
    let before = last - tuples.len() as i64;
    if tx.is_shared() {
        tx.execute(RECORD_ON_OBJECT, args![object.to_string(), before]).await?;
    }
    tx.execute(DELETE_ON_OBJECT, args![object.to_string()]).await?;
    for (tuple, revision) in tuples.into_iter().zip(before + 1..) {
        tx.note_relation(Change { revision, given: false, tuple });
    }
    Ok(())
}

async fn record(tx: &mut Tx, tuple: &Tuple, given: i64) -> Result<()> {
    let revision = raise_revision(tx, 1).await?;
    if tx.is_shared() {
        // For the other replicas; a process that has the database to itself is told by its own commit.
        let args =
            args![revision, given, tuple.object.to_string(), &*tuple.relation, tuple.holder.to_string()];
        tx.execute_one(RECORD, args).await?;
    }
    tx.note_relation(Change { revision, given: given == 1, tuple: tuple.clone() });
    Ok(())
}

/// Takes the next so many numbers; returns the last of them.
async fn raise_revision(tx: &mut Tx, by: i64) -> Result<i64> {
    let raised: Option<(i64,)> = tx.row(RAISE_REVISION, args![by]).await?;
    raised.map(|(revision,)| revision).ok_or_else(|| Error::unexpected("there is no revision"))
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

impl FromRow for Given {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Given { relation: row.take()?, holder: row.take_text(Holder::parse)?, since: row.take()? })
    }
}

impl FromRow for Holding {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Holding { object: row.take_text(Thing::parse)?, relation: row.take()?, since: row.take()? })
    }
}

impl FromRow for Change {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Change { revision: row.take()?, given: row.take::<i64>()? == 1, tuple: Tuple::from_row(row)? })
    }
}
