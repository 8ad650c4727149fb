//! Vehicles by gRPC and by REST: who may, what is answered, and what becomes of a car when its device is captured, swapped or ends.

mod world;

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use paddock_engine::reconcile::LOOPS;
use paddock_model::ports::ManualClock;
use paddock_model::vehicles::{AreaId, PropertyId};
use paddock_vehicle::proto::vehicle_server_client::VehicleServerClient;
use paddock_vehicle::proto::{
    DumpOptions, StatusCode, SubscribeOptions, SubscribeRequest, VehiclePropValue, VehiclePropValueRequest,
    VehiclePropValueRequests, VehiclePropValues,
};
use paddock_vehicle::{Catalogue, Client as Guest, Vehicle};
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use world::{Answer, BOTH, On, World};

const SPEED: i32 = 0x1160_0207;
const GEAR: i32 = 0x1140_0400;
const VIN: i32 = 0x1110_0100;

/// A tenant with a member who has an automotive device, and somebody who may only look.
struct Place {
    world: World,
    tenant: String,
    looks: String,
    token: String,
    viewer: String,
    car: String,
}

impl Place {
    async fn new(on: On) -> Place {
        Place::with(on, &[]).await
    }

    async fn with(on: On, flags: &[&str]) -> Place {
        let world = World::with(on, flags, LOOPS).await;
        let tenant = world.tenant("acme").await;
        let (user, looks) = (world.user("ada").await, world.user("grace").await);
        world.join(&tenant, &user, "admin").await;
        world.join(&tenant, &looks, "auditor").await;
        let (token, viewer) = (world.token_of(&user).await, world.token_of(&looks).await);
        let car = car(&world, &token, &tenant, None).await;
        Place { world, tenant, looks, token, viewer, car }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/emulators/{}{rest}", self.car)
    }

    async fn client(&self) -> Client {
        Client::new(&self.world, &self.token, &self.car).await
    }

    async fn call(&self, method: &str, rest: &str, body: Option<Value>) -> Answer {
        self.world.call_as(&self.token, method, &self.path(rest), body).await
    }

    async fn speed(&self, emulator: &str) -> Value {
        let path = format!("/api/v1/emulators/{emulator}/vehicle/properties/PERF_VEHICLE_SPEED");
        self.world.call_as(&self.token, "GET", &path, None).await.expect(200).json()["areas"][0].clone()
    }
}

async fn car(world: &World, token: &str, tenant: &str, snapshot: Option<&str>) -> String {
    let Some(snapshot) = snapshot else { return world.car(token, tenant).await };
    let body = json!({ "tenantId": tenant, "snapshot": snapshot });
    let id = world.call_as(token, "POST", "/api/v1/emulators", Some(body)).await.expect(201).id();
    world.until(&id, "running").await;
    id
}

/// The generated client, as any program has it.
struct Client {
    inner: VehicleServerClient<Channel>,
    token: String,
    emulator: Option<String>,
}

