//! The console's log: what the device writes to its serial port, kept within bounds, each byte at its place for ever.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use paddock_model::drivers::emulator_hosts::Console;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

/// What is read at once.
const PART_BYTES: u64 = 64 << 10;
/// What was let go ends at such a boundary, where every file system can tell it from what is there.
const BLOCK: u64 = 64 << 10;
/// The consoles of so many earlier incarnations stay until the device goes, for those who have not read them yet.
const KEPT_INCARNATIONS: i64 = 2;

/// Every incarnation has a file of its own, so that its end can still be read when the next one runs.
pub fn file_name(incarnation: i64) -> String {
    format!("console-{incarnation}.log")
}

/// Gives back the room of all but the newest bytes, without moving any.
///
/// QEMU keeps the file open and appends; a hole at its beginning takes nothing away from under its hands.
pub fn trim(path: &Path, keep_bytes: u64) -> io::Result<()> {
    let facts = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts?,
    };
    if facts.blocks() * 512 <= keep_bytes + 4 * BLOCK {
        return Ok(());
    }
    let end = facts.len().saturating_sub(keep_bytes) / BLOCK * BLOCK;
    if end == 0 {
        return Ok(());
    }
    let file = File::options().write(true).open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, end) {
        // A file system without holes: all of it goes, which is better than filling the disk.
        Err(Errno::OPNOTSUPP) => file.set_len(0),
        done => Ok(done?),
    }
}

/// The bytes from this one on; `ended` where there are no more of them now.
pub fn read(path: &Path, from: u64) -> io::Result<Console> {
    let nothing = Console { bytes: Vec::new(), next: from, lost: 0, ended: true };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing),
        file => file?,
    };
    let length = file.metadata()?.len();
    // It was emptied where holes cannot be made; nobody knows how much was in it.
    let from = if from > length { 0 } else { from };
    let start = match rustix::fs::seek(&file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(Console { next: from, ..nothing }),
        // Without holes everything is data.
        Err(Errno::INVAL) => from,
        Err(error) => return Err(error.into()),
    };
    let mut bytes = vec![0; usize::try_from((length - start).min(PART_BYTES)).unwrap_or_default()];
    file.read_exact_at(&mut bytes, start)?;
    let next = start + bytes.len() as u64;
    Ok(Console { bytes, next, lost: start - from, ended: next >= length })
}

/// Removes the consoles of incarnations that are long past.
pub fn forget_old(folder: &Path, incarnation: i64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if incarnation_of(&path).is_some_and(|found| found < incarnation - KEPT_INCARNATIONS) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn incarnation_of(path: &Path) -> Option<i64> {
    let name = PathBuf::from(path.file_name()?);
    name.to_str()?.strip_prefix("console-")?.strip_suffix(".log")?.parse().ok()
}

/// The last lines of a file, for a message.
pub fn last_words(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(2048);
    let mut bytes = vec![0; usize::try_from(length - start).ok()?];
    file.read_exact_at(&mut bytes, start).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_console_is_kept_within_bounds_and_every_byte_keeps_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file_name(1));
        trim(&path, 1).expect("nothing to do");
        assert!(read(&path, 0).expect("read").ended);
        let mut writer = File::options().append(true).create(true).open(&path).expect("a file");
        let (mut at, mut lost, mut seen) = (0, 0, 0_u64);
        for round in 0..200_u32 {
            let text: Vec<u8> = (0..4096_u32).flat_map(|word| (round * 4096 + word).to_le_bytes()).collect();
            writer.write_all(&text).expect("written");
            trim(&path, 1 << 20).expect("trimmed");
            assert!(fs::metadata(&path).expect("facts").blocks() * 512 < 2 << 20);
            // A reader that comes seldom loses something, is told how much, and never sees a byte in another's place.
            if round % 90 == 89 {
                loop {
                    let part = read(&path, at).expect("read");
                    lost += part.lost;
                    assert_eq!(part.next, at + part.lost + part.bytes.len() as u64);
                    let first = (at + part.lost) / 4;
                    for (index, word) in part.bytes.chunks(4).enumerate() {
                        assert_eq!(
                            u32::from_le_bytes(word.try_into().expect("a word")),
                            first as u32 + index as u32
                        );
                    }
                    seen += part.bytes.len() as u64;
                    at = part.next;
                    if part.ended {
                        break;
                    }
                }
            }
        }
        assert!(lost > 0 && seen >= 2 << 20, "{lost} {seen}");
        assert_eq!(lost + seen, at);
    }

    #[test]
    fn consoles_of_long_ago_go() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [&file_name(1), &file_name(2), &file_name(3), "console-x.log", "device.json"] {
            fs::write(folder.path().join(name), "x").expect("written");
        }
        forget_old(folder.path(), 4).expect("forgotten");
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["console-2.log", "console-3.log", "console-x.log", "device.json"]);
    }
}
