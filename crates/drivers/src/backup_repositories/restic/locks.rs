//! Locks as restic has them: many may add to a repository at once, one that removes from it is alone.

use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use serde::{Deserialize, Serialize};

use super::crypto::Key;
use super::{Id, Objects, read_file, seal_file};

/// A lock that nobody has renewed for so long is nobody's, as restic sees it.
const STALE: Duration = Duration::from_secs(30 * 60);
const RENEW: Duration = Duration::from_secs(5 * 60);

#[derive(Serialize, Deserialize)]
struct LockFile {
    time: String,
    exclusive: bool,
    hostname: String,
    username: String,
    pid: u32,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
}

/// The locks of this process. Where every server has the same number, as in containers, one that is not here is a dead one's.
static HELD: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<HashSet<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What cannot be removed now is nobody's from here on, and goes with the next look.
fn remove(objects: &dyn Objects, name: &str) -> DriverResult<()> {
    held().get_or_insert_default().remove(name);
    objects.remove(name)
}

/// Held until it is dropped, and renewed meanwhile.
pub struct Lock {
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Lock {
    pub fn take(objects: &Arc<dyn Objects>, key: &Key, exclusive: bool) -> DriverResult<Lock> {
        let mine = write(&**objects, key, exclusive)?;
        // Looked at once ours is there, so that of two who come at once at least one sees the other.
        let judged = others(&**objects, key, &mine, exclusive);
        if judged.is_err() || matches!(judged, Ok(true)) {
            remove(&**objects, &mine)?;
        }
        if judged? {
            let message = "somebody else is at work in the repository; it goes on when they are done";
            return Err(DriverError::new(Retry::Soon, "repository_busy", message));
        }
        let (stop, stopped) = mpsc::channel();
        let (objects, key) = (objects.clone(), key.clone());
        let keep = move || {
            let mut mine = mine;
            while stopped.recv_timeout(RENEW) == Err(RecvTimeoutError::Timeout) {
                if let Ok(next) = write(&*objects, &key, exclusive) {
                    let _ = remove(&*objects, &std::mem::replace(&mut mine, next));
                }
            }
            let _ = remove(&*objects, &mine);
        };
        Ok(Lock { stop: Some(stop), keeper: Some(std::thread::spawn(keep)) })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

fn write(objects: &dyn Objects, key: &Key, exclusive: bool) -> DriverResult<String> {
    let lock = LockFile {
        time: Timestamp::now().to_string(),
        exclusive,
        hostname: hostname(),
        username: "paddock".to_owned(),
        pid: std::process::id(),
        uid: 0,
        gid: 0,
    };
    let bytes = seal_file(key, &serde_json::to_vec(&lock).unwrap_or_default())?;
    let name = format!("locks/{}", Id::of(&bytes));
    held().get_or_insert_default().insert(name.clone());
    objects.put(&name, bytes).inspect_err(|_| {
        held().get_or_insert_default().remove(&name);
    })?;
    Ok(name)
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "paddock".to_owned(), |name| name.trim().to_owned())
}

/// Whether another's lock stands against ours. What nobody holds any more is removed.
fn others(objects: &dyn Objects, key: &Key, mine: &str, exclusive: bool) -> DriverResult<bool> {
    for (name, _) in objects.list("locks")? {
        if name == mine {
            continue;
        }
        let lock = match read_file(objects, key, &name) {
            Ok(lock) => serde_json::from_slice::<LockFile>(&lock).ok(),
            Err(error) if error.code == "object_missing" => continue,
            // Half written by somebody who is no more; as restic, we do not wait for it.
            Err(error) if error.code == "object_damaged" => None,
            Err(error) => return Err(error),
        };
        match lock {
            Some(lock) if is_held(&name, &lock) => {
                if exclusive || lock.exclusive {
                    return Ok(true);
                }
            }
            _ => objects.remove(&name)?,
        }
    }
    Ok(false)
}

fn is_held(name: &str, lock: &LockFile) -> bool {
    let taken: Option<Timestamp> = lock.time.parse().ok();
    let fresh = taken.is_some_and(|at| Timestamp::now().duration_since(at).unsigned_abs() < STALE);
    let ended = || match lock.pid == std::process::id() {
        true => !held().get_or_insert_default().contains(name),
        false => !std::path::Path::new(&format!("/proc/{}", lock.pid)).exists(),
    };
    fresh && !(lock.hostname == hostname() && ended())
}
