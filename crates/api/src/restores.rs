//! Restores: a backup becomes a snapshot again.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::backups::{TransferError, TransferProgress};

/// Where a restore is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestorePhase {
    Queued,
    Running,
    /// Every byte is as it was. The snapshot can be deployed once a throw-away clone of it has booted.
    Completed,
    Failed,
}

/// A restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    #[schema(
        max_length = 34,
        pattern = "^restore-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("restore-01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub pod_name: String,
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub tenant_id: String,
    /// A user's id, or a machine's name.
    #[schema(max_length = 255, pattern = "^[^\\s#*]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub owner_id: String,
    /// The backup that is restored.
    #[schema(
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("backup-01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub backup: String,
    /// The snapshot that is made of it.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("with-maps-installed")
    )]
    pub snapshot: String,
    pub phase: RestorePhase,
    pub progress: TransferProgress,
    #[schema(required)]
    pub error: Option<TransferError>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub started_at: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub completed_at: Option<String>,
}

/// A page of restores, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestorePage {
    #[schema(max_items = 200)]
    pub items: Vec<Restore>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// A restore that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreSpec {
    /// A completed backup, by its `podName`.
    #[schema(
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("backup-01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub backup: String,
    /// What the new snapshot is to be called; like the one that was backed up, with an end of its own, where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("with-maps-again"),
        nullable = false
    )]
    pub name: Option<String>,
}

/// Which restore.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct RestorePath {
    /// The restore's name.
    #[param(
        max_length = 34,
        pattern = "^restore-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "restore-01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub pod_name: String,
}

/// Which restores, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListRestores {
    /// Only this tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// Only those in this phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub phase: Option<RestorePhase>,
    /// Only those of this backup.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "backup-01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub backup: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
