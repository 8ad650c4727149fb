//! What a chain of layers holds, read in process: which file has which part of the disk, and the bytes themselves.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use paddock_model::drivers::disk_pools::DiskContent;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::LayerId;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::format::{self, Header, Part};
use super::{layer_below, read_header};
use crate::durable::io_error;

pub struct Content {
    lineage: Vec<LayerId>,
    images: Vec<Image>,
}

/// One file of a chain.
pub struct Image {
    file: File,
    bytes: u64,
    tables: Option<Tables>,
}

struct Tables {
    header: Header,
    l1: Vec<u64>,
    /// The L2 table that was last looked at.
    l2: Option<(usize, Vec<u64>)>,
    /// The compressed cluster that was last unpacked, by its place in the file.
    unpacked: Option<(u64, Vec<u8>)>,
}

impl Image {
    pub fn open(file: File, qcow2: bool) -> io::Result<Image> {
        if !qcow2 {
            let bytes = file.metadata()?.len();
            return Ok(Image { file, bytes, tables: None });
        }
        let header = read_header(&file)?.map_err(io::Error::other)?;
        header.is_sound(file.metadata()?.len()).map_err(io::Error::other)?;
        let l1 = table(&file, header.l1_offset, u64::from(header.l1_entries) * 8)?;
        let bytes = header.virtual_bytes;
        Ok(Image { file, bytes, tables: Some(Tables { header, l1, l2: None, unpacked: None }) })
    }

    /// The layer that this one stands on.
    pub fn below(&self) -> Option<LayerId> {
        layer_below(&self.tables.as_ref()?.header)
    }

    /// What the disk's part that begins at `at` is, and how far that is so.
    fn part(&mut self, at: u64) -> io::Result<(Part, u64)> {
        let left = self.bytes.saturating_sub(at);
        if left == 0 {
            return Ok((Part::Zero, u64::MAX));
        }
        let Some(tables) = &mut self.tables else { return Ok((Part::Data { offset: at }, left)) };
        let (part, length) = tables.part(&self.file, at)?;
        Ok((part, length.min(left)))
    }

    fn read(&mut self, part: &Part, into: &mut [u8]) -> io::Result<()> {
        match (part, &mut self.tables) {
            (Part::Data { offset }, _) => read_to_end_of_file(&self.file, *offset, into),
            (Part::Packed { offset, bytes, skip }, Some(tables)) => {
                let unpacked = tables.unpack(&self.file, *offset, *bytes)?;
                let found = unpacked.get(*skip..).and_then(|rest| rest.get(..into.len()));
                into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            _ => {
                into.fill(0);
                Ok(())
            }
        }
    }
}

/// A cluster at the end may be shorter than it pretends; what is missing is zero.
fn read_to_end_of_file(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match file.read_at(into, offset)? {
            0 => {
                into.fill(0);
                break;
            }
            read => {
                offset += read as u64;
                into = &mut into[read..];
            }
        }
    }
    Ok(())
}

fn table(file: &File, offset: u64, bytes: u64) -> io::Result<Vec<u64>> {
    let mut found = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut found, offset)?;
    Ok(format::entries(&found).collect())
}

impl Tables {
    fn part(&mut self, file: &File, at: u64) -> io::Result<(Part, u64)> {
        let covered = self.header.l2_covers();
        let number = usize::try_from(at / covered).map_err(io::Error::other)?;
        let rest = covered - at % covered;
        let offset = self.l1.get(number).map_or(0, |entry| format::place(*entry));
        if offset == 0 {
            return Ok((Part::Below, rest));
        }
        if self.l2.as_ref().is_none_or(|(known, _)| *known != number) {
            self.l2 = Some((number, table(file, offset, self.header.cluster_bytes())?));
        }
        let entries = self.l2.as_ref().map_or(&[][..], |(_, entries)| entries);
        Ok(self.header.part(entries, at))
    }

