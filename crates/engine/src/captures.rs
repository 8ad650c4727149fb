//! Captures: a snapshot of a device is wanted, while the device goes on.

use paddock_model::caller::Caller;
use paddock_model::emulators::{Action, Emulator, EmulatorId};
use paddock_model::labels::Labels;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::permissions::Relation;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Origin, SnapshotState, Trust};
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
    let devices = engine.devices()?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, spec.emulator).await?;
    permissions::require(engine, caller, Relation::CanCapture, &emulator.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    require_action(&emulator, Action::Capture)?;
    require_undisturbed(&emulator)?;
    require_room(engine, &mut tx, caller, emulator.tenant).await?;
    let from = disks::find(&mut tx, emulator.disk).await?;
    let from = from.ok_or_else(|| Error::internal("an emulator's disk is not in the catalogue"))?;
    let below = layers::find(&mut tx, from.layer).await?;
    let source = snapshot_rows::find_any(&mut tx, &emulator.snapshot).await?;
    let source = source.ok_or_else(|| Error::internal("the source of a volume is gone"))?;
    let layer = LayerId::new(now, engine.random());
    let name = snapshots::name(spec.name.as_deref(), &emulator.name, layer)?;
    let parent = lineage(&mut tx, from.layer).await?;
    let next = Disk { id: DiskId::new(now, engine.random()), layer, ..from.clone() };
    let bytes = NewLayer::new(layer, below, LayerState::Capturing);
    layers::insert(&mut tx, &bytes, now).await?;
    let draft = Draft {
        name: name.clone(),
        tenant: emulator.tenant,
        parent,
        layer,
        image: source.image,
        origin: Origin::Manual { emulator: emulator.id },
        group: spec.group,
        trust: source.trust.min(Trust::Internal),
        labels: spec.labels,
    };
    let snapshot = snapshots::begin(engine, &mut tx, caller, draft).await?;
    disks::insert(&mut tx, &next).await?;
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
    captures::insert(&mut tx, &wanted).await?;
    if spec.memory {
        templates::want(engine, &mut tx, devices, &wanted.snapshot).await?;
    }
    let held = Emulator { capturing: Some(name), active_at: now, ..emulator.clone() };
    update(&mut tx, &emulator, held, now).await?;
    let details = json!({ "emulator": emulator.id, "memory": spec.memory });
    snapshots::announce(engine, tx, caller, snapshot, details).await
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
