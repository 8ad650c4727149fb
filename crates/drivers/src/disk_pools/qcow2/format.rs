//! The qcow2 format as far as a pool needs it: reading and judging a header, and making an empty overlay. No I/O.
//!
//! QEMU opens whatever file a header names. So a foreign header is believed only if it names none, and if every place in
//! the file that it points to is inside the file.

use std::fmt;

pub const MAGIC: [u8; 4] = *b"QFI\xfb";
/// As much of a file's beginning as is looked at. Known headers with their extensions and the longest name take half of it;
/// one that takes more is refused as cut off.
pub const HEADER_BYTES: usize = 4096;
/// 32 parts of 4 KiB in an extended L2 entry, which is what file systems write: a small write stays small.
pub const CLUSTER_BITS: u32 = 17;

const CLUSTER: u64 = 1 << CLUSTER_BITS;
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN_INCOMPATIBLE: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2;
const RAW_EXTERNAL_DATA: u64 = 1 << 1;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTERNAL_DATA_NAME: u32 = 0x4441_5441;
const ENCRYPTION: u32 = 0x0537_be77;
/// QEMU's own limit for the L1 table.
const MAX_L1_BYTES: u64 = 32 << 20;
const MAX_NAME: u32 = 1023;
const V2_LENGTH: usize = 72;
const V3_LENGTH: usize = 104;
/// With the compression type, as today's QEMU writes it.
const WRITTEN_LENGTH: usize = 112;
const REFCOUNT_ORDER: u32 = 4;
pub(super) const OFFSET_BITS: u64 = 0x00ff_ffff_ffff_fe00;
/// Set in an entry exactly if the cluster that it names has no other user.
pub(super) const COPIED: u64 = 1 << 63;
pub(super) const COMPRESSED: u64 = 1 << 62;
const ALL_ZERO: u64 = 1;
const L1_RESERVED: u64 = 0x7f00_0000_0000_01ff;
const L2_RESERVED: u64 = 0x3f00_0000_0000_01fe;
const REFCOUNT_TABLE_RESERVED: u64 = 0x1ff;
const MAX_REFCOUNT_ORDER: u32 = 6;
const BITMAPS: u32 = 0x2385_2875;
/// What a look at every cluster can cost in memory is bounded by their number.
const MAX_CLUSTERS: u64 = 1 << 26;
/// No image from outside is larger, and none pretends to be a larger disk: to read even a hole takes its time.
pub const LARGEST: u64 = 2 << 40;

/// Why a file is not what it should be, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

fn fault<T>(text: impl Into<String>) -> Result<T, Fault> {
    Err(Fault(text.into()))
}

/// What a file's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub virtual_bytes: u64,
    pub cluster_bits: u32,
    pub backing: Option<Backing>,
    pub encrypted: bool,
    pub snapshots: u32,
    pub snapshots_offset: u64,
    pub l1_entries: u32,
    pub l1_offset: u64,
    pub refcount_table_offset: u64,
    pub refcount_table_clusters: u32,
    pub incompatible: u64,
    pub autoclear: u64,
    pub compression: u8,
    pub refcount_order: u32,
    pub names_data_file: bool,
    pub bitmaps: bool,
}

/// The file below this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    pub name: String,
    pub format: Option<String>,
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Fault> {
    let bytes = at.checked_add(4).and_then(|end| bytes.get(at..end));
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or_else(|| fault("the header is cut off"), |bytes| Ok(u32::from_be_bytes(bytes)))
}

fn long(bytes: &[u8], at: usize) -> Result<u64, Fault> {
    Ok(u64::from(word(bytes, at)?) << 32 | u64::from(word(bytes, at.saturating_add(4))?))
}

pub fn is_qcow2(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}

