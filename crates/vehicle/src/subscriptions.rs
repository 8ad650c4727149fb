//! Subscriptions: who wants to be told of which properties, how often, and the telling.
//!
//! They belong to a client, and all its streams share them. A client that has never asked for anything in particular is told of every
//! change and of whatever is sampled for others: clients of Android 14 know no other way.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus};
use prost::Message as _;

use crate::proto;
use crate::rings::{Reader, Ring, begin_frame};
use crate::values::{self, Key, Raw};

const MOST_CLIENTS: usize = 256;
/// Of one client.
const MOST_SUBSCRIPTIONS: usize = 2048;
/// Of all clients.
const MOST_STREAMS: usize = 4096;

/// Who subscribes: an opaque name, the same for everything that one caller opens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName(Arc<str>);

impl ClientName {
    pub fn new(name: &str) -> Self {
        ClientName(name.into())
    }

    /// The device inside the car.
    pub fn guest() -> Self {
        ClientName::new("guest")
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a client wants to be told of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// Nanoseconds between two samples; none where changes are told when they happen.
    pub period: Option<i64>,
    pub resolution: f32,
    /// Samples that equal the one before are left out.
    pub only_changes: bool,
}

/// There are as many as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    Clients,
    Subscriptions,
    Streams,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Clients => {
                write!(f, "{MOST_CLIENTS} clients watch this car; end the streams of one of them")
            }
            Full::Subscriptions => {
                write!(f, "a client has at most {MOST_SUBSCRIPTIONS} subscriptions; give some of them up")
            }
            Full::Streams => write!(f, "{MOST_STREAMS} streams of this car are open; end some of them"),
        }
    }
}

/// Why a value is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// It is another value than before.
    Change,
    /// Somebody wants it told, whether it has changed or not.
    Injection,
    /// The time of these has come.
    Sample(Vec<ClientName>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub key: Key,
    pub value: Raw,
    pub status: PropertyStatus,
    pub timestamp: i64,
    /// Told at a rate, not when it changes.
    pub continuous: bool,
    pub cause: Cause,
}

impl Event {
    /// As one element of a batch, so that a batch is a row of these.
    fn element(&self, value: Raw) -> Vec<u8> {
        let value = values::on_the_wire(self.key, value, self.status, self.timestamp);
        proto::VehiclePropValues { values: vec![value] }.encode_to_vec()
    }

    fn is_for_everyone(&self) -> bool {
        !(self.continuous && self.cause == Cause::Change)
    }
}

#[derive(Default)]
pub struct Subscribers {
    clients: HashMap<ClientName, Client>,
    /// Everything that is to be sampled, by how often.
    rates: BTreeMap<(Key, i64), Rate>,
    due: BTreeSet<(i64, Key, i64)>,
    streams: usize,
    /// Counts what clients do, to know who has been idle longest.
    turn: u64,
    closed: bool,
}

#[derive(Default)]
struct Client {
    /// It has said what it wants, and is told nothing else.
    chooses: bool,
    wishes: BTreeMap<Key, (Wish, Option<(Raw, PropertyStatus)>)>,
    streams: usize,
    ring: Option<Arc<Ring>>,
    last_turn: u64,
}

struct Rate {
    due: i64,
    clients: BTreeSet<ClientName>,
}

impl Subscribers {
    pub fn open(&mut self, name: &ClientName) -> Result<Reader, Full> {
        if self.streams >= MOST_STREAMS {
            return Err(Full::Streams);
        }
        let closed = self.closed;
        let client = self.client(name)?;
        client.streams += 1;
        let ring = client.ring.get_or_insert_with(Ring::new);
        let reader = ring.reader();
        if closed {
            ring.close();
        }
        self.streams += 1;
        Ok(reader)
    }

