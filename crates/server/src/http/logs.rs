//! Logs: what an emulator and its device have said, as Server-Sent Events.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use paddock_api::emulators::EmulatorPath;
use paddock_api::logs::{
    EndEvent, GapEvent, LogEnd, LogEvent, LogLevel, LogSource, LogStreamEvent, ReadLogs, StatusEvent,
};
use paddock_engine::logs::{self, End, Next, Reader, Request};
use paddock_engine::streams::{self, Stream};
use paddock_model::error::Fault;
use paddock_model::logs::{Entry, Filter, Level, Offset, Record, Source};
use paddock_model::ports::Clock;
use paddock_model::{Error, Result};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::{moment, time};
use super::emulators::{read_id, wire_reason, wire_status};
use crate::auth::Caller;
use crate::takeover::{Chunk, Taken, Takeover};

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How soon a browser that was cut off comes again.
const OPENING: &str = "retry: 1000\n\n";
const HEARTBEAT: &str = ": \n\n";
/// How long the rest of a log may take once its emulator is gone.
const REST: Duration = Duration::from_secs(10);

/// How logs are served.
#[derive(Debug, Clone, Copy)]
pub struct Logs {
    pub heartbeat: Duration,
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(logs))
}

/// Read and follow an emulator's log
///
/// Console, Android's log and what becomes of the emulator, in the order in which it was heard, as Server-Sent Events. `event` is `log`, `status`,
/// `gap` or `end`, and `data` the JSON of LogEvent, StatusEvent, GapEvent or EndEvent. `id` rises from event to event, over restarts of the device and of the
/// server: sent back as `Last-Event-ID`, it has the stream go on behind it, without loss or repetition as long as what follows is kept; what is
/// not comes as one `gap`. A comment comes now and then, so that both sides know that the other is there. Filters hold for
/// lines; `status` comes in any case. Who does not read is cut off after a while and may come again.
#[utoipa::path(get, path = "/emulators/{id}/logs", tag = "emulators",
    params(EmulatorPath, ReadLogs, ("Last-Event-ID" = Option<i64>, Header, description = "The id of the last event that you have.", minimum = 0, maximum = 9007199254740991_i64, example = 1099511627817_i64, nullable = false)),
    responses((status = 200, body = LogStreamEvent, content_type = "text/event-stream", description = "Events, for as long as there are any.")))]
async fn logs(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<ReadLogs>,
    takeover: Option<Extension<Takeover>>,
    headers: HeaderMap,
) -> Answer<Response> {
    let request = Request {
        filter: Filter {
            source: query.source.map(read_source),
            level: query.level.map(read_level),
            since: moment("since", query.since.as_deref())?,
        },
        follow: query.follow.unwrap_or(true),
        tail: query.tail.map(u64::from),
        after: last_event_id(&headers)?.or_else(|| offset(query.last_event_id)),
    };
    let (reader, stream) = logs::logs(&app.engine, &caller, read_id(&id)?, &request).await?;
    let clock = app.engine.clock().clone();
    let every = app.logs.heartbeat;
    let timer = after(&clock, every);
    let events = Events { reader, stream, clock, every, timer, stage: Stage::Opening };
    let mut answer = match takeover {
        // Nothing else comes over this connection.
        Some(Extension(takeover)) if request.follow => {
            let body = takeover.body(|taken| drop(tokio::spawn(events.tell(taken))));
            ([(CONNECTION, "close")], body).into_response()
        }
        _ => Body::from_stream(stream::unfold(events, async |mut events| {
            let chunk = events.next().await?;
            Some((Ok::<_, std::convert::Infallible>(chunk.content()), events))
        }))
        .into_response(),
    };
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that gather answers would keep the events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(answer)
}

