//! Rows as Paddock keeps a tenant, written without Paddock: to compare with it, and to fill it quickly.

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, OpenFlags, params};

const INSERT: &str = "
    INSERT INTO tenants (id, name, display_name, labels, created_at, updated_at, generation)
    VALUES (?1, ?2, ?2, '{}', ?3, ?3, 1)";

/// The statements that make the tenants table and its indices in the database of a running Paddock.
pub fn schema(database: &std::path::Path) -> Result<String> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement = connection.prepare(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = 'tenants' AND sql IS NOT NULL ORDER BY rowid",
    )?;
    let texts: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    ensure!(!texts.is_empty(), "{} has no table of tenants", database.display());
    Ok(texts.join(";\n"))
}

/// Inserts one tenant; a higher number is a later one.
pub fn insert(connection: &Connection, number: u64) -> Result<()> {
    // 2026 and later, one tenant a microsecond.
    let time = 1_770_000_000_000_000 + i64::try_from(number)?;
    connection
        .prepare_cached(INSERT)?
        .execute(params![id(number), format!("row-{number:08}"), time])
        .context("insert a tenant; has its table changed?")?;
    Ok(())
}

pub fn count(connection: &Connection) -> Result<u64> {
    let count: i64 = connection.query_row("SELECT count(*) FROM tenants", [], |row| row.get(0))?;
    Ok(u64::try_from(count)?)
}

/// A UUID of version 7 whose order is the number's.
fn id(number: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&(1_770_000_000_000 + number / 1000).to_be_bytes()[2..]);
    let rest = (number % 1000) as u16;
    id[6..8].copy_from_slice(&(0x7000 | rest).to_be_bytes());
    id[8..].copy_from_slice(&(0x8000_0000_0000_0000 | number).to_be_bytes());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_of_version_7_in_the_order_of_their_numbers() {
        let ids = [0, 1, 999, 1000, 99_999].map(id);

        assert!(ids.is_sorted());
        for id in ids {
            assert_eq!((id[6] >> 4, id[8] >> 6), (7, 2));
        }
    }
}
