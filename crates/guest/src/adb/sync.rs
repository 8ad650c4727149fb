//! Files over ADB: stat, list, push and pull, in the old form and the one with 64-bit sizes.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::connection::Stream;
use super::packet::{MAX_PAYLOAD, invalid};
use crate::device::Device;

const MAX_PATH: usize = 4096;
const MAX_CHUNK: usize = 64 * 1024;
const FILE_TYPE: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;

/// Answers requests until the host leaves or breaks the protocol.
pub fn serve(device: &Arc<Device>, stream: &Arc<Stream>) -> io::Result<()> {
    stream.accept()?;
    let to = BufWriter::with_capacity(MAX_PAYLOAD, stream.writer());
    serve_requests(&mut stream.reader(), to, |path| device.path_of(path))
}

fn serve_requests(
    from: &mut impl Read,
    mut to: impl Write,
    locate: impl Fn(&OsStr) -> PathBuf,
) -> io::Result<()> {
    loop {
        let id = match read_word(from) {
            Ok(id) => id.to_le_bytes(),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let length = read_word(from)? as usize;
        if &id == b"QUIT" {
            return Ok(());
        }
        if length > MAX_PATH {
            fail(&mut to, "the path is too long")?;
            return Err(invalid("a path is too long"));
        }
        let mut name = vec![0; length];
        from.read_exact(&mut name)?;
        let path = locate(OsStr::from_bytes(&name));
        match &id {
            b"STAT" => {
                to.write_all(b"STAT")?;
                to.write_all(&short_stat(fs::symlink_metadata(&path).ok().as_ref()))?;
            }
            b"LST2" => write_stat(&mut to, *b"LST2", &fs::symlink_metadata(&path))?,
            b"STA2" => write_stat(&mut to, *b"STA2", &fs::metadata(&path))?,
            b"LIST" => list(&mut to, &path, Form::Short)?,
            b"LIS2" => list(&mut to, &path, Form::Long)?,
            b"RECV" => pull(&mut to, &path)?,
            b"RCV2" => {
                expect(from, *b"RCV2")?;
                match read_word(from)? {
                    0 => pull(&mut to, &path)?,
                    _ => fail(&mut to, "compression is not supported")?,
                }
            }
            b"SEND" => {
                let (name, mode) = split_mode(&name);
                push(from, &mut to, &locate(OsStr::from_bytes(name)), mode)?;
            }
            b"SND2" => {
                expect(from, *b"SND2")?;
                let (mode, flags) = (read_word(from)?, read_word(from)?);
                if flags != 0 {
                    fail(&mut to, "compression is not supported")?;
                    return Err(invalid("compression was not offered"));
                }
                push(from, &mut to, &path, mode)?;
            }
            _ => {
                fail(&mut to, "unknown request")?;
                return Err(invalid("an unknown sync request"));
            }
        }
        to.flush()?;
    }
}

fn read_word(from: &mut impl Read) -> io::Result<u32> {
    let mut word = [0; 4];
    from.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}

fn expect(from: &mut impl Read, id: [u8; 4]) -> io::Result<()> {
    if read_word(from)?.to_le_bytes() == id {
        Ok(())
    } else {
        Err(invalid("the second half of a request is missing"))
    }
}

fn fail(to: &mut impl Write, why: &str) -> io::Result<()> {
    to.write_all(b"FAIL")?;
    to.write_all(&(why.len() as u32).to_le_bytes())?;
    to.write_all(why.as_bytes())?;
    to.flush()
}

/// `path,33188`: the mode is decimal and comes after the last comma.
fn split_mode(name: &[u8]) -> (&[u8], u32) {
    let parsed = name.iter().rposition(|byte| *byte == b',').and_then(|at| {
        let mode = std::str::from_utf8(&name[at + 1..]).ok()?.parse().ok()?;
        Some((&name[..at], mode))
    });
    parsed.unwrap_or((name, REGULAR | 0o644))
}

/// Mode, size, time; zeros for what is not there.
fn short_stat(metadata: Option<&fs::Metadata>) -> [u8; 12] {
    let mut bytes = [0; 12];
    if let Some(metadata) = metadata {
        let words = [metadata.mode(), metadata.size() as u32, metadata.mtime() as u32];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

fn write_stat(to: &mut impl Write, id: [u8; 4], metadata: &io::Result<fs::Metadata>) -> io::Result<()> {
    let mut bytes = id.to_vec();
    match metadata {
        Ok(found) => {
            bytes.extend_from_slice(&0u32.to_le_bytes());
            for value in [found.dev(), found.ino()] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            for value in [found.mode(), found.nlink() as u32, found.uid(), found.gid()] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            bytes.extend_from_slice(&found.size().to_le_bytes());
            for value in [found.atime(), found.mtime(), found.ctime()] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        Err(error) => {
            bytes.extend_from_slice(&(error.raw_os_error().unwrap_or(5) as u32).to_le_bytes());
            bytes.resize(LONG_STAT, 0);
        }
    }
    to.write_all(&bytes)
}

const LONG_STAT: usize = 72;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Short,
    Long,
}

fn list(to: &mut impl Write, folder: &Path, form: Form) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let metadata = fs::symlink_metadata(entry.path());
        match form {
            Form::Short => {
                let Ok(metadata) = metadata else { continue };
                to.write_all(b"DENT")?;
                to.write_all(&short_stat(Some(&metadata)))?;
            }
            Form::Long => write_stat(to, *b"DNT2", &metadata)?,
        }
        to.write_all(&(name.len() as u32).to_le_bytes())?;
        to.write_all(name.as_bytes())?;
    }
    to.write_all(b"DONE")?;
    let rest = if form == Form::Short { 16 } else { LONG_STAT };
    to.write_all(&vec![0; rest])
}

fn pull(to: &mut impl Write, path: &Path) -> io::Result<()> {
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    });
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => return fail(to, &format!("open failed: {error}")),
    };
    let mut chunk = vec![0; MAX_CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                to.write_all(b"DATA")?;
                to.write_all(&(length as u32).to_le_bytes())?;
                to.write_all(&chunk[..length])?;
            }
            Err(error) => return fail(to, &format!("read failed: {error}")),
        }
    }
    to.write_all(b"DONE\0\0\0\0")
}

