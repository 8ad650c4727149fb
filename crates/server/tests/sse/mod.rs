//! A reader of Server-Sent Events on a bare connection, so that tests see what is on the wire and decide when to read.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Named { id: Option<u64>, name: String, data: Value },
    Comment,
}

impl Event {
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, Event::Named { name, .. } if name == wanted)
    }

    pub fn id(&self) -> Option<u64> {
        match self {
            Event::Named { id, .. } => *id,
            Event::Comment => None,
        }
    }

    pub fn data(&self) -> &Value {
        match self {
            Event::Named { data, .. } => data,
            Event::Comment => &Value::Null,
        }
    }

    pub fn line(&self) -> &str {
        self.data()["line"].as_str().unwrap_or_default()
    }
}

pub struct Reader {
    pub stream: TcpStream,
    /// As it came, chunk by chunk.
    raw: Vec<u8>,
    /// What the chunks hold.
    text: Vec<u8>,
    closed: bool,
    pub last: Option<u64>,
}

impl Reader {
    /// Opens a log, behind an event if one is named.
    pub async fn open(address: &str, token: &str, path: &str, last: Option<u64>) -> Reader {
        Reader::try_open(address, token, path, last).await.expect("a stream")
    }

    pub async fn try_open(
        address: &str,
        token: &str,
        path: &str,
        last: Option<u64>,
    ) -> Result<Reader, String> {
        let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let resume = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n{resume}\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut reader =
            Reader { stream, raw: Vec::with_capacity(64 << 10), text: Vec::new(), closed: false, last };
        let end = loop {
            if let Some(end) = find(&reader.raw, b"\r\n\r\n") {
                break end;
            }
            if reader.stream.read_buf(&mut reader.raw).await.map_err(|error| error.to_string())? == 0 {
                return Err("closed before an answer".to_owned());
            }
        };
        let head = String::from_utf8_lossy(&reader.raw[..end]).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") || !head.contains("content-type: text/event-stream") {
            return Err(head);
        }
        reader.raw.drain(..end + 4);
        reader.take_chunks();
        Ok(reader)
    }

    /// Nothing when the stream is closed; a test that waits in vain fails.
    pub async fn next(&mut self) -> Option<Event> {
        self.next_within(Duration::from_secs(30)).await.expect("an event in time")
    }

    /// An error when the time is over.
    pub async fn next_within(&mut self, patience: Duration) -> Result<Option<Event>, ()> {
        let until = Instant::now() + patience;
        loop {
            if let Some(event) = self.parse() {
                return Ok(Some(event));
            }
            if self.closed {
                return Ok(None);
            }
            self.raw.reserve(16 << 10);
            match timeout_at(until, self.stream.read_buf(&mut self.raw)).await {
                Err(_) => return Err(()),
                Ok(Ok(0) | Err(_)) => self.closed = true,
                Ok(Ok(_)) => self.take_chunks(),
            }
        }
    }

    /// The next event of that name; others are passed over, but for the end.
    pub async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if wanted(&event) {
                return event;
            }
            assert!(!event.is("end"), "{event:?}");
        }
    }

    /// Everything to the end.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    fn take_chunks(&mut self) {
        while let Some(end) = find(&self.raw, b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("a size");
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.text.extend_from_slice(&self.raw[end + 2..end + 2 + size]);
            self.raw.drain(..end + 2 + size + 2);
            self.closed |= size == 0;
        }
    }

    fn parse(&mut self) -> Option<Event> {
        loop {
            let end = find(&self.text, b"\n\n")?;
            let block: Vec<u8> = self.text.drain(..end + 2).collect();
            let block = String::from_utf8(block).expect("UTF-8");
            if block.starts_with(':') {
                return Some(Event::Comment);
            }
            let (mut id, mut name, mut data) = (None, None, None);
            for line in block.lines().filter(|line| !line.is_empty()) {
                match line.split_once(": ").expect("a field") {
                    ("id", text) => id = Some(text.parse().expect("a number")),
                    ("event", text) => name = Some(text.to_owned()),
                    ("data", text) => data = Some(serde_json::from_str(text).expect("JSON")),
                    ("retry", _) => {}
                    (field, _) => panic!("{field}"),
                }
            }
            let (Some(name), Some(data)) = (name, data) else { continue };
            if let Some(id) = id {
                assert!(self.last.is_none_or(|last| last < id), "{id} after {:?}", self.last);
                self.last = Some(id);
            }
            return Some(Event::Named { id, name, data });
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
