//! Takes into the journals what devices say and what becomes of emulators, and lets go of journals whose emulator is forgotten.
//!
//! How far each source was taken stands in the journal beside what was taken: whoever comes next, after whatever end, goes on there.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use paddock_model::devices::{Observed, Phase};
use paddock_model::drivers::emulator_hosts::{ByteStream, Channel};
use paddock_model::drivers::journals::Head;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::{EmulatorId, Status};
use paddock_model::logs::{
    Change, Entry, LONGEST_LINE, Level, Line, Lines, Logcat, LogcatMark, Marks, Record, Source,
};
use paddock_model::{Result, Timestamp};
use paddock_store::{emulators, logs as waiting};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::devices::Devices;
use crate::feeds::Feed;

pub const LOOP: Loop = Loop {
    name: "logs",
    watches: &["log_changes"],
    every: Duration::from_secs(60),
    run: |engine| Box::pin(run(engine)),
};

const A_RUN: i64 = 500;
/// Journals whose emulator is forgotten are looked for this often.
const COMPARED_EVERY: Duration = Duration::from_secs(600);
/// How soon a line without an end is looked at again.
const AGAIN: Duration = Duration::from_millis(100);
/// A line without an end is one after so long.
const UNFINISHED: Duration = Duration::from_secs(2);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// A device keeps its last lines back no longer than this.
const REST: Duration = Duration::from_secs(10);
/// No entry of a device's log is longer.
const LONGEST_ENTRY: usize = 64 << 10;
const LONGEST_TAG: usize = 128;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let mut changed = 0;
    loop {
        let changes = waiting::waiting(&mut engine.store.read().await?, A_RUN).await?;
        if changes.is_empty() {
            break;
        }
        changed += changes.len() as u64;
        let mut told = Vec::new();
        for of_one in changes.chunk_by(|one, other| one.emulator == other.emulator) {
            let feed = devices.feeds.feed(of_one[0].emulator).await?;
            feed.append(|head| lifecycle(head, of_one)).await?;
            told.extend(of_one.last().map(|last| (last.emulator, last.generation)));
        }
        // Only now: killed before, the journal knows what it has already.
        let mut tx = engine.store.begin().await?;
        for (emulator, generation) in told {
            waiting::delete(&mut tx, emulator, generation).await?;
        }
        engine.commit(tx).await?;
    }
    let now = engine.now();
    let compared_at = *devices.feeds.compared_at.lock().unwrap_or_else(PoisonError::into_inner);
    if compared_at.is_none_or(|at| now >= at + COMPARED_EVERY) {
        changed += forget(engine, devices).await?;
        *devices.feeds.compared_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
    Ok(Report { changed, ..Report::default() })
}

fn lifecycle(head: &Head, changes: &[Change]) -> Option<(Vec<Record>, Marks)> {
    let new: Vec<&Change> =
        changes.iter().filter(|change| change.generation > head.marks.generation).collect();
    let last = new.last()?;
    let marks = Marks {
        generation: last.generation,
        ended: head.marks.ended || last.status == Status::Terminated,
        ..head.marks.clone()
    };
    Some((new.iter().flat_map(|change| change.records()).collect(), marks))
}

