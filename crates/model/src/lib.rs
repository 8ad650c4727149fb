//! What Paddock is about: its nouns, the rules they obey, and the ports through which they meet the world. No I/O.

pub mod api_keys;
pub mod audit;
pub mod authorizations;
pub mod caller;
pub mod credentials;
pub mod device_authorizations;
pub mod devices;
pub mod drivers;
pub mod emulators;
pub mod error;
pub mod expected;
pub mod groups;
pub mod id;
pub mod idempotency_keys;
pub mod invitations;
pub mod labels;
pub mod layers;
pub mod lifetimes;
pub mod logs;
pub mod members;
pub mod page;
pub mod permissions;
pub mod ports;
pub mod scopes;
pub mod sessions;
pub mod sign_in_failures;
pub mod signing_keys;
pub mod slug;
pub mod snapshots;
pub mod streams;
pub mod subjects;
pub mod tenants;
pub mod tokens;
pub mod users;

pub use error::{Error, Result};
pub use jiff::Timestamp;
