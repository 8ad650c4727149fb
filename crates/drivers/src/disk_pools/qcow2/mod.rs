//! Disks as qcow2 files in a folder: layers that nobody writes again, and an overlay for each device.
//!
//! ```text
//! layers/lay_….qcow2 (or .raw)   mode 0444, never written again
//! layers/lay_….json              its digest, written before it is a layer
//! layers/lay_….quarantined       no new disk is made on it
//! layers/lay_….received          sent by somebody, whole, and no layer yet
//! layers/lay_….merged            the same content on fewer files, to take the layer's place; and its record, .merged.json
//! disks/dsk_….qcow2              written by one device; stands on ../layers/lay_….qcow2
//! ```
//!
//! The folder is the only truth: a layer or a disk is there when its file has its name. Everything is prepared under a
//! name of its own and gets its real name at the end, so that whatever a kill -9 leaves behind is swept at the next start.
//!
//! A disk that is captured gets a second name among the layers while its device still writes to it. Without a digest such
//! a layer is unsealed: it is listed, and nothing but the disk's successor stands on it. What stands below is named the same
//! from both folders.

mod arrival;
mod clusters;
mod content;
mod foreign;
pub mod format;
mod listing;
mod merges;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use paddock_model::drivers::disk_pools::{
    Bytes, DiskContent, DiskPool, Integrity, LayerSource, Merging, PoolCapacity, PoolContents, Volume,
};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::{DiskId, LayerFacts, LayerId};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use self::arrival::{Arrival, Whole};
use self::foreign::{
    FromStart, Judged, copy_with_digest, follow_foreign_tables, follow_tables, judge, judge_raw,
    open_anywhere, open_beneath, read_header,
};
use self::format::{Backing, Fault, Header, Overlay};
use self::merges::Merges;
use super::{broken_off, not_received, require_digest, too_large};
use crate::durable::{self, io_error, on_a_thread, sync_folder};

const PIECE: usize = 1 << 20;
/// What is taken in at once of what somebody sends: enough that handing it to other threads costs little beside it.
const ARRIVING: usize = 4 << 20;
const RECEIVED: &str = "received";
const MERGED: &str = "merged";
const MERGED_RECORD: &str = "merged.json";

pub struct Qcow2Pool {
    name: String,
    place: Arc<Place>,
    /// One import at a time: they are few, large, and two of the same layer would be in each other's way.
    imports: tokio::sync::Mutex<()>,
    /// Those that this process has begun.
    merges: Merges,
}

/// The folder, for threads that may block.
struct Place {
    layers: PathBuf,
    disks: PathBuf,
    /// Held open, so that each new disk costs no look-up.
    disks_handle: File,
    prepared: AtomicU64,
}

#[derive(Serialize, Deserialize)]
struct Record {
    digest: String,
    #[serde(rename = "virtualBytes")]
    virtual_bytes: u64,
    /// Of the file; layers of early pools do not say.
    #[serde(rename = "fileBytes", default)]
    file_bytes: Option<u64>,
}

impl Record {
    fn facts(self, layer: &fs::Metadata) -> LayerFacts {
        LayerFacts {
            virtual_bytes: signed(self.virtual_bytes),
            allocated_bytes: allocated(layer),
            digest: self.digest,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Qcow2,
    Raw,
}

impl Format {
    const ALL: [Format; 2] = [Format::Qcow2, Format::Raw];

    fn name(self) -> &'static str {
        match self {
            Format::Qcow2 => "qcow2",
            Format::Raw => "raw",
        }
    }
}

impl Qcow2Pool {
    /// Opens the pool in a folder, which is made if it is not there, and sweeps what an earlier process left unfinished.
    pub fn open(name: &str, folder: &Path) -> DriverResult<Qcow2Pool> {
        let open = || {
            for within in ["layers", "disks"].map(|name| folder.join(name)) {
                durable::make_folder(&within)?;
                sweep(&within)?;
            }
            Place::new(folder)
        };
        let place =
            open().map_err(|error| io_error(&format!("open the pool in {}", folder.display()), error))?;
        Ok(Qcow2Pool::new(name, place))
    }

    /// The pool of a server that may be at work: nothing is made, and nothing is swept.
    pub fn join(name: &str, folder: &Path) -> DriverResult<Qcow2Pool> {
        let place = Place::new(folder)
            .map_err(|error| io_error(&format!("look into the pool in {}", folder.display()), error))?;
        Ok(Qcow2Pool::new(name, place))
    }

