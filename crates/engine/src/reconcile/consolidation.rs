//! Makes long lineages short: a layer and some of those below it become one file with the same content, which takes the layer's place.
//!
//! ```text
//! merging ──► merged ──► settling ──► what it stood on goes, if nothing else stands there
//!    └─► given up, and perhaps begun anew
//! ```
//!
//! Children stand on the same layer as before, and so do devices; whoever has it open goes on with the file that was there. Killed at
//! any point, it goes on from what is recorded.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::try_join_all;
use paddock_model::consolidations::{Link, Plan, plan};
use paddock_model::drivers::disk_pools::{Integrity, Merging};
use paddock_model::drivers::{DriverError, Retry};
use paddock_model::layers::{LayerFacts, LayerId};
use paddock_model::slug::Slug;
use paddock_model::snapshots::{CHAIN_TOO_DEEP, Snapshot};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::consolidations::{Consolidation, ConsolidationState};
use paddock_store::layers::{Layer, LayerState};
use paddock_store::{Tx, consolidations, layers, snapshots};

use super::{Loop, Report, Trouble, delay, integrity};
use crate::Engine;
use crate::devices::Devices;

pub const LOOP: Loop = Loop {
    name: "consolidation",
    watches: &["layers", "snapshots", "consolidations"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

/// One run copies what may be copied in so long, so that it never keeps the server from ending.
const A_RUN: Duration = Duration::from_secs(1);
/// Between two looks.
const AT_LEAST: Duration = Duration::from_millis(200);
/// Candidates that are looked at in a run.
const LOOKED_AT: i64 = 32;
/// Snapshots that are freed in a run.
const FREED: i64 = 200;
/// How long until something is tried again that cannot be helped now.
const HOPELESS: Duration = Duration::from_secs(3600);
const NO_ROOM: Duration = Duration::from_secs(60);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let now = engine.now();
    // Every deploy wakes it, and none has to be looked after at once.
    if let Some(next) =
        devices.merges().looked_at.map(|at| at + AT_LEAST).filter(|next| is_ahead(now, *next, AT_LEAST))
    {
        return Ok(Report { changed: 0, next: Some(next) });
    }
    devices.merges().looked_at = Some(now);
    let mut changed = free_snapshots(engine, devices).await?;
    changed += begin(engine, devices).await?;
    let rests = devices.merges().rests_until.is_some_and(|until| is_ahead(now, until, A_RUN));
    let rows = consolidations::list(&mut engine.store.read().await?).await?;
    let merging = rows.iter().filter(|row| row.state == ConsolidationState::Merging).count();
    let piece = devices.settings.consolidate_bytes_per_second.saturating_mul(A_RUN.as_secs());
    let piece = (piece / merging.max(1) as u64).max(1);
    let due = rows.into_iter().filter(|row| row.due_at <= now);
    let due = due.filter(|row| !(rests && row.state == ConsolidationState::Merging));
    let steps = due.map(|row| attend(engine, devices, row, piece));
    changed += try_join_all(steps).await?.into_iter().sum::<u64>();
    if merging > 0 && !rests {
        devices.merges().rests_until = Some(now + A_RUN);
    }
    report(engine, devices).await?;
    Ok(Report { changed, next: next(engine, devices).await? })
}

/// Whether a time is still to come, and was not noted by a clock that has been set back since.
fn is_ahead(now: Timestamp, until: Timestamp, most: Duration) -> bool {
    now < until && until <= now + most
}

/// When there is something to do again: with what is under way, or with what was put off.
async fn next(engine: &Engine, devices: &Devices) -> Result<Option<Timestamp>> {
    let rows = consolidations::list(&mut engine.store.read().await?).await?;
    let merges = devices.merges();
    let due = rows.iter().map(|row| match row.state {
        ConsolidationState::Merging => row.due_at.max(merges.rests_until.unwrap_or(row.due_at)),
        ConsolidationState::Merged | ConsolidationState::Settling => row.due_at,
    });
    Ok(due.chain(merges.put_off.values().copied()).min())
}

/// Snapshots that could not be deployed because of their lineage, and can be now.
async fn free_snapshots(engine: &Engine, devices: &Devices) -> Result<u64> {
    let most = devices.settings.hard_depth;
    let mut freed = 0;
    let names = snapshots::wrongly_too_deep(&mut engine.store.read().await?, most, FREED).await?;
    for name in names {
        freed += u64::from(free_snapshot(engine, &name, most).await?);
    }
    Ok(freed)
}

async fn free_snapshot(engine: &Engine, name: &Slug, most: i64) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let Some(snapshot) = snapshots::find_any_to_change(&mut tx, name).await? else { return Ok(false) };
    let layer = layers::find(&mut tx, snapshot.layer).await?;
    if layer.is_none_or(|layer| layer.depth > most) {
        return Ok(false);
    }
    let mut after =
        Snapshot { updated_at: engine.now(), generation: snapshot.generation + 1, ..snapshot.clone() };
    after.problems.retain(|problem| problem != CHAIN_TOO_DEEP);
    snapshots::update(&mut tx, &snapshot, &after).await?;
    engine.commit(tx).await?;
    tracing::info!(snapshot = %name, "a snapshot's lineage is short enough");
    Ok(true)
}

