//! The journal: what a car has been told, so that it knows after its process was killed.
//!
//! ```text
//! emu_…/journal   records, each with its length and its checksum; replaced by a shorter one when it has grown
//! emu_…/clock     nanoseconds that the car's clock has not reached yet
//! ```
//!
//! Records are not flushed one by one: a process that is killed loses nothing by that, and the device inside does not outlive a power
//! cut either. Which car it is and how late it is are flushed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus};
use prost::Message;

use crate::files;
use crate::proto::VehiclePropValue;
use crate::subscriptions::Wish;
use crate::values::{self, Key, Limits, Raw};

const JOURNAL_FILE: &str = "journal";
const CLOCK_FILE: &str = "clock";
const BEGINNING: &[u8; 8] = b"paddock\x01";
/// Appended since the last replacement; then it is time for another.
const MOST_APPENDED: u64 = 1 << 20;
/// Larger than anything that is ever written.
const MOST_RECORD: usize = 64 << 20;

/// A property's value and status in an area; the value is none until somebody sets it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub value: Option<Raw>,
    pub status: PropertyStatus,
}

/// The values of one car.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Footing {
    pub values: BTreeMap<Key, Told>,
    pub limits: BTreeMap<Key, Limits>,
}

/// Everything that a journal says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    pub footings: BTreeMap<i64, Footing>,
    pub current: Option<i64>,
    /// Whether the device inside has said what it wants, and what that is.
    pub chooses: bool,
    pub wishes: BTreeMap<Key, Wish>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Record {
    #[prost(message, optional, tag = "1")]
    set: Option<ValueRecord>,
    #[prost(message, optional, tag = "2")]
    footing: Option<FootingRecord>,
    #[prost(message, optional, tag = "3")]
    current: Option<CurrentRecord>,
    #[prost(message, optional, tag = "4")]
    wish: Option<WishRecord>,
    #[prost(message, optional, tag = "5")]
    limits: Option<LimitsRecord>,
    /// The device inside has begun to say what it wants.
    #[prost(bool, tag = "6")]
    chooses: bool,
}

#[derive(Clone, PartialEq, Message)]
struct ValueRecord {
    #[prost(message, optional, tag = "1")]
    value: Option<VehiclePropValue>,
    #[prost(bool, tag = "2")]
    unset: bool,
}

#[derive(Clone, PartialEq, Message)]
struct FootingRecord {
    #[prost(int64, tag = "1")]
    number: i64,
    #[prost(message, repeated, tag = "2")]
    values: Vec<ValueRecord>,
    #[prost(message, repeated, tag = "3")]
    limits: Vec<LimitsRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct CurrentRecord {
    #[prost(int64, tag = "1")]
    footing: i64,
}

#[derive(Clone, PartialEq, Message)]
struct WishRecord {
    #[prost(int32, tag = "1")]
    property: i32,
    #[prost(int32, tag = "2")]
    area: i32,
    #[prost(int64, optional, tag = "3")]
    period: Option<i64>,
    #[prost(float, tag = "4")]
    resolution: f32,
    #[prost(bool, tag = "5")]
    only_changes: bool,
    #[prost(bool, tag = "6")]
    given_up: bool,
}

#[derive(Clone, PartialEq, Message)]
struct LimitsRecord {
    #[prost(int32, tag = "1")]
    property: i32,
    #[prost(int32, tag = "2")]
    area: i32,
    #[prost(message, optional, tag = "3")]
    min: Option<Raw>,
    #[prost(message, optional, tag = "4")]
    max: Option<Raw>,
    #[prost(message, repeated, tag = "5")]
    supported: Vec<Raw>,
}

impl Record {
    pub fn set(key: Key, told: &Told) -> Record {
        Record { set: Some(ValueRecord::new(key, told)), ..Record::default() }
    }

    pub fn wish(key: Key, wish: Option<Wish>) -> Record {
        Record { wish: Some(WishRecord::new(key, wish)), ..Record::default() }
    }

    pub fn chooses() -> Record {
        Record { chooses: true, ..Record::default() }
    }