impl Header {
    /// Reads a header from the first [`HEADER_BYTES`] of a file, or from all of a shorter one.
    pub fn read(bytes: &[u8]) -> Result<Header, Fault> {
        if !is_qcow2(bytes) {
            return fault("this is not a qcow2 file");
        }
        let version = word(bytes, 4)?;
        if !(2..=3).contains(&version) {
            return fault(format!("version {version} of qcow2 is not known"));
        }
        let cluster_bits = word(bytes, 20)?;
        if !(9..=21).contains(&cluster_bits) {
            return fault(format!("clusters of 2^{cluster_bits} bytes are not possible"));
        }
        let (mut incompatible, mut autoclear, mut compression, mut length) = (0, 0, 0, V2_LENGTH);
        let mut refcount_order = REFCOUNT_ORDER;
        if version == 3 {
            (incompatible, autoclear) = (long(bytes, 72)?, long(bytes, 88)?);
            refcount_order = word(bytes, 96)?;
            length = word(bytes, 100)? as usize;
            if length < V3_LENGTH || length % 8 != 0 || length > 1 << cluster_bits {
                return fault(format!("a header of {length} bytes is not possible"));
            }
            if length > V3_LENGTH {
                compression =
                    *bytes.get(V3_LENGTH).ok_or_else(|| Fault("the header is cut off".to_owned()))?;
            }
        }
        let Extensions { format, names_data_file, encryption, bitmaps } =
            Extensions::read(bytes, length, cluster_bits)?;
        Ok(Header {
            version,
            virtual_bytes: long(bytes, 24)?,
            cluster_bits,
            backing: backing(bytes, cluster_bits, format)?,
            encrypted: word(bytes, 32)? != 0 || encryption,
            snapshots: word(bytes, 60)?,
            snapshots_offset: long(bytes, 64)?,
            l1_entries: word(bytes, 36)?,
            l1_offset: long(bytes, 40)?,
            refcount_table_offset: long(bytes, 48)?,
            refcount_table_clusters: word(bytes, 56)?,
            incompatible,
            autoclear,
            compression,
            refcount_order,
            names_data_file,
            bitmaps,
        })
    }

    pub fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    pub fn extended_l2(&self) -> bool {
        self.incompatible & EXTENDED_L2 != 0
    }

    /// An L2 entry's length.
    fn entry_bytes(&self) -> u64 {
        if self.extended_l2() { 16 } else { 8 }
    }

    fn l1_bytes(&self) -> u64 {
        u64::from(self.l1_entries) * 8
    }

    /// Whether a file of this length can be a layer that stands on nothing: all that can be said without its tables.
    pub fn stands_alone(&self, file_bytes: u64) -> Result<(), Fault> {
        if let Some(backing) = &self.backing {
            return fault(format!(
                "it stands on another file, {:?}; make it whole with `qemu-img convert -O qcow2`",
                backing.name
            ));
        }
        if self.virtual_bytes > LARGEST || file_bytes > LARGEST {
            let bytes = self.virtual_bytes.max(file_bytes);
            return fault(format!("{bytes} bytes are more than the {LARGEST} that an image may have"));
        }
        if self.bitmaps {
            return fault("it has dirty bitmaps inside; leave them out with `qemu-img convert -O qcow2`");
        }
        self.is_sound(file_bytes)
    }

    /// As [`Header::stands_alone`], wherever it stands.
    pub fn is_sound(&self, file_bytes: u64) -> Result<(), Fault> {
        let unknown = self.incompatible & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return fault(format!("it uses features that are not known here (bits {unknown:#x})"));
        }
        if self.incompatible & EXTERNAL_DATA != 0
            || self.names_data_file
            || self.autoclear & RAW_EXTERNAL_DATA != 0
        {
            return fault("its data is in another file; bring it together with `qemu-img convert -O qcow2`");
        }
        if self.encrypted {
            return fault("it is encrypted");
        }
        if self.incompatible & CORRUPT != 0 {
            return fault("it is marked as corrupt");
        }
        if self.incompatible & DIRTY != 0 {
            return fault("it was not closed in order; mend it with `qemu-img check -r all`");
        }
        if self.compression > 1 || (self.compression != 0) != (self.incompatible & COMPRESSION_TYPE != 0) {
            return fault(format!("its way of compression, {}, is not known", self.compression));
        }
        if self.snapshots != 0 {
            return fault("it has snapshots inside; leave them out with `qemu-img convert -O qcow2`");
        }
        // QEMU looks at the place even if there is nothing to find.
        if !self.snapshots_offset.is_multiple_of(self.cluster_bytes()) || self.snapshots_offset >> 62 != 0 {
            return fault("its snapshots are in an impossible place");
        }
        if self.extended_l2() && self.cluster_bits < 14 {
            return fault("its clusters are too small for extended L2 entries");
        }
        if self.virtual_bytes == 0 || !self.virtual_bytes.is_multiple_of(512) {
            return fault(format!("a disk of {} bytes is not possible", self.virtual_bytes));
        }
        let covered = self.cluster_bytes() * (self.cluster_bytes() / self.entry_bytes());
        if self.l1_bytes() > MAX_L1_BYTES || u64::from(self.l1_entries) < self.virtual_bytes.div_ceil(covered)
        {
            return fault(format!("an L1 table of {} entries does not fit its disk", self.l1_entries));
        }
        self.is_inside("the L1 table", self.l1_offset, self.l1_bytes(), file_bytes)?;
        if self.refcount_order > MAX_REFCOUNT_ORDER {
            return fault(format!("refcounts of 2^{} bits are not possible", self.refcount_order));
        }
        let refcounts = u64::from(self.refcount_table_clusters) << self.cluster_bits;
        if refcounts == 0 || refcounts > MAX_L1_BYTES {
            return fault("the refcount table's size is not possible");
        }
        self.is_inside("the refcount table", self.refcount_table_offset, refcounts, file_bytes)
    }

    /// The first cluster holds the header, so nothing else begins there.
    fn is_inside(&self, what: &str, offset: u64, bytes: u64, file_bytes: u64) -> Result<(), Fault> {
        if !offset.is_multiple_of(self.cluster_bytes()) || offset == 0 {
            return fault(format!("{what} is at {offset}, where no cluster begins"));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > file_bytes) {
            return fault(format!("{what} lies outside the file, which may have been cut off"));
        }
        Ok(())
    }
}

