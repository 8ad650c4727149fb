//! Files that outlive a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file anew so that a crash leaves either the old or the new one.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(new, path)
}
