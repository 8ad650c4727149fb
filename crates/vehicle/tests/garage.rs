//! Cars in a garage: what they remember, whom they obey, and what time they tell.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paddock_model::drivers::Retry;
use paddock_model::drivers::garages::{self as port, Garage as _};
use paddock_model::ports::ManualClock;
use paddock_model::vehicles::{AreaId, PropertyChange, PropertyId, PropertyStatus, VehicleOrder};
use paddock_vehicle::proto::StatusCode;
use paddock_vehicle::{Garage, VEHICLE_HELD, connect};
use serde_json::{Value, json};
use tonic::Code;
use world::{
    Driver, FAN_SPEED, GEAR, HVAC_POWER, NIGHT, SPEED, TURN_SIGNAL, VIN, batch, catalogue, clock, emulator,
    float, identity, int, order, silent,
};

fn open(folder: &Path, clock: &Arc<ManualClock>) -> Arc<Garage> {
    Garage::open(folder, catalogue(), clock.clone()).unwrap()
}

async fn guest(garage: &Garage) -> Driver {
    Driver { client: connect(garage.open(emulator(1)).await.unwrap()).await.unwrap() }
}

fn change(value: Value) -> PropertyChange {
    PropertyChange { value: Some(value), status: PropertyStatus::Available }
}

async fn set(garage: &Garage, property: i32, value: Value) {
    garage.set(emulator(1), PropertyId(property), AreaId(0), &change(value)).await.unwrap();
}

async fn shown(garage: &Garage, property: i32) -> Option<Value> {
    let properties = garage.properties(emulator(1)).await.unwrap();
    let property = properties.into_iter().find(|each| each.id == PropertyId(property)).unwrap();
    property.areas.into_iter().next().unwrap().value
}

async fn latest(garage: &Garage) -> i64 {
    let properties = garage.properties(emulator(1)).await.unwrap();
    properties.iter().flat_map(|each| &each.areas).map(|area| area.timestamp).max().unwrap()
}

async fn earliest(garage: &Garage) -> i64 {
    let properties = garage.properties(emulator(1)).await.unwrap();
    properties.iter().flat_map(|each| &each.areas).map(|area| area.timestamp).min().unwrap()
}

#[tokio::test]
async fn a_car_is_served_on_its_socket_and_shown_to_people() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    garage.ensure(&order(1, None, None)).await.unwrap();
    let mut guest = guest(&garage).await;
    assert_eq!(guest.read(VIN, 0).await.string_value, "VIN1");
    let mut stream = guest.stream().await;
    set(&garage, GEAR, json!(8)).await;
    assert_eq!(batch(&mut stream).await[0].int32_values, [8]);
    guest.set(int(NIGHT, 0, 1)).await;
    assert_eq!(shown(&garage, NIGHT).await, Some(json!(true)));
    assert_eq!(shown(&garage, TURN_SIGNAL).await, None);
    assert_eq!(garage.find("GEAR_SELECTION"), Some(PropertyId(GEAR)));
    assert_eq!(garage.find("VehicleProperty::GEAR_SELECTION"), Some(PropertyId(GEAR)));
    assert_eq!(garage.find("0x11400400"), Some(PropertyId(GEAR)));
    assert_eq!(garage.find("289408000"), Some(PropertyId(GEAR)));
    assert_eq!(garage.find("NOTHING"), None);
    assert_eq!(garage.list().await.unwrap(), [emulator(1)]);
    assert!(garage.socket(emulator(1)).exists());
}