impl Client {
    async fn new(world: &World, token: &str, emulator: &str) -> Client {
        let address = format!("http://{}", world.server.address);
        let channel = Endpoint::try_from(address).expect("an address").connect().await.expect("a server");
        Client {
            inner: VehicleServerClient::new(channel),
            token: token.to_owned(),
            emulator: Some(emulator.to_owned()),
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = |text: &str| text.parse::<MetadataValue<_>>().expect("a value");
        request.metadata_mut().insert("authorization", value(&format!("Bearer {}", self.token)));
        if let Some(emulator) = &self.emulator {
            request.metadata_mut().insert("x-paddock-emulator", value(emulator));
        }
        request
    }

    async fn get(&mut self, prop: i32) -> Result<VehiclePropValue, Status> {
        let value = VehiclePropValue { prop, ..VehiclePropValue::default() };
        let request = VehiclePropValueRequest { request_id: 7, value: Some(value) };
        let request = self.request(VehiclePropValueRequests { requests: vec![request] });
        let results = self.inner.get_values(request).await?.into_inner().results;
        assert_eq!((results.len(), results[0].request_id), (1, 7));
        Ok(results[0].value.clone().unwrap_or_default())
    }

    async fn set(&mut self, value: VehiclePropValue) -> Result<StatusCode, Status> {
        let request = VehiclePropValueRequest { request_id: 9, value: Some(value) };
        let request = self.request(VehiclePropValueRequests { requests: vec![request] });
        let results = self.inner.set_values(request).await?.into_inner().results;
        assert_eq!((results.len(), results[0].request_id), (1, 9));
        Ok(results[0].status())
    }

    async fn stream(&mut self) -> Result<Streaming<VehiclePropValues>, Status> {
        let request = self.request(());
        Ok(self.inner.start_property_values_stream(request).await?.into_inner())
    }

    async fn subscribe(&mut self, prop_id: i32, sample_rate: f32) -> StatusCode {
        let options = SubscribeOptions { prop_id, area_ids: vec![0], sample_rate, ..Default::default() };
        let request = self.request(SubscribeRequest { options: Some(options) });
        self.inner.subscribe(request).await.expect("an answer").into_inner().status_code()
    }
}

fn speed(metres_a_second: f32) -> VehiclePropValue {
    VehiclePropValue { prop: SPEED, float_values: vec![metres_a_second], ..VehiclePropValue::default() }
}

fn gear(gear: i32) -> VehiclePropValue {
    VehiclePropValue { prop: GEAR, int32_values: vec![gear], ..VehiclePropValue::default() }
}

/// The next event of a property; the world's time goes on meanwhile.
async fn heard(
    world: &World,
    stream: &mut Streaming<VehiclePropValues>,
    prop: i32,
) -> Result<VehiclePropValue, Status> {
    for _ in 0..500 {
        let next = tokio::time::timeout(Duration::from_millis(20), stream.message()).await;
        world.clock.advance(Duration::from_millis(20));
        match next {
            Ok(Ok(Some(batch))) => {
                if let Some(value) = batch.values.into_iter().find(|value| value.prop == prop) {
                    return Ok(value);
                }
            }
            Ok(Ok(None)) => return Err(Status::ok("ended")),
            Ok(Err(status)) => return Err(status),
            Err(_) => {}
        }
    }
    panic!("nothing was heard of {prop:#x}");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.expect_err("a refusal").code()
}

#[tokio::test]
async fn a_program_gets_sets_subscribes_and_lists_as_in_a_car() {
    let place = Place::new(On::Sqlite).await;
    let mut client = place.client().await;
    let mut configurations = 0;
    let request = client.request(());
    let mut listed = client.inner.get_all_property_config(request).await.expect("a list").into_inner();
    while let Some(configuration) = listed.message().await.expect("more") {
        assert_ne!(configuration.prop, 0);
        configurations += 1;
    }
    assert_eq!(configurations, 76);
    assert_eq!(client.get(SPEED).await.expect("a value").float_values, [0.0]);
    let mut stream = client.stream().await.expect("a stream");
    assert_eq!(client.subscribe(SPEED, 10.0).await, StatusCode::Ok);
    assert_eq!(client.subscribe(GEAR, 0.0).await, StatusCode::Ok);
    assert_eq!(client.set(gear(8)).await.expect("an answer"), StatusCode::Ok);
    assert_eq!(heard(&place.world, &mut stream, GEAR).await.expect("an event").int32_values, [8]);
    assert_eq!(client.set(speed(27.5)).await.expect("an answer"), StatusCode::Ok);
    let mut told = heard(&place.world, &mut stream, SPEED).await.expect("an event");
    while told.float_values != [27.5] {
        told = heard(&place.world, &mut stream, SPEED).await.expect("an event");
    }
    let request = client.request(());
    assert_eq!(
        client.inner.check_health(request).await.expect("an answer").into_inner().status_code(),
        StatusCode::Ok
    );
    // What REST says is the same car.
    assert_eq!(place.speed(&place.car).await["value"], 27.5);
    // Who the device is, no capture and no property file decides.
    let vin = client.get(VIN).await.expect("a value").string_value;
    assert_eq!(vin.len(), 17);
}

#[tokio::test]
async fn whoever_may_not_is_refused_with_the_right_code() {
    let place = Place::new(On::Sqlite).await;
    let Place { world, tenant, .. } = &place;
    let mut client = place.client().await;
    // Nobody, and nobody's token.
    client.token = "nothing".to_owned();
    assert_eq!(refused(client.get(SPEED).await), Code::Unauthenticated);
    assert_eq!(refused(client.stream().await), Code::Unauthenticated);
    // No emulator, a text that is none, one that is not there, another tenant's: the last three cannot be told apart.
    client.token = place.token.clone();
    client.emulator = None;
    assert_eq!(refused(client.get(SPEED).await), Code::InvalidArgument);
    let stranger = world.user("eve").await;
    let elsewhere = world.tenant("globex").await;
    world.join(&elsewhere, &stranger, "admin").await;
    let stranger = world.token_of(&stranger).await;
    let mut told = Vec::new();
    for (token, emulator) in [
        (&place.token, "emu_nothing"),
        (&place.token, "emu_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        (&stranger, place.car.as_str()),
    ] {
        (client.token, client.emulator) = (token.clone(), Some(emulator.to_owned()));
        let status = client.set(speed(1.0)).await.expect_err("a refusal");
        told.push((status.code(), status.message().to_owned()));
        assert_eq!(refused(client.stream().await), Code::NotFound);
    }
    assert!(told.iter().all(|each| *each == told[0] && each.0 == Code::NotFound), "{told:?}");
    // Who may look may not drive, by no method.
    (client.token, client.emulator) = (place.viewer.clone(), Some(place.car.clone()));
    assert_eq!(client.get(SPEED).await.expect("a value").float_values, [0.0]);
    assert_eq!(refused(client.set(speed(1.0)).await), Code::PermissionDenied);
    let dump =
        |options: &[&str]| DumpOptions { options: options.iter().map(|&word| word.to_owned()).collect() };
    let request = client.request(dump(&["--list"]));
    assert!(
        client
            .inner
            .dump(request)
            .await
            .expect("an answer")
            .into_inner()
            .buffer
            .contains("PERF_VEHICLE_SPEED")
    );
    let request = client.request(dump(&["--set", "PERF_VEHICLE_SPEED", "-f", "3"]));
    assert_eq!(refused(client.inner.dump(request).await), Code::PermissionDenied);
    assert_eq!(client.get(SPEED).await.expect("a value").float_values, [0.0]);
    // A phone has no car; a device that is down does not answer.
    let phone = world.emulator(&place.token, tenant).await;
    (client.token, client.emulator) = (place.token.clone(), Some(phone));
    assert_eq!(refused(client.get(SPEED).await), Code::FailedPrecondition);
    client.emulator = Some(place.car.clone());
    place.call("POST", "/park", None).await.expect(200);
    assert_eq!(refused(client.get(SPEED).await), Code::Unavailable);
    assert_eq!(refused(client.stream().await), Code::Unavailable);
    // The refusals are in the audit.
    let page = world
        .call("GET", &format!("/api/v1/audit?tenantId={tenant}&limit=200"), None)
        .await
        .expect(200)
        .json();
    let denied =
        page["items"].as_array().expect("a list").iter().filter(|entry| entry["outcome"] == "refused");
    assert!(denied.count() >= 1, "{page}");
}

#[tokio::test]
async fn what_is_no_value_is_refused_and_changes_nothing() {
    let place = Place::new(On::Sqlite).await;
    let mut client = place.client().await;
    let nothing = VehiclePropValue::default;
    for (what, value) in [
        ("no number", VehiclePropValue { prop: SPEED, ..nothing() }),
        ("two numbers", VehiclePropValue { prop: SPEED, float_values: vec![1.0, 2.0], ..nothing() }),
        ("another type", VehiclePropValue { prop: SPEED, int32_values: vec![1], ..nothing() }),
        ("another area", VehiclePropValue { area_id: 4, ..speed(1.0) }),
        ("no such property", VehiclePropValue { prop: 0x1140_ffff, int32_values: vec![1], ..nothing() }),
        // HVAC_FAN_SPEED goes from 1 to 7.
        (
            "out of range",
            VehiclePropValue { prop: 0x1540_0500, area_id: 1, int32_values: vec![8], ..nothing() },
        ),
    ] {
        assert_eq!(client.set(value).await.expect("an answer"), StatusCode::InvalidArg, "{what}");
    }
    assert_eq!(client.get(SPEED).await.expect("a value").float_values, [0.0]);
    for (path, body, status) in [
        ("/vehicle/properties/PERF_VEHICLE_SPEED/0", json!({ "value": "fast" }), 422),
        ("/vehicle/properties/PERF_VEHICLE_SPEED/0", json!({ "value": [1, 2] }), 422),
        ("/vehicle/properties/PERF_VEHICLE_SPEED/0", json!({ "speed": 1 }), 400),
        ("/vehicle/properties/PERF_VEHICLE_SPEED/4", json!({ "value": 1 }), 404),
        ("/vehicle/properties/NO_SUCH_THING/0", json!({ "value": 1 }), 404),
        ("/vehicle/properties/HVAC_FAN_SPEED/0x1", json!({ "value": 8 }), 422),
    ] {
        let answer = place.call("PUT", path, Some(body.clone())).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text);
    }
    // A message that is too large, and one that is none.
    let many = (0..200_000).map(|id| VehiclePropValueRequest { request_id: id, value: Some(speed(1.0)) });
    let request = client.request(VehiclePropValueRequests { requests: many.collect() });
    assert_eq!(refused(client.inner.set_values(request).await), Code::OutOfRange);
    let path = "/android.hardware.automotive.vehicle.proto.VehicleServer/Explode";
    let request = place.world.anonymous("POST", path).bearer_auth(&place.token);
    let answer = request
        .header("content-type", "application/grpc-web+proto")
        .header("x-paddock-emulator", &place.car)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["grpc-status"], "12");
}

