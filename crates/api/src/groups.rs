//! Groups: people and machines of one tenant that are given rights together.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::members::MemberType;

/// A group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    #[schema(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("grp_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub tenant_id: String,
    #[schema(max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples("qa"))]
    pub name: String,
    #[schema(max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Quality assurance"))]
    pub display_name: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub updated_at: String,
}

/// What you say of a group: to create it, or to replace what was said before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupSpec {
    /// Unique within the tenant.
    #[schema(
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("qa")
    )]
    pub name: String,
    /// The name itself where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("Quality assurance"),
        nullable = false
    )]
    pub display_name: Option<String>,
}

/// A page of groups, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupPage {
    #[schema(max_items = 200)]
    pub items: Vec<Group>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which group.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct GroupPath {
    /// The group's id.
    #[param(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "grp_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Someone in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    pub r#type: MemberType,
    /// The user's or group's id, or the machine's name.
    #[schema(max_length = 255, pattern = "^[^\\s#*]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub id: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub added_at: String,
}

/// Whom to put in: exactly one of `userId`, `groupId` and `serviceAccount`, of the same tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupMemberSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub user_id: Option<String>,
    /// Everyone in another group of the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("grp_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub group_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 200,
        pattern = "^[A-Za-z0-9.-]+(/[A-Za-z0-9._@+=~-]+)+$",
        examples("cluster/ci/runner"),
        nullable = false
    )]
    pub service_account: Option<String>,
}

/// A page of a group's members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupMemberPage {
    #[schema(max_items = 200)]
    pub items: Vec<GroupMember>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which member of which group.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct GroupMemberPath {
    /// The group's id.
    #[param(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "grp_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
    /// The user's or group's id, or the machine's name.
    #[param(max_length = 255, pattern = "^[^\\s#*]+$", example = "usr_01jcr8e8v0e9bvqz3tz4d0wq2h")]
    pub member_id: String,
}
