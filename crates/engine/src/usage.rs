//! What takes room in the pool: layers and disks, and whose they are.

use std::collections::HashMap;

use paddock_model::drivers::disk_pools::{DiskPool, PoolContents};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::{disks, snapshots, templates};

use crate::Engine;

/// Layers and disks in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    pub layers: Layers,
    pub disks: usize,
    pub disk_bytes: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layers {
    pub count: usize,
    /// As large as devices believe them to be.
    pub virtual_bytes: i64,
    /// What they take in the pool.
    pub allocated_bytes: i64,
    /// Of those that no more than one snapshot, layer or disk stands on: they go when it goes.
    pub exclusive_bytes: i64,
    /// Of those that several stand on.
    pub shared_bytes: i64,
}

/// The room that was measured, in all and by whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    pub figures: Figures,
    pub of_disks: HashMap<DiskId, i64>,
    pub of_tenants: HashMap<TenantId, i64>,
}

/// Looks at every file of the pool, and at nothing in it but its header.
pub async fn measure(engine: &Engine, pool: &dyn DiskPool) -> Result<Measured> {
    let contents = pool.list().await.map_err(|error| Error::internal(error).context("look into the pool"))?;
    let snapshots = snapshot_owners(engine).await?;
    let owners = disk_owners(engine).await?;
    let of_layers = layer_owners(&contents, &snapshots, &owners);
    let mut measured = Measured { figures: figures(&contents, &snapshots), ..Measured::default() };
    for disk in &contents.disks {
        measured.of_disks.insert(disk.id, disk.allocated_bytes);
        if let Some(tenant) = owners.get(&disk.id) {
            *measured.of_tenants.entry(*tenant).or_default() += disk.allocated_bytes;
        }
    }
    for layer in &contents.layers {
        if let Some(Some(tenant)) = of_layers.get(&layer.id) {
            *measured.of_tenants.entry(*tenant).or_default() += layer.allocated_bytes;
        }
    }
    for (tenant, bytes) in templates::bytes_per_tenant(&mut engine.store.read().await?).await? {
        *measured.of_tenants.entry(tenant).or_default() += bytes;
    }
    Ok(measured)
}

/// Rows are read in parts, so that nobody waits for long.
const A_PART: i64 = 1000;

async fn disk_owners(engine: &Engine) -> Result<HashMap<DiskId, TenantId>> {
    let mut owners = HashMap::new();
    let mut after = None;
    loop {
        let part = disks::by_tenant(&mut engine.store.read().await?, after, A_PART).await?;
        let Some((last, _)) = part.last() else { return Ok(owners) };
        after = Some(*last);
        owners.extend(part);
        tokio::task::yield_now().await;
    }
}

/// The layer of each snapshot, and whose it is; the platform's are nobody's.
async fn snapshot_owners(engine: &Engine) -> Result<Vec<(LayerId, Option<TenantId>)>> {
    let mut owners = Vec::new();
    let mut after = None;
    loop {
        let part = snapshots::owners(&mut engine.store.read().await?, after, A_PART).await?;
        let Some(last) = part.last() else { return Ok(owners) };
        after = Some(last.id);
        owners.extend(part.into_iter().map(|owned| (owned.layer, owned.tenant)));
        tokio::task::yield_now().await;
    }
}

/// A layer is its snapshot's; one whose snapshot is gone belongs to whoever stands on it and so keeps it.
fn layer_owners(
    contents: &PoolContents,
    snapshots: &[(LayerId, Option<TenantId>)],
    disks: &HashMap<DiskId, TenantId>,
) -> HashMap<LayerId, Option<TenantId>> {
    let parents: HashMap<LayerId, Option<LayerId>> =
        contents.layers.iter().map(|layer| (layer.id, layer.parent)).collect();
    let mut owners: HashMap<LayerId, Option<TenantId>> = snapshots.iter().copied().collect();
    let of_snapshots =
        snapshots.iter().map(|(layer, tenant)| (parents.get(layer).copied().flatten(), *tenant));
    let of_disks = contents.disks.iter().map(|disk| (Some(disk.on), disks.get(&disk.id).copied()));
    for (mut below, tenant) in of_snapshots.chain(of_disks).filter(|(_, tenant)| tenant.is_some()) {
        while let Some(layer) = below.filter(|layer| !owners.contains_key(layer)) {
            owners.insert(layer, tenant);
            below = parents.get(&layer).copied().flatten();
        }
    }
    owners
}

