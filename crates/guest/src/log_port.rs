//! The log for the host: entries by number, from where the host wants them. See PROTOCOL.md.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::channel::{self, Conversation, Place, Wake};
use crate::device::Device;
use crate::logs::{Buffer, Entry};

pub const PORT: &str = "org.paddock.log";
const BATCH: usize = 200;

#[derive(Deserialize)]
struct Request {
    /// The last entry that the host has; 0 for all.
    after: u64,
    /// All of them unless named.
    #[serde(default)]
    buffers: Vec<String>,
}

struct Reading {
    after: u64,
    buffers: Vec<Buffer>,
}

struct LogPort {
    device: Arc<Device>,
    reading: Arc<Mutex<Option<Reading>>>,
}

pub fn start(device: &Arc<Device>, place: Place) -> io::Result<()> {
    let wake = Wake::new()?;
    let (watched, waker) = (device.clone(), wake.clone());
    std::thread::Builder::new().name("log-wake".to_owned()).spawn(move || {
        let mut seen = 0;
        loop {
            watched.log.wait(seen, Duration::from_secs(3600));
            seen = watched.log.last();
            waker.up();
        }
    })?;
    channel::start(place, wake, LogPort { device: device.clone(), reading: Arc::default() })
}

impl Conversation for LogPort {
    fn greeted(&mut self) -> Vec<String> {
        // Nothing is said before the host has told from where on.
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Vec::new()
    }

    fn heard(&mut self, line: &str) -> Vec<String> {
        let request: Request = match serde_json::from_str(line) {
            Ok(request) => request,
            Err(error) => return vec![json!({"error": {"message": error.to_string()}}).to_string()],
        };
        let named: Option<Vec<Buffer>> = request.buffers.iter().map(|name| Buffer::parse(name)).collect();
        let buffers = match named {
            Some(named) if !named.is_empty() => named,
            Some(_) => Buffer::ALL.to_vec(),
            None => return vec![json!({"error": {"message": "an unknown buffer"}}).to_string()],
        };
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Reading { after: request.after, buffers });
        Vec::new()
    }

    fn unasked(&mut self) -> Vec<String> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reading) = reading.as_mut() else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let evicted = self.device.log.evicted(&reading.buffers);
        if evicted > reading.after {
            lines.push(json!({"lost": {"through": evicted}}).to_string());
        }
        let entries = self.device.log.after(reading.after, &reading.buffers, BATCH);
        reading.after = entries.last().map_or(reading.after, |entry| entry.number).max(evicted);
        lines.extend(entries.iter().map(line));
        lines
    }
}

fn line(entry: &Entry) -> String {
    json!({
        "seq": entry.number,
        "time": entry.time.as_millis() as u64,
        "buffer": entry.buffer,
        "level": entry.level,
        "tag": entry.tag,
        "pid": entry.pid,
        "message": entry.message,
    })
    .to_string()
}
