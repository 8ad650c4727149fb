//! Journals in a folder: one of its own for each emulator's log.
//!
//! ```text
//! logs/emu_…/journal.json            at which start of the machine something was written last, and the how manieth that was
//! logs/emu_…/<first offset>.log      a segment; the oldest go when there are too many
//! ```
//!
//! A segment is frames, one an append: a line that says what follows and gives its digest, the marks, and a line a record. A frame that is
//! not whole was torn by a crash and is cut off; with it go the marks, so what it held is taken from its sources again.
//! Frames are not flushed one by one. A process that is killed loses nothing by that; a power cut may take the newest frames, and
//! as the machine's next start gives its records other offsets, none is ever given twice.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use paddock_model::drivers::journals::{Head, Journals, Piece, Place};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::logs::{Marks, Offset, Record};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::durable::{self, hex, io_error, on_a_thread, sync_folder};

const START_FILE: &str = "journal.json";
/// What a reader is given at once, or one frame if that is larger.
const PIECE_BYTES: usize = 64 << 10;
/// A line that announces a frame is never longer.
const HEADER_BYTES: usize = 256;

pub struct FolderJournals(Arc<Shelf>);

#[derive(Debug, Clone)]
pub struct JournalSettings {
    pub folder: PathBuf,
    /// Of one emulator; the oldest segment goes when it is exceeded.
    pub keep_bytes: u64,
    /// Tells this start of the machine from every other.
    pub boot: String,
}

impl JournalSettings {
    pub fn in_folder(folder: impl Into<PathBuf>) -> JournalSettings {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        JournalSettings { folder: folder.into(), keep_bytes: 16 << 20, boot: boot.trim().to_owned() }
    }
}

struct Shelf {
    settings: JournalSettings,
    journals: Mutex<HashMap<EmulatorId, Arc<Mutex<Option<Journal>>>>>,
}

/// One that was looked through.
struct Journal {
    folder: PathBuf,
    start: Start,
    /// None is written down yet.
    started: bool,
    segments: Vec<Segment>,
    next: Offset,
    marks: Marks,
    uncertain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    first: Offset,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    boot: String,
    number: u64,
}

/// Announces a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    first: Offset,
    records: u64,
    bytes: usize,
    digest: String,
}

struct Frame<'a> {
    header: Header,
    body: &'a [u8],
    /// With its header.
    length: usize,
}

impl<'a> Frame<'a> {
    /// The frame that the bytes begin with, if it is whole.
    fn read(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (header, at) = Frame::header(bytes)?;
        let body = bytes.get(at..at.checked_add(header.bytes)?)?;
        (header.digest == sum(body)).then_some(Frame { length: at + header.bytes, header, body })
    }

    fn header(bytes: &[u8]) -> Option<(Header, usize)> {
        let end = bytes.iter().take(HEADER_BYTES).position(|byte| *byte == b'\n')?;
        Some((serde_json::from_slice(&bytes[..end]).ok()?, end + 1))
    }

    fn write(first: Offset, records: &[Record], marks: &Marks) -> serde_json::Result<Vec<u8>> {
        let mut body = serde_json::to_vec(marks)?;
        body.push(b'\n');
        for record in records {
            serde_json::to_writer(&mut body, record)?;
            body.push(b'\n');
        }
        let header = Header { first, records: records.len() as u64, bytes: body.len(), digest: sum(&body) };
        let mut frame = serde_json::to_vec(&header)?;
        frame.push(b'\n');
        frame.append(&mut body);
        Ok(frame)
    }

    fn marks(&self) -> Option<Marks> {
        serde_json::from_slice(self.body.split(|byte| *byte == b'\n').next()?).ok()
    }

    fn records(&self) -> impl Iterator<Item = (Offset, Record)> {
        let lines = self.body.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
        lines.enumerate().filter_map(|(index, line)| {
            Some((self.header.first.plus(index as u64), serde_json::from_slice(line).ok()?))
        })
    }

    fn end(&self) -> Offset {
        self.header.first.plus(self.header.records)
    }
}

fn sum(bytes: &[u8]) -> String {
    hex(&digest(&SHA256, bytes).as_ref()[..8])
}

