//! Snapshots: what emulators boot from.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::ci::JobOutcome;
use crate::emulators::{DeviceType, StatusReason};
use crate::labels::Labels;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    Creating,
    Verifying,
    Ready,
    Faulted,
    Deleting,
}

/// How a snapshot came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// Brought in from a disk image.
    Import,
    /// Captured from a device because somebody asked for it.
    Manual,
    /// Captured from a job's device when the job ended.
    Ci,
    /// Made of a backup.
    Restore,
}

/// Where a snapshot comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOrigin {
    pub kind: OriginKind,
    /// The emulator that it was captured from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub emulator_id: Option<String>,
    /// Only of a job's, as all that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("acme/app"), nullable = false)]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("main"), nullable = false)]
    pub r#ref: Option<String>,
    /// True only where the job's token proved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ref_protected: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", nullable = false)]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("48151623"), nullable = false)]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub job_status: Option<JobOutcome>,
    /// The key under which it is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("acme/app main phone"),
        nullable = false
    )]
    pub key: Option<String>,
}

/// How far a snapshot's content is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotTrust {
    Protected,
    Internal,
    Untrusted,
}

/// What a captured disk can be trusted to hold: as after a power cut, or everything that the device had written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotConsistency {
    Crash,
    Filesystem,
}

/// How far a snapshot's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryState {
    /// It is being made or proved.
    Pending,
    /// Clones resume from it.
    Ready,
    /// There is none; the disk boots all the same.
    Failed,
}

/// The memory that was captured with a snapshot's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotMemory {
    pub state: MemoryState,
    /// What it takes besides the disk.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(88735744))]
    pub size_bytes: i64,
    /// How long the clone took that proved it; null until then.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(310), required)]
    pub resume_duration_ms: Option<i64>,
    /// Why there is none.
    #[schema(required)]
    pub reason: Option<StatusReason>,
}

/// The boot that proved a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedBoot {
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub at: String,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(3100))]
    pub duration_ms: i64,
    /// Whether ADB answered.
    pub adb: bool,
    /// Whether the vehicle answered; null for what has none.
    #[schema(required)]
    pub vehicle: Option<bool>,
}

/// An emulator's disk that is a clone of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceVolume {
    #[schema(
        max_length = 30,
        pattern = "^dsk_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("dsk_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub volume: String,
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub emulator_id: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub since: String,
}

/// What one factor contributed to a snapshot's score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScoreFactor {
    #[schema(max_length = 40, pattern = "^[a-z_]+$", examples("recency"))]
    pub factor: String,
    /// How far it applies.
    #[schema(minimum = 0, maximum = 1, examples(0.5))]
    pub value: f64,
    /// The most that it can contribute; negative where it speaks against the snapshot.
    #[schema(minimum = -100, maximum = 100, examples(25))]
    pub weight: i64,
    #[schema(minimum = -100, maximum = 100, examples(13))]
    pub points: i64,
}

