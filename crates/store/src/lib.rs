//! All SQL of Paddock: one text for SQLite and PostgreSQL, one file a noun.
//!
//! [`Store::read`] gives a [`Tx`] for looking, [`Store::begin`] one for changing. A commit that returns is on disk.

pub mod backups;
pub mod captures;
mod changes;
mod error;
mod memory;
mod migrations;
mod postgres;
mod row;
mod select;
mod sqlite;
#[cfg(test)]
mod tests;
mod tx;
mod value;

pub mod api_keys;
pub mod audit;
pub mod authorizations;
pub mod consolidations;
pub mod device_authorizations;
pub mod disks;
pub mod emulators;
pub mod groups;
pub mod idempotency_keys;
pub mod invitations;
pub mod layers;
pub mod leases;
pub mod logs;
pub mod relations;
pub mod restore_points;
pub mod restores;
pub mod retention;
pub mod retention_policies;
pub mod sessions;
pub mod sign_in_failures;
pub mod signing_keys;
pub mod slots;
pub mod snapshot_children;
pub mod snapshots;
pub mod templates;
pub mod tenant_usage;
pub mod tenants;
pub mod tickets;
pub mod tokens;
pub mod users;
pub mod vehicle_states;
pub mod verifications;

use std::path::PathBuf;
use std::sync::Arc;

pub use changes::{Changed, Watch};
pub use error::Error;
pub use tx::Tx;

use changes::Changes;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which database, and where.
#[derive(Clone)]
pub enum Location {
    Sqlite(PathBuf),
    /// The URL may hold a password; never print it.
    Postgres {
        url: String,
        connections: usize,
    },
}

#[derive(Clone)]
pub struct Store {
    database: Database,
    changes: Arc<Changes>,
}

#[derive(Clone)]
enum Database {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

impl Store {
    /// Opens the database, makes it if it is not there, and brings its tables up to date.
    pub async fn open(location: &Location) -> Result<Store> {
        let store = Store::connect(location).await?;
        migrations::apply(&store).await?;
        Ok(store)
    }

    /// Opens a database that another process has made, and leaves its tables as they are.
    pub async fn join(location: &Location) -> Result<Store> {
        let store = Store::connect(location).await?;
        if migrations::is_current(&store).await? { Ok(store) } else { Err(Error::Older) }
    }

    async fn connect(location: &Location) -> Result<Store> {
        let changes = Arc::new(Changes::default());
        let database = match location {
            Location::Sqlite(path) => Database::Sqlite(sqlite::Sqlite::open(path, &changes)?),
            Location::Postgres { url, connections } => {
                Database::Postgres(postgres::Postgres::open(url, *connections, &changes).await?)
            }
        };
        Ok(Store { database, changes })
    }

    /// For looking: each statement sees the newest committed state.
    pub async fn read(&self) -> Result<Tx> {
        match &self.database {
            Database::Sqlite(sqlite) => Ok(Tx::sqlite_read(sqlite)),
            Database::Postgres(postgres) => Ok(Tx::postgres(postgres.connection().await?, &self.changes)),
        }
    }

    /// For changing: nothing of it is seen by others before the commit, and nothing of it stays without one.
    pub async fn begin(&self) -> Result<Tx> {
        match &self.database {
            Database::Sqlite(sqlite) => Ok(Tx::sqlite_write(sqlite.begin().await?)),
            Database::Postgres(postgres) => Ok(Tx::postgres(postgres.begin().await?, &self.changes)),
        }
    }

    /// Tells when one of these tables has changed, by this process or (PostgreSQL) by another.
    pub fn watch(&self, tables: &'static [&'static str]) -> Watch {
        self.changes.watch(tables)
    }

    /// Another number whenever one of these tables has changed: at once when this process has committed, and as soon as it is
    /// heard of when another has. What was read after a number was asked for holds for as long as the number stays.
    pub fn revision(&self, tables: &[&str]) -> u64 {
        self.changes.revision(tables)
    }

    /// Has every change of a relation told, in order, before its commit is acknowledged. Only where this process has the
    /// database to itself; elsewhere, watch the table and read [`relations::changes_since`].
    pub fn tell_relations(&self, tell: impl Fn(&[relations::Change]) + Send + Sync + 'static) {
        if let Database::Sqlite(sqlite) = &self.database {
            sqlite.tell_relations(Box::new(tell));
        }
    }

    /// Whether other processes may use this database at the same time.
    pub fn is_shared(&self) -> bool {
        matches!(self.database, Database::Postgres(_))
    }

    /// Answers when the database does.
    pub async fn ping(&self) -> Result<()> {
        // A table, not a constant: SQLite would answer that without its file.
        self.read()
            .await?
            .row::<(i64,)>("SELECT version FROM migrations WHERE version = 1", &[])
            .await
            .map(drop)
    }
}