/// Begins with what is too deep, if there is room and nothing else of the same lineage is under way.
async fn begin(engine: &Engine, devices: &Devices) -> Result<u64> {
    let now = engine.now();
    devices.merges().put_off.retain(|_, until| now < *until);
    let mut begun = 0;
    loop {
        let mut tx = engine.store.read().await?;
        let rows = consolidations::list(&mut tx).await?;
        let merging = rows.iter().filter(|row| row.state != ConsolidationState::Settling).count();
        if merging >= devices.settings.consolidations_at_once {
            return Ok(begun);
        }
        let Some((layer, plan)) = choose(&mut tx, devices, &rows).await? else { return Ok(begun) };
        drop(tx);
        if !has_room(engine, devices, plan.bytes).await? {
            tracing::warn!(%layer, bytes = plan.bytes, "there is no room to consolidate a lineage; it waits");
            devices.merges().put_off.insert(layer, now + NO_ROOM);
            continue;
        }
        let mut tx = engine.store.begin().await?;
        consolidations::insert(&mut tx, layer, plan.onto, plan.bytes, now).await?;
        engine.commit(tx).await?;
        tracing::info!(%layer, onto = %plan.onto, bytes = plan.bytes, "begins to consolidate a lineage");
        begun += 1;
    }
}

/// The first that can be helped.
async fn choose(tx: &mut Tx, devices: &Devices, rows: &[Consolidation]) -> Result<Option<(LayerId, Plan)>> {
    // Those that move, and those that they are made of.
    let moving: HashSet<LayerId> = rows.iter().map(|row| row.layer).collect();
    let mut needed = HashSet::new();
    for row in rows {
        let mut lineage = lineage(tx, row.layer).await?.into_iter();
        needed.extend(lineage.by_ref().map(|layer| layer.id).take_while(|id| *id != row.onto));
    }
    for candidate in layers::deeper_than(tx, devices.settings.soft_depth(), LOOKED_AT).await? {
        if devices.merges().put_off.contains_key(&candidate.id) || needed.contains(&candidate.id) {
            continue;
        }
        let lineage = lineage(tx, candidate.id).await?;
        if lineage.iter().any(|layer| moving.contains(&layer.id)) {
            continue;
        }
        let links: Vec<Link> = lineage.iter().map(link).collect();
        if let Some(plan) = plan(&links, devices.settings.soft_depth()) {
            return Ok(Some((candidate.id, plan)));
        }
    }
    Ok(None)
}

fn link(layer: &Layer) -> Link {
    Link { layer: layer.id, bytes: layer.allocated_bytes, sound: layer.state == LayerState::Ready }
}

/// A layer and all below it.
async fn lineage(tx: &mut Tx, layer: LayerId) -> Result<Vec<Layer>> {
    let mut found = Vec::new();
    let mut next = Some(layer);
    while let Some(id) = next {
        let Some(layer) = layers::find(tx, id).await? else { break };
        next = layer.parent;
        found.push(layer);
    }
    Ok(found)
}

