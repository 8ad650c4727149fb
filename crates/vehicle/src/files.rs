//! Files that survive a power cut, and errors of files as the model tells them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use paddock_model::drivers::{DriverError, DriverResult, Retry};

/// Replaces a file; a reader finds the old bytes or the new ones, also after a power cut.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, true)
}

/// Replaces a file that nobody needs after a power cut.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, false)
}

fn put(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let prepared = path.with_file_name(format!(".{name}.tmp"));
    let write = || {
        let _ = fs::remove_file(&prepared);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&prepared)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&prepared, path)?;
        if durable { sync_folder(path.parent().unwrap_or(Path::new("/"))) } else { Ok(()) }
    };
    write().inspect_err(|_| drop(fs::remove_file(&prepared)))
}

pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes a folder for its owner alone; one that is there is kept.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    sync_folder(folder.parent().unwrap_or(Path::new("/")))
}

/// Removes a file; one that is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Says of a failed act with files when another try may help.
pub fn io_error(what: &str, error: io::Error) -> DriverError {
    let (retry, code, advice) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (Retry::Later, "no_space", "there is no room left")
        }
        io::ErrorKind::NotFound => (Retry::Later, "file_missing", "a file is missing"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (Retry::Later, "permission_denied", "the system does not allow it")
        }
        _ => (Retry::Soon, "io_error", "the system reports an error"),
    };
    DriverError::new(retry, code, format!("could not {what}: {advice}")).with_cause(error)
}

/// Runs work with files where waiting does no harm.
pub async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> DriverResult<T> + Send + 'static,
) -> DriverResult<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(DriverError::new(Retry::Soon, "internal", "the work was broken off").with_cause(error))
    })
}
