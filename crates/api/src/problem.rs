//! Problem documents (RFC 9457): the one shape of every error.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const CONTENT_TYPE: &str = "application/problem+json";

/// What went wrong and what to do. `code` is stable; the words are for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Names the kind of problem; it stands for `code` as a URI.
    #[schema(format = "uri-reference", max_length = 200, examples("urn:paddock:problem:not_found"))]
    pub r#type: String,
    /// The kind of problem in a few words.
    #[schema(max_length = 200, pattern = "^[^\\x00-\\x1f]*$", examples("Not Found"))]
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, format = "int32", examples(404))]
    pub status: u16,
    /// What happened this time, and what to do.
    #[schema(
        max_length = 2000,
        pattern = "^[^\\x00-\\x1f]*$",
        examples("There is no such tenant, or you may not see it.")
    )]
    pub detail: String,
    /// The path that was asked for.
    #[schema(
        format = "uri-reference",
        max_length = 2000,
        examples("/api/v1/tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub instance: String,
    /// Stable and machine-readable.
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("not_found"))]
    pub code: String,
    /// Give this to your admin: the server's log has it too.
    #[schema(max_length = 64, pattern = "^[A-Za-z0-9._-]+$", examples("5f2c9a01-1c"))]
    pub request_id: String,
    /// Every fault in the request, each with the place where it stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub errors: Vec<Fault>,
    /// Everything that stands in the way of a well-formed request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub problems: Vec<Obstacle>,
    /// Where to go to be allowed, for example to link an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uri", max_length = 2000)]
    pub link: Option<String>,
}

/// One fault in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// A JSON pointer into the body, or the name of a query parameter behind a slash.
    #[schema(format = "json-pointer", max_length = 2000, examples("/name"))]
    pub pointer: String,
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("required"))]
    pub code: String,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", examples("\"name\" is missing"))]
    pub message: String,
}

/// One thing that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Obstacle {
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("not_deployable"))]
    pub code: String,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", examples("The snapshot has not booted yet."))]
    pub message: String,
}
