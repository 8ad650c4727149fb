//! The doctor: holds the catalogue against what lies in the pool and what runs, both ways, and touches nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;

use paddock_model::backups::{BackupId, BackupPhase};
use paddock_model::drivers::backup_repositories::BackupRepositories;
use paddock_model::drivers::disk_pools::{DiskPool, PoolContents};
use paddock_model::emulators::{EmulatorId, address_of};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::slug::Slug;
use paddock_model::templates::TemplateId;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::consolidations::ConsolidationState;
use paddock_store::layers::{Layer, LayerState};
use paddock_store::slots::Slots;
use paddock_store::{
    Tx, backups, consolidations, disks, emulators, layers, slots, templates, tenant_usage, verifications,
};

use crate::Engine;
use crate::imports::is_awaited;

/// Something in which the catalogue and the pool disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// In the pool, and nobody knows of it: it takes room.
    StrayLayer(LayerId),
    /// Sent for a layer that does not wait for it.
    StrayUpload(LayerId),
    StrayDisk(DiskId),
    /// None of ours; somebody has put it there.
    Stranger(String),
    /// In the catalogue, and not in the pool: what stands on it cannot boot.
    MissingLayer(LayerId),
    MissingDisk(DiskId, EmulatorId),
    /// What stands on it is not as much as was counted.
    WrongCount(LayerId),
    /// Its lineage is not as long as was counted.
    WrongDepth(LayerId),
    /// Its file stands on another one than the catalogue says.
    WrongParent(LayerId),
    /// A merged file lies ready for it, and nobody is about to put it in its place: it takes room.
    StrayMerge(LayerId),
    /// Its bytes are not those that were recorded; nothing new is made on it.
    Quarantined(LayerId),
    /// Something of it runs or lies where devices run, and nobody wants it.
    StrayDevice(EmulatorId),
    /// The car of an emulator that nobody wants.
    StrayCar(EmulatorId),
    /// At the host, and nobody knows of it: it takes room.
    StrayTemplate(TemplateId),
    /// In the catalogue, and not at the host: clones of its snapshot boot instead of resuming.
    MissingTemplate(TemplateId, Slug),
    /// What is counted against the tenant's quotas is not what it has.
    WrongUsage(TenantId),
    /// Recorded as done, and not in its repository.
    MissingBackup(BackupId),
    /// In a tenant's repository, and nobody knows of it.
    StrayBackup(TenantId, String),
    /// What a tenant's repository holds cannot be told, and why.
    ClosedRepository(TenantId, String),
    /// Two devices have it, or one has it and it counts as free.
    AddressTwice(Ipv4Addr),
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finding::StrayLayer(id) => write!(f, "layer {id} is in the pool, but in no record"),
            Finding::StrayUpload(id) => {
                write!(f, "what was sent for layer {id} is in the pool, but nobody waits for it")
            }
            Finding::StrayDisk(id) => write!(f, "disk {id} is in the pool, but in no record"),
            Finding::Stranger(name) => write!(f, "{name} is in the pool, but none of ours"),
            Finding::WrongCount(id) => write!(f, "what stands on layer {id} is not as much as was counted"),
            Finding::WrongDepth(id) => write!(f, "the lineage of layer {id} is not as long as was counted"),
            Finding::WrongParent(id) => {
                write!(f, "layer {id} stands on another one in the pool than in the catalogue")
            }
            Finding::StrayMerge(id) => {
                write!(f, "a merged file for layer {id} is in the pool, but nobody is about to use it")
            }
            Finding::MissingLayer(id) => write!(f, "layer {id} is recorded, but not in the pool"),
            Finding::MissingDisk(id, emulator) => {
                write!(f, "disk {id} of emulator {emulator} is recorded, but not in the pool")
            }
            Finding::Quarantined(id) => {
                write!(
                    f,
                    "layer {id} is not what was recorded of it and was put aside; put its bytes back, then verify a snapshot on it"
                )
            }
            Finding::StrayDevice(id) => {
                write!(f, "emulator {id} runs or has left something, but nobody wants it")
            }
            Finding::StrayCar(id) => write!(f, "the car of emulator {id} is there, but nobody wants it"),
            Finding::StrayTemplate(id) => write!(f, "template {id} is at the host, but in no record"),
            Finding::MissingTemplate(id, snapshot) => {
                write!(
                    f,
                    "template {id} of snapshot {snapshot} is recorded, but not at the host; verify the snapshot"
                )
            }
            Finding::WrongUsage(id) => write!(f, "tenant {id} is charged for other emulators than it has"),
            Finding::ClosedRepository(tenant, why) => {
                write!(f, "the repository of {tenant} cannot be looked into: {why}")
            }
            Finding::MissingBackup(id) => write!(f, "{id} is recorded, but not in its repository"),
            Finding::StrayBackup(tenant, name) => {
                write!(f, "{name} is in the repository of {tenant}, but in no record")
            }
            Finding::AddressTwice(address) => write!(f, "the address {address} is given twice"),
        }
    }
}