fn backing(bytes: &[u8], cluster_bits: u32, format: Option<String>) -> Result<Option<Backing>, Fault> {
    let (offset, length) = (long(bytes, 8)?, word(bytes, 16)?);
    if offset == 0 {
        return Ok(None);
    }
    let end = offset.checked_add(u64::from(length));
    if length == 0 || length > MAX_NAME || end.is_none_or(|end| end > 1 << cluster_bits) {
        return fault("the name of the file below is in an impossible place");
    }
    let at = usize::try_from(offset).ok();
    let name = at.and_then(|at| bytes.get(at..at + length as usize));
    let name = name.and_then(|name| str::from_utf8(name).ok());
    let Some(name) = name else { return fault("the name of the file below cannot be read") };
    Ok(Some(Backing { name: name.to_owned(), format }))
}

/// What follows the header.
#[derive(Default)]
struct Extensions {
    /// Of the file below.
    format: Option<String>,
    names_data_file: bool,
    encryption: bool,
    bitmaps: bool,
}

impl Extensions {
    fn read(bytes: &[u8], mut at: usize, cluster_bits: u32) -> Result<Extensions, Fault> {
        let mut found = Extensions::default();
        let cluster = 1 << cluster_bits;
        let end = bytes.len().min(cluster);
        while at + 8 <= end {
            let (kind, length) = (word(bytes, at)?, word(bytes, at + 4)? as usize);
            let data = (at + 8).checked_add(length).and_then(|last| bytes[..end].get(at + 8..last));
            let Some(data) = data else {
                return fault("an extension of the header is cut off");
            };
            match kind {
                0 => return Ok(found),
                BACKING_FORMAT => found.format = Some(String::from_utf8_lossy(data).into_owned()),
                EXTERNAL_DATA_NAME => found.names_data_file = true,
                ENCRYPTION => found.encryption = true,
                BITMAPS => found.bitmaps = true,
                _ => {}
            }
            at += 8 + length.next_multiple_of(8);
        }
        // A file without extensions may end right behind its header; others may hold more than was looked at.
        if bytes.len() >= HEADER_BYTES && end < cluster {
            return fault("an extension of the header is cut off");
        }
        Ok(found)
    }
}

/// Follows the tables of a file from cluster to cluster and finds what lies outside, overlaps, or runs in a circle.
///
/// To be called in the order of the methods.
pub struct Walk {
    header: Header,
    file_bytes: u64,
    /// One bit a cluster of the file: it holds the header or a table.
    tables: Vec<u64>,
    refcounts: Option<Refcounts>,
}

/// How often each cluster is used, by the file's own word and by what was found.
struct Refcounts {
    told: Vec<u16>,
    found: Vec<u16>,
}

impl Walk {
    /// For a file that was written by a QEMU of ours; what may happen in the middle of a write is no fault.
    pub fn new(header: &Header, file_bytes: u64) -> Result<Walk, Fault> {
        Walk::begin(header, file_bytes, false)
    }

    /// For a file from outside: every cluster must be used as often as the file says, or less.
    pub fn strict(header: &Header, file_bytes: u64) -> Result<Walk, Fault> {
        Walk::begin(header, file_bytes, true)
    }

    fn begin(header: &Header, file_bytes: u64, strict: bool) -> Result<Walk, Fault> {
        header.is_sound(file_bytes)?;
        let clusters = file_bytes.div_ceil(header.cluster_bytes());
        let count = usize::try_from(clusters).ok().filter(|_| clusters <= MAX_CLUSTERS);
        let Some(count) = count else {
            return fault(format!(
                "{clusters} clusters are too many; make them larger with `qemu-img convert -O qcow2`"
            ));
        };
        let refcounts = strict.then(|| Refcounts { told: vec![0; count], found: vec![0; count] });
        let tables = vec![0; count.div_ceil(64)];
        let mut walk = Walk { header: header.clone(), file_bytes, tables, refcounts };
        walk.claim("the header", 0, 1)?;
        walk.claim("the L1 table", header.l1_offset, header.l1_bytes())?;
        let refcounts = u64::from(header.refcount_table_clusters) << header.cluster_bits;
        walk.claim("the refcount table", header.refcount_table_offset, refcounts)?;
        Ok(walk)
    }