    fn unpack(&mut self, file: &File, offset: u64, bytes: u64) -> io::Result<&[u8]> {
        let known = self.unpacked.take().filter(|(known, _)| *known == offset);
        let unpacked = match known {
            Some((_, unpacked)) => unpacked,
            None => {
                let mut packed = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
                read_to_end_of_file(file, offset, &mut packed)?;
                let mut unpacked = vec![0; usize::try_from(self.header.cluster_bytes()).unwrap_or_default()];
                if self.header.compression == format::ZSTD {
                    zstd::stream::read::Decoder::new(&packed[..])?.read_exact(&mut unpacked)?;
                } else {
                    flate2::read::DeflateDecoder::new(&packed[..]).read_exact(&mut unpacked)?;
                }
                unpacked
            }
        };
        Ok(&self.unpacked.insert((offset, unpacked)).1)
    }
}

impl Content {
    /// The uppermost first.
    pub fn new(lineage: Vec<(LayerId, Image)>) -> Content {
        let (lineage, images) = lineage.into_iter().unzip();
        Content { lineage, images }
    }

    /// Which file has the part of the disk that begins at `at`; none if it is zero.
    fn find(&mut self, at: u64, most: u64) -> io::Result<(Option<usize>, Part, u64)> {
        let mut length = most;
        for (number, image) in self.images.iter_mut().enumerate() {
            let (part, more) = image.part(at)?;
            length = length.min(more);
            match part {
                Part::Below => {}
                Part::Zero => return Ok((None, Part::Zero, length)),
                part => return Ok((Some(number), part, length)),
            }
        }
        Ok((None, Part::Zero, length))
    }

    fn read_all(&mut self, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let (number, part, length) = self.find(at, into.len() as u64)?;
            let (piece, rest) = into.split_at_mut(usize::try_from(length).map_err(io::Error::other)?);
            match number {
                Some(number) => self.images[number].read(&part, piece)?,
                None => piece.fill(0),
            }
            at += length;
            into = rest;
        }
        Ok(())
    }
}

impl Image {
    /// Adds what this file says of the disk; where nothing is below, it need not say that something is zero.
    fn add_written(&mut self, zeros_too: bool, end: u64, found: &mut Vec<Range<u64>>) -> io::Result<()> {
        let end = end.min(self.bytes);
        if self.tables.is_none() && !zeros_too {
            return add_data(&self.file, end, found);
        }
        let mut at = 0;
        while at < end {
            let (part, length) = self.part(at)?;
            let next = at.saturating_add(length).min(end);
            match part {
                Part::Below => {}
                Part::Zero if !zeros_too => {}
                _ => add(found, at..next),
            }
            at = next;
        }
        Ok(())
    }
}

/// What is no hole.
fn add_data(file: &File, end: u64, found: &mut Vec<Range<u64>>) -> io::Result<()> {
    let mut at = 0;
    while at < end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
        add(found, data.min(end)..hole.min(end));
        at = hole;
    }
    Ok(())
}

fn add(found: &mut Vec<Range<u64>>, more: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == more.start => last.end = more.end,
        _ if more.is_empty() => {}
        _ => found.push(more),
    }
}

/// In order and apart.
fn join(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn failed(error: io::Error) -> DriverError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            let message = "a layer is damaged: its tables lead nowhere";
            DriverError::new(Retry::Never, "layer_damaged", message).with_cause(error)
        }
        _ => io_error("read a disk", error),
    }
}

impl DiskContent for Content {
    fn bytes(&self) -> u64 {
        self.images.first().map_or(0, |image| image.bytes)
    }

    fn lineage(&self) -> &[LayerId] {
        &self.lineage
    }

    fn written(&mut self, since: Option<LayerId>) -> DriverResult<Vec<Range<u64>>> {
        let end = self.bytes();
        let above = match since {
            None => self.images.len(),
            Some(layer) => self.lineage.iter().position(|known| *known == layer).ok_or_else(|| {
                DriverError::new(Retry::Never, "other_lineage", format!("{layer} is not below this disk"))
            })?,
        };
        let mut found = Vec::new();
        for image in &mut self.images[..above] {
            image.add_written(since.is_some(), end, &mut found).map_err(failed)?;
        }
        Ok(join(found))
    }

    fn is_zero(&mut self, range: Range<u64>) -> DriverResult<bool> {
        let mut at = range.start;
        while at < range.end {
            let (number, _, length) = self.find(at, range.end - at).map_err(failed)?;
            if number.is_some() {
                return Ok(false);
            }
            at += length;
        }
        Ok(true)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> DriverResult<()> {
        self.read_all(at, into).map_err(failed)
    }
}
