//! The doctor: holds the catalogue of disks against what lies in the pool, both ways, and touches nothing.

use std::collections::HashSet;

use paddock_model::drivers::disk_pools::DiskPool;
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::{Error, Result};
use paddock_store::layers::LayerState;
use paddock_store::{disks, emulators, layers};

use crate::Engine;

/// Something in which the catalogue and the pool disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// In the pool, and nobody knows of it: it takes room.
    StrayLayer(LayerId),
    StrayDisk(DiskId),
    /// None of ours; somebody has put it there.
    Stranger(String),
    /// In the catalogue, and not in the pool: what stands on it cannot boot.
    MissingLayer(LayerId),
    MissingDisk(DiskId, EmulatorId),
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finding::StrayLayer(id) => write!(f, "layer {id} is in the pool, but in no record"),
            Finding::StrayDisk(id) => write!(f, "disk {id} is in the pool, but in no record"),
            Finding::Stranger(name) => write!(f, "{name} is in the pool, but none of ours"),
            Finding::MissingLayer(id) => write!(f, "layer {id} is recorded, but not in the pool"),
            Finding::MissingDisk(id, emulator) => {
                write!(f, "disk {id} of emulator {emulator} is recorded, but not in the pool")
            }
        }
    }
}

/// What is wrong; nothing in a healthy world. What is being made or removed at this moment may show for a moment.
pub async fn examine(engine: &Engine, pool: &dyn DiskPool) -> Result<Vec<Finding>> {
    let contents = pool.list().await.map_err(|error| Error::internal(error).context("look into the pool"))?;
    let mut tx = engine.store.read().await?;
    let known_layers = layers::list(&mut tx).await?;
    let known_disks = disks::list(&mut tx).await?;
    let there: HashSet<LayerId> = contents.layers.iter().map(|layer| layer.id).collect();
    let recorded: HashSet<LayerId> = known_layers.iter().map(|layer| layer.id).collect();
    let mut findings = Vec::new();
    findings.extend(there.difference(&recorded).copied().map(Finding::StrayLayer));
    let lost = known_layers.iter().filter(|layer| {
        matches!(layer.state, LayerState::Ready | LayerState::Quarantined) && !there.contains(&layer.id)
    });
    findings.extend(lost.map(|layer| Finding::MissingLayer(layer.id)));

    let disks_there: HashSet<DiskId> = contents.disks.iter().map(|disk| disk.id).collect();
    let recorded: HashSet<DiskId> = known_disks.iter().map(|disk| disk.id).collect();
    findings.extend(disks_there.difference(&recorded).copied().map(Finding::StrayDisk));
    for disk in known_disks.iter().filter(|disk| !disks_there.contains(&disk.id)) {
        let emulator = emulators::find_any(&mut tx, disk.emulator).await?;
        // Before it is made, and after it is removed, a record stands alone.
        if emulator.is_some_and(|emulator| emulator.disk_ready_at.is_some()) {
            findings.push(Finding::MissingDisk(disk.id, disk.emulator));
        }
    }
    findings.extend(contents.strangers.into_iter().map(Finding::Stranger));
    findings.sort_by_key(ToString::to_string);
    Ok(findings)
}
