//! The car: what its properties are, who may be told, and what time it is there.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use paddock_model::ports::Clock;
use paddock_model::vehicles::{
    Access, AreaId, ChangeMode, Property, PropertyArea, PropertyId, PropertyStatus, TraceId, VehicleOrder,
    VehicleState,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::catalogue::{Catalogue, Entry};
use crate::journal::{ClockMark, Footing, Journal, Kept, Record, Told};
use crate::proto::{
    PropIdAreaId, StatusCode, SubscribeOptions, SupportedValuesChange, VehiclePropConfig, VehiclePropValue,
    VehiclePropertyAccess, VehiclePropertyChangeMode,
};
use crate::rings::{self, Ended, Reader, Ring};
use crate::state;
use crate::subscriptions::{Cause, ClientName, Event, Full, Subscribers, Wish};
use crate::time::{Time, nanos};
use crate::values::{self, Key, Limits, Raw};

pub const INFO_VIN: PropertyId = PropertyId(0x1110_0100);
const HVAC_POWER_ON: PropertyId = PropertyId(0x1520_0510);

/// Why a value was not taken or not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: StatusCode,
    /// For people.
    pub message: String,
}

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

/// Hears everything that is told of a car.
pub trait Listener: Send {
    /// False when it wants to hear no more.
    fn hear(&mut self, now: Duration, events: &[Event]) -> bool;
}

pub struct Vehicle {
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Something may be due earlier than it was.
    wake: Arc<Notify>,
    limits_changes: Arc<Ring>,
    sampler: Mutex<Option<AbortHandle>>,
}

struct Inner {
    vin: Option<String>,
    footing: i64,
    previous: Option<i64>,
    cells: BTreeMap<Key, Cell>,
    limits: BTreeMap<Key, Limits>,
    /// The car that it may go back to.
    aside: BTreeMap<i64, Footing>,
    time: Time,
    subscribers: Subscribers,
    journal: Option<Journal>,
    listeners: Vec<(TraceId, Box<dyn Listener>)>,
    saved: BTreeMap<Key, Told>,
    closed: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Cell {
    told: Told,
    timestamp: i64,
}

/// What a car's streams say, for one client.
pub struct Stream {
    reader: Reader,
    vehicle: Arc<Vehicle>,
    client: Option<ClientName>,
}

impl Stream {
    /// The next batch, framed as gRPC wants it.
    pub async fn next(&mut self) -> Result<Bytes, Ended> {
        self.reader.next().await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            self.vehicle.lock().subscribers.closed(client);
        }
    }
}

impl Vehicle {
    /// A car that nobody remembers; for tests and measurements. Needs a runtime around it, as every car does.
    pub fn in_memory(catalogue: Arc<Catalogue>, clock: Arc<dyn Clock>, vin: Option<String>) -> Arc<Vehicle> {
        Vehicle::build(catalogue, clock, vin, 0, None, Kept::default(), None)
    }

    /// The car whose journal lies in a folder, standing as ordered.
    pub(crate) fn open(
        folder: &Path,
        catalogue: Arc<Catalogue>,
        clock: Arc<dyn Clock>,
        order: &VehicleOrder,
    ) -> io::Result<Arc<Vehicle>> {
        let mark = Arc::new(ClockMark::open(folder)?);
        let mut kept = Journal::read(folder)?.unwrap_or_default();
        if !kept.footings.contains_key(&order.footing)
            && let Some(begins_with) = &order.begins_with
        {
            let (footing, late) = state::read(&catalogue, begins_with);
            kept.footings.insert(order.footing, footing);
            mark.write(late)?;
        }
        kept.footings.retain(|number, _| *number == order.footing || Some(*number) == order.previous);
        let vehicle = Vehicle::build(
            catalogue,
            clock,
            order.identity.vin.clone(),
            order.footing,
            order.previous,
            kept,
            Some(mark),
        );
        {
            let mut inner = vehicle.lock();
            inner.journal = Some(Journal::begin(folder, &inner.kept())?);
            // Before anybody is told a time.
            inner.time.next(&*vehicle.clock)?;
        }
        Ok(vehicle)
    }

