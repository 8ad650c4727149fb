//! Files that come from outside: opened without being led astray, judged before they are believed, and copied with their digest.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use paddock_model::drivers::{DriverError, DriverResult, Retry};
use ring::digest::{Context, SHA256};
use rustix::fs::{Mode, OFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::format::{self, Fault, HEADER_BYTES, Header, Walk};
use super::{Format, PIECE};
use crate::durable::{self, io_error};

/// Without waiting, should it be a pipe.
fn reading() -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK
}

/// A file that the installation itself has named.
pub(super) fn open_anywhere(path: &Path) -> DriverResult<File> {
    match rustix::fs::open(path, reading(), Mode::empty()) {
        Ok(file) => Ok(file.into()),
        Err(errno @ Errno::NOENT) => {
            let message = format!("there is no disk image {}", path.display());
            Err(DriverError::new(Retry::Later, "image_missing", message).with_cause(errno))
        }
        Err(errno) => Err(io_error(&format!("copy {} into the pool", path.display()), errno.into())),
    }
}

/// A file that somebody else has named. The kernel itself keeps to the folder: no link leads out of it, nor does a folder that
/// is swapped at this very moment.
pub(super) fn open_beneath(folder: &Path, path: &Path) -> DriverResult<File> {
    let refused = |code, why: &str, cause: Errno| {
        let message = format!("{} {why}", path.display());
        DriverError::new(Retry::Never, code, message).with_cause(cause)
    };
    let within = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = rustix::fs::open(folder, within, Mode::empty()).map_err(|errno| {
        refused("image_missing", "cannot be found: its import folder cannot be opened", errno)
    })?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&within, path, reading(), Mode::empty(), resolve) {
        Ok(file) => Ok(file.into()),
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
            Err(refused("image_missing", "is not in the import folder", errno))
        }
        Err(errno @ (Errno::LOOP | Errno::XDEV)) => {
            Err(refused("image_refused", "is a link or lies behind one; name the file itself", errno))
        }
        Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::NXIO)) => {
            Err(refused("image_refused", "cannot be read by the server", errno))
        }
        Err(errno) => Err(io_error(&format!("open {}", path.display()), errno.into())),
    }
}

pub(super) fn read_beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER_BYTES];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

pub(super) fn read_header(file: &File) -> io::Result<Result<Header, Fault>> {
    Ok(Header::read(&read_beginning(file)?))
}