    pub fn limits(key: Key, limits: &Limits) -> Record {
        Record { limits: Some(LimitsRecord::new(key, limits)), ..Record::default() }
    }
}

impl ValueRecord {
    fn new((property, area): Key, told: &Told) -> ValueRecord {
        let raw = told.value.clone().unwrap_or_default();
        let value = values::on_the_wire((property, area), raw, told.status, 0);
        ValueRecord { value: Some(value), unset: told.value.is_none() }
    }

    fn read(self) -> Option<(Key, Told)> {
        let value = self.value?;
        let key = (PropertyId(value.prop), AreaId(value.area_id));
        let status = values::status(value.status);
        Some((key, Told { value: (!self.unset).then(|| values::raw(value)), status }))
    }
}

impl WishRecord {
    fn new((property, area): Key, wish: Option<Wish>) -> WishRecord {
        WishRecord {
            property: property.0,
            area: area.0,
            period: wish.and_then(|wish| wish.period),
            resolution: wish.map_or(0.0, |wish| wish.resolution),
            only_changes: wish.is_some_and(|wish| wish.only_changes),
            given_up: wish.is_none(),
        }
    }
}

impl LimitsRecord {
    fn new((property, area): Key, limits: &Limits) -> LimitsRecord {
        LimitsRecord {
            property: property.0,
            area: area.0,
            min: limits.min.clone(),
            max: limits.max.clone(),
            supported: limits.supported.clone(),
        }
    }

    fn read(self) -> (Key, Limits) {
        let limits = Limits { min: self.min, max: self.max, supported: self.supported };
        ((PropertyId(self.property), AreaId(self.area)), limits)
    }
}

impl Kept {
    fn take(&mut self, record: Record) {
        if let Some(footing) = record.footing {
            let told = Footing {
                values: footing.values.into_iter().filter_map(ValueRecord::read).collect(),
                limits: footing.limits.into_iter().map(LimitsRecord::read).collect(),
            };
            self.footings.insert(footing.number, told);
        }
        if let Some(current) = record.current {
            self.current = Some(current.footing);
        }
        if let Some(wish) = record.wish {
            let key = (PropertyId(wish.property), AreaId(wish.area));
            if wish.given_up {
                self.wishes.remove(&key);
            } else {
                let period = wish.period.filter(|period| *period > 0);
                let (resolution, only_changes) = (wish.resolution, wish.only_changes);
                self.wishes.insert(key, Wish { period, resolution, only_changes });
            }
        }
        self.chooses |= record.chooses;
        let current = self.current.and_then(|current| self.footings.get_mut(&current));
        let Some(current) = current else { return };
        if let Some((key, told)) = record.set.and_then(ValueRecord::read) {
            current.values.insert(key, told);
        }
        if let Some((key, limits)) = record.limits.map(LimitsRecord::read) {
            current.limits.insert(key, limits);
        }
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let footings = self.footings.iter().map(|(number, footing)| Record {
            footing: Some(FootingRecord {
                number: *number,
                values: footing.values.iter().map(|(key, told)| ValueRecord::new(*key, told)).collect(),
                limits: footing.limits.iter().map(|(key, limits)| LimitsRecord::new(*key, limits)).collect(),
            }),
            ..Record::default()
        });
        let current = self
            .current
            .map(|footing| Record { current: Some(CurrentRecord { footing }), ..Record::default() });
        let wishes = self.wishes.iter().map(|(key, wish)| Record::wish(*key, Some(*wish)));
        footings.chain(current).chain(self.chooses.then(Record::chooses)).chain(wishes)
    }
}

pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    /// What the last replacement left.
    shortest: u64,
}

