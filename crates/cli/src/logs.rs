//! Logs: what an emulator and its device have said.

use std::time::Duration;

use clap::Args;
use paddock_api::client::logs::Heard;
use paddock_api::client::{self, Client};
use paddock_api::logs::{GapEvent, LogEnd, LogEvent, LogLevel, LogSource, LogStreamEvent, ReadLogs};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock emulator logs maps-nightly
  paddock emulator logs maps-nightly --follow --tail 100
  paddock emulator logs maps-nightly --source logcat --level warn --since 10m
  paddock emulator logs maps-nightly -f -o json | jq -r 'select(.event == \"log\").line'

With --follow it goes on until the emulator is gone. A connection that breaks is taken up again where it broke.";

/// The server says something every 15 s, be it only that it is there.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Who does not follow does not wait for ever.
const TRIES: u32 = 5;

#[derive(Args)]
pub struct Logs {
    /// Its id (emu_…) or its name
    pub emulator: String,
    /// Go on with what is new
    #[arg(short, long)]
    follow: bool,
    /// Only so many of the newest lines [default: all that are kept]
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    tail: Option<u32>,
    /// Only what was said since then, such as 10m, 2026-11-15 or 2026-11-15T04:00:00Z
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    since: Option<jiff::Timestamp>,
    /// Only lines of this source
    #[arg(long, value_name = "SOURCE", value_parser = one_of::<LogSource>(SOURCES))]
    source: Option<LogSource>,
    /// Only lines that are at least so grave
    #[arg(long, value_name = "LEVEL", value_parser = one_of::<LogLevel>(LEVELS))]
    level: Option<LogLevel>,
}

const SOURCES: &[&str] = &["console", "logcat", "lifecycle"];
const LEVELS: &[&str] = &["verbose", "debug", "info", "warn", "error", "fatal"];

pub async fn run(id: &str, wanted: Logs, connection: &Connection, output: Output) -> Result<(), Failure> {
    if !output.is_table() && !output.is_json() {
        return Err(Failure::Usage(
            "a log is shown as lines, or with -o json as a document a line".to_owned(),
        ));
    }
    let mut client = connection.client().await?;
    let mut query = ReadLogs {
        follow: Some(wanted.follow),
        tail: wanted.tail,
        since: wanted.since.map(|since| since.to_string()),
        source: wanted.source,
        level: wanted.level,
        last_event_id: None,
    };
    let (mut pause, mut failures) = (FIRST_PAUSE, 0);
    loop {
        let before = query.last_event_id;
        match read(&client, id, &mut query, output).await {
            Ok(Some(LogEnd::Terminated | LogEnd::Complete | LogEnd::DeviceGone)) => return Ok(()),
            Ok(Some(LogEnd::PermissionLost)) => {
                return Err(Failure::NotReached(format!("You may not read the log of {id} any more.")));
            }
            // Whoever is signed in gets a new token; another one is of no use any more.
            Ok(Some(LogEnd::CredentialExpired)) => client = connection.client().await?,
            Ok(Some(LogEnd::ServerGoingAway | LogEnd::Failed) | None) => {}
            Err(Failure::Client(client::Error::Unreachable(_))) if wanted.follow || failures < TRIES => {}
            Err(failure) => return Err(failure),
        }
        if query.last_event_id != before {
            (pause, failures) = (FIRST_PAUSE, 0);
        }
        failures += 1;
        if failures == 2 {
            output::notice("The connection is broken; it is taken up again.");
        }
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Shows what comes until the stream ends; why, if the server said so.
async fn read(
    client: &Client,
    id: &str,
    query: &mut ReadLogs,
    output: Output,
) -> Result<Option<LogEnd>, Failure> {
    let mut stream = client.logs(id, query).await?;
    loop {
        let Ok(heard) = timeout(SILENCE, stream.next()).await else { return Ok(None) };
        match heard? {
            None => return Ok(None),
            Some(Heard::Heartbeat) => {}
            Some(Heard::Event(LogStreamEvent::End(end))) => return Ok(Some(end.reason)),
            Some(Heard::Event(event)) => {
                query.last_event_id = stream.last_event_id;
                let line = if output.is_json() {
                    Some(document(stream.last_event_id, &event).to_string())
                } else {
                    shown(&event)
                };
                if let Some(line) = line {
                    output::write(format!("{line}\n").as_bytes())?;
                }
            }
        }
    }
}

fn document(id: Option<i64>, event: &LogStreamEvent) -> Value {
    let (name, data) = match event {
        LogStreamEvent::Log(log) => ("log", json!(log)),
        LogStreamEvent::Status(status) => ("status", json!(status)),
        LogStreamEvent::Gap(gap) => ("gap", json!(gap)),
        LogStreamEvent::End(end) => ("end", json!(end)),
    };
    let mut document = json!({ "id": id, "event": name });
    if let (Value::Object(document), Value::Object(data)) = (&mut document, data) {
        document.extend(data);
    }
    document
}

/// A status is also told as a line, so that it needs none of its own.
fn shown(event: &LogStreamEvent) -> Option<String> {
    match event {
        LogStreamEvent::Log(log) => Some(line(log)),
        LogStreamEvent::Gap(gap) => Some(format!("--- {} ---", missing(gap))),
        LogStreamEvent::Status(_) | LogStreamEvent::End(_) => None,
    }
}

fn line(log: &LogEvent) -> String {
    let level = word(&log.level).chars().next().unwrap_or('?').to_ascii_uppercase();
    let tag = log.tag.as_ref().map(|tag| format!("{tag}({}): ", log.pid.unwrap_or_default()));
    let line = output::printable(&log.line.replace('\n', " ⏎ ").replace('\t', "    "));
    let tag = output::printable(&tag.unwrap_or_default());
    format!("{} {:<9} {level} {tag}{line}", log.ts, word(&log.source))
}

fn missing(gap: &GapEvent) -> String {
    let count = match (gap.dropped, gap.dropped_bytes) {
        (Some(dropped), _) => format!("{dropped} entries are missing"),
        (None, Some(bytes)) => format!("{bytes} bytes are missing"),
        (None, None) => "something is missing".to_owned(),
    };
    match gap.source {
        Some(source) => format!("{count} ({})", word(&source)),
        None => count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shown_in_lines_that_do_not_steer_the_terminal() {
        let log = LogEvent {
            ts: "2026-11-15T04:00:00.000000Z".to_owned(),
            source: LogSource::Logcat,
            level: LogLevel::Warn,
            line: "one\ntwo\u{1b}[2J".to_owned(),
            incarnation: 1,
            tag: Some("Tag".to_owned()),
            pid: Some(7),
            buffer: Some("main".to_owned()),
        };
        let console =
            LogEvent { source: LogSource::Console, tag: None, line: "up".to_owned(), ..log.clone() };
        let gap = GapEvent { dropped: Some(3), source: None, dropped_bytes: None, incarnation: None };
        for (event, expected) in [
            (
                LogStreamEvent::Log(log),
                "2026-11-15T04:00:00.000000Z logcat    W Tag(7): one ⏎ two\u{fffd}[2J",
            ),
            (LogStreamEvent::Log(console), "2026-11-15T04:00:00.000000Z console   W up"),
            (LogStreamEvent::Gap(gap), "--- 3 entries are missing ---"),
        ] {
            assert_eq!(shown(&event).as_deref(), Some(expected));
        }
    }
}
