//! Feeds: where the journals of logs and their readers meet.
//!
//! Everything goes into the journal first. A reader is a position in it: what is new comes from memory, in pieces that all readers share,
//! what is older from the journal. Nothing waits for a reader.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use paddock_model::drivers::journals::{Head, Journals, Place};
use paddock_model::drivers::{DriverError, DriverResult};
use paddock_model::emulators::EmulatorId;
use paddock_model::logs::{Entry, Filter, Marks, Offset, Record};
use paddock_model::{Error, Result, Timestamp};
use tokio::sync::watch;

/// What is new stays in memory for those who read along, up to so much an emulator; who is slower reads the journal.
const RECENT_BYTES: usize = 1 << 20;
/// What is said within so long is written down, and told to readers, together.
const SHORTEST_PACE: Duration = Duration::from_millis(10);
const LONGEST_PACE: Duration = Duration::from_millis(250);
/// What it may cost to tell one of them.
const A_READER: Duration = Duration::from_micros(20);
/// What a record takes in memory besides its text.
const RECORD_BYTES: usize = 160;
/// Pieces of the journal that are kept for those who come back together.
const OLDER_PIECES: usize = 8;

/// The journals, and who reads along.
pub(crate) struct Feeds {
    pub journals: Arc<dyn Journals>,
    feeds: Mutex<HashMap<EmulatorId, Weak<Feed>>>,
    /// When journals were last compared with the emulators there are.
    pub compared_at: Mutex<Option<Timestamp>>,
}

/// Where one emulator's journal and its readers meet.
pub(crate) struct Feed {
    emulator: EmulatorId,
    journals: Arc<dyn Journals>,
    /// One at a time finds out what is new and writes it down.
    turn: tokio::sync::Mutex<()>,
    /// Held by who reads the device's log.
    pub logcat: tokio::sync::Mutex<()>,
    recent: Mutex<Recent>,
    /// What was read from the journal lately: those who come back together have missed the same. One at a time reads, so that
    /// however many are behind, they take no more of the machine than one.
    older: tokio::sync::Mutex<VecDeque<Arc<Batch>>>,
    /// What the next record will be called.
    news: watch::Sender<Offset>,
}

#[derive(Default)]
struct Recent {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    ended: bool,
}

/// Records that follow each other, at least one.
#[derive(Debug)]
pub struct Batch {
    records: Vec<(Offset, Record)>,
    /// Where to read on.
    next: Place,
    encoded: OnceLock<Bytes>,
}

