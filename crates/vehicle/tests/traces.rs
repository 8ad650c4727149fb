//! Drives that are recorded, carried elsewhere, and driven again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paddock_model::drivers::garages::{self as port, Garage as _};
use paddock_model::ports::ManualClock;
use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus, Replay, TraceId};
use paddock_vehicle::{Garage, Raw};
use serde_json::{Value, json};
use world::{GEAR, NIGHT, SPEED, VENDOR_TEXT, catalogue, clock, emulator, order};

fn trace(number: u128) -> TraceId {
    TraceId(uuid::Uuid::from_u128(number))
}

async fn open(folder: &Path, clock: &Arc<ManualClock>) -> Arc<Garage> {
    let garage = Garage::open(folder, catalogue(), clock.clone()).unwrap();
    garage.ensure(&order(1, None, None)).await.unwrap();
    garage
}

fn set(garage: &Garage, property: i32, raw: Raw) {
    let vehicle = garage.held(emulator(1)).unwrap();
    let told = vehicle.set(vec![((PropertyId(property), AreaId(0)), raw, PropertyStatus::Available)]);
    assert_eq!(told, [Ok(())]);
}

fn ints(number: i32) -> Raw {
    Raw { int32_values: vec![number], ..Default::default() }
}

fn floats(number: f32) -> Raw {
    Raw { float_values: vec![number], ..Default::default() }
}

fn shown(garage: &Garage, property: i32) -> Value {
    let property = garage.held(emulator(1)).unwrap().property(PropertyId(property)).unwrap();
    property.areas[0].value.clone().unwrap()
}

