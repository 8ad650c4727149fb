//! Tokens: what a client gets for a sign-in, and the line of refresh tokens by which it stays signed in.

use uuid::Uuid;

use crate::Timestamp;
use crate::users::UserId;

/// All refresh tokens that came from one sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub id: Uuid,
    pub user: UserId,
    pub client: String,
    /// When the person proved to be there.
    pub authenticated_at: Timestamp,
    pub created_at: Timestamp,
    /// The end of its newest token.
    pub expires_at: Timestamp,
}

/// One of them, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshToken {
    pub family: Uuid,
    pub expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
}
