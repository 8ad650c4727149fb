//! What an APK says of itself: the package's name and version, read from the manifest in the archive.

use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail, ensure};
use miniz_oxide::inflate::decompress_to_vec_with_limit;

const MAX_DIRECTORY: u64 = 32 * 1024 * 1024;
const MAX_MANIFEST: usize = 4 * 1024 * 1024;
const MANIFEST: &[u8] = b"AndroidManifest.xml";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    pub package: String,
    pub version_code: u32,
    pub version_name: String,
}

/// Reads the manifest of the APK.
pub fn read_manifest(archive: &mut (impl Read + Seek)) -> Result<Manifest> {
    let bytes = extract(archive)?;
    let manifest = if bytes.starts_with(&[3, 0]) { parse_binary(&bytes)? } else { parse_text(&bytes)? };
    let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    let package = &manifest.package;
    ensure!(
        package.len() <= 200 && package.chars().all(legal) && package.split('.').all(|part| !part.is_empty()),
        "the manifest names no valid package"
    );
    Ok(manifest)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Result<usize> {
    let bytes = bytes.get(at..at + length).context("the file ends too early")?;
    Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
}

/// Finds the manifest in the archive's directory, which stands at its end, and unpacks it.
fn extract(archive: &mut (impl Read + Seek)) -> Result<Vec<u8>> {
    let length = archive.seek(SeekFrom::End(0))?;
    let tail = read_at(archive, length.saturating_sub(65_557), length.min(65_557))?;
    let end = tail.windows(4).rposition(|word| word == b"PK\x05\x06").context("not a ZIP archive")?;
    let (size, offset) = (number(&tail, end + 12, 4)? as u64, number(&tail, end + 16, 4)? as u64);
    ensure!(size <= MAX_DIRECTORY && offset + size <= length, "the archive's directory is broken");
    let directory = read_at(archive, offset, size)?;
    let mut at = 0;
    while directory.get(at..at + 4) == Some(b"PK\x01\x02") {
        let name_length = number(&directory, at + 28, 2)?;
        let name =
            directory.get(at + 46..at + 46 + name_length).context("the archive's directory is broken")?;
        if name == MANIFEST {
            let method = number(&directory, at + 10, 2)?;
            let packed = number(&directory, at + 20, 4)?;
            let local = number(&directory, at + 42, 4)? as u64;
            ensure!(packed <= MAX_MANIFEST, "the manifest is too large");
            let head = read_at(archive, local, 30)?;
            let skip = 30 + number(&head, 26, 2)? + number(&head, 28, 2)?;
            let data = read_at(archive, local + skip as u64, packed as u64)?;
            return match method {
                0 => Ok(data),
                8 => decompress_to_vec_with_limit(&data, MAX_MANIFEST)
                    .ok()
                    .context("the manifest cannot be unpacked"),
                _ => bail!("the manifest is packed in an unknown way"),
            };
        }
        at += 46 + name_length + number(&directory, at + 30, 2)? + number(&directory, at + 32, 2)?;
    }
    bail!("there is no AndroidManifest.xml in the archive")
}

fn read_at(archive: &mut (impl Read + Seek), offset: u64, length: u64) -> Result<Vec<u8>> {
    archive.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    archive.take(length).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 == length, "the file ends too early");
    Ok(bytes)
}

const STRING_POOL: usize = 0x0001;
const START_ELEMENT: usize = 0x0102;
const NONE: usize = 0xffff_ffff;
const STRING: u8 = 3;

/// Android's binary XML: chunks, of which the strings and the first element matter.
fn parse_binary(bytes: &[u8]) -> Result<Manifest> {
    let mut strings = Strings::default();
    let mut at = 8;
    while at + 8 <= bytes.len() {
        let size = number(bytes, at + 4, 4)?;
        ensure!(size >= 8 && at + size <= bytes.len(), "the manifest is broken");
        let chunk = &bytes[at..at + size];
        match number(chunk, 0, 2)? {
            STRING_POOL => strings = Strings::parse(chunk)?,
            START_ELEMENT => return parse_manifest(chunk, &strings),
            _ => {}
        }
        at += size;
    }
    bail!("the manifest has no element")
}

