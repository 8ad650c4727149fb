//! Traces: drives that were recorded, and their way back into a car.
//!
//! ```text
//! emu_…/traces/vtr_….jsonl   a header, then a line an event
//! emu_…/traces/vtr_….json    what is known of it without reading it
//! emu_…/replay.json          what is being replayed, and how far it has come
//! ```

mod recording;
mod replay;
mod shelf;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use paddock_model::drivers::garages::{NO_SUCH_TRACE, TOO_MANY_TRACES, WRONG_TRACE, WRONG_VALUE};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::ports::Clock;
use paddock_model::vehicles::{Replay, Trace, TraceId};
use recording::{Ear, Recording};
use replay::{Run, Running, event};
pub use shelf::Shelf;
use shelf::{Facts, Header, Line, Progress, VERSION};
use tokio_util::sync::CancellationToken;

use crate::catalogue::Catalogue;
use crate::files::{self, io_error};
use crate::vehicle::Vehicle;

pub const MOST_BYTES: u64 = 64 << 20;
pub const MOST_TRACES: usize = 20;
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

/// The traces of one car that this process holds.
pub struct Traces {
    shelf: Shelf,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    vehicle: Arc<Vehicle>,
    recordings: Mutex<HashMap<TraceId, Arc<Mutex<Recording>>>>,
    replay: Mutex<Option<Running>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Traces {
    /// Takes over what a process before this one has left: recordings have ended with it, a replay goes on.
    pub fn open(
        car: &Path,
        catalogue: Arc<Catalogue>,
        clock: Arc<dyn Clock>,
        vehicle: Arc<Vehicle>,
    ) -> DriverResult<Arc<Traces>> {
        let traces = Arc::new(Traces {
            shelf: Shelf::of(car),
            catalogue,
            clock,
            vehicle,
            recordings: Mutex::default(),
            replay: Mutex::default(),
        });
        for trace in traces.shelf.ids().map_err(|error| io_error("list traces", error))? {
            let Ok(mut facts) = traces.shelf.read(trace) else { continue };
            if facts.recording {
                traces.end_of(trace, &mut facts).map_err(|error| io_error("end a recording", error))?;
            }
        }
        if let Some(progress) = traces.shelf.progress()?.filter(|progress| progress.ended_at.is_none()) {
            traces.run(progress);
        }
        Ok(traces)
    }

    /// Drops what a kill has torn, and counts what is left.
    fn end_of(&self, trace: TraceId, facts: &mut Facts) -> io::Result<()> {
        let path = self.shelf.lines(trace);
        let mut reader = BufReader::new(File::options().read(true).write(true).open(&path)?);
        let (mut line, mut whole, mut lines) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            if read == 0 || line.last() != Some(&b'\n') {
                break;
            }
            if lines > 0 {
                let Ok(event) = serde_json::from_slice::<Line>(&line) else { break };
                facts.duration_ms = event.at_ms;
            }
            whole += read as u64;
            lines += 1;
        }
        reader.get_ref().set_len(whole)?;
        facts.events = (lines - 1).max(0);
        facts.bytes = whole;
        facts.recording = false;
        facts.problem = Some("it ended with the process that recorded it".to_owned());
        self.shelf.write(trace, facts)
    }

    pub fn list(&self) -> DriverResult<Vec<Trace>> {
        let mut traces = self.shelf.list()?;
        let recordings = lock(&self.recordings);
        for trace in &mut traces {
            if let Some(recording) = recordings.get(&trace.id) {
                *trace = lock(recording).facts.trace(trace.id);
            }
        }
        Ok(traces)
    }

    fn has_room(&self) -> DriverResult<()> {
        let count = self.shelf.ids().map_err(|error| io_error("list traces", error))?.len();
        if count < MOST_TRACES {
            return Ok(());
        }
        let message = format!("an emulator has at most {MOST_TRACES} traces; delete one of them");
        Err(DriverError::new(Retry::Never, TOO_MANY_TRACES, message))
    }

