//! Snapshots: what emulators boot from.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::emulators::DeviceType;
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
    Import,
}

/// Where a snapshot comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOrigin {
    pub kind: OriginKind,
}

/// What boots from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AndroidFacts {
    #[schema(max_length = 30, pattern = "^[0-9A-Za-z.]+$", examples("14"))]
    pub version: String,
    #[schema(max_length = 30, pattern = "^[0-9A-Za-z_-]+$", examples("x86_64"))]
    pub abi: String,
    pub device_type: DeviceType,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    pub state: SnapshotState,
    pub deployable: bool,
    #[schema(max_items = 100, max_length = 100, pattern = "^[a-z][a-z0-9_]*$")]
    pub deployable_problems: Vec<String>,
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
    /// As large as the device believes its disk to be.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2147483648_i64))]
    pub size_bytes: i64,
    /// What its own layer takes in the pool.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(7217152))]
    pub allocated_bytes: i64,
    #[schema(max_length = 71, pattern = "^sha256:[0-9a-f]{64}$", required)]
    pub checksum: Option<String>,
    pub android: AndroidFacts,
    pub origin: SnapshotOrigin,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
