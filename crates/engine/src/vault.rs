//! The vault: the door to where backups are kept, and what is under way there in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_model::Timestamp;
use paddock_model::drivers::backup_repositories::{BackupRepositories, Progress};
use uuid::Uuid;

/// Where backups are kept, and what is under way there in this process.
pub struct Vault {
    pub(crate) repositories: Arc<dyn BackupRepositories>,
    /// So many backups and restores run at once.
    pub(crate) at_once: usize,
    jobs: Mutex<HashMap<Uuid, Job>>,
    closed: AtomicBool,
}

/// A backup, a restore or a prune that runs.
#[derive(Clone)]
pub(crate) struct Job {
    pub progress: Arc<Progress>,
    /// How far it had come when that was last looked at, and since when.
    pub seen: (u64, Timestamp),
}

impl Vault {
    pub fn new(repositories: Arc<dyn BackupRepositories>, at_once: usize) -> Vault {
        Vault { repositories, at_once, jobs: Mutex::default(), closed: AtomicBool::new(false) }
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, HashMap<Uuid, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None if it runs already, if enough others do, or if nothing new may begin.
    pub(crate) fn begin(&self, id: Uuid, now: Timestamp) -> Option<Arc<Progress>> {
        let mut jobs = self.jobs();
        if self.closed.load(Ordering::Relaxed) || jobs.contains_key(&id) || jobs.len() >= self.at_once {
            return None;
        }
        let progress = Arc::new(Progress::default());
        jobs.insert(id, Job { progress: progress.clone(), seen: (0, now) });
        Some(progress)
    }

    /// Whatever runs stops at its next piece and is begun again by the next process.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.jobs().values().for_each(|job| job.progress.cancel());
    }
}
