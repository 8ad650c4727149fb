//! Users: the people and machines that Paddock knows by name.

use crate::Timestamp;

crate::id!(UserId, "usr");

/// The name of the account that the first start makes.
pub const FIRST_ADMIN: &str = "admin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}