    fn new(name: &str, place: Place) -> Qcow2Pool {
        let imports = tokio::sync::Mutex::new(());
        Qcow2Pool { name: name.to_owned(), place: Arc::new(place), imports, merges: Merges::default() }
    }

    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Place) -> DriverResult<T> + Send + 'static,
    ) -> DriverResult<T> {
        let place = self.place.clone();
        on_a_thread(move || act(&place)).await
    }
}

/// Removes files under names that only this pool makes while it prepares something.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_prepared) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// What somebody sends next; nothing when that was all.
async fn next_piece(from: Bytes<'_>, mut room: Vec<u8>) -> DriverResult<Vec<u8>> {
    room.clear();
    from.take(ARRIVING as u64).read_to_end(&mut room).await.map_err(broken_off)?;
    Ok(room)
}

/// `.lay_….3.tmp`, `.dsk_….1.tmp`, `.lay_….json.tmp`.
fn is_prepared(name: &str) -> bool {
    let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp"));
    let id = inner.and_then(|inner| inner.split_once('.')).map(|(id, _)| id);
    id.is_some_and(|id| LayerId::parse(id).is_some() || DiskId::parse(id).is_some())
}

#[async_trait]
impl DiskPool for Qcow2Pool {
    fn name(&self) -> &str {
        &self.name
    }

    async fn ensure_layer(&self, layer: LayerId, source: &LayerSource) -> DriverResult<LayerFacts> {
        let _turn = self.imports.lock().await;
        let source = source.clone();
        self.with(move |place| place.ensure_layer(layer, &source)).await
    }

    async fn receive(
        &self,
        layer: LayerId,
        from: Bytes<'_>,
        most: u64,
        digest: Option<&str>,
    ) -> DriverResult<String> {
        // Whenever this is given up, the arrival is dropped, and its file with it.
        let mut arrival = self.with(move |place| place.expect(layer)).await?;
        let mut piece = next_piece(from, Vec::new()).await?;
        let mut spare = Vec::new();
        while !piece.is_empty() {
            if arrival.length() + piece.len() as u64 > most {
                return Err(too_large(most));
            }
            // One is taken in while the next one comes.
            (spare, piece) = tokio::try_join!(arrival.add(piece), next_piece(from, spare))?;
        }
        let (whole, digest) = (arrival.finish().await?, digest.map(str::to_owned));
        self.with(move |place| place.arrived(layer, whole, digest.as_deref())).await
    }

    async fn content(&self, layer: LayerId) -> DriverResult<Box<dyn DiskContent>> {
        self.with(move |place| place.content(layer)).await
    }

    async fn received(&self) -> DriverResult<Vec<LayerId>> {
        self.with(Place::received).await
    }

    async fn discard(&self, layer: LayerId) -> DriverResult<()> {
        self.with(move |place| place.discard(layer)).await
    }

    async fn remove_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.with(move |place| place.remove_layer(layer)).await
    }

    async fn ensure_disk(&self, disk: DiskId, on: LayerId) -> DriverResult<Volume> {
        self.with(move |place| place.ensure_disk(disk, on)).await
    }

    async fn remove_disk(&self, disk: DiskId) -> DriverResult<()> {
        self.with(move |place| place.remove_disk(disk)).await
    }

    async fn ensure_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<Volume> {
        self.with(move |place| place.ensure_successor(disk, layer, to)).await
    }

    async fn abandon_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<()> {
        self.with(move |place| place.abandon_successor(disk, layer, to)).await
    }

    async fn seal_layer(&self, layer: LayerId, disk: DiskId) -> DriverResult<LayerFacts> {
        self.with(move |place| place.seal_layer(layer, disk)).await
    }

    async fn merge_layer(&self, layer: LayerId, onto: LayerId, most: u64) -> DriverResult<Merging> {
        let begun = self.merges.take(layer);
        let (merging, rest) = self.with(move |place| place.merge_layer(layer, onto, most, begun)).await?;
        if let Some(rest) = rest {
            self.merges.keep(layer, rest);
        }
        Ok(merging)
    }

    async fn replace_layer(&self, layer: LayerId, digest: &str) -> DriverResult<LayerFacts> {
        let digest = digest.to_owned();
        self.with(move |place| place.replace_layer(layer, &digest)).await
    }

    async fn abandon_merge(&self, layer: LayerId) -> DriverResult<()> {
        let begun = self.merges.take(layer);
        self.with(move |place| {
            drop(begun);
            place.abandon_merge(layer)
        })
        .await
    }

    async fn capacity(&self) -> DriverResult<PoolCapacity> {
        self.with(Place::capacity).await
    }

    async fn list(&self) -> DriverResult<PoolContents> {
        self.with(Place::list).await
    }

    async fn verify_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let digest = digest.to_owned();
        self.with(move |place| place.verify_layer(layer, &digest)).await
    }

    async fn glance_at_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let digest = digest.to_owned();
        self.with(move |place| place.glance_at_layer(layer, &digest)).await
    }

    async fn read_layer(&self, layer: LayerId, at: u64, most: usize) -> DriverResult<Vec<u8>> {
        self.with(move |place| place.read_layer(layer, at, most)).await
    }

    async fn quarantine_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.with(move |place| place.quarantine_layer(layer)).await
    }

    async fn readmit_layer(&self, layer: LayerId) -> DriverResult<()> {
        self.with(move |place| place.readmit_layer(layer)).await
    }
}