    pub fn is_strict(&self) -> bool {
        self.refcounts.is_some()
    }

    fn holds_table(&self, cluster: u64) -> bool {
        let word = usize::try_from(cluster / 64).ok().and_then(|at| self.tables.get(at));
        word.is_some_and(|word| word >> (cluster % 64) & 1 == 1)
    }

    fn claim(&mut self, what: &str, offset: u64, bytes: u64) -> Result<(), Fault> {
        let first = offset >> self.header.cluster_bits;
        for cluster in first..first + bytes.div_ceil(self.header.cluster_bytes()) {
            if self.holds_table(cluster) {
                return fault(format!("{what} at {offset} overlaps another table"));
            }
            if let Some(word) = usize::try_from(cluster / 64).ok().and_then(|at| self.tables.get_mut(at)) {
                *word |= 1 << (cluster % 64);
            }
            self.count(cluster);
        }
        Ok(())
    }

    fn count(&mut self, cluster: u64) {
        let Some(refcounts) = &mut self.refcounts else { return };
        if let Some(found) = usize::try_from(cluster).ok().and_then(|at| refcounts.found.get_mut(at)) {
            *found = found.saturating_add(1);
        }
    }

    /// Whether an entry says of its cluster what the refcount says.
    fn is_flagged(&self, what: &str, entry: u64, offset: u64) -> Result<(), Fault> {
        let Some(refcounts) = &self.refcounts else { return Ok(()) };
        let cluster = usize::try_from(offset >> self.header.cluster_bits).ok();
        let told = cluster.and_then(|at| refcounts.told.get(at)).copied().unwrap_or_default();
        if (told == 1) != (entry & COPIED != 0) {
            return fault(format!("{what} at {offset} is used {told} times, and its flag says otherwise"));
        }
        Ok(())
    }

    /// Entries may have bits that nobody knows only in files of our own, which have none.
    fn has_no_other_bits(&self, what: &str, entry: u64, reserved: u64) -> Result<(), Fault> {
        if self.is_strict() && entry & reserved != 0 {
            return fault(format!("{what} has bits that mean nothing: {entry:#x}"));
        }
        Ok(())
    }

    /// The places of the refcount blocks that the refcount table names, each with its number; they hold no other table.
    pub fn refcount_blocks(&mut self, table: &[u8]) -> Result<Vec<(u64, u64)>, Fault> {
        let mut found = Vec::new();
        for (number, entry) in (0..).zip(entries(table)) {
            self.has_no_other_bits("the refcount table", entry, REFCOUNT_TABLE_RESERVED)?;
            let offset = entry & !REFCOUNT_TABLE_RESERVED;
            if offset != 0 {
                let cluster = self.header.cluster_bytes();
                self.header.is_inside("a refcount block", offset, cluster, self.file_bytes)?;
                self.claim("a refcount block", offset, cluster)?;
                found.push((number, offset));
            }
        }
        Ok(found)
    }

    /// Takes note of what a block says; those beyond the file's end say nothing of it.
    pub fn refcounts(&mut self, number: u64, block: &[u8]) {
        let Some(refcounts) = &mut self.refcounts else { return };
        let bits = 1usize << self.header.refcount_order.min(MAX_REFCOUNT_ORDER);
        let count = block.len() * 8 / bits;
        let first = usize::try_from(number).ok().and_then(|number| number.checked_mul(count));
        let Some(told) = first.and_then(|first| refcounts.told.get_mut(first..)) else { return };
        for (index, told) in told.iter_mut().take(count).enumerate() {
            let value = if bits < 8 {
                let byte = block[index * bits / 8];
                u64::from(byte) >> (index * bits % 8) & ((1 << bits) - 1)
            } else {
                let bytes = &block[index * bits / 8..(index + 1) * bits / 8];
                bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            };
            *told = u16::try_from(value).unwrap_or(u16::MAX);
        }
    }

