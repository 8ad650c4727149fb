//! What Paddock does: use-cases, one file a noun; permissions; and the loops that make the world match.
//!
//! A use-case reads: open, find, permit, decide, record, commit. It never waits for a machine.

pub mod admins;
pub mod api_keys;
pub mod audit;
pub mod devices;
pub mod emulators;
pub mod grants;
pub mod groups;
pub mod idempotency_keys;
pub mod invitations;
pub mod members;
pub mod passwords;
pub mod permissions;
pub mod reconcile;
pub mod signing_keys;
pub mod snapshots;
pub mod tenants;
pub mod users;

use std::sync::Arc;

use paddock_model::ports::{Clock, Random};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Store, Tx};

use crate::devices::Devices;
use crate::permissions::Permissions;

pub use paddock_store::Location as DatabaseLocation;

/// The use-cases' common ground: where things are kept, what time it is, where randomness comes from.
#[derive(Clone)]
pub struct Engine {
    store: Store,
    permissions: Arc<Permissions>,
    /// None for a process that only looks at the database.
    devices: Option<Arc<Devices>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
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
        Ok(Engine { store, permissions, devices, clock, random })
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
