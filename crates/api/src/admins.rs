//! Admins of the whole installation.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::permissions::SubjectType;

/// An admin of everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admin {
    #[schema(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub subject: String,
    pub r#type: SubjectType,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub added_at: String,
}

/// Whom to make an admin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdminSpec {
    #[schema(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub subject: String,
}

/// A page of admins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminPage {
    #[schema(max_items = 200)]
    pub items: Vec<Admin>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which admin.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct AdminPath {
    /// As in `subject`.
    #[param(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        example = "user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub subject: String,
}
