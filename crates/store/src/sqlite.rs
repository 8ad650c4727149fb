//! SQLite: a pool of readers, one writer, and the group commit.
//!
//! Statements run on the calling thread: a point read costs microseconds, a hop to another thread costs more.
//! Only the physical commit, which waits for the disk, runs on a thread of its own.
//!
//! Group commit: a logical transaction is a savepoint inside the physical one. Its commit releases the savepoint
//! and waits; the committer queues for the same fair lock, so every writer that queued before it shares its fsync.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::OpenFlags;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use crate::changes::{Changed, Changes};
use crate::memory::Memory;
use crate::relations::Change;
use crate::row::{FromRow, Row};
use crate::value::Value;
use crate::{Error, Result};

/// More than this are closed when they come back.
const IDLE_READERS: usize = 16;
const CACHED_STATEMENTS: usize = 256;

#[derive(Clone)]
pub(crate) struct Sqlite {
    readers: Arc<Readers>,
    writer: Arc<tokio::sync::Mutex<Writer>>,
    committer: Arc<Committer>,
    pub memory: Arc<Memory>,
    told: Arc<OnceLock<Tell>>,
}

type Tell = Box<dyn Fn(&[Change]) + Send + Sync>;

struct Readers {
    path: std::path::PathBuf,
    idle: Mutex<Vec<rusqlite::Connection>>,
}

struct Writer {
    connection: rusqlite::Connection,
    /// Whether a physical transaction is open.
    begun: bool,
    /// Who waits for it to be on disk.
    waiting: Vec<oneshot::Sender<Result<()>>>,
    /// What they have changed.
    changed: Vec<&'static str>,
    relations: Vec<Change>,
    told: Arc<OnceLock<Tell>>,
    memory: Arc<Memory>,
    changes: Arc<Changes>,
}

/// Wakes the committing task; ends it when the last store handle is dropped.
struct Committer {
    wake: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sqlite {
    pub fn open(path: &Path, changes: &Arc<Changes>) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(path, flags)?;
        // WAL with full synchronisation: a commit that returned survives a power cut.
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        connection.busy_timeout(Duration::ZERO)?;
        let memory = Arc::new(Memory::default());
        let told = Arc::new(OnceLock::new());
        let writer = Writer {
            connection,
            begun: false,
            waiting: Vec::new(),
            changed: Vec::new(),
            relations: Vec::new(),
            told: told.clone(),
            memory: memory.clone(),
            changes: changes.clone(),
        };
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let wake = Arc::new(Notify::new());
        let task = tokio::spawn(commit_batches(writer.clone(), wake.clone()));
        Ok(Sqlite {
            readers: Arc::new(Readers { path: path.to_owned(), idle: Mutex::new(Vec::new()) }),
            writer,
            committer: Arc::new(Committer { wake, task }),
            memory,
            told,
        })
    }

    /// The first to ask is the one that is told.
    pub fn tell_relations(&self, tell: Tell) {
        let _ = self.told.set(tell);
    }

    pub fn reader(&self) -> Result<Reader> {
        let idle = self.readers.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(
                &self.readers.path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?,
        };
        Ok(Reader { connection: Some(connection), readers: self.readers.clone() })
    }

    pub async fn begin(&self) -> Result<Writing> {
        let mut writer = self.writer.clone().lock_owned().await;
        writer.notice_lost_batch();
        if !writer.begun {
            begin_physical(&mut writer.connection).await?;
            writer.begun = true;
        }
        let mut writing = Writing { writer: Some(writer), committer: self.committer.clone() };
        if let Err(error) =
            writing.prepare_cached("SAVEPOINT logical").and_then(|mut statement| statement.execute([]))
        {
            // Without its savepoint this transaction must not roll back what others have done.
            drop(writing.writer.take());
            self.committer.wake.notify_one();
            return Err(error.into());
        }
        Ok(writing)
    }
}

/// Waits for another process that writes, a backup tool for one, without holding up the thread.
async fn begin_physical(connection: &mut rusqlite::Connection) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 0..1000 {
        match connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::unavailable("another process holds the database's write lock"))
}

fn connect(path: &Path, flags: OpenFlags) -> Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}

impl Readers {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<rusqlite::Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that only reads; it goes back to the pool when dropped.
pub(crate) struct Reader {
    connection: Option<rusqlite::Connection>,
    readers: Arc<Readers>,
}

impl Deref for Reader {
    type Target = rusqlite::Connection;

    fn deref(&self) -> &rusqlite::Connection {
        self.connection.as_ref().expect("present until dropped")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut idle = self.readers.idle();
        if idle.len() < IDLE_READERS {
            idle.extend(self.connection.take());
        }
    }
}

/// One logical transaction: it has the writer to itself until it commits or is dropped.
pub(crate) struct Writing {
    writer: Option<OwnedMutexGuard<Writer>>,
    committer: Arc<Committer>,
}

impl Deref for Writing {
    type Target = rusqlite::Connection;