#[tokio::test]
async fn people_are_told_what_is_wrong_with_what_they_set() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    let other = open(folder.path(), &clock);
    // Whether the car is held here or by another process.
    for garage in [&garage, &other] {
        for (property, area, value, code) in [
            (0x1140_0fff, 0, json!(1), port::NO_SUCH_PROPERTY),
            (0, 0, json!(1), port::NO_SUCH_PROPERTY),
            (FAN_SPEED, 0, json!(1), port::NO_SUCH_AREA),
            (FAN_SPEED, 1, json!("fast"), port::WRONG_VALUE),
            (FAN_SPEED, 1, json!(8), port::WRONG_VALUE),
            (NIGHT, 0, json!("yes"), port::WRONG_VALUE),
            (VIN, 0, json!("MINE"), port::WRONG_VALUE),
        ] {
            let set = garage.set(emulator(1), PropertyId(property), AreaId(area), &change(value)).await;
            assert_eq!(set.unwrap_err().code, code, "{property:#x}");
        }
        garage.set(emulator(1), PropertyId(HVAC_POWER), AreaId(1), &change(json!(false))).await.unwrap();
        let set = garage.set(emulator(1), PropertyId(FAN_SPEED), AreaId(1), &change(json!(2))).await;
        assert_eq!(set.unwrap_err().code, port::NOT_AVAILABLE);
        let only_status = PropertyChange { value: None, status: PropertyStatus::Unavailable };
        let told = garage.set(emulator(1), PropertyId(SPEED), AreaId(0), &only_status).await.unwrap();
        assert_eq!(
            (told.areas[0].status, told.areas[0].value.clone()),
            (PropertyStatus::Unavailable, Some(json!(0.0)))
        );
        let told = garage.set(emulator(1), PropertyId(SPEED), AreaId(0), &change(json!(0))).await.unwrap();
        assert_eq!(told.areas[0].status, PropertyStatus::Available);
        garage.set(emulator(1), PropertyId(HVAC_POWER), AreaId(1), &change(json!(true))).await.unwrap();
    }
    let nobody = garage.properties(emulator(9)).await.unwrap_err();
    assert_eq!((nobody.code, nobody.retry), (port::NO_VEHICLE, Retry::Soon));
}

#[tokio::test]
async fn another_process_sees_the_same_properties_as_the_one_that_holds_the_car() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let (garage, other) = (open(folder.path(), &clock), open(folder.path(), &clock));
    garage.ensure(&order(1, None, None)).await.unwrap();
    let held = other.ensure(&order(1, None, None)).await.unwrap_err();
    assert_eq!((held.code, held.retry), (VEHICLE_HELD, Retry::Soon));
    assert_eq!(other.remove(emulator(1)).await.unwrap_err().code, VEHICLE_HELD);
    assert!(other.held(emulator(1)).is_none() && garage.held(emulator(1)).is_some());
    set(&other, GEAR, json!(8)).await;
    let mut here = garage.properties(emulator(1)).await.unwrap();
    for area in here.iter_mut().flat_map(|each| &mut each.areas).filter(|area| area.value.is_none()) {
        // What has no value has no time on the wire.
        area.timestamp = 0;
    }
    assert_eq!(other.properties(emulator(1)).await.unwrap(), here);
    assert_eq!(shown(&garage, GEAR).await, Some(json!(8)));
    // When it is let go, the other may have it.
    garage.let_go().await;
    other.ensure(&order(1, None, None)).await.unwrap();
    assert_eq!(shown(&other, GEAR).await, Some(json!(8)));
    assert_eq!(shown(&garage, GEAR).await, Some(json!(8)));
}

#[tokio::test]
async fn streams_end_with_aborted_when_the_car_is_let_go() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    let mut guest = guest(&garage).await;
    let mut stream = guest.stream().await;
    let mut changes = guest.client.start_supported_values_change_stream(()).await.unwrap().into_inner();
    let vehicle = garage.held(emulator(1)).unwrap();
    garage.let_go().await;
    let ended = tokio::time::timeout(Duration::from_secs(30), stream.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Aborted);
    let ended = tokio::time::timeout(Duration::from_secs(30), changes.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Aborted);
    // Whoever still has the car in its hands changes nothing by it.
    let late =
        vehicle.set(vec![((PropertyId(GEAR), AreaId(0)), Default::default(), PropertyStatus::Available)]);
    assert_eq!(late[0].as_ref().unwrap_err().code, StatusCode::TryAgain);
    assert_eq!(garage.properties(emulator(1)).await.unwrap_err().code, port::NO_VEHICLE);
}

