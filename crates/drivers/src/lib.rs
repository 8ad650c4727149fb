//! The outside world behind the ports of the model: one file a thing.

pub mod backup_repositories;
pub mod clock;
pub mod disk_pools;
mod durable;
pub mod emulator_hosts;
pub mod faults;
pub mod identity_providers;
pub mod journals;
pub mod random;