    /// The places of the L2 tables that the L1 table names.
    pub fn l2_tables(&mut self, l1: &[u8]) -> Result<Vec<u64>, Fault> {
        let mut found = Vec::new();
        for entry in entries(l1) {
            self.has_no_other_bits("the L1 table", entry, L1_RESERVED)?;
            let offset = entry & OFFSET_BITS;
            if offset != 0 {
                let cluster = self.header.cluster_bytes();
                self.header.is_inside("an L2 table", offset, cluster, self.file_bytes)?;
                self.claim("an L2 table", offset, cluster)?;
                self.is_flagged("an L2 table", entry, offset)?;
                found.push(offset);
            } else {
                // QEMU's check takes it for a table in the place of the header.
                self.has_no_other_bits("the L1 table", entry, u64::MAX)?;
            }
        }
        Ok(found)
    }

    /// To be called once all tables are known: data must be in the file, and nowhere in a table.
    pub fn data(&mut self, l2: &[u8]) -> Result<(), Fault> {
        let mut entries = entries(l2);
        while let Some(entry) = entries.next() {
            let parts = if self.header.extended_l2() { entries.next().unwrap_or_default() } else { 0 };
            if entry & COMPRESSED != 0 {
                self.compressed_data(entry, parts)?;
            } else {
                self.plain_data(entry, parts)?;
            }
        }
        Ok(())
    }

    fn plain_data(&mut self, entry: u64, parts: u64) -> Result<(), Fault> {
        self.has_no_other_bits("an L2 table", entry, L2_RESERVED)?;
        if self.header.version == 2 || self.header.extended_l2() {
            self.has_no_other_bits("an L2 table", entry, ALL_ZERO)?;
        }
        let offset = entry & OFFSET_BITS;
        // One half of the bits says which parts are there, the other which are zeros.
        let (there, zeros) = (parts & 0xffff_ffff, parts >> 32);
        if self.is_strict() && (there & zeros != 0 || offset == 0 && there != 0) {
            return fault(format!("data at {offset} is said to be there and not to be there"));
        }
        if offset == 0 {
            return Ok(());
        }
        if !offset.is_multiple_of(self.header.cluster_bytes()) {
            return fault(format!("data at {offset}, where no cluster begins"));
        }
        self.use_clusters(offset, self.header.cluster_bytes())?;
        self.is_flagged("data", entry, offset)
    }

    fn compressed_data(&mut self, entry: u64, parts: u64) -> Result<(), Fault> {
        // The place is in the lower part of the entry; how many more sectors follow stands above it.
        let place_bits = 62 - (self.header.cluster_bits - 8);
        let offset = entry & ((1 << place_bits) - 1);
        let sectors = (entry & !(COPIED | COMPRESSED)) >> place_bits;
        if self.is_strict() && (entry & COPIED != 0 || parts != 0) {
            return fault(format!("compressed data at {offset} is flagged as if it were not"));
        }
        self.use_clusters(offset & !511, (sectors + 1) * 512)
    }

    /// The last cluster may end with the file.
    fn use_clusters(&mut self, offset: u64, bytes: u64) -> Result<(), Fault> {
        let cluster = self.header.cluster_bytes();
        let end = self.file_bytes.next_multiple_of(cluster);
        if offset >= self.file_bytes || offset.checked_add(bytes).is_none_or(|last| last > end) {
            return fault(format!("data at {offset} lies outside the file, which may have been cut off"));
        }
        for number in offset / cluster..(offset + bytes).div_ceil(cluster) {
            if self.holds_table(number) {
                return fault(format!("data at {offset} lies in a table"));
            }
            self.count(number);
        }
        Ok(())
    }

    /// Says of the whole whether anything is used more often than the file knows.
    pub fn finish(self) -> Result<(), Fault> {
        let Some(Refcounts { told, found }) = self.refcounts else { return Ok(()) };
        match told.iter().zip(&found).position(|(told, found)| found > told || *found == u16::MAX) {
            None => Ok(()),
            Some(at) => fault(format!(
                "cluster {at} is used {} times, and the file says {}; mend it with `qemu-img check -r all`",
                found[at], told[at]
            )),
        }
    }
}

/// Where a cluster is, and which of its 32 parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    pub place: u64,
    parts: u64,
}

impl Entry {
    /// The entries of an extended L2 table.
    pub fn table(bytes: &[u8]) -> Vec<Entry> {
        let mut words = entries(bytes);
        let next = || Some(Entry { place: words.next()?, parts: words.next()? });
        std::iter::from_fn(next).collect()
    }

    /// One bit a part that is in the file.
    pub fn there(self) -> u32 {
        if self.place & OFFSET_BITS == 0 { 0 } else { self.parts as u32 }
    }

    /// One bit a part that reads as zeros.
    pub fn zeros(self) -> u32 {
        (self.parts >> 32) as u32 & !self.there()
    }
}