#[tokio::test]
async fn a_stream_ends_with_the_right_to_it_with_its_device_and_with_its_deadline() {
    let place = Place::new(On::Sqlite).await;
    let mut client = place.client().await;
    // The device is started anew.
    let mut stream = client.stream().await.expect("a stream");
    place.call("POST", "/restart", None).await.expect(200);
    assert_eq!(refused(heard(&place.world, &mut stream, SPEED).await), Code::Aborted);
    place.world.until(&place.car, "running").await;
    // The right is lost.
    let mut watching = Client::new(&place.world, &place.viewer, &place.car).await;
    let mut stream = watching.stream().await.expect("a stream");
    let members = format!("/api/v1/tenants/{}/members", place.tenant);
    let grace = &place.looks;
    place.world.call("DELETE", &format!("{members}/{grace}"), None).await.expect(204);
    assert_eq!(refused(heard(&place.world, &mut stream, SPEED).await), Code::PermissionDenied);
    // The caller's time is over.
    let mut request = client.request(());
    request.set_timeout(Duration::from_millis(200));
    let mut stream = client.inner.start_property_values_stream(request).await.expect("a stream").into_inner();
    let ended = refused(heard(&place.world, &mut stream, SPEED).await);
    // The client counts too, and whoever is first says so in its own words.
    assert!(matches!(ended, Code::DeadlineExceeded | Code::Cancelled), "{ended:?}");
    // The device goes.
    let mut stream = client.stream().await.expect("a stream");
    place.call("DELETE", "", None).await.expect(202);
    assert_eq!(refused(heard(&place.world, &mut stream, SPEED).await), Code::Unavailable);
}

