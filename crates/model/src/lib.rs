//! What Paddock is about: its nouns, the rules they obey, and the ports through which they meet the world. No I/O.

pub mod api_keys;
pub mod audit;
pub mod caller;
pub mod credentials;
pub mod emulators;
pub mod error;
pub mod expected;
pub mod groups;
pub mod id;
pub mod idempotency_keys;
pub mod invitations;
pub mod labels;
pub mod layers;
pub mod members;
pub mod page;
pub mod permissions;
pub mod ports;
pub mod signing_keys;
pub mod slug;
pub mod snapshots;
pub mod tenants;
pub mod users;

pub use error::{Error, Result};
pub use jiff::Timestamp;
