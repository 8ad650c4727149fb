//! Users: the people that Paddock knows.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::invitations::Invitation;

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    #[schema(
        max_length = 30,
        pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    /// What they sign in with here; null for who signs in elsewhere, and where you may see no more than the name.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$",
        examples("ada"),
        required
    )]
    pub login: Option<String>,
    #[schema(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]+@[^\\x00-\\x20\\x7f]+$",
        examples("ada@acme.example"),
        required
    )]
    pub email: Option<String>,
    /// The identity provider where they sign in; null for accounts here.
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("corporate"), required)]
    pub issuer: Option<String>,
    /// A disabled account opens nothing.
    pub disabled: bool,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub updated_at: String,
    /// Only in the answer to the request that makes the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub invitation: Option<Invitation>,
}

/// An account to be made here. Its owner chooses the password by an invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewUser {
    /// Unique; what they sign in with.
    #[schema(
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$",
        examples("ada")
    )]
    pub login: String,
    /// The login where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("Ada Lovelace"),
        nullable = false
    )]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]+@[^\\x00-\\x20\\x7f]+$",
        examples("ada@acme.example"),
        nullable = false
    )]
    pub email: Option<String>,
}

/// What you say of a user, in place of what was said before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserSpec {
    #[schema(min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]+@[^\\x00-\\x20\\x7f]+$",
        examples("ada@acme.example"),
        nullable = false
    )]
    pub email: Option<String>,
    /// Closes the account at once: every session, token and key of it. For global admins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub disabled: Option<bool>,
}

/// A page of users, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserPage {
    #[schema(max_items = 200)]
    pub items: Vec<User>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which user.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct UserPath {
    /// The user's id.
    #[param(
        max_length = 30,
        pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "usr_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Which users, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListUsers {
    /// Only the user with this login.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 63, pattern = "^[a-z0-9._@-]*$", example = "ada", nullable = false)]
    pub login: Option<String>,
    /// Only users with this e-mail address.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]*$",
        example = "ada@acme.example",
        nullable = false
    )]
    pub email: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}