/// Takes a file or a link. When it cannot be written, what the host still sends is read and thrown away before
/// it is told: it listens only then.
fn push(from: &mut impl Read, to: &mut impl Write, path: &Path, mode: u32) -> io::Result<()> {
    let mut target = Target::open(path, mode);
    let mut chunk = Vec::new();
    let modified = loop {
        let id = read_word(from)?.to_le_bytes();
        let length = read_word(from)?;
        match &id {
            b"DATA" if length as usize <= MAX_CHUNK => {
                chunk.resize(length as usize, 0);
                from.read_exact(&mut chunk)?;
                target = target.and_then(|target| target.add(&chunk));
            }
            b"DONE" => break length,
            b"DATA" => return Err(invalid("a chunk is too long")),
            _ => return Err(invalid("a push was broken off")),
        }
    };
    match target.and_then(|target| target.finish(path, mode, modified)) {
        Ok(()) => to.write_all(b"OKAY\0\0\0\0"),
        Err(error) => fail(to, &format!("couldn't create file: {error}")),
    }
}

enum Target {
    File(File),
    Link(Vec<u8>),
}

impl Target {
    fn open(path: &Path, mode: u32) -> io::Result<Target> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // A regular file is replaced, not overwritten: who has it open keeps the old one. A device is written to.
        let replaced = fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_file() || (found.is_symlink() && !path.is_dir()));
        if replaced {
            fs::remove_file(path)?;
        }
        if mode & FILE_TYPE == SYMLINK {
            return Ok(Target::Link(Vec::new()));
        }
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode & 0o777).open(path)?;
        Ok(Target::File(file))
    }

    fn add(self, chunk: &[u8]) -> io::Result<Target> {
        match self {
            Target::File(mut file) => {
                file.write_all(chunk)?;
                Ok(Target::File(file))
            }
            Target::Link(mut target) => {
                target.extend_from_slice(chunk);
                if target.len() > MAX_PATH {
                    return Err(io::Error::from(io::ErrorKind::InvalidFilename));
                }
                Ok(Target::Link(target))
            }
        }
    }

    fn finish(self, path: &Path, mode: u32, modified: u32) -> io::Result<()> {
        match self {
            Target::File(file) => {
                if file.metadata()?.is_file() {
                    file.set_permissions(Permissions::from_mode(mode & 0o777))?;
                    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(modified.into()))?;
                }
                Ok(())
            }
            Target::Link(target) => {
                let target = target.strip_suffix(b"\0").unwrap_or(&target);
                std::os::unix::fs::symlink(OsStr::from_bytes(target), path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{serve_requests, split_mode};
    use std::path::Path;

    fn request(id: &[u8; 4], data: &[u8]) -> Vec<u8> {
        [id.as_slice(), &(data.len() as u32).to_le_bytes(), data].concat()
    }

    fn answer(folder: &Path, requests: &[Vec<u8>]) -> (Vec<u8>, Result<(), String>) {
        let mut answer = Vec::new();
        let outcome =
            serve_requests(&mut requests.concat().as_slice(), &mut answer, |name| folder.join(name));
        (answer, outcome.map_err(|error| error.to_string()))
    }

    #[test]
    fn the_mode_stands_after_the_last_comma() {
        for (name, path, mode) in [
            ("/a,33188", "/a", 0o100_644),
            ("/a,b,33261", "/a,b", 0o100_755),
            ("/a", "/a", 0o100_644),
            ("/a,b", "/a,b", 0o100_644),
            (",", ",", 0o100_644),
            ("", "", 0o100_644),
        ] {
            assert_eq!(split_mode(name.as_bytes()), (path.as_bytes(), mode), "{name}");
        }
    }

    #[test]
    fn a_pushed_file_can_be_pulled() {
        let folder = tempfile::tempdir().expect("a folder");
        let push = [
            request(b"SEND", b"sub/f,33188"),
            request(b"DATA", b"hello "),
            request(b"DATA", b"world"),
            b"DONE\x10\0\0\0".to_vec(),
        ];

        let (answer, outcome) =
            answer(folder.path(), &[push.concat(), request(b"RECV", b"sub/f"), request(b"QUIT", b"")]);

        assert_eq!(outcome, Ok(()));
        assert_eq!(answer, b"OKAY\0\0\0\0DATA\x0b\0\0\0hello worldDONE\0\0\0\0");
    }

    #[test]
    fn a_push_that_cannot_be_written_is_refused_after_its_data_and_the_next_request_is_served() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("a file");
        let push = [request(b"SEND", b"file/below,33188"), request(b"DATA", b"x"), b"DONE\0\0\0\0".to_vec()]
            .concat();

        let (answer, outcome) = answer(folder.path(), &[push, request(b"STAT", b"absent")]);

        assert_eq!(outcome, Ok(()));
        assert!(answer.starts_with(b"FAIL"));
        assert!(answer.ends_with(b"STAT\0\0\0\0\0\0\0\0\0\0\0\0"));
    }

    #[test]
    fn what_breaks_the_protocol_ends_the_stream_with_a_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        for (wire, reason) in [
            (request(b"NOPE", b""), "an unknown sync request"),
            (b"STAT\xff\xff\xff\xff".to_vec(), "a path is too long"),
            (b"STAT\x05\0\0\0ab".to_vec(), "failed to fill whole buffer"),
            (
                [request(b"SEND", b"f,33188"), b"DATA\xff\xff\xff\xff".to_vec()].concat(),
                "a chunk is too long",
            ),
            ([request(b"SEND", b"f,33188"), request(b"LIST", b"/")].concat(), "a push was broken off"),
            (
                [request(b"SND2", b"f"), request(b"LIST", b"/")].concat(),
                "the second half of a request is missing",
            ),
        ] {
            let (_, outcome) = answer(folder.path(), std::slice::from_ref(&wire));
            assert_eq!(outcome, Err(reason.to_owned()), "{wire:?}");
        }
    }
}