impl Place {
    fn new(folder: &Path) -> io::Result<Place> {
        // A running device tells its disk by the name it was given, so the name must not depend on how the folder was.
        let folder = fs::canonicalize(folder)?;
        let [layers, disks] = ["layers", "disks"].map(|name| folder.join(name));
        let disks_handle = File::open(&disks)?;
        Ok(Place { layers, disks, disks_handle, prepared: AtomicU64::new(0) })
    }

    fn layer_file(&self, layer: LayerId) -> Option<(Format, PathBuf)> {
        Format::ALL
            .into_iter()
            .map(|format| (format, self.layers.join(format!("{layer}.{}", format.name()))))
            .find(|(_, path)| path.exists())
    }

    fn record_file(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.json"))
    }

    fn quarantine_file(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.quarantined"))
    }

    fn disk_file(&self, disk: DiskId) -> PathBuf {
        self.disks.join(format!("{disk}.qcow2"))
    }

    /// A name of our own, for preparing something.
    fn prepared(&self, folder: &Path, id: &str) -> PathBuf {
        let number = self.prepared.fetch_add(1, Ordering::Relaxed);
        folder.join(format!(".{id}.{}-{number}.tmp", std::process::id()))
    }

    fn merged_file(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.{MERGED}"))
    }

    fn merged_record(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.{MERGED_RECORD}"))
    }

    fn received_file(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.{RECEIVED}"))
    }

    fn ensure_layer(&self, layer: LayerId, source: &LayerSource) -> DriverResult<LayerFacts> {
        let failed = |error| io_error(&format!("take {layer} into the pool"), error);
        if let Some((_, path)) = self.layer_file(layer) {
            let found = fs::metadata(&path).map_err(failed)?;
            let record = self.sealed(layer, &found)?;
            sync_folder(&self.layers).map_err(failed)?;
            return Ok(record.facts(&found));
        }
        let (original, name, digest) = match source {
            LayerSource::File(path) => (open_anywhere(path)?, path, None),
            LayerSource::Beneath { folder, path, digest } => {
                (open_beneath(folder, path)?, path, digest.as_deref())
            }
            LayerSource::Received { digest, disk } => return self.take_received(layer, digest, *disk),
        };
        let prepared = self.prepared(&self.layers, &layer.to_string());
        self.import(layer, &original, &name.display().to_string(), digest, &prepared)
            .inspect_err(|_| drop(fs::remove_file(&prepared)))
    }

    fn import(
        &self,
        layer: LayerId,
        original: &File,
        name: &str,
        wanted: Option<&str>,
        prepared: &Path,
    ) -> DriverResult<LayerFacts> {
        let failed = |error| io_error(&format!("copy {name} into the pool"), error);
        if !original.metadata().map_err(failed)?.is_file() {
            return Err(refused(name, &Fault("it is no file".to_owned())));
        }
        // Nothing is copied in vain; what decides is the look at the copy, which nobody else can change.
        judge(original).map_err(failed)?.map_err(|fault| refused(name, &fault))?;
        let copy = File::options().read(true).write(true).create_new(true).mode(0o600).open(prepared);
        let copy = copy.map_err(failed)?;
        let digest = copy_with_digest(original, &copy).map_err(failed)?;
        require_digest(wanted, &digest)?;
        self.admit(layer, &copy, name, digest, prepared, judge)
    }