fn parse_manifest(chunk: &[u8], strings: &Strings) -> Result<Manifest> {
    ensure!(strings.get(number(chunk, 20, 4)?)? == "manifest", "the first element is not <manifest>");
    let first = 16 + number(chunk, 24, 2)?;
    let (size, count) = (number(chunk, 26, 2)?, number(chunk, 28, 2)?);
    let mut manifest = Manifest::default();
    for index in 0..count {
        let at = first + index * size;
        let name = strings.get(number(chunk, at + 4, 4)?)?;
        let raw = number(chunk, at + 8, 4)?;
        let (kind, data) = (number(chunk, at + 15, 1)? as u8, number(chunk, at + 16, 4)?);
        let text = || match (raw, kind) {
            (NONE, STRING) => strings.get(data),
            (NONE, _) => Ok(data.to_string()),
            _ => strings.get(raw),
        };
        match name.as_str() {
            "package" => manifest.package = text()?,
            "versionName" => manifest.version_name = text()?,
            "versionCode" => {
                manifest.version_code =
                    if kind == STRING { text()?.parse().unwrap_or(0) } else { data as u32 }
            }
            _ => {}
        }
    }
    Ok(manifest)
}

#[derive(Default)]
struct Strings {
    chunk: Vec<u8>,
    count: usize,
    start: usize,
    utf8: bool,
}

impl Strings {
    fn parse(chunk: &[u8]) -> Result<Strings> {
        let (count, flags, start) = (number(chunk, 8, 4)?, number(chunk, 16, 4)?, number(chunk, 20, 4)?);
        Ok(Strings { chunk: chunk.to_vec(), count, start, utf8: flags & 0x100 != 0 })
    }

    fn get(&self, index: usize) -> Result<String> {
        ensure!(index < self.count, "the manifest names a string that is not there");
        let at = self.start + number(&self.chunk, 28 + index * 4, 4)?;
        if self.utf8 {
            // First the length in letters, then in bytes; each takes two bytes when the first has its high bit set.
            let (_, at) = self.length(at, 1)?;
            let (length, at) = self.length(at, 1)?;
            let bytes = self.chunk.get(at..at + length).context("a string ends too early")?;
            return Ok(String::from_utf8_lossy(bytes).into_owned());
        }
        let (length, at) = self.length(at, 2)?;
        let bytes = self.chunk.get(at..at + length * 2).context("a string ends too early")?;
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        Ok(String::from_utf16_lossy(&units))
    }

    /// A length of one or two units, and where the next thing stands.
    fn length(&self, at: usize, unit: usize) -> Result<(usize, usize)> {
        let (first, high) = (number(&self.chunk, at, unit)?, 1 << (unit * 8 - 1));
        if first & high == 0 {
            return Ok((first, at + unit));
        }
        let second = number(&self.chunk, at + unit, unit)?;
        Ok(((first & (high - 1)) << (unit * 8) | second, at + 2 * unit))
    }
}