    fn build(
        catalogue: Arc<Catalogue>,
        clock: Arc<dyn Clock>,
        vin: Option<String>,
        footing: i64,
        previous: Option<i64>,
        mut kept: Kept,
        mark: Option<Arc<ClockMark>>,
    ) -> Arc<Vehicle> {
        let now = nanos(clock.elapsed());
        let mut subscribers = Subscribers::default();
        let guest = ClientName::guest();
        if kept.chooses {
            // One client more is always possible here, and so many wishes were possible before.
            let _ = subscribers.choose(&guest);
        }
        for (key, wish) in std::mem::take(&mut kept.wishes) {
            let _ = subscribers.wish(&guest, &[key], wish, now);
        }
        let current = kept.footings.remove(&footing).unwrap_or_default();
        let mut inner = Inner {
            vin,
            footing,
            previous,
            cells: BTreeMap::new(),
            limits: current.limits,
            aside: kept.footings,
            time: Time::after(mark, &*clock),
            subscribers,
            journal: None,
            listeners: Vec::new(),
            saved: BTreeMap::new(),
            closed: false,
        };
        inner.cells = inner.filled(&catalogue, current.values, inner.time.last());
        let wake = Arc::new(Notify::new());
        let vehicle = Arc::new(Vehicle {
            catalogue,
            clock: clock.clone(),
            inner: Mutex::new(inner),
            wake: wake.clone(),
            limits_changes: Ring::new(),
            sampler: Mutex::new(None),
        });
        let task = tokio::spawn(keep_sampling(Arc::downgrade(&vehicle), wake, clock));
        *vehicle.sampler.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
        vehicle
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// The last that is heard of this car here: every stream ends, and nothing is taken any more.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.journal = None;
        inner.listeners.clear();
        inner.subscribers.end();
        drop(inner);
        self.limits_changes.close();
        if let Some(sampler) = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).take() {
            sampler.abort();
        }
    }

    fn entry(&self, (property, area): Key) -> Result<&Entry, Refusal> {
        let entry = self.catalogue.entry(property).ok_or_else(|| {
            Refusal::new(StatusCode::InvalidArg, format!("this car has no property {:#x}", property.0))
        })?;
        if entry.area(area).is_none() {
            let label = self.catalogue.label(property);
            return Err(Refusal::new(StatusCode::InvalidArg, format!("{label} has no area {:#x}", area.0)));
        }
        Ok(entry)
    }

    // What Android asks.

    pub fn configs(&self) -> Vec<VehiclePropConfig> {
        let inner = self.lock();
        let entries = self.catalogue.entries().map(|(id, entry)| inner.config(id, entry));
        entries.collect()
    }

    pub fn get(&self, key: Key) -> Result<VehiclePropValue, Refusal> {
        let inner = self.lock();
        self.entry(key)?;
        inner.available(&self.catalogue, key)?;
        let cell = inner.cells.get(&key);
        let value = cell.and_then(|cell| Some((cell.told.value.clone()?, cell.told.status, cell.timestamp)));
        let Some((value, status, timestamp)) = value else {
            let label = self.catalogue.label(key.0);
            return Err(Refusal::new(StatusCode::NotAvailable, format!("{label} has not been set yet")));
        };
        Ok(values::on_the_wire(key, value, status, timestamp))
    }

    /// Sets several values, each for itself, and tells of those that changed in one batch.
    pub fn set(&self, wanted: Vec<(Key, Raw, PropertyStatus)>) -> Vec<Result<(), Refusal>> {
        let told = wanted.into_iter().map(|(key, value, status)| (key, Some(value), status)).collect();
        self.tell(told, false)
    }

    /// As [`Vehicle::set`], but tells also of what has not changed.
    pub fn inject(&self, key: Key, value: Raw, status: PropertyStatus) -> Result<(), Refusal> {
        self.tell(vec![(key, Some(value), status)], true).pop().unwrap_or(Ok(()))
    }

    /// What people set: a value of none leaves the value as it is.
    pub(crate) fn tell(
        &self,
        wanted: Vec<(Key, Option<Raw>, PropertyStatus)>,
        inject: bool,
    ) -> Vec<Result<(), Refusal>> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let (mut results, mut records, mut events, mut before) =
            (Vec::with_capacity(wanted.len()), Vec::new(), Vec::new(), Vec::new());
        for (key, value, status) in wanted {
            let result = self.tell_one(inner, key, value, status);
            results.push(result.map(|(old, entry)| {
                let cell = inner.cells.get(&key).cloned().unwrap_or_default();
                let changed = old.told != cell.told;
                if changed {
                    records.push(Record::set(key, &cell.told));
                    before.push((results.len(), key, old));
                }
                if let (true, Some(value)) = (changed || inject, cell.told.value) {
                    let cause = if inject { Cause::Injection } else { Cause::Change };
                    let continuous = entry.config.change_mode() == VehiclePropertyChangeMode::Continuous;
                    let (status, timestamp) = (cell.told.status, cell.timestamp);
                    events.push(Event { key, value, status, timestamp, continuous, cause });
                }
            }));
        }
        if let Err(error) = inner.write(&records) {
            tracing::error!(%error, "what a car was told could not be written down");
            for (index, key, old) in before.into_iter().rev() {
                let timestamp = inner.time.last();
                inner.cells.insert(key, Cell { timestamp, ..old });
                results[index] = Err(Refusal::new(
                    StatusCode::InternalError,
                    "it could not be written down; see the server's log",
                ));
            }
            return results;
        }
        inner.spread(&*self.clock, &events);
        if inner.time.reservation().is_some() {
            self.wake.notify_one();
        }
        results
    }

    /// What was there before, if it may be replaced.
    fn tell_one(
        &self,
        inner: &mut Inner,
        key: Key,
        value: Option<Raw>,
        status: PropertyStatus,
    ) -> Result<(Cell, &Entry), Refusal> {
        if inner.closed {
            return Err(Refusal::new(
                StatusCode::TryAgain,
                "the car is about to be held by another process; try again",
            ));
        }
        let entry = self.entry(key)?;
        let label = || self.catalogue.label(key.0);
        let value = match value {
            None => None,
            Some(value) => {
                let wrong = |problem| Refusal::new(StatusCode::InvalidArg, format!("{} {problem}", label()));
                let value = values::shaped(entry.kind, &entry.config.config_array, value).map_err(wrong)?;
                let limits = inner.limits(key, entry);
                values::in_range(entry.kind, &limits, &value).map_err(wrong)?;
                Some(value)
            }
        };
        inner.available(&self.catalogue, key)?;
        let old = inner.cells.get(&key).cloned().unwrap_or_default();
        if key.0 == INFO_VIN && value.as_ref().is_some_and(|value| old.told.value.as_ref() != Some(value)) {
            // Two cars never share it, so nobody chooses it here.
            let message = "the vehicle's number belongs to the emulator; it cannot be set";
            return Err(Refusal::new(StatusCode::AccessDenied, message));
        }
        let timestamp = inner.time.next(&*self.clock).map_err(|error| {
            tracing::error!(%error, "a car's clock could not be written down");
            Refusal::new(
                StatusCode::InternalError,
                "the car's clock could not be written down; see the server's log",
            )
        })?;
        let told = Told { value: value.or_else(|| old.told.value.clone()), status };
        inner.cells.insert(key, Cell { told, timestamp });
        Ok((old, entry))
    }

    pub fn subscribe(&self, client: &ClientName, options: &SubscribeOptions) -> Result<StatusCode, Full> {
        let property = PropertyId(options.prop_id);
        let Some(entry) = self.catalogue.entry(property) else { return Ok(StatusCode::InvalidArg) };
        let areas: Vec<AreaId> = if options.area_ids.is_empty() {
            entry.config.area_configs.iter().map(|area| AreaId(area.area_id)).collect()
        } else {
            options.area_ids.iter().map(|area| AreaId(*area)).collect()
        };
        if areas.iter().any(|area| entry.area(*area).is_none()) {
            return Ok(StatusCode::InvalidArg);
        }
        let continuous = entry.config.change_mode() == VehiclePropertyChangeMode::Continuous;
        let period = if continuous { period(&entry.config, options.sample_rate) } else { None };
        if continuous && (period.is_none() || options.resolution.is_nan() || options.resolution < 0.0) {
            return Ok(StatusCode::InvalidArg);
        }
        let mut inner = self.lock();
        let guest = *client == ClientName::guest();
        let mut records = Vec::new();
        if guest && !inner.subscribers.of(client).0 {
            records.push(Record::chooses());
        }
        inner.subscribers.choose(client)?;
        if entry.config.change_mode() != VehiclePropertyChangeMode::Static {
            for area in areas {
                let key = (property, area);
                let may_vary = entry.area(area).is_some_and(|area| area.support_variable_update_rate);
                let wish = Wish {
                    period,
                    resolution: if continuous { options.resolution } else { 0.0 },
                    only_changes: continuous && options.enable_variable_update_rate && may_vary,
                };
                if guest && inner.subscribers.wished(client, key) != Some(wish) {
                    records.push(Record::wish(key, Some(wish)));
                }
                inner.subscribers.wish(client, &[key], wish, nanos(self.clock.elapsed()))?;
            }
        }
        let written = inner.write(&records);
        drop(inner);
        self.wake.notify_one();
        Ok(said(written))
    }

    pub fn unsubscribe(&self, client: &ClientName, key: Key) -> Result<StatusCode, Full> {
        if self.entry(key).is_err() {
            return Ok(StatusCode::InvalidArg);
        }
        let mut inner = self.lock();
        let mut records = Vec::new();
        if *client == ClientName::guest() {
            if !inner.subscribers.of(client).0 {
                records.push(Record::chooses());
            }
            records.push(Record::wish(key, None));
        }
        inner.subscribers.choose(client)?;
        inner.subscribers.give_up(client, key);
        let written = inner.write(&records);
        Ok(said(written))
    }

    /// How clients of Android 14 ask for samples; a rate of 0 ends them.
    pub fn update_sample_rate(&self, client: &ClientName, key: Key, rate: f32) -> Result<StatusCode, Full> {
        let Ok(entry) = self.entry(key) else { return Ok(StatusCode::InvalidArg) };
        if rate.is_nan() || rate < 0.0 {
            return Ok(StatusCode::InvalidArg);
        }
        if entry.config.change_mode() != VehiclePropertyChangeMode::Continuous {
            return Ok(StatusCode::Ok);
        }
        let mut inner = self.lock();
        let before = inner.subscribers.wished(client, key);
        let wish = period(&entry.config, rate).map(|period| Wish {
            period: Some(period),
            resolution: before.map_or(0.0, |before| before.resolution),
            only_changes: before.is_some_and(|before| before.only_changes),
        });
        match wish {
            Some(wish) => inner.subscribers.wish(client, &[key], wish, nanos(self.clock.elapsed()))?,
            None => inner.subscribers.give_up(client, key),
        }
        let mut written = Ok(());
        if *client == ClientName::guest() && before != wish {
            written = inner.write(&[Record::wish(key, wish)]);
        }
        drop(inner);
        self.wake.notify_one();
        Ok(said(written))
    }

    /// What the client is told from now on.
    pub fn stream(self: &Arc<Vehicle>, client: &ClientName) -> Result<Stream, Full> {
        let reader = self.lock().subscribers.open(client)?;
        self.wake.notify_one();
        Ok(Stream { reader, vehicle: self.clone(), client: Some(client.clone()) })
    }

    pub fn streams(&self) -> usize {
        self.lock().subscribers.streams()
    }

    /// Tells whenever a property's limits change.
    pub fn limits_stream(self: &Arc<Vehicle>) -> Stream {
        Stream { reader: self.limits_changes.reader(), vehicle: self.clone(), client: None }
    }

    pub fn limits(&self, key: Key) -> Result<Limits, Refusal> {
        let entry = self.entry(key)?;
        Ok(self.lock().limits(key, entry))
    }

    pub fn set_limits(&self, key: Key, limits: Limits) -> Result<(), Refusal> {
        let entry = self.entry(key)?;
        let config = &entry.config.config_array;
        let shaped = |raw: Raw| {
            let wrong = |problem| Refusal::new(StatusCode::InvalidArg, problem);
            values::shaped(entry.kind, config, raw).map_err(wrong)
        };
        let limits = Limits {
            min: limits.min.map(shaped).transpose()?,
            max: limits.max.map(shaped).transpose()?,
            supported: limits.supported.into_iter().map(shaped).collect::<Result<_, _>>()?,
        };
        if let (Some(min), Some(_)) = (&limits.min, &limits.max)
            && let Err(problem) = values::in_range(entry.kind, &Limits { min: None, ..limits.clone() }, min)
        {
            return Err(Refusal::new(
                StatusCode::InvalidArg,
                format!("the least is above the most: {problem}"),
            ));
        }
        let mut inner = self.lock();
        inner.write(&[Record::limits(key, &limits)]).map_err(|error| {
            tracing::error!(%error, "a car's limits could not be written down");
            Refusal::new(StatusCode::InternalError, "it could not be written down; see the server's log")
        })?;
        inner.limits.insert(key, limits);
        drop(inner);
        let changed = PropIdAreaId { prop_id: key.0.0, area_id: key.1.0 };
        self.limits_changes.push(rings::frame(&SupportedValuesChange { prop_id_area_ids: vec![changed] }));
        Ok(())
    }

    /// Remembers a value for [`Vehicle::restore_value`], as long as the process lives.
    pub fn save_value(&self, key: Key) -> Result<(), Refusal> {
        self.entry(key)?;
        let mut inner = self.lock();
        let told = inner.cells.get(&key).map(|cell| cell.told.clone()).unwrap_or_default();
        inner.saved.insert(key, told);
        Ok(())
    }

    pub fn restore_value(&self, key: Key) -> Result<(), Refusal> {
        let saved = self.lock().saved.remove(&key);
        let Some(Told { value: Some(value), status }) = saved else {
            return Err(Refusal::new(StatusCode::InvalidArg, "no value was saved; use --save-prop first"));
        };
        self.set(vec![(key, value, status)]).pop().unwrap_or(Ok(()))
    }

    pub fn describe_subscriptions(&self) -> String {
        self.lock().subscribers.describe(|property| self.catalogue.label(property))
    }

    // What the garage asks.

    pub(crate) fn listen(&self, trace: TraceId, listener: Box<dyn Listener>) {
        self.lock().listeners.push((trace, listener));
        self.wake.notify_one();
    }

    pub(crate) fn stop_listening(&self, trace: TraceId) {
        self.lock().listeners.retain(|(each, _)| *each != trace);
    }

    /// Whether it stands as ordered already.
    pub(crate) fn stands_as(&self, order: &VehicleOrder) -> bool {
        let inner = self.lock();
        inner.footing == order.footing && inner.previous == order.previous && inner.vin == order.identity.vin
    }

    /// Becomes another car, or the one that it was before; whoever watches is told what has changed by that. True when it became
    /// another one. When this fails it is the car that it was.
    pub(crate) fn become_as(&self, order: &VehicleOrder) -> io::Result<bool> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let other = inner.footing != order.footing;
        let mut kept = inner.kept();
        let footing = match kept.footings.get(&order.footing) {
            Some(footing) => footing.clone(),
            None => order.begins_with.as_ref().map_or_else(Footing::default, |begins_with| {
                let (footing, late) = state::read(&self.catalogue, begins_with);
                inner.time.not_before(late, &*self.clock);
                footing
            }),
        };
        kept.footings.retain(|number, _| Some(*number) == order.previous);
        kept.footings.insert(order.footing, footing.clone());
        kept.current = Some(order.footing);
        let now = inner.time.next(&*self.clock)?;
        if let Some(journal) = &mut inner.journal {
            journal.replace(&kept)?;
        }
        kept.footings.remove(&order.footing);
        (inner.aside, inner.footing, inner.previous) = (kept.footings, order.footing, order.previous);
        inner.vin.clone_from(&order.identity.vin);
        let cells = inner.filled(&self.catalogue, footing.values, now);
        inner.limits = footing.limits;
        let before = std::mem::replace(&mut inner.cells, cells);
        let changed = inner.cells.iter().filter(|(key, cell)| {
            before.get(key).is_none_or(|before| before.told != cell.told) && cell.told.value.is_some()
        });
        let events: Vec<Event> = changed
            .filter_map(|(key, cell)| {
                let entry = self.catalogue.entry(key.0)?;
                Some(Event {
                    key: *key,
                    value: cell.told.value.clone()?,
                    status: cell.told.status,
                    timestamp: cell.timestamp,
                    continuous: entry.config.change_mode() == VehiclePropertyChangeMode::Continuous,
                    cause: Cause::Change,
                })
            })
            .collect();
        inner.spread(&*self.clock, &events);
        Ok(other)
    }

    pub(crate) fn state(&self) -> VehicleState {
        let inner = self.lock();
        state::write(&self.catalogue, &inner.footing_now(), inner.time.now(&*self.clock))
    }

    pub fn properties(&self) -> Vec<Property> {
        let inner = self.lock();
        self.catalogue.entries().map(|(id, entry)| inner.property(id, entry)).collect()
    }

    pub fn property(&self, id: PropertyId) -> Option<Property> {
        let entry = self.catalogue.entry(id)?;
        Some(self.lock().property(id, entry))
    }

    // What time brings.

    /// How long nothing is due; none: until something changes.
    fn rest(&self) -> Option<Duration> {
        let inner = self.lock();
        let due = inner.subscribers.next_due(!inner.listeners.is_empty())?;
        Some(Duration::from_nanos(due.max(0) as u64).saturating_sub(self.clock.elapsed()))
    }

    fn sample(&self) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.subscribers.next_due(!inner.listeners.is_empty()).is_none() {
            return;
        }
        let due = inner.subscribers.take_due(nanos(self.clock.elapsed()));
        if due.is_empty() {
            return;
        }
        let timestamp = match inner.time.next(&*self.clock) {
            Ok(timestamp) => timestamp,
            Err(error) => return tracing::error!(%error, "a car's clock could not be written down"),
        };
        let mut events = Vec::with_capacity(due.len());
        for (key, clients) in due {
            if let Some(cell) = inner.cells.get_mut(&key)
                && let Some(value) = cell.told.value.clone()
            {
                cell.timestamp = timestamp;
                let (status, cause) = (cell.told.status, Cause::Sample(clients));
                events.push(Event { key, value, status, timestamp, continuous: true, cause });
            }
        }
        inner.spread(&*self.clock, &events);
    }
}

