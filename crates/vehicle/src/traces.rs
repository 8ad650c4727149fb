//! Traces: drives that were recorded, and their way back into a car.
//!
//! ```text
//! emu_…/traces/vtr_….jsonl   a header, then a line an event
//! emu_…/traces/vtr_….json    what is known of it without reading it
//! emu_…/replay.json          what is being replayed, and how far it has come
//! ```

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddock_model::Timestamp;
use paddock_model::drivers::garages::{NO_SUCH_TRACE, TOO_MANY_TRACES, WRONG_TRACE, WRONG_VALUE};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::ports::Clock;
use paddock_model::vehicles::{AreaId, PropertyStatus, Replay, Trace, TraceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::catalogue::Catalogue;
use crate::files::{self, io_error};
use crate::subscriptions::Event;
use crate::values::{self, Key, Raw};
use crate::vehicle::{INFO_VIN, Listener, Vehicle};

const VERSION: u32 = 1;
pub const MOST_BYTES: u64 = 64 << 20;
pub const MOST_TRACES: usize = 20;
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;
/// How often a replay writes down how far it has come.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// A trace that repeats itself takes at least so long.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
/// How many events go into the car at once.
const MOST_AT_ONCE: usize = 1024;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    paddock_trace: u32,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    at_ms: i64,
    property: String,
    #[serde(default)]
    area: i32,
    value: Value,
    #[serde(default)]
    status: PropertyStatus,
}

/// As [`Trace`], written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Facts {
    name: String,
    recording: bool,
    events: i64,
    bytes: u64,
    duration_ms: i64,
    started_at: Timestamp,
    #[serde(default)]
    problem: Option<String>,
}

impl Facts {
    fn trace(&self, id: TraceId) -> Trace {
        Trace {
            id,
            name: self.name.clone(),
            recording: self.recording,
            events: self.events,
            bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX),
            duration_ms: self.duration_ms,
            started_at: self.started_at,
            problem: self.problem.clone(),
        }
    }
}

/// As [`Replay`], written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Progress {
    trace: TraceId,
    speed: f64,
    repeat: bool,
    events_done: i64,
    events_total: i64,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    problem: Option<String>,
}

impl Progress {
    fn replay(&self) -> Replay {
        Replay {
            trace: self.trace,
            speed: self.speed,
            repeat: self.repeat,
            events_done: self.events_done,
            events_total: self.events_total,
            started_at: self.started_at,
            ended_at: self.ended_at,
            problem: self.problem.clone(),
        }
    }
}

/// The traces of one car that this process holds.
pub struct Traces {
    shelf: Shelf,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    vehicle: Arc<Vehicle>,
    recordings: Mutex<HashMap<TraceId, Arc<Mutex<Recording>>>>,
    replay: Mutex<Option<Running>>,
}

struct Running {
    progress: Arc<Mutex<Progress>>,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files of a car's traces, whoever holds the car.
#[derive(Debug, Clone)]
pub struct Shelf {
    folder: PathBuf,
    replay: PathBuf,
}

impl Shelf {
    pub fn of(car: &Path) -> Shelf {
        Shelf { folder: car.join("traces"), replay: car.join("replay.json") }
    }

    fn lines(&self, trace: TraceId) -> PathBuf {
        self.folder.join(format!("{trace}.jsonl"))
    }

    fn facts(&self, trace: TraceId) -> PathBuf {
        self.folder.join(format!("{trace}.json"))
    }

