//! Streams: lets them in, and tells each when it has to end and why.
//!
//! However many are open, one task looks after them: it follows what changes, looks in batches at those emulators that
//! have streams and at no others, and is not there while there are none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddock_model::caller::Caller;
use paddock_model::drivers::emulator_hosts::{ByteStream, Channel};
use paddock_model::emulators::{Emulator, EmulatorId, Status};
use paddock_model::error::Kind;
use paddock_model::streams::{Standing, verdict};
use paddock_model::subjects::Subject;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::emulators as rows;
use tokio::sync::{Notify, oneshot};

use crate::permissions::Decision;
use crate::{Engine, emulators, permissions};

pub use paddock_model::streams::End;

/// Rights and devices are looked at this often even if nothing is heard of a change.
const CHECKED_EVERY: Duration = Duration::from_secs(30);
/// That somebody uses an emulator is written down this often.
const NOTED_EVERY: Duration = Duration::from_secs(30);
/// What changes within this time is looked at together.
const GATHERED: Duration = Duration::from_millis(20);
/// After a look, as many times its length pass before the next: that bounds what looking costs, whatever changes.
const RESTS: u32 = 20;
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Emulators in one statement, and streams under one lock.
const BATCH: usize = 500;
/// Writes in one transaction: others wait for the writer meanwhile.
const WRITTEN_AT_ONCE: usize = 100;

/// An open stream. It counts against its caller until it is dropped.
pub struct Stream {
    streams: Arc<Streams>,
    key: Key,
    subject: Subject,
    channel: Channel,
    told: oneshot::Receiver<End>,
    end: Option<End>,
}

impl Stream {
    /// Returns when the stream has to end; its holder tells the client why and closes it. May be dropped and asked again.
    pub async fn ended(&mut self) -> End {
        if let Some(end) = self.end {
            return end;
        }
        let end = (&mut self.told).await.unwrap_or(End::ServerGoingAway);
        self.end = Some(end);
        end
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.forget(self);
    }
}

type Key = (EmulatorId, u64);

/// All streams of this process.
#[derive(Default)]
pub(crate) struct Streams {
    state: Mutex<State>,
    /// A stream has come, or the last one has gone.
    news: Notify,
    empty: Notify,
}

#[derive(Default)]
struct State {
    emulators: HashMap<EmulatorId, Watched>,
    callers: HashMap<Subject, usize>,
    /// Which credential ends when.
    expiries: BTreeMap<(Timestamp, u64), EmulatorId>,
    /// Those to which a stream was opened since the last look: what changed while it was opened was told to nobody.
    fresh: HashSet<EmulatorId>,
    open: usize,
    last: u64,
    followed: bool,
    closing: bool,
}

struct Watched {
    streams: Vec<Entry>,
    /// How often its use is to be written down; never where nobody asks for it.
    noted_every: Option<Duration>,
    noted_at: Option<Timestamp>,
}

struct Entry {
    number: u64,
    caller: Caller,
    channel: Channel,
    incarnation: i64,
    tell: oneshot::Sender<End>,
}

/// Lets a stream to an emulator in, or says why not.
pub async fn admit(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    channel: Channel,
) -> Result<(Emulator, Stream)> {
    let emulator = permitted(engine, caller, id, channel).await?;
    if channel.is_of_one_incarnation() && emulator.status() != Status::Running {
        return Err(emulators::invalid_state(emulator.status(), "connected to"));
    }
    let stream = engine.streams.enter(engine, caller, &emulator, channel)?;
    Ok((emulator, stream))
}

/// The emulator, if the caller may open this way into it.
pub(crate) async fn permitted(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    channel: Channel,
) -> Result<Emulator> {
    let emulator = emulators::get(engine, caller, id).await?;
    permissions::require(engine, caller, channel.relation(), &emulator.object())?;
    Ok(emulator)
}

/// Opens a way into a running device.
pub async fn connect(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    channel: Channel,
) -> Result<(Box<dyn ByteStream>, Stream)> {
    let (emulator, stream) = admit(engine, caller, id, channel).await?;
    let device = engine.devices()?.host.open(emulator.id, channel).await.map_err(|error| {
        let detail = "The device does not answer just now. Read its status, and try again.";
        Error::unavailable("device_unreachable", detail).with_cause(error)
    })?;
    Ok((device, stream))
}

/// Ends every stream because the server goes away, lets no more in, and waits until they have ended, but not for longer than the grace.
pub async fn close(engine: &Engine, grace: Duration) {
    let streams = &engine.streams;
    streams.end_all();
    let ended = async {
        loop {
            // Asked for before the look: what ends in between is not missed.
            let empty = streams.empty.notified();
            if streams.state().open == 0 {
                return;
            }
            empty.await;
        }
    };
    if tokio::time::timeout(grace, ended).await.is_err() {
        tracing::warn!("some streams did not end in time and are cut off");
    }
}

