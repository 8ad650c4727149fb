//! The door to disks: layers that are never written again, and one writable disk a device.
//!
//! Every verb is idempotent: to ensure what is there or to remove what is gone does nothing. What a call has returned
//! survives a power cut.

use std::ops::Range;
use std::path::PathBuf;

use async_trait::async_trait;
use tokio::io::AsyncRead;

use super::DriverResult;
use crate::layers::{DiskId, LayerFacts, LayerId};

/// Where a layer's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerSource {
    /// A disk image outside the pool; it is copied, and must not stand on another file.
    File(PathBuf),
    /// A disk image that somebody has named: `path`, which is found below `folder` and nowhere else, whatever links lie there.
    /// It is copied, and must have the digest if there is one.
    Beneath { folder: PathBuf, path: PathBuf, digest: Option<String> },
    /// What `receive` has taken, with the digest that it had then. A `disk` is what a device saw, byte by byte: whatever a device has
    /// written to its beginning, it is no file of another kind.
    Received { digest: String, disk: bool },
}

/// Bytes on their way in.
pub type Bytes<'a> = &'a mut (dyn AsyncRead + Send + Unpin);

/// A disk as an emulator host understands it: a path, a volume's name. Nobody else looks into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume(pub String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolCapacity {
    pub capacity_bytes: i64,
    /// Of the pool's own files.
    pub used_bytes: i64,
    pub free_bytes: i64,
}

impl PoolCapacity {
    /// How much is taken, by whomever, in percent.
    pub fn pressure(&self) -> i64 {
        let taken = self.capacity_bytes - self.free_bytes;
        taken.saturating_mul(100).checked_div(self.capacity_bytes).unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLayer {
    pub id: LayerId,
    pub parent: Option<LayerId>,
    pub virtual_bytes: i64,
    pub allocated_bytes: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDisk {
    pub id: DiskId,
    pub on: LayerId,
    pub allocated_bytes: i64,
}

/// Everything that lies in the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolContents {
    pub layers: Vec<PoolLayer>,
    pub disks: Vec<PoolDisk>,
    /// Layers for which a merged file lies ready to take their place.
    pub merged: Vec<LayerId>,
    /// What is neither, by name; it is reported and never touched.
    pub strangers: Vec<String>,
}

/// How far the merging of a layer has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merging {
    /// So many bytes of the merged file are written.
    UnderWay(i64),
    /// The merged file lies ready; this will be said of the layer once it is in its place.
    Ready(LayerFacts),
}

/// What a look at a layer's bytes has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    Sound,
    Missing,
    /// The bytes are not those that were recorded.
    Altered,
    /// The file's own structure is broken; the words say how.
    Broken(String),
}

/// What a layer and those below it hold together. Its verbs wait for files: they are for a thread that may.
pub trait DiskContent: Send {
    /// As large as a device believes the disk to be.
    fn bytes(&self) -> u64;

    /// The layers that it is made of, the uppermost first.
    fn lineage(&self) -> &[LayerId];

    /// Where something was written since `since`, a layer of the lineage; or at all. In order, and apart. Everywhere else it is
    /// as that layer's own content, or zero.
    fn written(&mut self, since: Option<LayerId>) -> DriverResult<Vec<Range<u64>>>;

    /// Whether it is known without reading that there are only zeros.
    fn is_zero(&mut self, range: Range<u64>) -> DriverResult<bool>;

    /// Fills the whole buffer, which must end no later than the disk.
    fn read(&mut self, at: u64, into: &mut [u8]) -> DriverResult<()>;
}

#[async_trait]
pub trait DiskPool: Send + Sync + 'static {
    /// A name for people, such as `local`.
    fn name(&self) -> &str;

    async fn ensure_layer(&self, layer: LayerId, source: &LayerSource) -> DriverResult<LayerFacts>;

    /// Takes what is to become a layer from whoever sends it: all of it, no more than `most` bytes, with this digest if there
    /// is one; or nothing. It lies in the pool then, and is no layer yet. What was received before is replaced. Returns its digest.
    async fn receive(
        &self,
        layer: LayerId,
        from: Bytes<'_>,
        most: u64,
        digest: Option<&str>,
    ) -> DriverResult<String>;

    /// What a device would see on a disk made of the layer.
    async fn content(&self, layer: LayerId) -> DriverResult<Box<dyn DiskContent>>;

    /// What was received and has not become a layer.
    async fn received(&self) -> DriverResult<Vec<LayerId>>;

    /// Removes what was received and has not become a layer.
    async fn discard(&self, layer: LayerId) -> DriverResult<()>;

    /// The caller knows that nothing stands on it. What was received for it goes too.
    async fn remove_layer(&self, layer: LayerId) -> DriverResult<()>;

    /// A writable disk on top of a layer, in the same time whatever their sizes and the length of the lineage.
    async fn ensure_disk(&self, disk: DiskId, on: LayerId) -> DriverResult<Volume>;

    async fn remove_disk(&self, disk: DiskId) -> DriverResult<()>;

    /// A writable disk on top of what `disk` holds, which gets a second name, `layer`. Whoever has `disk` open goes on
    /// writing to it, so nothing may be read from the layer before it is sealed.
    async fn ensure_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<Volume>;

    /// Takes a successor back that no device has ever written to; `disk` is as it was.
    async fn abandon_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<()>;

    /// Nobody writes to `disk` any more: from now on it is the layer alone, flushed and with its digest.
    async fn seal_layer(&self, layer: LayerId, disk: DiskId) -> DriverResult<LayerFacts>;

    /// Writes what a layer and those below it hold, down to `onto`, into one file that stands on `onto`, and holds it against
    /// what it was made of, byte by byte. A call does about as much as it takes to read `most` bytes; the next one goes on, and begins
    /// anew after another process did. Nothing that is there is touched, and whoever reads the layer reads what it was.
    async fn merge_layer(&self, layer: LayerId, onto: LayerId, most: u64) -> DriverResult<Merging>;

    /// Puts the merged file with this digest in its layer's place, in one step: whoever opens the layer from now on, or what stands on
    /// it, reads the same through fewer files. Whoever has it open goes on with what was there.
    async fn replace_layer(&self, layer: LayerId, digest: &str) -> DriverResult<LayerFacts>;

    /// Forgets a merge that nobody has begun to put in its layer's place.
    async fn abandon_merge(&self, layer: LayerId) -> DriverResult<()>;

    async fn capacity(&self) -> DriverResult<PoolCapacity>;

    async fn list(&self) -> DriverResult<PoolContents>;

    /// Reads the whole layer and compares it with what was recorded.
    async fn verify_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity>;

    /// A look that costs next to nothing: the layer is there, as long as it was, closed to writing, and of that digest.
    async fn glance_at_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity>;

    /// Some of a layer's bytes, as they are kept, from an offset on; nothing at its end.
    async fn read_layer(&self, layer: LayerId, at: u64, most: usize) -> DriverResult<Vec<u8>>;

    /// Puts a layer aside so that no new disk is made on it; its bytes stay for whoever looks into it.
    async fn quarantine_layer(&self, layer: LayerId) -> DriverResult<()>;

    /// Takes a layer back into use that was put aside; whoever asks has seen that its bytes are what they were.
    async fn readmit_layer(&self, layer: LayerId) -> DriverResult<()>;
}