    fn deref(&self) -> &rusqlite::Connection {
        &self.writer.as_ref().expect("present until committed or dropped").connection
    }
}

impl Writing {
    pub async fn commit(mut self, changed: &[&'static str], relations: Vec<Change>) -> Result<()> {
        let on_disk = {
            let writer = self.writer.as_mut().expect("present until committed or dropped");
            if writer.notice_lost_batch() {
                return Err(Error::unavailable("the disk refused an earlier statement"));
            }
            // Should this fail, the writer is still ours, and dropping it rolls back.
            writer.connection.prepare_cached("RELEASE logical")?.execute([])?;
            let mut writer = self.writer.take().expect("present, as above");
            let (sender, receiver) = oneshot::channel();
            writer.waiting.push(sender);
            writer.changed.extend(changed);
            writer.relations.extend(relations);
            receiver
        };
        self.committer.wake.notify_one();
        on_disk.await.map_err(|_| Error::unavailable("the store was closed during the commit"))?
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        if !writer.notice_lost_batch()
            && writer.connection.execute_batch("ROLLBACK TO logical; RELEASE logical").is_err()
        {
            writer.lose_batch();
        }
        drop(writer);
        // The physical transaction may hold the work of others, and it holds the write lock: see to its end.
        self.committer.wake.notify_one();
    }
}

impl Writer {
    /// SQLite ends the whole transaction by itself when the disk is full or fails; those who wait for it must know.
    fn notice_lost_batch(&mut self) -> bool {
        let lost = self.begun && self.connection.is_autocommit();
        if lost {
            self.lose_batch();
        }
        lost
    }

    fn lose_batch(&mut self) {
        if !self.connection.is_autocommit() {
            // Its own failure changes nothing: what was not committed is gone when the file is opened next.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.begun = false;
        self.changed.clear();
        self.relations.clear();
        for waiter in self.waiting.drain(..) {
            let _ = waiter.send(Err(Error::unavailable("the disk refused a statement of the same commit")));
        }
    }

    fn commit_batch(&mut self) {
        if self.notice_lost_batch() || !self.begun {
            return;
        }
        let outcome =
            self.connection.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
        if let Err(error) = outcome {
            tracing::error!(%error, transactions = self.waiting.len(), "a commit failed; nothing of it was kept");
            self.lose_batch();
            return;
        }
        self.begun = false;
        // Here and not by whoever waits, who may have gone: what is committed is told.
        let mut changed: Vec<&str> = self.changed.drain(..).collect();
        changed.sort_unstable();
        changed.dedup();
        for table in &changed {
            self.memory.forget(table);
        }
        if let Some(tell) = self.told.get().filter(|_| !self.relations.is_empty()) {
            tell(&self.relations);
        }
        self.relations.clear();
        if !changed.is_empty() {
            self.changes.tell(Changed::Tables(changed.into_iter().map(str::to_owned).collect()));
        }
        if !self.waiting.is_empty() {
            metrics::counter!("paddock_store_commits_total").increment(1);
            metrics::counter!("paddock_store_transactions_total").increment(self.waiting.len() as u64);
        }
        for waiter in self.waiting.drain(..) {
            let _ = waiter.send(Ok(()));
        }
    }
}

async fn commit_batches(writer: Arc<tokio::sync::Mutex<Writer>>, wake: Arc<Notify>) {
    loop {
        wake.notified().await;
        let mut batch = writer.clone().lock_owned().await;
        if tokio::task::spawn_blocking(move || batch.commit_batch()).await.is_err() {
            writer.lock().await.lose_batch();
        }
    }
}

pub(crate) fn rows<T: FromRow>(
    connection: &rusqlite::Connection,
    sql: &str,
    args: &[Value<'_>],
) -> Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, args)?;
    let mut found = statement.raw_query();
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(T::from_row(&mut Row::sqlite(row))?);
    }
    Ok(rows)
}

pub(crate) fn execute(connection: &rusqlite::Connection, sql: &str, args: &[Value<'_>]) -> Result<u64> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, args)?;
    Ok(statement.raw_execute()? as u64)
}

/// To SQLite `$2` is a name, numbered by where it first stands; to PostgreSQL it is the second argument. We mean that.
fn bind(statement: &mut rusqlite::Statement<'_>, args: &[Value<'_>]) -> Result<()> {
    for place in 1..=statement.parameter_count() {
        let name = statement.parameter_name(place).unwrap_or_default();
        let number: Option<usize> = name.strip_prefix('$').and_then(|digits| digits.parse().ok());
        let value = number.and_then(|number| args.get(number.checked_sub(1)?));
        let value = value.ok_or_else(|| Error::unexpected(format!("no argument for {name}")))?;
        statement.raw_bind_parameter(place, value)?;
    }
    Ok(())
}