#[tokio::test]
async fn a_car_travels_with_captures_swaps_and_backups_and_its_clock_never_goes_back() {
    for on in BOTH {
        let place = Place::new(on).await;
        let Place { world, token, tenant, car: first, .. } = &place;
        let set = |value: Value| json!({ "value": value });
        let put = "/vehicle/properties/PERF_VEHICLE_SPEED/0";
        place.call("PUT", put, Some(set(json!(12.5)))).await.expect(200);
        let captured = world.captured(token, first).await;
        let at_capture = place.speed(first).await;
        place.call("PUT", put, Some(set(json!(99.0)))).await.expect(200);
        // A clone has the values of then, another vehicle identification number, and a clock that goes on from then.
        let clone = car(world, token, tenant, Some(&captured)).await;
        let number =
            |area: &Value| area["timestamp"].as_str().expect("a time").parse::<i64>().expect("a number");
        let there = place.speed(&clone).await;
        assert_eq!(there["value"], 12.5, "{on:?}");
        assert!(number(&there) >= number(&at_capture), "{there} after {at_capture}");
        let vin = |id: &str| format!("/api/v1/emulators/{id}/vehicle/properties/INFO_VIN");
        let mine = world.call_as(token, "GET", &vin(first), None).await.expect(200).json();
        let its = world.call_as(token, "GET", &vin(&clone), None).await.expect(200).json();
        assert_ne!(mine["areas"][0]["value"], its["areas"][0]["value"]);
        // A restart keeps what was set; a swap brings what was captured, and never an older time.
        let before = place.speed(first).await;
        place.call("POST", "/restart", None).await.expect(200);
        world.until(first, "running").await;
        assert_eq!(place.speed(first).await["value"], 99.0);
        place.call("PUT", "/snapshot", Some(json!({ "snapshot": captured }))).await.expect(200);
        world.until(first, "running").await;
        let after = place.speed(first).await;
        assert_eq!(after["value"], 12.5);
        assert!(number(&after) >= number(&before), "{after} after {before}");
        // A backup holds it, too, after the device and the snapshot are gone.
        let body = json!({ "tenantId": tenant, "source": { "snapshot": captured } });
        let backup = world.call_as(token, "POST", "/api/v1/backups", Some(body)).await.expect(202).json();
        let backup = backup["podName"].as_str().expect("a name").to_owned();
        world.until_phase(&format!("/api/v1/backups/{backup}"), "completed").await;
        for id in [first, &clone] {
            world.call_as(token, "DELETE", &format!("/api/v1/emulators/{id}"), None).await.expect(202);
            world.until(id, "terminated").await;
        }
        world.call_as(token, "DELETE", &format!("/api/v1/snapshots/{captured}"), None).await.expect(202);
        world.until_snapshot(&captured, "gone").await;
        let body = json!({ "backup": backup, "name": "again" });
        let restore = world.call_as(token, "POST", "/api/v1/restores", Some(body)).await.expect(202).json();
        let restore = restore["podName"].as_str().expect("a name").to_owned();
        world.until_phase(&format!("/api/v1/restores/{restore}"), "completed").await;
        world.until_snapshot("again", "ready").await;
        let again = car(world, token, tenant, Some("again")).await;
        assert_eq!(place.speed(&again).await["value"], 12.5);
        // Nothing is left of cars whose devices are gone.
        let left = std::fs::read_dir(world.folder.path().join("vehicles")).expect("a folder").count();
        assert_eq!(left, 1, "{on:?}");
    }
}

