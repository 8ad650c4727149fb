//! What a car answers, as clients of Android 14, 15 and 16 ask it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::time::Duration;

use paddock_vehicle::proto::{
    GetMinMaxSupportedValuesRequest, GetSupportedValuesListsRequest, PropIdAreaId, StatusCode,
    SubscribeOptions, VehiclePropValue, VehiclePropertyAccess, VehiclePropertyChangeMode,
    VehiclePropertyStatus,
};
use paddock_vehicle::{Client, ClientName};
use tonic::Code;
use world::{
    FAN_SPEED, GEAR, HEARTBEAT, HVAC_POWER, MODEL_YEAR, NIGHT, RPM, SPEED, TEMPERATURE_SET, TURN_SIGNAL,
    VENDOR_BYTES, VENDOR_FLOATS, VENDOR_INT64, VENDOR_INT64S, VENDOR_INTS, VENDOR_MIXED, VENDOR_TEXT, VIN,
    batch, car, clock, driver, driver_as, float, int, requests, silent, value,
};

const UNKNOWN: i32 = 0x1140_0fff;

#[tokio::test]
async fn the_configuration_tells_every_property_with_its_areas() {
    let mut driver = driver(&car(&clock()), "a").await;
    let mut configs = Vec::new();
    let mut stream = driver.client.get_all_property_config(()).await.unwrap().into_inner();
    while let Some(config) = stream.message().await.unwrap() {
        configs.push(config);
    }
    assert_eq!(configs.len(), 76 + 7);
    let of = |id: i32| configs.iter().find(|config| config.prop == id).unwrap();
    let speed = of(SPEED);
    assert_eq!(speed.access(), VehiclePropertyAccess::Read);
    assert_eq!(speed.change_mode(), VehiclePropertyChangeMode::Continuous);
    assert_eq!((speed.min_sample_rate, speed.max_sample_rate), (1.0, 10.0));
    let seats: Vec<i32> = of(FAN_SPEED).area_configs.iter().map(|area| area.area_id).collect();
    assert_eq!(seats, [0x1, 0x4, 0x10, 0x40, 0x20]);
    assert_eq!(of(FAN_SPEED).area_configs[0].max_int32_value, 7);
    assert_eq!(of(GEAR).config_array, [4, 1, 2, 8, 0x10, 0x20, 0x40, 0x80, 0x100]);
    assert_eq!(of(TEMPERATURE_SET).config_array, [175, 325, 5, 600, 900, 10]);
}

#[tokio::test]
async fn every_request_has_one_result_whatever_the_others_are() {
    let mut driver = driver(&car(&clock()), "a").await;
    let asked = [int(GEAR, 0, 8), int(UNKNOWN, 0, 1), value(GEAR, 0), int(GEAR, 5, 1), int(NIGHT, 0, 1)];
    let results = driver.client.set_values(requests(asked)).await.unwrap().into_inner().results;
    let told: Vec<_> = results.iter().map(|result| (result.request_id, result.status())).collect();
    let wrong = StatusCode::InvalidArg;
    assert_eq!(
        told,
        [(100, StatusCode::Ok), (101, wrong), (102, wrong), (103, wrong), (104, StatusCode::Ok)]
    );

    let asked = [value(GEAR, 0), value(UNKNOWN, 0), value(TURN_SIGNAL, 0)];
    let results = driver.client.get_values(requests(asked)).await.unwrap().into_inner().results;
    let told: Vec<_> =
        results.iter().map(|result| (result.request_id, result.status(), result.value.is_some())).collect();
    let unset = StatusCode::NotAvailable;
    assert_eq!(told, [(100, StatusCode::Ok, true), (101, wrong, false), (102, unset, false)]);
}

#[tokio::test]
async fn what_was_never_set_is_not_available() {
    let mut driver = driver(&car(&clock()), "a").await;
    for property in [TURN_SIGNAL, HEARTBEAT, VENDOR_TEXT] {
        assert_eq!(driver.get(property, 0).await.status(), StatusCode::NotAvailable);
    }
    assert_eq!(driver.set(int(TURN_SIGNAL, 0, 2)).await, StatusCode::Ok);
    assert_eq!(driver.read(TURN_SIGNAL, 0).await.int32_values, [2]);
}

