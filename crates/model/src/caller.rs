//! The caller: who asks, how that is known, and how the request can be found again.

use std::net::IpAddr;
use std::sync::Arc;

use crate::credentials::Credential;
use crate::idempotency_keys::Once;
use crate::subjects::Subject;

#[derive(Debug, Clone)]
pub struct Caller {
    pub subject: Subject,
    pub credential: Arc<Credential>,
    /// Where the request came from.
    pub address: Option<IpAddr>,
    pub request_id: Arc<str>,
    /// Present when the caller asked that a repeated request be carried out once.
    pub once: Option<Once>,
}
