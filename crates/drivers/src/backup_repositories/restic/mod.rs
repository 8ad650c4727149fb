//! A repository in restic's format, version 2: blobs by the hash of their content, compressed, sealed, many to an object.
//!
//! A disk is one file, `disk.raw`, cut into pieces of the same size. So a piece that a layer has not touched is the same piece
//! as below, and need not be read again: its name is taken from the backup that has it.
//!
//! Objects are written in this order: packs, the index that names them, the backup that needs them. Whoever is killed
//! in between leaves packs that the next one finds by their index, or that the next prune removes.

pub mod crypto;
mod locks;
mod pack;
mod prune;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use serde::{Deserialize, Serialize};

use self::crypto::{Key, damaged};
pub(crate) use self::pack::Id;
use self::pack::{IndexedPack, Kind, PackedBlob};
use super::objects::Objects;

pub use self::locks::Lock;
pub use self::reading::Reading;
pub use self::writing::Writing;

/// A multiple of the clusters of all layers, small enough that a small change costs little.
pub const PIECE: usize = 256 << 10;
/// A higher one makes little less of a disk, and takes longer.
const LEVEL: i32 = 1;
/// What a compressed file, such as an index, begins with.
const COMPRESSED_FILE: u8 = 2;
/// Irreducible, as restic wants it to be. It cuts files at their content, which we do not do.
const POLYNOMIAL: &str = "3da3358b4dc173";

const DISK: &str = "disk.raw";
const ABOUT: &str = "snapshot.json";

#[derive(Serialize, Deserialize)]
struct Config {
    version: u32,
    id: String,
    chunker_polynomial: String,
}

#[derive(Serialize, Deserialize)]
struct IndexFile {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    supersedes: Vec<Id>,
    packs: Vec<IndexedPack>,
}

/// A backup, as `restic snapshots` shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotFile {
    pub time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    pub tree: Id,
    pub paths: Vec<String>,
    pub hostname: String,
    pub username: String,
    #[serde(default)]
    pub tags: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Serialize, Deserialize)]
struct Node {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mode: u32,
    mtime: String,
    atime: String,
    ctime: String,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    links: u64,
    #[serde(default)]
    content: Option<Vec<Id>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subtree: Option<Id>,
}

/// Where a blob is.
#[derive(Debug, Clone, Copy)]
struct Place {
    pack: Id,
    offset: u32,
    length: u32,
    uncompressed: u32,
}

impl Place {
    fn of(pack: Id, blob: &PackedBlob) -> Place {
        Place { pack, offset: blob.offset, length: blob.length, uncompressed: blob.uncompressed }
    }
}

#[derive(Default)]
struct Index {
    /// The files that it was read from.
    names: HashSet<String>,
    places: HashMap<(bool, Id), Place>,
}

impl Index {
    fn add(&mut self, pack: &IndexedPack) {
        for blob in &pack.blobs {
            self.places.insert((blob.kind == Kind::Tree, blob.id), Place::of(pack.id, blob));
        }
    }
}

/// A repository that was opened with its password.
pub struct Repository {
    objects: Arc<dyn Objects>,
    key: Key,
    index: Mutex<Index>,
    /// Backups that were read.
    seen: Mutex<HashMap<Id, SnapshotFile>>,
}

fn unreadable(name: &str, error: impl std::error::Error + Send + Sync + 'static) -> DriverError {
    let message = format!("{name} of the repository makes no sense");
    DriverError::new(Retry::Never, "object_damaged", message).with_cause(error)
}

/// Seals a file that is no pack.
fn seal_file(key: &Key, json: &[u8]) -> DriverResult<Vec<u8>> {
    let mut bytes = vec![COMPRESSED_FILE];
    bytes.extend(zstd::bulk::compress(json, LEVEL).map_err(|error| unreadable("a file", error))?);
    key.seal(&bytes)
}

fn read_file(objects: &dyn Objects, key: &Key, name: &str) -> DriverResult<Vec<u8>> {
    let bytes = objects.get(name)?;
    // The name says what the bytes are.
    if name.rsplit_once('/').is_some_and(|(_, id)| Id::parse(id) != Some(Id::of(&bytes))) {
        return Err(damaged(name));
    }
    let plain = key.open(&bytes).ok_or_else(|| damaged(name))?;
    match plain.split_first() {
        Some((&COMPRESSED_FILE, rest)) => zstd::decode_all(rest).map_err(|error| unreadable(name, error)),
        _ => Ok(plain),
    }
}