/// A car that somebody else serves, as an image that brings its own does; what it was sent besides is told.
async fn own_car(headers: tokio::sync::mpsc::UnboundedSender<http::HeaderMap>) -> (String, Arc<Vehicle>) {
    let clock = Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse().expect("a time")));
    let vehicle = Vehicle::in_memory(Catalogue::standard(), clock, None);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, served) = (listener.local_addr().expect("an address"), vehicle.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (vehicle, headers) = (served.clone(), headers.clone());
            let answer = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let _ = headers.send(request.headers().clone());
                tower::ServiceExt::oneshot(paddock_vehicle::service(vehicle.clone(), Guest::guest()), request)
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
        }
    });
    (address.to_string(), vehicle)
}

#[tokio::test]
async fn a_device_that_brings_its_car_is_asked_itself() {
    let (tell, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let (address, vehicle) = own_car(tell).await;
    let place = Place::with(On::Sqlite, &["--devices-simulated-peer", &address]).await;
    let mut client = place.client().await;
    assert_eq!(client.set(speed(5.0)).await.expect("an answer"), StatusCode::Ok);
    assert_eq!(client.get(SPEED).await.expect("a value").float_values, [5.0]);
    let there = vehicle.get((PropertyId(SPEED), AreaId(0))).expect("a value");
    assert_eq!(there.float_values, [5.0]);
    // What is for us alone is not passed on.
    let headers = sent.recv().await.expect("a call");
    assert!(
        !headers.contains_key("authorization") && !headers.contains_key("x-paddock-emulator"),
        "{headers:?}"
    );
    // Streams are passed on as they come, and end as all do; errors too.
    let mut stream = client.stream().await.expect("a stream");
    assert_eq!(client.set(gear(8)).await.expect("an answer"), StatusCode::Ok);
    assert_eq!(heard(&place.world, &mut stream, GEAR).await.expect("an event").int32_values, [8]);
    let mut watching = Client::new(&place.world, &place.viewer, &place.car).await;
    assert_eq!(refused(watching.set(speed(1.0)).await), Code::PermissionDenied);
    let answer = place.call("GET", "/vehicle/properties", None).await.expect(409);
    assert_eq!(answer.code(), "vehicle_in_device");
    place.call("POST", "/restart", None).await.expect(200);
    assert_eq!(refused(heard(&place.world, &mut stream, SPEED).await), Code::Aborted);
}

#[tokio::test]
async fn a_drive_is_recorded_and_played_into_others() {
    let place = Place::new(On::Sqlite).await;
    let Place { world, token, tenant, .. } = &place;
    let put = |value: f64| {
        place.call("PUT", "/vehicle/properties/PERF_VEHICLE_SPEED/0", Some(json!({ "value": value })))
    };
    put(1.0).await.expect(200);
    let trace =
        place.call("POST", "/vehicle/traces", Some(json!({ "name": "motorway" }))).await.expect(201).json();
    let trace = trace["id"].as_str().expect("an id").to_owned();
    for value in [10.0, 20.0, 30.0] {
        world.clock.advance(Duration::from_secs(1));
        put(value).await.expect(200);
    }
    let finished =
        place.call("POST", &format!("/vehicle/traces/{trace}/finish"), None).await.expect(200).json();
    assert_eq!(finished["recording"], false);
    assert!(finished["events"].as_i64().is_some_and(|events| events >= 3), "{finished}");
    let content = place.call("GET", &format!("/vehicle/traces/{trace}/content"), None).await.expect(200);
    assert_eq!(content.header("content-type"), "application/x-ndjson");
    assert!(content.text.contains("PERF_VEHICLE_SPEED"), "{}", content.text);
    // Lent to another emulator, at twice the pace; and sent to a third as a file.
    let (second, third) = (car(world, token, tenant, None).await, car(world, token, tenant, None).await);
    let path = |id: &str, rest: &str| format!("/api/v1/emulators/{id}/vehicle/{rest}");
    let sent = json!({ "name": "by post", "content": content.text });
    let sent = world.call_as(token, "POST", &path(&third, "traces"), Some(sent)).await.expect(201).json();
    for (id, body) in [
        (&second, json!({ "traceId": trace, "emulatorId": place.car, "speed": 2.0 })),
        (&third, json!({ "traceId": sent["id"] })),
    ] {
        let replay = world.call_as(token, "PUT", &path(id, "replay"), Some(body)).await.expect(200).json();
        assert!(replay["endedAt"].is_null(), "{replay}");
        let mut seen = Value::Null;
        for _ in 0..500 {
            world.clock.advance(Duration::from_millis(50));
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen = world.call_as(token, "GET", &path(id, "replay"), None).await.expect(200).json();
            if !seen["endedAt"].is_null() {
                break;
            }
        }
        assert!(seen["problem"].is_null() && seen["eventsDone"] == seen["eventsTotal"], "{seen}");
        assert_eq!(place.speed(id).await["value"], 30.0);
    }
    // Another tenant's drive is not there, and what is none is refused.
    let stranger = world.user("eve").await;
    let elsewhere = world.tenant("globex").await;
    world.join(&elsewhere, &stranger, "admin").await;
    let stranger = world.token_of(&stranger).await;
    let theirs = car(world, &stranger, &elsewhere, None).await;
    let body = json!({ "traceId": trace, "emulatorId": place.car });
    world.call_as(&stranger, "PUT", &path(&theirs, "replay"), Some(body)).await.expect(404);
    let body = json!({ "content": "no drive\n" });
    place.call("POST", "/vehicle/traces", Some(body)).await.expect(422);
    place.call("DELETE", &format!("/vehicle/traces/{trace}"), None).await.expect(204);
    place.call("GET", &format!("/vehicle/traces/{trace}"), None).await.expect(404);
}

#[tokio::test]
async fn health_and_reflection_need_no_credential_and_tell_nothing_of_anyone() {
    let place = Place::new(On::Sqlite).await;
    let ask = async |path: &str, body: Vec<u8>| {
        let request =
            place.world.anonymous("POST", path).header("content-type", "application/grpc-web+proto");
        let answer = request.header("x-grpc-web", "1").body(body).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a body").to_vec()
    };
    // A frame with no message: of everything, is it well? It serves.
    let health = ask("/grpc.health.v1.Health/Check", vec![0; 5]).await;
    assert_eq!(health[..7], [0, 0, 0, 0, 2, 8, 1]);
    // list_services = 7, an empty text.
    let listed =
        ask("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", vec![0, 0, 0, 0, 2, 58, 0]).await;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert!(listed.contains("android.hardware.automotive.vehicle.proto.VehicleServer"), "{listed}");
}

#[tokio::test]
async fn a_browser_speaks_to_a_car() {
    let place = Place::with(On::Sqlite, &["--cors-origins", "https://console.example.com"]).await;
    let path = "/android.hardware.automotive.vehicle.proto.VehicleServer/CheckHealth";
    let asks = place
        .world
        .http
        .request(reqwest::Method::OPTIONS, place.world.url(path))
        .header("origin", "https://console.example.com")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type,x-grpc-web,x-paddock-emulator");
    let answer = asks.send().await.expect("an answer");
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://console.example.com");
    let allowed = answer.headers()["access-control-allow-headers"].to_str().expect("text").to_owned();
    assert!(allowed.contains("x-grpc-web") && allowed.contains("x-paddock-emulator"), "{allowed}");
    let call = place
        .world
        .anonymous("POST", path)
        .bearer_auth(&place.token)
        .header("origin", "https://console.example.com")
        .header("content-type", "application/grpc-web+proto")
        .header("x-grpc-web", "1")
        .header("x-paddock-emulator", &place.car)
        .body(vec![0; 5]);
    let answer = call.send().await.expect("an answer");
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://console.example.com");
    assert!(answer.headers()["content-type"].to_str().expect("text").starts_with("application/grpc-web"));
    let body = answer.bytes().await.expect("a body");
    // An empty message (OK is 0), then the trailers.
    assert_eq!(body[..5], [0, 0, 0, 0, 0]);
    assert!(String::from_utf8_lossy(&body[5..]).contains("grpc-status:0"), "{body:?}");
}
