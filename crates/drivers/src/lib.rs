//! The outside world behind the ports of the model: one file a thing.

pub mod clock;
pub mod identity_providers;
pub mod random;
