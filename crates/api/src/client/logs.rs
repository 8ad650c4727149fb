//! Logs, as a client follows them.

use std::time::Duration;

use http::{HeaderMap, header};
use reqwest::Response;
use serde::de::DeserializeOwned;

use super::{Client, Error, Result, encode, query_string};
use crate::logs::{LogStreamEvent, ReadLogs};

/// A log that may go on for as long as anybody listens.
const NO_END: Duration = Duration::from_secs(365 * 24 * 3600);

/// An open log. When it breaks, open it again behind `last_event_id`.
pub struct LogStream {
    answer: Response,
    unread: Vec<u8>,
    /// The last event that was given out; nothing before it comes again.
    pub last_event_id: Option<i64>,
}

/// What comes over an open log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Event(LogStreamEvent),
    /// Nothing new, but the server is there.
    Heartbeat,
}

impl Client {
    pub async fn logs(&self, id: &str, query: &ReadLogs) -> Result<LogStream> {
        let last_event_id = query.last_event_id;
        let query = query_string(&serde_json::to_value(query).unwrap_or_default());
        let mut headers = HeaderMap::new();
        headers.extend(self.token.clone().map(|token| (header::AUTHORIZATION, token)));
        let url = self.url(&format!("/api/v1/emulators/{}/logs{query}", encode(id)));
        let request = self.http.get(url).headers(headers).timeout(NO_END);
        let answer = request.send().await.map_err(Error::Unreachable)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(LogStream { answer, unread: Vec::new(), last_event_id });
        }
        let body = answer.bytes().await.map_err(Error::Unreachable)?;
        Err(serde_json::from_slice(&body)
            .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))))
    }
}

impl LogStream {
    /// Waits for what comes next; nothing when the server has closed the stream. May be dropped and asked again.
    pub async fn next(&mut self) -> Result<Option<Heard>> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                if let Some(heard) = self.read(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(heard));
                }
                continue;
            }
            match self.answer.chunk().await.map_err(Error::Unreachable)? {
                Some(bytes) => self.unread.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Events of kinds that are not known yet are passed over.
    fn read(&mut self, block: &str) -> Option<Heard> {
        if block.starts_with(':') {
            return Some(Heard::Heartbeat);
        }
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim_start))
        };
        let data = field("data")?;
        let event = match field("event")? {
            "log" => LogStreamEvent::Log(read(data)?),
            "status" => LogStreamEvent::Status(read(data)?),
            "gap" => LogStreamEvent::Gap(read(data)?),
            "end" => LogStreamEvent::End(read(data)?),
            _ => return None,
        };
        self.last_event_id = field("id").and_then(|id| id.parse().ok()).or(self.last_event_id);
        Some(Heard::Event(event))
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Option<T> {
    serde_json::from_str(data).ok()
}