    fn ids(&self) -> io::Result<Vec<TraceId>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            ids.extend(name.to_str().and_then(|name| TraceId::parse(name.strip_suffix(".json")?)));
        }
        ids.sort();
        Ok(ids)
    }

    fn read(&self, trace: TraceId) -> DriverResult<Facts> {
        let text = match fs::read(self.facts(trace)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_such_trace(trace)),
            text => text.map_err(|error| io_error("read what is known of a trace", error))?,
        };
        serde_json::from_slice(&text).map_err(|error| {
            DriverError::new(
                Retry::Never,
                WRONG_TRACE,
                format!("what is known of trace {trace} is damaged; delete it"),
            )
            .with_cause(error)
        })
    }

    fn write(&self, trace: TraceId, facts: &Facts) -> io::Result<()> {
        files::make_folder(&self.folder)?;
        files::write(&self.facts(trace), &serde_json::to_vec(facts)?)
    }

    /// As far as it is written down.
    pub fn list(&self) -> DriverResult<Vec<Trace>> {
        let ids = self.ids().map_err(|error| io_error("list traces", error))?;
        let mut traces = Vec::new();
        for id in ids {
            match self.read(id) {
                Ok(facts) => traces.push(facts.trace(id)),
                Err(error) if error.code == NO_SUCH_TRACE => {}
                Err(error) => return Err(error),
            }
        }
        Ok(traces)
    }

    pub fn content(&self, trace: TraceId) -> DriverResult<Vec<u8>> {
        let mut bytes = match fs::read(self.lines(trace)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_such_trace(trace)),
            bytes => bytes.map_err(|error| io_error("read a trace", error))?,
        };
        // A line may be half written.
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        Ok(bytes)
    }

    pub fn replaying(&self) -> DriverResult<Option<Replay>> {
        Ok(self.progress()?.map(|progress| progress.replay()))
    }

    fn progress(&self) -> DriverResult<Option<Progress>> {
        match fs::read(&self.replay) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read how far a replay has come", error)),
            // Half a file would be an older one in whole: they are replaced.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        }
    }
}

fn no_such_trace(trace: TraceId) -> DriverError {
    DriverError::new(
        Retry::Never,
        NO_SUCH_TRACE,
        format!("there is no trace {trace} of this car; list its traces"),
    )
}

struct Recording {
    trace: TraceId,
    shelf: Shelf,
    catalogue: Arc<Catalogue>,
    file: File,
    began: Duration,
    facts: Facts,
}

impl Recording {
    fn hear(&mut self, now: Duration, events: &[Event]) -> io::Result<bool> {
        let at_ms = i64::try_from(now.saturating_sub(self.began).as_millis()).unwrap_or(i64::MAX);
        let mut text = Vec::new();
        let mut told = 0;
        for event in events.iter().filter(|event| event.key.0 != INFO_VIN) {
            let Some(kind) = event.key.0.value_type() else { continue };
            let line = Line {
                at_ms,
                property: self.catalogue.label(event.key.0),
                area: event.key.1.0,
                value: values::to_json(kind, &event.value),
                status: event.status,
            };
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
            told += 1;
        }
        if self.facts.bytes + text.len() as u64 > MOST_BYTES {
            self.facts.problem =
                Some(format!("it ended by itself when it had reached {} MiB", MOST_BYTES >> 20));
            return Ok(false);
        }
        self.file.write_all(&text)?;
        self.facts.bytes += text.len() as u64;
        self.facts.events += told;
        self.facts.duration_ms = at_ms;
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.facts.recording = false;
        self.file.sync_data()?;
        self.shelf.write(self.trace, &self.facts)
    }
}

struct Ear(Arc<Mutex<Recording>>);