    pub fn record(&self, trace: TraceId, name: &str) -> DriverResult<Trace> {
        let mut recordings = lock(&self.recordings);
        if let Some(recording) = recordings.get(&trace) {
            return Ok(lock(recording).facts.trace(trace));
        }
        match self.shelf.read(trace) {
            Ok(facts) => return Ok(facts.trace(trace)),
            Err(error) if error.code == NO_SUCH_TRACE => self.has_room()?,
            Err(error) => return Err(error),
        }
        let failed = |error| io_error("begin a recording", error);
        files::make_folder(&self.shelf.folder).map_err(failed)?;
        let mut header = serde_json::to_vec(&Header { paddock_trace: VERSION, name: name.to_owned() })
            .map_err(|error| failed(error.into()))?;
        header.push(b'\n');
        let path = self.shelf.lines(trace);
        let options = File::options().create(true).truncate(true).write(true).mode(0o600).open(&path);
        let mut file = options.map_err(failed)?;
        file.write_all(&header).map_err(failed)?;
        let facts = Facts {
            name: name.to_owned(),
            recording: true,
            events: 0,
            bytes: header.len() as u64,
            duration_ms: 0,
            started_at: self.clock.now(),
            problem: None,
        };
        self.shelf.write(trace, &facts).map_err(failed)?;
        let told = facts.trace(trace);
        let recording = Arc::new(Mutex::new(Recording {
            trace,
            shelf: self.shelf.clone(),
            catalogue: self.catalogue.clone(),
            file,
            began: self.clock.elapsed(),
            facts,
        }));
        recordings.insert(trace, recording.clone());
        drop(recordings);
        self.vehicle.listen(trace, Box::new(Ear(recording)));
        Ok(told)
    }

    pub fn finish(&self, trace: TraceId) -> DriverResult<Trace> {
        let Some(recording) = lock(&self.recordings).remove(&trace) else {
            return Ok(self.shelf.read(trace)?.trace(trace));
        };
        self.vehicle.stop_listening(trace);
        let mut recording = lock(&recording);
        if recording.facts.recording {
            let lasted = self.clock.elapsed().saturating_sub(recording.began).as_millis();
            recording.facts.duration_ms = i64::try_from(lasted).unwrap_or(i64::MAX);
            recording.finish().map_err(|error| io_error("end a recording", error))?;
        }
        Ok(recording.facts.trace(trace))
    }

