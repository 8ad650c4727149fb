//! CI: what a job's device starts from, and what is captured of it when the job ends.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::emulators::Emulator;
use crate::labels::Labels;
use crate::problem::Obstacle;
use crate::snapshots::SnapshotTrust;

/// What to start from: keys under which jobs have captured their devices. Looked for in this order: the key, the fallback keys, the
/// job's target branch and default branch, the newest promoted root. The newest of what is found is taken, if it has the same device
/// type and ABI, can be deployed, and is trusted as far as the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmulatorRestoreSpec {
    /// Compared byte by byte, whatever it holds.
    #[schema(
        min_length = 1,
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app main phone")
    )]
    pub key: String,
    /// Tried in this order. One that ends in `*` stands for all keys that begin with what is before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_items = 5,
        min_length = 1,
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples(json!(["acme/app main *", "acme/app *"])),
        nullable = false
    )]
    pub fallback_keys: Option<Vec<String>>,
    /// Refuse with `restore_miss` where no key and no branch is found, instead of starting from a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub required: Option<bool>,
}

/// After which outcome of its job a device is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureWhen {
    Never,
    Success,
    Failure,
    Always,
}

/// What is captured of a device when its job ends, that is, when it is deleted with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaptureSpec {
    pub when: CaptureWhen,
    /// Under which the capture is found again, and by which it is grouped; that of `restore` if you give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app main phone"),
        nullable = false
    )]
    pub key: Option<String>,
    /// Written on the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<Labels>,
}

/// The job that an emulator is for, as you state it. Your word can lower how far the job is trusted, but not raise it; what a job's
/// own token proves must not be contradicted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CiSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app"),
        nullable = false
    )]
    pub project: Option<String>,
    /// The branch or tag that it runs for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("main"),
        nullable = false
    )]
    pub r#ref: Option<String>,
    /// False makes it untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ref_protected: Option<bool>,
    /// Whether its code comes from a fork; true makes it untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fork: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("5d41402abc4b2a76b9719d911017c592d1a2b3c4"),
        nullable = false
    )]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("48151623"),
        nullable = false
    )]
    pub job_id: Option<String>,
    /// Where a merge request would go: what was captured of it is looked for after the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("main"),
        nullable = false
    )]
    pub target_branch: Option<String>,
    /// Looked for after the target branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("main"),
        nullable = false
    )]
    pub default_branch: Option<String>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobOutcome {
    Success,
    Failure,
}

/// How well what was found fits: the key itself; a fallback key or a branch; nothing, so that it is a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestoreHit {
    Exact,
    Fallback,
    Root,
}

/// What an emulator was started from, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorRestore {
    pub hit: RestoreHit,
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("acme-app-main-phone-4d0wq2h9f1")
    )]
    pub snapshot: String,
    /// The key under which that was captured.
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app main phone"),
        required
    )]
    pub key: Option<String>,
}

/// How far the capture is that a job's end may ask for: the job has not ended, it did not ask, it is being taken, it is there (and will be
/// verified), or it could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmulatorCaptureState {
    Pending,
    NotAsked,
    Capturing,
    Captured,
    Failed,
}

/// What is captured of an emulator when its job ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorCapture {
    pub when: CaptureWhen,
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app main phone"),
        required
    )]
    pub key: Option<String>,
    pub labels: Labels,
    pub state: EmulatorCaptureState,
    /// How the job ended, once it has said so.
    #[schema(required)]
    pub outcome: Option<JobOutcome>,
    /// The snapshot that is or was captured.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("acme-app-main-phone-4d0wq2h9f1"),
        required
    )]
    pub snapshot: Option<String>,
    /// Why nothing was captured although it was asked for.
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", required)]
    pub problem: Option<String>,
}

/// The job that an emulator is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorCi {
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("acme/app"), required)]
    pub project: Option<String>,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("main"), required)]
    pub r#ref: Option<String>,
    /// True only where the job's token proves it.
    #[schema(required)]
    pub ref_protected: Option<bool>,
    pub fork: bool,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", required)]
    pub commit: Option<String>,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("48151623"), required)]
    pub job_id: Option<String>,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("main"), required)]
    pub target_branch: Option<String>,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("main"), required)]
    pub default_branch: Option<String>,
    /// Whether a job's token says so, and not only the caller.
    pub proved: bool,
    /// How far what runs in it is trusted.
    pub trust: SnapshotTrust,
}

/// Several emulators of one snapshot, each with its own result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorBatch {
    /// As many as were asked for.
    #[schema(max_items = 100)]
    pub items: Vec<EmulatorResult>,
}

/// One of several: the emulator, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorResult {
    #[schema(required)]
    pub emulator: Option<Emulator>,
    #[schema(required)]
    pub problem: Option<Obstacle>,
}

/// How a deletion goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteEmulator {
    /// How the emulator's job ended; what its `capture` asks for then is captured before it goes. Without it nothing is captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub outcome: Option<JobOutcome>,
}