impl Listener for Ear {
    fn hear(&mut self, now: Duration, events: &[Event]) -> bool {
        let mut recording = lock(&self.0);
        if !recording.facts.recording {
            return false;
        }
        let goes_on = recording.hear(now, events).unwrap_or_else(|error| {
            tracing::warn!(%error, "a trace could not be written");
            recording.facts.problem =
                Some("it ended by itself, because it could not be written down".to_owned());
            false
        });
        if !goes_on && let Err(error) = recording.finish() {
            tracing::warn!(%error, "what is known of a trace could not be written");
        }
        goes_on
    }
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

impl Shelf {
    fn mark(&self, progress: &Progress) -> io::Result<()> {
        files::replace(&self.replay, &serde_json::to_vec(progress)?)
    }
}

fn event(catalogue: &Catalogue, line: &Line) -> Result<(Key, Raw, PropertyStatus), String> {
    let property = &line.property;
    let id = catalogue.find(property);
    let entry = id.and_then(|id| Some((id, catalogue.entry(id)?)));
    let (id, entry) = entry.ok_or_else(|| format!("this car has no property {property}"))?;
    if entry.area(AreaId(line.area)).is_none() {
        return Err(format!("{property} has no area {:#x}", line.area));
    }
    let raw =
        values::from_json(entry.kind, &line.value).map_err(|problem| format!("{property} {problem}"))?;
    let raw = values::shaped(entry.kind, &entry.config.config_array, raw);
    Ok(((id, AreaId(line.area)), raw.map_err(|problem| format!("{property} {problem}"))?, line.status))
}

/// A replay on its way.
struct Run {
    shelf: Shelf,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    /// A car that is gone needs no replay.
    vehicle: std::sync::Weak<Vehicle>,
    progress: Arc<Mutex<Progress>>,
}

impl Run {
    async fn until_it_ends(self) {
        let problem = self.rounds().await.err();
        let mut progress = lock(&self.progress);
        progress.ended_at = Some(self.clock.now());
        if problem.is_some() {
            progress.problem = problem;
        }
        if let Err(error) = self.shelf.mark(&progress) {
            tracing::warn!(%error, "the end of a replay could not be written down");
        }
    }

    async fn rounds(&self) -> Result<(), String> {
        loop {
            let began = self.clock.elapsed();
            self.round().await?;
            let mut progress = lock(&self.progress).clone();
            if !progress.repeat {
                return Ok(());
            }
            let rest = SHORTEST_ROUND.saturating_sub(self.clock.elapsed().saturating_sub(began));
            self.clock.sleep(rest).await;
            progress.events_done = 0;
            *lock(&self.progress) = progress;
        }
    }

    /// From where it is to the end of the trace.
    async fn round(&self) -> Result<(), String> {
        let (trace, speed, skip) = {
            let progress = lock(&self.progress);
            (progress.trace, progress.speed, usize::try_from(progress.events_done).unwrap_or(0))
        };
        let file = File::open(self.shelf.lines(trace)).map_err(|_| "the trace is gone".to_owned())?;
        let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
        let events = lines
            .filter(|line| !line.trim().is_empty())
            .map_while(|line| serde_json::from_str::<Line>(&line).ok());
        let mut events = events.skip(skip).peekable();
        let began = self.clock.elapsed();
        // What comes first comes at once, or when it came if this is the beginning.
        let origin = if skip == 0 { 0 } else { events.peek().map_or(0, |first| first.at_ms) };
        let mut marked = began;
        while let Some(first) = events.next() {
            let due = began + Duration::from_secs_f64((first.at_ms - origin).max(0) as f64 / 1000.0 / speed);
            self.clock.sleep(due.saturating_sub(self.clock.elapsed())).await;
            let at_ms = first.at_ms;
            let mut together = vec![first];
            while together.len() < MOST_AT_ONCE
                && let Some(next) = events.next_if(|next| next.at_ms <= at_ms)
            {
                together.push(next);
            }
            self.tell(&together)?;
            let now = self.clock.elapsed();
            if now.saturating_sub(marked) >= MARK_EVERY {
                marked = now;
                let progress = lock(&self.progress);
                if let Err(error) = self.shelf.mark(&progress) {
                    tracing::warn!(%error, "how far a replay has come could not be written down");
                }
            }
        }
        Ok(())
    }

    fn tell(&self, lines: &[Line]) -> Result<(), String> {
        let Some(vehicle) = self.vehicle.upgrade() else { return Err("the car is gone".to_owned()) };
        let (mut refused, mut wanted) = (Vec::new(), Vec::new());
        for line in lines {
            match event(&self.catalogue, line) {
                Ok((key, raw, status)) => wanted.push((key, raw, status)),
                Err(problem) => refused.push(problem),
            }
        }
        refused
            .extend(vehicle.set(wanted).into_iter().filter_map(Result::err).map(|refusal| refusal.message));
        let mut progress = lock(&self.progress);
        progress.events_done += lines.len() as i64;
        if let Some(first) = refused.into_iter().next()
            && progress.problem.is_none()
        {
            progress.problem = Some(format!("not everything was taken by the car; the first: {first}"));
        }
        Ok(())
    }
}
