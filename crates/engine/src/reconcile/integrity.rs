//! Holds stored layers against what was recorded of them: a glance at each when the server starts, and every byte now and
//! then, slowly. A layer that is not what it was is put aside and reported; nobody deletes or mends it, and devices that
//! run on it are left alone. Once its bytes are what they were, a verification takes it back into use.

use std::time::Duration;

use paddock_model::drivers::disk_pools::Integrity;
use paddock_model::layers::LayerId;
use paddock_model::snapshots::{Snapshot, SnapshotState};
use paddock_model::{Result, Timestamp};
use paddock_store::layers::LayerState;
use paddock_store::{layers, snapshots};
use ring::digest::{Context, SHA256};
use serde_json::json;

use super::consolidation::may_have_moved;
use super::{Loop, Report, Trouble};
use crate::audit::Actor;
use crate::devices::{Devices, Reading};
use crate::snapshots::stands_on_all;
use crate::{Engine, audit};

pub const LOOP: Loop = Loop {
    name: "integrity",
    watches: &["layers"],
    every: Duration::from_secs(3600),
    run: |engine| Box::pin(run(engine)),
};

/// What a snapshot says that stands on such a layer.
pub const PROBLEM: &str = "integrity_mismatch";

const PIECE: usize = 1 << 20;
/// One run reads what may be read in so long, so that it never keeps the server from ending.
const A_RUN: Duration = Duration::from_secs(1);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let mut work = devices.integrity.lock().await;
    let mut changed = 0;
    if !work.glanced {
        changed += glance(engine, devices).await?;
        work.glanced = true;
        report_count(engine).await?;
    }
    let Some(every) = devices.settings.verify_every else {
        return Ok(Report { changed, ..Report::default() });
    };
    let now = engine.now();
    if let Some(next) = work.rests_until.filter(|until| now < *until) {
        return Ok(Report { changed, next: Some(next) });
    }
    if work.reading.is_none() {
        let mut tx = engine.store.read().await?;
        let due = layers::unverified_since(&mut tx, now - every).await?;
        let Some(layer) = due else {
            let next = layers::oldest_verification(&mut tx).await?.map(|at| at + every);
            return Ok(Report { changed, next });
        };
        work.reading = Some(Reading { layer, context: Context::new(&SHA256), at: 0 });
    }
    // Whatever goes wrong, the next run begins with this layer anew.
    let Some(mut reading) = work.reading.take() else { return Ok(Report::default()) };
    if read(devices, &mut reading).await? {
        changed += 1;
        conclude(engine, devices, reading).await?;
    } else {
        work.reading = Some(reading);
    }
    // Whatever wakes the loop meanwhile: what was read counts for so long.
    work.rests_until = Some(now + A_RUN);
    Ok(Report { changed, next: work.rests_until })
}

/// Reads on for as much as the rate allows in one run; whether the end is reached.
async fn read(devices: &Devices, reading: &mut Reading) -> Result<bool, Trouble> {
    let mut left = devices.settings.verify_bytes_per_second.saturating_mul(A_RUN.as_secs());
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let bytes = devices.pool.read_layer(reading.layer.id, reading.at, most).await?;
        if bytes.is_empty() {
            return Ok(true);
        }
        reading.context.update(&bytes);
        reading.at += bytes.len() as u64;
        left -= bytes.len() as u64;
    }
    Ok(false)
}

async fn conclude(engine: &Engine, devices: &Devices, reading: Reading) -> Result<(), Trouble> {
    let digits: String = reading.context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if reading.layer.digest.as_deref() != Some(&digits) {
        let recorded = reading.layer.digest.as_deref().unwrap_or_default();
        // Another file with the same content took its place while it was read; the next reading is of that one.
        if may_have_moved(engine, reading.layer.id, recorded).await? {
            return Ok(());
        }
        put_aside(engine, devices, reading.layer.id, "its bytes are not those that were recorded").await?;
        return Ok(report_count(engine).await?);
    }
    let mut tx = engine.store.begin().await?;
    layers::set_verified(&mut tx, reading.layer.id, engine.now()).await?;
    Ok(engine.commit(tx).await?)
}