/// What is wrong; nothing in a healthy world. What is being made or removed at this moment may show for a moment.
pub async fn examine(engine: &Engine, pool: &dyn DiskPool, devices: &[EmulatorId]) -> Result<Vec<Finding>> {
    let contents = pool.list().await.map_err(|error| Error::internal(error).context("look into the pool"))?;
    let received =
        pool.received().await.map_err(|error| Error::internal(error).context("look into the pool"))?;
    let mut tx = engine.store.read().await?;
    let known_layers = layers::list(&mut tx).await?;
    let known_disks = disks::list(&mut tx).await?;
    let there: HashSet<LayerId> = contents.layers.iter().map(|layer| layer.id).collect();
    let recorded: HashSet<LayerId> = known_layers.iter().map(|layer| layer.id).collect();
    let mut findings = Vec::new();
    findings.extend(there.difference(&recorded).copied().map(Finding::StrayLayer));
    let awaited: HashSet<LayerId> = known_layers.iter().filter(|l| is_awaited(l)).map(|l| l.id).collect();
    findings.extend(received.into_iter().filter(|id| !awaited.contains(id)).map(Finding::StrayUpload));
    let lost = known_layers.iter().filter(|layer| {
        matches!(layer.state, LayerState::Ready | LayerState::Quarantined) && !there.contains(&layer.id)
    });
    findings.extend(lost.map(|layer| Finding::MissingLayer(layer.id)));
    let doubted = known_layers
        .iter()
        .filter(|layer| layer.state == LayerState::Quarantined && there.contains(&layer.id));
    findings.extend(doubted.map(|layer| Finding::Quarantined(layer.id)));

    findings.extend(wrong_lineages(&mut tx, &contents, &known_layers).await?);

    let disks_there: HashSet<DiskId> = contents.disks.iter().map(|disk| disk.id).collect();
    let recorded: HashSet<DiskId> = known_disks.iter().map(|disk| disk.id).collect();
    findings.extend(disks_there.difference(&recorded).copied().map(Finding::StrayDisk));
    for disk in known_disks.iter().filter(|disk| !disks_there.contains(&disk.id)) {
        let emulator = emulators::find_any(&mut tx, disk.emulator).await?;
        // Before it is made, and after it is removed, a record stands alone.
        if emulator.is_some_and(|emulator| emulator.disk == disk.id && emulator.disk_ready_at.is_some()) {
            findings.push(Finding::MissingDisk(disk.id, disk.emulator));
        }
    }
    findings.extend(contents.strangers.into_iter().map(Finding::Stranger));
    findings.extend(unwanted(&mut tx, devices).await?.into_iter().map(Finding::StrayDevice));
    findings.extend(layers::miscounted(&mut tx).await?.into_iter().map(Finding::WrongCount));
    findings.extend(wrong_usage(&mut tx).await?);
    let slots = slots::examine(&mut tx).await?;
    findings.extend(slots.twice.into_iter().map(|slot| Finding::AddressTwice(address_of(slot))));
    findings.sort_by_key(ToString::to_string);
    Ok(findings)
}

/// Those of emulators that are over or never were.
async fn unwanted(tx: &mut Tx, there: &[EmulatorId]) -> Result<Vec<EmulatorId>> {
    // Those that prove a snapshot are nobody's emulator.
    let mut trials = verifications::emulators(tx).await?;
    trials.extend(templates::emulators(tx).await?);
    let mut found = Vec::new();
    for id in there.iter().filter(|id| !trials.contains(id)) {
        let emulator = emulators::find_any(tx, *id).await?;
        if emulator.is_none_or(|emulator| emulator.terminated_at.is_some()) {
            found.push(*id);
        }
    }
    Ok(found)
}

