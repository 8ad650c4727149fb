//! Permissions: who one is, and what one may do.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Who the credential stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    #[schema(max_length = 64, pattern = "^[a-z]+_[0-9a-z]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub id: String,
    pub r#type: SubjectType,
    #[schema(max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("admin"))]
    pub name: String,
    pub credential: Credential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    User,
}

/// How the caller has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    pub r#type: CredentialType,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:15:00.000000Z"))]
    pub expires_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialType {
    AccessToken,
}

/// One question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckQuery {
    /// The relation, such as `can_update` or `admin`.
    #[param(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", example = "can_view", required)]
    pub relation: Option<String>,
    /// The object, as type and id.
    #[param(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        example = "system:paddock",
        required
    )]
    pub object: Option<String>,
}

/// One question (`relation` and `object`), or up to a hundred (`checks`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("can_view"), nullable = false)]
    pub relation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        examples("system:paddock"),
        nullable = false
    )]
    pub object: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100, nullable = false)]
    pub checks: Option<Vec<Check>>,
    /// Answer only from this revision on; waits for it for half a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 22, pattern = "^r-[0-9]{1,19}$", examples("r-18440"), nullable = false)]
    pub at_least_revision: Option<String>,
}

/// One question of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// A name for the answer; the place in the list where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 64,
        pattern = "^[^\\x00-\\x1f]*$",
        examples("a"),
        nullable = false
    )]
    pub id: Option<String>,
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("can_view"))]
    pub relation: String,
    #[schema(max_length = 251, pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$", examples("system:paddock"))]
    pub object: String,
}

/// The answer to one question, or to many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CheckAnswer {
    One(CheckResult),
    Many(CheckResults),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckResult {
    pub allowed: bool,
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("can_view"))]
    pub relation: String,
    #[schema(max_length = 251, pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$", examples("system:paddock"))]
    pub object: String,
    /// Who was asked about: the caller.
    #[schema(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub subject: String,
    #[schema(max_length = 22, pattern = "^r-[0-9]{1,19}$", examples("r-18442"))]
    pub revision: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckResults {
    /// In the order of the questions.
    #[schema(max_items = 100)]
    pub results: Vec<NamedResult>,
    #[schema(max_length = 22, pattern = "^r-[0-9]{1,19}$", examples("r-18442"))]
    pub revision: String,
}

/// The answer to one question of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedResult {
    #[schema(max_length = 64, pattern = "^[^\\x00-\\x1f]*$", examples("a"))]
    pub id: String,
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("can_view"))]
    pub relation: String,
    #[schema(max_length = 251, pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$", examples("system:paddock"))]
    pub object: String,
    pub allowed: bool,
    /// Why the question could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<CheckError>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckError {
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("unknown_relation"))]
    pub code: String,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", examples("tenant has no relation can_fly"))]
    pub message: String,
}
