//! CI: a job's words, between wire and model.

use paddock_api::ci::{
    CaptureSpec, CaptureWhen, CiSpec, EmulatorCapture, EmulatorCaptureState, EmulatorCi, EmulatorRestore,
    EmulatorRestoreSpec, JobOutcome, RestoreHit,
};
use paddock_api::labels::Labels;
use paddock_api::snapshots::SnapshotTrust;
use paddock_model::ci as model;
use paddock_model::trust::Trust;

pub(super) fn read_restore(spec: EmulatorRestoreSpec) -> model::RestoreSpec {
    model::RestoreSpec {
        key: spec.key,
        fallback_keys: spec.fallback_keys.unwrap_or_default(),
        required: spec.required.unwrap_or(false),
    }
}

/// What is captured goes under the key that was looked for, where no other is given.
pub(super) fn read_capture(spec: CaptureSpec, restore: Option<&EmulatorRestoreSpec>) -> model::CapturePolicy {
    model::CapturePolicy {
        when: match spec.when {
            CaptureWhen::Never => model::When::Never,
            CaptureWhen::Success => model::When::Success,
            CaptureWhen::Failure => model::When::Failure,
            CaptureWhen::Always => model::When::Always,
        },
        key: spec.key.or_else(|| restore.map(|restore| restore.key.clone())),
        labels: spec.labels.unwrap_or_default().0,
    }
}

pub(super) fn read_statement(spec: CiSpec) -> model::JobStatement {
    model::JobStatement {
        project: spec.project,
        reference: spec.r#ref,
        ref_protected: spec.ref_protected,
        fork: spec.fork,
        commit: spec.commit,
        job_id: spec.job_id,
        target_branch: spec.target_branch,
        default_branch: spec.default_branch,
    }
}

pub(super) const fn read_outcome(outcome: JobOutcome) -> model::Outcome {
    match outcome {
        JobOutcome::Success => model::Outcome::Success,
        JobOutcome::Failure => model::Outcome::Failure,
    }
}

pub(super) const fn wire_outcome(outcome: model::Outcome) -> JobOutcome {
    match outcome {
        model::Outcome::Success => JobOutcome::Success,
        model::Outcome::Failure => JobOutcome::Failure,
    }
}

pub(super) fn wire_restore(restored: &model::Restored) -> EmulatorRestore {
    EmulatorRestore {
        hit: match restored.hit {
            model::Hit::Exact => RestoreHit::Exact,
            model::Hit::Fallback => RestoreHit::Fallback,
            model::Hit::Root => RestoreHit::Root,
        },
        snapshot: restored.snapshot.to_string(),
        key: restored.key.clone(),
    }
}

pub(super) fn wire_capture(policy: &model::CapturePolicy, ending: Option<&model::Ending>) -> EmulatorCapture {
    let (state, snapshot, problem) = match ending.map(|ending| &ending.capture) {
        None => (EmulatorCaptureState::Pending, None, None),
        Some(model::LastCapture::NotAsked) => (EmulatorCaptureState::NotAsked, None, None),
        Some(model::LastCapture::Wanted { snapshot }) => {
            (EmulatorCaptureState::Capturing, Some(snapshot.to_string()), None)
        }
        Some(model::LastCapture::Taken { snapshot }) => {
            (EmulatorCaptureState::Captured, Some(snapshot.to_string()), None)
        }
        Some(model::LastCapture::Failed { message }) => {
            (EmulatorCaptureState::Failed, None, Some(message.clone()))
        }
    };
    EmulatorCapture {
        when: match policy.when {
            model::When::Never => CaptureWhen::Never,
            model::When::Success => CaptureWhen::Success,
            model::When::Failure => CaptureWhen::Failure,
            model::When::Always => CaptureWhen::Always,
        },
        key: policy.key.clone(),
        labels: Labels(policy.labels.clone()),
        state,
        outcome: ending.map(|ending| wire_outcome(ending.outcome)),
        snapshot,
        problem,
    }
}

pub(super) fn wire_ci(context: &model::JobContext) -> EmulatorCi {
    EmulatorCi {
        project: context.project.clone(),
        r#ref: context.reference.clone(),
        ref_protected: context.ref_protected,
        fork: context.fork,
        commit: context.commit.clone(),
        job_id: context.job_id.clone(),
        target_branch: context.target_branch.clone(),
        default_branch: context.default_branch.clone(),
        proved: context.is_proved(),
        trust: wire_trust(context.trust()),
    }
}

pub(super) const fn wire_trust(trust: Trust) -> SnapshotTrust {
    match trust {
        Trust::Protected => SnapshotTrust::Protected,
        Trust::Internal => SnapshotTrust::Internal,
        Trust::Untrusted => SnapshotTrust::Untrusted,
    }
}