async fn lines(garage: &Garage, number: u128) -> Vec<Value> {
    let content = garage.content(emulator(1), trace(number)).await.unwrap();
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

/// Lets time pass until the car shows a value, and tells how long it took.
async fn until(garage: &Garage, clock: &ManualClock, property: i32, wanted: Value) -> Duration {
    let mut passed = Duration::ZERO;
    loop {
        for _ in 0..20 {
            if shown(garage, property) == wanted {
                return passed;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        clock.advance(Duration::from_millis(100));
        passed += Duration::from_millis(100);
        assert!(passed < Duration::from_secs(60), "{wanted} never comes");
    }
}

async fn ended(garage: &Garage, clock: &ManualClock) -> Replay {
    for _ in 0..200 {
        let replay = garage.replaying(emulator(1)).await.unwrap().unwrap();
        if replay.ended_at.is_some() {
            return replay;
        }
        clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the replay does not end");
}

/// 8 at once, then 2 after a second, then 4 after another.
async fn drive(garage: &Garage, clock: &ManualClock, number: u128) {
    garage.record(emulator(1), trace(number), "a drive").await.unwrap();
    set(garage, GEAR, ints(8));
    clock.advance(Duration::from_secs(1));
    set(garage, GEAR, ints(2));
    set(garage, SPEED, floats(1.5));
    clock.advance(Duration::from_secs(1));
    set(garage, GEAR, ints(4));
    garage.finish(emulator(1), trace(number)).await.unwrap();
}

#[tokio::test]
async fn a_drive_is_recorded_as_people_write_it() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    let begun = garage.record(emulator(1), trace(1), "a drive").await.unwrap();
    assert!(begun.recording && begun.events == 0);
    // Asked twice, it is the same recording.
    assert!(garage.record(emulator(1), trace(1), "a drive").await.unwrap().recording);
    garage.finish(emulator(1), trace(1)).await.unwrap();
    drive(&garage, &clock, 2).await;
    set(&garage, GEAR, ints(1));

    let told = lines(&garage, 2).await;
    assert_eq!(told[0], json!({"paddock_trace": 1, "name": "a drive"}));
    let event = |at: i64, property: &str, value: Value| json!({"at_ms": at, "property": property, "area": 0, "value": value, "status": "available"});
    assert_eq!(
        told[1..],
        [
            event(0, "GEAR_SELECTION", json!(8)),
            event(1000, "GEAR_SELECTION", json!(2)),
            event(1000, "PERF_VEHICLE_SPEED", json!(1.5)),
            event(2000, "GEAR_SELECTION", json!(4)),
        ]
    );
    let traces = garage.traces(emulator(1)).await.unwrap();
    assert_eq!(traces.len(), 2);
    assert_eq!((traces[1].recording, traces[1].events, traces[1].duration_ms), (false, 4, 2000));
    assert_eq!(traces[1].bytes as usize, garage.content(emulator(1), trace(2)).await.unwrap().len());
    garage.delete(emulator(1), trace(1)).await.unwrap();
    assert_eq!(garage.traces(emulator(1)).await.unwrap().len(), 1);
    assert_eq!(garage.content(emulator(1), trace(1)).await.unwrap_err().code, port::NO_SUCH_TRACE);
}

#[tokio::test]
async fn samples_are_recorded_too() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    let vehicle = garage.held(emulator(1)).unwrap();
    vehicle
        .update_sample_rate(&paddock_vehicle::ClientName::guest(), (PropertyId(SPEED), AreaId(0)), 10.0)
        .unwrap();
    garage.record(emulator(1), trace(1), "samples").await.unwrap();
    for wanted in 1..=5 {
        clock.advance(Duration::from_millis(100));
        while garage.traces(emulator(1)).await.unwrap()[0].events < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let told = garage.finish(emulator(1), trace(1)).await.unwrap();
    assert_eq!((told.events, told.duration_ms), (5, 500));
}

#[tokio::test]
async fn a_drive_is_driven_again_at_any_speed() {
    for speed in [0.5, 1.0, 2.0] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
        let garage = open(folder.path(), &clock).await;
        drive(&garage, &clock, 1).await;
        let replay = garage.replay(emulator(1), trace(1), speed, false).await.unwrap();
        assert_eq!((replay.events_total, replay.ended_at), (4, None));
        assert_eq!(until(&garage, &clock, GEAR, json!(8)).await, Duration::ZERO);
        let second = Duration::from_secs_f64(1.0 / speed);
        assert_eq!(until(&garage, &clock, GEAR, json!(2)).await, second);
        assert_eq!(shown(&garage, SPEED), json!(1.5));
        assert_eq!(until(&garage, &clock, GEAR, json!(4)).await, second);
        let replay = ended(&garage, &clock).await;
        assert_eq!((replay.events_done, replay.problem), (4, None));
    }
}

#[tokio::test]
async fn a_replay_repeats_itself_until_it_is_stopped() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    drive(&garage, &clock, 1).await;
    garage.replay(emulator(1), trace(1), 10.0, true).await.unwrap();
    // The end of a round is the beginning of the next.
    for _ in 0..3 {
        until(&garage, &clock, GEAR, json!(8)).await;
        until(&garage, &clock, GEAR, json!(2)).await;
    }
    let stopped = garage.stop_replay(emulator(1)).await.unwrap().unwrap();
    assert!(stopped.ended_at.is_some() && stopped.problem.is_none());
    set(&garage, GEAR, ints(1));
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(shown(&garage, GEAR), json!(1));
    assert_eq!(garage.replaying(emulator(1)).await.unwrap(), Some(stopped));
}

#[tokio::test]
async fn a_replay_goes_on_after_a_kill_and_ends_with_its_car() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    let mut content = "{\"paddock_trace\": 1}\n".to_owned();
    for number in 0..100 {
        content += &format!(
            "{{\"at_ms\": {}, \"property\": \"GEAR_SELECTION\", \"value\": {number}}}\n",
            number * 1000
        );
    }
    garage.take(emulator(1), trace(1), "long", content.as_bytes()).await.unwrap();
    garage.replay(emulator(1), trace(1), 1.0, false).await.unwrap();
    until(&garage, &clock, GEAR, json!(10)).await;
    drop(garage);

    let garage = open(folder.path(), &clock).await;
    // From about where it was.
    let took = until(&garage, &clock, GEAR, json!(15)).await;
    assert!(took >= Duration::from_secs(3) && took <= Duration::from_secs(7), "{took:?}");
    let replay = garage.replaying(emulator(1)).await.unwrap().unwrap();
    assert!(replay.events_done >= 15 && replay.ended_at.is_none(), "{replay:?}");
    // Let go in order, and taken by another.
    garage.let_go().await;
    let other = open(folder.path(), &clock).await;
    until(&other, &clock, GEAR, json!(18)).await;

    other.ensure(&order(2, Some(1), None)).await.unwrap();
    let replay = other.replaying(emulator(1)).await.unwrap().unwrap();
    assert!(replay.ended_at.is_some() && replay.problem.unwrap().contains("replaced"));
}

#[tokio::test]
async fn what_the_car_does_not_take_is_told() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    let content = "{\"paddock_trace\": 1}\n\
        {\"at_ms\": 0, \"property\": \"HVAC_FAN_SPEED\", \"area\": 1, \"value\": 99}\n\
        {\"at_ms\": 1, \"property\": \"NIGHT_MODE\", \"value\": true}";
    garage.take(emulator(1), trace(1), "odd", content.as_bytes()).await.unwrap();
    garage.replay(emulator(1), trace(1), 1.0, false).await.unwrap();
    let replay = ended(&garage, &clock).await;
    assert_eq!(replay.events_done, 2);
    assert!(replay.problem.unwrap().contains("99 is not between 1 and 7"));
    assert_eq!(shown(&garage, NIGHT), json!(true));
}

