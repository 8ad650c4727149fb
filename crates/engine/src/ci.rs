//! CI: a job's device ends. What its job asked for is captured of it first; then it goes.

use paddock_model::Result;
use paddock_model::caller::Caller;
use paddock_model::ci::{CapturePolicy, Ending, Job, JobContext, JobStatement, LastCapture, Outcome};
use paddock_model::emulators::{CAPTURING, Emulator, EmulatorId, Reason, Wanted};
use paddock_model::error::Kind;
use paddock_model::expected::Expected;
use paddock_model::permissions::Relation;
use paddock_model::slug::Slug;
use paddock_model::snapshots::Origin;
use paddock_store::{Tx, emulators, restore_points};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::audit::Actor;
use crate::captures::{self, Take};
use crate::emulators::{find_to_change, update};
use crate::{Engine, audit, permissions};

const CAPTURE_FAILED: &str = "capture_failed";

/// The job has ended: its device goes, once what the outcome asks for was captured or cannot be. Both are recorded in one
/// commit, so that neither is forgotten.
pub async fn finish(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    outcome: Outcome,
    expected: &Expected,
) -> Result<Emulator> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let emulator = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanDelete, &emulator.object())?;
    expected.require(emulator.generation)?;
    if emulator.wanted == Wanted::Gone {
        return Ok(emulator);
    }
    let policy = emulator.job.as_ref().and_then(|job| job.capture.clone());
    let (emulator, capture) = match policy.filter(|policy| policy.when.asks_for(outcome)) {
        Some(policy) => capture_last(engine, &mut tx, caller, emulator, outcome, policy).await?,
        None => (emulator, LastCapture::NotAsked),
    };
    let reason = match &capture {
        LastCapture::NotAsked | LastCapture::Taken { .. } => None,
        LastCapture::Wanted { snapshot } => {
            Some(Reason::new(CAPTURING, format!("{snapshot} is captured of it; then it goes.")))
        }
        LastCapture::Failed { message } => Some(Reason::new(CAPTURE_FAILED, message)),
    };
    let details = json!({ "name": emulator.name, "outcome": outcome, "capture": capture });
    let going = emulator.clone().removed(reason, now);
    let going = Emulator { job: Some(ended(going.job.clone(), Ending { outcome, capture })), ..going };
    let going = update(&mut tx, &emulator, going, now).await?;
    let (tenant, object) = (Some(going.tenant), going.object());
    audit::record(engine, &mut tx, caller, "emulators.delete", tenant, object, details).await?;
    engine.commit(tx).await?;
    Ok(going)
}

fn ended(job: Option<Job>, ending: Ending) -> Job {
    Job { ending: Some(ending), ..job.unwrap_or_default() }
}

/// Records the capture, and the emulator as it is held by that. What stands in its way is told, and is no reason to keep the device.
async fn capture_last(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    emulator: Emulator,
    outcome: Outcome,
    policy: CapturePolicy,
) -> Result<(Emulator, LastCapture)> {
    permissions::require(engine, caller, Relation::CanCapture, &emulator.object())?;
    match captures::require_ready(engine, tx, caller, &emulator).await {
        Ok(()) => {}
        Err(error) if matches!(error.kind, Kind::Conflict | Kind::Unavailable) => {
            let message = format!("It was not captured. {}", error.detail);
            tell_failure(engine, tx, Actor::from(caller), &emulator, &message).await?;
            return Ok((emulator, LastCapture::Failed { message }));
        }
        Err(error) => return Err(error),
    }
    let job = emulator.job.clone().unwrap_or_default();
    // Who ends a device may have done anything to it before.
    let trust = job.trust().min(caller.credential.trust());
    let context = job.context.unwrap_or_else(|| JobContext::stated(JobStatement::default()));
    let origin = context.origin(outcome, policy.key.clone());
    let take = Take {
        name: None,
        like: policy.key.clone().unwrap_or_else(|| emulator.name.clone()),
        origin: Origin::Ci { emulator: emulator.id, job: origin.clone() },
        group: policy.key.as_deref().map(group),
        trust,
        labels: policy.labels,
        // The next job is to start warm; what cannot resume boots from the disk.
        memory: true,
    };
    let (snapshot, held) = captures::begin(engine, tx, caller, &emulator, take).await?;
    restore_points::insert(tx, &snapshot, &origin).await?;
    let details = json!({ "emulator": emulator.id, "outcome": outcome });
    let (tenant, object) = (snapshot.tenant, snapshot.object());
    audit::record(engine, tx, caller, "snapshots.create", tenant, object, details).await?;
    Ok((held, LastCapture::Wanted { snapshot: snapshot.name }))
}

/// Captures under one key belong together; a key that is too long for a group's name is told apart by its digest.
fn group(key: &str) -> String {
    const LONGEST: usize = 100;
    const KEPT: usize = 83;
    if key.chars().count() <= LONGEST {
        return key.to_owned();
    }
    let sum = digest(&SHA256, key.as_bytes());
    let sum: String = sum.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let start: String = key.chars().take(KEPT).collect();
    format!("{start}-{sum}")
}

/// Notes what has become of a capture, if a device's end waits for it; false if none does.
pub(crate) async fn note(
    engine: &Engine,
    tx: &mut Tx,
    emulator: EmulatorId,
    snapshot: &Slug,
    outcome: std::result::Result<(), &str>,
) -> Result<bool> {
    let Some(emulator) = emulators::find_any_to_change(tx, emulator).await? else { return Ok(false) };
    let Some(job) = emulator.job.clone() else { return Ok(false) };
    let Some(ending) = job.ending.clone().filter(|ending| ending.awaited() == Some(snapshot)) else {
        return Ok(false);
    };
    let (capture, reason) = match outcome {
        Ok(()) => (LastCapture::Taken { snapshot: snapshot.clone() }, emulator.reason.clone()),
        Err(why) => {
            let message = format!("{snapshot} was not captured. {why}");
            let actor = Actor { request_id: "captures".to_owned(), ..Actor::default() };
            tell_failure(engine, tx, actor, &emulator, &message).await?;
            // The log of one that is gone is closed.
            let gone = emulator.terminated_at.is_some();
            let reason =
                if gone { emulator.reason.clone() } else { Some(Reason::new(CAPTURE_FAILED, &message)) };
            (LastCapture::Failed { message }, reason)
        }
    };
    let job = Job { ending: Some(Ending { capture, ..ending }), ..job };
    let noted = Emulator { job: Some(job), reason, ..emulator.clone() };
    update(tx, &emulator, noted, engine.now()).await?;
    Ok(true)
}

async fn tell_failure(
    engine: &Engine,
    tx: &mut Tx,
    actor: Actor,
    emulator: &Emulator,
    message: &str,
) -> Result<()> {
    tracing::error!(emulator = %emulator.id, message, "a job's device goes without being captured");
    let details = json!({ "name": emulator.name, "message": message });
    let (tenant, object) = (Some(emulator.tenant), emulator.object());
    audit::record(engine, tx, actor, "emulators.capture_failed", tenant, object, details).await
}

#[cfg(test)]
mod tests {
    use super::group;

    #[test]
    fn a_key_of_any_length_makes_a_group_of_its_own() {
        assert_eq!(group("acme/app main phone"), "acme/app main phone");
        let long = |end: &str| format!("{}{end}", "ä".repeat(200));
        assert_eq!(group(&long("a")).chars().count(), 100);
        assert_ne!(group(&long("a")), group(&long("b")));
    }
}