    /// A file that nobody else can change becomes a layer, if it can be one.
    fn admit(
        &self,
        layer: LayerId,
        file: &File,
        name: &str,
        digest: String,
        prepared: &Path,
        judge: fn(&File) -> io::Result<Judged>,
    ) -> DriverResult<LayerFacts> {
        let failed = |error| io_error(&format!("take {name} into the pool"), error);
        let (format, virtual_bytes) = judge(file).map_err(failed)?.map_err(|fault| refused(name, &fault))?;
        if format == Format::Qcow2 {
            follow_foreign_tables(file).map_err(failed)?.map_err(|fault| refused(name, &fault))?;
        }
        file.set_permissions(fs::Permissions::from_mode(0o444)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        // The record first: a layer that is there has one. A record alone is reported, and written anew by the next try.
        let record = Record { digest, virtual_bytes, file_bytes: Some(found.len()) };
        self.write_record(layer, &record).map_err(failed)?;
        let path = self.layers.join(format!("{layer}.{}", format.name()));
        fs::rename(prepared, path).and_then(|()| sync_folder(&self.layers)).map_err(failed)?;
        Ok(record.facts(&found))
    }

    fn take_received(&self, layer: LayerId, digest: &str, disk: bool) -> DriverResult<LayerFacts> {
        let path = self.received_file(layer);
        match File::open(&path) {
            Ok(file) => {
                let judge = if disk { judge_raw } else { judge };
                self.admit(layer, &file, "what was sent", digest.to_owned(), &path, judge)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_received(layer)),
            Err(error) => Err(io_error(&format!("take {layer} into the pool"), error)),
        }
    }

    /// A place for bytes that are to come.
    fn expect(&self, layer: LayerId) -> DriverResult<Arrival> {
        Arrival::at(self.prepared(&self.layers, &layer.to_string()), layer.to_string())
            .map_err(|error| io_error(&format!("make room for {layer}"), error))
    }

    /// All bytes are there.
    fn arrived(&self, layer: LayerId, whole: Whole, wanted: Option<&str>) -> DriverResult<String> {
        let failed = |error| io_error(&format!("keep the bytes of {layer}"), error);
        require_digest(wanted, &whole.digest)?;
        let digest = whole.digest.clone();
        whole.keep_as(&self.received_file(layer)).and_then(|()| sync_folder(&self.layers)).map_err(failed)?;
        Ok(digest)
    }

    /// Opens every file of a lineage, so that what is removed meanwhile can still be read.
    fn content(&self, layer: LayerId) -> DriverResult<Box<dyn DiskContent>> {
        let mut lineage = Vec::new();
        let mut next = Some(layer);
        while let Some(layer) = next {
            // A layer in doubt, unsealed or missing is told here.
            self.below(layer)?;
            let missing =
                || DriverError::new(Retry::Later, "layer_missing", format!("{layer} is not in the pool"));
            let (format, path) = self.layer_file(layer).ok_or_else(missing)?;
            let file = File::open(&path).map_err(|error| io_error(&format!("read {layer}"), error))?;
            let image = content::Image::open(file, format == Format::Qcow2)
                .map_err(|error| io_error(&format!("read {layer}"), error))?;
            next = image.below();
            lineage.push((layer, image));
        }
        Ok(Box::new(content::Content::new(lineage)))
    }

    fn received(&self) -> DriverResult<Vec<LayerId>> {
        let failed = |error| io_error("list the pool", error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.layers).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(RECEIVED)?.strip_suffix('.'));
            found.extend(id.and_then(LayerId::parse));
        }
        Ok(found)
    }

    fn discard(&self, layer: LayerId) -> DriverResult<()> {
        durable::remove(&self.received_file(layer))
            .and_then(|()| sync_folder(&self.layers))
            .map_err(|error| io_error(&format!("discard what was sent for {layer}"), error))
    }

    fn write_record(&self, layer: LayerId, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record).unwrap_or_default();
        durable::write(&self.record_file(layer), &text, 0o444)
    }

    fn record(&self, layer: LayerId) -> Option<Record> {
        let text = fs::read(self.record_file(layer)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The record of a layer that is whole.
    fn sealed(&self, layer: LayerId, found: &fs::Metadata) -> DriverResult<Record> {
        self.record(layer).ok_or_else(|| {
            // A file loses its second name and the right to be written only after the record is there.
            if found.nlink() > 1 || found.mode() & 0o222 != 0 {
                let message = format!("{layer} is still being captured");
                return DriverError::new(Retry::Later, "layer_unsealed", message);
            }
            let message =
                format!("{layer} lies in the pool without its digest; nobody can say whether it is whole");
            DriverError::new(Retry::Never, "layer_damaged", message)
        })
    }

    fn remove_layer(&self, layer: LayerId) -> DriverResult<()> {
        // Its bytes last: what is left of it halfway is still seen to be a layer.
        let remove = || {
            durable::remove(&self.received_file(layer))?;
            durable::remove(&self.merged_record(layer))?;
            durable::remove(&self.merged_file(layer))?;
            durable::remove(&self.record_file(layer))?;
            durable::remove(&self.quarantine_file(layer))?;
            for format in Format::ALL {
                durable::remove(&self.layers.join(format!("{layer}.{}", format.name())))?;
            }
            sync_folder(&self.layers)
        };
        remove().map_err(|error| io_error(&format!("remove {layer}"), error))
    }

    /// What a disk on this layer says of it, and how large it is: one look at one header, however long the lineage.
    fn below(&self, layer: LayerId) -> DriverResult<(Backing, u64)> {
        if self.quarantine_file(layer).exists() {
            let message = format!("{layer} was put aside because its bytes are in doubt");
            return Err(DriverError::new(Retry::Never, "layer_quarantined", message));
        }
        let missing =
            || DriverError::new(Retry::Later, "layer_missing", format!("{layer} is not in the pool"));
        let (format, path) = self.layer_file(layer).ok_or_else(missing)?;
        let failed = |error| io_error(&format!("read {layer}"), error);
        let file = File::open(&path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        self.sealed(layer, &found)?;
        let virtual_bytes = match format {
            Format::Raw => found.len(),
            Format::Qcow2 => {
                let header = read_header(&file).map_err(failed)?.map_err(|fault| {
                    let message = format!("{layer} is damaged: {fault}");
                    DriverError::new(Retry::Never, "layer_damaged", message)
                })?;
                header.virtual_bytes
            }
        };
        Ok((backing_on(layer, format), virtual_bytes))
    }

    fn ensure_disk(&self, disk: DiskId, on: LayerId) -> DriverResult<Volume> {
        self.ensure_overlay(disk, on, || self.overlay(on))
    }

    fn ensure_overlay(
        &self,
        disk: DiskId,
        on: LayerId,
        overlay: impl Fn() -> DriverResult<Overlay>,
    ) -> DriverResult<Volume> {
        let path = self.disk_file(disk);
        let failed = |error| io_error(&format!("make {disk}"), error);
        if !path.exists() {
            let overlay = overlay()?;
            let prepared = self.prepared(&self.disks, &disk.to_string());
            let made = self.make_disk(&overlay, &prepared, &path);
            return made
                .inspect_err(|_| drop(fs::remove_file(&prepared)))
                .map_err(failed)
                .map(|()| volume(&path));
        }
        let file = File::options().read(true).write(true).open(&path).map_err(failed)?;
        match read_header(&file).map_err(failed)? {
            Ok(header) if layer_below(&header) == Some(on) => {
                // A device has written to it, and none was given it before it was flushed. To flush a device's writes
                // is its own affair.
                if file.metadata().map_err(failed)?.len() > format::empty_bytes(header.virtual_bytes) {
                    return Ok(volume(&path));
                }
            }
            Ok(_) => {
                let message = format!("{disk} is there already, on another layer than {on}");
                return Err(DriverError::new(Retry::Never, "disk_conflict", message));
            }
            // A power cut between name and flush leaves pages unwritten. Where every byte is zero or as it would be
            // written now, no device has ever written anything, and to finish the work can lose nothing.
            Err(fault) => {
                let overlay = overlay()?;
                if !is_unfinished(&file, &overlay).map_err(failed)? {
                    let message = format!("{disk} is damaged: {fault}");
                    return Err(DriverError::new(Retry::Never, "disk_damaged", message));
                }
                fill(&file, &overlay).map_err(failed)?;
            }
        }
        // The try that made it may not have come as far as this.
        file.sync_all().and_then(|()| self.disks_handle.sync_all()).map_err(failed)?;
        Ok(volume(&path))
    }

    fn overlay(&self, on: LayerId) -> DriverResult<Overlay> {
        let (backing, virtual_bytes) = self.below(on)?;
        overlay_on(on, virtual_bytes, &backing)
    }

    /// Named first, then flushed: a journal then needs one commit for both. See `ensure_disk` for what that may leave.
    fn make_disk(&self, overlay: &Overlay, prepared: &Path, path: &Path) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(prepared)?;
        fill(&file, overlay)?;
        fs::rename(prepared, path)?;
        let flushed = file.sync_all().and_then(|()| self.disks_handle.sync_all());
        // Room is sometimes only missed when it is needed. Nobody was told of the disk, so it must not stay.
        flushed.inspect_err(|_| drop(fs::remove_file(path)))
    }

    fn ensure_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<Volume> {
        let failed = |error| io_error(&format!("put {to} on {disk}"), error);
        let (from, path) = (self.disk_file(disk), self.captured_file(layer));
        let linked = match fs::hard_link(&from, &path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.is_one(disk, layer)?;
                false
            }
            // It has become the layer already.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.exists() => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("{disk} is not in the pool");
                return Err(DriverError::new(Retry::Later, "disk_missing", message).with_cause(error));
            }
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let message =
                    "the pool's layers and disks are on two file systems; a capture needs them on one";
                return Err(DriverError::new(Retry::Never, "pool_divided", message).with_cause(error));
            }
            Err(error) => return Err(failed(error)),
        };
        // A disk that names its layer must not outlive the layer's name.
        sync_folder(&self.layers).map_err(failed)?;
        let overlay = || {
            // Nothing was written to a successor before the layer was sealed, or it was lost since.
            if self.record(layer).is_some() || !from.exists() {
                let message = format!("{to}, which stood on {disk}, is gone; a new one would hide the loss");
                return Err(DriverError::new(Retry::Never, "disk_missing", message));
            }
            let file = File::open(&path).map_err(failed)?;
            let header = read_header(&file).map_err(failed)?.map_err(|fault| {
                DriverError::new(Retry::Never, "disk_damaged", format!("{disk} is damaged: {fault}"))
            })?;
            overlay_on(layer, header.virtual_bytes, &backing_on(layer, Format::Qcow2))
        };
        self.ensure_overlay(to, layer, overlay).inspect_err(|_| {
            // Nothing has come to stand on it.
            if linked && !self.disk_file(to).exists() {
                let _ = fs::remove_file(&path).and_then(|()| sync_folder(&self.layers));
            }
        })
    }

    fn abandon_successor(&self, disk: DiskId, layer: LayerId, to: DiskId) -> DriverResult<()> {
        let failed = |error| io_error(&format!("take {to} off {disk}"), error);
        let in_use = |why: String| DriverError::new(Retry::Never, "disk_in_use", why);
        if self.record(layer).is_some() {
            return Err(in_use(format!("{layer} is sealed, and {disk} is no more")));
        }
        let (path, next) = (self.captured_file(layer), self.disk_file(to));
        if path.exists() && !self.is_one(disk, layer)? {
            return Err(in_use(format!("what {disk} held is nowhere but in {layer}")));
        }
        match File::open(&next) {
            Ok(file) => self.is_untouched(&file, layer, to)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // Whoever stands on the name goes before the name.
        let remove = || {
            durable::remove(&next)?;
            self.disks_handle.sync_all()?;
            if path.exists() {
                // A sealing that was broken off has forbidden it.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            }
            durable::remove(&path)?;
            sync_folder(&self.layers)
        };
        remove().map_err(failed)
    }

    /// Whether no device has written to a successor or is about to.
    fn is_untouched(&self, file: &File, layer: LayerId, to: DiskId) -> DriverResult<()> {
        let failed = |error| io_error(&format!("look at {to}"), error);
        let found = file.metadata().map_err(failed)?;
        let in_use = |why: &str| Err(DriverError::new(Retry::Never, "disk_in_use", format!("{to} {why}")));
        if has_writer(&found) {
            return in_use("is open in a device");
        }
        match read_header(file).map_err(failed)? {
            Ok(header) if layer_below(&header) != Some(layer) => in_use("does not stand on this layer"),
            Ok(header) if found.len() > format::empty_bytes(header.virtual_bytes) => {
                in_use("holds what a device has written")
            }
            Ok(_) => Ok(()),
            // A power cut has left it without its beginning, so no device can have opened it; see `ensure_overlay`.
            Err(_) => {
                let held = File::open(self.captured_file(layer)).map_err(failed)?;
                let below = read_header(&held).map_err(failed)?;
                let overlay = below
                    .and_then(|header| Overlay::new(header.virtual_bytes, &backing_on(layer, Format::Qcow2)));
                match overlay {
                    Ok(overlay) if is_unfinished(file, &overlay).map_err(failed)? => Ok(()),
                    _ => in_use("holds something else than a new disk"),
                }
            }
        }
    }

    fn seal_layer(&self, layer: LayerId, disk: DiskId) -> DriverResult<LayerFacts> {
        let failed = |error| io_error(&format!("seal {layer}"), error);
        let file = match File::open(self.captured_file(layer)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("{layer} is not in the pool; {disk} has no successor yet");
                return Err(DriverError::new(Retry::Later, "layer_missing", message).with_cause(error));
            }
            opened => opened.map_err(failed)?,
        };
        self.is_one(disk, layer)?;
        let record = match self.record(layer) {
            Some(record) => record,
            None => {
                let record = self.examine(layer, &file)?;
                self.write_record(layer, &record).map_err(failed)?;
                record
            }
        };
        durable::remove(&self.disk_file(disk))
            .and_then(|()| self.disks_handle.sync_all())
            .and_then(|()| sync_folder(&self.layers))
            .map_err(failed)?;
        Ok(record.facts(&file.metadata().map_err(failed)?))
    }

    /// What is recorded of a file that nobody writes any more.
    fn examine(&self, layer: LayerId, file: &File) -> DriverResult<Record> {
        let failed = |error| io_error(&format!("seal {layer}"), error);
        let damaged = |fault: Fault| {
            DriverError::new(Retry::Never, "layer_damaged", format!("{layer} is damaged: {fault}"))
        };
        let in_use = || {
            let message = format!("a device still writes to {layer}");
            DriverError::new(Retry::Soon, "disk_in_use", message)
        };
        if has_writer(&file.metadata().map_err(failed)?) {
            return Err(in_use());
        }
        file.set_permissions(fs::Permissions::from_mode(0o444)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        follow_tables(file).map_err(failed)?.map_err(damaged)?;
        let virtual_bytes = read_header(file).map_err(failed)?.map_err(damaged)?.virtual_bytes;
        let digest = durable::digest(FromStart { file, at: 0 }).map_err(failed)?;
        let file_bytes = Some(file.metadata().map_err(failed)?.len());
        Ok(Record { digest, virtual_bytes, file_bytes })
    }

    /// A captured disk's name among the layers.
    fn captured_file(&self, layer: LayerId) -> PathBuf {
        self.layers.join(format!("{layer}.{}", Format::Qcow2.name()))
    }

    /// Whether both names are there; two names of different files are refused.
    fn is_one(&self, disk: DiskId, layer: LayerId) -> DriverResult<bool> {
        let look = |path: &Path| match fs::metadata(path) {
            Ok(found) => Ok(Some((found.dev(), found.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&format!("look at {}", path.display()), error)),
        };
        match (look(&self.disk_file(disk))?, look(&self.captured_file(layer))?) {
            (Some(disk_file), Some(layer_file)) if disk_file != layer_file => {
                let message = format!("{layer} is there already and is not what {disk} holds");
                Err(DriverError::new(Retry::Never, "disk_conflict", message))
            }
            (disk_file, layer_file) => Ok(disk_file.is_some() && layer_file.is_some()),
        }
    }

    fn remove_disk(&self, disk: DiskId) -> DriverResult<()> {
        durable::remove(&self.disk_file(disk))
            .and_then(|()| self.disks_handle.sync_all())
            .map_err(|error| io_error(&format!("remove {disk}"), error))
    }

    fn verify_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let failed = |error| io_error(&format!("read {layer}"), error);
        let Some((format, path)) = self.layer_file(layer) else { return Ok(Integrity::Missing) };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Integrity::Missing),
            opened => opened.map_err(failed)?,
        };
        // A device may be writing to it this moment.
        match self.sealed(layer, &file.metadata().map_err(failed)?) {
            Err(error) if error.code == "layer_unsealed" => return Err(error),
            _ => {}
        }
        if format == Format::Qcow2
            && let Err(fault) = follow_tables(&file).map_err(failed)?
        {
            return Ok(Integrity::Broken(fault.0));
        }
        let found = durable::digest(&file).map_err(failed)?;
        Ok(if found == digest { Integrity::Sound } else { Integrity::Altered })
    }

    fn glance_at_layer(&self, layer: LayerId, digest: &str) -> DriverResult<Integrity> {
        let failed = |error| io_error(&format!("look at {layer}"), error);
        let Some((_, path)) = self.layer_file(layer) else { return Ok(Integrity::Missing) };
        let facts = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Integrity::Missing),
            facts => facts.map_err(failed)?,
        };
        let record: Option<Record> =
            fs::read(self.record_file(layer)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let Some(record) = record else {
            return Ok(Integrity::Broken("what was recorded of it is gone or cannot be read".to_owned()));
        };
        if facts.mode() & 0o222 != 0 {
            return Ok(Integrity::Broken(format!(
                "its mode is {:o}: somebody may write to it",
                facts.mode() & 0o777
            )));
        }
        let cut = record.file_bytes.is_some_and(|length| length != facts.len());
        Ok(if cut || record.digest != digest { Integrity::Altered } else { Integrity::Sound })
    }

    fn read_layer(&self, layer: LayerId, at: u64, most: usize) -> DriverResult<Vec<u8>> {
        let failed = |error| io_error(&format!("read {layer}"), error);
        let missing =
            || DriverError::new(Retry::Later, "layer_missing", format!("{layer} is not in the pool"));
        let (_, path) = self.layer_file(layer).ok_or_else(missing)?;
        let file = File::open(path).map_err(failed)?;
        let mut bytes = vec![0; most];
        let mut length = 0;
        while length < most {
            match file.read_at(&mut bytes[length..], at + length as u64).map_err(failed)? {
                0 => break,
                more => length += more,
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn quarantine_layer(&self, layer: LayerId) -> DriverResult<()> {
        let path = self.quarantine_file(layer);
        if self.layer_file(layer).is_none() || path.exists() {
            return Ok(());
        }
        let marked =
            File::create(&path).and_then(|file| file.sync_all()).and_then(|()| sync_folder(&self.layers));
        marked.map_err(|error| io_error(&format!("put {layer} aside"), error))
    }

    fn readmit_layer(&self, layer: LayerId) -> DriverResult<()> {
        durable::remove(&self.quarantine_file(layer))
            .and_then(|()| sync_folder(&self.layers))
            .map_err(|error| io_error(&format!("take {layer} back"), error))
    }
}

fn refused(name: &str, fault: &Fault) -> DriverError {
    DriverError::new(Retry::Never, "image_refused", format!("{name} cannot be a layer: {fault}"))
}

fn backing_on(layer: LayerId, format: Format) -> Backing {
    let name = format!("../layers/{layer}.{}", format.name());
    Backing { name, format: Some(format.name().to_owned()) }
}

fn overlay_on(layer: LayerId, virtual_bytes: u64, backing: &Backing) -> DriverResult<Overlay> {
    Overlay::new(virtual_bytes, backing).map_err(|fault| {
        DriverError::new(Retry::Never, "layer_damaged", format!("no disk can stand on {layer}: {fault}"))
    })
}

/// Whether a QEMU of this machine may write to the file: it holds a lock on a byte that stands for this right.
/// Nobody relies on it; it stands between a mistake and the bytes that would be lost.
fn has_writer(found: &fs::Metadata) -> bool {
    const MAY_WRITE: u64 = 101;
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| {
        // `4: OFDLCK ADVISORY  READ -1 fe:00:9978019 100 101`, the last may be `EOF`.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., file, first, last] = words.as_slice() else { return false };
        let inode = file.rsplit_once(':').and_then(|(_, inode)| inode.parse().ok());
        let (first, last) = (first.parse().unwrap_or(u64::MAX), last.parse().unwrap_or(u64::MAX));
        // Without the device's number, which some file systems tell differently here.
        words.get(1) == Some(&"OFDLCK") && inode == Some(found.ino()) && (first..=last).contains(&MAY_WRITE)
    })
}

fn volume(path: &Path) -> Volume {
    Volume(path.display().to_string())
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn allocated(facts: &fs::Metadata) -> i64 {
    signed(facts.blocks().saturating_mul(512))
}

fn layer_below(header: &Header) -> Option<LayerId> {
    let name = header.backing.as_ref()?.name.strip_prefix("../layers/")?;
    LayerId::parse(name.split_once('.')?.0)
}

fn fill(file: &File, overlay: &Overlay) -> io::Result<()> {
    file.set_len(overlay.file_bytes)?;
    for (offset, bytes) in &overlay.pieces {
        file.write_all_at(bytes, *offset)?;
    }
    let mut file = file;
    file.flush()
}

/// Whether the file holds nothing but parts of what a new disk begins with.
fn is_unfinished(file: &File, overlay: &Overlay) -> io::Result<bool> {
    let length = file.metadata()?.len();
    if length > overlay.file_bytes {
        return Ok(false);
    }
    let mut found = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut found, 0)?;
    let mut expected = vec![0; usize::try_from(overlay.file_bytes).unwrap_or_default()];
    for (offset, bytes) in &overlay.pieces {
        let at = usize::try_from(*offset).unwrap_or_default();
        expected[at..at + bytes.len()].copy_from_slice(bytes);
    }
    Ok(found.iter().zip(&expected).all(|(found, expected)| *found == 0 || found == expected))
}
