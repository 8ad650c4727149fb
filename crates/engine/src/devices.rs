//! What devices run on: a host, a pool of disks, journals, and their limits.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use paddock_model::Timestamp;
use paddock_model::capacity::Course;
use paddock_model::drivers::disk_pools::{DiskPool, PoolCapacity};
use paddock_model::drivers::emulator_hosts::EmulatorHost;
use paddock_model::drivers::garages::Garage;
use paddock_model::drivers::journals::Journals;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::retention::Weights;
use paddock_store::layers::Layer;
use ring::digest::Context;

use crate::feeds::Feeds;
use crate::vault::Vault;

/// The outside world, as the engine sees it: its doors and some numbers.
pub struct Devices {
    pub host: Arc<dyn EmulatorHost>,
    pub pool: Arc<dyn DiskPool>,
    /// Where the cars of automotive devices stand.
    pub(crate) garage: Option<Arc<dyn Garage>>,
    pub(crate) feeds: Feeds,
    pub settings: Settings,
    /// As it was when it was last looked at.
    capacity: RwLock<Option<PoolCapacity>>,
    /// How it came to be so.
    course: Mutex<Course>,
    /// What each disk took when the pool was last measured.
    disk_bytes: RwLock<HashMap<DiskId, i64>>,
    /// How far the look at the stored layers has come.
    pub(crate) integrity: tokio::sync::Mutex<Verification>,
    /// What is being merged right now.
    merges: Mutex<Merges>,
    /// When the host and the catalogue were last compared as a whole.
    pub(crate) compared_at: Mutex<Option<Timestamp>>,
    /// What is being sent right now.
    arriving: Mutex<HashSet<LayerId>>,
    watched_since: OnceLock<Timestamp>,
    /// Where what disks hold is kept a second time.
    pub(crate) vault: Option<Arc<Vault>>,
}

/// The right to send a layer's bytes, which one at a time has.
pub(crate) struct Turn<'a> {
    devices: &'a Devices,
    layer: LayerId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.devices.arriving().remove(&self.layer);
    }
}

#[derive(Default)]
pub(crate) struct Verification {
    /// Whether every layer was looked at from outside.
    pub glanced: bool,
    pub reading: Option<Reading>,
    /// No faster than it may be.
    pub rests_until: Option<Timestamp>,
}

/// How consolidation fares; what is lost with the process is found out anew.
#[derive(Default)]
pub(crate) struct Merges {
    /// How much of each merged file there is.
    pub written: HashMap<LayerId, i64>,
    /// The room that they still need.
    pub reserved_bytes: i64,
    /// Those that cannot be helped now, and when to try again.
    pub put_off: HashMap<LayerId, Timestamp>,
    /// When all lineages were last looked at.
    pub looked_at: Option<Timestamp>,
    /// No faster than it may be.
    pub rests_until: Option<Timestamp>,
}

/// A layer that is being read.
pub(crate) struct Reading {
    pub layer: Layer,
    pub context: Context,
    pub at: u64,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Profiles of images that are brought in by themselves.
    pub images: Vec<PathBuf>,
    pub boot_deadline: Duration,
    /// After this long a capture that has not happened is given up.
    pub capture_deadline: Duration,
    /// How long a device may be held still while it is captured.
    pub freeze: Duration,
    /// How many clones are booted at once to prove snapshots.
    pub verifications_at_once: i64,
    /// A snapshot on more layers than this is not deployed before they are consolidated.
    pub hard_depth: i64,
    /// Lineages of more layers than this are consolidated.
    pub soft_depth: i64,
    /// How many layers are merged at once; none if 0.
    pub consolidations_at_once: usize,
    pub consolidate_bytes_per_second: u64,
    /// How long what a layer stood on stays after it has moved, for devices that are just starting.
    pub consolidation_grace: Duration,
    /// The loopback address of the first device is this one's; those before it are somebody else's.
    pub first_slot: i64,
    /// Of one tenant.
    pub quota_emulators: i64,
    pub quota_memory_bytes: i64,
    pub quota_disk_bytes: i64,
    /// Whether promoted roots are backed up without being asked for.
    pub back_up_roots: bool,
    /// How often it is measured what disks take.
    pub measure_every: Duration,
    /// How often each layer is read and held against its digest; never if not given.
    pub verify_every: Option<Duration>,
    pub verify_bytes_per_second: u64,
    /// Above this much of the pool, people are warned.
    pub warn_percent: i64,
    /// Above this much of the pool, nothing new is put into it.
    pub critical_percent: i64,
    /// Where disk images may be imported from by their path.
    pub import_folders: Vec<PathBuf>,
    /// The largest disk image that somebody may send.
    pub upload_bytes: u64,
    /// What makes a snapshot relevant.
    pub weights: Weights,
    /// Open to one caller at once.
    pub streams_per_caller: usize,
}

