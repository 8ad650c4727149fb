//! A conversation with the database: statements, then a commit or nothing.

use std::sync::Arc;

use crate::changes::{Changed, Changes, changed_table};
use crate::memory::Key;
use crate::relations::Change;
use crate::row::{FromRow, Row};
use crate::select::Finished;
use crate::value::Value;
use crate::{Error, Result, postgres, sqlite};

pub struct Tx {
    connection: Connection,
    /// What was changed so far; told to the watchers by the commit.
    changed: Vec<&'static str>,
    /// The relations that were given or taken back, in order.
    relations: Vec<Change>,
}

enum Connection {
    /// Takes a reader from the pool when the memory does not have the answer.
    SqliteRead(sqlite::Sqlite, Option<sqlite::Reader>),
    SqliteWrite(sqlite::Writing),
    Postgres(postgres::Connection, Arc<Changes>),
}

impl Tx {
    pub(crate) fn sqlite_read(sqlite: &sqlite::Sqlite) -> Tx {
        Tx {
            connection: Connection::SqliteRead(sqlite.clone(), None),
            changed: Vec::new(),
            relations: Vec::new(),
        }
    }

    pub(crate) fn sqlite_write(writing: sqlite::Writing) -> Tx {
        Tx { connection: Connection::SqliteWrite(writing), changed: Vec::new(), relations: Vec::new() }
    }

    pub(crate) fn postgres(connection: postgres::Connection, changes: &Arc<Changes>) -> Tx {
        Tx {
            connection: Connection::Postgres(connection, changes.clone()),
            changed: Vec::new(),
            relations: Vec::new(),
        }
    }

    pub async fn rows<T: FromRow>(&mut self, sql: &str, args: &[Value<'_>]) -> Result<Vec<T>> {
        match &mut self.connection {
            Connection::SqliteRead(sqlite, reader) => sqlite::rows(reader_of(sqlite, reader)?, sql, args),
            Connection::SqliteWrite(writing) => sqlite::rows(writing, sql, args),
            Connection::Postgres(connection, _) => {
                let rows = connection.query(sql, args).await?;
                rows.iter().map(|row| T::from_row(&mut Row::postgres(row))).collect()
            }
        }
    }

    pub async fn row<T: FromRow>(&mut self, sql: &str, args: &[Value<'_>]) -> Result<Option<T>> {
        Ok(self.rows(sql, args).await?.pop())
    }

    /// A row that is about to be changed: nobody else changes it before this transaction ends.
    pub(crate) async fn row_to_change<T: FromRow>(
        &mut self,
        sql: &'static str,
        args: &[Value<'_>],
    ) -> Result<Option<T>> {
        match &self.connection {
            // The only dialect there is: SQLite has one writer anyway.
            Connection::Postgres(..) => self.row(&format!("{sql} FOR UPDATE"), args).await,
            _ => self.row(sql, args).await,
        }
    }

    /// The rows of a statement that is put together anew each time. With `scans`, it may have to look at every row.
    pub(crate) async fn rows_of<T: FromRow + Send + 'static>(&mut self, select: Finished) -> Result<Vec<T>> {
        let Finished { sql, args, scans } = select;
        match &mut self.connection {
            Connection::SqliteRead(sqlite, reader) if scans => {
                let reader = match reader.take() {
                    Some(reader) => reader,
                    None => sqlite.reader()?,
                };
                let scan = move || sqlite::rows(&reader, &sql, &args);
                tokio::task::spawn_blocking(scan).await.map_err(Error::unexpected)?
            }
            // Not kept prepared: there are as many texts as there are ways to filter.
            Connection::Postgres(connection, _) => {
                let rows = connection.query_once(&sql, &args).await?;
                rows.iter().map(|row| T::from_row(&mut Row::postgres(row))).collect()
            }
            _ => self.rows(&sql, &args).await,
        }
    }

    /// The row that was read under this key before, or else the one that the statement finds now.
    pub(crate) async fn remembered<'a, T: FromRow + Clone + Send + Sync + 'static, const N: usize>(
        &mut self,
        key: Key,
        sql: &str,
        args: impl FnOnce() -> [Value<'a>; N],
    ) -> Result<Option<T>> {
        // Inside a change the newest is what this transaction has written; elsewhere another process may write.
        let Connection::SqliteRead(sqlite, _) = &self.connection else { return self.row(sql, &args()).await };
        let memory = sqlite.memory.clone();
        match memory.recall(key) {
            Ok(known) => Ok(known),
            Err(ticket) => {
                let found = self.row(sql, &args()).await?;
                memory.remember(&ticket, &found);
                Ok(found)
            }
        }
    }

    /// Carries out a change; returns how many rows it touched.
    pub async fn execute(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<u64> {
        let touched = match &mut self.connection {
            Connection::SqliteRead(..) => return Err(Error::unexpected("a change in a reading transaction")),
            Connection::SqliteWrite(writing) => sqlite::execute(writing, sql, args)?,
            Connection::Postgres(connection, _) => connection.execute(sql, args).await?,
        };
        if touched > 0
            && let Some(table) = changed_table(sql)
            && !self.changed.contains(&table)
        {
            self.changed.push(table);
        }
        Ok(touched)
    }

    /// Changes exactly one row, or says that somebody else was faster.
    pub async fn execute_one(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<()> {
        match self.execute(sql, args).await? {
            0 => Err(Error::Stale),
            _ => Ok(()),
        }
    }

    /// Statements without arguments, several in one text: migrations.
    pub(crate) async fn run_script(&mut self, script: &str) -> Result<()> {
        match &mut self.connection {
            Connection::SqliteRead(..) => Err(Error::unexpected("a script in a reading transaction")),
            Connection::SqliteWrite(writing) => Ok(writing.execute_batch(script)?),
            Connection::Postgres(connection, _) => connection.run_script(script).await,
        }
    }

    /// The revision that relations reach with this transaction, if it changes any.
    pub fn relation_revision(&self) -> Option<i64> {
        self.relations.last().map(|change| change.revision)
    }

    pub(crate) fn note_relation(&mut self, change: Change) {
        self.relations.push(change);
    }

    /// Whether another process may have to be told what changes here.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.connection, Connection::Postgres(..))
    }

    /// When this returns, the changes are on disk and visible to all, and the watchers are awake.
    pub async fn commit(self) -> Result<()> {
        match self.connection {
            Connection::SqliteRead(..) => Ok(()),
            Connection::SqliteWrite(writing) => writing.commit(&self.changed, self.relations).await,
            Connection::Postgres(connection, changes) => {
                connection.commit(&self.changed).await?;
                if !self.changed.is_empty() {
                    changes.tell(Changed::Tables(self.changed.into_iter().map(str::to_owned).collect()));
                }
                Ok(())
            }
        }
    }

    #[cfg(test)]
    pub(crate) async fn prepare(&mut self, sql: &str) -> Result<()> {
        match &mut self.connection {
            Connection::SqliteRead(sqlite, reader) => {
                Ok(reader_of(sqlite, reader)?.prepare(sql).map(drop)?)
            }
            Connection::SqliteWrite(writing) => Ok(writing.prepare(sql).map(drop)?),
            Connection::Postgres(connection, _) => connection.prepare(sql).await,
        }
    }
}

fn reader_of<'a>(
    sqlite: &sqlite::Sqlite,
    reader: &'a mut Option<sqlite::Reader>,
) -> Result<&'a sqlite::Reader> {
    match reader {
        Some(reader) => Ok(reader),
        none => Ok(none.insert(sqlite.reader()?)),
    }
}
