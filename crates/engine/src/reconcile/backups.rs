//! Carries out backups, restores and prunes. Each runs in a task of its own; this loop begins them, looks after them, and
//! begins them again when the process that had them is no more.
//!
//! ```text
//! backup   queued ──► running ──► completed │ failed        deleting ──► forgotten, then pruned
//! restore  queued ──► running ──► the bytes are in the pool ──► completed │ failed
//! ```
//!
//! What a repository holds under a backup's name is found again, so that nothing is stored twice after a kill.

use std::sync::Arc;
use std::time::Duration;

use paddock_model::backups::{Backup, BackupId, BackupPhase, JobError};
use paddock_model::drivers::backup_repositories::{BackupOrder, Progress, StoredBackup};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::LayerId;
use paddock_model::restores::{Restore, RestoreId, RestorePhase};
use paddock_model::snapshots::SnapshotState;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::backups::Prune;
use paddock_store::layers::LayerState;
use paddock_store::{Tx, backups, layers, relations, restores, snapshots, vehicle_states};
use serde_json::json;
use uuid::Uuid;

use super::{Loop, Report, Trouble, delay};
use crate::audit::Actor;
use crate::backups::{back_up_root, changed};
use crate::devices::Devices;
use crate::snapshots::settle;
use crate::vault::Vault;
use crate::{Engine, audit, restores as wanted_restores};

pub const LOOP: Loop = Loop {
    name: "backups",
    watches: &["backups", "restores", "backup_prunes", "layers"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

const A_RUN: i64 = 100;
/// How often it is written down how far one has come.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// After an interruption it goes on no sooner.
const INTERRUPTED: Duration = Duration::from_secs(2);
/// One that has not come any further for so long is begun again.
const STALLED: Duration = Duration::from_secs(15 * 60);
/// How often it is tried again before it is given up.
const TRIES: i64 = 20;
/// A root whose backup has failed is backed up anew after this long.
const ROOT_AGAIN: Duration = Duration::from_secs(60 * 60);

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let Some(vault) = &devices.vault else { return Ok(Report::default()) };
    let now = engine.now();
    let mut changed = 0;
    for id in backups::expired(&mut engine.store.read().await?, now, A_RUN).await? {
        changed += u64::from(expire(engine, id).await?);
    }
    if devices.settings.back_up_roots {
        let failed_since = now - ROOT_AGAIN;
        for root in backups::roots_without(&mut engine.store.read().await?, failed_since, A_RUN).await? {
            changed += u64::from(back_up_root(engine, &root, failed_since).await?);
        }
    }
    // Somebody waits for a restore, nobody for a backup; and what is under way comes before what waits.
    for restore in restores::due(&mut engine.store.read().await?, now, A_RUN).await? {
        changed += u64::from(attend_restore(engine, devices, vault, restore).await?);
    }
    for queued in [false, true] {
        for backup in backups::due(&mut engine.store.read().await?, now, queued, A_RUN).await? {
            changed += u64::from(attend(engine, devices, vault, backup).await?);
        }
    }
    for prune in backups::prunes(&mut engine.store.read().await?, now, A_RUN).await? {
        changed += u64::from(begin_prune(engine, vault, prune));
    }
    let mut tx = engine.store.read().await?;
    let next = [
        backups::next_due(&mut tx).await?,
        backups::next_expiry(&mut tx).await?,
        restores::next_due(&mut tx).await?,
        backups::next_prune(&mut tx).await?,
    ];
    // What is due and waits for its turn is looked at again soon.
    let next = next.into_iter().flatten().min().map(|at| at.max(engine.now() + LOOKED_AT));
    Ok(Report { changed, next })
}

async fn expire(engine: &Engine, id: BackupId) -> Result<bool> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let Some(backup) = backups::find_any_to_change(&mut tx, id).await? else { return Ok(false) };
    let due = backup.expires_at.is_some_and(|at| at <= now) && backup.phase != BackupPhase::Deleting;
    // Whoever reads it may finish; after that it is looked at again.
    if !due || !restores::under_way(&mut tx, id, 1).await?.is_empty() {
        return Ok(false);
    }
    let after = changed(&backup, now, |after| (after.phase, after.due_at) = (BackupPhase::Deleting, now));
    backups::update(&mut tx, &backup, &after).await?;
    let actor = Actor { request_id: "expiry".to_owned(), ..Actor::default() };
    let tenant = Some(backup.tenant);
    audit::record(engine, &mut tx, actor, "backups.expire", tenant, backup.object(), json!({})).await?;
    engine.commit(tx).await?;
    Ok(true)
}

