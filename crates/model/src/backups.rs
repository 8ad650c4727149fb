//! Backups: what a disk held, kept where no accident of the pool reaches it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::devices::Image;
use crate::emulators::EmulatorId;
use crate::labels::{LabelSelector, Labels};
use crate::layers::{DiskId, LayerId};
use crate::permissions::Object;
use crate::scopes::Scope;
use crate::slug::Slug;
use crate::snapshots::Trust;
use crate::subjects::Subject;
use crate::tenants::TenantId;
use crate::vehicles::VehicleState;

crate::id!(BackupId, "backup", "-");

impl BackupId {
    pub fn object(self) -> Object {
        Object::new("backup", self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// On Kubernetes it is a pod's name too.
    pub id: BackupId,
    pub tenant: TenantId,
    pub owner: Subject,
    pub source: BackupSource,
    /// What is read.
    pub layer: LayerId,
    /// Whether the layer is kept in the pool for the sake of this backup.
    pub holds_layer: bool,
    /// What a snapshot that is made of it begins with.
    pub heritage: Heritage,
    pub labels: Labels,
    pub phase: BackupPhase,
    pub bytes_done: i64,
    pub bytes_total: i64,
    pub location: Option<String>,
    /// The repository's own name for it.
    pub stored: Option<String>,
    pub checksum: Option<String>,
    /// As large as the disk is.
    pub disk_bytes: Option<i64>,
    /// What it took in the repository beyond what was there.
    pub added_bytes: Option<i64>,
    pub error: Option<JobError>,
    pub failures: i64,
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

impl Backup {
    pub fn object(&self) -> Object {
        self.id.object()
    }
}

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BackupSource {
    Emulator { emulator: EmulatorId },
    Snapshot { snapshot: Slug },
    Volume { volume: DiskId, emulator: EmulatorId },
}

impl BackupSource {
    /// The snapshot that it is of, if it is of one.
    pub fn snapshot(&self) -> Option<&Slug> {
        match self {
            BackupSource::Snapshot { snapshot } => Some(snapshot),
            BackupSource::Emulator { .. } | BackupSource::Volume { .. } => None,
        }
    }
}

/// What a disk needs besides its bytes to be a snapshot again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heritage {
    pub snapshot: Slug,
    pub image: Image,
    pub group: Option<String>,
    pub trust: Trust,
    /// The car around the device, once the backup is under way.
    #[serde(default)]
    pub vehicle: Option<VehicleState>,
}

/// Why a backup or a restore has failed, by code and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    pub code: String,
    pub message: String,
}

impl JobError {
    pub fn new(code: &str, message: impl Into<String>) -> JobError {
        JobError { code: code.to_owned(), message: message.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupPhase {
    Queued,
    Running,
    Completed,
    Failed,
    Deleting,
}

impl BackupPhase {
    pub const ALL: [BackupPhase; 5] = [
        BackupPhase::Queued,
        BackupPhase::Running,
        BackupPhase::Completed,
        BackupPhase::Failed,
        BackupPhase::Deleting,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            BackupPhase::Queued => "queued",
            BackupPhase::Running => "running",
            BackupPhase::Completed => "completed",
            BackupPhase::Failed => "failed",
            BackupPhase::Deleting => "deleting",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        BackupPhase::ALL.into_iter().find(|phase| phase.name() == text)
    }
}

/// Which backups and restores a caller may see: all of some tenants, and the caller's own of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedScope {
    pub all_of: Scope,
    pub owner: Subject,
    pub own_in: Scope,
}

impl OwnedScope {
    pub fn covers(&self, tenant: TenantId, owner: &Subject) -> bool {
        self.all_of.covers(tenant) || self.own_in.covers(tenant) && *owner == self.owner
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupFilter {
    pub tenant: Option<TenantId>,
    pub phase: Option<BackupPhase>,
    pub snapshot: Option<String>,
    pub labels: LabelSelector,
}
