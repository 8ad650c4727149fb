//! Stores a disk: reads what may be new of it, and sends what is.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use paddock_model::drivers::backup_repositories::{BackupOrder, Progress, StoredBackup};
use paddock_model::drivers::disk_pools::DiskContent;
use paddock_model::drivers::{DriverError, DriverResult, Retry};

use super::crypto::Key;
use super::pack::{Id, IndexedPack, Kind, Packer};
use super::{ABOUT, DISK, LEVEL, Node, PIECE, Repository, SnapshotFile, Tree, checksum, seal_file};

/// After so many packs an index is written, so that a kill costs no more than those.
const PACKS_AN_INDEX: usize = 32;
/// Pieces that wait for somebody to compress them.
const WAITING: usize = 32;
/// Not worth the trouble to anybody who reads it.
const SMALL_GAIN: usize = 16;
/// Each fills a pack of its own.
const MOST_WORKERS: usize = 6;

pub struct Writing<'a> {
    repository: &'a Repository,
    /// What this backup has stored, or is about to.
    claimed: Mutex<HashSet<Id>>,
    /// Packs that no index names yet.
    shipped: Mutex<Vec<IndexedPack>>,
    bytes: AtomicU64,
}

/// What one thread compresses with, and where it puts what is sealed.
struct Press {
    compressor: zstd::bulk::Compressor<'static>,
    compressed: Vec<u8>,
    packer: Packer,
}

impl Press {
    fn new(kind: Kind) -> DriverResult<Press> {
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(incompressible)?;
        Ok(Press { compressor, compressed: Vec::new(), packer: Packer::new(kind) })
    }

    fn add(&mut self, key: &Key, id: Id, plain: &[u8]) -> DriverResult<()> {
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        self.compressor.compress_to_buffer(plain, &mut self.compressed).map_err(incompressible)?;
        if self.compressed.len() + SMALL_GAIN < plain.len() {
            let uncompressed = u32::try_from(plain.len()).unwrap_or(u32::MAX);
            self.packer.seal(key, id, &self.compressed, uncompressed)
        } else {
            self.packer.seal(key, id, plain, 0)
        }
    }
}

fn incompressible(error: std::io::Error) -> DriverError {
    DriverError::new(Retry::Soon, "internal", "nothing can be compressed").with_cause(error)
}

