//! The control channel and the log port as the host meets them, without a machine around them.

mod world;

use std::time::Duration;

use serde_json::json;
use world::{Adb, Agent, open_device};

#[test]
fn a_host_that_connects_is_told_who_the_device_is_and_that_it_is_ready() {
    let agent = Agent::open();

    let mut control = agent.control();

    let hello = control.wait_for("hello");
    assert_eq!(hello["protocol"], 1);
    assert_eq!(hello["identity"]["serial"], "TEST-1");
    assert_eq!(control.wait_for("ready")["adb"], agent.port);
}

#[test]
fn health_says_how_the_device_is() {
    let agent = Agent::open();

    let answer = agent.control().ask(json!({"op": "health", "properties": true}));

    let health = &answer["ok"];
    assert_eq!(health["ready"], true);
    assert_eq!(health["frozen"], false);
    assert_eq!(health["properties"]["ro.serialno"], "TEST-1");
    for number in ["/uptimeMs", "/clockMs", "/memory/totalBytes", "/disk/availableBytes"] {
        assert!(
            health.pointer(number).and_then(serde_json::Value::as_u64).is_some_and(|value| value > 0),
            "{number}"
        );
    }
}

#[test]
fn a_request_that_is_not_understood_is_answered_and_the_next_one_works() {
    let agent = Agent::open();
    let mut control = agent.control();

    for request in [
        json!({"op": "explode"}),
        json!({"op": "freeze", "timeoutMs": 0}),
        json!({"op": "freeze", "timeoutMs": 3_600_000}),
        json!({"op": "resume", "identity": {"serial": "a b"}}),
        json!({"op": "properties", "set": {"ro.serialno": "x"}}),
        json!({}),
    ] {
        let answer = control.ask(request.clone());
        assert!(answer["error"]["message"].is_string(), "{request}: {answer}");
    }
    control.say(&json!("no object"));

    assert_eq!(control.ask(json!({"op": "hello"}))["ok"]["identity"]["serial"], "TEST-1");
}

#[test]
fn a_freeze_ends_with_the_thaw_or_by_the_watchdog() {
    let agent = Agent::open();
    let mut control = agent.control();

    control.ask(json!({"op": "freeze"}));
    assert_eq!(control.ask(json!({"op": "health"}))["ok"]["frozen"], true);
    assert!(control.ask(json!({"op": "freeze"}))["error"].is_object());
    assert_eq!(control.ask(json!({"op": "thaw"}))["ok"]["wasFrozen"], true);

    control.ask(json!({"op": "freeze", "timeoutMs": 50}));
    assert_eq!(control.wait_for("thawed")["reason"], "watchdog");
    assert_eq!(control.ask(json!({"op": "thaw"}))["ok"]["wasFrozen"], false);
    assert_eq!(control.ask(json!({"op": "health"}))["ok"]["watchdogThaws"], 1);
}

#[test]
fn a_resumed_device_is_somebody_else_and_lets_in_only_whom_it_is_told() {
    let (agent, before) = open_device();
    let mut after = Adb::new();
    let keys = json!({"access": "keys", "keys": [after.key()]});

    let answer = agent.control().ask(json!({"op": "resume", "identity": {
        "serial": "TEST-2", "androidId": "00000000000000ff", "deviceName": "Twin", "androidVersion": "16", "adb": keys,
    }}));

    assert_eq!(answer["ok"]["identity"]["serial"], "TEST-2");
    assert!(after.connect(agent.port).starts_with("connected"));
    let told =
        after.shell("getprop ro.serialno; getprop ro.build.version.sdk; settings get secure android_id");
    assert_eq!(told, "TEST-2\n36\n00000000000000ff");
    assert!(!before.output(&["shell", "true"]).status.success());
}

#[test]
fn the_log_port_gives_entries_by_number_from_where_the_host_left_off() {
    let (agent, adb) = open_device();
    adb.shell("log -t Port one; log -t Port two");
    let mut log = agent.log();
    log.say(&json!({"after": 0, "buffers": ["main"]}));
    let (one, two) = (log.hear(), log.hear());
    assert_eq!(
        (&one["message"], &one["tag"], &one["level"]),
        (&json!("one"), &json!("Port"), &json!("info"))
    );

    // The host goes away and comes back.
    drop(log);
    adb.shell("log -p e -t Port three");
    let mut log = agent.log();
    log.say(&json!({"after": two["seq"], "buffers": ["main"]}));

    let three = log.hear();
    assert_eq!((&three["message"], &three["level"]), (&json!("three"), &json!("error")));
    adb.shell("log -t Port four");
    assert_eq!(log.hear()["message"], "four");
}

#[test]
fn a_host_that_reads_too_late_is_told_what_it_lost() {
    let (agent, adb) = open_device();
    let line = "x".repeat(4000);
    adb.shell(&format!("i=0; while [ $i -lt 100 ]; do log -t Flood {line}; i=$((i+1)); done"));

    let mut log = agent.log();
    log.say(&json!({"after": 0, "buffers": ["main"]}));

    let lost = log.hear()["lost"]["through"].as_u64().expect("what was lost");
    assert_eq!(log.hear()["seq"], lost + 1);
}

#[test]
fn a_switched_off_device_ends() {
    let agent = Agent::open();
    let control = agent.folder.path().join("control");

    assert_eq!(agent.control().ask(json!({"op": "shutdown"}))["ok"], json!({}));

    world::eventually("nobody listens", || std::os::unix::net::UnixStream::connect(&control).err());
    std::thread::sleep(Duration::from_millis(1));
}
