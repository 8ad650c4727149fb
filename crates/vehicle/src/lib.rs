//! The car around an automotive device.

mod catalogue;
mod dump;
mod files;
mod journal;
mod names;
mod rings;
mod service;
mod subscriptions;
mod values;
mod vehicle;

pub use catalogue::{Catalogue, CatalogueError};
pub use service::{Client, VehicleService, service};
pub use subscriptions::ClientName;
pub use vehicle::Vehicle;

/// As on the wire.
pub mod proto {
    // What generated code looks like is not ours to say.
    #![allow(clippy::all, clippy::pedantic, clippy::nursery, unused_qualifications, unreachable_pub)]
    tonic::include_proto!("android.hardware.automotive.vehicle.proto");
}

/// What the service is, for those who ask by reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
