//! Grants: rights on one tenant's things, given to one of its groups.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A right that a group was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The relation and the object.
    #[schema(
        max_length = 310,
        pattern = "^[a-z][a-z0-9_]*@[a-z][a-z_]*:[^\\s#*]+$",
        examples("granted_operator@emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        examples("emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub object: String,
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("granted_operator"))]
    pub relation: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub granted_at: String,
}

/// The right to be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantSpec {
    /// A thing of the group's tenant, or the tenant itself.
    #[schema(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        examples("emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub object: String,
    /// `granted_operator`, `granted_viewer` or `granted_editor` on a thing; a role on the tenant.
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("granted_operator"))]
    pub relation: String,
}

/// A page of a group's grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantPage {
    #[schema(max_items = 200)]
    pub items: Vec<Grant>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which grant of which group.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct GrantPath {
    /// The group's id.
    #[param(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "grp_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
    /// The grant's id.
    #[param(
        max_length = 310,
        pattern = "^[a-z][a-z0-9_]*@[a-z][a-z_]*:[^\\s#*]+$",
        example = "granted_operator@emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub grant_id: String,
}