impl Journal {
    /// Looks through what is there, and cuts off what was torn.
    fn open(folder: PathBuf, boot: &str) -> io::Result<Journal> {
        let mut segments = segments(&folder)?;
        let (mut next, mut marks) = (None, Marks::default());
        // A segment that was just begun may hold nothing yet.
        while let Some(last) = segments.last_mut() {
            let path = folder.join(file_name(last.first));
            let (whole, end) = whole_frames(&fs::read(&path)?);
            if whole < last.bytes {
                tracing::warn!(file = %path.display(), bytes = last.bytes - whole, "a torn end was cut off");
                File::options().write(true).open(&path)?.set_len(whole)?;
                last.bytes = whole;
            }
            match end {
                Some((end, found)) => {
                    (next, marks) = (Some(end), found);
                    break;
                }
                None => {
                    durable::remove(&path)?;
                    segments.pop();
                }
            }
        }
        let known = fs::read(folder.join(START_FILE)).ok();
        let known = known.and_then(|text| serde_json::from_slice::<Start>(&text).ok());
        let before = next.map(Offset::start).max(known.as_ref().map(|start| start.number));
        let same = known.filter(|start| start.boot == boot && Some(start.number) == before);
        let started = same.is_some();
        let start =
            same.unwrap_or_else(|| Start { boot: boot.to_owned(), number: before.unwrap_or_default() + 1 });
        let number = next.map_or(1, Offset::number);
        Ok(Journal {
            next: Offset::new(start.number, number),
            uncertain: !started && before.is_some(),
            folder,
            start,
            started,
            segments,
            marks,
        })
    }

    fn head(&self) -> Head {
        Head {
            next: self.next,
            oldest: self.segments.first().map_or(self.next, |segment| segment.first),
            marks: self.marks.clone(),
            uncertain: self.uncertain,
        }
    }

    fn append(&mut self, records: &[Record], marks: Marks, keep_bytes: u64) -> io::Result<Offset> {
        if !self.started {
            // Before any record is called by it.
            durable::make_folder(&self.folder)?;
            durable::write(
                &self.folder.join(START_FILE),
                serde_json::to_string(&self.start)?.as_bytes(),
                0o600,
            )?;
            self.started = true;
        }
        let frame = Frame::write(self.next, records, &marks)?;
        let full = |segment: &Segment| segment.bytes >= keep_bytes / 16;
        if self.segments.last().is_none_or(full) {
            self.begin_segment(keep_bytes)?;
        }
        let Some(segment) = self.segments.last_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let path = self.folder.join(file_name(segment.first));
        let mut file = File::options().append(true).open(&path)?;
        if let Err(error) = file.write_all(&frame) {
            // A part may be there; the next frame begins where this one did.
            file.set_len(segment.bytes)?;
            return Err(error);
        }
        segment.bytes += frame.len() as u64;
        if marks.ended {
            file.sync_data()?;
        }
        let first = self.next;
        self.next = first.plus(records.len() as u64);
        self.marks = marks;
        self.uncertain = false;
        Ok(first)
    }

    fn begin_segment(&mut self, keep_bytes: u64) -> io::Result<()> {
        if let Some(last) = self.segments.last() {
            File::open(self.folder.join(file_name(last.first)))?.sync_data()?;
        }
        let path = self.folder.join(file_name(self.next));
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        self.segments.push(Segment { first: self.next, bytes: 0 });
        let kept = |segments: &[Segment]| segments.iter().map(|segment| segment.bytes).sum::<u64>();
        while self.segments.len() > 1 && kept(&self.segments) > keep_bytes - keep_bytes / 16 {
            let oldest = self.segments.remove(0);
            durable::remove(&self.folder.join(file_name(oldest.first)))?;
        }
        Ok(())
    }
}

fn file_name(first: Offset) -> String {
    format!("{:020}.log", first.0)
}

fn segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
        if let Some(number) = number {
            found.push(Segment { first: Offset(number), bytes: entry.metadata()?.len() });
        }
    }
    found.sort_by_key(|segment| segment.first);
    Ok(found)
}

/// How many bytes of whole frames there are, and where and how the last of them ends.
fn whole_frames(bytes: &[u8]) -> (u64, Option<(Offset, Marks)>) {
    let (mut at, mut end) = (0, None);
    while let Some(frame) = Frame::read(&bytes[at..])
        && let Some(marks) = frame.marks()
    {
        at += frame.length;
        end = Some((frame.end(), marks));
    }
    (at as u64, end)
}

