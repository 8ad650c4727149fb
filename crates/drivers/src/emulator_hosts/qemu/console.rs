//! The console's log: what the device writes to its serial port, kept within bounds.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// How much of a console is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// A file that has become longer is put aside.
    pub file_bytes: u64,
    /// How many are kept besides the one that is written.
    pub files: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        LogLimits { file_bytes: 4 << 20, files: 3 }
    }
}

fn aside(path: &Path, number: usize) -> PathBuf {
    path.with_added_extension(number.to_string())
}

/// Puts the log aside if it has become too long.
///
/// QEMU keeps the file open and appends, so the file is copied and emptied. What it writes in between, a moment, is lost.
pub fn rotate(path: &Path, limits: LogLimits) -> io::Result<()> {
    let length = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts?.len(),
    };
    if length <= limits.file_bytes {
        return Ok(());
    }
    for number in (1..limits.files).rev() {
        if aside(path, number).exists() {
            fs::rename(aside(path, number), aside(path, number + 1))?;
        }
    }
    if limits.files > 0 {
        fs::copy(path, aside(path, 1))?;
    }
    File::options().write(true).open(path)?.set_len(0)
}

/// The last lines of a file, for a message.
pub fn last_words(path: &Path) -> Option<String> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(2048);
    let mut bytes = vec![0; usize::try_from(length - start).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_so_many_files_are_kept_and_the_writer_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("console.log");
        let limits = LogLimits { file_bytes: 3, files: 2 };
        rotate(&path, limits).expect("nothing to do");
        let mut writer = File::options().append(true).create(true).open(&path).expect("a file");
        for text in ["one.", "two.", "three", "end"] {
            writer.write_all(text.as_bytes()).expect("written");
            rotate(&path, limits).expect("rotated");
        }

        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        assert_eq!(read(&path), "end");
        assert_eq!(read(&aside(&path, 1)), "three");
        assert_eq!(read(&aside(&path, 2)), "two.");
        assert!(!aside(&path, 3).exists());
    }
}