#[tokio::test]
async fn what_was_set_is_there_after_a_kill_and_no_time_is_told_twice() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let mut last = 0;
    for round in 0..5 {
        let garage = open(folder.path(), &clock);
        garage.ensure(&order(1, None, None)).await.unwrap();
        assert!(earliest(&garage).await > last, "round {round}");
        if round > 0 {
            assert_eq!(shown(&garage, GEAR).await, Some(json!(round)));
        }
        set(&garage, GEAR, json!(round + 1)).await;
        // Sampled times are not written down, and still none comes again.
        let mut guest = guest(&garage).await;
        guest.subscribe(SPEED, 10.0).await;
        let mut stream = guest.stream().await;
        for _ in 0..5 {
            clock.advance(Duration::from_millis(100));
            last = batch(&mut stream).await[0].timestamp;
        }
        last = last.max(latest(&garage).await);
        // Dropped without a word, as when the process is killed: nothing is written at the end.
        drop(garage);
    }
}

#[tokio::test]
async fn the_guest_is_told_what_it_asked_for_before_the_kill() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    {
        let garage = open(folder.path(), &clock);
        garage.ensure(&order(1, None, None)).await.unwrap();
        let mut guest = guest(&garage).await;
        guest.subscribe(GEAR, 0.0).await;
        guest.subscribe(SPEED, 10.0).await;
        guest.subscribe(NIGHT, 0.0).await;
        guest.unsubscribe(NIGHT).await;
    }
    for _ in 0..2 {
        let garage = open(folder.path(), &clock);
        garage.ensure(&order(1, None, None)).await.unwrap();
        let mut guest = guest(&garage).await;
        let mut stream = guest.stream().await;
        let night = guest.read(NIGHT, 0).await.int32_values[0];
        guest.set(int(NIGHT, 0, 1 - night)).await;
        silent(&mut stream).await;
        let gear = guest.read(GEAR, 0).await.int32_values[0];
        guest.set(int(GEAR, 0, gear + 1)).await;
        assert_eq!(batch(&mut stream).await[0].prop, GEAR);
        clock.advance(Duration::from_millis(100));
        assert_eq!(batch(&mut stream).await[0].prop, SPEED);
    }
}

#[tokio::test]
async fn a_swap_finds_another_car_and_a_swap_back_the_first() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    let mut guest = guest(&garage).await;
    let mut stream = guest.stream().await;
    set(&garage, GEAR, json!(8)).await;
    batch(&mut stream).await;
    let before = latest(&garage).await;

    // As its maker made it; whoever watches is told.
    garage.ensure(&order(2, Some(1), None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(4)));
    let told = batch(&mut stream).await;
    assert_eq!((told.len(), &told[0].int32_values), (1, &vec![4]));
    assert!(earliest(&garage).await > before);
    set(&garage, GEAR, json!(2)).await;
    let before = latest(&garage).await;

    garage.ensure(&order(1, Some(2), None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(8)));
    assert!(earliest(&garage).await > before);
    let before = latest(&garage).await;
    drop((garage, guest, stream));

    // The same across a kill, in both directions.
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(2, Some(1), None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(2)));
    assert!(earliest(&garage).await > before);
    // What is neither is forgotten.
    garage.ensure(&order(3, Some(2), None)).await.unwrap();
    garage.ensure(&order(1, Some(3), None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(4)));
}