impl Drop for Vehicle {
    fn drop(&mut self) {
        self.close();
    }
}

/// The one task of a car: sleeps until something is due, and ends with the car.
async fn keep_sampling(vehicle: Weak<Vehicle>, wake: Arc<Notify>, clock: Arc<dyn Clock>) {
    loop {
        let Some(strong) = vehicle.upgrade() else { return };
        let reservation = strong.lock().time.reservation();
        if let Some((mark, until)) = reservation {
            match tokio::task::spawn_blocking(move || mark.write(until)).await {
                Ok(Ok(written)) => strong.lock().time.reserved(written),
                // Whoever needs the time next tries again, and says so to its caller.
                Ok(Err(error)) => tracing::warn!(%error, "a car's clock could not be written down ahead"),
                Err(_) => return,
            }
        }
        let rest = strong.rest();
        drop(strong);
        match rest {
            None => wake.notified().await,
            Some(rest) => tokio::select! {
                () = wake.notified() => {}
                () = clock.sleep(rest) => {
                    if let Some(strong) = vehicle.upgrade() {
                        strong.sample();
                    }
                }
            },
        }
    }
}

impl Inner {
    /// What a car's cells are: what it was told, otherwise what its maker says, all as of now.
    fn filled(
        &self,
        catalogue: &Catalogue,
        mut told: BTreeMap<Key, Told>,
        timestamp: i64,
    ) -> BTreeMap<Key, Cell> {
        let cell = |(key, entry): (Key, &Entry)| {
            let made = || Told { value: entry.defaults.get(&key.1).cloned(), ..Told::default() };
            let mut told = told.remove(&key).unwrap_or_else(made);
            if key.0 == INFO_VIN {
                let vin = self.vin.clone().map(|vin| Raw { string_value: vin, ..Raw::default() });
                told = Told { value: vin, ..Told::default() };
            }
            (key, Cell { told, timestamp })
        };
        catalogue.keys().map(cell).collect()
    }

