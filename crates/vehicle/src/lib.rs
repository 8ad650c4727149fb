//! The car around an automotive device.

mod catalogue;
mod dump;
mod files;
mod garage;
mod journal;
mod line;
mod names;
mod rings;
mod service;
mod state;
mod subscriptions;
mod time;
mod traces;
mod values;
mod vehicle;

pub use catalogue::{Catalogue, CatalogueError};
pub use garage::{Garage, VEHICLE_HELD, traces as car_traces};
pub use line::{Line, connect};
pub use rings::Ended;
pub use service::{Client, VehicleService, service};
pub use subscriptions::{ClientName, Full};
pub use values::{Key, Limits, Raw};
pub use vehicle::{Refusal, Stream, Vehicle};

/// As on the wire.
pub mod proto {
    // What generated code looks like is not ours to say.
    #![allow(clippy::all, clippy::pedantic, clippy::nursery, unused_qualifications, unreachable_pub)]
    tonic::include_proto!("android.hardware.automotive.vehicle.proto");
}

/// What the service is, for those who ask by reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
