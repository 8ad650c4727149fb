//! Holding the disk still while it is captured, never for longer than was agreed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{kernel, processes};

/// The longest time a host may ask for.
pub const LONGEST: Duration = Duration::from_secs(60);

pub struct Freezer {
    root: PathBuf,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    frozen: Option<Frozen>,
    /// How often the watchdog had to help.
    expired: u64,
}

struct Frozen {
    /// Nothing to thaw where the agent is an ordinary process.
    folder: Option<File>,
    /// Whether all other processes stand still, too.
    processes: bool,
    until: Instant,
}

impl Frozen {
    fn thaw(self) {
        if let Some(folder) = self.folder {
            let _ = kernel::thaw(&folder);
        }
        if self.processes {
            processes::release();
        }
    }
}

impl Freezer {
    pub fn new(root: &Path) -> Freezer {
        // An agent that failed while it held the disk has left nobody to thaw it.
        if root == Path::new("/")
            && let Ok(folder) = File::open(root)
        {
            let _ = kernel::thaw(&folder);
            processes::release();
        }
        Freezer { root: root.to_owned(), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_frozen(&self) -> bool {
        self.lock().frozen.is_some()
    }

    /// How often a freeze was ended by the watchdog since the start.
    pub fn expired(&self) -> u64 {
        self.lock().expired
    }

    /// Writes everything to the disk and holds it still until `thaw`, at most for this long; all other processes too, if they are
    /// to be found again in a clone. `expired` is called when nobody thawed in time.
    pub fn freeze(
        &self,
        at_most: Duration,
        processes: bool,
        expired: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let mut state = self.lock();
        if state.frozen.is_some() {
            bail!("already frozen");
        }
        let is_machine = self.root == Path::new("/");
        let processes = processes && is_machine;
        // Before the disk: one that waits for the disk could not be held any more.
        if processes && let Err(error) = processes::hold() {
            processes::release();
            return Err(error).context("hold the other processes");
        }
        let folder = if is_machine {
            let frozen = File::open(&self.root).context("open the root").and_then(|folder| {
                rustix::fs::sync();
                kernel::freeze(&folder).context("freeze the root")?;
                Ok(folder)
            });
            Some(frozen.inspect_err(|_| processes::release())?)
        } else {
            None
        };
        state.frozen = Some(Frozen { folder, processes, until: Instant::now() + at_most.min(LONGEST) });
        drop(state);
        let shared = self.state.clone();
        let watchdog = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            if watch(&shared) {
                expired();
            }
        });
        if let Err(error) = watchdog {
            self.thaw();
            return Err(error).context("start the watchdog");
        }
        Ok(())
    }

    /// Lets writes go on, and nobody run yet: there is more to be said first.
    pub fn thaw_disk(&self) {
        if let Some(frozen) = &mut self.lock().frozen
            && let Some(folder) = frozen.folder.take()
        {
            let _ = kernel::thaw(&folder);
        }
    }

    /// Lets writes go on; says whether there was anything to thaw.
    pub fn thaw(&self) -> bool {
        let frozen = self.lock().frozen.take();
        self.state.1.notify_all();
        let was_frozen = frozen.is_some();
        if let Some(frozen) = frozen {
            frozen.thaw();
        }
        was_frozen
    }
}

/// Waits for the thaw or the end of the time; says whether it had to thaw itself.
fn watch((state, changed): &(Mutex<State>, Condvar)) -> bool {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(frozen) = &state.frozen else {
            return false;
        };
        let left = frozen.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if let Some(frozen) = state.frozen.take() {
                frozen.thaw();
            }
            state.expired += 1;
            return true;
        }
        state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::Freezer;

    #[test]
    fn the_watchdog_thaws_what_nobody_else_does() {
        let freezer = Freezer::new(Path::new("/nowhere"));
        let (sender, expired) = channel();

        freezer
            .freeze(Duration::from_millis(20), false, move || sender.send(()).expect("a listener"))
            .expect("frozen");

        expired.recv_timeout(Duration::from_secs(5)).expect("the watchdog");
        assert!(!freezer.is_frozen());
        assert_eq!(freezer.expired(), 1);
    }

    #[test]
    fn who_thaws_in_time_never_meets_the_watchdog() {
        let freezer = Freezer::new(Path::new("/nowhere"));
        freezer.freeze(Duration::from_secs(60), false, || ()).expect("frozen");
        assert!(freezer.freeze(Duration::from_secs(1), false, || ()).is_err());

        assert!(freezer.thaw());

        assert!(!freezer.thaw());
        assert_eq!(freezer.expired(), 0);
    }
}
