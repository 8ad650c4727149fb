//! Makes templates of captured memory, proves each with a clone that resumes from it, and removes what is of no use.
//!
//! ```text
//! wanted ─► taken ─► made ─► proving ─► ready
//!    └────────┴────────┴────────┴─────► failed      removing: its snapshot is gone
//! ```
//!
//! A snapshot does not need its memory: whatever goes wrong here, its disk boots.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use paddock_model::devices::{NOT_STARTED, Phase};
use paddock_model::drivers::disk_pools::Integrity;
use paddock_model::drivers::emulator_hosts::Launch;
use paddock_model::drivers::{DriverError, Retry};
use paddock_model::emulators::{EmulatorId, IdentityMode, address_of};
use paddock_model::layers::DiskId;
use paddock_model::snapshots::{Snapshot, SnapshotState};
use paddock_model::templates::TemplateState;
use paddock_model::{Error, Result};
use paddock_store::disks::Disk;
use paddock_store::layers::LayerState;
use paddock_store::templates::Template;
use paddock_store::verifications::Trial;
use paddock_store::{disks, layers, slots, snapshots, templates};

use super::hitch::Hitch;
use super::verification::answers;
use super::{Loop, Report, Trouble, delay};
use crate::devices::Devices;
use crate::emulators::{draw_identity, take_slot};
use crate::templates::failed;
use crate::{Engine, vehicles};

pub const LOOP: Loop = Loop {
    name: "templates",
    watches: &["templates"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

/// Few: one may take a minute, and what has waited for its turn is looked at in the next run.
const A_RUN: i64 = 4;
const AT_ONCE: usize = 2;
/// How often it is looked whether a snapshot that is being deleted stays after all.
const REVIVED: Duration = Duration::from_secs(10);
/// How often a clone that resumes is looked at.
const LOOKED_AT: Duration = Duration::from_millis(100);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let due = templates::due(&mut engine.store.read().await?, engine.now(), A_RUN).await?;
    let steps = stream::iter(due).map(|template| attend(engine, devices, template)).buffer_unordered(AT_ONCE);
    let outcomes: Vec<Result<()>> = steps.collect().await;
    let mut changed = 0;
    for outcome in outcomes {
        outcome?;
        changed += 1;
    }
    let next = templates::next_due(&mut engine.store.read().await?).await?;
    Ok(Report { changed, next })
}

/// One step.
async fn attend(engine: &Engine, devices: &Devices, template: Template) -> Result<()> {
    let snapshot = snapshots::find_any(&mut engine.store.read().await?, &template.snapshot).await?;
    let wanted = snapshot.filter(|snapshot| snapshot.state != SnapshotState::Deleting);
    let step = match (template.state, &wanted) {
        (TemplateState::Ready | TemplateState::Failed | TemplateState::Removing, _) => {
            clear(engine, devices, &template).await
        }
        // Whoever purges the snapshot says what becomes of it; but it may be promoted before that.
        (_, None) => Ok(Some(Template { due_at: Some(engine.now() + REVIVED), ..template.clone() })),
        (TemplateState::Wanted, Some(_)) => Ok(Some(Template { due_at: None, ..template.clone() })),
        (TemplateState::Taken, Some(_)) => make(engine, devices, &template).await,
        (TemplateState::Made, Some(snapshot)) => begin(engine, devices, &template, snapshot).await,
        (TemplateState::Proving, Some(snapshot)) => prove(engine, devices, &template, snapshot).await,
    };
    let after = match step {
        Ok(Some(after)) => after,
        Ok(None) => return Ok(()),
        Err(Hitch::Engine(error)) => return Err(error),
        Err(Hitch::Driver(error))
            if !template.state.is_settled()
                && (error.retry == Retry::Never || is_late(engine, devices, &template)) =>
        {
            failed(engine, &template, error.code, &error.message)
        }
        Err(Hitch::Driver(error)) => put_off(engine, &template, &error),
    };
    let mut tx = engine.store.begin().await?;
    templates::update(&mut tx, &after).await?;
    engine.commit(tx).await
}

/// Time in which nobody watched does not count.
fn is_late(engine: &Engine, devices: &Devices, template: &Template) -> bool {
    let now = engine.now();
    now >= template.deadline_at.max(devices.watched_since(now) + devices.settings.boot_deadline)
}

fn put_off(engine: &Engine, template: &Template, error: &DriverError) -> Template {
    tracing::warn!(snapshot = %template.snapshot, template = %template.id, %error, "a template is held up");
    let failures = template.failures + 1;
    let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), Duration::from_secs(60));
    // What has a deadline is looked at again before it.
    let pause = if template.state.is_settled() { pause } else { pause.min(Duration::from_secs(10)) };
    Template { due_at: Some(engine.now() + pause), failures, ..template.clone() }
}

async fn make(engine: &Engine, devices: &Devices, template: &Template) -> Result<Option<Template>, Hitch> {
    let facts = devices.host.ensure_template(template.id).await?;
    Ok(Some(Template {
        state: TemplateState::Made,
        fingerprint: Some(facts.fingerprint),
        allocated_bytes: facts.allocated_bytes,
        deadline_at: engine.now() + devices.settings.capture_deadline,
        due_at: Some(engine.now()),
        failures: 0,
        ..template.clone()
    }))
}