/// Reads without holding up who writes: `segments` says how far everything was written.
fn read(folder: &Path, segments: &[Segment], place: Place) -> io::Result<Piece> {
    let known =
        place.at.and_then(|(first, byte)| Some((segments.iter().position(|s| s.first == first)?, byte)));
    let (mut index, mut at) = known.unwrap_or_else(|| {
        let after = segments.partition_point(|segment| segment.first <= place.from);
        (after.saturating_sub(1), 0)
    });
    let mut piece = Piece { records: Vec::new(), next: place };
    let mut taken = 0;
    while let Some(segment) = segments.get(index) {
        let file = match File::open(folder.join(file_name(segment.first))) {
            // It had to make room meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (index, at) = (index + 1, 0);
                continue;
            }
            file => file?,
        };
        while at < segment.bytes && taken < PIECE_BYTES {
            let Some(bytes) = frame_at(&file, at, segment.bytes, place.from)? else {
                // Nothing behind a frame that does not hold can be found.
                break;
            };
            match bytes {
                Found::Passed(length) => at += length,
                Found::Wanted(bytes) => {
                    let Some(frame) = Frame::read(&bytes) else { break };
                    piece.records.extend(frame.records().filter(|(offset, _)| *offset >= place.from));
                    at += frame.length as u64;
                    taken += frame.length;
                    piece.next = Place { from: frame.end().max(place.from), at: Some((segment.first, at)) };
                }
            }
        }
        if taken >= PIECE_BYTES {
            break;
        }
        (index, at) = (index + 1, 0);
    }
    Ok(piece)
}

enum Found {
    /// A frame before the place that is asked for: so many bytes.
    Passed(u64),
    Wanted(Vec<u8>),
}

fn frame_at(file: &File, at: u64, end: u64, from: Offset) -> io::Result<Option<Found>> {
    let left = usize::try_from(end - at).unwrap_or(usize::MAX);
    let mut bytes = vec![0; left.min(8 << 10)];
    if !read_whole(file, &mut bytes, at)? {
        return Ok(None);
    }
    let Some((header, begin)) = Frame::header(&bytes) else { return Ok(None) };
    let length = begin + header.bytes;
    if length > left {
        return Ok(None);
    }
    if header.first.plus(header.records) <= from {
        return Ok(Some(Found::Passed(length as u64)));
    }
    let there = bytes.len().min(length);
    bytes.resize(length, 0);
    if !read_whole(file, &mut bytes[there..], at + there as u64)? {
        return Ok(None);
    }
    Ok(Some(Found::Wanted(bytes)))
}