    /// One stream of the client has ended; its wishes stay.
    pub fn closed(&mut self, name: &ClientName) {
        self.streams = self.streams.saturating_sub(1);
        let Some(client) = self.clients.get_mut(name) else { return };
        client.streams = client.streams.saturating_sub(1);
        if client.streams == 0 {
            client.ring = None;
            if !client.chooses && client.wishes.is_empty() {
                self.clients.remove(name);
            }
        }
    }

    /// Every stream ends, also those that are opened later.
    pub fn end(&mut self) {
        self.closed = true;
        for ring in self.clients.values().filter_map(|client| client.ring.as_ref()) {
            ring.close();
        }
    }

    pub fn streams(&self) -> usize {
        self.streams
    }

    fn client(&mut self, name: &ClientName) -> Result<&mut Client, Full> {
        if !self.clients.contains_key(name) && self.clients.len() >= MOST_CLIENTS {
            let guest = ClientName::guest();
            let idle = self.clients.iter().filter(|(name, client)| client.streams == 0 && **name != guest);
            let oldest = idle.min_by_key(|(_, client)| client.last_turn).map(|(name, _)| name.clone());
            self.forget(&oldest.ok_or(Full::Clients)?);
        }
        self.turn += 1;
        let client = self.clients.entry(name.clone()).or_default();
        client.last_turn = self.turn;
        Ok(client)
    }

    fn forget(&mut self, name: &ClientName) {
        let Some(client) = self.clients.remove(name) else { return };
        for (key, (wish, _)) in client.wishes {
            self.unschedule(name, key, wish.period);
        }
    }

    /// The client says what it wants, and is told nothing else from now on.
    pub fn choose(&mut self, name: &ClientName) -> Result<(), Full> {
        self.client(name)?.chooses = true;
        Ok(())
    }

    pub fn wish(&mut self, name: &ClientName, keys: &[Key], wish: Wish, now: i64) -> Result<(), Full> {
        let client = self.client(name)?;
        let new = keys.iter().filter(|key| !client.wishes.contains_key(key)).count();
        if client.wishes.len() + new > MOST_SUBSCRIPTIONS {
            return Err(Full::Subscriptions);
        }
        let before: Vec<_> =
            keys.iter().map(|key| (*key, client.wishes.insert(*key, (wish, None)))).collect();
        for (key, before) in before {
            self.unschedule(name, key, before.and_then(|(before, _)| before.period));
            if let Some(period) = wish.period {
                let due = next_multiple(now, period);
                let rate = self.rates.entry((key, period)).or_insert(Rate { due, clients: BTreeSet::new() });
                rate.clients.insert(name.clone());
                self.due.insert((rate.due, key, period));
            }
        }
        Ok(())
    }

    pub fn give_up(&mut self, name: &ClientName, key: Key) {
        let Some(client) = self.clients.get_mut(name) else { return };
        if let Some((wish, _)) = client.wishes.remove(&key) {
            self.unschedule(name, key, wish.period);
        }
    }

    fn unschedule(&mut self, name: &ClientName, key: Key, period: Option<i64>) {
        let Some(period) = period else { return };
        let Some(rate) = self.rates.get_mut(&(key, period)) else { return };
        rate.clients.remove(name);
        if rate.clients.is_empty() {
            self.due.remove(&(rate.due, key, period));
            self.rates.remove(&(key, period));
        }
    }

    pub fn wished(&self, name: &ClientName, key: Key) -> Option<Wish> {
        self.clients.get(name)?.wishes.get(&key).map(|(wish, _)| *wish)
    }

    /// Whether the client chooses, and what it wishes.
    pub fn of(&self, name: &ClientName) -> (bool, Vec<(Key, Wish)>) {
        self.clients.get(name).map_or_else(Default::default, |client| {
            (client.chooses, client.wishes.iter().map(|(key, (wish, _))| (*key, *wish)).collect())
        })
    }

    /// When something is to be sampled next; never while nobody would be told.
    pub fn next_due(&self, watched: bool) -> Option<i64> {
        (self.streams > 0 || watched).then(|| self.due.first().map(|(due, ..)| *due)).flatten()
    }