/// Looks at every layer from outside.
async fn glance(engine: &Engine, devices: &Devices) -> Result<u64, Trouble> {
    let mut changed = 0;
    for layer in layers::list(&mut engine.store.read().await?).await? {
        let (LayerState::Ready, Some(digest)) = (layer.state, &layer.digest) else { continue };
        match devices.pool.glance_at_layer(layer.id, digest).await? {
            Integrity::Sound => {}
            _ if may_have_moved(engine, layer.id, digest).await? => {}
            // Perhaps a disk that is not mounted: it may come back, and then all is well. Or it has gone as it should.
            Integrity::Missing => {
                let now = layers::find(&mut engine.store.read().await?, layer.id).await?;
                if now.is_none_or(|now| now.state != LayerState::Ready) {
                    continue;
                }
                tracing::error!(layer = %layer.id, "a layer is not in the pool; what stands on it cannot boot");
            }
            Integrity::Altered => {
                put_aside(engine, devices, layer.id, "its length or digest is not what was recorded").await?;
                changed += 1;
            }
            Integrity::Broken(how) => {
                put_aside(engine, devices, layer.id, &how).await?;
                changed += 1;
            }
        }
    }
    Ok(changed)
}

/// No new device is made on it, nor on what stands on it.
pub(super) async fn put_aside(
    engine: &Engine,
    devices: &Devices,
    layer: LayerId,
    why: &str,
) -> Result<(), Trouble> {
    tracing::error!(%layer, why, "a layer is put aside; put its bytes back, then verify a snapshot on it");
    devices.pool.quarantine_layer(layer).await?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    layers::set_state(&mut tx, layer, LayerState::Quarantined).await?;
    let mut above = vec![layer];
    while let Some(layer) = above.pop() {
        above.extend(layers::children(&mut tx, layer).await?);
        for snapshot in snapshots::of_layer(&mut tx, layer).await? {
            if !snapshot.problems.iter().any(|problem| problem == PROBLEM) {
                snapshots::update(&mut tx, &snapshot, &doubted(&snapshot, now)).await?;
            }
        }
    }
    let actor = Actor { request_id: "integrity".to_owned(), ..Actor::default() };
    audit::record(engine, &mut tx, actor, "layers.quarantine", None, layer, json!({ "reason": why })).await?;
    Ok(engine.commit(tx).await?)
}

/// Its bytes are what they were: whoever put them back may use it again, with all that stands on it and on nothing else in doubt.
pub(super) async fn readmit(engine: &Engine, devices: &Devices, layer: LayerId) -> Result<(), Trouble> {
    tracing::info!(%layer, "a layer that was put aside is what it was, and is taken back into use");
    devices.pool.readmit_layer(layer).await?;
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    layers::set_state(&mut tx, layer, LayerState::Ready).await?;
    layers::set_verified(&mut tx, layer, now).await?;
    let mut above = vec![layer];
    while let Some(layer) = above.pop() {
        if !stands_on_all(&mut tx, Some(layer)).await? {
            continue;
        }
        above.extend(layers::children(&mut tx, layer).await?);
        for snapshot in snapshots::of_layer(&mut tx, layer).await? {
            // One that has failed for it is proved anew by whoever asks for that.
            if snapshot.state == SnapshotState::Ready && snapshot.problems.iter().any(|own| own == PROBLEM) {
                snapshots::update(&mut tx, &snapshot, &believed(&snapshot, now)).await?;
            }
        }
    }
    let actor = Actor { request_id: "integrity".to_owned(), ..Actor::default() };
    audit::record(engine, &mut tx, actor, "layers.readmit", None, layer, json!({})).await?;
    engine.commit(tx).await?;
    Ok(report_count(engine).await?)
}

fn believed(snapshot: &Snapshot, now: Timestamp) -> Snapshot {
    let mut after = snapshot.clone();
    after.problems.retain(|problem| problem != PROBLEM);
    after.updated_at = now;
    after.generation += 1;
    after
}

fn doubted(snapshot: &Snapshot, now: Timestamp) -> Snapshot {
    let mut after = snapshot.clone();
    after.problems.push(PROBLEM.to_owned());
    after.updated_at = now;
    after.generation += 1;
    after
}

async fn report_count(engine: &Engine) -> Result<()> {
    let count = layers::count_quarantined(&mut engine.store.read().await?).await?;
    metrics::gauge!("paddock_layers_quarantined").set(count as f64);
    Ok(())
}