/// Beginnings of formats that would be taken for a raw disk.
const OTHER_FORMATS: &[(&[u8], &str)] = &[
    (b"QFI", "an old qcow file"),
    (b"KDMV", "a VMDK file"),
    (b"COWD", "a VMDK file"),
    (b"# Disk DescriptorFile", "a VMDK file"),
    (b"conectix", "a VHD file"),
    (b"vhdxfile", "a VHDX file"),
    (b"QED\0", "a QED file"),
    (b"<<< ", "a VDI file"),
    (b"WithoutFreeSpace", "a Parallels file"),
    (b"WithouFreSpacExt", "a Parallels file"),
    (b"Bochs Virtual HD Image", "a Bochs file"),
    (b"LUKS\xba\xbe", "encrypted"),
    (b"\x1f\x8b", "compressed"),
    (b"BZh", "compressed"),
    (b"\xfd7zXZ\0", "compressed"),
    (b"\x28\xb5\x2f\xfd", "compressed"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x3a\xff\x26\xed", "an Android sparse image, which `simg2img` unpacks"),
];

/// What kind of file it is and how large the disk in it, or why it cannot be one.
pub(super) type Judged = Result<(Format, u64), Fault>;

/// What a file from outside is, or why it cannot be a layer.
pub(super) fn judge(file: &File) -> io::Result<Judged> {
    let (beginning, length) = (read_beginning(file)?, file.metadata()?.len());
    if format::is_qcow2(&beginning) {
        let header = Header::read(&beginning);
        let judged = header.and_then(|header| header.stands_alone(length).map(|()| header));
        return Ok(judged.map(|header| (Format::Qcow2, header.virtual_bytes)));
    }
    if let Some((_, kind)) = OTHER_FORMATS.iter().find(|(magic, _)| beginning.starts_with(magic)) {
        return Ok(Err(Fault(format!("it is {kind}; qcow2 and raw disks are taken"))));
    }
    judge_raw(file)
}

/// What is known to be a disk may begin with anything.
pub(super) fn judge_raw(file: &File) -> io::Result<Judged> {
    let length = file.metadata()?.len();
    if length == 0 || !length.is_multiple_of(512) || length > format::LARGEST {
        return Ok(Err(Fault(format!("a raw disk of {length} bytes is not possible"))));
    }
    Ok(Ok((Format::Raw, length)))
}

/// Follows every table of a qcow2 file that was written by a QEMU of ours.
pub(super) fn follow_tables(file: &File) -> io::Result<Result<(), Fault>> {
    follow(file, Walk::new)
}

/// As [`follow_tables`] for a file from outside, in which nothing may be wrong.
pub(super) fn follow_foreign_tables(file: &File) -> io::Result<Result<(), Fault>> {
    follow(file, Walk::strict)
}

fn follow(file: &File, walk: fn(&Header, u64) -> Result<Walk, Fault>) -> io::Result<Result<(), Fault>> {
    let length = file.metadata()?.len();
    let judged = read_header(file)?.and_then(|header| walk(&header, length).map(|walk| (header, walk)));
    match judged {
        Ok((header, walk)) => follow_with(file, &header, walk),
        Err(fault) => Ok(Err(fault)),
    }
}

fn follow_with(file: &File, header: &Header, mut walk: Walk) -> io::Result<Result<(), Fault>> {
    let table = |offset: u64, bytes: u64| {
        let mut table = vec![0; usize::try_from(bytes).unwrap_or_default()];
        file.read_exact_at(&mut table, offset).map(|()| table)
    };
    let refcounts = u64::from(header.refcount_table_clusters) << header.cluster_bits;
    let blocks = match walk.refcount_blocks(&table(header.refcount_table_offset, refcounts)?) {
        Ok(blocks) => blocks,
        Err(fault) => return Ok(Err(fault)),
    };
    if walk.is_strict() {
        for (number, offset) in blocks {
            walk.refcounts(number, &table(offset, header.cluster_bytes())?);
        }
    }
    let l2_tables = match walk.l2_tables(&table(header.l1_offset, u64::from(header.l1_entries) * 8)?) {
        Ok(tables) => tables,
        Err(fault) => return Ok(Err(fault)),
    };
    for offset in l2_tables {
        if let Err(fault) = walk.data(&table(offset, header.cluster_bytes())?) {
            return Ok(Err(fault));
        }
    }
    Ok(walk.finish())
}

/// Copies without giving holes any room; where the file system can, the copy shares the original's blocks.
pub(super) fn copy_with_digest(original: &File, copy: &File) -> io::Result<String> {
    if rustix::fs::ioctl_ficlone(copy, original).is_ok() {
        return durable::digest(FromStart { file: copy, at: 0 });
    }
    let length = original.metadata()?.len();
    copy.set_len(length)?;
    let mut context = Context::new(&SHA256);
    let zeros = vec![0; PIECE];
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let data = match rustix::fs::seek(original, SeekFrom::Data(at)) {
            Ok(offset) => offset.min(length),
            Err(Errno::NXIO) => length,
            Err(errno) => return Err(errno.into()),
        };
        while at < data {
            let hole = usize::try_from(data - at).unwrap_or(PIECE).min(PIECE);
            context.update(&zeros[..hole]);
            at += hole as u64;
        }
        let end = if data < length {
            rustix::fs::seek(original, SeekFrom::Hole(data))?.min(length)
        } else {
            length
        };
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            let read = original.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file was cut off while it was read",
                ));
            }
            let piece = &buffer[..read];
            context.update(piece);
            if piece.iter().any(|byte| *byte != 0) {
                copy.write_all_at(piece, at)?;
            }
            at += read as u64;
        }
    }
    Ok(durable::hex(context.finish().as_ref()))
}

pub(super) struct FromStart<'a> {
    pub file: &'a File,
    pub at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