/// One step; false when there was nothing to do.
async fn attend(engine: &Engine, devices: &Arc<Devices>, vault: &Arc<Vault>, backup: Backup) -> Result<bool> {
    let running = vault.jobs().get(&backup.id.0).cloned();
    match (backup.phase, running) {
        (BackupPhase::Deleting, Some(job)) => {
            job.progress.cancel();
            Ok(false)
        }
        (BackupPhase::Deleting, None) => Ok(begin_forgetting(engine, vault, backup)),
        (BackupPhase::Running, Some(_)) => {
            let (done, total) = look_after(engine, vault, backup.id.0);
            let after = changed(&backup, engine.now(), |after| {
                (after.bytes_done, after.bytes_total) = (done, total);
                after.due_at = after.updated_at + LOOKED_AT;
            });
            record(engine, &backup, &after).await
        }
        (BackupPhase::Queued | BackupPhase::Running, None) => begin(engine, devices, vault, backup).await,
        _ => Ok(false),
    }
}

/// How far it has come. One that stands still is given up, and begun anew.
fn look_after(engine: &Engine, vault: &Vault, id: Uuid) -> (i64, i64) {
    let now = engine.now();
    let mut jobs = vault.jobs();
    let Some(job) = jobs.get_mut(&id) else { return (0, 0) };
    let done = job.progress.done();
    if job.seen.0 != done {
        job.seen = (done, now);
    } else if now >= job.seen.1 + STALLED {
        tracing::error!(%id, done, "a backup or restore stands still; it is begun again");
        job.progress.cancel();
    }
    (signed(done), signed(job.progress.total()))
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// False if somebody else has changed it meanwhile: then it is looked at again.
async fn record(engine: &Engine, before: &Backup, after: &Backup) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let current = backups::find_any_to_change(&mut tx, before.id).await?;
    if current.is_none_or(|current| current.generation != before.generation) {
        return Ok(false);
    }
    backups::update(&mut tx, before, after).await?;
    engine.commit(tx).await?;
    Ok(true)
}

/// Records that it runs, then has it run.
async fn begin(engine: &Engine, devices: &Arc<Devices>, vault: &Arc<Vault>, backup: Backup) -> Result<bool> {
    let now = engine.now();
    let layer = layers::find(&mut engine.store.read().await?, backup.layer).await?;
    match layer.map(|layer| layer.state) {
        Some(LayerState::Ready) => {}
        // Its device is being captured; whoever does that wakes us.
        Some(LayerState::Capturing) => return Ok(false),
        _ => {
            let message =
                "What it was to be of is not there: the capture was given up, or the bytes are in doubt.";
            let after = failed(&backup, now, JobError::new("source_missing", message));
            return record(engine, &backup, &after).await;
        }
    }
    let vehicle = vehicle_states::find(&mut engine.store.read().await?, backup.layer).await?;
    let Some(progress) = vault.begin(backup.id.0, now) else { return Ok(false) };
    let running = changed(&backup, now, |after| {
        after.phase = BackupPhase::Running;
        after.started_at = after.started_at.or(Some(now));
        after.due_at = now + LOOKED_AT;
        after.heritage.vehicle = vehicle;
    });
    match record(engine, &backup, &running).await {
        Ok(true) => {}
        other => {
            vault.jobs().remove(&backup.id.0);
            return other;
        }
    }
    let (engine, devices, vault) = (engine.clone(), devices.clone(), vault.clone());
    tokio::spawn(async move {
        let outcome = store(&engine, &devices, &vault, &running, progress.clone()).await;
        vault.jobs().remove(&running.id.0);
        if let Err(error) = finish(&engine, &vault, running.id, outcome, &progress).await {
            tracing::warn!(backup = %running.id, %error, "what became of a backup could not be recorded; it is done again");
        }
    });
    Ok(true)
}

