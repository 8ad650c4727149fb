//! Idempotency keys: a request that is sent twice is carried out once.

use std::time::Duration;

use crate::Timestamp;

/// How long a key is remembered.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A caller's promise that requests with this key are one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    pub key: String,
    /// Over the operation and the body: another fingerprint under the same key is a mistake of the caller.
    pub fingerprint: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub subject: String,
    pub key: String,
    pub fingerprint: Vec<u8>,
    /// What the use-case returned, to be returned again.
    pub outcome: serde_json::Value,
    pub created_at: Timestamp,
}
