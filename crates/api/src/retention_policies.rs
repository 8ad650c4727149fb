//! Retention policies: which snapshots of a group are kept.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// When a policy is carried out: always, or only while the disk pool is above its first threshold, the lowest scores first
/// and no more than it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetentionMode {
    #[default]
    Always,
    Pressure,
}

/// What is kept: whatever any of the keep rules names, or everything where there is none; of that, what the caps allow.
/// Ages count from the group's newest snapshot. What does not boot takes no place from what does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionRules {
    /// The newest so many that can be deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000000, examples(5), nullable = false)]
    pub keep_last: Option<i64>,
    /// Whatever is no older than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3153600000_i64, examples(86400), nullable = false)]
    pub keep_within_seconds: Option<i64>,
    /// The newest deployable of each of the last so many hours (UTC) that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000000, examples(24), nullable = false)]
    pub keep_hourly: Option<i64>,
    /// The newest deployable of each of the last so many days (UTC) that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000000, examples(7), nullable = false)]
    pub keep_daily: Option<i64>,
    /// The newest deployable of each of the last so many weeks (UTC, from Monday) that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000000, examples(4), nullable = false)]
    pub keep_weekly: Option<i64>,
    /// At most so many; the lowest scores go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000000000, examples(50), nullable = false)]
    pub max_count: Option<i64>,
    /// At most so many bytes of their own; the lowest scores that free some go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(107374182400_i64), nullable = false)]
    pub max_total_bytes: Option<i64>,
    /// None older than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3153600000_i64, examples(7776000), nullable = false)]
    pub max_age_seconds: Option<i64>,
}

/// A retention policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicy {
    #[schema(
        max_length = 30,
        pattern = "^pol_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("pol_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub tenant_id: String,
    /// A group, or several by their beginning and a `*`; null for all of the tenant's snapshots, each group by itself.
    #[schema(max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("nightly"), required)]
    pub group: Option<String>,
    pub mode: RetentionMode,
    pub rules: RetentionRules,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub updated_at: String,
}

/// A policy to be made, or to be tried. Of several that name a group, the one that names it most closely speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionPolicySpec {
    /// May be left out if you have one tenant, or name it in X-Paddock-Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// A group, or several by their beginning and a `*`; all of the tenant's snapshots, each group by itself, where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("nightly"),
        nullable = false
    )]
    pub group: Option<String>,
    #[serde(default)]
    pub mode: RetentionMode,
    pub rules: RetentionRules,
}

/// What a policy is to say from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetentionPolicyChange {
    /// A group, or several by their beginning and a `*`; all of the tenant's snapshots where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\x00-\\x1f\\x7f]+$",
        examples("nightly"),
        nullable = false
    )]
    pub group: Option<String>,
    #[serde(default)]
    pub mode: RetentionMode,
    pub rules: RetentionRules,
}

/// A page of retention policies, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicyPage {
    #[schema(max_items = 200)]
    pub items: Vec<RetentionPolicy>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// A snapshot that a policy would let go, or would keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JudgedSnapshot {
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("phone-3fe30cce59")
    )]
    pub name: String,
    #[schema(max_length = 100, pattern = "^[^\\x00-\\x1f\\x7f]+$", examples("nightly"), required)]
    pub group: Option<String>,
    /// Null until it was annotated.
    #[schema(minimum = 0, maximum = 100, examples(42), required)]
    pub score: Option<i64>,
    /// Why it would go; only of one that would: `not_kept, max_age, max_count` or `max_total_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 40, pattern = "^[a-z_]+$", examples("not_kept"), nullable = false)]
    pub reason: Option<String>,
    /// All that keeps it; only of one that stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 20, max_length = 40, pattern = "^[a-z_]+$", nullable = false)]
    pub kept_because: Option<Vec<String>>,
}

/// What a policy would do now to the snapshots that it speaks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPreview {
    /// What would go, oldest first; at most 1000 are named.
    #[schema(max_items = 1000)]
    pub released: Vec<JudgedSnapshot>,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(3))]
    pub released_count: i64,
    /// What would really be free in the pool afterwards: what others still stand on is not in it.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(73014444032_i64))]
    pub frees_bytes: i64,
    /// What would stay, oldest first; at most 1000 are named.
    #[schema(max_items = 1000)]
    pub kept: Vec<JudgedSnapshot>,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(12))]
    pub kept_count: i64,
}

/// Which policy.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct RetentionPolicyPath {
    /// The policy's id.
    #[param(
        max_length = 30,
        pattern = "^pol_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "pol_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Which policies, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListRetentionPolicies {
    /// Only policies of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