async fn store(
    engine: &Engine,
    devices: &Devices,
    vault: &Vault,
    backup: &Backup,
    progress: Arc<Progress>,
) -> DriverResult<StoredBackup> {
    let read = async {
        let mut tx = engine.store.read().await?;
        let lineage = lineage(&mut tx, backup.layer).await?;
        Ok::<_, Error>(backups::known(&mut tx, backup.tenant, &lineage).await?)
    };
    let known = read.await.map_err(|error| {
        DriverError::new(Retry::Soon, "internal", "the catalogue does not answer").with_cause(error)
    })?;
    let order = BackupOrder {
        tenant: backup.tenant,
        name: backup.id.to_string(),
        about: json!({ "backup": backup.id, "tenant": backup.tenant, "source": backup.source, "snapshot": backup.heritage }),
        known,
        at: backup.created_at,
    };
    let content = devices.pool.content(backup.layer).await?;
    vault.repositories.store(&order, content, progress).await
}

async fn lineage(tx: &mut Tx, layer: LayerId) -> Result<Vec<LayerId>> {
    let mut lineage = Vec::new();
    let mut next = Some(layer);
    while let Some(id) = next {
        lineage.push(id);
        next = layers::find(tx, id).await?.and_then(|layer| layer.parent);
    }
    Ok(lineage)
}

/// In one step with the look at what it was: whoever writes down meanwhile how far it has come, what became of it is not lost.
async fn finish(
    engine: &Engine,
    vault: &Vault,
    id: BackupId,
    outcome: DriverResult<StoredBackup>,
    progress: &Progress,
) -> Result<()> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let Some(backup) = backups::find_any_to_change(&mut tx, id).await? else { return Ok(()) };
    let after = match outcome {
        // It is not wanted any more; the loop goes on with that.
        _ if backup.phase != BackupPhase::Running => changed(&backup, now, |after| after.due_at = now),
        Ok(stored) => changed(&backup, now, |after| {
            after.phase = BackupPhase::Completed;
            after.holds_layer = false;
            (after.bytes_done, after.bytes_total) = (signed(progress.done()), signed(progress.total()));
            after.location =
                Some(format!("{}/snapshots/{}", vault.repositories.location(backup.tenant), stored.id));
            after.stored = Some(stored.id);
            after.checksum = Some(stored.checksum);
            after.disk_bytes = Some(signed(stored.bytes));
            after.added_bytes = Some(signed(stored.added_bytes));
            after.completed_at = Some(now);
            after.error = None;
        }),
        // The server is being stopped, it stood still, or somebody else is at work there: none of its own doing.
        Err(error) if is_interruption(&error) => {
            changed(&backup, now, |after| after.due_at = now + INTERRUPTED)
        }
        Err(error) if error.retry == Retry::Never || backup.failures >= TRIES => {
            tracing::error!(backup = %backup.id, %error, "a backup has failed");
            failed(&backup, now, JobError::new(error.code, error.message))
        }
        Err(error) => {
            tracing::warn!(backup = %backup.id, %error, "a backup is held up");
            let failures = backup.failures + 1;
            let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), LOOP.every);
            changed(&backup, now, |after| (after.failures, after.due_at) = (failures, now + pause))
        }
    };
    backups::update(&mut tx, &backup, &after).await?;
    engine.commit(tx).await?;
    Ok(())
}

