//! What the server says about itself.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which build answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    #[schema(max_length = 50, pattern = "^[0-9]+\\.[0-9]+\\.[0-9]+", examples("0.1.0"))]
    pub version: String,
    /// The commit it was built from; `unknown` outside a git checkout.
    #[schema(max_length = 50, pattern = "^([0-9a-f]{7,40}(-dirty)?|unknown)$", examples("4b825dc642cb"))]
    pub commit: String,
    /// When that commit was made.
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00Z"))]
    pub built_at: String,
    #[schema(max_items = 10)]
    pub api_versions: Vec<ApiVersion>,
}

/// A version of the contract, as it stands in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApiVersion {
    V1,
}

/// Plain text for people and for tools that read lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(max_length = 10_000_000, pattern = "^[^\\x00]*$", examples("ok"))]
pub struct Text(pub String);

/// How much to say about readiness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Readiness {
    /// Lists every check; a value is not needed.
    #[param(max_length = 5, pattern = "^(|1|true)$", nullable = false, allow_reserved)]
    pub verbose: Option<String>,
}

/// Which form of the contract.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadSchema {
    /// Wins over `Accept`.
    #[param(inline, nullable = false)]
    pub format: Option<SchemaFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchemaFormat {
    Json,
    Yaml,
}