/// What boots from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AndroidFacts {
    #[schema(max_length = 30, pattern = "^[0-9A-Za-z.]+$", examples("14"))]
    pub version: String,
    /// As apps know it; null for a version that we do not know.
    #[schema(minimum = 1, maximum = 10000, examples(34), required)]
    pub api_level: Option<i64>,
    #[schema(max_length = 30, pattern = "^[0-9A-Za-z_-]+$", examples("x86_64"))]
    pub abi: String,
    pub device_type: DeviceType,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The identifier.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940")
    )]
    pub name: String,
    /// Null for the platform's own, which are for everyone.
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        required
    )]
    pub tenant_id: Option<String>,
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940"),
        required
    )]
    pub parent: Option<String>,
    /// How many snapshots that you may see were derived from it.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2))]
    pub child_count: i64,
    /// How many layers its disk stands on, its own included.
    #[schema(minimum = 0, maximum = 1000000, examples(2))]
    pub depth: i64,
    pub state: SnapshotState,
    pub deployable: bool,
    #[schema(max_items = 100, max_length = 100, pattern = "^[a-z][a-z0-9_]*$")]
    pub deployable_problems: Vec<String>,
    /// What went wrong, if it is faulted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000, pattern = "^[^\\x00]*$", nullable = false)]
    pub fault: Option<String>,
    /// Kept for ever.
    pub root: bool,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub rooted_at: Option<String>,
    #[schema(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        required
    )]
    pub rooted_by: Option<String>,
    /// What its whole lineage takes in the pool: exclusive and shared bytes together.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(9437184))]
    pub size_bytes: i64,
    /// What would be freed if it were deleted.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2220032))]
    pub exclusive_bytes: i64,
    /// What others stand on as well.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(7217152))]
    pub shared_bytes: i64,
    /// As large as the device believes its disk to be.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2147483648_i64))]
    pub virtual_bytes: i64,
    #[schema(max_length = 71, pattern = "^sha256:[0-9a-f]{64}$", required)]
    pub checksum: Option<String>,
    pub android: AndroidFacts,
    pub origin: SnapshotOrigin,
    /// Snapshots that belong together; retention judges each group by itself.
    #[schema(max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("nightly"), required)]
    pub group: Option<String>,
    pub trust: SnapshotTrust,
    /// Only of one that was captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub consistency: Option<SnapshotConsistency>,
    /// Whether clones of it resume where the captured device stood, instead of booting.
    pub has_memory: bool,
    /// Only of one that was captured with its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub memory: Option<SnapshotMemory>,
    /// Null until a clone has booted and answered.
    #[schema(required)]
    pub verified_boot: Option<VerifiedBoot>,
    /// The clones of it that you may see, at most 100; only where one snapshot is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100, nullable = false)]
    pub source_volumes: Option<Vec<SourceVolume>>,
    /// Its completed backups that you may see, at most 100, the newest first; only where one snapshot is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_items = 100,
        max_length = 33,
        pattern = "^backup-[0-7][0-9a-hjkmnp-tv-z]{25}$",
        nullable = false
    )]
    pub backups: Option<Vec<String>>,
    /// How relevant it is to retention: the sum of what its breakdown says; only once it was annotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100, examples(42), nullable = false)]
    pub retention_score: Option<i64>,
    /// What drove the score; only once it was annotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 20, nullable = false)]
    pub score_breakdown: Option<Vec<ScoreFactor>>,
    /// Why retention leaves it, all reasons; only where one snapshot is read. Its policy's are those of its last round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 20, max_length = 40, pattern = "^[a-z_]+$", nullable = false)]
    pub kept_because: Option<Vec<String>>,
    pub labels: Labels,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        required
    )]
    pub created_by: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub last_used_at: Option<String>,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(3))]
    pub use_count: i64,
}

/// A page of snapshots, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPage {
    #[schema(max_items = 200)]
    pub items: Vec<Snapshot>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which snapshot.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct SnapshotPath {
    /// The snapshot's name.
    #[param(max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", example = "base")]
    pub name: String,
}

/// Which snapshots, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListSnapshots {
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// Only those that can be deployed, or only those that cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(example = true, nullable = false)]
    pub deployable: Option<bool>,
    /// Only promoted roots, or only others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(example = true, nullable = false)]
    pub root: Option<bool>,
    /// Only those of this kind of device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub device_type: Option<DeviceType>,
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub state: Option<SnapshotState>,
    /// Only those that were derived from this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        example = "base",
        nullable = false
    )]
    pub parent: Option<String>,
    /// Only those of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f]+$", example = "nightly", nullable = false)]
    pub group: Option<String>,
    /// Only what carries these labels.
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