    fn limits(&self, key: Key, entry: &Entry) -> Limits {
        self.limits.get(&key).cloned().or_else(|| entry.limits(key.1)).unwrap_or_default()
    }

    fn config(&self, id: PropertyId, entry: &Entry) -> VehiclePropConfig {
        let mut config = entry.config.clone();
        for area in &mut config.area_configs {
            let Some(limits) = self.limits.get(&(id, AreaId(area.area_id))) else { continue };
            if let (Some(min), Some(max)) = (&limits.min, &limits.max) {
                area.min_int32_value = min.int32_values.first().copied().unwrap_or_default();
                area.max_int32_value = max.int32_values.first().copied().unwrap_or_default();
                area.min_int64_value = min.int64_values.first().copied().unwrap_or_default();
                area.max_int64_value = max.int64_values.first().copied().unwrap_or_default();
                area.min_float_value = min.float_values.first().copied().unwrap_or_default();
                area.max_float_value = max.float_values.first().copied().unwrap_or_default();
            }
            let int = |raw: &Raw| {
                raw.int64_values.first().copied().or(raw.int32_values.first().map(|int| i64::from(*int)))
            };
            area.supported_enum_values = limits.supported.iter().filter_map(int).collect();
            let mut info = area.has_supported_value_info.unwrap_or_default();
            info.has_min_supported_value = limits.min.is_some();
            info.has_max_supported_value = limits.max.is_some();
            info.has_supported_values_list = !limits.supported.is_empty();
            area.has_supported_value_info = Some(info);
        }
        config
    }

