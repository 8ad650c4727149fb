//! Notes on every snapshot how relevant it is, and lets go what policies do not keep: always, or while the pool is short of room.

use std::time::Duration;

use paddock_model::drivers::disk_pools::PoolCapacity;
use paddock_model::retention::{Judgement, Kept, Mode, Score, Verdict, judge, relieve, score};
use paddock_model::snapshots::SnapshotState;
use paddock_model::{Result, Timestamp};
use paddock_store::retention::{Annotation, annotate, leaving};
use paddock_store::retention_policies;
use serde_json::json;

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::retention::{Catalogue, Policies};
use crate::snapshots::release;

pub const LOOP: Loop = Loop {
    name: "retention",
    watches: &["retention_policies"],
    every: Duration::from_secs(3600),
    run: |engine| Box::pin(run(engine)),
};

const ROUND: Duration = Duration::from_secs(30);
/// While room is short, the next look comes as soon as the pool may have more to say.
const UNDER_PRESSURE: Duration = Duration::from_secs(5);
/// Snapshots that are annotated in one commit.
const AT_ONCE: usize = 500;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let begun = engine.now();
    let mut tx = engine.store.read().await?;
    let policies = Policies::of(retention_policies::all(&mut tx).await?);
    let mut catalogue = Catalogue::read(&mut tx).await?;
    drop(tx);

    let scores = score(&catalogue.forest, &devices.settings.weights, begun);
    let mut changed = annotate_all(engine, &policies, &mut catalogue, &scores, begun).await?;

    let rules = catalogue.rules(|group| policies.in_force(group, Mode::Always));
    let judgement = judge(&catalogue.forest, &rules, begun);
    let mut released = 0;
    for (at, reason) in judgement.released() {
        released += release_one(engine, &policies, &catalogue, at, Mode::Always, reason.name()).await?;
    }
    changed += released;

    let capacity = devices.pool.capacity().await?;
    let short = shortage(&capacity, devices.settings.warn_percent);
    if short > 0 && released == 0 {
        changed += relieve_pool(engine, &policies, &catalogue, short, begun).await?;
    }
    let took = Duration::try_from(engine.now().duration_since(begun)).unwrap_or_default();
    let pause = if short > 0 { UNDER_PRESSURE } else { ROUND };
    // A catalogue so large that a look takes long is looked at less often.
    Ok(Report { changed, next: Some(engine.now() + pause.max(20 * took)) })
}

/// Notes what has changed by a point or more, or is kept for another reason. What is not done yet is not annotated.
async fn annotate_all(
    engine: &Engine,
    policies: &Policies,
    catalogue: &mut Catalogue,
    scores: &[Score],
    now: Timestamp,
) -> Result<u64> {
    for (at, score) in scores.iter().enumerate() {
        if matches!(catalogue.rows[at].state, SnapshotState::Ready | SnapshotState::Faulted) {
            catalogue.forest.snapshots[at].score = Some(score.total);
        }
    }
    let judgement = judge_by_any(catalogue, policies, now);
    let mut news = Vec::new();
    for (at, verdict) in judgement.verdicts.iter().enumerate() {
        let (row, candidate) = (&catalogue.rows[at], &catalogue.forest.snapshots[at]);
        let Some(score) = candidate.score else { continue };
        let kept_because: Vec<Kept> = match verdict {
            Verdict::Kept(reasons) => reasons.beyond_protections().collect(),
            Verdict::Released(_) => {
                let waits =
                    policies.in_force(&catalogue.groups[candidate.group as usize], Mode::Always).is_none();
                waits.then_some(Kept::NoPressure).into_iter().collect()
            }
        };
        if row.score != Some(score) || row.kept_because != kept_because {
            let breakdown = scores[at].breakdown.to_vec();
            news.push(Annotation { name: row.name.clone(), score, breakdown, kept_because });
        }
    }
    for some in news.chunks(AT_ONCE) {
        let mut tx = engine.store.begin().await?;
        for annotation in some {
            annotate(&mut tx, annotation, now).await?;
        }
        engine.commit(tx).await?;
    }
    Ok(news.len() as u64)
}

/// By the policy that is always carried out, or else by the one for times of pressure.
fn judge_by_any(catalogue: &Catalogue, policies: &Policies, now: Timestamp) -> Judgement {
    let rules = catalogue.rules(|group| {
        policies.in_force(group, Mode::Always).or_else(|| policies.in_force(group, Mode::Pressure))
    });
    judge(&catalogue.forest, &rules, now)
}

/// How many bytes more are taken than should be.
fn shortage(capacity: &PoolCapacity, warn_percent: i64) -> i64 {
    let taken = capacity.capacity_bytes - capacity.free_bytes;
    // So that it is below the threshold afterwards, and not on it.
    (taken - capacity.capacity_bytes / 100 * warn_percent + 1).max(0)
}

/// The pool reports freed space late: while anything is on its way out, nothing more is let go for the same shortage.
async fn relieve_pool(
    engine: &Engine,
    policies: &Policies,
    catalogue: &Catalogue,
    bytes: i64,
    now: Timestamp,
) -> Result<u64> {
    if leaving(&mut engine.store.read().await?).await? > 0 {
        return Ok(0);
    }
    let rules = catalogue.rules(|group| policies.in_force(group, Mode::Pressure));
    let judgement = judge(&catalogue.forest, &rules, now);
    let mut released = 0;
    for at in relieve(&catalogue.forest, &judgement, bytes) {
        released += release_one(engine, policies, catalogue, at, Mode::Pressure, "pressure").await?;
    }
    Ok(released)
}

async fn release_one(
    engine: &Engine,
    policies: &Policies,
    catalogue: &Catalogue,
    at: usize,
    mode: Mode,
    reason: &str,
) -> Result<u64> {
    let (row, candidate) = (&catalogue.rows[at], &catalogue.forest.snapshots[at]);
    let policy = policies.in_force(&catalogue.groups[candidate.group as usize], mode).map(|policy| policy.id);
    let why = json!({ "policy": policy, "reason": reason, "score": candidate.score });
    let released = release(engine, &row.name, why).await?;
    if released {
        tracing::info!(snapshot = %row.name, reason, policy = ?policy, "retention let a snapshot go");
        metrics::counter!("paddock_retention_released_total", "reason" => reason.to_owned()).increment(1);
    }
    Ok(u64::from(released))
}
