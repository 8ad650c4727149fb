//! Layers and disks: the bytes below snapshots and emulators. A layer is never written again; a disk stands on one.

use serde::{Deserialize, Serialize};

crate::id!(LayerId, "lay");
crate::id!(DiskId, "dsk");

/// What is known of a layer once it is in the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerFacts {
    /// As large as the device believes its disk to be.
    pub virtual_bytes: i64,
    /// What the layer itself takes in the pool.
    pub allocated_bytes: i64,
    /// SHA-256 over the file, in hexadecimal digits.
    pub digest: String,
}
