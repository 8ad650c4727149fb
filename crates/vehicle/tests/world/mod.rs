//! What tests of a car need: a clock that they hold, a maker's file, and clients that speak over a real connection.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses what it needs, and a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use paddock_model::Timestamp;
use paddock_model::devices::DeviceIdentity;
use paddock_model::emulators::EmulatorId;
use paddock_model::ports::ManualClock;
use paddock_model::vehicles::{VehicleOrder, VehicleState};
use paddock_vehicle::proto::vehicle_server_client::VehicleServerClient;
use paddock_vehicle::proto::{
    GetValueResult, StatusCode, SubscribeOptions, SubscribeRequest, UnsubscribeRequest,
    UpdateSampleRateRequest, VehiclePropValue, VehiclePropValueRequest, VehiclePropValueRequests,
    VehiclePropValues,
};
use paddock_vehicle::{Catalogue, Client, ClientName, Line, Vehicle, connect, service};
use tonic::Streaming;

pub const VIN: i32 = 0x1110_0100;
pub const MODEL_YEAR: i32 = 0x1140_0103;
pub const SPEED: i32 = 0x1160_0207;
pub const RPM: i32 = 0x1160_0305;
pub const GEAR: i32 = 0x1140_0400;
pub const NIGHT: i32 = 0x1120_0407;
pub const TURN_SIGNAL: i32 = 0x1140_0408;
pub const FAN_SPEED: i32 = 0x1540_0500;
pub const TEMPERATURE_SET: i32 = 0x1560_0503;
pub const HVAC_POWER: i32 = 0x1520_0510;
pub const HEARTBEAT: i32 = 0x1150_0f33;
pub const VENDOR_TEXT: i32 = 0x2110_0001;
pub const VENDOR_BYTES: i32 = 0x2170_0002;
pub const VENDOR_MIXED: i32 = 0x21e0_0003;
pub const VENDOR_INT64: i32 = 0x2150_0004;
pub const VENDOR_FLOATS: i32 = 0x2161_0005;
pub const VENDOR_INT64S: i32 = 0x2151_0006;
pub const VENDOR_INTS: i32 = 0x2141_0007;

pub const MAKERS_FILE: &str = r#"{
  "apiVersion": 1,
  "properties": [
    {"property": "0x21100001", "name": "VENDOR_TEXT", "access": "READ_WRITE", "changeMode": "ON_CHANGE"},
    {"property": 560988162, "access": "VehiclePropertyAccess::READ_WRITE", "changeMode": "ON_CHANGE"},
    {"property": "0x21e00003", "access": "READ_WRITE", "changeMode": "ON_CHANGE", "configArray": [1, 1, 0, 2, 0, 0, 1, 0, 3]},
    {"property": "0x21500004", "access": "READ_WRITE", "changeMode": "ON_CHANGE",
     "areas": [{"areaId": 0, "minInt64Value": -5, "maxInt64Value": 5}]},
    {"property": "0x21610005", "access": "READ_WRITE", "changeMode": "ON_CHANGE"},
    {"property": "0x21510006", "access": "READ_WRITE", "changeMode": "ON_CHANGE"},
    {"property": "0x21410007", "access": "READ_WRITE", "changeMode": "ON_CHANGE"}
  ]
}"#;

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse::<Timestamp>().unwrap()))
}

pub fn catalogue() -> Arc<Catalogue> {
    Catalogue::with(MAKERS_FILE).unwrap()
}

pub fn car(clock: &Arc<ManualClock>) -> Arc<Vehicle> {
    Vehicle::in_memory(catalogue(), clock.clone(), Some("PADDOCK0000000001".to_owned()))
}

pub fn emulator(number: u128) -> EmulatorId {
    EmulatorId(uuid::Uuid::from_u128(number))
}

pub fn identity(vin: &str) -> DeviceIdentity {
    DeviceIdentity {
        serial: "s".to_owned(),
        android_id: "0".repeat(16),
        machine_id: "0".repeat(32),
        mac: "52:54:00:12:34:56".to_owned(),
        seed: "0".repeat(64),
        vin: Some(vin.to_owned()),
    }
}

pub fn order(footing: i64, previous: Option<i64>, begins_with: Option<VehicleState>) -> VehicleOrder {
    VehicleOrder { emulator: emulator(1), identity: identity("VIN1"), footing, previous, begins_with }
}

/// A client of a car, over a connection of its own.
pub struct Driver {
    pub client: VehicleServerClient<Line>,
}

