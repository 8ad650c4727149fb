//! The garage: a folder of cars, each held by one process and served on a socket of its own.
//!
//! ```text
//! vehicles/emu_…/lock           whoever has locked it holds the car
//! vehicles/emu_…/vehicle.sock   HTTP/2, for the device inside and for other processes
//! vehicles/emu_…/journal, clock, traces/, replay.json
//! ```

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use paddock_model::drivers::emulator_hosts::ByteStream;
use paddock_model::drivers::garages::{
    self, NO_SUCH_AREA, NO_SUCH_PROPERTY, NO_VEHICLE, NOT_AVAILABLE, WRONG_VALUE,
};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::ports::Clock;
use paddock_model::vehicles::{
    AreaId, Property, PropertyArea, PropertyChange, PropertyId, Replay, Trace, TraceId, VehicleOrder,
    VehicleState,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalogue::Catalogue;
use crate::files::{self, io_error, on_a_thread};
use crate::line;
use crate::proto::{
    GetMinMaxSupportedValuesRequest, GetSupportedValuesListsRequest, PropIdAreaId, StatusCode,
    VehiclePropValue, VehiclePropValueRequest, VehiclePropValueRequests,
};
use crate::service::{Client, service};
use crate::state;
use crate::traces::{Shelf, Traces};
use crate::values::{self, Key, Raw};
use crate::vehicle::{self, Refusal, Vehicle};

const LOCK_FILE: &str = "lock";
const SOCKET_FILE: &str = "vehicle.sock";
/// Another process holds the car.
pub const VEHICLE_HELD: &str = "vehicle_held";
/// How long connections are given to end when a car is let go.
const PARTING: Duration = Duration::from_secs(2);
/// Calls at once on one connection.
const MOST_CALLS: u32 = 4096;

pub struct Garage {
    folder: PathBuf,
    catalogue: Arc<Catalogue>,
    clock: Arc<dyn Clock>,
    cars: Mutex<HashMap<EmulatorId, Arc<Car>>>,
    /// One at a time takes a car or lets it go; many cars at once.
    taking: [tokio::sync::Mutex<()>; 64],
}

/// A car that this process holds, until it is dropped.
struct Car {
    vehicle: Arc<Vehicle>,
    traces: Arc<Traces>,
    parting: CancellationToken,
    connections: TaskTracker,
    _lock: File,
}

impl Drop for Car {
    fn drop(&mut self) {
        self.end();
    }
}

impl Car {
    /// Nobody is served any more, and nothing is written.
    fn end(&self) {
        self.traces.let_go();
        self.vehicle.close();
        self.parting.cancel();
        self.connections.close();
    }
}

impl Garage {
    /// The cars of a folder, which is made if it is not there.
    pub fn open(
        folder: &Path,
        catalogue: Arc<Catalogue>,
        clock: Arc<dyn Clock>,
    ) -> DriverResult<Arc<Garage>> {
        files::make_folder(folder).map_err(|error| io_error("make the folder of the cars", error))?;
        let folder =
            fs::canonicalize(folder).map_err(|error| io_error("find the folder of the cars", error))?;
        Ok(Arc::new(Garage {
            folder,
            catalogue,
            clock,
            cars: Mutex::default(),
            taking: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
        }))
    }

    /// The car itself, if this process holds it.
    pub fn held(&self, emulator: EmulatorId) -> Option<Arc<Vehicle>> {
        self.car(emulator).map(|car| car.vehicle.clone())
    }

    /// Where the car is served, whoever holds it.
    pub fn socket(&self, emulator: EmulatorId) -> PathBuf {
        self.folder_of(emulator).join(SOCKET_FILE)
    }

    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    fn folder_of(&self, emulator: EmulatorId) -> PathBuf {
        self.folder.join(emulator.to_string())
    }

    fn taking(&self, emulator: EmulatorId) -> &tokio::sync::Mutex<()> {
        &self.taking[emulator.0.as_u128() as usize % self.taking.len()]
    }

    fn cars(&self) -> MutexGuard<'_, HashMap<EmulatorId, Arc<Car>>> {
        self.cars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn car(&self, emulator: EmulatorId) -> Option<Arc<Car>> {
        self.cars().get(&emulator).cloned()
    }

    fn holding(&self, emulator: EmulatorId) -> DriverResult<Arc<Car>> {
        self.car(emulator).ok_or_else(|| {
            DriverError::new(
                Retry::Soon,
                NO_VEHICLE,
                "the car is not held by this server at the moment; try again shortly",
            )
        })
    }

    /// Locks the car, makes it stand as ordered, and serves it.
    async fn take_car(&self, order: &VehicleOrder) -> DriverResult<Arc<Car>> {
        let folder = self.folder_of(order.emulator);
        let (catalogue, clock, order) = (self.catalogue.clone(), self.clock.clone(), order.clone());
        on_a_thread(move || {
            files::make_folder(&folder).map_err(|error| io_error("make a car's folder", error))?;
            let lock = lock(&folder)?;
            let failed = |error| io_error("open a car", error);
            let vehicle = Vehicle::open(&folder, catalogue.clone(), clock.clone(), &order).map_err(failed)?;
            let traces = Traces::open(&folder, catalogue, clock, vehicle.clone())?;
            let car = Arc::new(Car {
                vehicle,
                traces,
                parting: CancellationToken::new(),
                connections: TaskTracker::new(),
                _lock: lock,
            });
            serve(&folder, &car).map_err(|error| io_error("serve a car on its socket", error))?;
            Ok(car)
        })
        .await
    }

    async fn connect(&self, emulator: EmulatorId) -> DriverResult<UnixStream> {
        let gone = |error: io::Error| {
            let message = "nobody serves the emulator's car at the moment; try again when the emulator runs";
            DriverError::new(Retry::Soon, NO_VEHICLE, message).with_cause(error)
        };
        let folder = File::open(self.folder_of(emulator)).map_err(gone)?;
        UnixStream::connect(through(&folder, SOCKET_FILE)).await.map_err(gone)
    }
}

/// A path of a file in an open folder: the addresses of sockets are short, and folders may lie deep.
fn through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

fn lock(folder: &Path) -> DriverResult<File> {
    let failed = |error| io_error("lock a car", error);
    let path = folder.join(LOCK_FILE);
    let file =
        File::options().create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
    let held = || {
        DriverError::new(
            Retry::Soon,
            VEHICLE_HELD,
            "another process holds the car; stop it, or wait for its end",
        )
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(held()),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    // Who held it may have removed it meanwhile, and somebody else may hold what is there now.
    let (ours, there) = (file.metadata().map_err(failed)?, fs::metadata(&path));
    if there.is_ok_and(|there| there.ino() == ours.ino()) { Ok(file) } else { Err(held()) }
}

/// Answers on the car's socket until the car is let go.
fn serve(folder: &Path, car: &Arc<Car>) -> io::Result<()> {
    let open = File::open(folder)?;
    let draft = format!(".{SOCKET_FILE}.tmp");
    files::remove(&folder.join(&draft))?;
    let listener = UnixListener::bind(through(&open, &draft))?;
    // A socket that is there always has somebody behind it, or the process that had it was killed.
    fs::rename(folder.join(&draft), folder.join(SOCKET_FILE))?;
    let (parting, connections, vehicle) = (car.parting.clone(), car.connections.clone(), car.vehicle.clone());
    let of_car = connections.clone();
    of_car.spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = parting.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(speak(stream, vehicle.clone(), parting.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to a car could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(())
}

async fn speak(stream: UnixStream, vehicle: Arc<Vehicle>, parting: CancellationToken) {
    let service = TowerToHyperService::new(service(vehicle, Client::guest()));
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).max_concurrent_streams(MOST_CALLS);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // However it ends: whoever is at the other end opens another.
        _ = connection.as_mut() => return,
        () = parting.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(PARTING, connection).await;
}

fn refused(refusal: Refusal) -> DriverError {
    let (retry, code) = match refusal.code {
        StatusCode::NotAvailable
        | StatusCode::NotAvailableDisabled
        | StatusCode::NotAvailableSpeedLow
        | StatusCode::NotAvailableSpeedHigh
        | StatusCode::NotAvailablePoorVisibility
        | StatusCode::NotAvailableSafety => (Retry::Never, NOT_AVAILABLE),
        StatusCode::TryAgain => (Retry::Soon, NO_VEHICLE),
        StatusCode::InternalError => (Retry::Soon, "io_error"),
        _ => (Retry::Never, WRONG_VALUE),
    };
    DriverError::new(retry, code, refusal.message)
}

/// Every emulator of whose car there is anything in the folder of a garage, whoever holds it.
pub fn traces(folder: &Path) -> DriverResult<Vec<EmulatorId>> {
    let failed = |error| io_error("list the cars", error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        found.extend(name.to_str().and_then(EmulatorId::parse));
    }
    found.sort();
    Ok(found)
}

#[async_trait]
impl garages::Garage for Garage {
    async fn ensure(&self, order: &VehicleOrder) -> DriverResult<PathBuf> {
        let (stands, socket) = (|car: &Car| car.vehicle.stands_as(order), self.socket(order.emulator));
        if self.car(order.emulator).is_some_and(|car| stands(&car)) {
            return Ok(socket);
        }
        let _one = self.taking(order.emulator).lock().await;
        if let Some(car) = self.car(order.emulator) {
            let order = order.clone();
            return on_a_thread(move || {
                let failed = |error| io_error("change a car", error);
                if !car.vehicle.stands_as(&order) && car.vehicle.become_as(&order).map_err(failed)? {
                    car.traces.stop(Some("the emulator's car was replaced by another"))?;
                }
                Ok(socket)
            })
            .await;
        }
        let car = self.take_car(order).await?;
        self.cars().insert(order.emulator, car);
        Ok(socket)
    }

    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()> {
        let _one = self.taking(emulator).lock().await;
        let car = self.cars().remove(&emulator);
        if let Some(car) = &car {
            car.end();
        }
        let folder = self.folder_of(emulator);
        on_a_thread(move || {
            if !folder.exists() {
                return Ok(());
            }
            // Ours, or nobody's.
            let _lock = if car.is_none() { Some(lock(&folder)?) } else { None };
            let removed = match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
            drop(car);
            removed.map_err(|error| io_error("remove a car", error))
        })
        .await
    }

    async fn let_go(&self) {
        let mut all = Vec::new();
        for each in &self.taking {
            all.push(each.lock().await);
        }
        let cars: Vec<_> = self.cars().drain().collect();
        for (_, car) in &cars {
            car.end();
        }
        let ended = async {
            for (_, car) in &cars {
                car.connections.wait().await;
            }
        };
        let _ = tokio::time::timeout(PARTING, ended).await;
    }

    async fn list(&self) -> DriverResult<Vec<EmulatorId>> {
        let folder = self.folder.clone();
        on_a_thread(move || traces(&folder)).await
    }

    async fn state(&self, emulator: EmulatorId) -> DriverResult<Option<VehicleState>> {
        if let Some(vehicle) = self.held(emulator) {
            return Ok(Some(vehicle.state()));
        }
        let (folder, catalogue) = (self.folder_of(emulator), self.catalogue.clone());
        on_a_thread(move || {
            state::left_in(&folder, &catalogue).map_err(|error| io_error("read a car's state", error))
        })
        .await
    }

    async fn open(&self, emulator: EmulatorId) -> DriverResult<Box<dyn ByteStream>> {
        Ok(Box::new(self.connect(emulator).await?))
    }

    fn find(&self, name: &str) -> Option<PropertyId> {
        self.catalogue.find(name)
    }

    async fn properties(&self, emulator: EmulatorId) -> DriverResult<Vec<Property>> {
        match self.held(emulator) {
            Some(vehicle) => Ok(vehicle.properties()),
            None => Ok(self.ask(emulator).await?.0),
        }
    }

    async fn set(
        &self,
        emulator: EmulatorId,
        property: PropertyId,
        area: AreaId,
        change: &PropertyChange,
    ) -> DriverResult<Property> {
        let no_property = || {
            let message = format!("this car has no property {:#010x}; list its properties", property.0);
            DriverError::new(Retry::Never, NO_SUCH_PROPERTY, message)
        };
        let check = |known: &Property| {
            if known.areas.iter().any(|each| each.area == area) {
                return Ok(());
            }
            let areas: Vec<String> = known.areas.iter().map(|each| format!("{:#x}", each.area.0)).collect();
            let message = format!("the property has no area {:#x}; it has {}", area.0, areas.join(", "));
            Err(DriverError::new(Retry::Never, NO_SUCH_AREA, message))
        };
        let kind = property.value_type().ok_or_else(no_property)?;
        let value = change.value.as_ref().map(|value| values::from_json(kind, value)).transpose();
        let value = value.map_err(|problem| {
            DriverError::new(
                Retry::Never,
                WRONG_VALUE,
                format!("the value {problem}; this is a {}", kind.name()),
            )
        });
        if let Some(vehicle) = self.held(emulator) {
            check(&vehicle.property(property).ok_or_else(no_property)?)?;
            let told = vehicle.tell(vec![((property, area), value?, change.status)], false);
            told.into_iter().collect::<Result<(), _>>().map_err(refused)?;
            return vehicle.property(property).ok_or_else(no_property);
        }
        let (known, mut client) = self.ask(emulator).await?;
        let find =
            |known: Vec<Property>| known.into_iter().find(|each| each.id == property).ok_or_else(no_property);
        let known = find(known)?;
        check(&known)?;
        let raw = match value? {
            Some(raw) => raw,
            // Over the wire a status comes with a value.
            None => {
                let value =
                    known.areas.iter().find(|each| each.area == area).and_then(|each| each.value.as_ref());
                let value = value.and_then(|value| values::from_json(kind, value).ok());
                let unset = "it has not been set yet; give it a value as well";
                value.ok_or_else(|| DriverError::new(Retry::Never, NOT_AVAILABLE, unset))?
            }
        };
        let value = values::on_the_wire((property, area), raw, change.status, 0);
        let request = VehiclePropValueRequest { request_id: 0, value: Some(value) };
        let requests = VehiclePropValueRequests { requests: vec![request] };
        let answer = client.set_values(requests).await.map_err(broken_off)?.into_inner();
        let code =
            answer.results.first().map_or(StatusCode::InternalError, crate::proto::SetValueResult::status);
        if code != StatusCode::Ok {
            let message = match code {
                StatusCode::InvalidArg => {
                    "the value does not fit the property; compare it with its least and most"
                }
                StatusCode::AccessDenied => "the property cannot be set",
                StatusCode::NotAvailableDisabled => {
                    "the property is not available while the power of its area is off"
                }
                _ => "the property is not available at the moment",
            };
            return Err(refused(Refusal { code, message: message.to_owned() }));
        }
        find(self.ask(emulator).await?.0)
    }

    async fn traces(&self, emulator: EmulatorId) -> DriverResult<Vec<Trace>> {
        let (car, shelf) = (self.car(emulator), Shelf::of(&self.folder_of(emulator)));
        on_a_thread(move || car.map_or_else(|| shelf.list(), |car| car.traces.list())).await
    }

    async fn record(&self, emulator: EmulatorId, trace: TraceId, name: &str) -> DriverResult<Trace> {
        let (car, name) = (self.holding(emulator)?, name.to_owned());
        on_a_thread(move || car.traces.record(trace, &name)).await
    }

    async fn finish(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<Trace> {
        let car = self.holding(emulator)?;
        on_a_thread(move || car.traces.finish(trace)).await
    }

    async fn take(
        &self,
        emulator: EmulatorId,
        trace: TraceId,
        name: &str,
        content: &[u8],
    ) -> DriverResult<Trace> {
        let (car, name, content) = (self.holding(emulator)?, name.to_owned(), content.to_vec());
        on_a_thread(move || car.traces.take(trace, &name, &content)).await
    }

    async fn content(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<Vec<u8>> {
        let shelf = Shelf::of(&self.folder_of(emulator));
        on_a_thread(move || shelf.content(trace)).await
    }

    async fn delete(&self, emulator: EmulatorId, trace: TraceId) -> DriverResult<()> {
        let car = self.holding(emulator)?;
        on_a_thread(move || car.traces.delete(trace)).await
    }

    async fn replay(
        &self,
        emulator: EmulatorId,
        trace: TraceId,
        speed: f64,
        repeat: bool,
    ) -> DriverResult<Replay> {
        let car = self.holding(emulator)?;
        on_a_thread(move || car.traces.replay(trace, speed, repeat)).await
    }

    async fn replaying(&self, emulator: EmulatorId) -> DriverResult<Option<Replay>> {
        let (car, shelf) = (self.car(emulator), Shelf::of(&self.folder_of(emulator)));
        on_a_thread(move || car.map_or_else(|| shelf.replaying(), |car| car.traces.replaying())).await
    }

    async fn stop_replay(&self, emulator: EmulatorId) -> DriverResult<Option<Replay>> {
        let car = self.holding(emulator)?;
        on_a_thread(move || car.traces.stop(None)).await
    }
}

type Speaker = crate::proto::vehicle_server_client::VehicleServerClient<line::Line>;

fn broken_off(status: tonic::Status) -> DriverError {
    DriverError::new(Retry::Soon, NO_VEHICLE, "the car did not answer; try again shortly").with_cause(status)
}

impl Garage {
    /// The properties of a car that another process holds, as it tells them.
    async fn ask(&self, emulator: EmulatorId) -> DriverResult<(Vec<Property>, Speaker)> {
        let mut client = line::connect(self.connect(emulator).await?).await.map_err(|error| {
            DriverError::new(Retry::Soon, NO_VEHICLE, "the car did not answer; try again shortly")
                .with_cause(error)
        })?;
        let mut configs = Vec::new();
        let mut told = client.get_all_property_config(()).await.map_err(broken_off)?.into_inner();
        while let Some(config) = told.message().await.map_err(broken_off)? {
            configs.push(config);
        }
        let keys: Vec<Key> = configs
            .iter()
            .flat_map(|config| {
                config.area_configs.iter().map(|area| (PropertyId(config.prop), AreaId(area.area_id)))
            })
            .collect();
        let mut areas: HashMap<Key, PropertyArea> = HashMap::new();
        for keys in keys.chunks(1000) {
            let places: Vec<_> =
                keys.iter().map(|key| PropIdAreaId { prop_id: key.0.0, area_id: key.1.0 }).collect();
            let requests = keys.iter().enumerate().map(|(index, (property, area))| VehiclePropValueRequest {
                request_id: index as i64,
                value: Some(VehiclePropValue { prop: property.0, area_id: area.0, ..Default::default() }),
            });
            let requests = VehiclePropValueRequests { requests: requests.collect() };
            let answers = client.get_values(requests).await.map_err(broken_off)?.into_inner();
            let bounds = GetMinMaxSupportedValuesRequest { prop_id_area_id: places.clone() };
            let bounds = client.get_min_max_supported_values(bounds).await.map_err(broken_off)?.into_inner();
            let lists = GetSupportedValuesListsRequest { prop_id_area_id: places };
            let lists = client.get_supported_values_lists(lists).await.map_err(broken_off)?.into_inner();
            let mut values: HashMap<i64, VehiclePropValue> = answers
                .results
                .into_iter()
                .filter_map(|answer| Some((answer.request_id, answer.value?)))
                .collect();
            for (index, ((key, bound), list)) in keys.iter().zip(bounds.result).zip(lists.result).enumerate()
            {
                let Some(kind) = key.0.value_type() else { continue };
                let json = |raw: &Raw| values::to_json(kind, raw);
                let value = values.remove(&(index as i64));
                let status = value.as_ref().map(|value| values::status(value.status)).unwrap_or_default();
                let timestamp = value.as_ref().map_or(0, |value| value.timestamp);
                areas.insert(
                    *key,
                    PropertyArea {
                        area: key.1,
                        value: value.map(|value| json(&values::raw(value))),
                        status,
                        timestamp,
                        min: bound.min_supported_value.as_ref().map(json),
                        max: bound.max_supported_value.as_ref().map(json),
                        supported: list.supported_values_list.iter().map(json).collect(),
                    },
                );
            }
        }
        let properties = configs.into_iter().map(|config| {
            let id = PropertyId(config.prop);
            Property {
                id,
                name: self.catalogue.name(id).map(str::to_owned),
                access: vehicle::access(config.access()),
                change_mode: vehicle::change_mode(config.change_mode()),
                min_sample_rate: config.min_sample_rate,
                max_sample_rate: config.max_sample_rate,
                areas: config
                    .area_configs
                    .iter()
                    .filter_map(|area| areas.remove(&(id, AreaId(area.area_id))))
                    .collect(),
                config_array: config.config_array,
            }
        });
        Ok((properties.collect(), client))
    }
}