#[tokio::test]
async fn a_client_may_set_what_android_may_only_read_but_not_who_the_car_is() {
    let mut driver = driver(&car(&clock()), "a").await;
    assert_eq!(driver.set(float(SPEED, 0, 12.5)).await, StatusCode::Ok);
    assert_eq!(driver.set(int(MODEL_YEAR, 0, 1999)).await, StatusCode::Ok);
    assert_eq!(driver.read(VIN, 0).await.string_value, "PADDOCK0000000001");
    let other = VehiclePropValue { string_value: "OTHER".to_owned(), ..value(VIN, 0) };
    assert_eq!(driver.set(other).await, StatusCode::AccessDenied);
    assert_eq!(driver.read(VIN, 0).await.string_value, "PADDOCK0000000001");
}

#[tokio::test]
async fn only_changes_are_told_and_the_car_says_when() {
    let mut driver = driver(&car(&clock()), "a").await;
    let mut stream = driver.stream().await;
    let before = driver.read(GEAR, 0).await.timestamp;
    driver.set(VehiclePropValue { timestamp: 7, ..int(GEAR, 0, 8) }).await;
    let told = batch(&mut stream).await;
    assert_eq!((told.len(), &told[0].int32_values), (1, &vec![8]));
    assert!(told[0].timestamp > before && told[0].timestamp != 7);

    driver.set(int(GEAR, 0, 8)).await;
    silent(&mut stream).await;
    assert!(driver.read(GEAR, 0).await.timestamp > told[0].timestamp);
    // A status is a change too.
    let error = VehiclePropertyStatus::Error.into();
    driver.set(VehiclePropValue { status: error, ..int(GEAR, 0, 8) }).await;
    assert_eq!(batch(&mut stream).await[0].status(), VehiclePropertyStatus::Error);
    assert_eq!(driver.get(GEAR, 0).await.value.unwrap().status(), VehiclePropertyStatus::Error);
}