    /// Heating and cooling are not available where their power is off.
    fn available(&self, catalogue: &Catalogue, (property, area): Key) -> Result<(), Refusal> {
        let Some(power) = catalogue.entry(HVAC_POWER_ON) else { return Ok(()) };
        if !power.config.config_array.contains(&property.0) {
            return Ok(());
        }
        let off = power.config.area_configs.iter().any(|part| {
            part.area_id & area.0 == area.0
                && self.cells.get(&(HVAC_POWER_ON, AreaId(part.area_id))).is_some_and(|cell| {
                    cell.told.value.as_ref().is_some_and(|value| value.int32_values.first() == Some(&0))
                })
        });
        if off {
            let label = catalogue.label(property);
            return Err(Refusal::new(
                StatusCode::NotAvailableDisabled,
                format!("{label} is not available in area {:#x} while HVAC_POWER_ON is off there", area.0),
            ));
        }
        Ok(())
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(journal) = self.journal.as_mut().filter(|_| !records.is_empty()) else { return Ok(()) };
        journal.append(records)?;
        if journal.has_grown() {
            let kept = self.kept();
            if let Some(journal) = &mut self.journal
                && let Err(error) = journal.replace(&kept)
            {
                // What was appended is there; the next time may go better.
                tracing::warn!(%error, "a car's journal could not be made shorter");
            }
        }
        Ok(())
    }

