//! What lies in a pool and what it takes: every file is looked at, and nothing in it but its header.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

use paddock_model::drivers::DriverResult;
use paddock_model::drivers::disk_pools::{PoolCapacity, PoolContents, PoolDisk, PoolLayer};
use paddock_model::layers::{DiskId, LayerId};

use super::{
    Format, MERGED, MERGED_RECORD, Place, RECEIVED, allocated, is_prepared, layer_below, read_header, signed,
};
use crate::durable::io_error;

impl Place {
    pub(super) fn capacity(&self) -> DriverResult<PoolCapacity> {
        let failed = |error| io_error("measure the pool", error);
        let facts = rustix::fs::statvfs(&self.disks).map_err(|errno| failed(errno.into()))?;
        let mut used_bytes = 0;
        // Those with two names, which count once.
        let mut seen = HashSet::new();
        for folder in [&self.layers, &self.disks] {
            for entry in fs::read_dir(folder).map_err(failed)? {
                match entry.and_then(|entry| entry.metadata()) {
                    Ok(facts) if facts.nlink() > 1 && !seen.insert(facts.ino()) => {}
                    Ok(facts) => used_bytes += allocated(&facts),
                    // Removed in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        let bytes = |blocks: u64| signed(blocks.saturating_mul(facts.f_frsize));
        Ok(PoolCapacity {
            // As `df` does: what is set aside for root is nobody's.
            capacity_bytes: bytes(facts.f_blocks - facts.f_bfree + facts.f_bavail),
            used_bytes,
            free_bytes: bytes(facts.f_bavail),
        })
    }

    pub(super) fn list(&self) -> DriverResult<PoolContents> {
        let failed = |error| io_error("list the pool", error);
        let mut contents = PoolContents::default();
        // Layers whose files are disks too.
        let mut sealed = HashSet::new();
        for (folder, within) in [(&self.layers, "layers"), (&self.disks, "disks")] {
            for entry in fs::read_dir(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let known = match within {
                    "layers" => self.list_layer(&entry, &name, &mut sealed, &mut contents),
                    _ => list_disk(&entry, &name, &sealed, &mut contents),
                };
                // Looked at again: it may have got another name meanwhile, or none.
                if !known && !is_prepared(&name) && fs::symlink_metadata(entry.path()).is_ok() {
                    contents.strangers.push(format!("{within}/{name}"));
                }
            }
        }
        contents.layers.sort_by_key(|layer| layer.id);
        contents.disks.sort_by_key(|disk| disk.id);
        contents.strangers.sort();
        Ok(contents)
    }

    /// Whether the file belongs to a layer; a digest without a layer does not.
    fn list_layer(
        &self,
        entry: &fs::DirEntry,
        name: &str,
        sealed: &mut HashSet<u64>,
        contents: &mut PoolContents,
    ) -> bool {
        let Some((id, kind)) = name.split_once('.') else { return false };
        let Some(id) = LayerId::parse(id) else { return false };
        let format = match kind {
            "json" | "quarantined" => return self.layer_file(id).is_some(),
            RECEIVED => return true,
            MERGED => {
                contents.merged.push(id);
                return true;
            }
            MERGED_RECORD => return true,
            "qcow2" => Format::Qcow2,
            "raw" => Format::Raw,
            _ => return false,
        };
        let Ok(facts) = entry.metadata() else { return false };
        let (virtual_bytes, parent) = match format {
            Format::Raw => (facts.len(), None),
            Format::Qcow2 => {
                let header = File::open(entry.path()).ok().and_then(|file| read_header(&file).ok()?.ok());
                // A layer whose header cannot be read is still a layer, which verification will find broken.
                header.map_or((0, None), |header| (header.virtual_bytes, layer_below(&header)))
            }
        };
        // Two names, one file: its bytes are the disk's until the layer is sealed, and the layer's from then on.
        let mut allocated_bytes = allocated(&facts);
        if facts.nlink() > 1 {
            if self.record(id).is_some() {
                sealed.insert(facts.ino());
            } else {
                allocated_bytes = 0;
            }
        }
        let virtual_bytes = signed(virtual_bytes);
        contents.layers.push(PoolLayer { id, parent, virtual_bytes, allocated_bytes });
        true
    }
}

fn list_disk(entry: &fs::DirEntry, name: &str, sealed: &HashSet<u64>, contents: &mut PoolContents) -> bool {
    let Some(id) = name.strip_suffix(".qcow2").and_then(DiskId::parse) else { return false };
    let header = File::open(entry.path()).ok().and_then(|file| read_header(&file).ok()?.ok());
    let on = header.as_ref().and_then(layer_below);
    let (Some(on), Ok(facts)) = (on, entry.metadata()) else { return false };
    let allocated_bytes = if sealed.contains(&facts.ino()) { 0 } else { allocated(&facts) };
    contents.disks.push(PoolDisk { id, on, allocated_bytes });
    true
}