pub fn entries(table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    table.chunks_exact(8).map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// Where a part of a disk is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// In the file, from here on.
    Data {
        offset: u64,
    },
    /// In a compressed cluster, of which as much is to be skipped once it is unpacked.
    Packed {
        offset: u64,
        bytes: u64,
        skip: usize,
    },
    Zero,
    /// In the file below.
    Below,
}

/// The header's name for a compression; any other is deflate.
pub const ZSTD: u8 = 1;

/// The place that an entry of a table names, or nothing.
pub fn place(entry: u64) -> u64 {
    entry & OFFSET_BITS
}

impl Header {
    /// How much of the disk one L2 table is about.
    pub fn l2_covers(&self) -> u64 {
        self.cluster_bytes() / self.entry_bytes() * self.cluster_bytes()
    }

    /// What an L2 table says of the disk at `at`, and how far that is so.
    pub fn part(&self, l2: &[u64], at: u64) -> (Part, u64) {
        let cluster = self.cluster_bytes();
        let words = if self.extended_l2() { 2 } else { 1 };
        let number = usize::try_from(at % self.l2_covers() / cluster).unwrap_or(usize::MAX);
        let within = at % cluster;
        let word = |more: usize| l2.get(number.saturating_mul(words) + more).copied().unwrap_or_default();
        let (entry, rest) = (word(0), cluster - within);
        if entry & COMPRESSED != 0 {
            let place_bits = 62 - (self.cluster_bits - 8);
            let offset = entry & ((1 << place_bits) - 1);
            let sectors = (entry & !(COPIED | COMPRESSED)) >> place_bits;
            let bytes = (sectors + 1) * 512 - (offset & 511);
            return (Part::Packed { offset, bytes, skip: usize::try_from(within).unwrap_or_default() }, rest);
        }
        let offset = place(entry);
        if !self.extended_l2() {
            return match offset {
                _ if self.version > 2 && entry & ALL_ZERO != 0 => (Part::Zero, rest),
                0 => (Part::Below, rest),
                offset => (Part::Data { offset: offset + within }, rest),
            };
        }
        let parts = word(1);
        let (there, zeros) = (parts & 0xffff_ffff, parts >> 32);
        let part_bytes = cluster / 32;
        let first = within / part_bytes;
        let kind = |part: u64| (there >> part & 1, zeros >> part & 1);
        let same = (first..32).take_while(|part| kind(*part) == kind(first)).count() as u64;
        let length = (first + same) * part_bytes - within;
        match kind(first) {
            (1, _) => (Part::Data { offset: offset + within }, length),
            (_, 1) => (Part::Zero, length),
            _ => (Part::Below, length),
        }
    }
}

/// An empty disk on top of another file: what is to be written where, into a file that is otherwise a hole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    pub file_bytes: u64,
    pub pieces: Vec<(u64, Vec<u8>)>,
}

/// How long the file of a disk is that nobody has written to.
pub fn empty_bytes(virtual_bytes: u64) -> u64 {
    (3 + (l1_entries(virtual_bytes) * 8).div_ceil(CLUSTER)) * CLUSTER
}

fn l1_entries(virtual_bytes: u64) -> u64 {
    virtual_bytes.div_ceil(CLUSTER * (CLUSTER / 16))
}

impl Overlay {
    pub fn refcount_table_offset(&self) -> u64 {
        CLUSTER
    }

    pub fn refcount_block_offset(&self) -> u64 {
        2 * CLUSTER
    }

    pub fn l1_offset(&self) -> u64 {
        3 * CLUSTER
    }

