//! Where devices run: real ones in QEMU, or none but their states.

pub mod profile;
pub mod qemu;
pub mod simulated;
