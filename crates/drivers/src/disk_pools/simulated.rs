//! A pool of names without bytes, with seeded faults: for tests of trouble and of scale. Never the default.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use paddock_model::drivers::disk_pools::{
    DiskPool, Integrity, LayerSource, PoolCapacity, PoolContents, PoolDisk, PoolLayer, Volume,
};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::{DiskId, LayerFacts, LayerId};

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
    disks: BTreeMap<DiskId, LayerId>,
    strangers: BTreeSet<String>,
}

struct Layer {
    bytes: Vec<u8>,
    digest: String,
    integrity: Integrity,
    quarantined: bool,
}

impl World {
    fn used_bytes(&self) -> i64 {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        count(self.layers.len()) * LAYER_BYTES + count(self.disks.len()) * DISK_BYTES
    }
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

    /// From now on a look at the layer shows this.
    pub fn spoil_layer(&self, layer: LayerId, integrity: Integrity) {
        if let Some(layer) = self.world().layers.get_mut(&layer) {
            layer.integrity = integrity;
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
        let LayerSource::File(path) = source;
        let mut world = self.world();
        if !world.layers.contains_key(&layer) {
            self.has_room(&world, LAYER_BYTES)?;
            let bytes = path.display().to_string().into_bytes();
            let digest = durable::hex(ring::digest::digest(&ring::digest::SHA256, &bytes).as_ref());
            world
                .layers
                .insert(layer, Layer { bytes, digest, integrity: Integrity::Sound, quarantined: false });
        }
        let digest = world.layers[&layer].digest.clone();
        Ok(LayerFacts { virtual_bytes: VIRTUAL_BYTES, allocated_bytes: LAYER_BYTES, digest })
    }

    async fn remove_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("remove a layer")?;
        self.world().layers.remove(&layer);
        Ok(())
    }

    async fn ensure_disk(&self, disk: DiskId, on: LayerId) -> DriverResult<Volume> {
        self.faults.strike("make a disk")?;
        let mut world = self.world();
        match (world.disks.get(&disk), world.layers.get(&on)) {
            (Some(known), _) if *known == on => {}
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
            (None, Some(_)) => {
                self.has_room(&world, DISK_BYTES)?;
                world.disks.insert(disk, on);
            }
        }
        Ok(Volume(format!("simulated:{disk}")))
    }

    async fn remove_disk(&self, disk: DiskId) -> DriverResult<()> {
        self.faults.strike("remove a disk")?;
        self.world().disks.remove(&disk);
        Ok(())
    }

    async fn ensure_successor(&self, _disk: DiskId, _layer: LayerId, _to: DiskId) -> DriverResult<Volume> {
        Err(DriverError::new(Retry::Never, "unsupported", "not yet"))
    }

    async fn abandon_successor(&self, _disk: DiskId, _layer: LayerId, _to: DiskId) -> DriverResult<()> {
        Err(DriverError::new(Retry::Never, "unsupported", "not yet"))
    }

    async fn seal_layer(&self, _layer: LayerId, _disk: DiskId) -> DriverResult<LayerFacts> {
        Err(DriverError::new(Retry::Never, "unsupported", "not yet"))
    }

    async fn capacity(&self) -> DriverResult<PoolCapacity> {
        let used_bytes = self.world().used_bytes();
        Ok(PoolCapacity {
            capacity_bytes: self.capacity_bytes,
            used_bytes,
            free_bytes: self.capacity_bytes - used_bytes,
        })
    }

    async fn list(&self) -> DriverResult<PoolContents> {
        self.faults.strike("list the pool")?;
        let world = self.world();
        let layers = world.layers.keys().map(|id| PoolLayer {
            id: *id,
            parent: None,
            virtual_bytes: VIRTUAL_BYTES,
            allocated_bytes: LAYER_BYTES,
        });
        let disks =
            world.disks.iter().map(|(id, on)| PoolDisk { id: *id, on: *on, allocated_bytes: DISK_BYTES });
        Ok(PoolContents {
            layers: layers.collect(),
            disks: disks.collect(),
            strangers: world.strangers.iter().cloned().collect(),
        })
    }

    async fn verify_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        self.faults.strike("read a layer")?;
        let world = self.world();
        let Some(layer) = world.layers.get(&layer) else { return Ok(Integrity::Missing) };
        Ok(match &layer.integrity {
            Integrity::Sound if layer.digest != digest => Integrity::Altered,
            integrity => integrity.clone(),
        })
    }

    async fn glance_at_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let world = self.world();
        let Some(layer) = world.layers.get(&layer) else { return Ok(Integrity::Missing) };
        Ok(if layer.digest == digest { Integrity::Sound } else { Integrity::Altered })
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
        let bytes = found.bytes.iter().map(|byte| if altered { !byte } else { *byte });
        Ok(bytes.skip(usize::try_from(at).unwrap_or(usize::MAX)).take(most).collect())
    }

    async fn quarantine_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.faults.strike("put a layer aside")?;
        if let Some(layer) = self.world().layers.get_mut(&layer) {
            layer.quarantined = true;
        }
        Ok(())
    }
}
