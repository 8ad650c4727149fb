//! Bytes that somebody sends: written where only this process looks, summed up on the way, and gone if they are given up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use crate::durable;

/// Smaller holes are not worth having.
const BLOCK: usize = 64 << 10;

pub struct Arrival {
    file: File,
    prepared: Prepared,
    length: u64,
    context: Context,
}

/// A file that is removed with this, unless it has got another name.
pub(super) struct Prepared(pub PathBuf);

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Arrival {
    pub fn at(path: PathBuf) -> io::Result<Arrival> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Arrival { file, prepared: Prepared(path), length: 0, context: Context::new(&SHA256) })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Zeros get no room.
    pub fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.context.update(piece);
        for block in piece.chunks(BLOCK) {
            if block.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(block, self.length)?;
            }
            self.length += block.len() as u64;
        }
        Ok(())
    }

    /// Everything has come, and survives a power cut.
    pub fn finish(self) -> io::Result<Whole> {
        self.file.set_len(self.length)?;
        self.file.sync_all()?;
        Ok(Whole { prepared: self.prepared, digest: durable::hex(self.context.finish().as_ref()) })
    }
}

/// An arrival of which nothing is missing.
pub struct Whole {
    prepared: Prepared,
    pub digest: String,
}

impl Whole {
    pub fn keep_as(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.prepared.0, path)
    }
}
