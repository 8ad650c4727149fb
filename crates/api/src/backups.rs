//! Backups: what a disk held, kept where no accident of the pool reaches it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::labels::Labels;

/// Where a backup is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackupPhase {
    Queued,
    Running,
    Completed,
    Failed,
    Deleting,
}

/// What a backup is of: exactly one of these. A device goes on while what it holds is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1)]
pub struct BackupSource {
    /// An emulator's disk as it is at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub emulator_id: Option<String>,
    /// A snapshot, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("with-maps-installed"),
        nullable = false
    )]
    pub snapshot: Option<String>,
    /// A disk that an emulator runs on, as the snapshot's `sourceVolumes` name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^dsk_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("dsk_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub volume: Option<String>,
}

/// How far it has come. Of a disk whose parts are in a backup already, only the others are read and counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferProgress {
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(67108864))]
    pub bytes_done: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2147483648_i64))]
    pub bytes_total: i64,
}

/// Why it has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferError {
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("source_missing"))]
    pub code: String,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", examples("The capture was given up."))]
    pub message: String,
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    #[schema(
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("backup-01jcr8e8v0e9bvqz3tz4d0wq2h")
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
    pub source: BackupSource,
    pub phase: BackupPhase,
    pub progress: TransferProgress,
    /// Where it is kept: a repository that `restic` reads, and its name there. Null until it is completed.
    #[schema(
        max_length = 4096,
        pattern = "^[^\\x00-\\x1f]*$",
        examples("/var/lib/paddock/backups/ten_01jcr8e8v0e9bvqz3tz4d0wq2h/snapshots/5f0c"),
        required
    )]
    pub location: Option<String>,
    /// Over the whole content of the disk: SHA-256 over its size and the SHA-256 of each of its pieces of 256 KiB.
    #[schema(max_length = 100, pattern = "^sha256-256k:[0-9a-f]{64}$", required)]
    pub checksum: Option<String>,
    /// As large as the disk is.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2147483648_i64), required)]
    pub disk_bytes: Option<i64>,
    /// What it took where it is kept, beyond what was there.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1048576), required)]
    pub added_bytes: Option<i64>,
    pub labels: Labels,
    #[schema(required)]
    pub error: Option<TransferError>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub started_at: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub completed_at: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub expires_at: Option<String>,
}

/// A page of backups, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPage {
    #[schema(max_items = 200)]
    pub items: Vec<Backup>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// A backup that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupSpec {
    /// May be left out if you have one tenant, or name it in X-Paddock-Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub tenant_id: Option<String>,
    pub source: BackupSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<Labels>,
    /// After so many seconds it is deleted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3153600000_i64, examples(2592000), nullable = false)]
    pub expires_in_seconds: Option<i64>,
}

/// Which backup.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct BackupPath {
    /// The backup's name.
    #[param(
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "backup-01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub pod_name: String,
}

/// Which backups, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListBackups {
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
    pub phase: Option<BackupPhase>,
    /// Only those of this snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 63, pattern = "^[a-z0-9-]*$", example = "base", nullable = false)]
    pub snapshot: Option<String>,
    /// Only what carries these labels: `team=maps,tier!=test,owner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[^\\x00-\\x1f\\x7f]*$", example = "team=maps", nullable = false)]
    pub label_selector: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
