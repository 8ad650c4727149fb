//! API keys: what opens the device API.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ApiKeyScope {
    #[serde(rename = "device:read")]
    DeviceRead,
    #[serde(rename = "device:write")]
    DeviceWrite,
}

/// A key, and never the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    #[schema(
        max_length = 30,
        pattern = "^key_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("key_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub tenant_id: String,
    #[schema(
        max_length = 30,
        pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub owner_id: String,
    #[schema(max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("CI of the maps app"))]
    pub name: String,
    /// What may be shown of it.
    #[schema(max_length = 20, pattern = "^pdk_[0-9A-Za-z]{4}…[0-9A-Za-z]{4}$", examples("pdk_0123…kAm4"))]
    pub hint: String,
    #[schema(max_items = 2)]
    pub scopes: Vec<ApiKeyScope>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub expires_at: String,
    /// To the minute.
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub last_used_at: Option<String>,
    /// The key itself: only in the answer to the request that makes it, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 42, pattern = "^pdk_[0-9A-Za-z]{38}$", nullable = false)]
    pub key: Option<String>,
}

/// A key to be made. It ends when its owner leaves the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiKeySpec {
    /// May be left out if you have one tenant, or name it in X-Paddock-Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub tenant_id: Option<String>,
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("CI of the maps app")
    )]
    pub name: String,
    #[schema(min_items = 1, max_items = 2)]
    pub scopes: Vec<ApiKeyScope>,
    /// 90 days where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 60, maximum = 31536000, examples(7776000), nullable = false)]
    pub expires_in_seconds: Option<u64>,
}

/// A page of API keys, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyPage {
    #[schema(max_items = 200)]
    pub items: Vec<ApiKey>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which key.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct ApiKeyPath {
    /// The key's id.
    #[param(
        max_length = 30,
        pattern = "^key_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "key_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Which keys, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListApiKeys {
    /// Only keys of this tenant.
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
