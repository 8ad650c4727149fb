//! Bytes that somebody sends: written where only this process looks, summed up on the way, and gone if they are given up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paddock_model::drivers::DriverResult;
use ring::digest::{Context, SHA256};
use tokio::task::JoinHandle;

use crate::durable::{self, io_error, on_a_thread};

/// Smaller holes are not worth having.
const BLOCK: usize = 64 << 10;
const ZEROS: &[u8] = &[0; BLOCK];
/// After so much the disk is told to take what there is, so that in the end there is little to wait for.
const FLUSHED: u64 = 64 << 20;

pub struct Arrival {
    name: String,
    file: Arc<File>,
    prepared: Prepared,
    length: u64,
    context: Context,
    unflushed: u64,
    flushing: Option<JoinHandle<io::Result<()>>>,
}

/// A file that is removed with this, unless it has got another name.
pub(super) struct Prepared(pub PathBuf);

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Arrival {
    pub fn at(path: PathBuf, name: String) -> io::Result<Arrival> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Arrival {
            name,
            file: Arc::new(file),
            prepared: Prepared(path),
            length: 0,
            context: Context::new(&SHA256),
            unflushed: 0,
            flushing: None,
        })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Takes a piece, and gives its room back. It is summed up and written at the same time.
    pub async fn add(&mut self, piece: Vec<u8>) -> DriverResult<Vec<u8>> {
        let piece = Arc::new(piece);
        let (summed, written) = (piece.clone(), piece.clone());
        // A clone of a context is a few words.
        let mut context = self.context.clone();
        let sum = on_a_thread(move || {
            context.update(&summed);
            Ok(context)
        });
        let (file, at, failed) = (self.file.clone(), self.length, self.failed());
        let write = on_a_thread(move || write_sparsely(&file, &written, at).map_err(failed));
        let (context, written) = tokio::try_join!(sum, write)?;
        self.context = context;
        self.length += piece.len() as u64;
        self.unflushed += written;
        if self.unflushed >= FLUSHED && self.flushing.as_ref().is_none_or(JoinHandle::is_finished) {
            self.flushed().await?;
            let file = self.file.clone();
            self.unflushed = 0;
            self.flushing = Some(tokio::task::spawn_blocking(move || file.sync_data()));
        }
        Ok(Arc::try_unwrap(piece).unwrap_or_default())
    }

    fn failed(&self) -> impl Fn(io::Error) -> paddock_model::drivers::DriverError + Send + 'static {
        let what = format!("take the bytes of {}", self.name);
        move |error| io_error(&what, error)
    }

    /// An error that a flush has met is told once, and not to the next one.
    async fn flushed(&mut self) -> DriverResult<()> {
        let Some(flushing) = self.flushing.take() else { return Ok(()) };
        flushing.await.map_err(io::Error::other).and_then(|done| done).map_err(self.failed())
    }

    /// Everything has come, and survives a power cut.
    pub async fn finish(mut self) -> DriverResult<Whole> {
        self.flushed().await?;
        let failed = self.failed();
        on_a_thread(move || {
            self.file.set_len(self.length).and_then(|()| self.file.sync_all()).map_err(failed)?;
            Ok(Whole { prepared: self.prepared, digest: durable::hex(self.context.finish().as_ref()) })
        })
        .await
    }
}

/// Zeros get no room. Says how much was written.
fn write_sparsely(file: &File, piece: &[u8], at: u64) -> io::Result<u64> {
    let is_zero = |block: &[u8]| block == &ZEROS[..block.len()];
    let mut written = 0;
    let mut begin = 0;
    while begin < piece.len() {
        let blocks = piece[begin..].chunks(BLOCK);
        let data: usize = blocks.clone().take_while(|block| !is_zero(block)).map(<[u8]>::len).sum();
        if data == 0 {
            begin += blocks.take_while(|block| is_zero(block)).map(<[u8]>::len).sum::<usize>();
            continue;
        }
        file.write_all_at(&piece[begin..begin + data], at + begin as u64)?;
        written += data as u64;
        begin += data;
    }
    Ok(written)
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
