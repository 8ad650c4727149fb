//! The caller: who asks, and how the request can be found again.

use std::sync::Arc;

use crate::idempotency_keys::Once;
use crate::permissions::Subject;

#[derive(Debug, Clone)]
pub struct Caller {
    pub subject: Subject,
    pub request_id: Arc<str>,
    /// Present when the caller asked that a repeated request be carried out once.
    pub once: Option<Once>,
}