    /// What is to be sampled now, and for whom. What was missed is not made up for.
    pub fn take_due(&mut self, now: i64) -> BTreeMap<Key, Vec<ClientName>> {
        let mut taken: BTreeMap<Key, Vec<ClientName>> = BTreeMap::new();
        while let Some(&(due, key, period)) = self.due.first()
            && due <= now
        {
            self.due.pop_first();
            if let Some(rate) = self.rates.get_mut(&(key, period)) {
                rate.due = next_multiple(now, period);
                self.due.insert((rate.due, key, period));
                taken.entry(key).or_default().extend(rate.clients.iter().cloned());
            }
        }
        taken
    }

    /// Tells everyone what is for them, each in one batch; what is the same for several is made once.
    pub fn tell(&mut self, events: &[Event]) {
        if self.streams == 0 || events.is_empty() {
            return;
        }
        let elements: Vec<OnceCell<Vec<u8>>> = events.iter().map(|_| OnceCell::new()).collect();
        let mut for_everyone: Option<Bytes> = None;
        for (name, client) in &mut self.clients {
            let Some(ring) = &client.ring else { continue };
            if !client.chooses {
                let batch = for_everyone.get_or_insert_with(|| {
                    let chosen = events.iter().zip(&elements).filter(|(event, _)| event.is_for_everyone());
                    batch(chosen.map(|(event, element)| {
                        element.get_or_init(|| event.element(event.value.clone())).as_slice()
                    }))
                });
                if batch.len() > EMPTY {
                    ring.push(batch.clone());
                }
                continue;
            }
            let mut own = Vec::new();
            for (event, element) in events.iter().zip(&elements) {
                let Some((wish, last)) = client.wishes.get_mut(&event.key) else { continue };
                match &event.cause {
                    Cause::Change if event.continuous => continue,
                    Cause::Change | Cause::Injection => {}
                    Cause::Sample(clients) if !clients.contains(name) => continue,
                    Cause::Sample(_) if wish.resolution == 0.0 && !wish.only_changes => {}
                    Cause::Sample(_) => {
                        let value = values::rounded(&event.value, wish.resolution);
                        let now = Some((value, event.status));
                        if wish.only_changes && *last == now {
                            continue;
                        }
                        if let Some((value, _)) = &now {
                            own.extend(event.element(value.clone()));
                        }
                        *last = now;
                        continue;
                    }
                }
                own.extend_from_slice(element.get_or_init(|| event.element(event.value.clone())));
            }
            if !own.is_empty() {
                ring.push(batch([own.as_slice()].into_iter()));
            }
        }
    }

    /// For people.
    pub fn describe(&self, label: impl Fn(PropertyId) -> String) -> String {
        let mut text = format!("{} streams\n", self.streams);
        let clients: BTreeMap<_, _> = self.clients.iter().collect();
        for (name, client) in clients {
            let all = if client.chooses { "" } else { ", told of everything" };
            let _ = writeln!(text, "{name}: {} streams{all}", client.streams);
            for ((property, AreaId(area)), (wish, _)) in &client.wishes {
                let _ = write!(text, "  {} area {area:#x}", label(*property));
                if let Some(period) = wish.period {
                    let _ = write!(text, " {} Hz", 1e9 / period as f64);
                }
                if wish.resolution > 0.0 {
                    let _ = write!(text, " resolution {}", wish.resolution);
                }
                text.push_str(if wish.only_changes { " only changes\n" } else { "\n" });
            }
        }
        text
    }
}

/// A batch without any element is its frame alone.
const EMPTY: usize = 5;

fn batch<'a>(elements: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let mut frame = begin_frame(elements.clone().map(<[u8]>::len).sum());
    elements.for_each(|element| frame.extend_from_slice(element));
    frame.freeze()
}

/// Rates meet at the multiples of their periods, so that one sample serves several.
fn next_multiple(now: i64, period: i64) -> i64 {
    (now / period + 1) * period
}