#[tokio::test]
async fn a_clone_begins_with_what_was_captured_under_its_own_number_and_later() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    clock.advance(Duration::from_secs(3600));
    set(&garage, GEAR, json!(8)).await;
    set(&garage, SPEED, json!(12.3)).await;
    let limits = garage.held(emulator(1)).unwrap();
    let key = (PropertyId(GEAR), AreaId(0));
    let own = paddock_vehicle::Limits {
        supported: vec![paddock_vehicle::Raw { int32_values: vec![8], ..Default::default() }],
        ..Default::default()
    };
    limits.set_limits(key, own.clone()).unwrap();
    let state = garage.state(emulator(1)).await.unwrap().unwrap();
    assert!(!state.0.to_string().contains("VIN1"), "the number stays with the car that has it");
    let seen = latest(&garage).await;

    let clone = VehicleOrder {
        emulator: emulator(2),
        identity: identity("VIN2"),
        footing: 7,
        previous: None,
        begins_with: Some(state.clone()),
    };
    garage.ensure(&clone).await.unwrap();
    let mut guest = Driver { client: connect(garage.open(emulator(2)).await.unwrap()).await.unwrap() };
    assert_eq!(guest.read(VIN, 0).await.string_value, "VIN2");
    let speed = guest.read(SPEED, 0).await;
    assert_eq!(speed.float_values, [12.3]);
    assert!(speed.timestamp > seen);
    assert_eq!(garage.held(emulator(2)).unwrap().limits(key).unwrap(), own);
    // The same footing is not begun twice.
    guest.set(float(SPEED, 0, 1.0)).await;
    drop(guest);
    garage.let_go().await;
    garage.ensure(&clone).await.unwrap();
    let mut guest = Driver { client: connect(garage.open(emulator(2)).await.unwrap()).await.unwrap() };
    assert_eq!(guest.read(SPEED, 0).await.float_values, [1.0]);
    // A state can be taken although nobody holds the car, and a live car can be given one.
    let told = garage.state(emulator(1)).await.unwrap().unwrap();
    assert_eq!(told.0["values"], state.0["values"]);
    let seen = guest.read(SPEED, 0).await.timestamp;
    garage.ensure(&VehicleOrder { footing: 8, previous: Some(7), ..clone }).await.unwrap();
    let speed = guest.read(SPEED, 0).await;
    assert_eq!(speed.float_values, [12.3]);
    assert!(speed.timestamp > seen);
    assert_eq!(garage.state(emulator(5)).await.unwrap(), None);
}

#[tokio::test]
async fn a_state_of_another_making_leaves_what_it_does_not_know() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    let state = paddock_model::vehicles::VehicleState(json!({
        "version": 1,
        "clock": 5_000_000_000_000_i64,
        "values": [
            {"property": "GEAR_SELECTION", "area": 0, "value": 8},
            {"property": "ALIEN", "area": 0, "value": 8},
            {"property": "NIGHT_MODE", "area": 0, "value": "maybe"},
            {"property": "HVAC_FAN_SPEED", "area": 77, "value": 1},
        ],
    }));
    garage.ensure(&order(1, None, Some(state))).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(8)));
    assert_eq!(shown(&garage, NIGHT).await, Some(json!(false)));
    assert!(earliest(&garage).await > 5_000_000_000_000);
    let nonsense = paddock_model::vehicles::VehicleState(json!("nonsense"));
    garage.ensure(&order(2, None, Some(nonsense))).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(4)));
}

#[tokio::test]
async fn a_removed_car_leaves_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    set(&garage, GEAR, json!(8)).await;
    garage.remove(emulator(1)).await.unwrap();
    garage.remove(emulator(1)).await.unwrap();
    assert_eq!(garage.list().await.unwrap(), []);
    assert_eq!(garage.properties(emulator(1)).await.unwrap_err().code, port::NO_VEHICLE);
    garage.ensure(&order(1, None, None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(4)));
}