impl Journal {
    /// What is there; nothing when there is no journal yet.
    pub fn read(folder: &Path) -> io::Result<Option<Kept>> {
        match fs::read(folder.join(JOURNAL_FILE)) {
            Ok(bytes) => Ok(Some(whole_records(&bytes).0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces whatever is there.
    pub fn begin(folder: &Path, kept: &Kept) -> io::Result<Journal> {
        let path = folder.join(JOURNAL_FILE);
        let mut bytes = BEGINNING.to_vec();
        for record in kept.records() {
            framed(&record, &mut bytes);
        }
        files::write(&path, &bytes)?;
        let file = File::options().append(true).mode(0o600).open(&path)?;
        let length = bytes.len() as u64;
        Ok(Journal { path, file, length, shortest: length })
    }

    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(64 * records.len());
        for record in records {
            framed(record, &mut bytes);
        }
        if let Err(error) = self.file.write_all(&bytes) {
            // A part may be there; the next record begins where this one did.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    pub fn has_grown(&self) -> bool {
        self.length.saturating_sub(self.shortest) > MOST_APPENDED + self.shortest
    }

    /// The same in short.
    pub fn replace(&mut self, kept: &Kept) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        match Journal::begin(&folder, kept) {
            Ok(shorter) => *self = shorter,
            Err(error) => {
                // The old one may be replaced already; what is appended belongs to the one that is there.
                self.file = File::options().append(true).open(&self.path)?;
                self.length = self.file.metadata()?.len();
                return Err(error);
            }
        }
        Ok(())
    }
}

fn framed(record: &Record, into: &mut Vec<u8>) {
    let bytes = record.encode_to_vec();
    into.extend((bytes.len() as u32).to_le_bytes());
    into.extend(crc32fast::hash(&bytes).to_le_bytes());
    into.extend(bytes);
}

/// Everything before the first record that is not whole.
fn whole_records(bytes: &[u8]) -> (Kept, usize) {
    let mut kept = Kept::default();
    let mut at = if bytes.starts_with(BEGINNING) { BEGINNING.len() } else { bytes.len() };
    while let Some((record, length)) = whole_record(&bytes[at..]) {
        kept.take(record);
        at += length;
    }
    (kept, at)
}

fn whole_record(bytes: &[u8]) -> Option<(Record, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = Some(u32::from_le_bytes(*length) as usize).filter(|length| *length <= MOST_RECORD)?;
    let body = rest.get(..length)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    Some((Record::decode(body).ok()?, 8 + length))
}

/// A time that the car's clock has not reached yet, written down before it is.
pub struct ClockMark {
    path: PathBuf,
    written: Mutex<i64>,
}

impl ClockMark {
    pub fn open(folder: &Path) -> io::Result<ClockMark> {
        let path = folder.join(CLOCK_FILE);
        let written = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} does not hold a number", path.display()),
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(ClockMark { path, written: Mutex::new(written) })
    }

    pub fn written(&self) -> i64 {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a later time down; an earlier one changes nothing.
    pub fn write(&self, mark: i64) -> io::Result<i64> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if mark > *written {
            files::write(&self.path, mark.to_string().as_bytes())?;
            *written = mark;
        }
        Ok(*written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(number: i32) -> Told {
        Told {
            value: Some(Raw { int32_values: vec![number], ..Raw::default() }),
            status: PropertyStatus::Available,
        }
    }

    #[test]
    fn a_torn_end_is_dropped_wherever_it_is_torn() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = (PropertyId(0x1140_0400), AreaId(0));
        let mut kept = Kept { current: Some(1), ..Kept::default() };
        kept.footings.insert(1, Footing::default());
        let mut journal = Journal::begin(folder.path(), &kept).expect("a journal");
        let mut ends = vec![journal.length];
        for number in 1..4 {
            journal.append(&[Record::set(key, &told(number))]).expect("written");
            ends.push(journal.length);
        }
        let bytes = fs::read(folder.path().join(JOURNAL_FILE)).expect("a file");
        for length in ends[0]..=ends[3] {
            for rubbish in [0, 3, 9] {
                let mut left = bytes[..length as usize].to_vec();
                left.extend(vec![0xa5; rubbish]);
                let whole = ends.iter().filter(|end| **end <= length).count() - 1;
                let found = whole_records(&left).0.footings[&1].values.get(&key).cloned();
                assert_eq!(found, (whole > 0).then(|| told(whole as i32)), "{length}");
            }
        }
    }

    #[test]
    fn a_mark_never_goes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let mark = ClockMark::open(folder.path()).expect("a mark");
        assert_eq!(mark.write(50).expect("written"), 50);
        assert_eq!(mark.write(20).expect("written"), 50);
        assert_eq!(ClockMark::open(folder.path()).expect("a mark").written(), 50);
    }
}