/// A new snapshot: of a device, or of a disk image from outside. Exactly one of `emulatorId` and `import` is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotSpec {
    /// The emulator to capture; it keeps running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub emulator_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub import: Option<SnapshotImport>,
    /// Its name, which no other snapshot may have; one is made up if you give none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("with-maps-installed"),
        nullable = false
    )]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("nightly"), nullable = false)]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<Labels>,
    /// Whether the device's memory is kept with its disk, so that clones resume in a fraction of a boot. Only of a device; one whose memory
    /// cannot be kept is captured without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, examples(true))]
    pub memory: Option<bool>,
}

/// A disk image that is to be brought in: a qcow2 file that stands alone, or a raw disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotImport {
    /// Whose it is to be; may be left out by who has one tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// A snapshot that you may see: the disk boots with its kernel and memory, as its kind of device.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940")
    )]
    pub like: String,
    /// A file on the server, below a folder that its admin has opened to imports. Without it, send the bytes to `/snapshots/{name}/content`
    /// within a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 4096,
        pattern = "^/[^\\x00]*$",
        examples("/srv/images/phone-with-maps.qcow2"),
        nullable = false
    )]
    pub path: Option<String>,
    /// Over the image's bytes; required where they are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 71,
        pattern = "^sha256:[0-9a-f]{64}$",
        examples("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
        nullable = false
    )]
    pub checksum: Option<String>,
}

/// A disk image, as it is.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = Binary, max_length = 9007199254740991)]
pub struct DiskImage(pub Vec<u8>);

/// How a snapshot is made a root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PromoteRoot {
    /// Also if the safety check finds problems; what was overridden is in the audit.
    pub force: bool,
}

/// Snapshots as they were derived from each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotTree {
    /// Those without a parent that you may see, newest first; or the one that was asked for.
    #[schema(max_items = 1000000)]
    pub roots: Vec<SnapshotNode>,
}

/// A snapshot and what was derived from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotNode {
    pub snapshot: Snapshot,
    /// Newest first; empty below the depth that was asked for.
    #[schema(max_items = 1000000, no_recursion)]
    pub children: Vec<SnapshotNode>,
}

/// Which part of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadTree {
    /// Only what was derived from this snapshot, and itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        example = "base",
        nullable = false
    )]
    pub root: Option<String>,
    /// How many generations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 100, default = 100, example = 3, nullable = false)]
    pub depth: Option<u32>,
}

/// The disk pools, and how full they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPools {
    #[schema(max_items = 100)]
    pub pools: Vec<DiskPool>,
}

/// A pool of disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPool {
    #[schema(max_length = 100, pattern = "^[a-z0-9-]+$", examples("local"))]
    pub name: String,
    pub status: DiskPoolStatus,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(270582939648_i64))]
    pub capacity_bytes: i64,
    /// What snapshots and emulators take.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(73014444032_i64))]
    pub used_bytes: i64,
    /// What the emulators' disks could still grow to, all together, and what consolidation has reserved.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(42949672960_i64))]
    pub committed_bytes: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(197568495616_i64))]
    pub free_bytes: i64,
    /// What is on its way out.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(0))]
    pub reclaimable_bytes: i64,
    pub thresholds: DiskPoolThresholds,
    /// How much of it is taken, in percent.
    #[schema(minimum = 0, maximum = 100, examples(27))]
    pub pressure: i64,
    /// How long until it is full if it goes on as in the last hour; null while it does not fill up.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(86400), required)]
    pub seconds_to_full: Option<i64>,
    /// When that is.
    #[schema(format = DateTime, max_length = 35, examples("2026-11-16T04:00:00.000000Z"), required)]
    pub full_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskPoolStatus {
    Ok,
    /// Above the first threshold.
    Warn,
    /// Above the second: nothing new is put into it.
    Critical,
}

/// From which share on a pool is said to fill up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPoolThresholds {
    #[schema(minimum = 1, maximum = 100, examples(80))]
    pub warn_percent: i64,
    #[schema(minimum = 1, maximum = 100, examples(95))]
    pub critical_percent: i64,
}
