//! Rows as Paddock keeps a relation, written without Paddock: to fill it quickly.

use std::path::Path;

use anyhow::{Context, Result};
use paddock_model::permissions::tuples::Tuple;
use rusqlite::{Connection, params};

const INSERT: &str = "
    INSERT INTO relations (object, relation, subject, created_at)
    VALUES (?1, ?2, ?3, 1770000000000000)";

const RAISE_REVISION: &str = "
    UPDATE relation_revision SET revision = revision + ?1 WHERE id = 1";

/// Gives all of them, while no Paddock runs on this database.
pub fn give(database: &Path, tuples: impl Iterator<Item = Tuple>) -> Result<()> {
    let mut connection = Connection::open(database)?;
    let transaction = connection.transaction()?;
    let mut given: i64 = 0;
    for tuple in tuples {
        transaction
            .prepare_cached(INSERT)?
            .execute(params![tuple.object.to_string(), &*tuple.relation, tuple.holder.to_string()])
            .context("insert a relation; has its table changed?")?;
        given += 1;
    }
    transaction.execute(RAISE_REVISION, params![given])?;
    transaction.commit()?;
    Ok(())
}
