//! Snapshots: what emulators boot from, and which of them are kept for ever.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Timestamp;
use crate::ci::JobOrigin;
use crate::devices::{DeviceType, Image};
use crate::drivers::emulator_hosts::Consistency;
use crate::emulators::EmulatorId;
use crate::labels::{LabelSelector, Labels};
use crate::layers::LayerId;
use crate::permissions::Object;
use crate::slug::Slug;
use crate::tenants::TenantId;
pub use crate::trust::Trust;

/// A snapshot as something that rights are held on: its name is its identifier.
pub fn object(name: &Slug) -> Object {
    Object::new("snapshot", name)
}

/// Names that stand for something else below `/snapshots/`.
pub const RESERVED: &[&str] = &["tree", "diskpool"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Unique among all snapshots; it is the identifier.
    pub name: Slug,
    /// Sorts by age.
    pub id: Uuid,
    /// None for the platform's own.
    pub tenant: Option<TenantId>,
    pub parent: Option<Slug>,
    pub layer: LayerId,
    pub state: SnapshotState,
    /// Why it cannot be deployed, by code; empty when it can.
    pub problems: Vec<String>,
    /// What went wrong, for people; only of one that is faulted.
    pub fault: Option<String>,
    pub image: Image,
    pub rooted_at: Option<Timestamp>,
    pub rooted_by: Option<String>,
    pub origin: Origin,
    /// Snapshots that belong together; retention judges each group by itself.
    pub group: Option<String>,
    pub trust: Trust,
    /// What the disk can be trusted to hold; only of one that was captured.
    pub consistency: Option<Consistency>,
    /// The boot that proved it.
    pub verified: Option<VerifiedBoot>,
    pub labels: Labels,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub use_count: i64,
    pub generation: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    Creating,
    Verifying,
    Ready,
    Faulted,
    Deleting,
}

impl SnapshotState {
    pub const ALL: [SnapshotState; 5] = [
        SnapshotState::Creating,
        SnapshotState::Verifying,
        SnapshotState::Ready,
        SnapshotState::Faulted,
        SnapshotState::Deleting,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            SnapshotState::Creating => "creating",
            SnapshotState::Verifying => "verifying",
            SnapshotState::Ready => "ready",
            SnapshotState::Faulted => "faulted",
            SnapshotState::Deleting => "deleting",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        SnapshotState::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// How a snapshot came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// Brought in from a disk image.
    Import { file: String },
    /// Captured from a device because somebody asked for it.
    Manual { emulator: EmulatorId },
    /// Captured from a job's device when the job ended.
    Ci { emulator: EmulatorId, job: JobOrigin },
    /// Made of the backup of this name.
    Restore { backup: String },
}

impl Origin {
    /// The job that it comes from, if it comes from one.
    pub const fn job(&self) -> Option<&JobOrigin> {
        match self {
            Origin::Ci { job, .. } => Some(job),
            Origin::Import { .. } | Origin::Manual { .. } | Origin::Restore { .. } => None,
        }
    }
}

/// A clone that was booted and answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedBoot {
    pub at: Timestamp,
    pub duration_ms: i64,
    pub adb: bool,
    /// Automotive devices only.
    pub vehicle: Option<bool>,
}

/// Why a snapshot should not become a root, by code, with words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionProblem {
    NotDeployable,
    VerificationPending,
    VerificationFailed,
    ParentMissing,
    IntegrityMismatch,
    ChainTooDeep,
    UntrustedOrigin,
    Deleting,
}

impl PromotionProblem {
    pub const fn code(self) -> &'static str {
        match self {
            PromotionProblem::NotDeployable => "not_deployable",
            PromotionProblem::VerificationPending => "verification_pending",
            PromotionProblem::VerificationFailed => VERIFICATION_FAILED,
            PromotionProblem::ParentMissing => "parent_missing",
            PromotionProblem::IntegrityMismatch => INTEGRITY_MISMATCH,
            PromotionProblem::ChainTooDeep => CHAIN_TOO_DEEP,
            PromotionProblem::UntrustedOrigin => "untrusted_origin",
            PromotionProblem::Deleting => "deleting",
        }
    }

    pub const fn message(self) -> &'static str {
        match self {
            PromotionProblem::NotDeployable => "No emulator can boot from it as it is.",
            PromotionProblem::VerificationPending => {
                "Nobody has seen it boot yet. Wait for its verification."
            }
            PromotionProblem::VerificationFailed => {
                "A clone of it did not boot. Look at its fault, and verify it again once that is mended."
            }
            PromotionProblem::ParentMissing => "A layer below it is not in the pool.",
            PromotionProblem::IntegrityMismatch => "Its bytes are not those that were recorded.",
            PromotionProblem::ChainTooDeep => {
                "It stands on too many layers. Wait until they are consolidated."
            }
            PromotionProblem::UntrustedOrigin => {
                "It comes from a branch or a fork that is not protected: whatever ran there is in it."
            }
            PromotionProblem::Deleting => "It is being deleted.",
        }
    }
}

pub const VERIFICATION_FAILED: &str = "verification_failed";
pub const INTEGRITY_MISMATCH: &str = "integrity_mismatch";
pub const CHAIN_TOO_DEEP: &str = "chain_too_deep";
/// Its bytes never came to be.
pub const CAPTURE_FAILED: &str = "capture_failed";

impl Snapshot {
    pub fn is_deployable(&self) -> bool {
        self.state == SnapshotState::Ready && self.problems.is_empty()
    }

    pub fn is_root(&self) -> bool {
        self.rooted_at.is_some()
    }

    pub fn object(&self) -> Object {
        object(&self.name)
    }

    /// Everything that speaks against making it a root.
    pub fn promotion_problems(&self, stands_on_all: bool) -> Vec<PromotionProblem> {
        let has = |code: &str| self.problems.iter().any(|problem| problem == code);
        let pending = matches!(self.state, SnapshotState::Creating | SnapshotState::Verifying)
            || self.state == SnapshotState::Ready && self.verified.is_none();
        [
            (!self.is_deployable(), PromotionProblem::NotDeployable),
            (pending, PromotionProblem::VerificationPending),
            (has(VERIFICATION_FAILED), PromotionProblem::VerificationFailed),
            (!stands_on_all, PromotionProblem::ParentMissing),
            (has(INTEGRITY_MISMATCH), PromotionProblem::IntegrityMismatch),
            (has(CHAIN_TOO_DEEP), PromotionProblem::ChainTooDeep),
            (self.trust == Trust::Untrusted, PromotionProblem::UntrustedOrigin),
            (self.state == SnapshotState::Deleting, PromotionProblem::Deleting),
        ]
        .into_iter()
        .filter_map(|(stands, problem)| stands.then_some(problem))
        .collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    pub tenant: Option<TenantId>,
    pub deployable: Option<bool>,
    pub root: Option<bool>,
    pub device_type: Option<DeviceType>,
    pub state: Option<SnapshotState>,
    pub parent: Option<String>,
    pub group: Option<String>,
    pub labels: LabelSelector,
    /// All but this one.
    pub but: Option<Slug>,
}
