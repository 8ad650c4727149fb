//! Invitations: a link by which someone chooses their password, once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    /// Where to choose the password, on this server. It is told once, and null when the request is repeated.
    #[schema(format = "uri-reference", max_length = 200, examples("/invitation?token=9Yq8Vq4"), required)]
    pub url: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub expires_at: Option<String>,
}