#[tokio::test]
async fn a_recording_that_was_killed_is_whole_up_to_its_last_line() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    garage.record(emulator(1), trace(1), "killed").await.unwrap();
    for number in 0..10 {
        clock.advance(Duration::from_millis(10));
        set(&garage, GEAR, ints(100 + number));
    }
    let car = folder.path().join(emulator(1).to_string());
    let copy = tempfile::tempdir().unwrap();
    let target = copy.path().join(emulator(1).to_string());
    fs::create_dir_all(target.join("traces")).unwrap();
    for name in ["journal", "clock"] {
        fs::copy(car.join(name), target.join(name)).unwrap();
    }
    let name = |ending: &str| format!("traces/{}.{ending}", trace(1));
    fs::copy(car.join(name("json")), target.join(name("json"))).unwrap();
    // As it lies there at this moment, with half a line more.
    let mut torn = fs::read(car.join(name("jsonl"))).unwrap();
    let whole = torn.len();
    torn.extend(b"{\"at_ms\": 120, \"prop");
    fs::write(target.join(name("jsonl")), torn).unwrap();

    let garage = open(copy.path(), &clock).await;
    let told = garage.traces(emulator(1)).await.unwrap().remove(0);
    assert_eq!((told.recording, told.events, told.duration_ms, told.bytes), (false, 10, 100, whole as i64));
    assert!(told.problem.unwrap().contains("process"));
    assert_eq!(lines(&garage, 1).await.len(), 11);
    garage.replay(emulator(1), trace(1), 1.0, false).await.unwrap();
    assert_eq!(ended(&garage, &clock).await.events_done, 10);
}

#[tokio::test]
async fn a_recording_ends_by_itself_when_it_is_too_large() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    garage.record(emulator(1), trace(1), "large").await.unwrap();
    for number in 0..80 {
        let text = format!("{number}{}", "x".repeat(1 << 20));
        set(&garage, VENDOR_TEXT, Raw { string_value: text, ..Default::default() });
    }
    let told = garage.traces(emulator(1)).await.unwrap().remove(0);
    assert!(!told.recording && told.problem.unwrap().contains("64 MiB"));
    assert!(told.bytes <= 64 << 20 && told.events == 63, "{} {}", told.bytes, told.events);
    assert_eq!(garage.finish(emulator(1), trace(1)).await.unwrap().events, 63);
}

#[tokio::test]
async fn traces_that_make_no_sense_are_refused_with_a_reason() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), clock());
    let garage = open(folder.path(), &clock).await;
    let head = "{\"paddock_trace\": 1}\n";
    for (content, reason) in [
        (String::new(), "first line"),
        ("{\"paddock_trace\": 9}\n".to_owned(), "first line"),
        (format!("{head}nonsense\n"), "line 2"),
        (format!("{head}{{\"at_ms\": 0, \"property\": \"ALIEN\", \"value\": 1}}\n"), "no property ALIEN"),
        (format!("{head}{{\"at_ms\": 0, \"property\": \"NIGHT_MODE\", \"value\": 1.5}}\n"), "true or false"),
        (
            format!("{head}{{\"at_ms\": 0, \"property\": \"NIGHT_MODE\", \"area\": 3, \"value\": true}}\n"),
            "no area 0x3",
        ),
        (
            format!(
                "{head}{{\"at_ms\": 9, \"property\": \"NIGHT_MODE\", \"value\": true}}\n\
                 {{\"at_ms\": 8, \"property\": \"NIGHT_MODE\", \"value\": true}}\n"
            ),
            "line 3 happens before",
        ),
    ] {
        let refused = garage.take(emulator(1), trace(1), "x", content.as_bytes()).await.unwrap_err();
        assert_eq!(refused.code, port::WRONG_TRACE);
        assert!(refused.message.contains(reason), "{}", refused.message);
    }
    let take = async |number| garage.take(emulator(1), trace(number), "x", head.as_bytes()).await;
    for number in 0..20 {
        take(number).await.unwrap();
    }
    assert_eq!(take(20).await.unwrap_err().code, port::TOO_MANY_TRACES);
    assert_eq!(garage.record(emulator(1), trace(21), "x").await.unwrap_err().code, port::TOO_MANY_TRACES);
    for speed in [0.0, -1.0, f64::NAN, 1e9] {
        let refused = garage.replay(emulator(1), trace(0), speed, false).await.unwrap_err();
        assert_eq!(refused.code, port::WRONG_VALUE);
    }
    assert_eq!(
        garage.replay(emulator(1), trace(99), 1.0, false).await.unwrap_err().code,
        port::NO_SUCH_TRACE
    );
    assert_eq!(garage.replaying(emulator(1)).await.unwrap(), None);
}