/// Looks at the bytes of one that was proved before, then records the clone that is to resume: from here on something of it may be there.
async fn begin(
    engine: &Engine,
    devices: &Devices,
    template: &Template,
    snapshot: &Snapshot,
) -> Result<Option<Template>, Hitch> {
    let layer = layers::find(&mut engine.store.read().await?, snapshot.layer).await?;
    match layer.map(|layer| layer.state) {
        Some(LayerState::Ready) => {}
        Some(LayerState::Capturing) if !is_late(engine, devices, template) => {
            return Ok(Some(Template { due_at: Some(engine.now() + LOOKED_AT), ..template.clone() }));
        }
        _ => {
            return Ok(Some(failed(
                engine,
                template,
                "disk_missing",
                "Its disk is not there to go with it.",
            )));
        }
    }
    if template.proved_at.is_some() {
        let problem = match devices.host.verify_template(template.id).await? {
            Integrity::Sound => None,
            Integrity::Missing => Some("Its memory is not there any more.".to_owned()),
            Integrity::Altered => Some("Somebody has written to its memory.".to_owned()),
            Integrity::Broken(how) => Some(format!("Its memory is damaged: {how}.")),
        };
        if let Some(problem) = problem {
            return Ok(Some(failed(engine, template, "integrity_mismatch", &problem)));
        }
    }
    let now = engine.now();
    let emulator = EmulatorId::new(now, engine.random());
    let disk = Disk {
        id: DiskId::new(now, engine.random()),
        emulator,
        layer: snapshot.layer,
        // Nobody is kept from deleting a snapshot because it is being tried.
        snapshot: None,
        created_at: now,
    };
    let mut tx = engine.store.begin().await?;
    let trial = Trial {
        emulator,
        disk: disk.id,
        slot: take_slot(&mut tx, devices).await.map_err(without_address)?,
        identity: draw_identity(engine, &IdentityMode::Regenerate, snapshot.image.device_type),
        started_at: now,
    };
    disks::insert(&mut tx, &disk).await?;
    let proving = Template {
        state: TemplateState::Proving,
        trial: Some(trial),
        // Others may have had their turn before.
        deadline_at: now + devices.settings.boot_deadline,
        due_at: Some(now),
        failures: 0,
        ..template.clone()
    };
    if templates::update(&mut tx, &proving).await? {
        engine.commit(tx).await?;
    }
    Ok(None)
}

/// One that has to wait keeps no other from its turn.
fn without_address(error: Error) -> Hitch {
    match error.code {
        "no_address" => DriverError::new(Retry::Soon, "no_address", "No address is free for a clone.").into(),
        _ => error.into(),
    }
}

async fn prove(
    engine: &Engine,
    devices: &Devices,
    template: &Template,
    snapshot: &Snapshot,
) -> Result<Option<Template>, Hitch> {
    let Some(trial) = &template.trial else {
        return Ok(Some(Template { state: TemplateState::Made, ..template.clone() }));
    };
    let observed = devices.host.observe(trial.emulator).await?.map(|observed| observed.phase);
    let begun = !matches!(observed, None | Some(Phase::Exited { code: NOT_STARTED, .. }));
    if !begun {
        let launch = Launch {
            emulator: trial.emulator,
            incarnation: 1,
            name: format!("resumed from {}", snapshot.name),
            image: snapshot.image.name.clone(),
            volume: devices.pool.ensure_disk(trial.disk, snapshot.layer).await?,
            identity: trial.identity.clone(),
            adb_keys: Vec::new(),
            address: address_of(trial.slot),
            memory_bytes: snapshot.image.memory_bytes,
            cpus: snapshot.image.cpus,
            template: Some(template.id),
            vehicle: vehicles::ensure_for_trial(engine, devices, trial, snapshot).await??,
        };
        devices.host.ensure(&launch).await?;
    }
    let now = engine.now();
    let phase = devices.host.observe(trial.emulator).await?.map(|observed| observed.phase);
    Ok(Some(match phase {
        Some(Phase::Ready { boot_duration }) if answers(devices, trial.emulator).await? => Template {
            state: TemplateState::Ready,
            proved_at: Some(now),
            resume_ms: i64::try_from(boot_duration.as_millis()).ok(),
            reason: None,
            due_at: Some(now),
            failures: 0,
            ..template.clone()
        },
        Some(Phase::Exited { code, message }) => failed(engine, template, code, &message),
        _ if is_late(engine, devices, template) => {
            failed(engine, template, "resume_timeout", "A clone did not resume in time.")
        }
        _ => Template { due_at: Some(now + LOOKED_AT), ..template.clone() },
    }))
}

/// What was made for it goes, and what is of no use.
async fn clear(engine: &Engine, devices: &Devices, template: &Template) -> Result<Option<Template>, Hitch> {
    if let Some(trial) = &template.trial {
        devices.host.remove(trial.emulator).await?;
        vehicles::remove(devices, trial.emulator).await?;
        devices.pool.remove_disk(trial.disk).await?;
    }
    if template.state != TemplateState::Ready {
        devices.host.remove_template(template.id).await?;
    }
    let mut tx = engine.store.begin().await?;
    if let Some(trial) = &template.trial {
        disks::delete(&mut tx, trial.disk).await?;
        slots::release(&mut tx, trial.slot, engine.now()).await?;
    }
    if template.state == TemplateState::Removing {
        templates::delete(&mut tx, template.id).await?;
    } else {
        let bytes = if template.state == TemplateState::Ready { template.allocated_bytes } else { 0 };
        let cleared =
            Template { trial: None, due_at: None, failures: 0, allocated_bytes: bytes, ..template.clone() };
        // The next look finds that it is to go, and everything once more.
        if !templates::update(&mut tx, &cleared).await? {
            return Ok(None);
        }
    }
    engine.commit(tx).await?;
    Ok(None)
}