#[tokio::test]
async fn timestamps_never_go_back_although_the_clock_stands_still() {
    let mut driver = driver(&car(&clock()), "a").await;
    let mut last = 0;
    for number in 0..50 {
        driver.set(int(GEAR, 0, number)).await;
        let now = driver.read(GEAR, 0).await.timestamp;
        assert!(now > last);
        last = now;
    }
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused() {
    let mut driver = driver(&car(&clock()), "a").await;
    let ok = StatusCode::Ok;
    let wrong = StatusCode::InvalidArg;
    let bytes = |count: usize| VehiclePropValue { byte_values: vec![1; count], ..value(VENDOR_BYTES, 0) };
    let mixed = |ints: usize, floats: usize, bytes: usize| VehiclePropValue {
        int32_values: vec![1; ints],
        float_values: vec![1.0; floats],
        byte_values: vec![1; bytes],
        ..value(VENDOR_MIXED, 0)
    };
    let long = |numbers: &[i64], id: i32| VehiclePropValue { int64_values: numbers.to_vec(), ..value(id, 0) };
    for (name, wanted, status) in [
        ("a boolean without a value", value(NIGHT, 0), wrong),
        ("a boolean with two", VehiclePropValue { int32_values: vec![1, 0], ..value(NIGHT, 0) }, wrong),
        ("a boolean with one", int(NIGHT, 0, 1), ok),
        ("an int32 with a float", float(GEAR, 0, 1.0), wrong),
        ("an int32 with two", VehiclePropValue { int32_values: vec![1, 2], ..value(GEAR, 0) }, wrong),
        ("a float with an int32", int(SPEED, 0, 3), wrong),
        ("a float with two", VehiclePropValue { float_values: vec![1.0, 2.0], ..value(SPEED, 0) }, wrong),
        ("an int64 without", value(VENDOR_INT64, 0), wrong),
        ("an int64 within its range", long(&[-5], VENDOR_INT64), ok),
        ("an int64 above its range", long(&[6], VENDOR_INT64), wrong),
        ("an int32 list without", value(VENDOR_INTS, 0), wrong),
        ("an int32 list", VehiclePropValue { int32_values: vec![1, 2, 3], ..value(VENDOR_INTS, 0) }, ok),
        ("an int64 list without", value(VENDOR_INT64S, 0), wrong),
        ("an int64 list", long(&[1, 2], VENDOR_INT64S), ok),
        ("a float list without", value(VENDOR_FLOATS, 0), wrong),
        ("a float list", VehiclePropValue { float_values: vec![1.0; 4], ..value(VENDOR_FLOATS, 0) }, ok),
        ("an empty text", value(VENDOR_TEXT, 0), ok),
        ("no bytes", bytes(0), ok),
        ("some bytes", bytes(9), ok),
        ("a mix as its maker says", mixed(3, 1, 3), ok),
        ("a mix with a number too few", mixed(2, 1, 3), wrong),
        ("a mix with bytes too many", mixed(3, 1, 4), wrong),
        ("a fan below its range", int(FAN_SPEED, 1, 0), wrong),
        ("a fan at its most", int(FAN_SPEED, 1, 7), ok),
        ("a fan above its range", int(FAN_SPEED, 1, 8), wrong),
        ("a temperature below its range", float(TEMPERATURE_SET, 1, 17.4), wrong),
        ("a temperature within its range", float(TEMPERATURE_SET, 1, 17.5), ok),
        ("a temperature that is no number", float(TEMPERATURE_SET, 1, f32::NAN), wrong),
        ("a speed, which has no range", float(SPEED, 0, -1e9), ok),
        ("an area that there is not", int(FAN_SPEED, 2, 3), wrong),
        ("no area where one is needed", int(FAN_SPEED, 0, 3), wrong),
        ("a property that there is not", int(UNKNOWN, 0, 3), wrong),
    ] {
        assert_eq!(driver.set(wanted).await, status, "{name}");
    }
    let nothing = paddock_vehicle::proto::VehiclePropValueRequest { request_id: 3, value: None };
    let nothing = paddock_vehicle::proto::VehiclePropValueRequests { requests: vec![nothing] };
    let answer = driver.client.set_values(nothing).await.unwrap().into_inner();
    assert_eq!(answer.results[0].status(), wrong);
}

#[tokio::test]
async fn heating_is_disabled_where_its_power_is_off() {
    let mut driver = driver(&car(&clock()), "a").await;
    assert_eq!(driver.set(int(HVAC_POWER, 1, 0)).await, StatusCode::Ok);
    assert_eq!(driver.get(FAN_SPEED, 1).await.status(), StatusCode::NotAvailableDisabled);
    assert_eq!(driver.set(int(FAN_SPEED, 1, 2)).await, StatusCode::NotAvailableDisabled);
    assert_eq!(driver.get(FAN_SPEED, 4).await.status(), StatusCode::Ok);
    // In one call, in its order.
    let both = requests([int(HVAC_POWER, 1, 1), int(FAN_SPEED, 1, 2)]);
    let results = driver.client.set_values(both).await.unwrap().into_inner().results;
    assert!(results.iter().all(|result| result.status() == StatusCode::Ok));
    assert_eq!(driver.read(FAN_SPEED, 1).await.int32_values, [2]);
}

#[tokio::test]
async fn subscriptions_are_answered_by_the_kind_of_the_property() {
    let mut driver = driver(&car(&clock()), "a").await;
    for (property, rate, status) in [
        (MODEL_YEAR, 0.0, StatusCode::Ok),
        (GEAR, 0.0, StatusCode::Ok),
        (SPEED, 10.0, StatusCode::Ok),
        (SPEED, 0.0, StatusCode::InvalidArg),
        (SPEED, f32::NAN, StatusCode::InvalidArg),
        (SPEED, -1.0, StatusCode::InvalidArg),
        (UNKNOWN, 1.0, StatusCode::InvalidArg),
    ] {
        assert_eq!(driver.subscribe(property, rate).await, status, "{property:#x} {rate}");
    }
    let nowhere = SubscribeOptions { prop_id: FAN_SPEED, area_ids: vec![2], ..Default::default() };
    assert_eq!(driver.subscribe_as(nowhere).await, StatusCode::InvalidArg);
    assert_eq!(driver.unsubscribe(GEAR).await, StatusCode::Ok);
    assert_eq!(driver.unsubscribe(UNKNOWN).await, StatusCode::InvalidArg);
    assert_eq!(driver.update_sample_rate(SPEED, f32::NAN).await, StatusCode::InvalidArg);
    assert_eq!(driver.update_sample_rate(GEAR, 3.0).await, StatusCode::Ok);
}

#[tokio::test]
async fn a_continuous_property_is_told_at_its_rate_although_it_does_not_change() {
    let clock = clock();
    let vehicle = car(&clock);
    let mut driver = driver(&vehicle, "a").await;
    // Ten times a second is the most that it does.
    assert_eq!(driver.subscribe(SPEED, 1000.0).await, StatusCode::Ok);
    let mut stream = driver.stream().await;
    let mut last = 0;
    for _ in 0..20 {
        clock.advance(Duration::from_millis(100));
        let told = batch(&mut stream).await;
        assert_eq!((told.len(), told[0].prop), (1, SPEED));
        assert!(told[0].timestamp > last);
        last = told[0].timestamp;
    }
    clock.advance(Duration::from_millis(50));
    silent(&mut stream).await;
    // A change waits for its turn.
    driver.set(float(SPEED, 0, 3.0)).await;
    silent(&mut stream).await;
    clock.advance(Duration::from_millis(50));
    assert_eq!(batch(&mut stream).await[0].float_values, [3.0]);
}

#[tokio::test]
async fn a_variable_rate_tells_only_changes_and_a_resolution_rounds() {
    let clock = clock();
    let mut driver = driver(&car(&clock), "a").await;
    let options = SubscribeOptions {
        prop_id: SPEED,
        sample_rate: 10.0,
        resolution: 0.5,
        enable_variable_update_rate: true,
        ..Default::default()
    };
    assert_eq!(driver.subscribe_as(options).await, StatusCode::Ok);
    let mut stream = driver.stream().await;
    clock.advance(Duration::from_millis(100));
    assert_eq!(batch(&mut stream).await[0].float_values, [0.0]);
    for (set, told) in [(7.3, Some(7.5)), (7.4, None), (7.6, None), (7.9, Some(8.0))] {
        driver.set(float(SPEED, 0, set)).await;
        clock.advance(Duration::from_millis(100));
        match told {
            Some(told) => assert_eq!(batch(&mut stream).await[0].float_values, [told]),
            None => silent(&mut stream).await,
        }
    }
}

#[tokio::test]
async fn a_client_of_android_14_is_told_everything_without_asking() {
    let clock = clock();
    let vehicle = car(&clock);
    let (mut old, mut new) = (driver(&vehicle, "old").await, driver(&vehicle, "new").await);
    let mut stream = old.stream().await;
    old.set(int(GEAR, 0, 8)).await;
    assert_eq!(batch(&mut stream).await[0].prop, GEAR);
    // Nobody samples it.
    old.set(float(SPEED, 0, 5.0)).await;
    clock.advance(Duration::from_secs(5));
    silent(&mut stream).await;
    assert_eq!(old.update_sample_rate(SPEED, 2.0).await, StatusCode::Ok);
    clock.advance(Duration::from_millis(500));
    assert_eq!(batch(&mut stream).await[0].float_values, [5.0]);
    assert_eq!(old.update_sample_rate(SPEED, 0.0).await, StatusCode::Ok);
    clock.advance(Duration::from_secs(5));
    silent(&mut stream).await;
    // What others have sampled is told to it as well, and changes still are.
    assert_eq!(new.subscribe(RPM, 1.0).await, StatusCode::Ok);
    clock.advance(Duration::from_secs(1));
    assert_eq!(batch(&mut stream).await[0].prop, RPM);
    old.set(int(GEAR, 0, 4)).await;
    assert_eq!(batch(&mut stream).await[0].prop, GEAR);
}

#[tokio::test]
async fn a_client_of_android_15_is_told_what_it_asked_for_on_all_its_streams() {
    let clock = clock();
    let vehicle = car(&clock);
    let (mut one, mut same) = (driver(&vehicle, "one").await, driver(&vehicle, "one").await);
    let mut other = driver(&vehicle, "other").await;
    // Streams may come before subscriptions.
    let (mut first, mut second, mut others) = (one.stream().await, same.stream().await, other.stream().await);
    assert_eq!(one.subscribe(GEAR, 0.0).await, StatusCode::Ok);
    assert_eq!(other.subscribe(GEAR, 0.0).await, StatusCode::Ok);
    one.set(int(NIGHT, 0, 1)).await;
    one.set(int(GEAR, 0, 2)).await;
    for stream in [&mut first, &mut second, &mut others] {
        let told = batch(stream).await;
        assert_eq!((told[0].prop, &told[0].int32_values), (GEAR, &vec![2]));
    }
    // One gives it up, and silences only itself.
    assert_eq!(one.unsubscribe(GEAR).await, StatusCode::Ok);
    one.set(int(GEAR, 0, 8)).await;
    assert_eq!(batch(&mut others).await[0].int32_values, [8]);
    silent(&mut first).await;
    silent(&mut second).await;
}

#[tokio::test]
async fn several_values_of_one_call_come_in_one_batch() {
    let mut driver = driver(&car(&clock()), "a").await;
    let mut stream = driver.stream().await;
    driver
        .client
        .set_values(requests([int(GEAR, 0, 8), int(NIGHT, 0, 1), float(SPEED, 0, 1.0)]))
        .await
        .unwrap();
    let told: Vec<i32> = batch(&mut stream).await.iter().map(|value| value.prop).collect();
    assert_eq!(told, [GEAR, NIGHT]);
}

#[tokio::test]
async fn nothing_is_sampled_while_nobody_watches() {
    let clock = clock();
    let vehicle = car(&clock);
    let mut driver = driver(&vehicle, "a").await;
    driver.subscribe(SPEED, 10.0).await;
    let before = driver.read(SPEED, 0).await.timestamp;
    clock.advance(Duration::from_secs(60));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(driver.read(SPEED, 0).await.timestamp, before);
    let mut stream = driver.stream().await;
    batch(&mut stream).await;
    drop(stream);
    for _ in 0..100 {
        if vehicle.streams() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(vehicle.streams(), 0);
    let before = driver.read(SPEED, 0).await.timestamp;
    clock.advance(Duration::from_secs(60));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(driver.read(SPEED, 0).await.timestamp, before);
}

#[tokio::test]
async fn the_car_is_healthy_and_says_what_it_does_not_know() {
    let vehicle = car(&clock());
    let mut driver = driver(&vehicle, "a").await;
    let health = driver.client.check_health(()).await.unwrap().into_inner();
    assert_eq!(health.status_code(), StatusCode::Ok);
    assert_eq!(driver.get(HEARTBEAT, 0).await.status(), StatusCode::NotAvailable);

    let mut service = paddock_vehicle::service(vehicle, Client::guest());
    let path = "/android.hardware.automotive.vehicle.proto.VehicleServer/Fly";
    let request = http::Request::post(path).body(tonic::body::Body::empty()).unwrap();
    let answer = tower::Service::call(&mut service, request).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "12");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let mut driver = driver(&car(&clock()), "a").await;
    let large = VehiclePropValue { byte_values: vec![0; 2 << 20], ..value(VENDOR_BYTES, 0) };
    let refused = driver.client.set_values(requests([large])).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    let many = (0..10_000).map(|_| value(GEAR, 0));
    assert_eq!(driver.client.get_values(requests(many)).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(driver.set(int(GEAR, 0, 1)).await, StatusCode::Ok);
}

#[tokio::test]
async fn a_client_of_android_16_asks_what_is_supported_and_hears_of_changes() {
    let mut driver = driver(&car(&clock()), "a").await;
    let place = |property, area| PropIdAreaId { prop_id: property, area_id: area };
    let asked = vec![place(FAN_SPEED, 1), place(SPEED, 0), place(UNKNOWN, 0)];
    let request = GetMinMaxSupportedValuesRequest { prop_id_area_id: asked };
    let told = driver.client.get_min_max_supported_values(request.clone()).await.unwrap().into_inner().result;
    assert_eq!(told[0].min_supported_value.as_ref().unwrap().int32_values, [1]);
    assert_eq!(told[0].max_supported_value.as_ref().unwrap().int32_values, [7]);
    assert_eq!((told[1].status(), &told[1].min_supported_value), (StatusCode::Ok, &None));
    assert_eq!(told[2].status(), StatusCode::InvalidArg);

    let mut changes = driver.client.start_supported_values_change_stream(()).await.unwrap().into_inner();
    let said =
        driver.dump(&["--set-minmaxvalue", "HVAC_FAN_SPEED", "-a", "0x1", "-min", "2", "-max", "4"]).await;
    assert!(said.contains("new bounds"), "{said}");
    assert_eq!(changes.message().await.unwrap().unwrap().prop_id_area_ids, [place(FAN_SPEED, 1)]);
    let told = driver.client.get_min_max_supported_values(request).await.unwrap().into_inner().result;
    assert_eq!(told[0].max_supported_value.as_ref().unwrap().int32_values, [4]);
    assert_eq!(driver.set(int(FAN_SPEED, 1, 5)).await, StatusCode::InvalidArg);
    assert_eq!(driver.set(int(FAN_SPEED, 4, 5)).await, StatusCode::Ok);

    let request =
        GetSupportedValuesListsRequest { prop_id_area_id: vec![place(NIGHT, 0), place(TURN_SIGNAL, 0)] };
    let told = driver.client.get_supported_values_lists(request.clone()).await.unwrap().into_inner().result;
    let numbers = |at: usize| -> Vec<i32> {
        told[at].supported_values_list.iter().flat_map(|raw| raw.int32_values.clone()).collect()
    };
    assert_eq!((numbers(0), numbers(1)), (vec![], vec![0, 1, 2]));
    driver.dump(&["--set-supportedvalues", "TURN_SIGNAL_STATE", "0", "1"]).await;
    assert_eq!(changes.message().await.unwrap().unwrap().prop_id_area_ids, [place(TURN_SIGNAL, 0)]);
    let told = driver.client.get_supported_values_lists(request).await.unwrap().into_inner().result;
    assert_eq!(told[1].supported_values_list.len(), 2);
}

#[tokio::test]
async fn people_at_a_shell_see_and_change_the_car() {
    let mut driver = driver(&car(&clock()), "a").await;
    let mut stream = driver.stream().await;
    assert!(driver.dump(&["--help"]).await.contains("--inject-event"));
    assert!(driver.dump(&["--list"]).await.contains("83 properties"));
    driver.dump(&["--set", "GEAR_SELECTION", "-i", "8"]).await;
    assert_eq!(batch(&mut stream).await[0].int32_values, [8]);
    assert!(driver.dump(&["--get", "GEAR_SELECTION"]).await.contains(": 8 AVAILABLE at"));
    driver.dump(&["--save-prop", "GEAR_SELECTION"]).await;
    driver.dump(&["--set", "0x11400400", "-i", "4"]).await;
    assert_eq!(batch(&mut stream).await[0].int32_values, [4]);
    driver.dump(&["--restore-prop", "GEAR_SELECTION"]).await;
    assert_eq!(batch(&mut stream).await[0].int32_values, [8]);
    driver.dump(&["--inject-event", "GEAR_SELECTION", "-i", "8"]).await;
    assert_eq!(batch(&mut stream).await[0].int32_values, [8]);
    driver.dump(&["--set", "HVAC_FAN_SPEED", "-i", "5", "-a", "0x4"]).await;
    assert_eq!(driver.read(FAN_SPEED, 4).await.int32_values, [5]);
    assert!(
        driver.dump(&["--set", "HVAC_FAN_SPEED", "-i", "9", "-a", "4"]).await.contains("not between 1 and 7")
    );
    assert!(driver.dump(&["--dumpSub"]).await.contains("a: 1 streams, told of everything"));
    for other in ["--genfakedata", "--getWithArg", "--genTestVendorConfigs", "--restoreVendorConfigs"] {
        let said = driver.dump(&[other]).await;
        assert!(said.contains("not"), "{said}");
    }
    assert!(driver.dump(&["--fly"]).await.contains("--help"));
}

#[tokio::test]
async fn who_may_only_look_changes_nothing_by_a_dump() {
    let vehicle = car(&clock());
    let mut watcher = driver_as(&vehicle, Client { name: ClientName::new("w"), may_drive: false }).await;
    for option in [
        "--set",
        "--restore-prop",
        "--inject-event",
        "--genfakedata",
        "--set-minmaxvalue",
        "--set-supportedvalues",
    ] {
        let options = vec![option.to_owned(), "GEAR_SELECTION".to_owned(), "-i".to_owned(), "8".to_owned()];
        let options = paddock_vehicle::proto::DumpOptions { options };
        let denied = watcher.client.dump(options).await.unwrap_err();
        assert_eq!(denied.code(), Code::PermissionDenied, "{option}");
    }
    assert!(watcher.dump(&["--list"]).await.contains("GEAR_SELECTION"));
    assert_eq!(watcher.read(GEAR, 0).await.int32_values, [4]);
}

#[tokio::test]
async fn one_client_cannot_subscribe_without_end() {
    let file: Vec<String> = (0..600)
        .map(|number| {
            let areas: Vec<String> = (0..4).map(|area| format!("{{\"areaId\": {}}}", 1 << area)).collect();
            format!(
                "{{\"property\": {}, \"access\": \"READ\", \"changeMode\": \"ON_CHANGE\", \"areas\": [{}]}}",
                0x2540_0000 + number,
                areas.join(", ")
            )
        })
        .collect();
    let file = format!("{{\"properties\": [{}]}}", file.join(", "));
    let catalogue = paddock_vehicle::Catalogue::with(&file).unwrap();
    let vehicle = paddock_vehicle::Vehicle::in_memory(catalogue, clock(), None);
    let mut driver = driver(&vehicle, "a").await;
    let mut refused = None;
    for number in 0..600 {
        let options = SubscribeOptions { prop_id: 0x2540_0000 + number, ..Default::default() };
        let request = paddock_vehicle::proto::SubscribeRequest { options: Some(options) };
        if let Err(status) = driver.client.subscribe(request).await {
            refused = Some((number, status.code()));
            break;
        }
    }
    assert_eq!(refused, Some((512, Code::ResourceExhausted)));
}

#[tokio::test]
async fn clients_that_have_gone_make_room_for_others() {
    let vehicle = car(&clock());
    let mut kept = driver(&vehicle, "kept").await;
    kept.subscribe(GEAR, 0.0).await;
    let mut stream = kept.stream().await;
    for number in 0..600 {
        let name = ClientName::new(&format!("client {number}"));
        let options = SubscribeOptions { prop_id: NIGHT, ..Default::default() };
        assert_eq!(vehicle.subscribe(&name, &options), Ok(StatusCode::Ok));
    }
    kept.set(int(GEAR, 0, 2)).await;
    assert_eq!(batch(&mut stream).await[0].prop, GEAR);
}
