//! Files that survive a power cut: written beside their place, flushed, and put there in one step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use paddock_model::drivers::{DriverError, DriverResult, Retry};
use ring::digest::{Context, SHA256};

/// Flushes what was made, renamed or removed in a folder.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The name under which a file is prepared; nobody but this process makes such names.
pub fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Replaces a file; a reader finds the old text or the new one, also after a power cut.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    prepare(path, bytes, mode, File::sync_all)?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// Replaces a file that nobody needs after a power cut; a reader finds the old text or the new one, also after a kill -9.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    prepare(path, bytes, mode, |_| Ok(()))
}

fn prepare(path: &Path, bytes: &[u8], mode: u32, flush: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let prepared = beside(path);
    let write = || {
        let _ = fs::remove_file(&prepared);
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&prepared)?;
        file.write_all(bytes)?;
        flush(&file)?;
        fs::rename(&prepared, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&prepared)))
}

/// Makes a folder; one that is already there is kept.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    // For its owner alone: disks and identities are nobody else's.
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(parent) = folder.parent().filter(|parent| !parent.exists()) else { return Err(error) };
            make_folder(parent)?;
            make_folder(folder)
        }
        made => made.and_then(|()| sync_folder(folder.parent().unwrap_or(Path::new("/")))),
    }
}

/// Removes a file; one that is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 over everything that is read.
pub fn digest(mut from: impl io::Read) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hex(context.finish().as_ref())),
            length => context.update(&buffer[..length]),
        }
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
