//! Streams: ways into a device that stay open.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// How a stream is opened where no credential can be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OpenStream {
    /// A ticket for this stream, in place of a credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{43}$",
        example = "bWZ1bGwgb2YgZXhhbXBsZXMgYW5kIG5vdGhpbmcgZWx",
        nullable = false
    )]
    pub ticket: Option<String>,
}