    pub fn take(&self, trace: TraceId, name: &str, content: &[u8]) -> DriverResult<Trace> {
        match self.shelf.read(trace) {
            Ok(facts) => return Ok(facts.trace(trace)),
            Err(error) if error.code == NO_SUCH_TRACE => self.has_room()?,
            Err(error) => return Err(error),
        }
        let wrong = |message: String| DriverError::new(Retry::Never, WRONG_TRACE, message);
        if content.len() as u64 > MOST_BYTES {
            return Err(wrong(format!("a trace has at most {} MiB", MOST_BYTES >> 20)));
        }
        let mut lines = content.split_inclusive(|byte| *byte == b'\n').enumerate();
        let header = lines.next().and_then(|(_, line)| serde_json::from_slice::<Header>(line).ok());
        if header.is_none_or(|header| header.paddock_trace != VERSION) {
            let header = format!("{{\"paddock_trace\": {VERSION}}}");
            return Err(wrong(format!("the first line does not say what this is; write {header}")));
        }
        let (mut events, mut at) = (0, 0);
        for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let number = number + 1;
            let read = serde_json::from_slice::<Line>(line).map_err(|error| {
                wrong(format!("line {number} is not an event: {error}; write {{\"at_ms\": …, \"property\": …, \"value\": …}}"))
            })?;
            event(&self.catalogue, &read).map_err(|problem| wrong(format!("line {number}: {problem}")))?;
            if read.at_ms < at {
                return Err(wrong(format!(
                    "line {number} happens before the line above it; sort the lines by at_ms"
                )));
            }
            (events, at) = (events + 1, read.at_ms);
        }
        let failed = |error| io_error("keep a trace", error);
        files::make_folder(&self.shelf.folder).map_err(failed)?;
        let mut content = content.to_vec();
        if content.last() != Some(&b'\n') {
            content.push(b'\n');
        }
        files::write(&self.shelf.lines(trace), &content).map_err(failed)?;
        let facts = Facts {
            name: name.to_owned(),
            recording: false,
            events,
            bytes: content.len() as u64,
            duration_ms: at,
            started_at: self.clock.now(),
            problem: None,
        };
        self.shelf.write(trace, &facts).map_err(failed)?;
        Ok(facts.trace(trace))
    }

    pub fn delete(&self, trace: TraceId) -> DriverResult<()> {
        if lock(&self.recordings).remove(&trace).is_some() {
            self.vehicle.stop_listening(trace);
        }
        let failed = |error| io_error("delete a trace", error);
        // What it is known by goes last: until then it can be deleted again.
        files::remove(&self.shelf.lines(trace)).map_err(failed)?;
        files::remove(&self.shelf.facts(trace)).map_err(failed)
    }

    pub fn replay(self: &Arc<Traces>, trace: TraceId, speed: f64, repeat: bool) -> DriverResult<Replay> {
        if !SPEEDS.contains(&speed) {
            let message =
                format!("a speed is between {} and {}; 1 is as it was", SPEEDS.start(), SPEEDS.end());
            return Err(DriverError::new(Retry::Never, WRONG_VALUE, message));
        }
        let facts = self.shelf.read(trace)?;
        if facts.recording {
            let message = format!("trace {trace} is still being recorded; end the recording first");
            return Err(DriverError::new(Retry::Never, WRONG_TRACE, message));
        }
        let progress = Progress {
            trace,
            speed,
            repeat,
            events_done: 0,
            events_total: facts.events,
            started_at: self.clock.now(),
            ended_at: None,
            problem: None,
        };
        let told = progress.replay();
        self.shelf.mark(&progress).map_err(|error| io_error("begin a replay", error))?;
        self.run(progress);
        Ok(told)
    }

    fn run(self: &Arc<Traces>, progress: Progress) {
        let running = Running { progress: Arc::new(Mutex::new(progress)), stop: CancellationToken::new() };
        let run = Run {
            shelf: self.shelf.clone(),
            catalogue: self.catalogue.clone(),
            clock: self.clock.clone(),
            vehicle: Arc::downgrade(&self.vehicle),
            progress: running.progress.clone(),
        };
        let stop = running.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = run.until_it_ends() => {}
            }
        });
        *lock(&self.replay) = Some(running);
    }

    pub fn replaying(&self) -> DriverResult<Option<Replay>> {
        if let Some(running) = &*lock(&self.replay) {
            return Ok(Some(lock(&running.progress).replay()));
        }
        self.shelf.replaying()
    }

    /// Ends the replay, for a reason if there is one.
    pub fn stop(&self, problem: Option<&str>) -> DriverResult<Option<Replay>> {
        let Some(running) = lock(&self.replay).take() else { return self.shelf.replaying() };
        running.stop.cancel();
        let mut progress = lock(&running.progress);
        if progress.ended_at.is_none() {
            progress.ended_at = Some(self.clock.now());
            progress.problem = problem.map(str::to_owned);
            self.shelf.mark(&progress).map_err(|error| io_error("end a replay", error))?;
        }
        Ok(Some(progress.replay()))
    }

    /// The car goes to another process, which goes on with the replay.
    pub fn let_go(&self) {
        for (trace, recording) in lock(&self.recordings).drain() {
            self.vehicle.stop_listening(trace);
            let mut recording = lock(&recording);
            if recording.facts.recording {
                recording.facts.problem = Some("it ended with the process that recorded it".to_owned());
                if let Err(error) = recording.finish() {
                    tracing::warn!(%error, "what is known of a trace could not be written");
                }
            }
        }
        if let Some(running) = lock(&self.replay).take() {
            running.stop.cancel();
            let progress = lock(&running.progress);
            if let Err(error) = self.shelf.mark(&progress) {
                tracing::warn!(%error, "how far a replay has come could not be written");
            }
        }
    }
}