impl Repository {
    /// Opens a repository, and makes one where there is none.
    pub fn open(objects: Arc<dyn Objects>, password: &str) -> DriverResult<Repository> {
        let made = match objects.get("config") {
            Ok(_) => None,
            Err(error) if error.code == "object_missing" => make(&*objects, password)?,
            Err(error) => return Err(error),
        };
        let key = match made {
            Some(key) => key,
            None => unlock(&*objects, &objects.get("config")?, password)?,
        };
        let repository = Repository { objects, key, index: Mutex::default(), seen: Mutex::default() };
        repository.load_index()?;
        Ok(repository)
    }

    pub fn lock(&self, exclusive: bool) -> DriverResult<Lock> {
        Lock::take(&self.objects, &self.key, exclusive)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, kind: Kind, id: Id) -> Option<Place> {
        self.index().places.get(&(kind == Kind::Tree, id)).copied()
    }

    /// What the indexes name and what is really there, as long as it should be. So what was lost is stored again by the next
    /// backup that holds it.
    fn load_index(&self) -> DriverResult<()> {
        let packs = self.packs()?;
        let (names, indexed) = self.indexed()?;
        let mut index = Index { names: names.into_iter().collect(), ..Index::default() };
        for pack in indexed {
            let there = packs.get(&pack.id);
            if there == Some(&pack.length()) {
                index.add(&pack);
            } else {
                tracing::warn!(pack = %pack.id, bytes = ?there, expected = pack.length(), repository = self.objects.location(), "a pack of backups is missing or cut off");
            }
        }
        *self.index() = index;
        Ok(())
    }

    /// What others have done to the repository since it was last looked at. Whoever removes packs replaces all indexes, so
    /// a look at their names tells; for whoever holds a lock, it stays true.
    pub fn refresh(&self) -> DriverResult<()> {
        let there: HashSet<String> = self.objects.list("index")?.into_iter().map(|(name, _)| name).collect();
        let known = self.index().names.clone();
        if !known.is_subset(&there) {
            return self.load_index();
        }
        for name in there.difference(&known) {
            let file = self.index_file(name)?;
            let mut index = self.index();
            file.packs.iter().for_each(|pack| index.add(pack));
            index.names.insert(name.clone());
        }
        Ok(())
    }

    fn index_file(&self, name: &str) -> DriverResult<IndexFile> {
        let bytes = read_file(&*self.objects, &self.key, name)?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(name, error))
    }

    /// Every pack that is there, with its length.
    fn packs(&self) -> DriverResult<HashMap<Id, u64>> {
        let found = self.objects.list("data")?;
        let id = |name: &str| name.rsplit_once('/').and_then(|(_, id)| Id::parse(id));
        Ok(found.into_iter().filter_map(|(name, length)| Some((id(&name)?, length))).collect())
    }

    /// The names of all index files, and the packs that they name, each once.
    fn indexed(&self) -> DriverResult<(Vec<String>, Vec<IndexedPack>)> {
        let (mut names, mut packs, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for (name, _) in self.objects.list("index")? {
            let file = match self.index_file(&name) {
                // Somebody has put another in its place since.
                Err(error) if error.code == "object_missing" => continue,
                file => file?,
            };
            packs.extend(file.packs.into_iter().filter(|pack| known.insert(pack.id)));
            names.push(name);
        }
        Ok((names, packs))
    }

    fn write_index(&self, packs: Vec<IndexedPack>) -> DriverResult<String> {
        let file = IndexFile { supersedes: Vec::new(), packs };
        let bytes = seal_file(&self.key, &serde_json::to_vec(&file).unwrap_or_default())?;
        let name = format!("index/{}", Id::of(&bytes));
        self.objects.put(&name, bytes)?;
        Ok(name)
    }

    /// Every backup, by its identifier. What was read once is known: its name says what is in it.
    pub fn snapshots(&self) -> DriverResult<Vec<(Id, SnapshotFile)>> {
        let listed = self.objects.list("snapshots")?;
        let ids = listed.iter().filter_map(|(name, _)| Id::parse(name.rsplit_once('/')?.1));
        let mut known = std::mem::take(&mut *self.seen());
        let mut found = Vec::new();
        for id in ids {
            match known.remove(&id).map_or_else(|| self.snapshot(id), Ok) {
                Err(error) if error.code == "object_missing" => {}
                snapshot => found.push((id, snapshot?)),
            }
        }
        *self.seen() = found.iter().cloned().collect();
        Ok(found)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Id, SnapshotFile>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn snapshot(&self, id: Id) -> DriverResult<SnapshotFile> {
        let name = format!("snapshots/{id}");
        let bytes = read_file(&*self.objects, &self.key, &name)?;
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&name, error))
    }

    /// The backups that were stored under a name; one, unless somebody was killed in between.
    pub fn named(&self, name: &str) -> DriverResult<Vec<(Id, SnapshotFile)>> {
        let mut found = self.snapshots()?;
        found.retain(|(_, snapshot)| snapshot.tags.iter().any(|tag| tag == name));
        Ok(found)
    }

    pub fn forget(&self, name: &str) -> DriverResult<()> {
        for (id, _) in self.named(name)? {
            self.objects.remove(&format!("snapshots/{id}"))?;
        }
        Ok(())
    }

    /// A blob as it was stored.
    fn blob(&self, kind: Kind, id: Id) -> DriverResult<Vec<u8>> {
        let place = self.place(kind, id).ok_or_else(|| lost(id))?;
        let range = u64::from(place.offset)..u64::from(place.offset) + u64::from(place.length);
        let sealed = self.objects.get_range(&pack::object(place.pack), range)?;
        self.opener()?.open(id, place.uncompressed, &sealed)
    }

    fn opener(&self) -> DriverResult<Opener<'_>> {
        let decompressor = zstd::bulk::Decompressor::new().map_err(|error| unreadable("a blob", error))?;
        Ok(Opener { key: &self.key, decompressor, sealed: Vec::new() })
    }

    /// The pieces of a backup's disk in their order, and how large it is.
    fn disk(&self, tree: Id) -> DriverResult<(Vec<Id>, u64)> {
        let bytes = self.blob(Kind::Tree, tree)?;
        let tree: Tree = serde_json::from_slice(&bytes).map_err(|error| unreadable("a tree", error))?;
        let disk = tree.nodes.into_iter().find(|node| node.name == DISK);
        let disk = disk.and_then(|node| Some((node.content?, node.size)));
        disk.ok_or_else(|| {
            DriverError::new(Retry::Never, "object_damaged", format!("there is no {DISK} in the backup"))
        })
    }
}

