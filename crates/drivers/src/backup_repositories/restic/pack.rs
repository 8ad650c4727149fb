//! Packs: many sealed blobs in one object, with a sealed list of them at the end.

use paddock_model::drivers::DriverResult;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::crypto::Key;
use crate::durable::hex;

/// An object of this size is sent on its way.
pub const PACK_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 32]);

impl Id {
    pub fn of(bytes: &[u8]) -> Id {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Id(id)
    }

    pub fn parse(text: &str) -> Option<Id> {
        let mut id = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (byte, at) in id.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
        }
        Some(Id(id))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Id::parse(&text).ok_or_else(|| serde::de::Error::custom("no identifier"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Data,
    Tree,
}

/// A blob in a pack, as an index tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedBlob {
    pub id: Id,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub offset: u32,
    pub length: u32,
    /// Only of one that is compressed.
    #[serde(rename = "uncompressed_length", default, skip_serializing_if = "is_zero")]
    pub uncompressed: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedPack {
    pub id: Id,
    pub blobs: Vec<PackedBlob>,
}

impl IndexedPack {
    /// As long as the object must be.
    pub fn length(&self) -> u64 {
        let header: usize = self.blobs.iter().map(|blob| entry_bytes(blob.uncompressed)).sum();
        let blobs: u64 = self.blobs.iter().map(|blob| u64::from(blob.length)).sum();
        blobs + (header + super::crypto::OVERHEAD + 4) as u64
    }
}

pub fn object(pack: Id) -> String {
    let name = pack.to_string();
    format!("data/{}/{name}", &name[..2])
}

const fn entry_bytes(uncompressed: u32) -> usize {
    if uncompressed == 0 { 1 + 4 + 32 } else { 1 + 4 + 4 + 32 }
}

/// A pack that is being filled.
pub struct Packer {
    kind: Kind,
    bytes: Vec<u8>,
    blobs: Vec<PackedBlob>,
}

impl Packer {
    pub fn new(kind: Kind) -> Packer {
        Packer { kind, bytes: Vec::new(), blobs: Vec::new() }
    }

    /// A blob that is sealed already.
    pub fn add(&mut self, id: Id, sealed: &[u8], uncompressed: u32) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(sealed);
        self.list(id, at, uncompressed);
    }

    pub fn seal(&mut self, key: &Key, id: Id, plain: &[u8], uncompressed: u32) -> DriverResult<()> {
        let at = self.bytes.len();
        key.seal_onto(&mut self.bytes, plain)?;
        self.list(id, at, uncompressed);
        Ok(())
    }

    fn list(&mut self, id: Id, at: usize, uncompressed: u32) {
        let (offset, length) = (short(at), short(self.bytes.len() - at));
        self.blobs.push(PackedBlob { id, kind: self.kind, offset, length, uncompressed });
    }

    /// All that is in another of the same kind.
    pub fn absorb(&mut self, other: Packer) {
        let at = short(self.bytes.len());
        self.bytes.extend_from_slice(&other.bytes);
        self.blobs
            .extend(other.blobs.into_iter().map(|blob| PackedBlob { offset: blob.offset + at, ..blob }));
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= PACK_BYTES
    }

    /// The object, and what an index says of it; nothing if nothing is in it. An empty one takes its place.
    pub fn finish(&mut self, key: &Key) -> DriverResult<Option<(Vec<u8>, IndexedPack)>> {
        let Packer { mut bytes, blobs, .. } = std::mem::replace(self, Packer::new(self.kind));
        if blobs.is_empty() {
            return Ok(None);
        }
        let mut header = Vec::new();
        for blob in &blobs {
            let compressed = blob.uncompressed != 0;
            header.push(u8::from(blob.kind == Kind::Tree) | u8::from(compressed) << 1);
            header.extend_from_slice(&blob.length.to_le_bytes());
            if compressed {
                header.extend_from_slice(&blob.uncompressed.to_le_bytes());
            }
            header.extend_from_slice(&blob.id.0);
        }
        let at = bytes.len();
        key.seal_onto(&mut bytes, &header)?;
        let length = short(bytes.len() - at);
        bytes.extend_from_slice(&length.to_le_bytes());
        let id = Id::of(&bytes);
        Ok(Some((bytes, IndexedPack { id, blobs })))
    }
}

/// A pack is far smaller than what this can say.
fn short(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