fn is_interruption(error: &DriverError) -> bool {
    matches!(error.code, "cancelled" | "repository_busy")
}

fn failed(backup: &Backup, now: Timestamp, error: JobError) -> Backup {
    changed(backup, now, |after| {
        after.phase = BackupPhase::Failed;
        after.holds_layer = false;
        after.completed_at = Some(after.updated_at);
        after.error = Some(error);
    })
}

/// First the repository forgets it, then we do; what it took is pruned afterwards.
/// In a task of its own: a store that is far away may take its time.
fn begin_forgetting(engine: &Engine, vault: &Arc<Vault>, backup: Backup) -> bool {
    let Some(_progress) = vault.begin(backup.id.0, engine.now()) else { return false };
    let (engine, vault) = (engine.clone(), vault.clone());
    tokio::spawn(async move {
        let forgotten = forget(&engine, &vault, &backup).await;
        vault.jobs().remove(&backup.id.0);
        if let Err(error) = forgotten {
            tracing::warn!(backup = %backup.id, %error, "that a backup is gone could not be recorded; it is done again");
        }
    });
    true
}

async fn forget(engine: &Engine, vault: &Vault, backup: &Backup) -> Result<bool> {
    let stored = backup.stored.is_some();
    let forgotten = vault.repositories.forget(backup.tenant, &backup.id.to_string(), stored).await;
    let now = engine.now();
    if let Err(error) = forgotten {
        tracing::warn!(backup = %backup.id, %error, "a backup cannot be forgotten yet");
        let failures = backup.failures + 1;
        let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), LOOP.every);
        let after = changed(backup, now, |after| (after.failures, after.due_at) = (failures, now + pause));
        return record(engine, backup, &after).await;
    }
    let mut tx = engine.store.begin().await?;
    let Some(backup) = backups::find_any_to_change(&mut tx, backup.id).await? else { return Ok(false) };
    backups::delete(&mut tx, &backup).await?;
    backups::want_prune(&mut tx, backup.tenant, now).await?;
    relations::take_back_all(&mut tx, &backup.object().thing()).await?;
    engine.commit(tx).await?;
    Ok(true)
}

fn begin_prune(engine: &Engine, vault: &Arc<Vault>, prune: Prune) -> bool {
    let Some(_progress) = vault.begin(prune.tenant.0, engine.now()) else { return false };
    let (engine, vault) = (engine.clone(), vault.clone());
    tokio::spawn(async move {
        let outcome = vault.repositories.prune(prune.tenant).await;
        vault.jobs().remove(&prune.tenant.0);
        let recorded = async {
            let mut tx = engine.store.begin().await?;
            match outcome {
                Ok(bytes) => {
                    tracing::info!(tenant = %prune.tenant, bytes, "pruned a repository of backups");
                    backups::pruned(&mut tx, &prune).await?;
                }
                Err(error) => {
                    tracing::warn!(tenant = %prune.tenant, %error, "a repository of backups cannot be pruned yet");
                    let failures = prune.failures + 1;
                    let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), LOOP.every);
                    let later = Prune { failures, due_at: engine.now() + pause, ..prune };
                    backups::put_prune_off(&mut tx, &later).await?;
                }
            }
            engine.commit(tx).await
        };
        if let Err(error) = recorded.await {
            tracing::warn!(%error, "what became of a prune could not be recorded; it is done again");
        }
    });
    true
}