fn figures(contents: &PoolContents, snapshots: &[(LayerId, Option<TenantId>)]) -> Figures {
    let mut users: HashMap<LayerId, i64> = HashMap::new();
    let below = contents.layers.iter().filter_map(|layer| layer.parent);
    let above = contents.disks.iter().map(|disk| disk.on).chain(snapshots.iter().map(|(layer, _)| *layer));
    for layer in below.chain(above) {
        *users.entry(layer).or_default() += 1;
    }
    let mut layers = Layers { count: contents.layers.len(), ..Layers::default() };
    for layer in &contents.layers {
        layers.virtual_bytes += layer.virtual_bytes;
        layers.allocated_bytes += layer.allocated_bytes;
        match users.get(&layer.id) {
            Some(2..) => layers.shared_bytes += layer.allocated_bytes,
            _ => layers.exclusive_bytes += layer.allocated_bytes,
        }
    }
    let disk_bytes = contents.disks.iter().map(|disk| disk.allocated_bytes).sum();
    Figures { layers, disks: contents.disks.len(), disk_bytes }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mebibytes = |bytes: i64| bytes / (1 << 20);
        let layers = &self.layers;
        writeln!(
            f,
            "{} layers of {} MiB take {} MiB in the pool: {} MiB for one user each, {} MiB shared.",
            layers.count,
            mebibytes(layers.virtual_bytes),
            mebibytes(layers.allocated_bytes),
            mebibytes(layers.exclusive_bytes),
            mebibytes(layers.shared_bytes)
        )?;
        write!(f, "{} disks take {} MiB.", self.disks, mebibytes(self.disk_bytes))
    }
}

#[cfg(test)]
mod tests {
    use paddock_model::drivers::disk_pools::{PoolDisk, PoolLayer};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_layer_is_shared_when_several_stand_on_it() {
        let id = |number| LayerId(Uuid::from_u128(number));
        let layer =
            |number, parent| PoolLayer { id: id(number), parent, virtual_bytes: 100, allocated_bytes: 10 };
        let contents = PoolContents {
            // The second stands on the first, and a disk too; on the second there is a snapshot, on the third nobody.
            layers: vec![layer(1, None), layer(2, Some(id(1))), layer(3, None)],
            disks: vec![PoolDisk { id: DiskId(Uuid::from_u128(9)), on: id(1), allocated_bytes: 7 }],
            ..PoolContents::default()
        };

        let figures = figures(&contents, &[(id(2), None)]);

        let layers = &figures.layers;
        assert_eq!((layers.count, layers.virtual_bytes, layers.allocated_bytes), (3, 300, 30));
        assert_eq!((layers.shared_bytes, layers.exclusive_bytes), (10, 20));
        assert_eq!((figures.disks, figures.disk_bytes), (1, 7));
    }
    #[test]
    fn a_layer_whose_snapshot_is_gone_belongs_to_who_keeps_it() {
        let id = |number| LayerId(Uuid::from_u128(number));
        let tenant = |number| TenantId(Uuid::from_u128(number));
        let disk = |number| DiskId(Uuid::from_u128(number));
        let layer =
            |number, parent| PoolLayer { id: id(number), parent, virtual_bytes: 100, allocated_bytes: 10 };
        let contents = PoolContents {
            // The platform's, then two without a snapshot below one of a tenant; one without below a disk; one that nobody keeps.
            layers: vec![
                layer(1, None),
                layer(2, Some(id(1))),
                layer(3, Some(id(2))),
                layer(4, Some(id(3))),
                layer(5, Some(id(1))),
                layer(6, None),
            ],
            disks: vec![
                PoolDisk { id: disk(8), on: id(5), allocated_bytes: 7 },
                PoolDisk { id: disk(9), on: id(3), allocated_bytes: 7 },
            ],
            ..PoolContents::default()
        };
        let snapshots = [(id(1), None), (id(4), Some(tenant(1)))];
        let disks = HashMap::from([(disk(8), tenant(2)), (disk(9), tenant(2))]);

        let owners = layer_owners(&contents, &snapshots, &disks);

        let expected = [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(1)), (5, Some(2))];
        assert_eq!(owners, expected.into_iter().map(|(one, whose)| (id(one), whose.map(tenant))).collect());
    }
}