fn offset(id: Option<i64>) -> Option<Offset> {
    id.and_then(|id| u64::try_from(id).ok()).map(Offset)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Offset>> {
    let Some(value) = headers.get(&LAST_EVENT_ID) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()).filter(|id| *id < 1 << 53);
    match id {
        Some(id) => Ok(Some(Offset(id))),
        None => {
            let message = "Last-Event-ID is none of the ids of this stream".to_owned();
            let fault = Fault { pointer: "/Last-Event-ID".to_owned(), code: "invalid".into(), message };
            Err(Error::malformed("invalid_header", "A header is not valid; see errors.")
                .with_faults(vec![fault]))
        }
    }
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

fn after(clock: &Arc<dyn Clock>, duration: Duration) -> Timer {
    let clock = clock.clone();
    Box::pin(async move { clock.sleep(duration).await })
}

/// One reader's stream: a position, a guard and a timer. What it has not taken is kept nowhere.
struct Events {
    reader: Reader,
    stream: Stream,
    clock: Arc<dyn Clock>,
    every: Duration,
    /// For the next heartbeat, or for the rest.
    timer: Timer,
    stage: Stage,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    /// The emulator is gone, and only the rest is to be read.
    Rest,
    Over,
}

impl Events {
    /// Writes to a connection that is its own, until one side has enough.
    async fn tell(mut self, taken: Taken) {
        loop {
            let chunk = tokio::select! {
                biased;
                () = taken.gone() => return,
                chunk = self.next() => chunk,
            };
            let Some(chunk) = chunk else { return taken.end().await };
            if taken.write(&chunk).await.is_err() {
                return;
            }
        }
    }

    /// Nothing at the end.
    async fn next(&mut self) -> Option<Chunk> {
        match self.stage {
            Stage::Opening => {
                self.stage = Stage::Open;
                return Some(said(OPENING));
            }
            Stage::Open | Stage::Rest => {}
            Stage::Over => return None,
        }
        loop {
            tokio::select! {
                biased;
                end = self.stream.ended(), if self.stage == Stage::Open => match end {
                    // The log itself knows where it ends.
                    streams::End::DeviceGone => {
                        self.stage = Stage::Rest;
                        self.timer = after(&self.clock, REST);
                    }
                    end => return Some(self.end(wire_end(end))),
                },
                next = self.reader.next() => return Some(match next {
                    Ok(Next::Batch(batch)) => Chunk::again(batch.encoded(|batch| encode(batch.records()).framed())),
                    Ok(Next::Records(records)) => encode(&records),
                    Ok(Next::Gap { dropped, last }) => {
                        let gap = GapEvent { dropped: Some(dropped), source: None, dropped_bytes: None, incarnation: None };
                        Chunk::of(|text| event(text, Some(last), "gap", &gap))
                    }
                    Ok(Next::End(End::Terminated)) => self.end(LogEnd::Terminated),
                    Ok(Next::End(End::Complete)) => self.end(LogEnd::Complete),
                    Err(error) => {
                        tracing::error!(%error, "a log cannot be read on");
                        self.end(LogEnd::Failed)
                    }
                }),
                () = &mut self.timer => {
                    if self.stage == Stage::Rest {
                        return Some(self.end(LogEnd::DeviceGone));
                    }
                    self.timer = after(&self.clock, self.every);
                    return Some(said(HEARTBEAT));
                }
            }
        }
    }

    fn end(&mut self, reason: LogEnd) -> Chunk {
        self.stage = Stage::Over;
        Chunk::of(|text| event(text, None, "end", &EndEvent { reason }))
    }
}

fn said(words: &str) -> Chunk {
    Chunk::of(|text| text.extend_from_slice(words.as_bytes()))
}

fn encode(records: &[(Offset, Record)]) -> Chunk {
    Chunk::of(|text| {
        for (id, record) in records {
            let id = Some(*id);
            match wire(record) {
                LogStreamEvent::Log(log) => event(text, id, "log", &log),
                LogStreamEvent::Status(status) => event(text, id, "status", &status),
                LogStreamEvent::Gap(gap) => event(text, id, "gap", &gap),
                LogStreamEvent::End(end) => event(text, id, "end", &end),
            }
        }
    })
}

/// JSON has no line breaks, so one line of data holds all of it.
fn event(text: &mut Vec<u8>, id: Option<Offset>, name: &str, data: &impl Serialize) {
    if let Some(id) = id {
        text.extend_from_slice(format!("id: {}\n", id.0).as_bytes());
    }
    text.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
    // What cannot be written as JSON is none of these shapes.
    let _ = serde_json::to_writer(&mut *text, data);
    text.extend_from_slice(b"\n\n");
}

fn wire(record: &Record) -> LogStreamEvent {
    let (ts, incarnation) = (time(record.at), record.incarnation);
    match &record.entry {
        Entry::Line(line) => {
            let logcat = line.logcat.as_ref();
            LogStreamEvent::Log(LogEvent {
                ts,
                source: wire_source(line.source),
                level: wire_level(line.level),
                line: line.text.clone(),
                incarnation,
                tag: logcat.map(|logcat| logcat.tag.clone()),
                pid: logcat.map(|logcat| logcat.pid),
                buffer: logcat.map(|logcat| logcat.buffer.clone()),
            })
        }
        Entry::Status { status, reason } => LogStreamEvent::Status(StatusEvent {
            ts,
            status: wire_status(*status),
            status_reason: reason.clone().map(wire_reason),
            incarnation,
        }),
        Entry::Lost { source, entries, bytes } => LogStreamEvent::Gap(GapEvent {
            dropped: *entries,
            source: Some(wire_source(*source)),
            dropped_bytes: *bytes,
            incarnation: Some(incarnation),
        }),
    }
}

const fn wire_end(end: streams::End) -> LogEnd {
    match end {
        streams::End::CredentialExpired => LogEnd::CredentialExpired,
        streams::End::PermissionLost => LogEnd::PermissionLost,
        streams::End::DeviceGone | streams::End::NewIncarnation => LogEnd::DeviceGone,
        streams::End::ServerGoingAway => LogEnd::ServerGoingAway,
    }
}

const fn wire_source(source: Source) -> LogSource {
    match source {
        Source::Console => LogSource::Console,
        Source::Logcat => LogSource::Logcat,
        Source::Lifecycle => LogSource::Lifecycle,
    }
}

const fn read_source(source: LogSource) -> Source {
    match source {
        LogSource::Console => Source::Console,
        LogSource::Logcat => Source::Logcat,
        LogSource::Lifecycle => Source::Lifecycle,
    }
}

const fn wire_level(level: Level) -> LogLevel {
    match level {
        Level::Verbose => LogLevel::Verbose,
        Level::Debug => LogLevel::Debug,
        Level::Info => LogLevel::Info,
        Level::Warn => LogLevel::Warn,
        Level::Error => LogLevel::Error,
        Level::Fatal => LogLevel::Fatal,
    }
}

const fn read_level(level: LogLevel) -> Level {
    match level {
        LogLevel::Verbose => Level::Verbose,
        LogLevel::Debug => Level::Debug,
        LogLevel::Info => Level::Info,
        LogLevel::Warn => Level::Warn,
        LogLevel::Error => Level::Error,
        LogLevel::Fatal => Level::Fatal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn room<F: Future>(_: &impl FnOnce(Events, Taken) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn who_only_follows_takes_little_room() {
        let follower = room(&Events::tell);
        assert!(follower <= 1024, "{follower} bytes");
    }
}