impl Streams {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(
        self: &Arc<Self>,
        engine: &Engine,
        caller: &Caller,
        emulator: &Emulator,
        channel: Channel,
    ) -> Result<Stream> {
        let most = engine.devices()?.settings.streams_per_caller;
        let mut state = self.state();
        if state.closing {
            return Err(Error::unavailable("going_away", "The server is stopping. Try again in a moment."));
        }
        let open = state.callers.entry(caller.subject.clone()).or_default();
        if *open >= most {
            let detail = format!(
                "You have {most} streams open, and more are not allowed at once. Close one of them and try again."
            );
            let error = Error::new(Kind::TooMany, "too_many_streams", detail);
            return Err(error.with_retry_after(Duration::from_secs(1)));
        }
        *open += 1;
        state.open += 1;
        state.last += 1;
        let key = (emulator.id, state.last);
        let (tell, told) = oneshot::channel();
        let timeout = emulator.idle_timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let watched = state.emulators.entry(emulator.id).or_insert_with(|| Watched {
            streams: Vec::new(),
            // A third, so that one that fails is made up for.
            noted_every: timeout.map(|seconds| (Duration::from_secs(seconds) / 3).min(NOTED_EVERY)),
            noted_at: None,
        });
        watched.streams.push(Entry {
            number: key.1,
            caller: Caller { once: None, ..caller.clone() },
            channel,
            incarnation: emulator.incarnation,
            tell,
        });
        if let Some(at) = caller.credential.expires_at {
            state.expiries.insert((at, key.1), emulator.id);
        }
        state.fresh.insert(emulator.id);
        if !state.followed {
            state.followed = true;
            tokio::spawn(follow(engine.clone()));
        }
        drop(state);
        self.news.notify_one();
        metrics::gauge!("paddock_streams_open", "channel" => channel.name()).increment(1.0);
        let streams = self.clone();
        Ok(Stream { streams, key, subject: caller.subject.clone(), channel, told, end: None })
    }

    fn forget(&self, stream: &Stream) {
        metrics::gauge!("paddock_streams_open", "channel" => stream.channel.name()).decrement(1.0);
        let mut state = self.state();
        state.take(stream.key);
        if let Some(open) = state.callers.get_mut(&stream.subject) {
            *open -= 1;
            if *open == 0 {
                state.callers.remove(&stream.subject);
            }
        }
        state.open -= 1;
        let empty = state.open == 0;
        drop(state);
        if empty {
            self.empty.notify_waiters();
            self.news.notify_one();
        }
    }

    fn end_all(&self) {
        let mut state = self.state();
        state.closing = true;
        let all: Vec<Key> = state.keys().collect();
        for key in all {
            state.end(key, End::ServerGoingAway);
        }
    }

    /// Ends those whose credentials are over.
    fn end_expired(&self, now: Timestamp) {
        let mut state = self.state();
        while let Some((&(at, number), &emulator)) = state.expiries.first_key_value()
            && at <= now
        {
            state.expiries.remove(&(at, number));
            state.end((emulator, number), End::CredentialExpired);
        }
    }

    /// Ends those whose callers have lost the right, of the streams that came after this number. Decided in memory, in parts so
    /// that nobody waits long for the lock.
    fn end_forbidden(&self, engine: &Engine, emulators: &[EmulatorId], after: u64) {
        for part in emulators.chunks(BATCH) {
            let mut state = self.state();
            let lost: Vec<Key> = part
                .iter()
                .filter_map(|id| Some((id, state.emulators.get(id)?)))
                .flat_map(|(id, watched)| watched.streams.iter().map(move |entry| (*id, entry)))
                .filter(|(id, entry)| entry.number > after && !entry.is_permitted(engine, *id))
                .map(|(id, entry)| (id, entry.number))
                .collect();
            for key in lost {
                state.end(key, End::PermissionLost);
            }
        }
    }

    /// Ends those to devices that are gone or have been started anew.
    fn end_outlived(&self, looked_at: &[EmulatorId], standings: &[Standing]) {
        let standings: HashMap<EmulatorId, &Standing> =
            standings.iter().map(|standing| (standing.id, standing)).collect();
        let mut state = self.state();
        let mut over = Vec::new();
        for id in looked_at {
            let standing = standings.get(id).copied();
            for entry in state.emulators.get(id).map_or(&[][..], |watched| &watched.streams) {
                if let Some(end) = verdict(entry.channel, entry.incarnation, standing) {
                    over.push(((*id, entry.number), end));
                }
            }
        }
        for (key, end) in over {
            state.end(key, end);
        }
    }

    /// Those whose use is to be written down by now; they count as noted.
    fn used(&self, now: Timestamp) -> Vec<EmulatorId> {
        let mut state = self.state();
        let due = |watched: &Watched| watched.due_at().is_some_and(|at| at.is_none_or(|at| at <= now));
        let due = state.emulators.iter_mut().filter(|(_, watched)| due(watched));
        due.map(|(id, watched)| {
            watched.noted_at = Some(now);
            *id
        })
        .collect()
    }

