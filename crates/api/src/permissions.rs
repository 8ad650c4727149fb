//! Permissions: who one is, and what one may do.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Who the credential stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Whoami {
    /// The user's id, or the machine's name.
    #[schema(max_length = 255, pattern = "^[^\\s#*]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub id: String,
    pub r#type: SubjectType,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[schema(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]+@[^\\x00-\\x20\\x7f]+$",
        examples("ada@acme.example"),
        required
    )]
    pub email: Option<String>,
    pub credential: Credential,
    /// Accounts at version control hosts that are linked to this one.
    #[schema(max_items = 100)]
    pub linked_accounts: Vec<LinkedAccount>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub issued_at: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:15:00.000000Z"), required)]
    pub expires_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    User,
    ServiceAccount,
}

/// An account at a version control host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkedAccount {
    #[schema(
        max_length = 30,
        pattern = "^vcs_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("vcs_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub provider: String,
    #[schema(max_length = 20, pattern = "^[a-z]+$", examples("gitlab"))]
    pub kind: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("ada"))]
    pub username: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("4711"))]
    pub external_user_id: String,
}

/// How the caller has proved who it is, and what it may do at most by that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    pub r#type: CredentialType,
    /// The issuer or provider that vouches for it; null for Paddock's own.
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("corporate"), required)]
    pub provider: Option<String>,
    #[schema(max_items = 100, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$")]
    pub scopes: Vec<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:15:00.000000Z"), required)]
    pub expires_at: Option<String>,
    /// What it opens, as patterns `type:relation`; one with a leading `!` is excepted.
    #[schema(max_items = 100, max_length = 120, pattern = "^!?[a-z_*]+:[a-z_*]+$")]
    pub ceiling: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialType {
    AccessToken,
    Sso,
    ServiceAccount,
    ApiKey,
    VcsPersonalAccessToken,
    CiJob,
}

/// Everything that you were given, as you may use it with this credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionSummary {
    pub subject: SummarySubject,
    pub credential: Credential,
    pub global: GlobalPermissions,
    /// The tenants that you were given something in; a global admin may act in all others too.
    #[schema(max_items = 10000)]
    pub tenants: Vec<TenantPermissions>,
    /// Rights on single things, given to you or to a group that you are in.
    #[schema(max_items = 1000)]
    pub grants: Vec<HeldGrant>,
    /// Pass it as `cursor` to get more grants; null when there are no more.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
    #[schema(max_length = 22, pattern = "^r-[0-9]{1,19}$", examples("r-18442"))]
    pub revision: String,
}

/// You.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SummarySubject {
    #[schema(
        max_length = 280,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    pub r#type: SubjectType,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("Ada Lovelace"))]
    pub name: String,
    #[schema(
        max_length = 254,
        pattern = "^[^\\x00-\\x20\\x7f]+@[^\\x00-\\x20\\x7f]+$",
        examples("ada@acme.example"),
        required
    )]
    pub email: Option<String>,
}

/// What you may do to the installation itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GlobalPermissions {
    pub admin: bool,
    #[schema(max_items = 100, max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$")]
    pub permissions: Vec<String>,
}

/// What you may do in a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantPermissions {
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples("acme"))]
    pub name: String,
    /// Your roles, those included that follow from others.
    #[schema(max_items = 10, max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$")]
    pub relations: Vec<String>,
    #[schema(max_items = 100, max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$")]
    pub permissions: Vec<String>,
    /// The groups that you are in, directly or through others.
    #[schema(max_items = 10000)]
    pub groups: Vec<GroupName>,
}

/// A group by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupName {
    #[schema(
        max_length = 30,
        pattern = "^grp_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("grp_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 63, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples("qa"))]
    pub name: String,
}

/// A right on a single thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldGrant {
    #[schema(
        max_length = 251,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]{1,200}$",
        examples("emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub object: String,
    #[schema(max_length = 50, pattern = "^[a-z][a-z0-9_]{0,49}$", examples("granted_operator"))]
    pub relation: String,
    /// You, or the group through which you hold it.
    #[schema(
        max_length = 300,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s*]+$",
        examples("group:grp_01jcr8e8v0e9bvqz3tz4d0wq2h#member")
    )]
    pub via: String,
}

/// Which grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MyPermissions {
    /// The `nextCursor` of the answer before.
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
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
    /// Ask about someone else, in tenants whose members you may see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 280,
        pattern = "^(user|service_account):[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub subject: Option<String>,
    /// Also say why, or what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub explain: Option<bool>,
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
    /// Who was asked about.
    #[schema(
        max_length = 280,
        pattern = "^[a-z][a-z_]{0,49}:[^\\s#*]+$",
        examples("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub subject: String,
    /// Present when the relation holds, and only the credential stands in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<LimitReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub explanation: Option<CheckExplanation>,
    #[schema(max_length = 22, pattern = "^r-[0-9]{1,19}$", examples("r-18442"))]
    pub revision: String,
}

/// How a credential stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitReason {
    CredentialCeiling,
    ReauthenticationRequired,
}

/// Why a relation holds, or what would make it hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckExplanation {
    /// The path that grants it, from the object to the subject; empty when it does not hold.
    #[schema(max_items = 1000, max_length = 1000, pattern = "^[^\\x00-\\x1f]*$")]
    pub because: Vec<String>,
    /// What could be given to make it hold, nearest first; empty for what you may not see.
    #[schema(max_items = 1000, max_length = 1000, pattern = "^[^\\x00-\\x1f]*$")]
    pub missing: Vec<String>,
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
    /// Present when the relation holds, and only the credential stands in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<LimitReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub explanation: Option<CheckExplanation>,
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