pub async fn driver(vehicle: &Arc<Vehicle>, name: &str) -> Driver {
    driver_as(vehicle, Client { name: ClientName::new(name), may_drive: true }).await
}

pub async fn driver_as(vehicle: &Arc<Vehicle>, client: Client) -> Driver {
    Driver { client: connect(served(vehicle, client)).await.unwrap() }
}

/// One whose connection holds no more than so much that it has not read.
pub async fn narrow_driver(vehicle: &Arc<Vehicle>, name: &str, bytes: u32) -> Driver {
    let stream = served(vehicle, Client { name: ClientName::new(name), may_drive: true });
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(bytes).initial_connection_window_size(bytes);
    let (line, connection) = http.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    Driver { client: Line::over(line).client() }
}

fn served(vehicle: &Arc<Vehicle>, client: Client) -> tokio::net::UnixStream {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let service = TowerToHyperService::new(service(vehicle.clone(), client));
    tokio::spawn(async move {
        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(http.serve_connection(TokioIo::new(theirs), service).await);
    });
    ours
}

pub fn value(property: i32, area: i32) -> VehiclePropValue {
    VehiclePropValue { prop: property, area_id: area, ..Default::default() }
}

pub fn int(property: i32, area: i32, number: i32) -> VehiclePropValue {
    VehiclePropValue { int32_values: vec![number], ..value(property, area) }
}

pub fn float(property: i32, area: i32, number: f32) -> VehiclePropValue {
    VehiclePropValue { float_values: vec![number], ..value(property, area) }
}

pub fn requests(values: impl IntoIterator<Item = VehiclePropValue>) -> VehiclePropValueRequests {
    let requests = values.into_iter().enumerate();
    VehiclePropValueRequests {
        requests: requests
            .map(|(index, value)| VehiclePropValueRequest {
                request_id: 100 + index as i64,
                value: Some(value),
            })
            .collect(),
    }
}

impl Driver {
    pub async fn set(&mut self, value: VehiclePropValue) -> StatusCode {
        let answer = self.client.set_values(requests([value])).await.unwrap().into_inner();
        assert_eq!(answer.results.len(), 1);
        answer.results[0].status()
    }

    pub async fn get(&mut self, property: i32, area: i32) -> GetValueResult {
        let answer = self.client.get_values(requests([value(property, area)])).await.unwrap().into_inner();
        answer.results.into_iter().next().unwrap()
    }

    pub async fn read(&mut self, property: i32, area: i32) -> VehiclePropValue {
        self.get(property, area).await.value.unwrap()
    }

    pub async fn subscribe(&mut self, property: i32, rate: f32) -> StatusCode {
        self.subscribe_as(SubscribeOptions { prop_id: property, sample_rate: rate, ..Default::default() })
            .await
    }

    pub async fn subscribe_as(&mut self, options: SubscribeOptions) -> StatusCode {
        let request = SubscribeRequest { options: Some(options) };
        self.client.subscribe(request).await.unwrap().into_inner().status_code()
    }

    pub async fn unsubscribe(&mut self, property: i32) -> StatusCode {
        let request = UnsubscribeRequest { prop_id: property, area_id: 0 };
        self.client.unsubscribe(request).await.unwrap().into_inner().status_code()
    }

    pub async fn update_sample_rate(&mut self, property: i32, rate: f32) -> StatusCode {
        let request = UpdateSampleRateRequest { prop: property, area_id: 0, sample_rate: rate };
        self.client.update_sample_rate(request).await.unwrap().into_inner().status_code()
    }

    pub async fn stream(&mut self) -> Streaming<VehiclePropValues> {
        self.client.start_property_values_stream(()).await.unwrap().into_inner()
    }

    pub async fn dump(&mut self, options: &[&str]) -> String {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let options = paddock_vehicle::proto::DumpOptions { options };
        self.client.dump(options).await.unwrap().into_inner().buffer
    }
}

/// The next batch, soon.
pub async fn batch(stream: &mut Streaming<VehiclePropValues>) -> Vec<VehiclePropValue> {
    let message = tokio::time::timeout(Duration::from_secs(30), stream.message());
    message.await.expect("in time").expect("no error").expect("not the end").values
}

/// Nothing comes, as far as can be seen.
pub async fn silent(stream: &mut Streaming<VehiclePropValues>) {
    let message = tokio::time::timeout(Duration::from_millis(50), stream.message());
    assert!(message.await.is_err(), "nothing was expected");
}
