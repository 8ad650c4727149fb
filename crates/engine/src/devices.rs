//! What devices run on: a host, a pool of disks, journals, and their limits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use paddock_model::drivers::disk_pools::{DiskPool, PoolCapacity};
use paddock_model::drivers::emulator_hosts::EmulatorHost;
use paddock_model::drivers::journals::Journals;
use paddock_model::{Error, Result, Timestamp};

use crate::feeds::Feeds;

/// The outside world, as the engine sees it: three doors and some numbers.
pub struct Devices {
    pub host: Arc<dyn EmulatorHost>,
    pub pool: Arc<dyn DiskPool>,
    pub(crate) feeds: Feeds,
    pub settings: Settings,
    /// As it was when it was last looked at.
    capacity: RwLock<Option<PoolCapacity>>,
    /// When the host and the catalogue were last compared as a whole.
    pub(crate) compared_at: Mutex<Option<Timestamp>>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Profiles of images that are brought in by themselves.
    pub images: Vec<PathBuf>,
    pub boot_deadline: Duration,
    /// Of one tenant.
    pub quota_emulators: i64,
    pub quota_memory_bytes: i64,
    /// Above this much of the pool, nothing new is put into it.
    pub critical_percent: i64,
    /// Open to one caller at once.
    pub streams_per_caller: usize,
}

impl Devices {
    pub fn new(
        host: Arc<dyn EmulatorHost>,
        pool: Arc<dyn DiskPool>,
        journals: Arc<dyn Journals>,
        settings: Settings,
    ) -> Self {
        let feeds = Feeds::new(journals);
        Devices { host, pool, feeds, settings, capacity: RwLock::new(None), compared_at: Mutex::new(None) }
    }

    pub(crate) fn set_capacity(&self, capacity: PoolCapacity) {
        *self.capacity.write().unwrap_or_else(PoisonError::into_inner) = Some(capacity);
    }

    pub fn capacity(&self) -> Option<PoolCapacity> {
        *self.capacity.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what would fill the pool, and says what helps.
    pub(crate) fn require_room(&self) -> Result<()> {
        let Some(capacity) = self.capacity() else { return Ok(()) };
        let taken = capacity.capacity_bytes - capacity.free_bytes;
        if taken.saturating_mul(100) < capacity.capacity_bytes.saturating_mul(self.settings.critical_percent)
        {
            return Ok(());
        }
        let mebibytes = |bytes: i64| bytes / (1 << 20);
        let detail = format!(
            "The disk pool {} is full: {} MiB of {} MiB are free. Delete emulators or snapshots that nobody needs, or give it more room.",
            self.pool.name(),
            mebibytes(capacity.free_bytes),
            mebibytes(capacity.capacity_bytes),
        );
        Err(Error::unavailable("no_capacity", detail).with_retry_after(Duration::from_secs(60)))
    }
}
