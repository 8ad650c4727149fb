//! A pool of names without bytes, with seeded faults: for tests of trouble and of scale. Never the default.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use paddock_model::drivers::disk_pools::{
    Bytes, DiskContent, DiskPool, Integrity, LayerSource, Merging, PoolCapacity, PoolContents, PoolDisk,
    PoolLayer, Volume,
};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::{DiskId, LayerFacts, LayerId};
use tokio::io::AsyncReadExt;

use super::{broken_off, not_received, require_digest, too_large};
use crate::durable;
use crate::faults::{FaultRates, Faults};

/// What a layer and a fresh disk pretend to take.
const LAYER_BYTES: i64 = 6 << 20;
const DISK_BYTES: i64 = 16 << 10;
const VIRTUAL_BYTES: i64 = 2 << 30;

#[derive(Debug, Clone, Copy)]
pub struct SimulatedPoolSettings {
    pub seed: u64,
    pub capacity_bytes: i64,
    pub faults: FaultRates,
}

impl Default for SimulatedPoolSettings {
    fn default() -> Self {
        SimulatedPoolSettings { seed: 0, capacity_bytes: 1 << 40, faults: FaultRates::default() }
    }
}

/// Clones of it are the same pool, as two processes on one folder are.
#[derive(Clone)]
pub struct SimulatedPool {
    capacity_bytes: i64,
    faults: Arc<Faults>,
    world: Arc<Mutex<World>>,
}

#[derive(Default)]
struct World {
    layers: BTreeMap<LayerId, Layer>,
    disks: BTreeMap<DiskId, Disk>,
    /// Bytes that are to become layers.
    received: BTreeMap<LayerId, Vec<u8>>,
    strangers: BTreeSet<String>,
    merges: BTreeMap<LayerId, Merge>,
    /// Disks that no layer can be made of.
    damaged: BTreeSet<DiskId>,
    /// What others than us have put beside the pool.
    occupied_bytes: i64,
}

struct Layer {
    /// What its digest is of; missing until it is sealed.
    content: Option<Vec<u8>>,
    parent: Option<LayerId>,
    /// What became this layer.
    disk: Option<DiskId>,
    bytes: i64,
    integrity: Integrity,
    quarantined: bool,
}

/// A layer's content on fewer layers.
struct Merge {
    onto: LayerId,
    content: Vec<u8>,
    bytes: i64,
    /// What is still to be read.
    left: i64,
}

struct Disk {
    on: LayerId,
    /// A device has written to it.
    written: bool,
}

impl World {
    fn used_bytes(&self) -> i64 {
        let disks = i64::try_from(self.disks.len()).unwrap_or(i64::MAX);
        let received = self.received.values().map(|bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        let merged = self.merges.values().map(|merge| if merge.left > 0 { 0 } else { merge.bytes });
        received.sum::<i64>()
            + merged.sum::<i64>()
            + self.layers.values().map(|layer| self.own_bytes(layer)).sum::<i64>()
            + disks * DISK_BYTES
    }

    /// The bytes of an unsealed layer are those of its disk.
    fn own_bytes(&self, layer: &Layer) -> i64 {
        let shared = layer.disk.is_some_and(|disk| self.disks.contains_key(&disk));
        if shared { 0 } else { layer.bytes }
    }

    /// The layers that are to become one, from `layer` down to what stands on `onto`.
    fn lineage(&self, layer: LayerId, onto: LayerId) -> DriverResult<Vec<LayerId>> {
        let mut sources = Vec::new();
        let mut next = layer;
        while next != onto || sources.is_empty() {
            let missing = format!("{next} is not in the pool");
            let missing = || DriverError::new(Retry::Later, "layer_missing", missing);
            let found = self.layers.get(&next).ok_or_else(missing)?;
            found.digest().ok_or_else(|| unsealed(next))?;
            if found.quarantined {
                let message = format!("{next} was put aside because its bytes are in doubt");
                return Err(DriverError::new(Retry::Never, "layer_quarantined", message));
            }
            if found.integrity != Integrity::Sound {
                let message = format!("the bytes of {next} are not those that were recorded");
                return Err(DriverError::new(Retry::Never, "layer_altered", message));
            }
            sources.push(next);
            next = found.parent.ok_or_else(|| {
                let message = format!("{layer} cannot be merged: it does not stand on {onto}");
                DriverError::new(Retry::Never, "merge_refused", message)
            })?;
        }
        Ok(sources)
    }

    /// The layer, if it is there and is or was this disk.
    fn captured(&self, layer: LayerId, disk: DiskId) -> DriverResult<Option<&Layer>> {
        match self.layers.get(&layer) {
            Some(found) if found.disk != Some(disk) => {
                let message = format!("{layer} is there already and is not what {disk} holds");
                Err(DriverError::new(Retry::Never, "disk_conflict", message))
            }
            found => Ok(found),
        }
    }
}

fn merge_missing(layer: LayerId) -> DriverError {
    let message = format!("what was merged for {layer} is not in the pool any more");
    DriverError::new(Retry::Never, "merge_missing", message)
}

/// What stands for a layer's bytes; each layer hides all that is below it.
struct Content {
    bytes: Vec<u8>,
    lineage: Vec<LayerId>,
}

impl DiskContent for Content {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn lineage(&self) -> &[LayerId] {
        &self.lineage
    }

