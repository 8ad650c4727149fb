//! Vehicles: the cars around automotive devices, their properties and recorded drives.

use std::path::PathBuf;
use std::sync::Arc;

use paddock_model::caller::Caller;
use paddock_model::devices::DeviceType;
use paddock_model::drivers::emulator_hosts::{ByteStream, Channel};
use paddock_model::drivers::garages::{self, Garage};
use paddock_model::drivers::{DriverError, DriverResult};
use paddock_model::emulators::{Emulator, EmulatorId, Status};
use paddock_model::error::{Fault, Kind};
use paddock_model::permissions::Relation;
use paddock_model::snapshots::Snapshot;
use paddock_model::vehicles::{
    AreaId, Property, PropertyChange, PropertyId, Replay, Trace, TraceId, VehicleOrder, VehicleState,
};
use paddock_model::{Error, Result};
use paddock_store::verifications::Trial;
use paddock_store::{Tx, disks, vehicle_states};
use serde_json::json;

use crate::devices::Devices;
use crate::streams::{self, Stream};
use crate::{Engine, audit, emulators, idempotency_keys, permissions};

/// Has the emulator's car stand ready, and says where the device finds it.
pub(crate) async fn ensure(
    engine: &Engine,
    devices: &Devices,
    emulator: &Emulator,
) -> Result<DriverResult<Option<PathBuf>>> {
    let (Some(footing), Some(garage)) = (emulator.vehicle, &devices.garage) else { return Ok(Ok(None)) };
    let mut tx = engine.store.read().await?;
    let begins_with = match disks::find(&mut tx, emulator.disk).await? {
        Some(disk) => vehicle_states::find(&mut tx, disk.layer).await?,
        None => None,
    };
    drop(tx);
    let order = VehicleOrder {
        emulator: emulator.id,
        identity: emulator.identity.clone(),
        footing,
        previous: emulator.previous.as_ref().and_then(|previous| previous.vehicle),
        begins_with,
    };
    Ok(garage.ensure(&order).await.map(Some))
}

/// A car for a clone that only proves something.
pub(crate) async fn ensure_for_trial(
    engine: &Engine,
    devices: &Devices,
    trial: &Trial,
    snapshot: &Snapshot,
) -> Result<DriverResult<Option<PathBuf>>> {
    let Some(garage) = devices.garage.as_ref().filter(|_| snapshot.image.needs_vehicle()) else {
        return Ok(Ok(None));
    };
    let order = VehicleOrder {
        emulator: trial.emulator,
        identity: trial.identity.clone(),
        footing: 1,
        previous: None,
        begins_with: vehicle_states::find(&mut engine.store.read().await?, snapshot.layer).await?,
    };
    Ok(garage.ensure(&order).await.map(Some))
}

pub(crate) async fn remove(devices: &Devices, emulator: EmulatorId) -> DriverResult<()> {
    match &devices.garage {
        Some(garage) => garage.remove(emulator).await,
        None => Ok(()),
    }
}

/// What is to travel with a snapshot of this emulator.
pub(crate) async fn state(devices: &Devices, emulator: &Emulator) -> DriverResult<Option<VehicleState>> {
    match (&devices.garage, emulator.vehicle) {
        (Some(garage), Some(_)) => garage.state(emulator.id).await,
        _ => Ok(None),
    }
}

/// Where a call to a car goes.
pub enum Way {
    /// To the garage.
    Garage,
    /// To the device, which brings its car itself.
    Device,
}

/// Whether the caller may do this with the emulator's car, and where that is.
pub async fn reach(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    relation: Relation,
) -> Result<(Emulator, Way)> {
    let emulator = emulators::get(engine, caller, id).await?;
    permissions::require(engine, caller, relation, &emulator.object())?;
    let way = way(&emulator)?;
    require_running(&emulator)?;
    Ok((emulator, way))
}

/// The same for a stream, which is told when it has to end.
pub async fn stream(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<(Emulator, Way, Stream)> {
    let (emulator, way) = reach(engine, caller, id, Relation::CanReadVehicle).await?;
    let (_, stream) = streams::admit(engine, caller, id, Channel::Vehicle).await?;
    Ok((emulator, way, stream))
}

/// A connection on which the car speaks HTTP/2.
pub async fn connect(engine: &Engine, id: EmulatorId, way: &Way) -> Result<Box<dyn ByteStream>> {
    let devices = engine.devices()?;
    let opened = match way {
        Way::Garage => garage(devices)?.open(id).await,
        Way::Device => devices.host.open(id, Channel::Vehicle).await,
    };
    opened.map_err(told)
}

/// Every property with its values.
pub async fn list_properties(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Vec<Property>> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanReadVehicle).await?;
    require_running(&emulator)?;
    garage.properties(id).await.map_err(told)
}

