//! What a device has written, cluster by cluster: read from its layers, and put together into one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::format::{self, Backing, COMPRESSED, COPIED, Entry, Fault, Header, OFFSET_BITS, Overlay};
use super::{fill, read_header};

pub const CLUSTER: u64 = 1 << format::CLUSTER_BITS;
/// Of a cluster; each is there, zeros, or left to the file below.
const PARTS: usize = 32;
const PART: usize = CLUSTER as usize / PARTS;
/// An L2 table fills a cluster.
const ENTRIES: u64 = CLUSTER / 16;
/// Refcounts of two bytes in a cluster.
const COUNTED: u64 = CLUSTER / 2;

/// One cluster as a device sees it, as far as it was written to; `bytes` are zeros wherever nothing is there.
#[derive(PartialEq, Eq)]
pub struct Cluster {
    /// One bit a part.
    there: u32,
    zeros: u32,
    bytes: Vec<u8>,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster { there: 0, zeros: 0, bytes: vec![0; CLUSTER as usize] }
    }

    fn clear(&mut self) {
        (self.there, self.zeros) = (0, 0);
        self.bytes.fill(0);
    }

    pub fn is_untouched(&self) -> bool {
        self.there == 0 && self.zeros == 0
    }

    /// Parts that hold nothing but zeros need no room, and it makes no difference who finds that out.
    fn tidy(&mut self) {
        for part in parts(self.there) {
            if self.bytes[part * PART..(part + 1) * PART].iter().all(|byte| *byte == 0) {
                self.there &= !(1 << part);
                self.zeros |= 1 << part;
            }
        }
    }
}

fn parts(bits: u32) -> impl Iterator<Item = usize> {
    (0..PARTS).filter(move |part| bits >> part & 1 == 1)
}

/// Neighbours among the parts, as first and beyond the last.
fn runs(bits: u32) -> impl Iterator<Item = (usize, usize)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let first = (next..PARTS).find(|part| bits >> part & 1 == 1)?;
        let end = (first..PARTS).find(|part| bits >> part & 1 == 0).unwrap_or(PARTS);
        next = end;
        Some((first, end))
    })
}

/// A layer that a device has written, and the place of everything in it.
pub struct Image {
    file: File,
    l1: Vec<u64>,
    /// The L2 table that was last looked at.
    table: Option<(usize, Vec<Entry>)>,
}