/// Whether the pool stays below its critical mark, whatever is being merged already.
async fn has_room(engine: &Engine, devices: &Devices, bytes: i64) -> Result<bool> {
    let capacity = devices.pool.capacity().await.map_err(Error::internal)?;
    let reserved = consolidations::reserved_bytes(&mut engine.store.read().await?).await?;
    let taken = capacity.capacity_bytes - capacity.free_bytes + reserved.saturating_add(bytes);
    let critical = devices.settings.critical_percent;
    Ok(taken.saturating_mul(100) < capacity.capacity_bytes.saturating_mul(critical))
}

/// One step, or as many as there is time for.
async fn attend(engine: &Engine, devices: &Devices, row: Consolidation, piece: u64) -> Result<u64> {
    match row.state {
        ConsolidationState::Merging => merge(engine, devices, row, piece).await,
        ConsolidationState::Merged => replace(engine, devices, &row).await,
        ConsolidationState::Settling => {
            let mut tx = engine.store.begin().await?;
            consolidations::delete(&mut tx, &row).await?;
            engine.commit(tx).await?;
            Ok(1)
        }
    }
}

async fn merge(engine: &Engine, devices: &Devices, row: Consolidation, piece: u64) -> Result<u64> {
    let layer = layers::find(&mut engine.store.read().await?, row.layer).await?;
    // Nothing but this stands on it any more, or nobody trusts it.
    if layer.is_none_or(|layer| layer.refs <= 1 || layer.state != LayerState::Ready) {
        return give_up(engine, devices, &row, "unwanted", None).await;
    }
    match devices.pool.merge_layer(row.layer, row.onto, piece).await {
        Ok(Merging::UnderWay(written)) => {
            devices.merges().written.insert(row.layer, written);
            Ok(0)
        }
        Ok(Merging::Ready(LayerFacts { allocated_bytes, digest, .. })) => {
            let merged = Consolidation {
                state: ConsolidationState::Merged,
                allocated_bytes: Some(allocated_bytes),
                digest: Some(digest),
                failures: 0,
                ..row
            };
            let mut tx = engine.store.begin().await?;
            consolidations::update(&mut tx, &merged).await?;
            engine.commit(tx).await?;
            metrics::counter!("paddock_consolidation_bytes_total").increment(allocated_bytes.max(0) as u64);
            replace(engine, devices, &merged).await
        }
        Err(error) if error.code == "layer_altered" => {
            doubt(engine, devices, &row).await?;
            give_up(engine, devices, &row, "altered", Some((error, HOPELESS))).await
        }
        Err(error) if error.retry == Retry::Never => {
            give_up(engine, devices, &row, "failed", Some((error, HOPELESS))).await
        }
        Err(error) if error.code == "no_space" => {
            give_up(engine, devices, &row, "no_space", Some((error, NO_ROOM))).await
        }
        Err(error) => put_off(engine, &row, &error).await,
    }
}

/// Puts the merged file in its place. From then on, until it is recorded, the layer's digest is not that of the catalogue.
async fn replace(engine: &Engine, devices: &Devices, row: &Consolidation) -> Result<u64> {
    let digest = row.digest.as_deref().unwrap_or_default();
    let facts = match devices.pool.replace_layer(row.layer, digest).await {
        Ok(facts) => facts,
        Err(error) if error.code == "merge_missing" => {
            tracing::error!(layer = %row.layer, %error, "a merged layer is gone; it is merged once more");
            let again = Consolidation { state: ConsolidationState::Merging, ..row.clone() };
            let mut tx = engine.store.begin().await?;
            consolidations::update(&mut tx, &again).await?;
            engine.commit(tx).await?;
            return Ok(1);
        }
        Err(error) => return put_off(engine, row, &error).await,
    };
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    consolidations::switch(&mut tx, row, &facts, now, now + devices.settings.consolidation_grace).await?;
    engine.commit(tx).await?;
    devices.merges().written.remove(&row.layer);
    metrics::counter!("paddock_consolidations_total", "outcome" => "done").increment(1);
    tracing::info!(layer = %row.layer, onto = %row.onto, bytes = facts.allocated_bytes, "consolidated a lineage");
    Ok(1)
}