fn read_whole(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

impl FolderJournals {
    pub fn open(settings: JournalSettings) -> DriverResult<FolderJournals> {
        durable::make_folder(&settings.folder)
            .map_err(|error| io_error("open the journals' folder", error))?;
        Ok(FolderJournals(Arc::new(Shelf { settings, journals: Mutex::default() })))
    }

    async fn with<T: Send + 'static>(
        &self,
        emulator: EmulatorId,
        what: &'static str,
        act: impl FnOnce(&mut Journal, &JournalSettings) -> io::Result<T> + Send + 'static,
    ) -> DriverResult<T> {
        let shelf = self.0.clone();
        on_a_thread(move || {
            let slot = lock(&shelf.journals).entry(emulator).or_default().clone();
            let mut slot = lock(&slot);
            let failed = |error| io_error(&format!("{what} the journal of {emulator}"), error);
            if slot.is_none() {
                let folder = shelf.settings.folder.join(emulator.to_string());
                *slot = Some(Journal::open(folder, &shelf.settings.boot).map_err(failed)?);
            }
            match slot.as_mut() {
                Some(journal) => act(journal, &shelf.settings).map_err(failed),
                None => Err(DriverError::new(Retry::Soon, "internal", "the journal is not open")),
            }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Journals for FolderJournals {
    async fn head(&self, emulator: EmulatorId) -> DriverResult<Head> {
        self.with(emulator, "open", |journal, _| Ok(journal.head())).await
    }

    async fn append(
        &self,
        emulator: EmulatorId,
        records: Vec<Record>,
        marks: Marks,
    ) -> DriverResult<(Offset, Vec<Record>)> {
        self.with(emulator, "write to", move |journal, settings| {
            let first = journal.append(&records, marks, settings.keep_bytes)?;
            Ok((first, records))
        })
        .await
    }

    async fn read(&self, emulator: EmulatorId, place: Place) -> DriverResult<Piece> {
        let (folder, segments) = self
            .with(emulator, "open", |journal, _| Ok((journal.folder.clone(), journal.segments.clone())))
            .await?;
        on_a_thread(move || {
            read(&folder, &segments, place)
                .map_err(|error| io_error(&format!("read the journal of {emulator}"), error))
        })
        .await
    }

    async fn parts(&self, emulator: EmulatorId) -> DriverResult<Vec<Offset>> {
        self.with(emulator, "open", |journal, _| {
            Ok(journal.segments.iter().rev().map(|segment| segment.first).collect())
        })
        .await
    }

    async fn list(&self) -> DriverResult<Vec<EmulatorId>> {
        let folder = self.0.settings.folder.clone();
        on_a_thread(move || {
            let entries = fs::read_dir(&folder).map_err(|error| io_error("list the journals", error))?;
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            Ok(names.filter_map(|name| EmulatorId::parse(&name)).collect())
        })
        .await
    }

    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()> {
        let shelf = self.0.clone();
        on_a_thread(move || {
            let slot = lock(&shelf.journals).remove(&emulator);
            let _held = slot.as_ref().map(|slot| lock(slot));
            let removed = match fs::remove_dir_all(shelf.settings.folder.join(emulator.to_string())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.and_then(|()| sync_folder(&shelf.settings.folder)),
            };
            removed.map_err(|error| io_error(&format!("remove the journal of {emulator}"), error))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use paddock_model::logs::{Entry, Level, Line, Source};

    use super::*;

    fn record(number: u64) -> Record {
        let line = Line {
            source: Source::Console,
            level: Level::Info,
            text: format!("line {number}"),
            logcat: None,
        };
        Record {
            at: "2026-11-15T04:00:00Z".parse().expect("a time"),
            incarnation: 1,
            entry: Entry::Line(line),
        }
    }

    fn marks(taken: u64) -> Marks {
        Marks { console: (1, taken), ..Marks::default() }
    }

    fn numbers(records: &[(Offset, Record)]) -> Vec<u64> {
        let number = |record: &Record| match &record.entry {
            Entry::Line(line) => line.text.trim_start_matches("line ").parse().expect("a number"),
            entry => panic!("{entry:?}"),
        };
        records.iter().map(|(_, record)| number(record)).collect()
    }

    fn emulator() -> EmulatorId {
        EmulatorId(uuid::Uuid::from_u128(1))
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().expect("a folder"))
        }

        /// As the next process finds it; at another start of the machine if `boot` is another.
        fn open(&self, boot: &str, keep_bytes: u64) -> FolderJournals {
            let folder = self.0.path().join("logs");
            let settings =
                JournalSettings { keep_bytes, boot: boot.to_owned(), ..JournalSettings::in_folder(folder) };
            FolderJournals::open(settings).expect("journals")
        }

        fn segment(&self) -> PathBuf {
            let folder = self.0.path().join("logs").join(emulator().to_string());
            let found = segments(&folder).expect("segments");
            folder.join(file_name(found.last().expect("a segment").first))
        }
    }

    async fn all(journals: &FolderJournals, from: Offset) -> Vec<(Offset, Record)> {
        let (mut found, mut place) = (Vec::new(), Place { from, at: None });
        loop {
            let piece = journals.read(emulator(), place).await.expect("read");
            if piece.records.is_empty() {
                return found;
            }
            found.extend(piece.records);
            place = piece.next;
        }
    }

    #[tokio::test]
    async fn a_journal_torn_at_any_byte_goes_on_from_its_last_whole_frame() {
        let folder = Folder::new();
        let journals = folder.open("one", 1 << 20);
        let mut ends = Vec::new();
        for number in 0..3 {
            let records = vec![record(2 * number), record(2 * number + 1)];
            journals.append(emulator(), records, marks(number + 1)).await.expect("written");
            ends.push(fs::metadata(folder.segment()).expect("a file").len());
        }
        let bytes = fs::read(folder.segment()).expect("a file");
        for length in 0..=bytes.len() {
            let torn = Folder::new();
            let copy = torn.0.path().join("logs").join(emulator().to_string());
            fs::create_dir_all(&copy).expect("a folder");
            let start = folder.segment().with_file_name(START_FILE);
            fs::copy(start, copy.join(START_FILE)).expect("copied");
            let name = folder.segment().file_name().expect("a name").to_owned();
            // A crash may leave anything behind what was written, also rubbish.
            let mut left = bytes[..length].to_vec();
            left.extend(vec![0; length % 7]);
            fs::write(copy.join(name), left).expect("written");

            let journals = torn.open("one", 1 << 20);
            let whole = ends.iter().filter(|end| **end <= length as u64).count() as u64;
            let head = journals.head(emulator()).await.expect("opened");
            assert_eq!(
                (head.next, head.marks),
                (Offset::new(1, 1 + 2 * whole), marks_or_none(whole)),
                "{length}"
            );
            journals.append(emulator(), vec![record(99)], marks(9)).await.expect("written");
            let mut expected: Vec<u64> = (0..2 * whole).collect();
            expected.push(99);
            let found = all(&journals, Offset::default()).await;
            assert_eq!(numbers(&found), expected, "{length}");
            let offsets: Vec<u64> = found.iter().map(|(offset, _)| offset.number()).collect();
            assert_eq!(offsets, (1..=2 * whole + 1).collect::<Vec<_>>());
        }
    }

    fn marks_or_none(whole: u64) -> Marks {
        if whole == 0 { Marks::default() } else { marks(whole) }
    }

    #[tokio::test]
    async fn an_offset_is_never_given_to_another_record_after_a_power_cut() {
        let folder = Folder::new();
        let journals = folder.open("one", 1 << 20);
        let (seen, _) = journals.append(emulator(), vec![record(1)], marks(1)).await.expect("written");
        let length = fs::metadata(folder.segment()).expect("a file").len();
        let (lost, _) = journals.append(emulator(), vec![record(2)], marks(2)).await.expect("written");

        // The machine starts again, and the newest frame has not reached the disk.
        File::options().write(true).open(folder.segment()).expect("open").set_len(length).expect("cut");
        let journals = folder.open("two", 1 << 20);
        assert!(journals.head(emulator()).await.expect("opened").uncertain);
        let (next, _) = journals.append(emulator(), vec![record(3)], marks(2)).await.expect("written");
        assert!(next > lost && lost > seen, "{seen:?} {lost:?} {next:?}");
        assert_eq!(numbers(&all(&journals, lost.plus(1)).await), [3]);
        // Another process in the same start goes on counting.
        let (after, _) =
            folder.open("two", 1 << 20).append(emulator(), vec![record(4)], marks(3)).await.expect("written");
        assert_eq!(after, next.plus(1));
        // The same where the power went before anything reached the disk but the start itself.
        fs::remove_file(folder.segment()).expect("gone");
        let (again, _) = folder
            .open("three", 1 << 20)
            .append(emulator(), vec![record(5)], marks(1))
            .await
            .expect("written");
        assert!(again > after, "{again:?}");
    }

    #[tokio::test]
    async fn only_so_much_is_kept_and_it_is_read_in_pieces_from_anywhere() {
        let folder = Folder::new();
        let keep = 256 << 10;
        let journals = folder.open("one", keep);
        for number in 0..5_000 {
            journals.append(emulator(), vec![record(number)], marks(number)).await.expect("written");
        }
        let bytes: u64 = segments(folder.segment().parent().expect("a folder"))
            .expect("segments")
            .iter()
            .map(|segment| segment.bytes)
            .sum();
        assert!(bytes <= keep && bytes > keep / 2, "{bytes}");
        let head = journals.head(emulator()).await.expect("opened");
        let kept = all(&journals, Offset::default()).await;
        assert_eq!(kept.first().map(|(offset, _)| *offset), Some(head.oldest));
        let oldest = head.oldest.number() - 1;
        assert_eq!(numbers(&kept), (oldest..5_000).collect::<Vec<_>>());
        for from in [oldest + 1, oldest + 777, 4_998] {
            let found = all(&journals, Offset::new(1, from + 1)).await;
            assert_eq!(numbers(&found), (from..5_000).collect::<Vec<_>>());
        }
        assert!(journals.parts(emulator()).await.expect("parts").len() > 8);
        journals.remove(emulator()).await.expect("removed");
        assert_eq!(journals.list().await.expect("listed"), []);
    }
}
