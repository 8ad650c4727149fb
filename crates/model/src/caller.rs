//! The caller: who asks, and how the request can be found again.

use std::sync::Arc;

use crate::Timestamp;
use crate::idempotency_keys::Once;
use crate::permissions::Subject;

#[derive(Debug, Clone)]
pub struct Caller {
    pub subject: Subject,
    /// When the credential ends.
    pub expires_at: Timestamp,
    pub request_id: Arc<str>,
    /// Present when the caller asked that a repeated request be carried out once.
    pub once: Option<Once>,
}