    fn spread(&mut self, clock: &dyn Clock, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        self.subscribers.tell(events);
        let now = clock.elapsed();
        self.listeners.retain_mut(|(_, listener)| listener.hear(now, events));
    }

    fn footing_now(&self) -> Footing {
        let told = self.cells.iter().filter(|((property, _), _)| *property != INFO_VIN);
        Footing {
            values: told.map(|(key, cell)| (*key, cell.told.clone())).collect(),
            limits: self.limits.clone(),
        }
    }

    fn kept(&self) -> Kept {
        let mut footings = self.aside.clone();
        footings.insert(self.footing, self.footing_now());
        let (chooses, wishes) = self.subscribers.of(&ClientName::guest());
        Kept { footings, current: Some(self.footing), chooses, wishes: wishes.into_iter().collect() }
    }

    fn property(&self, id: PropertyId, entry: &Entry) -> Property {
        let json = |raw: &Raw| values::to_json(entry.kind, raw);
        let areas = entry.config.area_configs.iter().map(|area| {
            let key = (id, AreaId(area.area_id));
            let cell = self.cells.get(&key).cloned().unwrap_or_default();
            let limits = self.limits(key, entry);
            PropertyArea {
                area: key.1,
                value: cell.told.value.as_ref().map(json),
                status: cell.told.status,
                timestamp: cell.timestamp,
                min: limits.min.as_ref().map(json),
                max: limits.max.as_ref().map(json),
                supported: limits.supported.iter().map(json).collect(),
            }
        });
        Property {
            id,
            name: entry.name.clone(),
            access: access(entry.config.access()),
            change_mode: change_mode(entry.config.change_mode()),
            min_sample_rate: entry.config.min_sample_rate,
            max_sample_rate: entry.config.max_sample_rate,
            config_array: entry.config.config_array.clone(),
            areas: areas.collect(),
        }
    }
}