    /// How long nothing is due that time alone brings.
    fn pause(&self, now: Timestamp) -> Duration {
        let state = self.state();
        let expiry = state.expiries.first_key_value().map(|((at, _), _)| *at);
        let uses = state.emulators.values().filter_map(Watched::due_at);
        let next = uses.map(|at| at.unwrap_or(now)).chain(expiry).min();
        let until = next.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        until.unwrap_or(CHECKED_EVERY).min(CHECKED_EVERY)
    }

    /// Whether nobody is left to look after; then the next one to come starts another task.
    fn retires(&self) -> bool {
        let mut state = self.state();
        state.followed = !state.emulators.is_empty();
        !state.followed
    }
}

impl State {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let watched = self.emulators.iter();
        watched.flat_map(|(id, watched)| watched.streams.iter().map(|entry| (*id, entry.number)))
    }

    fn take(&mut self, (emulator, number): Key) -> Option<Entry> {
        let watched = self.emulators.get_mut(&emulator)?;
        let place = watched.streams.iter().position(|entry| entry.number == number)?;
        let entry = watched.streams.swap_remove(place);
        if watched.streams.is_empty() {
            self.emulators.remove(&emulator);
        }
        if let Some(at) = entry.caller.credential.expires_at {
            self.expiries.remove(&(at, number));
        }
        Some(entry)
    }

    fn end(&mut self, key: Key, end: End) {
        let Some(entry) = self.take(key) else { return };
        let labels = [("channel", entry.channel.name()), ("reason", end.name())];
        metrics::counter!("paddock_streams_ended_total", &labels).increment(1);
        // Its holder may be closing it by itself.
        let _ = entry.tell.send(end);
    }
}

impl Watched {
    /// When its use is to be written down, if it is at all; none for at once.
    fn due_at(&self) -> Option<Option<Timestamp>> {
        self.noted_every.map(|every| self.noted_at.map(|at| at + every))
    }
}

impl Entry {
    fn is_permitted(&self, engine: &Engine, emulator: EmulatorId) -> bool {
        let (caller, relation) = (&self.caller, self.channel.relation().name());
        permissions::is_active(engine, &caller.subject)
            && permissions::decide(engine, caller, relation, &emulator.object().thing()) == Decision::Allowed
    }
}

/// Looks after the streams for as long as there are any.
async fn follow(engine: Engine) {
    let streams = engine.streams.clone();
    let mut devices = engine.store.watch(&["emulators"]);
    let mut rights = engine.permissions.revisions();
    let (mut devices_changed, mut rights_changed) = (false, false);
    let mut checked_at = engine.clock.elapsed();
    let mut rest = GATHERED;
    let mut looked_at = 0;
    loop {
        tokio::select! {
            () = engine.clock.sleep(streams.pause(engine.now())) => {}
            () = devices.changed() => devices_changed = true,
            _ = rights.changed() => rights_changed = true,
            () = streams.news.notified() => {}
        }
        tokio::time::sleep(rest).await;
        if streams.retires() {
            return;
        }
        let started = Instant::now();
        if engine.clock.elapsed().saturating_sub(checked_at) >= CHECKED_EVERY {
            (devices_changed, rights_changed) = (true, true);
        }
        if devices_changed && rights_changed {
            checked_at = engine.clock.elapsed();
        }
        if devices_changed {
            // What changes from here on wakes the next look.
            devices.forget();
        }
        streams.end_expired(engine.now());
        let (all, fresh, last) = {
            let mut state = streams.state();
            let fresh: Vec<_> = std::mem::take(&mut state.fresh).into_iter().collect();
            (state.emulators.keys().copied().collect::<Vec<_>>(), fresh, state.last)
        };
        // Without news of rights only newcomers need a look: a thousand to one emulator must not cost each other a thousand.
        if rights_changed {
            streams.end_forbidden(&engine, &all, 0);
        } else {
            streams.end_forbidden(&engine, &fresh, looked_at);
        }
        (rights_changed, looked_at) = (false, last);
        let looked = look(&engine, if devices_changed { &all } else { &fresh }).await;
        devices_changed = looked.is_err();
        rest = (started.elapsed() * RESTS).clamp(GATHERED, LONGEST_REST);
        if let Err(error) = looked {
            tracing::warn!(%error, "could not look at devices with open streams; in a moment again");
            rest = LONGEST_REST;
            streams.news.notify_one();
        }
        if let Err(error) = note_use(&engine).await {
            tracing::warn!(%error, "could not write down that devices are in use; later again");
        }
    }
}

async fn look(engine: &Engine, emulators: &[EmulatorId]) -> Result<()> {
    for part in emulators.chunks(BATCH) {
        let standings = rows::standings(&mut engine.store.read().await?, part).await?;
        engine.streams.end_outlived(part, &standings);
    }
    Ok(())
}

/// An open stream is use: the idle time-out begins when the last one ends.
async fn note_use(engine: &Engine) -> Result<()> {
    let now = engine.now();
    for part in engine.streams.used(now).chunks(WRITTEN_AT_ONCE) {
        let mut tx = engine.store.begin().await?;
        for id in part {
            rows::record_use(&mut tx, *id, now).await?;
        }
        engine.commit(tx).await?;
    }
    Ok(())
}
