//! Tickets: what opens one stream, once, where a browser cannot send a credential.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A way into a device that stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamChannel {
    Adb,
    Display,
    Logs,
}

/// What a ticket is to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TicketSpec {
    pub channel: StreamChannel,
}

/// What opens one stream, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// Pass it as `ticket` in the stream's address. Null when this very request was answered before: it is told once.
    #[schema(
        max_length = 43,
        pattern = "^[A-Za-z0-9_-]{43}$",
        examples("bWZ1bGwgb2YgZXhhbXBsZXMgYW5kIG5vdGhpbmcgZWx"),
        required
    )]
    pub ticket: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:30.000000Z"))]
    pub expires_at: String,
}
