//! The audit: who did what, by which credential, and what became of it.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Refused,
}

/// One act, or one refusal of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[schema(max_length = 36, format = "uuid", examples("019a8410-0000-7000-8000-000000000001"))]
    pub id: String,
    /// Null for what concerns the installation itself.
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        required
    )]
    pub tenant_id: Option<String>,
    /// The place in the chain of its tenant.
    #[schema(minimum = 1, maximum = 9007199254740991_i64, examples(42))]
    pub number: i64,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub occurred_at: String,
    /// Null when nobody could be recognised.
    #[schema(
        max_length = 280,
        pattern = "^[a-z_]+:[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        required
    )]
    pub actor: Option<String>,
    /// The kind of the credential.
    #[schema(max_length = 50, pattern = "^[a-z_]+$", examples("access_token"), required)]
    pub credential: Option<String>,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("3f2a"), required)]
    pub credential_id: Option<String>,
    /// The operation.
    #[schema(max_length = 100, pattern = "^[a-z_.-]+$", examples("members.add"))]
    pub action: String,
    #[schema(
        max_length = 300,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("tenant:ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub object: String,
    pub outcome: Outcome,
    /// Why it was refused.
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("forbidden"), required)]
    pub code: Option<String>,
    #[schema(max_length = 64, pattern = "^[A-Za-z0-9._-]*$", examples("5f2c9a01-1c"))]
    pub request_id: String,
    #[schema(max_length = 45, pattern = "^[0-9a-f.:]+$", examples("203.0.113.9"), required)]
    pub address: Option<String>,
    /// What is worth knowing besides.
    #[schema(value_type = Object, additional_properties)]
    pub details: serde_json::Value,
}

/// A page of events, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    #[schema(max_items = 200)]
    pub items: Vec<Event>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which events, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListEvents {
    /// Only events of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// Only what this subject did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 280,
        pattern = "^[a-z_]+:[^\\s#*]+$",
        example = "user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub actor: Option<String>,
    /// Only this action; with a point at the end, all that begin so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 100, pattern = "^[a-z_.-]+$", example = "members.", nullable = false)]
    pub action: Option<String>,
    /// Only what concerns this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 300,
        pattern = "^[a-z_]+:[^\\s#*]+$",
        example = "tenant:ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub object: Option<String>,
    /// Only acts that were carried out, or only those that were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub outcome: Option<Outcome>,
    /// Only from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(format = DateTime, max_length = 35, example = "2026-11-15T00:00:00Z", nullable = false)]
    pub since: Option<String>,
    /// Only before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(format = DateTime, max_length = 35, example = "2026-11-16T00:00:00Z", nullable = false)]
    pub until: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
