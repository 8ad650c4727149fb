//! Merging: a layer and some of those below it become one file with the same content, which takes the layer's place.
//!
//! ```text
//! .lay_….tmp ──► .merged ──► .merged.json ──► in the layer's place ──► its record too
//! ```
//!
//! Each arrow is one step that a kill may come before or after. What was not finished is swept and begun anew; a record without
//! its merged file says that the file is in its place and the record is not.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

use paddock_model::drivers::disk_pools::Merging;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::layers::{LayerFacts, LayerId};
use ring::digest::{Context, SHA256};

use super::arrival::Prepared;
use super::clusters::{self, CLUSTER, Cluster, Image, Writer};
use super::format::Fault;
use super::{
    Format, PIECE, Place, Record, backing_on, follow_foreign_tables, layer_below, read_header, signed,
};
use crate::durable::{self, io_error, sync_folder};

/// What this process is merging. What is lost with it is begun anew.
#[derive(Default)]
pub struct Merges(Mutex<HashMap<LayerId, Merge>>);

impl Merges {
    pub fn take(&self, layer: LayerId) -> Option<Merge> {
        self.held().remove(&layer)
    }

    pub fn keep(&self, layer: LayerId, merge: Merge) {
        self.held().insert(layer, merge);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<LayerId, Merge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Merge {
    work: Work,
    stage: Stage,
}

/// What all stages need.
struct Work {
    layer: LayerId,
    onto: LayerId,
    /// The layer itself first.
    sources: Vec<Source>,
    images: Vec<Image>,
    virtual_bytes: u64,
    cluster: Box<Cluster>,
    buffer: Vec<u8>,
    prepared: Prepared,
    written: u64,
}

impl Work {
    fn clusters(&self) -> u64 {
        self.virtual_bytes.div_ceil(CLUSTER)
    }

    fn refused(&self, fault: &Fault) -> Hitch {
        cannot_merge(self.layer, fault).into()
    }

    /// What the layers show of a cluster; gives what that cost.
    fn look_at(&mut self, number: u64) -> Result<u64, Hitch> {
        let read = clusters::read_through(&mut self.images, number, &mut self.cluster)?;
        Ok(read.map_err(|fault| self.refused(&fault))? + PER_CLUSTER)
    }
}

struct Source {
    layer: LayerId,
    digest: String,
}

enum Stage {
    /// Nothing is made of bytes that are not those that were recorded: a new digest would hide it.
    Checking {
        source: usize,
        sum: Sum,
    },
    Copying {
        next: u64,
        writer: Box<Writer>,
    },
    Comparing {
        next: u64,
        made: [Image; 1],
        other: Box<Cluster>,
    },
    Summing {
        file: File,
        sum: Sum,
    },
    Ready(LayerFacts),
}

/// The digest of a file, a piece at a time.
struct Sum {
    context: Context,
    at: u64,
}

impl Sum {
    fn new() -> Sum {
        Sum { context: Context::new(&SHA256), at: 0 }
    }

    /// Adds one piece; gives how long it was, which is nothing at the end.
    fn add(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<u64> {
        let read = file.read_at(buffer, self.at)?;
        self.context.update(&buffer[..read]);
        self.at += read as u64;
        Ok(read as u64)
    }

    fn end(self) -> String {
        durable::hex(self.context.finish().as_ref())
    }
}

/// Why a merge cannot go on.
enum Hitch {
    Io(io::Error),
    Driver(DriverError),
}

impl From<io::Error> for Hitch {
    fn from(error: io::Error) -> Self {
        Hitch::Io(error)
    }
}

impl From<DriverError> for Hitch {
    fn from(error: DriverError) -> Self {
        Hitch::Driver(error)
    }
}

fn cannot_merge(layer: LayerId, fault: &Fault) -> DriverError {
    DriverError::new(Retry::Never, "merge_refused", format!("{layer} cannot be merged: {fault}"))
}

impl Place {
    /// What was come to, and what to go on with.
    pub(super) fn merge_layer(
        &self,
        layer: LayerId,
        onto: LayerId,
        most: u64,
        begun: Option<Merge>,
    ) -> DriverResult<(Merging, Option<Merge>)> {
        let failed = |error| io_error(&format!("merge {layer}"), error);
        if let Some(ready) = self.ready_merge(layer, onto).map_err(failed)? {
            return Ok((Merging::Ready(ready), None));
        }
        let merge = match begun.filter(|merge| merge.work.onto == onto) {
            Some(merge) => merge,
            None => match self.begin_merge(layer, onto)? {
                Ok(merge) => merge,
                // It has taken its place before.
                Err(facts) => return Ok((Merging::Ready(facts), None)),
            },
        };
        self.go_on(merge, most).map_err(|hitch| match hitch {
            Hitch::Io(error) => failed(error),
            Hitch::Driver(error) => error,
        })
    }

    /// A merged file that lies ready, or is in its place without its record.
    fn ready_merge(&self, layer: LayerId, onto: LayerId) -> io::Result<Option<LayerFacts>> {
        let record = match fs::read(self.merged_record(layer)) {
            Ok(text) => serde_json::from_slice::<Record>(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file = match File::open(self.merged_file(layer)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.layer_file(layer) {
                Some((_, path)) => File::open(path)?,
                None => return Ok(None),
            },
            opened => opened?,
        };
        let in_place = !self.merged_file(layer).exists();
        // Nothing lies ready: unless the layer stands there already, there is something to do.
        let Some(record) = record.or_else(|| self.record(layer).filter(|_| in_place)) else {
            return Ok(None);
        };
        let below = read_header(&file)?.ok().as_ref().and_then(layer_below);
        Ok((below == Some(onto)).then_some(record.facts(&file.metadata()?)))
    }

    /// The layers that are to become one, or what is known of the only one there is.
    fn begin_merge(&self, layer: LayerId, onto: LayerId) -> DriverResult<Result<Merge, LayerFacts>> {
        let failed = |error| io_error(&format!("merge {layer}"), error);
        let (mut sources, mut images) = (Vec::new(), Vec::new());
        let (mut next, mut virtual_bytes) = (layer, 0);
        while next != onto {
            if self.quarantine_file(next).exists() {
                let message = format!("{next} was put aside because its bytes are in doubt");
                return Err(DriverError::new(Retry::Never, "layer_quarantined", message));
            }
            let missing =
                || DriverError::new(Retry::Later, "layer_missing", format!("{next} is not in the pool"));
            let (format, path) = self.layer_file(next).ok_or_else(missing)?;
            let file = File::open(path).map_err(failed)?;
            let found = file.metadata().map_err(failed)?;
            let record = self.sealed(next, &found)?;
            let astray = || cannot_merge(layer, &Fault(format!("it does not stand on {onto}")));
            if format == Format::Raw {
                return Err(astray());
            }
            let refused = |fault: Fault| cannot_merge(next, &fault);
            let header = read_header(&file).map_err(failed)?.map_err(refused)?;
            header.is_sound(found.len()).map_err(refused)?;
            let below = layer_below(&header).ok_or_else(astray)?;
            if next == layer && below == onto {
                return Ok(Err(record.facts(&found)));
            }
            if virtual_bytes != 0 && virtual_bytes != header.virtual_bytes {
                return Err(refused(Fault("it is of another size than what stands on it".to_owned())));
            }
            virtual_bytes = header.virtual_bytes;
            images.push(Image::open(file, &header).map_err(failed)?.map_err(refused)?);
            sources.push(Source { layer: next, digest: record.digest });
            next = below;
        }
        if sources.is_empty() {
            return Err(cannot_merge(layer, &Fault("it cannot stand on itself".to_owned())));
        }
        let work = Work {
            layer,
            onto,
            sources,
            images,
            virtual_bytes,
            cluster: Box::new(Cluster::new()),
            buffer: vec![0; PIECE],
            prepared: Prepared(self.prepared(&self.layers, &layer.to_string())),
            written: 0,
        };
        Ok(Ok(Merge { work, stage: Stage::Checking { source: 0, sum: Sum::new() } }))
    }

    fn go_on(&self, merge: Merge, most: u64) -> Result<(Merging, Option<Merge>), Hitch> {
        let Merge { mut work, mut stage } = merge;
        let mut spent = 0;
        while spent < most.max(1) {
            let cost;
            (stage, cost) = match stage {
                Stage::Checking { source, sum } => self.check(&mut work, source, sum)?,
                Stage::Copying { next, writer } => copy(&mut work, next, writer)?,
                Stage::Comparing { next, made, other } => compare(&mut work, next, made, other)?,
                Stage::Summing { file, sum } => self.sum_up(&mut work, file, sum)?,
                Stage::Ready(facts) => return Ok((Merging::Ready(facts), None)),
            };
            spent += cost;
        }
        Ok((Merging::UnderWay(signed(work.written)), Some(Merge { work, stage })))
    }

    fn check(&self, work: &mut Work, source: usize, mut sum: Sum) -> Result<(Stage, u64), Hitch> {
        let read = sum.add(work.images[source].file(), &mut work.buffer)?;
        if read > 0 {
            return Ok((Stage::Checking { source, sum }, read));
        }
        let checked = &work.sources[source];
        if sum.end() != checked.digest {
            let message = format!("the bytes of {} are not those that were recorded", checked.layer);
            return Err(DriverError::new(Retry::Never, "layer_altered", message).into());
        }
        let next = if source + 1 < work.sources.len() {
            Stage::Checking { source: source + 1, sum: Sum::new() }
        } else {
            Stage::Copying { next: 0, writer: Box::new(self.begin_file(work)?) }
        };
        Ok((next, 0))
    }

    fn sum_up(&self, work: &mut Work, file: File, mut sum: Sum) -> Result<(Stage, u64), Hitch> {
        let read = sum.add(&file, &mut work.buffer)?;
        if read > 0 {
            return Ok((Stage::Summing { file, sum }, read));
        }
        Ok((Stage::Ready(self.lay_ready(work, &file, sum.end())?), 0))
    }

    fn begin_file(&self, work: &Work) -> Result<Writer, Hitch> {
        let Some((format, _)) = self.layer_file(work.onto) else {
            let message = format!("{} is not in the pool", work.onto);
            return Err(DriverError::new(Retry::Later, "layer_missing", message).into());
        };
        let file =
            File::options().read(true).write(true).create_new(true).mode(0o600).open(&work.prepared.0)?;
        let writer = Writer::new(file, work.virtual_bytes, &backing_on(work.onto, format))?;
        writer.map_err(|fault| work.refused(&fault))
    }

    /// The file first, then its record: a record says that the file was whole.
    fn lay_ready(&self, work: &Work, file: &File, digest: String) -> io::Result<LayerFacts> {
        file.set_permissions(fs::Permissions::from_mode(0o444))?;
        file.sync_all()?;
        let found = file.metadata()?;
        let record = Record { digest, virtual_bytes: work.virtual_bytes, file_bytes: Some(found.len()) };
        durable::remove(&self.merged_record(work.layer))?;
        fs::rename(&work.prepared.0, self.merged_file(work.layer))?;
        sync_folder(&self.layers)?;
        let text = serde_json::to_vec(&record).unwrap_or_default();
        durable::write(&self.merged_record(work.layer), &text, 0o444)?;
        Ok(record.facts(&found))
    }

    pub(super) fn replace_layer(&self, layer: LayerId, digest: &str) -> DriverResult<LayerFacts> {
        let failed = |error| io_error(&format!("put what was merged in the place of {layer}"), error);
        let (merged, merged_record) = (self.merged_file(layer), self.merged_record(layer));
        let waiting: Option<Record> =
            fs::read(&merged_record).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if waiting.as_ref().is_some_and(|record| record.digest == digest) {
            let replace = || {
                match fs::rename(&merged, self.captured_file(layer)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => done?,
                }
                sync_folder(&self.layers)?;
                fs::rename(&merged_record, self.record_file(layer))?;
                sync_folder(&self.layers)
            };
            replace().map_err(failed)?;
        }
        match (self.record(layer), fs::metadata(self.captured_file(layer))) {
            (Some(record), Ok(found)) if record.digest == digest => Ok(record.facts(&found)),
            _ => {
                let message = format!("what was merged for {layer} is not in the pool any more");
                Err(DriverError::new(Retry::Never, "merge_missing", message))
            }
        }
    }

    pub(super) fn abandon_merge(&self, layer: LayerId) -> DriverResult<()> {
        let (merged, merged_record) = (self.merged_file(layer), self.merged_record(layer));
        if merged_record.exists() && !merged.exists() {
            let message = format!("what was merged for {layer} is in its place already");
            return Err(DriverError::new(Retry::Never, "merge_in_place", message));
        }
        durable::remove(&merged_record)
            .and_then(|()| sync_folder(&self.layers))
            .and_then(|()| durable::remove(&merged))
            .and_then(|()| sync_folder(&self.layers))
            .map_err(|error| io_error(&format!("forget what was merged for {layer}"), error))
    }
}

fn copy(work: &mut Work, next: u64, mut writer: Box<Writer>) -> Result<(Stage, u64), Hitch> {
    let next = clusters::next_touched(&work.images, next, work.clusters());
    if next < work.clusters() {
        let cost = work.look_at(next)?;
        writer.add(next, &work.cluster)?;
        work.written = writer.written();
        return Ok((Stage::Copying { next: next + 1, writer }, cost));
    }
    let file = writer.finish()?;
    follow_foreign_tables(&file)?.map_err(|fault| work.refused(&fault))?;
    let made = [clusters::reopen(file)?.map_err(|fault| work.refused(&fault))?];
    Ok((Stage::Comparing { next: 0, made, other: Box::new(Cluster::new()) }, 0))
}

fn compare(
    work: &mut Work,
    next: u64,
    mut made: [Image; 1],
    mut other: Box<Cluster>,
) -> Result<(Stage, u64), Hitch> {
    let end = work.clusters();
    let next = clusters::next_touched(&work.images, next, end).min(clusters::next_touched(&made, next, end));
    if next == end {
        let [made] = made;
        return Ok((Stage::Summing { file: made.into_file(), sum: Sum::new() }, 0));
    }
    let cost = work.look_at(next)?;
    clusters::read_through(&mut made, next, &mut other)?.map_err(|fault| work.refused(&fault))?;
    if *work.cluster != *other {
        let message =
            format!("what was merged for {} is not what it shows, from {} on", work.layer, next * CLUSTER);
        return Err(DriverError::new(Retry::Later, "merge_differs", message).into());
    }
    Ok((Stage::Comparing { next: next + 1, made, other }, 2 * cost))
}

/// What a look at a cluster costs besides its bytes, so that a disk full of holes takes its time too.
const PER_CLUSTER: u64 = 512;