/// Whether files stand on what the catalogue says, but for those that are just being moved.
async fn wrong_lineages(tx: &mut Tx, contents: &PoolContents, known: &[Layer]) -> Result<Vec<Finding>> {
    let moving: HashSet<LayerId> = consolidations::list(tx)
        .await?
        .into_iter()
        .filter(|row| row.state != ConsolidationState::Settling)
        .map(|row| row.layer)
        .collect();
    let ready = known.iter().filter(|layer| layer.state == LayerState::Ready && !moving.contains(&layer.id));
    let parents: HashMap<LayerId, Option<LayerId>> = ready.map(|layer| (layer.id, layer.parent)).collect();
    let astray = contents
        .layers
        .iter()
        .filter(|layer| parents.get(&layer.id).is_some_and(|parent| *parent != layer.parent));
    let mut findings: Vec<Finding> = astray.map(|layer| Finding::WrongParent(layer.id)).collect();
    let stray = contents.merged.iter().filter(|id| !moving.contains(*id));
    findings.extend(stray.map(|id| Finding::StrayMerge(*id)));
    findings.extend(layers::mismeasured(tx).await?.into_iter().map(Finding::WrongDepth));
    Ok(findings)
}

/// The same of the memory that lies at the host.
pub async fn examine_templates(engine: &Engine, there: &[TemplateId]) -> Result<Vec<Finding>> {
    let known = templates::list(&mut engine.store.read().await?).await?;
    let recorded: HashSet<TemplateId> = known.iter().map(|template| template.id).collect();
    let strays = there.iter().filter(|id| !recorded.contains(id)).copied().map(Finding::StrayTemplate);
    let lost = known.into_iter().filter(|found| found.is_usable() && !there.contains(&found.id));
    Ok(strays.chain(lost.map(|found| Finding::MissingTemplate(found.id, found.snapshot))).collect())
}

/// Cars that were left behind.
pub async fn examine_cars(engine: &Engine, there: &[EmulatorId]) -> Result<Vec<Finding>> {
    let found = unwanted(&mut engine.store.read().await?, there).await?;
    Ok(found.into_iter().map(Finding::StrayCar).collect())
}

/// Backups that the catalogue and the repositories do not both know.
pub async fn examine_backups(engine: &Engine, repositories: &dyn BackupRepositories) -> Result<Vec<Finding>> {
    let mut recorded: BTreeMap<TenantId, Vec<(BackupId, BackupPhase)>> = BTreeMap::new();
    for (id, tenant, phase) in backups::phases(&mut engine.store.read().await?).await? {
        recorded.entry(tenant).or_default().push((id, phase));
    }
    let mut findings = Vec::new();
    for (tenant, recorded) in recorded {
        let kept = match repositories.list(tenant).await {
            Ok(kept) => kept,
            // What else is wrong must be told all the same.
            Err(error) => {
                findings.push(Finding::ClosedRepository(tenant, error.to_string()));
                continue;
            }
        };
        let lost = recorded
            .iter()
            .filter(|(id, phase)| *phase == BackupPhase::Completed && !kept.contains(&id.to_string()));
        findings.extend(lost.map(|(id, _)| Finding::MissingBackup(*id)));
        let known: HashSet<String> = recorded.iter().map(|(id, _)| id.to_string()).collect();
        let strays = kept.into_iter().filter(|name| !known.contains(name));
        findings.extend(strays.map(|name| Finding::StrayBackup(tenant, name)));
    }
    Ok(findings)
}

async fn wrong_usage(tx: &mut Tx) -> Result<Vec<Finding>> {
    let mut sums: BTreeMap<TenantId, (i64, i64)> = BTreeMap::new();
    for (tenant, usage) in tenant_usage::list(tx).await? {
        sums.insert(tenant, (usage.emulators, usage.memory_bytes));
    }
    for (tenant, usage) in tenant_usage::counted(tx).await? {
        let sum = sums.entry(tenant).or_default();
        *sum = (sum.0 - usage.emulators, sum.1 - usage.memory_bytes);
    }
    let wrong = sums.into_iter().filter(|(_, difference)| *difference != (0, 0));
    Ok(wrong.map(|(tenant, _)| Finding::WrongUsage(tenant)).collect())
}

/// How the addresses are distributed.
pub async fn addresses(engine: &Engine) -> Result<Slots> {
    Ok(slots::examine(&mut engine.store.read().await?).await?)
}