impl Image {
    /// Only the kind of file that is written here: what else there is came from outside, and stays as it is.
    pub fn open(file: File, header: &Header) -> io::Result<Result<Image, Fault>> {
        if header.cluster_bits != format::CLUSTER_BITS || !header.extended_l2() {
            return Ok(Err(Fault("it was not written by a device of ours".to_owned())));
        }
        let mut bytes = vec![0; header.l1_entries as usize * 8];
        file.read_exact_at(&mut bytes, header.l1_offset)?;
        let l1 = format::entries(&bytes).map(|entry| entry & OFFSET_BITS).collect();
        Ok(Ok(Image { file, l1, table: None }))
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn into_file(self) -> File {
        self.file
    }

    fn entry(&mut self, cluster: u64) -> io::Result<Entry> {
        let (number, at) = (index(cluster / ENTRIES), index(cluster % ENTRIES));
        if self.l1.get(number).is_none_or(|offset| *offset == 0) {
            return Ok(Entry::default());
        }
        if self.table.as_ref().is_none_or(|(known, _)| *known != number) {
            let mut bytes = vec![0; CLUSTER as usize];
            self.file.read_exact_at(&mut bytes, self.l1[number])?;
            self.table = Some((number, Entry::table(&bytes)));
        }
        Ok(self.table.as_ref().map_or_else(Entry::default, |(_, table)| table[at]))
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The next cluster from this one on that one of the files may hold something of.
pub fn next_touched(images: &[Image], mut cluster: u64, end: u64) -> u64 {
    while cluster < end {
        let table = index(cluster / ENTRIES);
        if images.iter().any(|image| image.l1.get(table).is_some_and(|offset| *offset != 0)) {
            return cluster;
        }
        cluster = (cluster / ENTRIES + 1) * ENTRIES;
    }
    end
}

/// What a device sees of a cluster through these files, the topmost first; what none of them holds is left to whatever is below.
/// Gives how many bytes were read.
pub fn read_through(images: &mut [Image], number: u64, into: &mut Cluster) -> io::Result<Result<u64, Fault>> {
    into.clear();
    let mut undecided = u32::MAX;
    let mut read = 0;
    for image in images {
        let entry = image.entry(number)?;
        if entry.place & COMPRESSED != 0 {
            return Ok(Err(Fault(format!("cluster {number} is compressed"))));
        }
        let (there, zeros) = (entry.there() & undecided, entry.zeros() & undecided);
        for (first, end) in runs(there) {
            let offset = (entry.place & OFFSET_BITS) + (first * PART) as u64;
            read_or_zeros(&image.file, &mut into.bytes[first * PART..end * PART], offset)?;
            read += ((end - first) * PART) as u64;
        }
        into.there |= there;
        into.zeros |= zeros;
        undecided &= !(there | zeros);
        if undecided == 0 {
            break;
        }
    }
    into.tidy();
    Ok(Ok(read))
}

/// A file may end before its last cluster does.
fn read_or_zeros(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], offset + length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    bytes[length..].fill(0);
    Ok(())
}

/// A file on its way to becoming a layer: clusters one after another, in the order in which they lie on the disk.
pub struct Writer {
    file: File,
    overlay: Overlay,
    l1: Vec<u64>,
    /// The L2 table that is being filled, by its number.
    table: Option<(usize, Vec<u8>)>,
    /// How many clusters of the file are taken.
    taken: u64,
    written: u64,
}

impl Writer {
    pub fn new(file: File, virtual_bytes: u64, below: &Backing) -> io::Result<Result<Writer, Fault>> {
        let overlay = match Overlay::new(virtual_bytes, below) {
            Ok(overlay) => overlay,
            Err(fault) => return Ok(Err(fault)),
        };
        fill(&file, &overlay)?;
        let tables = index(virtual_bytes.div_ceil(CLUSTER * ENTRIES));
        let taken = overlay.file_bytes / CLUSTER;
        Ok(Ok(Writer { file, overlay, l1: vec![0; tables], table: None, taken, written: 0 }))
    }

    pub fn written(&self) -> u64 {
        self.written
    }

    fn take(&mut self) -> u64 {
        self.taken += 1;
        (self.taken - 1) * CLUSTER
    }

    pub fn add(&mut self, number: u64, cluster: &Cluster) -> io::Result<()> {
        if cluster.is_untouched() {
            return Ok(());
        }
        let (table, at) = (index(number / ENTRIES), index(number % ENTRIES) * 16);
        if self.table.as_ref().is_none_or(|(filling, _)| *filling != table) {
            self.end_table()?;
            self.table = Some((table, vec![0; CLUSTER as usize]));
        }
        let mut place = 0;
        if cluster.there != 0 {
            let offset = self.take();
            for (first, end) in runs(cluster.there) {
                let bytes = &cluster.bytes[first * PART..end * PART];
                self.file.write_all_at(bytes, offset + (first * PART) as u64)?;
                self.written += bytes.len() as u64;
            }
            place = offset | COPIED;
        }
        if let Some((_, filling)) = &mut self.table {
            let parts = u64::from(cluster.zeros) << 32 | u64::from(cluster.there);
            filling[at..at + 8].copy_from_slice(&place.to_be_bytes());
            filling[at + 8..at + 16].copy_from_slice(&parts.to_be_bytes());
        }
        Ok(())
    }

    fn end_table(&mut self) -> io::Result<()> {
        let Some((number, table)) = self.table.take() else { return Ok(()) };
        let offset = self.take();
        self.l1[number] = offset | COPIED;
        self.write_sparsely(&table, offset)
    }

    /// The rest of the file is a hole already.
    fn write_sparsely(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        for (number, page) in (0u64..).zip(bytes.chunks(PART)) {
            if page.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(page, offset + number * PART as u64)?;
                self.written += page.len() as u64;
            }
        }
        Ok(())
    }

    /// The tables that say where everything is. From here on it is a disk that stands on another file.
    pub fn finish(mut self) -> io::Result<File> {
        self.end_table()?;
        let l1: Vec<u8> = self.l1.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        self.write_sparsely(&l1, self.overlay.l1_offset())?;
        // The first block of refcounts has its place; each further one is counted too.
        let mut blocks = vec![self.overlay.refcount_block_offset()];
        while blocks.len() as u64 * COUNTED < self.taken {
            blocks.push(self.take());
        }
        for (number, offset) in (0u64..).zip(&blocks) {
            let counted = (self.taken - number * COUNTED).min(COUNTED);
            self.write_sparsely(&[0u8, 1].repeat(index(counted)), *offset)?;
        }
        let table: Vec<u8> = blocks.iter().flat_map(|offset| offset.to_be_bytes()).collect();
        self.write_sparsely(&table, self.overlay.refcount_table_offset())?;
        self.file.set_len(self.taken * CLUSTER)?;
        Ok(self.file)
    }
}

/// Opens a file that was just finished as whoever comes next would.
pub fn reopen(file: File) -> io::Result<Result<Image, Fault>> {
    match read_header(&file)? {
        Ok(header) => Image::open(file, &header),
        Err(fault) => Ok(Err(fault)),
    }
}
