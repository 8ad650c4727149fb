//! Captures: a snapshot of a device is wanted, while the device goes on.

use paddock_model::caller::Caller;
use paddock_model::ci::Job;
use paddock_model::emulators::{Action, Emulator, EmulatorId};
use paddock_model::labels::Labels;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::permissions::Relation;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Origin, Snapshot, SnapshotState, Trust};
use paddock_model::{Error, Result};
use paddock_store::captures::{Capture, CaptureState};
use paddock_store::disks::Disk;
use paddock_store::layers::{LayerState, NewLayer};
use paddock_store::{Tx, captures, disks, layers, snapshots as snapshot_rows};
use serde_json::json;

use crate::emulators::{find_to_change, require_action, require_room, require_undisturbed, update};
use crate::snapshots::{self, Described, Draft, describe_one};
use crate::{Engine, idempotency_keys, permissions, templates};

/// What a caller may say about a new snapshot of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSpec {
    pub emulator: EmulatorId,
    pub name: Option<String>,
    pub group: Option<String>,
    pub labels: Labels,
    /// Whether the device's memory is to be kept with its disk, so that clones resume.
    pub memory: bool,
}

/// Captures a device's disk, and its memory if that is wanted, without stopping it. When this returns the snapshot is wanted; a loop takes it.
pub async fn create(engine: &Engine, caller: &Caller, spec: CaptureSpec) -> Result<Described> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, spec.emulator).await?;
    permissions::require(engine, caller, Relation::CanCapture, &emulator.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    require_ready(engine, &mut tx, caller, &emulator).await?;
    let take = Take {
        name: spec.name,
        group: spec.group,
        labels: spec.labels,
        memory: spec.memory,
        ..Take::of(&emulator, caller)
    };
    let (snapshot, _) = begin(engine, &mut tx, caller, &emulator, take).await?;
    let details = json!({ "emulator": emulator.id, "memory": spec.memory });
    snapshots::announce(engine, tx, caller, snapshot, details).await
}

/// What is to be taken of a device.
pub(crate) struct Take {
    pub name: Option<String>,
    /// What it is called after where it has no name.
    pub like: String,
    pub origin: Origin,
    pub group: Option<String>,
    /// At most; no more than that of what the device was made of.
    pub trust: Trust,
    pub labels: Labels,
    /// Whether its memory is kept, too.
    pub memory: bool,
}

impl Take {
    /// What somebody takes who says nothing about it.
    pub fn of(emulator: &Emulator, caller: &Caller) -> Take {
        let job_trust = emulator.job.as_ref().map_or(Trust::Internal, Job::trust);
        Take {
            name: None,
            like: emulator.name.clone(),
            origin: Origin::Manual { emulator: emulator.id },
            group: None,
            // What ran on a job's device is trusted no further than the job, and no further than who captures it.
            trust: job_trust.min(caller.credential.trust()).min(Trust::Internal),
            labels: Labels::default(),
            memory: false,
        }
    }
}

/// Refuses what cannot be captured now.
pub(crate) async fn require_ready(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    emulator: &Emulator,
) -> Result<()> {
    require_action(emulator, Action::Capture)?;
    require_undisturbed(emulator)?;
    require_room(engine, tx, caller, emulator.tenant).await
}

/// Records that a device is to be captured; gives the snapshot, and the emulator as the capture holds it.
pub(crate) async fn begin(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    emulator: &Emulator,
    take: Take,
) -> Result<(Snapshot, Emulator)> {
    let devices = engine.devices()?;
    let now = engine.now();
    let from = disks::find(tx, emulator.disk).await?;
    let from = from.ok_or_else(|| Error::internal("an emulator's disk is not in the catalogue"))?;
    let below = layers::find(tx, from.layer).await?;
    let source = snapshot_rows::find_any(tx, &emulator.snapshot).await?;
    let source = source.ok_or_else(|| Error::internal("the source of a volume is gone"))?;
    let layer = LayerId::new(now, engine.random());
    let name = snapshots::name(take.name.as_deref(), &take.like, layer)?;
    let parent = lineage(tx, from.layer).await?;
    let next = Disk { id: DiskId::new(now, engine.random()), layer, ..from.clone() };
    let bytes = NewLayer::new(layer, below, LayerState::Capturing);
    layers::insert(tx, &bytes, now).await?;
    let draft = Draft {
        name: name.clone(),
        tenant: emulator.tenant,
        parent,
        layer,
        image: source.image,
        origin: take.origin,
        group: take.group,
        trust: source.trust.min(take.trust),
        labels: take.labels,
    };
    let snapshot = snapshots::begin(engine, tx, caller, draft).await?;
    disks::insert(tx, &next).await?;
    let wanted = Capture {
        snapshot: name.clone(),
        emulator: emulator.id,
        layer,
        from: from.id,
        to: next.id,
        state: CaptureState::Wanted,
        deadline_at: now + devices.settings.capture_deadline,
        due_at: now,
        failures: 0,
        reason: None,
    };
    captures::insert(tx, &wanted).await?;
    if take.memory {
        templates::want(engine, tx, devices, &wanted.snapshot).await?;
    }
    let held = Emulator { capturing: Some(name), active_at: now, ..emulator.clone() };
    let held = update(tx, emulator, held, now).await?;
    Ok((snapshot, held))
}

/// The nearest snapshot below a layer, itself included: what comes next was derived from it.
async fn lineage(tx: &mut Tx, layer: LayerId) -> Result<Option<Slug>> {
    let mut next = Some(layer);
    while let Some(layer) = next {
        let standing = snapshot_rows::of_layer(tx, layer).await?;
        if let Some(snapshot) =
            standing.into_iter().find(|snapshot| snapshot.state != SnapshotState::Deleting)
        {
            return Ok(Some(snapshot.name));
        }
        next = layers::find(tx, layer).await?.and_then(|layer| layer.parent);
    }
    Ok(None)
}