#[tokio::test]
async fn a_folder_may_lie_deeper_than_a_socket_address_is_long() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
    let garage = open(&deep, &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    assert!(garage.socket(emulator(1)).as_os_str().len() > 240);
    assert_eq!(guest(&garage).await.read(GEAR, 0).await.int32_values, [4]);
    // A link to it from elsewhere is as good.
    let link = folder.path().join("s");
    std::os::unix::fs::symlink(garage.socket(emulator(1)), &link).unwrap();
    let stream = tokio::net::UnixStream::connect(&link).await.unwrap();
    let mut driver = Driver { client: connect(stream).await.unwrap() };
    assert_eq!(driver.read(GEAR, 0).await.int32_values, [4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_cars_are_taken_at_once_and_each_is_its_own() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock);
    let orders = (0..100).map(|number| VehicleOrder {
        emulator: emulator(number),
        identity: identity(&format!("VIN{number}")),
        ..order(1, None, None)
    });
    // Twice each, as two loops that meet would.
    let ensured = orders.clone().chain(orders).map(|order| {
        let garage = garage.clone();
        tokio::spawn(async move { garage.ensure(&order).await })
    });
    for ensured in ensured.collect::<Vec<_>>() {
        ensured.await.unwrap().unwrap();
    }
    assert_eq!(garage.list().await.unwrap().len(), 100);
    for number in 0..100 {
        let vin = garage.held(emulator(number)).unwrap().get((PropertyId(VIN), AreaId(0))).unwrap();
        assert_eq!(vin.string_value, format!("VIN{number}"));
    }
    garage.let_go().await;
    assert!(garage.held(emulator(5)).is_none());
}

#[tokio::test]
async fn a_journal_that_has_grown_is_made_short_and_loses_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    {
        let garage = open(folder.path(), &clock);
        garage.ensure(&order(1, None, None)).await.unwrap();
        let vehicle = garage.held(emulator(1)).unwrap();
        for number in 0..60_000 {
            let raw = paddock_vehicle::Raw { int32_values: vec![number], ..Default::default() };
            let told = vehicle.set(vec![((PropertyId(GEAR), AreaId(0)), raw, PropertyStatus::Available)]);
            assert_eq!(told, [Ok(())]);
        }
        let journal = folder.path().join(emulator(1).to_string()).join("journal");
        let length = std::fs::metadata(journal).unwrap().len();
        assert!(length < 2 << 20, "{length}");
    }
    let garage = open(folder.path(), &clock);
    garage.ensure(&order(1, None, None)).await.unwrap();
    assert_eq!(shown(&garage, GEAR).await, Some(json!(59_999)));
}

#[tokio::test]
#[ignore = "it is the process that the next one kills"]
async fn a_process_to_be_killed() {
    let folder = std::env::var_os("PADDOCK_TEST_GARAGE").unwrap();
    let garage = open(Path::new(&folder), &clock());
    garage.ensure(&order(1, None, None)).await.unwrap();
    let vehicle = garage.held(emulator(1)).unwrap();
    for number in 1.. {
        let raw = paddock_vehicle::Raw { int32_values: vec![number], ..Default::default() };
        assert_eq!(
            vehicle.set(vec![((PropertyId(GEAR), AreaId(0)), raw, PropertyStatus::Available)]),
            [Ok(())]
        );
        let time = vehicle.get((PropertyId(GEAR), AreaId(0))).unwrap().timestamp;
        println!("set {number} {time}");
    }
}

#[tokio::test]
async fn what_a_killed_process_has_acknowledged_is_there() {
    use std::io::BufRead;
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_to_be_killed", "--ignored", "--nocapture"])
        .env("PADDOCK_TEST_GARAGE", folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
    let told = |line: &str| -> Option<(i64, i64)> {
        let (_, told) = line.split_once("set ")?;
        let (number, time) = told.split_once(' ')?;
        Some((number.parse().ok()?, time.parse().ok()?))
    };
    let mut last = (0, 0);
    while last.0 < 5_000 {
        last = told(&lines.next().unwrap().unwrap()).unwrap_or(last);
    }
    // It holds the car until it is gone, however it goes.
    let garage = open(folder.path(), &clock);
    assert_eq!(garage.ensure(&order(1, None, None)).await.unwrap_err().code, VEHICLE_HELD);
    process.kill().unwrap();
    process.wait().unwrap();
    last = lines.map_while(Result::ok).filter_map(|line| told(&line)).last().unwrap_or(last);

    garage.ensure(&order(1, None, None)).await.unwrap();
    let number = shown(&garage, GEAR).await.unwrap().as_i64().unwrap();
    assert!(number == last.0 || number == last.0 + 1, "{number} after {last:?}");
    assert!(earliest(&garage).await > last.1);
}
