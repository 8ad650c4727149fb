//! Invitations: a link by which someone chooses the password of an account that was made for them. It works once.

use std::time::Duration;

use crate::Timestamp;
use crate::users::UserId;

/// Long enough for a weekend.
pub const LIFETIME: Duration = Duration::from_secs(72 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    pub user: UserId,
    /// Of the token; the token itself is shown once and never kept.
    pub digest: Vec<u8>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}