/// Opens blob after blob, each held against its name.
struct Opener<'a> {
    key: &'a Key,
    decompressor: zstd::bulk::Decompressor<'static>,
    /// Room for one before it is unpacked.
    sealed: Vec<u8>,
}

impl Opener<'_> {
    fn open(&mut self, id: Id, uncompressed: u32, sealed: &[u8]) -> DriverResult<Vec<u8>> {
        let what = || format!("blob {id}");
        if !self.key.open_into(&mut self.sealed, sealed) {
            return Err(damaged(&what()));
        }
        let plain = match uncompressed {
            0 => std::mem::take(&mut self.sealed),
            length => self
                .decompressor
                .decompress(&self.sealed, usize::try_from(length).unwrap_or_default())
                .map_err(|error| unreadable(&what(), error))?,
        };
        if Id::of(&plain) != id {
            return Err(damaged(&what()));
        }
        Ok(plain)
    }
}

fn lost(id: Id) -> DriverError {
    DriverError::new(Retry::Never, "object_missing", format!("blob {id} is in no pack of the repository"))
}

/// Over the names of all pieces, which are the hashes of their content, and the size of the whole.
fn checksum(pieces: &[Id], bytes: u64) -> String {
    let mut text = bytes.to_be_bytes().to_vec();
    text.extend(pieces.iter().flat_map(|id| id.0));
    format!("sha256-256k:{}", Id::of(&text))
}

/// None if somebody else was quicker.
fn make(objects: &dyn Objects, password: &str) -> DriverResult<Option<Key>> {
    // Of somebody who was killed before there was a repository: a key that opens nothing would be in the way.
    for (name, _) in objects.list("keys")? {
        objects.remove(&name)?;
    }
    let key = Key::generate()?;
    let file = key.locked_with(password, &Timestamp::now().to_string())?;
    let name = format!("keys/{}", Id::of(&file));
    objects.put(&name, file)?;
    let config = Config {
        version: 2,
        id: Id(crypto::random()?).to_string(),
        chunker_polynomial: POLYNOMIAL.to_owned(),
    };
    let config = key.seal(&serde_json::to_vec(&config).unwrap_or_default())?;
    if !objects.put_new("config", config)? {
        objects.remove(&name)?;
        return Ok(None);
    }
    Ok(Some(key))
}

fn unlock(objects: &dyn Objects, config: &[u8], password: &str) -> DriverResult<Key> {
    for (name, _) in objects.list("keys")? {
        let Some(key) = Key::unlock(&objects.get(&name)?, password) else { continue };
        let Some(config) = key.open(config) else { continue };
        let config: Config = serde_json::from_slice(&config).map_err(|error| unreadable("config", error))?;
        if config.version != 2 {
            let message = format!("the repository's format is version {}, and 2 is known", config.version);
            return Err(DriverError::new(Retry::Later, "unknown_version", message));
        }
        return Ok(key);
    }
    let message = format!(
        "no key of the repository in {} is opened by this tenant's password; put the password back that its backups were made with",
        objects.location()
    );
    Err(DriverError::new(Retry::Later, "wrong_key", message))
}
