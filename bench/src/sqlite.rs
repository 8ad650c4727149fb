//! SQLite as a party: one writer in this process, one row a commit, each commit on disk before the next.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rusqlite::Connection;

use crate::tenant_rows;

pub struct Sqlite {
    connection: Connection,
    rows: u64,
}

impl Sqlite {
    /// A new database with this schema, as durable as Paddock's: WAL, synchronous=FULL.
    pub fn create(path: &Path, schema: &str) -> Result<Self> {
        let connection = Connection::open(path)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        ensure!(mode == "wal", "SQLite keeps to journal mode {mode}");
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.execute_batch(schema)?;
        Ok(Sqlite { connection, rows: 0 })
    }

    pub fn commits_per_second(&mut self, seconds: u64) -> Result<f64> {
        let (begun, before) = (Instant::now(), self.rows);
        while begun.elapsed() < Duration::from_secs(seconds) {
            tenant_rows::insert(&self.connection, self.rows)?;
            self.rows += 1;
        }
        Ok((self.rows - before) as f64 / begun.elapsed().as_secs_f64())
    }
}