impl Batch {
    /// As it is sent, made once for everybody.
    pub fn encoded(&self, encode: impl FnOnce(&Batch) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| encode(self)).clone()
    }

    pub fn records(&self) -> &[(Offset, Record)] {
        &self.records
    }

    fn first(&self) -> Offset {
        self.records.first().map_or(self.next.from, |(offset, _)| *offset)
    }

    fn holds(&self, wanted: Offset) -> bool {
        self.first() <= wanted && wanted < self.next.from
    }

    fn bytes(&self) -> usize {
        let text = |record: &Record| match &record.entry {
            Entry::Line(line) => line.text.len(),
            Entry::Status { .. } | Entry::Lost { .. } => 0,
        };
        // Once as it is, once as it is sent.
        self.records.iter().map(|(_, record)| 2 * (RECORD_BYTES + text(record))).sum()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feeds {
    pub fn new(journals: Arc<dyn Journals>) -> Self {
        Feeds { journals, feeds: Mutex::default(), compared_at: Mutex::default() }
    }

    pub async fn feed(&self, emulator: EmulatorId) -> DriverResult<Arc<Feed>> {
        if let Some(feed) = lock(&self.feeds).get(&emulator).and_then(Weak::upgrade) {
            return Ok(feed);
        }
        let feed = {
            let mut feeds = lock(&self.feeds);
            if let Some(feed) = feeds.get(&emulator).and_then(Weak::upgrade) {
                return Ok(feed);
            }
            if feeds.len() % 64 == 63 {
                feeds.retain(|_, feed| feed.strong_count() > 0);
            }
            let feed = Arc::new(Feed {
                emulator,
                journals: self.journals.clone(),
                turn: tokio::sync::Mutex::default(),
                logcat: tokio::sync::Mutex::default(),
                recent: Mutex::default(),
                older: tokio::sync::Mutex::default(),
                news: watch::Sender::new(Offset::default()),
            });
            feeds.insert(emulator, Arc::downgrade(&feed));
            feed
        };
        feed.look().await?;
        Ok(feed)
    }
}

impl Feed {
    /// How long to gather what is said before it is written down and told. To wake many readers costs time, so they are woken less often.
    pub fn pace(&self) -> Duration {
        let readers = u32::try_from(self.news.receiver_count()).unwrap_or(u32::MAX);
        (A_READER * readers).clamp(SHORTEST_PACE, LONGEST_PACE)
    }

    pub async fn head(&self) -> DriverResult<Head> {
        self.journals.head(self.emulator).await
    }

    /// Learns how far the journal goes.
    async fn look(&self) -> DriverResult<Head> {
        let head = self.head().await?;
        lock(&self.recent).ended |= head.marks.ended;
        self.news.send_if_modified(|next| {
            let is_newer = head.next > *next;
            *next = head.next.max(*next);
            is_newer
        });
        Ok(head)
    }

    /// Writes down what `find` makes of where the journal stands, then tells the readers. Nothing is written for `None`.
    pub async fn append(
        &self,
        find: impl FnOnce(&Head) -> Option<(Vec<Record>, Marks)>,
    ) -> DriverResult<bool> {
        let _turn = self.turn.lock().await;
        let head = self.head().await?;
        let Some((records, marks)) = find(&head) else { return Ok(false) };
        let ended = marks.ended;
        let (first, records) = self.journals.append(self.emulator, records, marks).await?;
        let records: Vec<_> = (0..).map(|index| first.plus(index)).zip(records).collect();
        let next = first.plus(records.len() as u64);
        let batch = Batch { records, next: Place { from: next, at: None }, encoded: OnceLock::new() };
        {
            let mut recent = lock(&self.recent);
            recent.ended |= ended;
            if self.news.receiver_count() == 0 {
                (recent.batches, recent.bytes) = (VecDeque::new(), 0);
                if let Ok(mut older) = self.older.try_lock() {
                    *older = VecDeque::new();
                }
            } else if !batch.records.is_empty() {
                recent.bytes += batch.bytes();
                recent.batches.push_back(Arc::new(batch));
                while recent.bytes > RECENT_BYTES
                    && recent.batches.len() > 1
                    && let Some(oldest) = recent.batches.pop_front()
                {
                    recent.bytes -= oldest.bytes();
                }
            }
        }
        self.news.send_replace(next);
        Ok(true)
    }

    /// The batch in which this record is, if it is still in memory.
    fn recent(&self, wanted: Offset) -> Option<Arc<Batch>> {
        let recent = lock(&self.recent);
        let at = recent.batches.partition_point(|batch| batch.next.from <= wanted);
        recent.batches.get(at).filter(|batch| batch.holds(wanted)).cloned()
    }

    /// What the journal has from this place on; nothing at its end.
    async fn older(&self, place: Place) -> DriverResult<Option<Arc<Batch>>> {
        let mut older = self.older.lock().await;
        if let Some(batch) = older.iter().find(|batch| batch.holds(place.from)) {
            return Ok(Some(batch.clone()));
        }
        let piece = self.journals.read(self.emulator, place).await?;
        if piece.records.is_empty() {
            return Ok(None);
        }
        let batch = Arc::new(Batch { records: piece.records, next: piece.next, encoded: OnceLock::new() });
        older.push_back(batch.clone());
        if older.len() > OLDER_PIECES {
            older.pop_front();
        }
        Ok(Some(batch))
    }
}

/// What a reader asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    pub filter: Filter,
    /// Whether to go on with what is new.
    pub follow: bool,
    /// Only so many of the lines that are there.
    pub tail: Option<u64>,
    /// The last record that the reader has; it goes on behind it.
    pub after: Option<Offset>,
}

/// A position in an emulator's log.
pub struct Reader {
    feed: Arc<Feed>,
    news: watch::Receiver<Offset>,
    place: Place,
    filter: Filter,
    follow: bool,
    /// Whether what is missing before the next record concerns the reader.
    has_begun: bool,
    /// Found behind a gap that had to be told first.
    held: Option<Arc<Batch>>,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// All of it, the same for every reader.
    Batch(Arc<Batch>),
    /// What passed the filter.
    Records(Vec<(Offset, Record)>),
    /// So many were dropped from the journal before they were read; the last of them is named.
    Gap {
        dropped: u64,
        last: Offset,
    },
    End(End),
}