/// One property, by its name or number.
pub async fn get_property(engine: &Engine, caller: &Caller, id: EmulatorId, name: &str) -> Result<Property> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanReadVehicle).await?;
    require_running(&emulator)?;
    let property = find(&**garage, name)?;
    let all = garage.properties(id).await.map_err(told)?;
    all.into_iter().find(|each| each.id == property).ok_or_else(|| no_such_property(name))
}

/// Tells the car what a property is from now on, as the car itself would: also what Android may only read.
pub async fn set_property(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    name: &str,
    area: AreaId,
    change: &PropertyChange,
) -> Result<Property> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    require_running(&emulator)?;
    let property = find(&**garage, name)?;
    let after = garage.set(id, property, area, change).await.map_err(told)?;
    let mut tx = engine.store.begin().await?;
    let details = json!({ "property": after.name, "area": area.0, "value": change.value });
    note(engine, &mut tx, caller, &emulator, "vehicles.set_property", details).await?;
    engine.commit(tx).await?;
    Ok(after)
}

pub async fn list_traces(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Vec<Trace>> {
    let (_, garage) = found(engine, caller, id, Relation::CanReadVehicle).await?;
    garage.traces(id).await.map_err(told)
}

pub async fn get_trace(engine: &Engine, caller: &Caller, id: EmulatorId, trace: TraceId) -> Result<Trace> {
    let traces = list_traces(engine, caller, id).await?;
    traces.into_iter().find(|each| each.id == trace).ok_or_else(no_such_trace)
}

/// Records what is told of the car's properties from now on; with `content`, takes what was recorded elsewhere.
pub async fn create_trace(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    name: Option<String>,
    content: Option<&[u8]>,
) -> Result<Trace> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    let mut tx = engine.store.begin().await?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return Ok(earlier);
    }
    let trace = TraceId::new(engine.now(), engine.random());
    let name = name.unwrap_or_else(|| format!("drive-{}", &trace.to_string()[26..]));
    let made = match content {
        Some(content) => garage.take(id, trace, &name, content).await.map_err(told)?,
        None => {
            require_running(&emulator)?;
            garage.record(id, trace, &name).await.map_err(told)?
        }
    };
    let details = json!({ "trace": made.id, "name": made.name });
    note(engine, &mut tx, caller, &emulator, "vehicles.create_trace", details).await?;
    idempotency_keys::remember(&mut tx, caller, &made).await?;
    engine.commit(tx).await?;
    Ok(made)
}

/// Ends a recording.
pub async fn finish_trace(engine: &Engine, caller: &Caller, id: EmulatorId, trace: TraceId) -> Result<Trace> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    let mut tx = engine.store.begin().await?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return Ok(earlier);
    }
    let ended = garage.finish(id, trace).await.map_err(told)?;
    note(engine, &mut tx, caller, &emulator, "vehicles.finish_trace", json!({ "trace": trace })).await?;
    idempotency_keys::remember(&mut tx, caller, &ended).await?;
    engine.commit(tx).await?;
    Ok(ended)
}

/// As lines of JSON.
pub async fn read_trace(engine: &Engine, caller: &Caller, id: EmulatorId, trace: TraceId) -> Result<Vec<u8>> {
    let (_, garage) = found(engine, caller, id, Relation::CanReadVehicle).await?;
    garage.content(id, trace).await.map_err(told)
}

pub async fn delete_trace(engine: &Engine, caller: &Caller, id: EmulatorId, trace: TraceId) -> Result<()> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    garage.delete(id, trace).await.map_err(told)?;
    let mut tx = engine.store.begin().await?;
    note(engine, &mut tx, caller, &emulator, "vehicles.delete_trace", json!({ "trace": trace })).await?;
    engine.commit(tx).await
}

/// A drive that is to be played into a car.
#[derive(Debug, Clone)]
pub struct ReplaySpec {
    pub trace: TraceId,
    /// Whose trace it is, if not this emulator's own.
    pub of: Option<EmulatorId>,
    pub speed: f64,
    pub repeat: bool,
}

/// Plays a recorded drive into the car, its own or another's; what is being played ends.
pub async fn create_replay(
    engine: &Engine,
    caller: &Caller,
    id: EmulatorId,
    spec: &ReplaySpec,
) -> Result<Replay> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    require_running(&emulator)?;
    if let Some(other) = spec.of.filter(|other| *other != id) {
        let (_, lends) = found(engine, caller, other, Relation::CanReadVehicle).await?;
        let known = garage.traces(id).await.map_err(told)?;
        if !known.iter().any(|trace| trace.id == spec.trace) {
            let traces = lends.traces(other).await.map_err(told)?;
            let lent = traces.into_iter().find(|trace| trace.id == spec.trace).ok_or_else(no_such_trace)?;
            let content = lends.content(other, spec.trace).await.map_err(told)?;
            garage.take(id, spec.trace, &lent.name, &content).await.map_err(told)?;
        }
    }
    let replay = garage.replay(id, spec.trace, spec.speed, spec.repeat).await.map_err(told)?;
    let details = json!({ "trace": spec.trace, "speed": spec.speed });
    let mut tx = engine.store.begin().await?;
    note(engine, &mut tx, caller, &emulator, "vehicles.create_replay", details).await?;
    engine.commit(tx).await?;
    Ok(replay)
}

