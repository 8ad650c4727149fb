//! Snapshots: what emulators boot from, and which of them are kept for ever.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Timestamp;
use crate::emulators::DeviceType;
use crate::labels::{LabelSelector, Labels};
use crate::layers::LayerId;
use crate::permissions::Object;
use crate::ports::emulator_hosts::Image;
use crate::slug::Slug;
use crate::tenants::TenantId;

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
    pub image: Image,
    pub rooted_at: Option<Timestamp>,
    pub rooted_by: Option<String>,
    pub origin: Origin,
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
}

impl Snapshot {
    pub fn is_deployable(&self) -> bool {
        self.state == SnapshotState::Ready && self.problems.is_empty()
    }

    pub fn is_root(&self) -> bool {
        self.rooted_at.is_some()
    }

    pub fn object(&self) -> Object {
        Object::Snapshot(self.name.clone())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    pub tenant: Option<TenantId>,
    pub deployable: Option<bool>,
    pub root: Option<bool>,
    pub device_type: Option<DeviceType>,
    pub labels: LabelSelector,
}