/// One step; false when there was nothing to do.
async fn attend_restore(
    engine: &Engine,
    devices: &Arc<Devices>,
    vault: &Arc<Vault>,
    restore: Restore,
) -> Result<bool> {
    let now = engine.now();
    let running = vault.jobs().get(&restore.id.0).cloned();
    if let Some(job) = running {
        let layer = layers::find(&mut engine.store.read().await?, restore.layer).await?;
        if layer.is_none_or(|layer| layer.state != LayerState::Uploading) {
            // Its snapshot was deleted, or all of it is there.
            job.progress.cancel();
            return Ok(false);
        }
        let (done, total) = look_after(engine, vault, restore.id.0);
        let after = wanted_restores::changed(&restore, now, |after| {
            (after.bytes_done, after.due_at) = (done, now + LOOKED_AT);
            after.bytes_total = if total > 0 { total } else { after.bytes_total };
        });
        return record_restore(engine, &restore, &after).await;
    }
    let mut tx = engine.store.read().await?;
    let layer = layers::find(&mut tx, restore.layer).await?;
    let fault = snapshots::find_any(&mut tx, &restore.snapshot).await?.and_then(|snapshot| snapshot.fault);
    drop(tx);
    match layer.map(|layer| layer.state) {
        Some(LayerState::Uploading) => begin_restore(engine, devices, vault, restore).await,
        // The bytes are there; whoever takes them in wakes us.
        Some(LayerState::Importing) => Ok(false),
        Some(LayerState::Ready | LayerState::Quarantined) => {
            let after = wanted_restores::changed(&restore, now, |after| {
                (after.phase, after.completed_at) = (RestorePhase::Completed, Some(now));
                after.bytes_done = after.bytes_total;
            });
            record_restore(engine, &restore, &after).await
        }
        _ => {
            let message =
                fault.unwrap_or_else(|| "The snapshot was deleted before it was restored.".to_owned());
            fail_restore(engine, &restore, JobError::new("snapshot_gone", message)).await
        }
    }
}

async fn record_restore(engine: &Engine, before: &Restore, after: &Restore) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let current = restores::find_any_to_change(&mut tx, before.id).await?;
    if current.is_none_or(|current| current.generation != before.generation) {
        return Ok(false);
    }
    restores::update(&mut tx, before, after).await?;
    engine.commit(tx).await?;
    Ok(true)
}

async fn begin_restore(
    engine: &Engine,
    devices: &Arc<Devices>,
    vault: &Arc<Vault>,
    restore: Restore,
) -> Result<bool> {
    let now = engine.now();
    let backup = backups::find_any(&mut engine.store.read().await?, restore.backup).await?;
    let stored = backup.and_then(|backup| Some((backup.stored?, backup.checksum?)));
    let Some((stored, checksum)) = stored else {
        let error = JobError::new("backup_gone", "The backup is not there any more.");
        return fail_restore(engine, &restore, error).await;
    };
    let Some(progress) = vault.begin(restore.id.0, now) else { return Ok(false) };
    let running = wanted_restores::changed(&restore, now, |after| {
        after.phase = RestorePhase::Running;
        after.started_at = after.started_at.or(Some(now));
        after.due_at = now + LOOKED_AT;
    });
    match record_restore(engine, &restore, &running).await {
        Ok(true) => {}
        other => {
            vault.jobs().remove(&restore.id.0);
            return other;
        }
    }
    let (engine, devices, vault) = (engine.clone(), devices.clone(), vault.clone());
    tokio::spawn(async move {
        let outcome = fetch(&devices, &vault, &running, &stored, &checksum, progress).await;
        vault.jobs().remove(&running.id.0);
        if let Err(error) = finish_restore(&engine, &devices, running.id, outcome).await {
            tracing::warn!(restore = %running.id, %error, "what became of a restore could not be recorded; it is done again");
        }
    });
    Ok(true)
}