    fn written(&mut self, since: Option<LayerId>) -> DriverResult<Vec<Range<u64>>> {
        let nothing = self.bytes.is_empty() || since == self.lineage.first().copied();
        let all = (!nothing).then_some(0..self.bytes());
        Ok(all.into_iter().collect())
    }

    fn is_zero(&mut self, _: Range<u64>) -> DriverResult<bool> {
        Ok(false)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> DriverResult<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let found = at.checked_add(into.len()).and_then(|end| self.bytes.get(at..end));
        let outside = || DriverError::new(Retry::Never, "outside_disk", "this is beyond the disk's end");
        into.copy_from_slice(found.ok_or_else(outside)?);
        Ok(())
    }
}

fn volume(disk: DiskId) -> Volume {
    Volume(format!("simulated:{disk}"))
}

impl Layer {
    fn digest(&self) -> Option<String> {
        self.content.as_deref().map(digest_of)
    }
}

fn digest_of(bytes: &[u8]) -> String {
    durable::hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

fn unsealed(layer: LayerId) -> DriverError {
    DriverError::new(Retry::Later, "layer_unsealed", format!("{layer} is still being captured"))
}

impl SimulatedPool {
    pub fn new(settings: SimulatedPoolSettings) -> SimulatedPool {
        SimulatedPool {
            capacity_bytes: settings.capacity_bytes,
            faults: Arc::new(Faults::new(settings.seed, settings.faults)),
            world: Arc::default(),
        }
    }

    /// Something that lies in the pool and is nobody's.
    pub fn add_stranger(&self, name: &str) {
        self.world().strangers.insert(name.to_owned());
    }

    /// From now on somebody else takes so many bytes of the same disk.
    pub fn occupy(&self, bytes: i64) {
        self.world().occupied_bytes = bytes;
    }

    /// From now on a look at the layer shows this.
    pub fn spoil_layer(&self, layer: LayerId, integrity: Integrity) {
        if let Some(layer) = self.world().layers.get_mut(&layer) {
            layer.integrity = integrity;
        }
    }

    /// What the disk holds makes no sense, as whoever seals it will see.
    pub fn damage_disk(&self, disk: DiskId) {
        self.world().damaged.insert(disk);
    }

    /// As if a device had written to the disk.
    pub fn write_to(&self, disk: DiskId) {
        if let Some(disk) = self.world().disks.get_mut(&disk) {
            disk.written = true;
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, world: &World, bytes: i64) -> DriverResult<()> {
        if world.used_bytes() + bytes > self.capacity_bytes {
            return Err(DriverError::new(Retry::Later, "no_space", "the simulated pool has no room left"));
        }
        Ok(())
    }
}

#[async_trait]
impl DiskPool for SimulatedPool {
    fn name(&self) -> &str {
        "simulated"
    }

    async fn ensure_layer(&self, layer: LayerId, source: &LayerSource) -> DriverResult<LayerFacts> {
        self.faults.strike("take a layer into the pool")?;
        let mut world = self.world();
        if !world.layers.contains_key(&layer) {
            self.has_room(&world, LAYER_BYTES)?;
            // Nobody reads a file here: its name stands for what is in it.
            let name = |path: &Path| path.display().to_string().into_bytes();
            let content = match source {
                LayerSource::File(path) => name(path),
                LayerSource::Beneath { folder, path, digest } => {
                    let content = name(&folder.join(path));
                    require_digest(digest.as_deref(), &digest_of(&content))?;
                    content
                }
                LayerSource::Received { .. } => {
                    let received = world.received.remove(&layer);
                    received.ok_or_else(|| not_received(layer))?
                }
            };
            let taken = Layer {
                content: Some(content),
                parent: None,
                disk: None,
                bytes: LAYER_BYTES,
                integrity: Integrity::Sound,
                quarantined: false,
            };
            world.layers.insert(layer, taken);
        }
        let found = &world.layers[&layer];
        let digest = found.digest().ok_or_else(|| unsealed(layer))?;
        Ok(LayerFacts { virtual_bytes: VIRTUAL_BYTES, allocated_bytes: found.bytes, digest })
    }

    async fn receive(
        &self,
        layer: LayerId,
        from: Bytes<'_>,
        most: u64,
        digest: Option<&str>,
    ) -> DriverResult<String> {
        self.faults.strike("take bytes in")?;
        let mut bytes = Vec::new();
        from.take(most.saturating_add(1)).read_to_end(&mut bytes).await.map_err(broken_off)?;
        if bytes.len() as u64 > most {
            return Err(too_large(most));
        }
        let found = digest_of(&bytes);
        require_digest(digest, &found)?;
        let mut world = self.world();
        self.has_room(&world, i64::try_from(bytes.len()).unwrap_or(i64::MAX))?;
        world.received.insert(layer, bytes);
        Ok(found)
    }

    async fn content(&self, layer: LayerId) -> DriverResult<Box<dyn DiskContent>> {
        self.faults.strike("read a layer")?;
        let world = self.world();
        let missing =
            || DriverError::new(Retry::Later, "layer_missing", format!("{layer} is not in the pool"));
        let bytes = world.layers.get(&layer).ok_or_else(missing)?.content.clone();
        let bytes = bytes.ok_or_else(|| unsealed(layer))?;
        let mut lineage = vec![layer];
        while let Some(below) = lineage.last().and_then(|layer| world.layers.get(layer)?.parent) {
            lineage.push(below);
        }
        Ok(Box::new(Content { bytes, lineage }))
    }

    async fn received(&self) -> DriverResult<Vec<LayerId>> {
        Ok(self.world().received.keys().copied().collect())
    }

    async fn discard(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("discard bytes")?;
        self.world().received.remove(&layer);
        Ok(())
    }

    async fn remove_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("remove a layer")?;
        let mut world = self.world();
        world.layers.remove(&layer);
        world.received.remove(&layer);
        world.merges.remove(&layer);
        Ok(())
    }

    async fn ensure_disk(&self, disk: DiskId, on: LayerId) -> DriverResult<Volume> {
        self.faults.strike("make a disk")?;
        let mut world = self.world();
        match (world.disks.get(&disk), world.layers.get(&on)) {
            (Some(known), _) if known.on == on => {}
            (Some(_), _) => {
                let message = format!("{disk} is there already, on another layer than {on}");
                return Err(DriverError::new(Retry::Never, "disk_conflict", message));
            }
            (None, None) => {
                return Err(DriverError::new(
                    Retry::Later,
                    "layer_missing",
                    format!("{on} is not in the pool"),
                ));
            }
            (None, Some(layer)) if layer.quarantined => {
                let message = format!("{on} was put aside because its bytes are in doubt");
                return Err(DriverError::new(Retry::Never, "layer_quarantined", message));
            }
            (None, Some(layer)) if layer.content.is_none() => return Err(unsealed(on)),
            (None, Some(_)) => {
                self.has_room(&world, DISK_BYTES)?;
                world.disks.insert(disk, Disk { on, written: false });
            }
        }
        Ok(volume(disk))
    }

    async fn remove_disk(&self, disk: DiskId) -> DriverResult<()> {
        self.faults.strike("remove a disk")?;
        self.world().disks.remove(&disk);
        Ok(())
    }

    async fn ensure_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<Volume> {
        self.faults.strike("make a successor")?;
        let mut world = self.world();
        let sealed = world.captured(layer, disk)?.map(|found| found.content.is_some());
        match (world.disks.get(&to), world.disks.get(&disk)) {
            (Some(next), _) if next.on == layer && sealed.is_some() => {}
            (Some(_), _) => {
                let message = format!("{to} is there already, on another layer than {layer}");
                return Err(DriverError::new(Retry::Never, "disk_conflict", message));
            }
            (None, _) if sealed == Some(true) => {
                let message = format!("{to}, which stood on {disk}, is gone; a new one would hide the loss");
                return Err(DriverError::new(Retry::Never, "disk_missing", message));
            }
            (None, None) => {
                let message = format!("{disk} is not in the pool");
                return Err(DriverError::new(Retry::Later, "disk_missing", message));
            }
            (None, Some(Disk { on, .. })) => {
                let parent = Some(*on);
                self.has_room(&world, DISK_BYTES)?;
                let captured = Layer {
                    content: None,
                    parent,
                    disk: Some(disk),
                    bytes: DISK_BYTES,
                    integrity: Integrity::Sound,
                    quarantined: false,
                };
                world.layers.insert(layer, captured);
                world.disks.insert(to, Disk { on: layer, written: false });
            }
        }
        Ok(volume(to))
    }

    async fn abandon_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<()> {
        self.faults.strike("take a successor back")?;
        let mut world = self.world();
        let sealed = world.captured(layer, disk)?.map(|found| found.content.is_some());
        let in_use = |why: String| Err(DriverError::new(Retry::Never, "disk_in_use", why));
        if sealed == Some(true) {
            return in_use(format!("{layer} is sealed, and {disk} is no more"));
        }
        if sealed.is_some() && !world.disks.contains_key(&disk) {
            return in_use(format!("what {disk} held is nowhere but in {layer}"));
        }
        match world.disks.get(&to) {
            Some(next) if next.on != layer => return in_use(format!("{to} does not stand on this layer")),
            Some(next) if next.written => return in_use(format!("{to} holds what a device has written")),
            _ => {}
        }
        world.disks.remove(&to);
        world.layers.remove(&layer);
        Ok(())
    }

    async fn seal_layer(&self, layer: LayerId, disk: DiskId) -> DriverResult<LayerFacts> {
        self.faults.strike("seal a layer")?;
        let mut world = self.world();
        if world.captured(layer, disk)?.is_none() {
            let message = format!("{layer} is not in the pool; {disk} has no successor yet");
            return Err(DriverError::new(Retry::Later, "layer_missing", message));
        }
        if world.damaged.contains(&disk) {
            let message = format!("{layer} is damaged: a table points outside");
            return Err(DriverError::new(Retry::Never, "layer_damaged", message));
        }
        world.disks.remove(&disk);
        let sealed = world.layers.get_mut(&layer);
        let digest = sealed.and_then(|sealed| {
            sealed.content.get_or_insert_with(|| layer.to_string().into_bytes());
            sealed.digest()
        });
        let digest = digest.unwrap_or_default();
        Ok(LayerFacts { virtual_bytes: VIRTUAL_BYTES, allocated_bytes: DISK_BYTES, digest })
    }

    async fn merge_layer(&self, layer: LayerId, onto: LayerId, most: u64) -> DriverResult<Merging> {
        self.faults.strike("merge a layer")?;
        let mut world = self.world();
        if world.merges.get(&layer).is_none_or(|merge| merge.onto != onto) {
            let sources = world.lineage(layer, onto)?;
            if sources == [layer] {
                let digest = world.layers[&layer].digest().unwrap_or_default();
                let allocated_bytes = world.layers[&layer].bytes;
                return Ok(Merging::Ready(LayerFacts {
                    virtual_bytes: VIRTUAL_BYTES,
                    allocated_bytes,
                    digest,
                }));
            }
            let bytes = sources.iter().map(|source| world.layers[source].bytes).sum();
            self.has_room(&world, bytes)?;
            let content = format!("{layer} on {onto}").into_bytes();
            world.merges.insert(layer, Merge { onto, content, bytes, left: bytes });
        }
        let Some(merge) = world.merges.get_mut(&layer) else { return Err(unsealed(layer)) };
        merge.left -= i64::try_from(most).unwrap_or(i64::MAX);
        if merge.left > 0 {
            return Ok(Merging::UnderWay(merge.bytes - merge.left));
        }
        let digest = digest_of(&merge.content);
        Ok(Merging::Ready(LayerFacts { virtual_bytes: VIRTUAL_BYTES, allocated_bytes: merge.bytes, digest }))
    }

    async fn replace_layer(&self, layer: LayerId, digest: &str) -> DriverResult<LayerFacts> {
        self.faults.strike("replace a layer")?;
        let mut world = self.world();
        let ready = world.merges.get(&layer);
        let ready = ready.is_some_and(|merge| merge.left <= 0 && digest_of(&merge.content) == digest);
        if ready && let Some(merge) = world.merges.remove(&layer) {
            let replaced = world.layers.get_mut(&layer);
            let replaced = replaced.ok_or_else(|| merge_missing(layer))?;
            replaced.parent = Some(merge.onto);
            replaced.content = Some(merge.content);
            replaced.bytes = merge.bytes;
        }
        let found = world.layers.get(&layer).filter(|found| found.digest().as_deref() == Some(digest));
        let found = found.ok_or_else(|| merge_missing(layer))?;
        let digest = digest.to_owned();
        Ok(LayerFacts { virtual_bytes: VIRTUAL_BYTES, allocated_bytes: found.bytes, digest })
    }

    async fn abandon_merge(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("abandon a merge")?;
        self.world().merges.remove(&layer);
        Ok(())
    }

    async fn capacity(&self) -> DriverResult<PoolCapacity> {
        let (used_bytes, occupied_bytes) = {
            let world = self.world();
            (world.used_bytes(), world.occupied_bytes)
        };
        Ok(PoolCapacity {
            capacity_bytes: self.capacity_bytes,
            used_bytes,
            free_bytes: self.capacity_bytes - used_bytes - occupied_bytes,
        })
    }

    async fn list(&self) -> DriverResult<PoolContents> {
        self.faults.strike("list the pool")?;
        let world = self.world();
        let layers = world.layers.iter().map(|(id, layer)| PoolLayer {
            id: *id,
            parent: layer.parent,
            virtual_bytes: VIRTUAL_BYTES,
            allocated_bytes: world.own_bytes(layer),
        });
        let disks = world.disks.iter().map(|(id, disk)| PoolDisk {
            id: *id,
            on: disk.on,
            allocated_bytes: DISK_BYTES,
        });
        Ok(PoolContents {
            layers: layers.collect(),
            disks: disks.collect(),
            merged: world.merges.iter().filter(|(_, merge)| merge.left <= 0).map(|(id, _)| *id).collect(),
            strangers: world.strangers.iter().cloned().collect(),
        })
    }

    async fn verify_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        self.faults.strike("read a layer")?;
        let world = self.world();
        let Some(found) = world.layers.get(&layer) else { return Ok(Integrity::Missing) };
        let recorded = found.digest().ok_or_else(|| unsealed(layer))?;
        Ok(match &found.integrity {
            Integrity::Sound if recorded != digest => Integrity::Altered,
            integrity => integrity.clone(),
        })
    }

    async fn glance_at_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let world = self.world();
        let Some(layer) = world.layers.get(&layer) else { return Ok(Integrity::Missing) };
        Ok(if layer.digest().as_deref() == Some(digest) { Integrity::Sound } else { Integrity::Altered })
    }

    async fn read_layer(&self, layer: LayerId, at: u64, most: usize) -> DriverResult<Vec<u8>> {
        self.faults.strike("read a layer")?;
        let world = self.world();
        let Some(found) = world.layers.get(&layer) else {
            return Err(DriverError::new(
                Retry::Later,
                "layer_missing",
                format!("{layer} is not in the pool"),
            ));
        };
        let altered = found.integrity != Integrity::Sound;
        let content = found.content.as_deref().ok_or_else(|| unsealed(layer))?;
        let bytes = content.iter().map(|byte| if altered { !byte } else { *byte });
        Ok(bytes.skip(usize::try_from(at).unwrap_or(usize::MAX)).take(most).collect())
    }

    async fn quarantine_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("put a layer aside")?;
        if let Some(layer) = self.world().layers.get_mut(&layer) {
            layer.quarantined = true;
        }
        Ok(())
    }

    async fn readmit_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("take a layer back")?;
        if let Some(layer) = self.world().layers.get_mut(&layer) {
            layer.quarantined = false;
        }
        Ok(())
    }
}