    /// Header, refcount table, one refcount block, then the L1 table, which is all zeros and therefore not written.
    pub fn new(virtual_bytes: u64, backing: &Backing) -> Result<Overlay, Fault> {
        if virtual_bytes == 0 || !virtual_bytes.is_multiple_of(512) {
            return fault(format!("a disk of {virtual_bytes} bytes is not possible"));
        }
        let l1_entries = l1_entries(virtual_bytes);
        let l1_bytes = l1_entries * 8;
        if l1_bytes > MAX_L1_BYTES {
            return fault(format!("a disk of {virtual_bytes} bytes is too large"));
        }
        let name = backing.name.as_bytes();
        if name.is_empty() || name.len() > MAX_NAME as usize {
            return fault("the name of the file below is too long");
        }
        // At most 3 + 256 clusters, so that one refcount block counts them all.
        let clusters = empty_bytes(virtual_bytes) / CLUSTER;
        let format = backing.format.as_deref().unwrap_or("qcow2").as_bytes();
        let name_offset = WRITTEN_LENGTH + 8 + format.len().next_multiple_of(8) + 8;

        let mut header = Vec::with_capacity(name_offset + name.len());
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&3u32.to_be_bytes());
        header.extend_from_slice(&(name_offset as u64).to_be_bytes());
        header.extend_from_slice(&(name.len() as u32).to_be_bytes());
        header.extend_from_slice(&CLUSTER_BITS.to_be_bytes());
        header.extend_from_slice(&virtual_bytes.to_be_bytes());
        header.extend_from_slice(&0u32.to_be_bytes());
        header.extend_from_slice(&(l1_entries as u32).to_be_bytes());
        header.extend_from_slice(&(3 * CLUSTER).to_be_bytes());
        header.extend_from_slice(&CLUSTER.to_be_bytes());
        header.extend_from_slice(&1u32.to_be_bytes());
        header.extend_from_slice(&[0; 12]);
        header.extend_from_slice(&EXTENDED_L2.to_be_bytes());
        header.extend_from_slice(&[0; 16]);
        header.extend_from_slice(&REFCOUNT_ORDER.to_be_bytes());
        header.extend_from_slice(&(WRITTEN_LENGTH as u32).to_be_bytes());
        header.resize(WRITTEN_LENGTH, 0);
        header.extend_from_slice(&BACKING_FORMAT.to_be_bytes());
        header.extend_from_slice(&(format.len() as u32).to_be_bytes());
        header.extend_from_slice(format);
        header.resize(name_offset, 0);
        header.extend_from_slice(name);