impl<'a> Writing<'a> {
    pub fn new(repository: &'a Repository) -> Writing<'a> {
        Writing { repository, claimed: Mutex::default(), shipped: Mutex::default(), bytes: AtomicU64::new(0) }
    }

    /// What is in a pack goes on its way.
    fn ship(&self, packer: &mut Packer) -> DriverResult<()> {
        let Some((bytes, pack)) = packer.finish(&self.repository.key)? else { return Ok(()) };
        let length = bytes.len() as u64;
        self.repository.objects.put(&super::pack::object(pack.id), bytes)?;
        self.bytes.fetch_add(length, Ordering::Relaxed);
        let mut shipped = lock(&self.shipped);
        shipped.push(pack);
        let many = shipped.len() >= PACKS_AN_INDEX;
        drop(shipped);
        if many { self.record() } else { Ok(()) }
    }

    /// From now on others may rely on what was shipped.
    fn record(&self) -> DriverResult<()> {
        let packs = std::mem::take(&mut *lock(&self.shipped));
        if packs.is_empty() {
            return Ok(());
        }
        let name = self.repository.write_index(packs.clone())?;
        let mut index = self.repository.index();
        index.names.insert(name);
        packs.iter().for_each(|pack| index.add(pack));
        Ok(())
    }

    /// Stores the disk, or finds what was stored under this name before.
    pub fn store(
        &self,
        order: &BackupOrder,
        mut content: Box<dyn DiskContent>,
        progress: &Progress,
    ) -> DriverResult<StoredBackup> {
        let _lock = self.repository.lock(false)?;
        self.repository.refresh()?;
        for (id, snapshot) in self.repository.named(&order.name)? {
            if let Ok((pieces, bytes)) = self.repository.disk(snapshot.tree)
                && pieces.iter().all(|piece| self.repository.place(Kind::Data, *piece).is_some())
            {
                let checksum = checksum(&pieces, bytes);
                return Ok(StoredBackup { id: id.to_string(), checksum, bytes, added_bytes: 0 });
            }
        }
        let bytes = content.bytes();
        let (mut pieces, parent, to_read) = self.plan(order, &mut *content)?;
        progress.expect(to_read.iter().map(|number| length(*number, bytes) as u64).sum());
        let mut data = Press::new(Kind::Data)?;
        let sent = self.send(&mut data.packer, &mut *content, &to_read, &mut pieces, progress);
        if let Err(error) = sent {
            // What was read until then need not be sent again, where that can still be recorded.
            let _ = self.ship(&mut data.packer).and_then(|()| self.record());
            return Err(error);
        }
        let about = serde_json::to_vec_pretty(&order.about).unwrap_or_default();
        let about_piece = Id::of(&about);
        if self.claim(Kind::Data, about_piece) {
            data.add(&self.repository.key, about_piece, &about)?;
        }
        let time = order.at.to_string();
        let node = |name: &str, size: usize, content: Vec<Id>| Node {
            name: name.to_owned(),
            kind: "file".to_owned(),
            mode: 0o600,
            mtime: time.clone(),
            atime: time.clone(),
            ctime: time.clone(),
            uid: 0,
            gid: 0,
            size: size as u64,
            links: 1,
            content: Some(content),
            subtree: None,
        };
        let sum = checksum(&pieces, bytes);
        let mut disk = node(DISK, 0, pieces);
        disk.size = bytes;
        // In the order of their names, as restic wants them.
        let tree = Tree { nodes: vec![disk, node(ABOUT, about.len(), vec![about_piece])] };
        let mut tree = serde_json::to_vec(&tree).unwrap_or_default();
        tree.push(b'\n');
        let tree_id = Id::of(&tree);
        let mut trees = Press::new(Kind::Tree)?;
        if self.claim(Kind::Tree, tree_id) {
            trees.add(&self.repository.key, tree_id, &tree)?;
        }
        self.ship(&mut data.packer)?;
        self.ship(&mut trees.packer)?;
        self.record()?;
        progress.go_on()?;
        let snapshot = SnapshotFile {
            time,
            parent,
            tree: tree_id,
            paths: vec![format!("/{DISK}"), format!("/{ABOUT}")],
            hostname: "paddock".to_owned(),
            username: "paddock".to_owned(),
            tags: vec![order.name.clone()],
        };
        let file = seal_file(&self.repository.key, &serde_json::to_vec(&snapshot).unwrap_or_default())?;
        let id = Id::of(&file);
        self.repository.objects.put(&format!("snapshots/{id}"), file)?;
        Ok(StoredBackup {
            id: id.to_string(),
            checksum: sum,
            bytes,
            added_bytes: self.bytes.load(Ordering::Relaxed),
        })
    }

    /// What is known of the pieces already, from which backup, and which of them have to be read.
    fn plan(
        &self,
        order: &BackupOrder,
        content: &mut dyn DiskContent,
    ) -> DriverResult<(Vec<Id>, Option<Id>, Vec<u64>)> {
        let bytes = content.bytes();
        let count = bytes.div_ceil(PIECE as u64);
        let mut parent = None;
        let mut known: Option<Vec<Id>> = None;
        let mut since = None;
        // The nearest layer of which a backup is still whole.
        for layer in content.lineage().to_vec() {
            let of_layer = order.known.iter().filter(|known| known.layer == layer);
            let found = of_layer.filter_map(|known| Id::parse(&known.id)).find_map(|id| {
                let snapshot = self.repository.snapshot(id).ok()?;
                let (pieces, size) = self.repository.disk(snapshot.tree).ok()?;
                (size == bytes && pieces.len() as u64 == count).then_some((id, pieces))
            });
            if let Some((id, pieces)) = found {
                (parent, known, since) = (Some(id), Some(pieces), Some(layer));
                break;
            }
        }
        let zeros = vec![0; PIECE];
        let (whole, last) = (Id::of(&zeros), Id::of(&zeros[..length(count.saturating_sub(1), bytes)]));
        let zero = |number: u64| if number + 1 == count { last } else { whole };
        let mut pieces = known.unwrap_or_else(|| (0..count).map(zero).collect());
        let mut to_read = vec![false; pieces.len()];
        for range in content.written(since)? {
            for number in pieces_of(&range) {
                let at = number as u64 * PIECE as u64;
                let end = (at + PIECE as u64).min(bytes);
                // What a device has given back is said to be zero, and need not be read to see it.
                if content.is_zero(at..end)? {
                    pieces[number] = zero(number as u64);
                } else {
                    to_read[number] = true;
                }
            }
        }
        // What a repository does not have, or has lost, is read after all; of zeros, one piece is enough.
        let index = self.repository.index();
        let mut added = HashSet::new();
        for (number, piece) in pieces.iter().enumerate() {
            let is_zero = *piece == whole || *piece == last;
            if !to_read[number] && !index.places.contains_key(&(false, *piece)) {
                to_read[number] = !is_zero || added.insert(*piece);
            }
        }
        drop(index);
        let numbers = (0u64..).zip(&to_read).filter(|(_, read)| **read).map(|(number, _)| number);
        Ok((pieces, parent, numbers.collect()))
    }

    /// One thread reads; several compress, seal and send, each a pack of its own, so that some work while others wait for a disk.
    /// What is left fills no pack, and is for the caller to send.
    fn send(
        &self,
        rest: &mut Packer,
        content: &mut dyn DiskContent,
        to_read: &[u64],
        pieces: &mut [Id],
        progress: &Progress,
    ) -> DriverResult<()> {
        let bytes = content.bytes();
        let workers =
            std::thread::available_parallelism().map_or(3, |cores| (cores.get() + 1).min(MOST_WORKERS));
        let (read, waiting) = sync_channel::<(u64, Vec<u8>)>(WAITING);
        let waiting = Mutex::new(waiting);
        // Room that was used before: fresh memory costs more than what is done with it.
        let (used, spare) = channel::<Vec<u8>>();
        let given_up = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let given_up = &given_up;
            let reader = scope.spawn(move || {
                for number in to_read {
                    progress.go_on()?;
                    let mut piece = spare.try_recv().unwrap_or_default();
                    piece.resize(length(*number, bytes), 0);
                    content.read(number * PIECE as u64, &mut piece)?;
                    // Somebody cannot go on, and says why.
                    if given_up.load(Ordering::Relaxed) || read.send((*number, piece)).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            let workers: Vec<_> = (0..workers.min(to_read.len()))
                .map(|_| {
                    let (waiting, used) = (&waiting, used.clone());
                    scope.spawn(move || {
                        let worked = self.work(waiting, &used, progress);
                        worked.inspect_err(|_| given_up.store(true, Ordering::Relaxed))
                    })
                })
                .collect();
            let mut outcome: DriverResult<()> = Ok(());
            for worker in workers {
                match worker.join().unwrap_or_else(|_| Err(broken())) {
                    Ok((found, packer)) => {
                        for (number, id) in found {
                            if let Some(piece) =
                                usize::try_from(number).ok().and_then(|at| pieces.get_mut(at))
                            {
                                *piece = id;
                            }
                        }
                        rest.absorb(packer);
                        if rest.is_full() {
                            outcome = outcome.and(self.ship(rest));
                        }
                    }
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            // Whoever waits to hand something over is let go.
            drop(std::mem::replace(&mut *lock(&waiting), sync_channel(1).1));
            outcome.and(reader.join().unwrap_or_else(|_| Err(broken())))
        })
    }

    /// Which piece is what, and a pack that is not full.
    fn work(
        &self,
        waiting: &Mutex<Receiver<(u64, Vec<u8>)>>,
        used: &Sender<Vec<u8>>,
        progress: &Progress,
    ) -> DriverResult<(Vec<(u64, Id)>, Packer)> {
        let mut press = Press::new(Kind::Data)?;
        let mut found = Vec::new();
        loop {
            let Ok((number, piece)) = lock(waiting).recv() else { return Ok((found, press.packer)) };
            let id = Id::of(&piece);
            if self.claim(Kind::Data, id) {
                press.add(&self.repository.key, id, &piece)?;
                if press.packer.is_full() {
                    self.ship(&mut press.packer)?;
                }
            }
            found.push((number, id));
            progress.advance(piece.len() as u64);
            let _ = used.send(piece);
        }
    }

    /// Whether it is for the caller to store it: it is not there, and nobody else is at it.
    fn claim(&self, kind: Kind, id: Id) -> bool {
        self.repository.place(kind, id).is_none() && lock(&self.claimed).insert(id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken() -> DriverError {
    DriverError::new(Retry::Soon, "internal", "the work was broken off")
}

/// Of a piece of a disk; the last one may be shorter.
fn length(number: u64, bytes: u64) -> usize {
    let rest = bytes.saturating_sub(number * PIECE as u64);
    usize::try_from(rest).unwrap_or(PIECE).min(PIECE)
}

fn pieces_of(range: &Range<u64>) -> Range<usize> {
    let number = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    number(range.start / PIECE as u64)..number(range.end.div_ceil(PIECE as u64))
}