pub(crate) fn access(access: VehiclePropertyAccess) -> Access {
    match access {
        VehiclePropertyAccess::None => Access::None,
        VehiclePropertyAccess::Read => Access::Read,
        VehiclePropertyAccess::Write => Access::Write,
        VehiclePropertyAccess::ReadWrite => Access::ReadWrite,
    }
}

pub(crate) fn change_mode(mode: VehiclePropertyChangeMode) -> ChangeMode {
    match mode {
        VehiclePropertyChangeMode::Static => ChangeMode::Static,
        VehiclePropertyChangeMode::OnChange => ChangeMode::OnChange,
        VehiclePropertyChangeMode::Continuous => ChangeMode::Continuous,
    }
}

/// Nanoseconds between two samples; none when the rate is no rate.
fn period(config: &VehiclePropConfig, rate: f32) -> Option<i64> {
    if rate.is_nan() || rate <= 0.0 {
        return None;
    }
    let rate = rate.clamp(config.min_sample_rate, config.max_sample_rate);
    Some(((1e9 / f64::from(rate)) as i64).max(1))
}

fn said(written: io::Result<()>) -> StatusCode {
    match written {
        Ok(()) => StatusCode::Ok,
        Err(error) => {
            tracing::error!(%error, "a subscription could not be written down");
            StatusCode::InternalError
        }
    }
}
