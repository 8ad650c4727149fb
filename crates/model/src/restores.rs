//! Restores: a backup becomes a snapshot again, byte for byte or not at all.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::backups::{BackupId, JobError};
use crate::layers::LayerId;
use crate::permissions::Object;
use crate::slug::Slug;
use crate::subjects::Subject;
use crate::tenants::TenantId;

crate::id!(RestoreId, "restore", "-");

impl RestoreId {
    pub fn object(self) -> Object {
        Object::new("restore", self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// On Kubernetes it is a pod's name too.
    pub id: RestoreId,
    pub tenant: TenantId,
    pub owner: Subject,
    pub backup: BackupId,
    /// What is made of it.
    pub snapshot: Slug,
    pub layer: LayerId,
    pub phase: RestorePhase,
    pub bytes_done: i64,
    pub bytes_total: i64,
    pub error: Option<JobError>,
    pub failures: i64,
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

impl Restore {
    pub fn object(&self) -> Object {
        self.id.object()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestorePhase {
    Queued,
    Running,
    Completed,
    Failed,
}

impl RestorePhase {
    pub const ALL: [RestorePhase; 4] =
        [RestorePhase::Queued, RestorePhase::Running, RestorePhase::Completed, RestorePhase::Failed];

    pub const fn name(self) -> &'static str {
        match self {
            RestorePhase::Queued => "queued",
            RestorePhase::Running => "running",
            RestorePhase::Completed => "completed",
            RestorePhase::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        RestorePhase::ALL.into_iter().find(|phase| phase.name() == text)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreFilter {
    pub tenant: Option<TenantId>,
    pub phase: Option<RestorePhase>,
    pub backup: Option<BackupId>,
}
