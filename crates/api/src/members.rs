//! Members: who belongs to a tenant, and in which role.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::invitations::Invitation;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberType {
    User,
    ServiceAccount,
    Group,
}

/// Each role has the rights of those behind it; an auditor sees everything and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Admin,
    Operator,
    Member,
    Auditor,
}

/// A member, in the role that was given directly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub r#type: MemberType,
    /// The user's or group's id, or the machine's name.
    #[schema(max_length = 255, pattern = "^[^\\s#*]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub id: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$",
        examples("ada"),
        required
    )]
    pub login: Option<String>,
    pub role: Role,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub added_at: String,
    /// Only in the answer to the request that invites someone new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub invitation: Option<Invitation>,
}

/// Whom to let in: exactly one of `userId`, `login` and `serviceAccount`. A member who is there already gets the new role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberSpec {
    /// Someone who has an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub user_id: Option<String>,
    /// Someone by their login here; if nobody has it, an account is made and they are invited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$",
        examples("ada"),
        nullable = false
    )]
    pub login: Option<String>,
    /// A machine: its issuer and the name it has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 200,
        pattern = "^[A-Za-z0-9.-]+(/[A-Za-z0-9._@+=~-]+)+$",
        examples("cluster/ci/runner"),
        nullable = false
    )]
    pub service_account: Option<String>,
    pub role: Role,
}

/// A page of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberPage {
    #[schema(max_items = 200)]
    pub items: Vec<Member>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which member of which tenant.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct MemberPath {
    /// The tenant's id.
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
    /// The user's id, or the machine's name.
    #[param(max_length = 255, pattern = "^[^\\s#*]+$", example = "usr_01jcr8e8v0e9bvqz3tz4d0wq2h")]
    pub user_id: String,
}