impl Settings {
    /// What cannot be deployed is consolidated in any case, and no lineage is shorter than an image and a layer on it.
    pub(crate) fn soft_depth(&self) -> i64 {
        self.soft_depth.min(self.hard_depth).max(2)
    }
}

impl Devices {
    pub fn new(
        host: Arc<dyn EmulatorHost>,
        pool: Arc<dyn DiskPool>,
        journals: Arc<dyn Journals>,
        settings: Settings,
    ) -> Self {
        Devices {
            host,
            pool,
            garage: None,
            feeds: Feeds::new(journals),
            settings,
            capacity: RwLock::new(None),
            course: Mutex::default(),
            disk_bytes: RwLock::default(),
            integrity: tokio::sync::Mutex::default(),
            merges: Mutex::default(),
            compared_at: Mutex::new(None),
            arriving: Mutex::default(),
            watched_since: OnceLock::new(),
            vault: None,
        }
    }

    /// The same, and automotive devices have a car.
    #[must_use]
    pub fn with_garage(mut self, garage: Arc<dyn Garage>) -> Self {
        self.garage = Some(garage);
        self
    }

    /// The same, and backups can be made.
    #[must_use]
    pub fn with_vault(mut self, vault: Vault) -> Self {
        self.vault = Some(Arc::new(vault));
        self
    }

    /// When this process first looked at the devices. Nobody saw what they did before.
    pub(crate) fn watched_since(&self, now: Timestamp) -> Timestamp {
        *self.watched_since.get_or_init(|| now)
    }

    pub(crate) fn merges(&self) -> MutexGuard<'_, Merges> {
        self.merges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None while somebody else sends them.
    pub(crate) fn take_turn(&self, layer: LayerId) -> Option<Turn<'_>> {
        let free = self.arriving().insert(layer);
        free.then(|| Turn { devices: self, layer })
    }

    fn arriving(&self) -> MutexGuard<'_, HashSet<LayerId>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_disk_bytes(&self, bytes: HashMap<DiskId, i64>) {
        *self.disk_bytes.write().unwrap_or_else(PoisonError::into_inner) = bytes;
    }

    /// As it was last measured; a disk of since then counts for nothing.
    pub(crate) fn disk_bytes(&self, disk: DiskId) -> i64 {
        let known = self.disk_bytes.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&disk).copied().unwrap_or_default()
    }

    pub(crate) fn set_capacity(&self, capacity: PoolCapacity, now: Timestamp) {
        self.course().note(now, capacity.capacity_bytes - capacity.free_bytes);
        *self.capacity.write().unwrap_or_else(PoisonError::into_inner) = Some(capacity);
    }

    pub fn capacity(&self) -> Option<PoolCapacity> {
        *self.capacity.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long until the pool is full, if it goes on as in the last hour; none while it does not fill up.
    pub(crate) fn full_in(&self) -> Option<Duration> {
        self.course().full_in(self.capacity()?.free_bytes)
    }

    /// How full the pool is, if nothing new may be put into it.
    pub(crate) fn fullness(&self) -> Option<PoolCapacity> {
        let critical = self.settings.critical_percent;
        let reserved = self.merges().reserved_bytes;
        self.capacity().filter(|capacity| {
            let taken = capacity.capacity_bytes - capacity.free_bytes + reserved;
            taken.saturating_mul(100) >= capacity.capacity_bytes.saturating_mul(critical)
        })
    }
}
