//! Reads a disk back: every piece is held against its name, and all of them against the checksum.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use paddock_model::drivers::backup_repositories::Progress;
use paddock_model::drivers::{DriverError, DriverResult, Retry};

use super::pack::{Id, Kind};
use super::{Opener, PIECE, Place, Repository, checksum, lost};

/// Pieces that one thread fetches and unpacks before it looks for more.
const WINDOW: usize = 32;
/// To read a little in vain is cheaper than to ask once more.
const GAP: u32 = 64 << 10;
const AT_ONCE: usize = 4;

pub struct Reading<'a> {
    repository: &'a Repository,
    pieces: Vec<Id>,
    pub bytes: u64,
}

/// Many are the same, above all those of zeros.
pub type Piece = Arc<Vec<u8>>;

/// Blobs of one pack that lie near to each other.
struct Stretch {
    pack: Id,
    start: u32,
    end: u32,
    blobs: Vec<(Id, Place)>,
}

/// Pieces that somebody is to fetch, and where they are waited for.
type Job<'a> = (&'a [Id], Sender<DriverResult<Vec<Piece>>>);

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

    /// Gives piece after piece; false from whoever takes them ends it. While they are taken, the next ones are fetched.
    pub fn read(&self, progress: &Progress, mut take: impl FnMut(Piece) -> bool) -> DriverResult<()> {
        progress.expect(self.bytes);
        let zeros = Arc::new(vec![0; PIECE]);
        let zeros = (Id::of(&zeros), zeros);
        let (jobs, waiting) = channel::<Job<'_>>();
        let waiting = Mutex::new(waiting);
        std::thread::scope(|scope| {
            // Let go with the last of what is done here, whatever ends it.
            let jobs = jobs;
            for _ in 0..AT_ONCE.min(self.pieces.len().div_ceil(WINDOW)) {
                scope.spawn(|| {
                    let mut opener = self.repository.opener();
                    loop {
                        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok((window, done)) = job else { return };
                        let fetched = match &mut opener {
                            Ok(opener) => self.fetch(window, &zeros, opener),
                            Err(_) => Err(broken()),
                        };
                        let _ = done.send(fetched);
                    }
                });
            }
            let mut windows = self.pieces.chunks(WINDOW).map(|window| {
                let (done, fetched) = channel();
                let _ = jobs.send((window, done));
                fetched
            });
            let mut ahead: VecDeque<_> = windows.by_ref().take(AT_ONCE).collect();
            let mut given = 0u64;
            while let Some(fetched) = ahead.pop_front() {
                progress.go_on()?;
                let fetched = fetched.recv().unwrap_or_else(|_| Err(broken()))?;
                ahead.extend(windows.next());
                for piece in fetched {
                    let length = piece.len() as u64;
                    let left = self.bytes - given;
                    if length != left.min(PIECE as u64) {
                        let message = "a piece has another size than the disk needs";
                        return Err(DriverError::new(Retry::Never, "object_damaged", message));
                    }
                    given += length;
                    progress.advance(length);
                    if !take(piece) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// The pieces of a window in their order.
    fn fetch(&self, window: &[Id], zeros: &(Id, Piece), opener: &mut Opener<'_>) -> DriverResult<Vec<Piece>> {
        let mut found = HashMap::from([zeros.clone()]);
        for stretch in self.stretches(window, zeros.0)? {
            let range = u64::from(stretch.start)..u64::from(stretch.end);
            let bytes = self.repository.objects.get_range(&super::pack::object(stretch.pack), range)?;
            for (id, place) in &stretch.blobs {
                let at = (place.offset - stretch.start) as usize;
                let sealed = bytes.get(at..at + place.length as usize).ok_or_else(|| lost(*id))?;
                found.insert(*id, Arc::new(opener.open(*id, place.uncompressed, sealed)?));
            }
        }
        window.iter().map(|id| found.get(id).cloned().ok_or_else(|| lost(*id))).collect()
    }

    /// Where the blobs of a window are, so that what lies together is fetched together. What zeros are is known.
    fn stretches(&self, window: &[Id], zeros: Id) -> DriverResult<Vec<Stretch>> {
        let mut wanted: Vec<Id> = window.iter().filter(|id| **id != zeros).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let place =
            |id: Id| self.repository.place(Kind::Data, id).map(|place| (id, place)).ok_or_else(|| lost(id));
        let mut places = wanted.into_iter().map(place).collect::<DriverResult<Vec<(Id, Place)>>>()?;
        places.sort_by_key(|(_, place)| (place.pack, place.offset));
        let mut stretches: Vec<Stretch> = Vec::new();
        for (id, place) in places {
            let end = place.offset.saturating_add(place.length);
            match stretches.last_mut() {
                Some(last) if last.pack == place.pack && place.offset <= last.end.saturating_add(GAP) => {
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

fn broken() -> DriverError {
    DriverError::new(Retry::Soon, "internal", "the work was broken off")
}
