//! A drive that is being recorded.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddock_model::vehicles::TraceId;

use super::shelf::{Facts, Line, Shelf};
use super::{MOST_BYTES, lock};
use crate::catalogue::Catalogue;
use crate::subscriptions::Event;
use crate::values;
use crate::vehicle::{INFO_VIN, Listener};

pub struct Recording {
    pub trace: TraceId,
    pub shelf: Shelf,
    pub catalogue: Arc<Catalogue>,
    pub file: File,
    pub began: Duration,
    pub facts: Facts,
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

    pub fn finish(&mut self) -> io::Result<()> {
        self.facts.recording = false;
        self.file.sync_data()?;
        self.shelf.write(self.trace, &self.facts)
    }
}

pub struct Ear(pub Arc<Mutex<Recording>>);

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
