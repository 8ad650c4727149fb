//! The door to where backups are kept: what disks held, in pieces that are stored once however many backups need them.
//!
//! Each tenant has a repository of its own, with a key of its own. Every verb may be asked for again after a kill.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::io::AsyncRead;

use super::disk_pools::DiskContent;
use super::{DriverError, DriverResult, Retry};
use crate::Timestamp;
use crate::layers::LayerId;
use crate::tenants::TenantId;

/// How far a long act has come, and whether anybody still wants it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    pub fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whoever is at work stops at the next piece.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// An error if nobody wants it any more.
    pub fn go_on(&self) -> DriverResult<()> {
        if self.is_cancelled() {
            return Err(DriverError::new(Retry::Soon, "cancelled", "nobody wants it any more"));
        }
        Ok(())
    }
}

/// A backup that is wanted.
#[derive(Debug, Clone)]
pub struct BackupOrder {
    pub tenant: TenantId,
    /// A name that no other backup has; what was stored under it before is found again.
    pub name: String,
    /// What is written beside the disk, for whoever has nothing but the repository.
    pub about: serde_json::Value,
    /// Backups that are known to hold a layer's content. Of what stands on one of them only the difference is read.
    pub known: Vec<KnownContent>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownContent {
    pub layer: LayerId,
    /// As `StoredBackup::id`.
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBackup {
    /// The repository's own name for it.
    pub id: String,
    /// Over the whole content of the disk.
    pub checksum: String,
    pub bytes: u64,
    /// What it took in the repository beyond what was there.
    pub added_bytes: u64,
}

/// A backup's disk on its way out: all of it as it was, or an error.
pub struct Fetched {
    pub bytes: u64,
    pub content: Box<dyn AsyncRead + Send + Unpin>,
    pub failure: Failure,
}

/// Why a stream ended early, for whoever has read it.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<DriverError>>>);

impl Failure {
    pub fn set(&self, error: DriverError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub fn take(&self) -> Option<DriverError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[async_trait]
pub trait BackupRepositories: Send + Sync + 'static {
    /// Where a tenant's repository is, for people and for tools that read it.
    fn location(&self, tenant: TenantId) -> String;

    /// Stores what a disk holds.
    async fn store(
        &self,
        order: &BackupOrder,
        content: Box<dyn DiskContent>,
        progress: Arc<Progress>,
    ) -> DriverResult<StoredBackup>;

    /// Reads a backup, which must have this checksum.
    async fn fetch(
        &self,
        tenant: TenantId,
        id: &str,
        checksum: &str,
        progress: Arc<Progress>,
    ) -> DriverResult<Fetched>;

    /// Forgets what was stored under a name; its pieces go with the next prune. Where something is known to be stored and the
    /// repository is not there, it has to come back first.
    async fn forget(&self, tenant: TenantId, name: &str, stored: bool) -> DriverResult<()>;

    /// Removes what no backup needs, and says how many bytes that gave back. Refused while somebody else is at work in it.
    async fn prune(&self, tenant: TenantId) -> DriverResult<u64>;

    /// The names of all backups that a repository holds.
    async fn list(&self, tenant: TenantId) -> DriverResult<Vec<String>>;
}
