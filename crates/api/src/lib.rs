//! The contract of Paddock: what goes over the wire, and a client for it. Knows no other crate of ours.

pub mod admins;
pub mod api_keys;
pub mod audit;
pub mod backups;
pub mod ci;
pub mod emulators;
pub mod frames;
pub mod grants;
pub mod groups;
pub mod invitations;
pub mod labels;
pub mod logs;
pub mod members;
pub mod meta;
pub mod page;
pub mod permissions;
pub mod problem;
pub mod restores;
pub mod retention_policies;
pub mod sign_in;
pub mod snapshots;
pub mod streams;
pub mod tenants;
pub mod tickets;
pub mod users;
mod vehicle_values;
pub mod vehicles;

#[cfg(feature = "client")]
pub mod client;

/// The contract as it was last generated from the code; a test keeps it fresh.
pub const OPENAPI_JSON: &str = include_str!("../openapi.json");
