//! What Paddock does: use-cases, one file a noun; permissions; and the loops that make the world match.
//!
//! A use-case reads: open, find, permit, decide, record, commit. It never waits for a machine.

pub mod admins;
pub mod api_keys;
pub mod audit;
pub mod authorizations;
pub mod backups;
pub mod captures;
pub mod ci;
pub mod device_authorizations;
pub mod devices;
pub mod doctor;
pub mod emulators;
pub mod feeds;
pub mod grants;
pub mod groups;
pub mod idempotency_keys;
pub mod imports;
pub mod invitations;
pub mod logs;
pub mod members;
pub mod passwords;
pub mod permissions;
pub mod reconcile;
mod restore_points;
pub mod restores;
mod retention;
pub mod retention_policies;
mod secrets;
pub mod sessions;
pub mod signing_keys;
pub mod snapshots;
pub mod streams;
pub(crate) mod templates;
pub mod tenants;
pub mod tickets;
pub mod tokens;
mod trees;
pub mod usage;
pub mod users;
pub mod vault;
pub mod vehicles;

use std::sync::Arc;
use std::time::Duration;

use paddock_model::lifetimes::Lifetimes;
use paddock_model::ports::{Clock, Random};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Store, Tx, relations};

use crate::devices::Devices;
use crate::permissions::Permissions;
use crate::streams::Streams;
use crate::trees::Trees;
use crate::vault::Vault;

pub use paddock_store::Location as DatabaseLocation;
pub use secrets::Secret;

/// The use-cases' common ground: where things are kept, what time it is, where randomness comes from.
#[derive(Clone)]
pub struct Engine {
    store: Store,
    permissions: Arc<Permissions>,
    /// None for a process that only looks at the database.
    devices: Option<Arc<Devices>>,
    streams: Arc<Streams>,
    trees: Arc<Trees>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    lifetimes: Lifetimes,
}

/// The database cannot be opened; the words say why and what to do.
#[derive(Debug)]
pub struct CannotOpen(paddock_store::Error);

impl std::fmt::Display for CannotOpen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for CannotOpen {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

impl Engine {
    pub async fn open(
        location: &DatabaseLocation,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        devices: Option<Arc<Devices>>,
    ) -> Result<Engine, CannotOpen> {
        Engine::on(Store::open(location).await.map_err(CannotOpen)?, clock, random, devices).await
    }

    /// Opens a database that a server has made, as it is.
    pub async fn join(
        location: &DatabaseLocation,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Engine, CannotOpen> {
        Engine::on(Store::join(location).await.map_err(CannotOpen)?, clock, random, None).await
    }

    async fn on(
        store: Store,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        devices: Option<Arc<Devices>>,
    ) -> Result<Engine, CannotOpen> {
        let permissions = Permissions::load(&store).await.map_err(CannotOpen)?;
        Ok(Engine {
            store,
            permissions,
            devices,
            streams: Arc::default(),
            trees: Arc::default(),
            clock,
            random,
            lifetimes: Lifetimes::default(),
        })
    }

    /// The same engine, where what a sign-in gives lives as long as this says.
    #[must_use]
    pub fn with_lifetimes(mut self, lifetimes: Lifetimes) -> Engine {
        self.lifetimes = lifetimes;
        self
    }

    /// A transaction that changes relations: it holds them before any row, as all others do, and decides on the newest.
    pub(crate) async fn begin_relations(&self) -> Result<Tx> {
        /// After so many, what is in memory must do: it is behind by commits that are under way.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let mut tx = self.store.begin().await?;
            relations::hold(&mut tx).await?;
            if self.permissions.catch_up(&mut tx).await? {
                return Ok(tx);
            }
            // What was written before waits for the disk, and that waits for the writer.
            drop(tx);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut tx = self.store.begin().await?;
        relations::hold(&mut tx).await?;
        Ok(tx)
    }

    /// Commits; whoever is told of it finds permissions as they are now.
    pub(crate) async fn commit(&self, tx: Tx) -> Result<()> {
        let revision = tx.relation_revision();
        tx.commit().await?;
        match revision {
            Some(revision) => Ok(self.permissions.reach(revision).await?),
            None => Ok(()),
        }
    }

    pub(crate) fn devices(&self) -> Result<&Arc<Devices>> {
        self.devices.as_ref().ok_or_else(|| Error::internal("this process has no devices"))
    }

    /// Where backups are kept.
    pub(crate) fn vault(&self) -> Result<&Arc<Vault>> {
        let vault = self.devices()?.vault.as_ref();
        vault.ok_or_else(|| Error::internal("this process keeps no backups"))
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<()> {
        Ok(self.store.ping().await?)
    }
}