/// Brings the bytes into the pool, and says what their digest is.
async fn fetch(
    devices: &Devices,
    vault: &Vault,
    restore: &Restore,
    stored: &str,
    checksum: &str,
    progress: Arc<Progress>,
) -> DriverResult<String> {
    let busy = || DriverError::new(Retry::Soon, "upload_in_progress", "somebody else writes to the snapshot");
    let _turn = devices.take_turn(restore.layer).ok_or_else(busy)?;
    let mut fetched = vault.repositories.fetch(restore.tenant, stored, checksum, progress).await?;
    let received = devices.pool.receive(restore.layer, &mut *fetched.content, fetched.bytes, None).await;
    match (received, fetched.failure.take()) {
        (_, Some(error)) => Err(error),
        (received, None) => received,
    }
}

async fn finish_restore(
    engine: &Engine,
    devices: &Devices,
    id: RestoreId,
    outcome: DriverResult<String>,
) -> Result<()> {
    let now = engine.now();
    let Some(restore) = restores::find_any(&mut engine.store.read().await?, id).await? else { return Ok(()) };
    if let Ok(digest) = &outcome {
        let mut tx = engine.store.begin().await?;
        let awaited = layers::restored(&mut tx, restore.layer, digest).await?;
        engine.commit(tx).await?;
        if !awaited && let Err(error) = devices.pool.discard(restore.layer).await {
            tracing::warn!(layer = %restore.layer, %error, "what was restored in vain is still in the pool");
        }
    }
    // To try again would fill the pool again, and halt devices.
    let is_final = |error: &DriverError| {
        error.retry == Retry::Never || error.code == "no_space" || restore.failures >= TRIES
    };
    let outcome = match outcome {
        Err(error) if !is_interruption(&error) && is_final(&error) => {
            tracing::error!(%restore.id, %error, "a restore has failed");
            return fail_restore(engine, &restore, JobError::new(error.code, error.message)).await.map(drop);
        }
        outcome => outcome,
    };
    let mut tx = engine.store.begin().await?;
    let Some(restore) = restores::find_any_to_change(&mut tx, id).await? else { return Ok(()) };
    let after = match outcome {
        Ok(_) => wanted_restores::changed(&restore, now, |after| {
            (after.bytes_done, after.due_at) = (after.bytes_total, now);
        }),
        Err(error) if is_interruption(&error) => {
            wanted_restores::changed(&restore, now, |after| after.due_at = now + INTERRUPTED)
        }
        Err(error) => {
            tracing::warn!(%restore.id, %error, "a restore is held up");
            let failures = restore.failures + 1;
            let pause = delay(error.retry, u32::try_from(failures).unwrap_or(u32::MAX), LOOP.every);
            wanted_restores::changed(&restore, now, |after| {
                (after.failures, after.due_at) = (failures, now + pause);
            })
        }
    };
    restores::update(&mut tx, &restore, &after).await?;
    engine.commit(tx).await?;
    Ok(())
}

/// The snapshot says why it never came to be.
async fn fail_restore(engine: &Engine, restore: &Restore, error: JobError) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    // Rows in the order in which everyone takes them: the snapshot's first.
    let snapshot = snapshots::find_any_to_change(&mut tx, &restore.snapshot).await?;
    let current = restores::find_any_to_change(&mut tx, restore.id).await?;
    let under_way = |current: &Restore| matches!(current.phase, RestorePhase::Queued | RestorePhase::Running);
    let Some(restore) = current.filter(under_way) else { return Ok(false) };
    let after = wanted_restores::changed(&restore, engine.now(), |after| {
        after.phase = RestorePhase::Failed;
        after.completed_at = Some(after.updated_at);
        after.error = Some(error.clone());
    });
    if let Some(snapshot) = snapshot
        .filter(|snapshot| snapshot.layer == restore.layer && snapshot.state == SnapshotState::Creating)
    {
        layers::set_state(&mut tx, restore.layer, LayerState::Void).await?;
        let fault = Some(("restore_failed", error.message.as_str()));
        settle(engine, &mut tx, &snapshot, SnapshotState::Faulted, fault).await?;
    }
    restores::update(&mut tx, &restore, &after).await?;
    engine.commit(tx).await?;
    Ok(true)
}