/// The layer is as it was, and so is all that stands on it.
async fn give_up(
    engine: &Engine,
    devices: &Devices,
    row: &Consolidation,
    outcome: &'static str,
    error: Option<(DriverError, Duration)>,
) -> Result<u64> {
    if let Err(error) = devices.pool.abandon_merge(row.layer).await {
        return put_off(engine, row, &error).await;
    }
    if let Some((error, pause)) = error {
        tracing::warn!(layer = %row.layer, %error, "a lineage is not consolidated now");
        devices.merges().put_off.insert(row.layer, engine.now() + pause);
    }
    devices.merges().written.remove(&row.layer);
    metrics::counter!("paddock_consolidations_total", "outcome" => outcome).increment(1);
    let mut tx = engine.store.begin().await?;
    consolidations::delete(&mut tx, row).await?;
    engine.commit(tx).await?;
    Ok(1)
}

async fn put_off(engine: &Engine, row: &Consolidation, error: &DriverError) -> Result<u64> {
    tracing::warn!(layer = %row.layer, %error, "a consolidation is held up");
    let failures = row.failures + 1;
    let retry = if error.retry == Retry::Never { Retry::Later } else { error.retry };
    let pause = delay(retry, u32::try_from(failures).unwrap_or(u32::MAX), Duration::from_secs(60));
    let later = Consolidation { due_at: engine.now() + pause, failures, ..row.clone() };
    let mut tx = engine.store.begin().await?;
    consolidations::update(&mut tx, &later).await?;
    engine.commit(tx).await?;
    Ok(1)
}

/// Something that was to be merged is not what was recorded: whichever it is, nothing new is made on it.
async fn doubt(engine: &Engine, devices: &Devices, row: &Consolidation) -> Result<()> {
    let lineage = lineage(&mut engine.store.read().await?, row.layer).await?;
    for layer in lineage.iter().take_while(|layer| layer.id != row.onto) {
        let digest = layer.digest.as_deref().unwrap_or_default();
        let looked = devices.pool.verify_layer(layer.id, digest).await;
        if let Ok(Integrity::Altered | Integrity::Broken(_)) = looked {
            let why = "its bytes are not those that were recorded";
            integrity::put_aside(engine, devices, layer.id, why).await.map_err(|trouble| trouble.error)?;
        }
    }
    Ok(())
}

/// Whether a layer's bytes may be others than those of this digest because it was consolidated since, or is at this moment.
pub(crate) async fn may_have_moved(engine: &Engine, layer: LayerId, digest: &str) -> Result<bool> {
    let mut tx = engine.store.read().await?;
    let replaced = consolidations::find(&mut tx, layer).await?;
    let known = layers::find(&mut tx, layer).await?.and_then(|layer| layer.digest);
    Ok(known.as_deref() != Some(digest)
        || replaced.is_some_and(|row| row.state == ConsolidationState::Merged))
}

/// What is known of lineages, and the room that is kept free.
async fn report(engine: &Engine, devices: &Devices) -> Result<()> {
    let mut tx = engine.store.read().await?;
    let (soft, hard) = (devices.settings.soft_depth(), devices.settings.hard_depth);
    metrics::gauge!("paddock_layers_deepest").set(layers::deepest(&mut tx).await? as f64);
    for (limit, depth) in [("soft", soft), ("hard", hard)] {
        let count = layers::count_deeper_than(&mut tx, depth).await?;
        metrics::gauge!("paddock_layers_too_deep", "limit" => limit).set(count as f64);
    }
    let rows = consolidations::list(&mut tx).await?;
    let merging = rows.iter().filter(|row| row.state == ConsolidationState::Merging);
    let mut merges = devices.merges();
    let mut reserved = 0;
    let mut under_way = 0;
    for row in merging {
        under_way += 1;
        let written = merges.written.get(&row.layer).copied().unwrap_or_default();
        reserved += (row.reserved_bytes - written).max(0);
    }
    merges.reserved_bytes = reserved;
    metrics::gauge!("paddock_consolidations_under_way").set(f64::from(under_way));
    Ok(())
}
