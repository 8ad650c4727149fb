//! Where a repository's objects lie: a folder on this machine, or anything else that keeps bytes under names.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use paddock_model::drivers::{DriverError, DriverResult, Retry};

use crate::durable::{self, io_error, sync_folder};

/// Bytes under names such as `data/3f/3f…`. Its verbs wait: they are for threads that may. What `put` has returned
/// survives a power cut.
pub trait Objects: Send + Sync {
    /// Everything below a folder, by its full name, with its length.
    fn list(&self, folder: &str) -> DriverResult<Vec<(String, u64)>>;

    fn get(&self, name: &str) -> DriverResult<Vec<u8>>;

    /// Exactly these bytes, or an error.
    fn get_range(&self, name: &str, range: Range<u64>) -> DriverResult<Vec<u8>>;

    /// Replaces what was there.
    fn put(&self, name: &str, bytes: Vec<u8>) -> DriverResult<()>;

    /// False if there was something already, which stays.
    fn put_new(&self, name: &str, bytes: Vec<u8>) -> DriverResult<bool>;

    fn remove(&self, name: &str) -> DriverResult<()>;

    /// For people.
    fn location(&self) -> String;
}

pub fn missing(name: &str) -> DriverError {
    DriverError::new(Retry::Never, "object_missing", format!("{name} is not in the repository"))
}

pub struct Folder {
    folder: PathBuf,
    prepared: AtomicU64,
}

impl Folder {
    pub fn new(folder: PathBuf) -> Folder {
        Folder { folder, prepared: AtomicU64::new(0) }
    }

    fn prepare(&self, name: &str, bytes: &[u8]) -> io::Result<(PathBuf, PathBuf)> {
        let path = self.folder.join(name);
        let folder = path.parent().unwrap_or(&self.folder).to_owned();
        if !folder.is_dir() {
            durable::make_folder(&folder)?;
        }
        // At the top, where tools that read the repository do not look.
        let number = self.prepared.fetch_add(1, Ordering::Relaxed);
        let prepared = self.folder.join(format!(".{}-{number}.tmp", std::process::id()));
        let write = || {
            let _ = fs::remove_file(&prepared);
            let file = File::options().write(true).create_new(true).mode(0o600).open(&prepared)?;
            file.write_all_at(bytes, 0)?;
            file.sync_all()
        };
        write().inspect_err(|_| drop(fs::remove_file(&prepared)))?;
        Ok((prepared, path))
    }
}

fn failed(name: &str) -> impl Fn(io::Error) -> DriverError + '_ {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => missing(name).with_cause(error),
        io::ErrorKind::UnexpectedEof => {
            DriverError::new(Retry::Never, "object_damaged", format!("{name} has been cut off"))
                .with_cause(error)
        }
        _ => io_error(&format!("reach {name} of the repository"), error),
    }
}

impl Objects for Folder {
    fn list(&self, folder: &str) -> DriverResult<Vec<(String, u64)>> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.folder.join(&folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&folder)(error)),
            };
            for entry in entries {
                let entry = entry.map_err(failed(&folder))?;
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                let facts = match entry.metadata() {
                    Ok(facts) => facts,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(failed(&name)(error)),
                };
                if facts.is_dir() {
                    folders.push(name);
                } else {
                    found.push((name, facts.len()));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn get(&self, name: &str) -> DriverResult<Vec<u8>> {
        fs::read(self.folder.join(name)).map_err(failed(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> DriverResult<Vec<u8>> {
        let read = || {
            let file = File::open(self.folder.join(name))?;
            let length = range.end.saturating_sub(range.start);
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, range.start).map(|()| bytes)
        };
        read().map_err(failed(name))
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> DriverResult<()> {
        let put = || {
            let (prepared, path) = self.prepare(name, &bytes)?;
            fs::rename(prepared, &path)?;
            sync_folder(path.parent().unwrap_or(&self.folder))
        };
        put().map_err(failed(name))
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> DriverResult<bool> {
        let put = || {
            let (prepared, path) = self.prepare(name, &bytes)?;
            let linked = fs::hard_link(&prepared, &path);
            fs::remove_file(&prepared)?;
            match linked {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                linked => {
                    linked.and_then(|()| sync_folder(path.parent().unwrap_or(&self.folder))).map(|()| true)
                }
            }
        };
        put().map_err(failed(name))
    }

    fn remove(&self, name: &str) -> DriverResult<()> {
        durable::remove(&self.folder.join(name)).map_err(failed(name))
    }

    fn location(&self) -> String {
        self.folder.display().to_string()
    }
}
