//! Where disks are kept: real ones in a folder, or none but their names.

pub mod qcow2;
pub mod simulated;