        let refcounts = [0u8, 1].repeat(usize::try_from(clusters).unwrap_or_default());
        let refcount_table = (2 * CLUSTER).to_be_bytes().to_vec();
        Ok(Overlay {
            file_bytes: clusters * CLUSTER,
            pieces: vec![(0, header), (CLUSTER, refcount_table), (2 * CLUSTER, refcounts)],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn on(name: &str) -> Backing {
        Backing { name: name.to_owned(), format: Some("qcow2".to_owned()) }
    }

    fn header_bytes(virtual_bytes: u64) -> (Vec<u8>, u64) {
        let overlay = Overlay::new(virtual_bytes, &on("../layers/below.qcow2")).expect("an overlay");
        (overlay.pieces[0].1.clone(), overlay.file_bytes)
    }

    /// A header that stands alone.
    fn alone() -> (Vec<u8>, u64) {
        let (mut bytes, length) = header_bytes(2 << 30);
        bytes[8..20].fill(0);
        (bytes, length)
    }

    #[test]
    fn what_was_written_is_read_again() {
        for virtual_bytes in [512, 2 << 30, 1 << 40, 4 << 50] {
            let (bytes, length) = header_bytes(virtual_bytes);
            let header = Header::read(&bytes).expect("a header");

            assert_eq!(header.virtual_bytes, virtual_bytes);
            assert_eq!(header.backing, Some(on("../layers/below.qcow2")));
            assert!(header.extended_l2());
            assert_eq!(header.is_sound(length), Ok(()));
        }
    }

    #[test]
    fn an_impossible_disk_is_refused() {
        for virtual_bytes in [0, 511, u64::MAX - 511] {
            assert!(Overlay::new(virtual_bytes, &on("x")).is_err(), "{virtual_bytes}");
        }
        assert!(Overlay::new(512, &on("")).is_err());
        assert!(Overlay::new(512, &on(&"x".repeat(1024))).is_err());
    }

    #[test]
    fn whatever_would_open_another_file_or_leave_this_one_is_refused() {
        let (good, length) = alone();
        assert_eq!(Header::read(&good).and_then(|header| header.stands_alone(length)), Ok(()));
        type Change = fn(&mut Vec<u8>);
        let cases: [(&str, Change); 19] = [
            ("not a qcow2", |bytes| bytes[0] = 0),
            ("version 4", |bytes| bytes[7] = 4),
            ("clusters of 2^63", |bytes| bytes[23] = 63),
            ("stands on another file", |bytes| {
                bytes[8..16].copy_from_slice(&136u64.to_be_bytes());
                bytes[16..20].copy_from_slice(&4u32.to_be_bytes());
            }),
            ("impossible place", |bytes| {
                bytes[8..16].fill(0xff);
                bytes[19] = 4;
            }),
            ("encrypted", |bytes| bytes[35] = 1),
            ("snapshots inside", |bytes| bytes[63] = 1),
            ("features that are not known", |bytes| bytes[79] |= 1 << 5),
            ("in another file", |bytes| bytes[79] |= 1 << 2),
            ("marked as corrupt", |bytes| bytes[79] |= 1 << 1),
            ("not closed in order", |bytes| bytes[79] |= 1),
            ("way of compression", |bytes| bytes[104] = 1),
            ("a disk of 0 bytes", |bytes| bytes[24..32].fill(0)),
            ("does not fit its disk", |bytes| bytes[27] = 1),
            ("outside the file", |bytes| bytes[40] = 1),
            ("no cluster begins", |bytes| bytes[47] = 1),
            ("refcounts of 2^7", |bytes| bytes[99] = 7),
            ("more than the 2199023255552", |bytes| {
                bytes[24..32].copy_from_slice(&(LARGEST + 512).to_be_bytes());
            }),
            ("dirty bitmaps", |bytes| bytes[112..116].copy_from_slice(&BITMAPS.to_be_bytes())),
        ];
        for (expected, change) in cases {
            let mut bytes = good.clone();
            change(&mut bytes);
            let refused =
                Header::read(&bytes).and_then(|header| header.stands_alone(length)).expect_err(expected);
            assert!(refused.0.contains(expected), "{expected}: {refused}");
        }
    }

    #[test]
    fn a_file_that_names_its_data_file_is_refused_whatever_its_bits_say() {
        let (mut bytes, length) = alone();
        bytes[112..116].copy_from_slice(&EXTERNAL_DATA_NAME.to_be_bytes());

        let refused =
            Header::read(&bytes).and_then(|header| header.stands_alone(length)).expect_err("refused");

        assert!(refused.0.contains("another file"), "{refused}");
    }

    #[test]
    fn tables_that_overlap_or_lead_outside_are_found() {
        let (bytes, length) = alone();
        let header = Header::read(&bytes).expect("a header");
        let walk = || Walk::new(&header, length + 2 * CLUSTER).expect("a walk");
        let end = length + 2 * CLUSTER;
        for (l1, expected) in [
            (vec![3 * CLUSTER], "overlaps"),
            (vec![CLUSTER], "overlaps"),
            (vec![length, length], "overlaps"),
            (vec![length + 512], "no cluster begins"),
            (vec![end], "outside"),
        ] {
            let table: Vec<u8> = l1.iter().flat_map(|entry| entry.to_be_bytes()).collect();
            let refused = walk().l2_tables(&table).expect_err(expected);
            assert!(refused.0.contains(expected), "{l1:?}: {refused}");
        }
        for (entry, expected) in [
            (3 * CLUSTER, "in a table"),
            (end, "outside"),
            (length + 512, "no cluster begins"),
            (1 << 62, "in a table"),
            // Compressed, from the end of the one before on into the first table.
            (1 << 62 | 1 << 53 | (CLUSTER - 512), "in a table"),
        ] {
            let refused = walk().data(&[entry.to_be_bytes(), [0; 8]].concat()).expect_err(expected);
            assert!(refused.0.contains(expected), "{entry:#x}: {refused}");
        }
        assert_eq!(walk().l2_tables(&length.to_be_bytes()), Ok(vec![length]));
        // A flag without a place; QEMU's check takes it for a table where the header is.
        let strict = Walk::strict(&header, end).expect("a walk").l2_tables(&COPIED.to_be_bytes());
        assert!(strict.expect_err("a flag alone").0.contains("bits that mean nothing"));
        assert_eq!(walk().l2_tables(&COPIED.to_be_bytes()), Ok(vec![]));
        assert_eq!(walk().data(&[length.to_be_bytes(), [0xff; 8]].concat()), Ok(()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), length: u64) {
            let _ = Header::read(&bytes).and_then(|header| header.stands_alone(length));
        }

        /// Bytes of a good header changed at a few places get further than arbitrary ones.
        #[test]
        fn a_damaged_header_never_panics(changes in proptest::collection::vec((0usize..160, any::<u8>()), 1..6), length in 0u64..1 << 24, table in proptest::collection::vec(any::<u64>(), 0..64)) {
            let (mut bytes, _) = header_bytes(2 << 30);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Ok(header) = Header::read(&bytes) {
                let _ = header.stands_alone(length);
                if let Ok(mut walk) = Walk::new(&header, length) {
                    let table: Vec<u8> = table.iter().flat_map(|entry| entry.to_be_bytes()).collect();
                    let _ = walk.refcount_blocks(&table);
                    let _ = walk.l2_tables(&table);
                    let _ = walk.data(&table);
                }
            }
        }

        #[test]
        fn any_overlay_is_sound(sectors in 1u64..1 << 43, name in "[a-z_./]{1,200}") {
            let overlay = Overlay::new(sectors * 512, &on(&name)).expect("an overlay");
            let header = Header::read(&overlay.pieces[0].1).expect("a header");
            prop_assert_eq!(header.is_sound(overlay.file_bytes), Ok(()));
            prop_assert_eq!(header.backing.map(|backing| backing.name), Some(name));
        }
    }
}
