//! Stores a disk: reads what may be new of it, and sends what is.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use paddock_model::drivers::backup_repositories::{BackupOrder, Progress, StoredBackup};
use paddock_model::drivers::disk_pools::DiskContent;
use paddock_model::drivers::{DriverError, DriverResult, Retry};

use super::pack::{Id, IndexedPack, Kind, Packer, SealedBlob};
use super::{ABOUT, DISK, LEVEL, Node, PIECE, Repository, SnapshotFile, Tree, checksum, seal_file};

/// After so many packs an index is written, so that a kill costs no more than those.
const PACKS_AN_INDEX: usize = 32;
/// Pieces that wait for somebody to compress them, and sealed ones that wait for their pack.
const WAITING: usize = 32;
/// Not worth the trouble to anybody who reads it.
const SMALL_GAIN: usize = 16;

pub struct Writing<'a> {
    repository: &'a Repository,
    /// What this backup has stored, or is about to.
    claimed: Mutex<HashSet<Id>>,
}

/// Everything that is sent away, by one thread.
struct Shipment<'a> {
    repository: &'a Repository,
    data: Packer,
    trees: Packer,
    /// Packs that no index names yet.
    shipped: Vec<IndexedPack>,
    bytes: u64,
}

impl Shipment<'_> {
    fn add(&mut self, kind: Kind, blob: &SealedBlob) -> DriverResult<()> {
        let packer = if kind == Kind::Tree { &mut self.trees } else { &mut self.data };
        packer.add(blob);
        if packer.is_full() { self.ship(kind) } else { Ok(()) }
    }

    fn ship(&mut self, kind: Kind) -> DriverResult<()> {
        let packer = if kind == Kind::Tree { &mut self.trees } else { &mut self.data };
        let Some((bytes, pack)) = packer.finish(&self.repository.key)? else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        self.repository.objects.put(&super::pack::object(pack.id), bytes)?;
        self.shipped.push(pack);
        if self.shipped.len() >= PACKS_AN_INDEX { self.record() } else { Ok(()) }
    }

    /// From now on others may rely on what was shipped.
    fn record(&mut self) -> DriverResult<()> {
        if self.shipped.is_empty() {
            return Ok(());
        }
        let packs = std::mem::take(&mut self.shipped);
        let name = self.repository.write_index(packs.clone())?;
        let mut index = self.repository.index();
        index.names.insert(name);
        packs.iter().for_each(|pack| index.add(pack));
        Ok(())
    }
}

impl<'a> Writing<'a> {
    pub fn new(repository: &'a Repository) -> Writing<'a> {
        Writing { repository, claimed: Mutex::default() }
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
        let mut shipment = Shipment {
            repository: self.repository,
            data: Packer::new(Kind::Data),
            trees: Packer::new(Kind::Tree),
            shipped: Vec::new(),
            bytes: 0,
        };
        let sent = self.send(&mut shipment, &mut *content, &to_read, &mut pieces, progress);
        // Whatever became of it, what is there need not be sent again.
        let recorded = shipment.ship(Kind::Data).and_then(|()| shipment.record());
        sent.and(recorded)?;
        let about = serde_json::to_vec_pretty(&order.about).unwrap_or_default();
        let about_piece = Id::of(&about);
        if let Some(blob) = self.sealed(Kind::Data, about_piece, &about)? {
            shipment.add(Kind::Data, &blob)?;
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
        if let Some(blob) = self.sealed(Kind::Tree, tree_id, &tree)? {
            shipment.add(Kind::Tree, &blob)?;
        }
        shipment.ship(Kind::Data)?;
        shipment.ship(Kind::Tree)?;
        shipment.record()?;
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
        Ok(StoredBackup { id: id.to_string(), checksum: sum, bytes, added_bytes: shipment.bytes })
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

    /// One thread reads, several compress and seal, this one sends.
    fn send(
        &self,
        shipment: &mut Shipment<'_>,
        content: &mut dyn DiskContent,
        to_read: &[u64],
        pieces: &mut [Id],
        progress: &Progress,
    ) -> DriverResult<()> {
        let bytes = content.bytes();
        let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let (read, waiting) = sync_channel::<(u64, Vec<u8>)>(WAITING);
        let waiting = Mutex::new(waiting);
        let (sealed, to_send) = sync_channel::<SealedBlob>(WAITING);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                for number in to_read {
                    progress.go_on()?;
                    let mut piece = vec![0; length(*number, bytes)];
                    content.read(number * PIECE as u64, &mut piece)?;
                    // Nobody takes it any more: the others say why.
                    if read.send((*number, piece)).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            let workers: Vec<_> = (0..workers)
                .map(|_| {
                    let (waiting, sealed) = (&waiting, sealed.clone());
                    scope.spawn(move || self.work(waiting, &sealed, progress))
                })
                .collect();
            drop(sealed);
            let mut outcome: DriverResult<()> = Ok(());
            while let Ok(blob) = to_send.recv() {
                if outcome.is_ok() {
                    outcome = shipment.add(Kind::Data, &blob);
                }
                if outcome.is_err() {
                    break;
                }
            }
            drop(to_send);
            for worker in workers {
                match worker.join().unwrap_or_else(|_| Err(broken())) {
                    Ok(found) => found.into_iter().for_each(|(number, id)| {
                        if let Some(piece) = usize::try_from(number).ok().and_then(|at| pieces.get_mut(at)) {
                            *piece = id;
                        }
                    }),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            // Whoever waits to hand something over is let go.
            drop(std::mem::replace(&mut *lock(&waiting), sync_channel(1).1));
            outcome.and(reader.join().unwrap_or_else(|_| Err(broken())))
        })
    }

    fn work(
        &self,
        waiting: &Mutex<Receiver<(u64, Vec<u8>)>>,
        sealed: &SyncSender<SealedBlob>,
        progress: &Progress,
    ) -> DriverResult<Vec<(u64, Id)>> {
        let mut found = Vec::new();
        loop {
            let Ok((number, piece)) = lock(waiting).recv() else { return Ok(found) };
            let id = Id::of(&piece);
            if let Some(blob) = self.sealed(Kind::Data, id, &piece)?
                && sealed.send(blob).is_err()
            {
                return Ok(found);
            }
            found.push((number, id));
            progress.advance(piece.len() as u64);
        }
    }

    /// A blob to be sent; none if it is there already.
    fn sealed(&self, kind: Kind, id: Id, plain: &[u8]) -> DriverResult<Option<SealedBlob>> {
        if self.repository.place(kind, id).is_some()
            || !self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
        {
            return Ok(None);
        }
        let compressed = zstd::bulk::compress(plain, LEVEL).map_err(|error| {
            DriverError::new(Retry::Soon, "internal", "nothing can be compressed").with_cause(error)
        })?;
        let (bytes, uncompressed) = if compressed.len() + SMALL_GAIN < plain.len() {
            (self.repository.key.seal(&compressed)?, u32::try_from(plain.len()).unwrap_or(u32::MAX))
        } else {
            (self.repository.key.seal(plain)?, 0)
        };
        Ok(Some(SealedBlob { id, bytes, uncompressed }))
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