/// A journal is kept as long as its emulator can be asked for.
async fn forget(engine: &Engine, devices: &Devices) -> Result<u64, Trouble> {
    let mut forgotten = 0;
    for id in devices.feeds.journals.list().await? {
        if emulators::find_any(&mut engine.store.read().await?, id).await?.is_none() {
            devices.feeds.journals.remove(id).await?;
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// Listens to every device there is, for as long as it is there.
pub(super) async fn follow(engine: Engine, stop: CancellationToken) {
    let Some(devices) = engine.devices.clone() else { return };
    let mut changes = devices.host.changes();
    let mut listeners: HashMap<EmulatorId, watch::Sender<()>> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut all = true;
    loop {
        if std::mem::take(&mut all) {
            match devices.host.list().await {
                Ok(ids) => {
                    for id in ids {
                        listen(&engine, &devices, &mut listeners, &mut tasks, id);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the devices could not be listed; their logs wait");
                    all = true;
                    sleep(PAUSE).await;
                    continue;
                }
            }
        }
        tokio::select! {
            change = changes.recv() => match change {
                Ok(id) => listen(&engine, &devices, &mut listeners, &mut tasks, id),
                Err(RecvError::Lagged(_)) => all = true,
                Err(RecvError::Closed) => return,
            },
            Some(ended) = tasks.join_next() => {
                let Ok(id) = ended else { continue };
                listeners.remove(&id);
                // It may have come back while its listener left.
                if !matches!(devices.host.observe(id).await, Ok(None)) {
                    listen(&engine, &devices, &mut listeners, &mut tasks, id);
                }
            },
            () = stop.cancelled() => return,
        }
    }
}

fn listen(
    engine: &Engine,
    devices: &Arc<Devices>,
    listeners: &mut HashMap<EmulatorId, watch::Sender<()>>,
    tasks: &mut JoinSet<EmulatorId>,
    id: EmulatorId,
) {
    let listener = listeners.entry(id).or_insert_with(|| {
        let (sender, changes) = watch::channel(());
        let (engine, devices) = (engine.clone(), devices.clone());
        tasks.spawn(async move {
            listen_to(&engine, &devices, id, changes).await;
            id
        });
        sender
    });
    listener.send_replace(());
}

/// Until there is no trace of the device any more.
async fn listen_to(engine: &Engine, devices: &Devices, id: EmulatorId, mut changes: watch::Receiver<()>) {
    loop {
        match attend(engine, devices, id, &mut changes).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(emulator = %id, %error, "a device's log could not be taken down; it is tried again");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Takes down what one start of a device says; false when there is none.
async fn attend(
    engine: &Engine,
    devices: &Devices,
    id: EmulatorId,
    changes: &mut watch::Receiver<()>,
) -> DriverResult<bool> {
    changes.borrow_and_update();
    let Some(observed) = devices.host.observe(id).await? else { return Ok(false) };
    let feed = devices.feeds.feed(id).await?;
    let listener = Listener { engine, devices, id, feed: &feed };
    listener.tell_uncertainty().await?;
    listener.take_consoles_until(observed.incarnation).await?;
    let over = |observed: &Observed| matches!(observed.phase, Phase::Exited { .. });
    if over(&observed) {
        listener.take_console(observed.incarnation).await?;
        // Whatever comes, comes with a change.
        return Ok(changes.changed().await.is_ok());
    }
    let another = async {
        let mut ready = matches!(observed.phase, Phase::Ready { .. });
        while changes.changed().await.is_ok() {
            let Ok(Some(now)) = devices.host.observe(id).await else { continue };
            // A device that was up and boots has restarted by itself: its log begins anew.
            if now.incarnation != observed.incarnation || ready && now.phase == Phase::Booting {
                return;
            }
            ready |= matches!(now.phase, Phase::Ready { .. });
        }
    };
    let console = listener.take_console(observed.incarnation);
    let logcat = listener.take_logcat(observed.incarnation);
    tokio::pin!(console, logcat);
    tokio::select! {
        taken = &mut console => {
            // What it said last may still be on its way.
            let _ = timeout(PAUSE, &mut logcat).await;
            taken?;
        }
        () = another => {}
        // It ends only with the device.
        taken = &mut logcat => {
            taken?;
            console.await?;
        }
    }
    Ok(true)
}

/// Takes down the rest of what a device that was stopped has said. It goes whether that works or not.
pub(super) async fn take_rest(engine: &Engine, devices: &Devices, id: EmulatorId) {
    let rest = async {
        let Some(observed) = devices.host.observe(id).await? else { return Ok(()) };
        let feed = devices.feeds.feed(id).await?;
        let listener = Listener { engine, devices, id, feed: &feed };
        listener.take_consoles_until(observed.incarnation + 1).await?;
        // Whoever reads its log comes to the end by himself.
        let _ = timeout(PAUSE, feed.logcat.lock()).await;
        Ok::<(), DriverError>(())
    };
    match timeout(REST, rest).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(emulator = %id, %error, "the rest of a device's log is lost"),
        Err(_) => tracing::warn!(emulator = %id, "the rest of a device's log takes too long and is lost"),
    }
}

struct Listener<'a> {
    engine: &'a Engine,
    devices: &'a Devices,
    id: EmulatorId,
    feed: &'a Feed,
}

impl Listener<'_> {
    /// Says once that the machine has started since, where that may have cost the newest lines.
    async fn tell_uncertainty(&self) -> DriverResult<()> {
        if !self.feed.head().await?.uncertain {
            return Ok(());
        }
        let now = self.engine.now();
        self.feed
            .append(|head| {
                let text = "the host has restarted; what was said just before that may be missing".to_owned();
                let line = Line { source: Source::Lifecycle, level: Level::Warn, text, logcat: None };
                let incarnation = head.marks.console.0;
                let record = Record { at: now, incarnation, entry: Entry::Line(line) };
                head.uncertain.then(|| (vec![record], head.marks.clone()))
            })
            .await
            .map(drop)
    }

    /// What earlier incarnations have said to their end.
    async fn take_consoles_until(&self, incarnation: i64) -> DriverResult<()> {
        let known = self.feed.head().await?.marks.console.0;
        // Hosts keep no more than a few.
        for earlier in known.max(incarnation - 3).max(1)..incarnation {
            self.take_console(earlier).await?;
        }
        Ok(())
    }

    /// Returns when that incarnation has ended and everything is taken.
    async fn take_console(&self, incarnation: i64) -> DriverResult<()> {
        let mut unfinished = Duration::ZERO;
        loop {
            let (known, taken) = self.feed.head().await?.marks.console;
            if known > incarnation {
                return Ok(());
            }
            let from = if known == incarnation { taken } else { 0 };
            let part = self.devices.host.console(self.id, incarnation, from).await?;
            let all = part.ended || unfinished >= UNFINISHED;
            let lines = Lines::of(&part.bytes, all);
            if lines.taken == 0 && part.lost == 0 && !part.ended {
                sleep(AGAIN).await;
                unfinished += AGAIN;
                continue;
            }
            unfinished = Duration::ZERO;
            let at = part.next - (part.bytes.len() - lines.taken) as u64;
            let now = self.engine.now();
            if lines.taken > 0 || part.lost > 0 {
                let records = console_records(lines.texts, part.lost, incarnation, now);
                // Somebody else may have taken the same meanwhile.
                let before = (known, taken);
                self.feed
                    .append(|head| {
                        let marks = Marks { console: (incarnation, at), ..head.marks.clone() };
                        (head.marks.console == before).then_some((records, marks))
                    })
                    .await?;
            }
            if part.ended {
                return Ok(());
            }
            sleep(self.feed.pace()).await;
        }
    }

    /// Comes back to the log whenever the way to it breaks; returns when the device has ended.
    async fn take_logcat(&self, incarnation: i64) -> DriverResult<()> {
        let mut pause = PAUSE / 4;
        loop {
            match self.devices.host.open(self.id, Channel::Log).await {
                Ok(stream) => {
                    pause = PAUSE / 4;
                    let _held = self.feed.logcat.lock().await;
                    if let Err(error) = self.converse(stream, incarnation).await {
                        tracing::debug!(emulator = %self.id, %error, "the way to a device's log broke");
                    }
                }
                Err(DriverError { retry: Retry::Never, .. }) => std::future::pending().await,
                Err(_) => pause = (2 * pause).min(8 * PAUSE),
            }
            match self.devices.host.observe(self.id).await? {
                Some(observed) if observed.incarnation == incarnation => {
                    if matches!(observed.phase, Phase::Exited { .. }) {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
            sleep(pause).await;
        }
    }

    /// Reads the log from where it was left until the connection ends.
    async fn converse(&self, mut stream: Box<dyn ByteStream>, incarnation: i64) -> DriverResult<()> {
        let broken = |error: std::io::Error| {
            DriverError::new(Retry::Soon, "not_ready", "the log port closed").with_cause(error)
        };
        let mark = self.feed.head().await?.marks.logcat;
        let mark = if mark.incarnation == incarnation { mark } else { LogcatMark::default() };
        // The entry that is known comes first, if the device still counts as it did then.
        let after = mark.number.saturating_sub(1);
        stream.write_all(format!("{{\"after\":{after}}}\n").as_bytes()).await.map_err(broken)?;
        let mut sure = mark.number == 0;
        let mut pending = Vec::new();
        loop {
            // Without room for many, few are taken at a time.
            pending.reserve(LONGEST_ENTRY);
            let read = stream.read_buf(&mut pending);
            let length = if sure {
                read.await.map_err(broken)?
            } else {
                match timeout(UNFINISHED, read).await {
                    Ok(length) => length.map_err(broken)?,
                    // It has not come so far again: it has restarted by itself, and counts from one.
                    Err(_) => {
                        stream.write_all(b"{\"after\":0}\n").await.map_err(broken)?;
                        sure = true;
                        continue;
                    }
                }
            };
            if length == 0 {
                return Ok(());
            }
            let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else {
                if pending.len() > LONGEST_ENTRY {
                    return Err(DriverError::new(Retry::Soon, "not_ready", "an entry of the log has no end"));
                }
                continue;
            };
            let words: Vec<Word> = pending[..end]
                .split(|byte| *byte == b'\n')
                .filter_map(|line| serde_json::from_slice(line).ok())
                .collect();
            pending.drain(..=end);
            if !sure {
                sure = true;
                let known = match words.first() {
                    Some(Word::Entry(entry)) => (entry.seq, entry.time) == (mark.number, mark.time),
                    Some(Word::Lost { lost }) => lost.through >= mark.number,
                    None => true,
                };
                if !known {
                    stream.write_all(b"{\"after\":0}\n").await.map_err(broken)?;
                    continue;
                }
            }
            self.write_logcat(words, incarnation).await?;
            sleep(self.feed.pace()).await;
        }
    }

    async fn write_logcat(&self, words: Vec<Word>, incarnation: i64) -> DriverResult<()> {
        let now = self.engine.now();
        self.feed
            .append(|head| {
                let mut mark = head.marks.logcat;
                if mark.incarnation != incarnation {
                    mark = LogcatMark { incarnation, ..LogcatMark::default() };
                }
                let records: Vec<Record> =
                    words.into_iter().filter_map(|word| word.record(&mut mark, now)).collect();
                let marks = Marks { logcat: mark, ..head.marks.clone() };
                (!records.is_empty()).then_some((records, marks))
            })
            .await
            .map(drop)
    }
}

fn console_records(texts: Vec<String>, lost: u64, incarnation: i64, at: Timestamp) -> Vec<Record> {
    let record = |entry| Record { at, incarnation, entry };
    let gap = (lost > 0).then_some(Entry::Lost { source: Source::Console, entries: None, bytes: Some(lost) });
    let lines = texts
        .into_iter()
        .map(|text| Entry::Line(Line { source: Source::Console, level: Level::Info, text, logcat: None }));
    gap.into_iter().chain(lines).map(record).collect()
}

/// A line of the log port, as PROTOCOL.md of the guest says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Word {
    Entry(LogcatEntry),
    Lost { lost: LostEntries },
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct LogcatEntry {
    seq: u64,
    time: u64,
    #[serde(default)]
    buffer: String,
    #[serde(default)]
    level: String,
    #[serde(default)]
    tag: String,
    #[serde(default)]
    pid: i64,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct LostEntries {
    through: u64,
}

impl Word {
    /// Nothing where the journal has it already.
    fn record(self, mark: &mut LogcatMark, now: Timestamp) -> Option<Record> {
        let incarnation = mark.incarnation;
        match self {
            Word::Lost { lost } if lost.through > mark.number => {
                let entries = Some(lost.through - mark.number);
                mark.number = lost.through;
                let entry = Entry::Lost { source: Source::Logcat, entries, bytes: None };
                Some(Record { at: now, incarnation, entry })
            }
            Word::Lost { .. } => None,
            // A device that restarts by itself counts from one again, but its clock goes on.
            Word::Entry(entry) if entry.seq <= mark.number && entry.time <= mark.time => None,
            Word::Entry(entry) => {
                (mark.number, mark.time) = (entry.seq, entry.time);
                let time =
                    i64::try_from(entry.time).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
                let level = match entry.level.as_str() {
                    "verbose" => Level::Verbose,
                    "debug" => Level::Debug,
                    "warn" => Level::Warn,
                    "error" => Level::Error,
                    "fatal" => Level::Fatal,
                    _ => Level::Info,
                };
                let logcat = Logcat {
                    tag: cut(entry.tag, LONGEST_TAG),
                    pid: entry.pid,
                    buffer: cut(entry.buffer, LONGEST_TAG),
                };
                let text = cut(entry.message, LONGEST_LINE);
                let line = Line { source: Source::Logcat, level, text, logcat: Some(logcat) };
                Some(Record { at: time.unwrap_or(now), incarnation, entry: Entry::Line(line) })
            }
        }
    }
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}