/// A manifest as text, which Android's own tools do not make but a test easily does.
fn parse_text(bytes: &[u8]) -> Result<Manifest> {
    let text = std::str::from_utf8(bytes).context("the manifest is neither binary XML nor text")?;
    let start = text.find("<manifest").context("the manifest has no element <manifest>")?;
    let element = text[start..].split('>').next().unwrap_or_default();
    let attribute = |name: &str| {
        let at = element.find(&format!(" {name}=\""))?;
        element[at..].split('"').nth(1).map(str::to_owned)
    };
    Ok(Manifest {
        package: attribute("package").unwrap_or_default(),
        version_code: attribute("android:versionCode").and_then(|code| code.parse().ok()).unwrap_or(0),
        version_name: attribute("android:versionName").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::{Manifest, read_manifest};

    fn words(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The binary form of `<manifest package="com.example.app" versionCode="7" versionName="1.2">`.
    fn binary_manifest() -> Vec<u8> {
        let strings = ["manifest", "package", "com.example.app", "versionCode", "versionName", "1.2"];
        let (mut offsets, mut data) = (Vec::new(), Vec::new());
        for string in strings {
            offsets.push(data.len() as u32);
            data.extend_from_slice(&(string.len() as u16).to_le_bytes());
            data.extend(string.encode_utf16().flat_map(u16::to_le_bytes));
            data.extend_from_slice(&[0, 0]);
        }
        data.resize(data.len().next_multiple_of(4), 0);
        let start = 28 + offsets.len() as u32 * 4;
        let pool = [
            words(&[0x001c_0001, start + data.len() as u32, strings.len() as u32, 0, 0, start, 0]),
            words(&offsets),
            data,
        ]
        .concat();
        let none = u32::MAX;
        let attributes = [
            words(&[none, 1, 2, 0x0300_0008, 2]),
            words(&[none, 3, none, 0x1000_0008, 7]),
            words(&[none, 4, 5, 0x0300_0008, 5]),
        ]
        .concat();
        let element = [
            words(&[0x0010_0102, 36 + attributes.len() as u32, 1, none, none, 0, 0x0014_0014, 3, 0]),
            attributes,
        ]
        .concat();
        [words(&[0x0008_0003, 8 + pool.len() as u32 + element.len() as u32]), pool, element].concat()
    }

    fn archive(name: &str, data: &[u8], method: u16) -> Vec<u8> {
        let half = |value: usize| (value as u16).to_le_bytes();
        let packed = if method == 8 { miniz_oxide::deflate::compress_to_vec(data, 6) } else { data.to_vec() };
        let sizes = words(&[0, packed.len() as u32, data.len() as u32]);
        let local = [
            b"PK\x03\x04\x14\0\0\0".as_slice(),
            &method.to_le_bytes(),
            &[0; 4],
            &sizes,
            &half(name.len()),
            &[0; 2],
            name.as_bytes(),
            &packed,
        ]
        .concat();
        let entry = [
            b"PK\x01\x02\x14\0\x14\0\0\0".as_slice(),
            &method.to_le_bytes(),
            &[0; 4],
            &sizes,
            &half(name.len()),
            &[0; 16],
            name.as_bytes(),
        ]
        .concat();
        let end = [
            b"PK\x05\x06\0\0\0\0\x01\0\x01\0".as_slice(),
            &words(&[entry.len() as u32, local.len() as u32]),
            &[0; 2],
        ]
        .concat();
        [local, entry, end].concat()
    }

    #[test]
    fn a_manifest_is_read_in_both_forms_packed_or_not() {
        let text = br#"<?xml version="1.0"?><manifest package="com.example.app" android:versionCode="7" android:versionName="1.2"></manifest>"#;
        for (data, method) in [(binary_manifest(), 0), (binary_manifest(), 8), (text.to_vec(), 8)] {
            let manifest = read_manifest(&mut Cursor::new(archive("AndroidManifest.xml", &data, method)));

            let wanted = Manifest {
                package: "com.example.app".to_owned(),
                version_code: 7,
                version_name: "1.2".to_owned(),
            };
            assert_eq!(manifest.expect("a manifest"), wanted);
        }
    }

    #[test]
    fn what_is_no_apk_is_refused_with_a_reason() {
        let evil = br#"<manifest package="../../etc">"#;
        for (bytes, reason) in [
            (Vec::new(), "not a ZIP archive"),
            (b"hello".to_vec(), "not a ZIP archive"),
            (archive("other.txt", b"", 0), "there is no AndroidManifest.xml in the archive"),
            (archive("AndroidManifest.xml", b"text", 0), "the manifest has no element <manifest>"),
            (archive("AndroidManifest.xml", evil, 0), "the manifest names no valid package"),
            (archive("AndroidManifest.xml", b"x", 9), "the manifest is packed in an unknown way"),
        ] {
            assert_eq!(read_manifest(&mut Cursor::new(bytes)).expect_err("no APK").to_string(), reason);
        }
    }

    #[test]
    fn a_damaged_apk_is_never_the_end_of_the_agent() {
        let good = archive("AndroidManifest.xml", &binary_manifest(), 0);
        for at in 0..good.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let _ = read_manifest(&mut Cursor::new(&bytes));
            }
            let _ = read_manifest(&mut Cursor::new(&good[..at]));
        }
    }
}