/// The last replay and how far it is.
pub async fn get_replay(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Replay> {
    let (_, garage) = found(engine, caller, id, Relation::CanReadVehicle).await?;
    garage.replaying(id).await.map_err(told)?.ok_or_else(no_replay)
}

pub async fn delete_replay(engine: &Engine, caller: &Caller, id: EmulatorId) -> Result<Replay> {
    let (emulator, garage) = found(engine, caller, id, Relation::CanUseVehicle).await?;
    let ended = garage.stop_replay(id).await.map_err(told)?.ok_or_else(no_replay)?;
    let mut tx = engine.store.begin().await?;
    note(engine, &mut tx, caller, &emulator, "vehicles.delete_replay", json!({ "trace": ended.trace }))
        .await?;
    engine.commit(tx).await?;
    Ok(ended)
}

/// The emulator and the garage of its car, where that is ours to ask.
async fn found<'a>(
    engine: &'a Engine,
    caller: &Caller,
    id: EmulatorId,
    relation: Relation,
) -> Result<(Emulator, &'a Arc<dyn Garage>)> {
    let emulator = emulators::get(engine, caller, id).await?;
    permissions::require(engine, caller, relation, &emulator.object())?;
    match way(&emulator)? {
        Way::Garage => Ok((emulator, garage(engine.devices()?)?)),
        Way::Device => Err(Error::conflict(
            "vehicle_in_device",
            "This device brings its vehicle itself, which answers by gRPC only.",
        )),
    }
}

fn garage(devices: &Devices) -> Result<&Arc<dyn Garage>> {
    devices.garage.as_ref().ok_or_else(|| Error::unavailable("no_vehicle", "This server has no vehicles."))
}

fn way(emulator: &Emulator) -> Result<Way> {
    match (emulator.device_type, emulator.vehicle) {
        (DeviceType::Automotive, Some(_)) => Ok(Way::Garage),
        (DeviceType::Automotive, None) => Ok(Way::Device),
        _ => {
            let detail =
                format!("A {} has no vehicle. Deploy an automotive device.", emulator.device_type.name());
            Err(Error::conflict("not_automotive", detail))
        }
    }
}

fn require_running(emulator: &Emulator) -> Result<()> {
    match emulator.status() {
        Status::Running => Ok(()),
        status => Err(emulators::invalid_state(status, "driven")),
    }
}

fn find(garage: &dyn Garage, name: &str) -> Result<PropertyId> {
    garage.find(name).ok_or_else(|| no_such_property(name))
}

fn no_such_property(name: &str) -> Error {
    let detail =
        format!("This vehicle has no property {name:?}. List its properties for their names and numbers.");
    Error::new(Kind::NotFound, garages::NO_SUCH_PROPERTY, detail)
}

fn no_such_trace() -> Error {
    Error::new(Kind::NotFound, garages::NO_SUCH_TRACE, "This emulator has no such trace. List its traces.")
}

fn no_replay() -> Error {
    Error::new(Kind::NotFound, "no_replay", "Nothing has been replayed to this vehicle.")
}

/// What a garage refuses, as callers are told.
fn told(error: DriverError) -> Error {
    let message = error.message.clone();
    match error.code {
        garages::NO_SUCH_PROPERTY | garages::NO_SUCH_AREA | garages::NO_SUCH_TRACE => {
            Error::new(Kind::NotFound, error.code, message)
        }
        garages::WRONG_VALUE | garages::WRONG_TRACE => {
            let pointer = if error.code == garages::WRONG_VALUE { "/value" } else { "" }.to_owned();
            Error::invalid(vec![Fault { pointer, code: error.code.into(), message }])
        }
        garages::NOT_AVAILABLE | garages::TOO_MANY_TRACES => Error::conflict(error.code, message),
        _ => Error::unavailable(
            "vehicle_unreachable",
            "The vehicle does not answer just now. Read the emulator's status, and try again.",
        )
        .with_cause(error),
    }
}

async fn note(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    emulator: &Emulator,
    act: &'static str,
    details: serde_json::Value,
) -> Result<()> {
    audit::record(engine, tx, caller, act, Some(emulator.tenant), emulator.object(), details).await
}