/// Why a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The emulator is gone.
    Terminated,
    /// That is all there is, and nobody wants to wait.
    Complete,
}

pub(crate) fn unreadable(error: DriverError) -> Error {
    Error::internal(error).context("read a log")
}

/// Where the last lines that pass begin. Read backwards, a part at a time.
async fn last_lines(feed: &Feed, wanted: u64, filter: &Filter) -> DriverResult<Offset> {
    let mut end = feed.head().await?.next;
    let mut missing = usize::try_from(wanted).unwrap_or(usize::MAX);
    if missing == 0 {
        return Ok(end);
    }
    for part in feed.journals.parts(feed.emulator).await? {
        let (mut found, mut place) = (Vec::new(), Place { from: part, at: None });
        loop {
            let piece = feed.journals.read(feed.emulator, place).await?;
            let passing = piece.records.iter().filter(|(offset, record)| {
                *offset < end && matches!(record.entry, Entry::Line(_)) && filter.passes(record)
            });
            found.extend(passing.map(|(offset, _)| *offset));
            if piece.records.last().is_none_or(|(offset, _)| *offset >= end) {
                break;
            }
            place = piece.next;
        }
        if found.len() >= missing {
            return Ok(found[found.len() - missing]);
        }
        missing -= found.len();
        end = part;
    }
    Ok(Offset::default())
}

impl Reader {
    pub(crate) async fn open(feed: Arc<Feed>, request: &Request) -> Result<Reader> {
        let news = feed.news.subscribe();
        // Whoever made the feed may not have looked yet.
        let head = feed.look().await.map_err(unreadable)?;
        let from = match (request.after, request.tail) {
            // One that was never given out must not make its reader wait until it is.
            (Some(after), _) => after.plus(1).min(head.next),
            (None, Some(tail)) => last_lines(&feed, tail, &request.filter).await.map_err(unreadable)?,
            (None, None) => Offset::default(),
        };
        Ok(Reader {
            news,
            place: Place { from, at: None },
            filter: request.filter,
            follow: request.follow,
            has_begun: request.after.is_some(),
            held: None,
            feed,
        })
    }

    /// Waits for something that concerns the reader. May be dropped at any moment: nothing is lost by that.
    pub async fn next(&mut self) -> Result<Next> {
        loop {
            // In this order: what is written after the look wakes us, and what was written before the end is found.
            let written = *self.news.borrow_and_update();
            let ended = lock(&self.feed.recent).ended;
            if let Some(next) = self.advance(written).await? {
                return Ok(next);
            }
            if ended {
                return Ok(Next::End(End::Terminated));
            }
            if !self.follow {
                return Ok(Next::End(End::Complete));
            }
            if self.news.changed().await.is_err() {
                return Err(Error::internal("the log's feed is gone"));
            }
        }
    }

    /// Goes on until something passes; nothing at the end.
    async fn advance(&mut self, written: Offset) -> Result<Option<Next>> {
        loop {
            if let Some(batch) = self.held.take() {
                if let Some(next) = self.take(batch) {
                    return Ok(Some(next));
                }
                continue;
            }
            if self.has_begun && self.place.from >= written {
                return Ok(None);
            }
            let from = self.place.from;
            let batch = match self.feed.recent(from) {
                Some(batch) => batch,
                // Most readers wait for what is new, and keep no room for this.
                None => match Box::pin(self.feed.older(self.place)).await.map_err(unreadable)? {
                    Some(batch) => batch,
                    None => return Ok(None),
                },
            };
            let first = batch.first();
            let dropped = Offset(from.0.saturating_sub(1)).until(first);
            if std::mem::replace(&mut self.has_begun, true) && first > from && dropped > 0 {
                self.place.from = first;
                self.held = Some(batch);
                return Ok(Some(Next::Gap { dropped, last: Offset(first.0 - 1) }));
            }
            if let Some(next) = self.take(batch) {
                return Ok(Some(next));
            }
        }
    }

    /// Goes behind a batch; returns what of it concerns the reader.
    fn take(&mut self, batch: Arc<Batch>) -> Option<Next> {
        let from = std::mem::replace(&mut self.place, batch.next).from;
        if batch.first() >= from && self.filter == Filter::default() {
            return Some(Next::Batch(batch));
        }
        let passing =
            batch.records.iter().filter(|(offset, record)| *offset >= from && self.filter.passes(record));
        let passing: Vec<_> = passing.cloned().collect();
        (!passing.is_empty()).then_some(Next::Records(passing))
    }
}
