//! Tenants: the walls between customers.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::labels::Labels;

/// A tenant: everything but the platform's own belongs to one, and none sees another's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples("acme"))]
    pub name: String,
    #[schema(max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Acme Motors"))]
    pub display_name: String,
    pub labels: Labels,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00Z"))]
    pub updated_at: String,
}

/// What you say of a tenant: to create it, or to replace what was said before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantSpec {
    /// Unique; lower-case letters, digits and inner hyphens.
    #[schema(
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("acme")
    )]
    pub name: String,
    /// The name itself where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("Acme Motors"),
        nullable = false
    )]
    pub display_name: Option<String>,
    #[serde(default)]
    pub labels: Labels,
}

/// A page of tenants, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantPage {
    #[schema(max_items = 200)]
    pub items: Vec<Tenant>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 200, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which tenant.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct TenantPath {
    /// The tenant's id.
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Which tenants, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListTenants {
    /// Only the tenant of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 63, pattern = "^[a-z0-9-]*$", example = "acme", nullable = false)]
    pub name: Option<String>,
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
    #[param(max_length = 200, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
