//! The files of a car's traces, whoever holds the car.

use std::path::{Path, PathBuf};
use std::{fs, io};

use paddock_model::Timestamp;
use paddock_model::drivers::garages::{NO_SUCH_TRACE, WRONG_TRACE};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::vehicles::{PropertyStatus, Replay, Trace, TraceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files::{self, io_error};

pub const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    pub paddock_trace: u32,
    #[serde(default)]
    pub name: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Line {
    pub at_ms: i64,
    pub property: String,
    #[serde(default)]
    pub area: i32,
    pub value: Value,
    #[serde(default)]
    pub status: PropertyStatus,
}

/// As [`Trace`], written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    pub name: String,
    pub recording: bool,
    pub events: i64,
    pub bytes: u64,
    pub duration_ms: i64,
    pub started_at: Timestamp,
    #[serde(default)]
    pub problem: Option<String>,
}

impl Facts {
    pub fn trace(&self, id: TraceId) -> Trace {
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
pub struct Progress {
    pub trace: TraceId,
    pub speed: f64,
    pub repeat: bool,
    pub events_done: i64,
    pub events_total: i64,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub problem: Option<String>,
}

impl Progress {
    pub fn replay(&self) -> Replay {
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

/// The files of a car's traces, whoever holds the car.
#[derive(Debug, Clone)]
pub struct Shelf {
    pub folder: PathBuf,
    replay: PathBuf,
}

impl Shelf {
    pub fn of(car: &Path) -> Shelf {
        Shelf { folder: car.join("traces"), replay: car.join("replay.json") }
    }

    pub fn lines(&self, trace: TraceId) -> PathBuf {
        self.folder.join(format!("{trace}.jsonl"))
    }

    pub fn facts(&self, trace: TraceId) -> PathBuf {
        self.folder.join(format!("{trace}.json"))
    }

    pub fn ids(&self) -> io::Result<Vec<TraceId>> {
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

    pub fn read(&self, trace: TraceId) -> DriverResult<Facts> {
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

    pub fn write(&self, trace: TraceId, facts: &Facts) -> io::Result<()> {
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

    pub fn progress(&self) -> DriverResult<Option<Progress>> {
        match fs::read(&self.replay) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read how far a replay has come", error)),
            // Half a file would be an older one in whole: they are replaced.
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        }
    }

    pub fn mark(&self, progress: &Progress) -> io::Result<()> {
        files::replace(&self.replay, &serde_json::to_vec(progress)?)
    }
}

fn no_such_trace(trace: TraceId) -> DriverError {
    DriverError::new(
        Retry::Never,
        NO_SUCH_TRACE,
        format!("there is no trace {trace} of this car; list its traces"),
    )
}
