//! SQLite as a party: one writer, one row a commit, each commit on disk before the next.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::tenant_rows;

/// A new database with this schema.
pub fn create(path: &Path, schema: &str) -> Result<()> {
    Ok(open(path)?.execute_batch(schema)?)
}

pub fn commits_per_second(path: &Path, seconds: u64) -> Result<f64> {
    let connection = open(path)?;
    let before = tenant_rows::count(&connection)?;
    let (begun, mut rows) = (Instant::now(), before);
    while begun.elapsed() < Duration::from_secs(seconds) {
        tenant_rows::insert(&connection, rows)?;
        rows += 1;
    }
    Ok((rows - before) as f64 / begun.elapsed().as_secs_f64())
}

/// As durable as Paddock's: WAL, synchronous=FULL.
fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    ensure!(mode == "wal", "SQLite keeps to journal mode {mode}");
    connection.execute_batch("PRAGMA synchronous = FULL")?;
    // The log outlives the connection: to grow it anew in each round would cost the disk more than to write on.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_round_goes_on_in_the_same_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peer.db");
        create(
            &path,
            "CREATE TABLE tenants (id PRIMARY KEY, name, display_name, labels, created_at, updated_at, generation)",
        )
        .expect("a database");

        let rates = [0, 1].map(|_| commits_per_second(&path, 1).expect("a round"));

        let kept = tenant_rows::count(&open(&path).expect("opened")).expect("counted");
        assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
        assert!(kept as f64 >= rates.iter().sum::<f64>().floor(), "{kept} rows, {rates:?}");
        assert!(folder.path().join("peer.db-wal").exists());
    }
}
