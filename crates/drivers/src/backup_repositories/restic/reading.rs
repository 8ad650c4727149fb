//! Reads a disk back: every piece is held against its name, and all of them against the checksum.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use paddock_model::drivers::backup_repositories::Progress;
use paddock_model::drivers::{DriverError, DriverResult, Retry};

use super::pack::{Id, Kind};
use super::{PIECE, Place, Repository, checksum, lost};

/// As much is fetched and unpacked at once.
const WINDOW: usize = 64;
/// To read a little in vain is cheaper than to ask once more.
const GAP: u32 = 64 << 10;
const AT_ONCE: usize = 4;

pub struct Reading<'a> {
    repository: &'a Repository,
    pieces: Vec<Id>,
    pub bytes: u64,
}

/// A piece and its bytes.
type Piece = (Id, Vec<u8>);

/// Blobs of one pack that lie near to each other.
struct Stretch {
    pack: Id,
    start: u32,
    end: u32,
    blobs: Vec<(Id, Place)>,
}

impl<'a> Reading<'a> {
    /// Refused if it is not what was recorded, or not all there.
    pub fn open(repository: &'a Repository, id: &str, wanted: &str) -> DriverResult<Reading<'a>> {
        repository.refresh()?;
        let id = Id::parse(id).ok_or_else(|| super::super::objects::missing(id))?;
        let (pieces, bytes) = repository.disk(repository.snapshot(id)?.tree)?;
        let found = checksum(&pieces, bytes);
        if found != wanted || pieces.len() as u64 != bytes.div_ceil(PIECE as u64) {
            let message = format!("the backup's checksum is {found}, and {wanted} was recorded");
            return Err(DriverError::new(Retry::Never, "checksum_mismatch", message));
        }
        for piece in &pieces {
            repository.place(Kind::Data, *piece).ok_or_else(|| lost(*piece))?;
        }
        Ok(Reading { repository, pieces, bytes })
    }

    /// Gives piece after piece; false from whoever takes them ends it.
    pub fn read(&self, progress: &Progress, mut take: impl FnMut(Vec<u8>) -> bool) -> DriverResult<()> {
        progress.expect(self.bytes);
        let mut given = 0u64;
        for window in self.pieces.chunks(WINDOW) {
            progress.go_on()?;
            let blobs = self.fetch(window)?;
            for piece in window {
                let bytes = blobs.get(piece).ok_or_else(|| lost(*piece))?;
                let last = self.bytes - given <= PIECE as u64;
                if bytes.len() != PIECE && !(last && bytes.len() as u64 == self.bytes - given) {
                    return Err(DriverError::new(
                        Retry::Never,
                        "object_damaged",
                        "a piece has another size than the disk needs",
                    ));
                }
                given += bytes.len() as u64;
                progress.advance(bytes.len() as u64);
                if !take(bytes.clone()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn fetch(&self, window: &[Id]) -> DriverResult<HashMap<Id, Vec<u8>>> {
        let stretches = self.stretches(window)?;
        let next = Mutex::new(stretches.iter());
        let found: Vec<DriverResult<Vec<Piece>>> = std::thread::scope(|scope| {
            let worker = || {
                let mut found = Vec::new();
                loop {
                    let Some(stretch) = next.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                        return Ok(found);
                    };
                    let range = u64::from(stretch.start)..u64::from(stretch.end);
                    let bytes =
                        self.repository.objects.get_range(&super::pack::object(stretch.pack), range)?;
                    for (id, place) in &stretch.blobs {
                        let at = (place.offset - stretch.start) as usize;
                        let sealed = bytes.get(at..at + place.length as usize).ok_or_else(|| lost(*id))?;
                        found.push((*id, self.repository.unseal(*id, place.uncompressed, sealed)?));
                    }
                }
            };
            let workers: Vec<_> = (0..AT_ONCE.min(stretches.len())).map(|_| scope.spawn(worker)).collect();
            let broken = || DriverError::new(Retry::Soon, "internal", "the work was broken off");
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(broken()))).collect()
        });
        let mut blobs = HashMap::new();
        for some in found {
            blobs.extend(some?);
        }
        Ok(blobs)
    }

    /// Where the blobs of a window are, so that what lies together is fetched together.
    fn stretches(&self, window: &[Id]) -> DriverResult<Vec<Stretch>> {
        let mut wanted: Vec<Id> = window.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let place =
            |id: Id| self.repository.place(Kind::Data, id).map(|place| (id, place)).ok_or_else(|| lost(id));
        let mut places = wanted.into_iter().map(place).collect::<DriverResult<Vec<(Id, Place)>>>()?;
        places.sort_by_key(|(_, place)| (place.pack, place.offset));
        let most = u32::try_from(window.len().div_ceil(AT_ONCE) * PIECE).unwrap_or(u32::MAX);
        let mut stretches: Vec<Stretch> = Vec::new();
        for (id, place) in places {
            let end = place.offset.saturating_add(place.length);
            match stretches.last_mut() {
                Some(last)
                    if last.pack == place.pack
                        && place.offset <= last.end.saturating_add(GAP)
                        && end - last.start <= most =>
                {
                    last.end = last.end.max(end);
                    last.blobs.push((id, place));
                }
                _ => stretches.push(Stretch {
                    pack: place.pack,
                    start: place.offset,
                    end,
                    blobs: vec![(id, place)],
                }),
            }
        }
        Ok(stretches)
    }
}
