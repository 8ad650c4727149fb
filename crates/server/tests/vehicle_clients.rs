//! Vehicles as strangers use them: Google's gRPC for Python with stubs made from the proto, `adb` in a real automotive device, and `paddock`.

mod daemon;
mod yard;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::{Adb, Data, Phone, Yard};

const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vehicle/proto/vehicle_server.proto");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpcio/client.py");
const SERVICE: &str = "android.hardware.automotive.vehicle.proto.VehicleServer";

const SPEED: i32 = 0x1160_0207;
const GEAR: i32 = 0x1140_0400;
const NIGHT: i32 = 0x1120_0407;
const FAN: i32 = 0x1540_0500;
const BRIGHTNESS: i32 = 0x1140_0a03;
const VIN: i32 = 0x1110_0100;

/// The Python of the virtual environment that `scripts/setup test` makes.
fn python() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    let python = cache.unwrap_or_else(home).join("tools/python/bin/python");
    assert!(python.exists(), "there is no {}; run `scripts/setup test`", python.display());
    python
}

/// A client in Python, of one version of Android.
struct Client {
    child: Child,
    wishes: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(version: u32) -> Client {
        let mut child = Command::new(python())
            .args([SCRIPT, PROTO, &version.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python");
        let wishes = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Client { child, wishes, answers }
    }

    fn connect(&mut self, yard: &Yard, emulator: &str) -> Value {
        self.does(&json!(["connect", yard.daemon.address, yard.token(), emulator]))
    }

    fn asks(&mut self, wish: &Value) -> Value {
        writeln!(self.wishes, "{wish}").expect("python listens");
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).expect("text") > 0, "python ended at {wish}");
            let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if answer != "ready" {
                return answer;
            }
        }
    }

    #[track_caller]
    fn does(&mut self, wish: &Value) -> Value {
        let mut answer = self.asks(wish);
        assert!(answer.get("done").is_some(), "{wish}: {answer}");
        answer["done"].take()
    }

    #[track_caller]
    fn is_refused(&mut self, wish: &Value) -> Value {
        let mut answer = self.asks(wish);
        assert!(answer.get("refused").is_some(), "{wish}: {answer}");
        answer["refused"].take()
    }

    #[track_caller]
    fn get(&mut self, prop: i32, area: i32) -> Value {
        self.does(&json!(["get", [{ "prop": prop, "area_id": area }]]))[0][0].take()
    }

    /// When the value came about, by the car's clock.
    #[track_caller]
    fn time_of(&mut self, prop: i32) -> i64 {
        self.does(&json!(["get", [{ "prop": prop }]]))[0][1].as_i64().expect("a time")
    }

    #[track_caller]
    fn set(&mut self, value: &Value) -> String {
        let answer = self.does(&json!(["set", [value]]));
        answer[0].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    #[track_caller]
    fn drives(&mut self, metres_a_second: f32) {
        assert_eq!(self.set(&json!({ "prop": SPEED, "float_values": [metres_a_second] })), "OK");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `paddock`, which is built beside `paddockd`.
fn paddock(yard: &Yard, arguments: &[&str]) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_paddockd")).with_file_name("paddock");
    assert!(program.exists(), "there is no {}; run `cargo build -p paddock-cli`", program.display());
    let mut command = Command::new(program);
    command.env_clear().env("PADDOCK_URL", yard.daemon.url("")).env("PADDOCK_TOKEN", yard.token());
    command.args(arguments);
    command
}

#[track_caller]
fn done(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn says(yard: &Yard, arguments: &[&str]) -> String {
    done(paddock(yard, arguments).output().expect("paddock"))
}

/// Waits until a property inside the device is this, and says how long that took.
#[track_caller]
fn shows(adb: &Adb, device: &str, property: &str, value: &str) -> Duration {
    let started = Instant::now();
    loop {
        let shown = adb.shell(device, &format!("getprop {property}"));
        if shown == value {
            return started.elapsed();
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{property} is {shown}, not {value}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const INSIDE: &str = "vehicle.perf_vehicle_speed";
const CONNECTED: &str = "sys.vehicle.connected";

async fn automotive(yard: &Yard<'_>, tenant: &str) -> Phone {
    let spec = json!({ "tenantId": tenant, "deviceType": "automotive", "name": "car" });
    let started = Instant::now();
    loop {
        // Images come in one after the other.
        let answer = yard.ask("POST", "/api/v1/emulators", Some(&spec), None).await.expect("an answer");
        if answer.0 == 201 {
            return Phone::read(&answer.1);
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn captured(yard: &Yard<'_>, emulator: &str, name: &str) {
    yard.call("POST", "/api/v1/snapshots", Some(json!({ "emulatorId": emulator, "name": name }))).await;
    let started = Instant::now();
    loop {
        let seen = yard.call("GET", &format!("/api/v1/snapshots/{name}"), None).await;
        if seen["state"] == "ready" {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the guide gives to people who write Python, played until it has told of the speed that it sets.
fn play_the_guide(yard: &Yard, emulator: &str) {
    let guide = include_str!("../../../docs/guide/vehicles.md");
    let script = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let script = script.expect("a script").replace("127.0.0.1:8080", &yard.daemon.address);
    let folder = tempfile::tempdir().expect("a folder");
    let proto = Path::new(PROTO);
    let made = Command::new(python())
        .args(["-m", "grpc_tools.protoc"])
        .arg(format!("-I{}", proto.parent().expect("a folder").display()))
        .args(["--python_out=.", "--grpc_python_out=.", "vehicle_server.proto"])
        .current_dir(folder.path())
        .status();
    assert!(made.expect("python").success());
    let script = format!("token, emulator = {:?}, {emulator:?}\n{script}", yard.token());
    std::fs::write(folder.path().join("guide.py"), script).expect("a file");
    let mut child = Command::new("timeout")
        .arg("60")
        .arg(python())
        .args(["-u", "guide.py"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python");
    let mut said = BufReader::new(child.stdout.take().expect("its output")).lines();
    let told = said.any(|line| line.expect("text").contains("float_values: 27.5"));
    // `timeout` passes this on; it would not live to do so with a kill.
    assert!(Command::new("kill").arg(child.id().to_string()).status().expect("kill").success());
    child.wait().expect("gone");
    drop(said);
    assert!(told, "the guide's script told nothing of the speed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_drive_a_real_device_through_captures_clones_replays_and_kills() {
    let started = Instant::now();
    let at = |what: &str| println!("{:6.1} s: {what}", started.elapsed().as_secs_f64());
    // Stubs are made while the device boots.
    let [mut of_14, mut of_15, mut client] = [14, 15, 16].map(Client::start);
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let car = automotive(&yard, &tenant).await;
    yard.until(&car.id, "running").await;
    adb.connect(&car.address);
    shows(&adb, &car.address, CONNECTED, "1");
    at("the device is up, and has found its car");

    // Android 14: nothing is subscribed to, everything is told, and what is sampled is told as often as was asked for.
    let methods = of_14.connect(&yard, &car.id);
    assert_eq!(methods.as_array().map(Vec::len), Some(7), "{methods}");
    let listed = of_14.does(&json!(["configurations"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(76));
    assert_eq!(of_14.get(SPEED, 0), json!([0.0]));
    assert_eq!(of_14.does(&json!(["check"])), "OK");
    of_14.does(&json!(["follow"]));
    assert_eq!(of_14.does(&json!(["sample", SPEED, 0, 10])), "OK");
    of_14.drives(12.5);
    of_14.does(&json!(["hear", SPEED, 0, [12.5]]));
    assert_eq!(of_14.set(&json!({ "prop": GEAR, "int32_values": [8] })), "OK");
    of_14.does(&json!(["hear", GEAR, 0, [8]]));
    let took = shows(&adb, &car.address, INSIDE, "12.5");
    at(&format!("a client of Android 14 drove; the device showed it after {took:?}"));
    drop(of_14);

    // Android 15: what is subscribed to is told, until it is given up.
    let methods = of_15.connect(&yard, &car.id);
    assert_eq!(methods.as_array().map(Vec::len), Some(9), "{methods}");
    assert_eq!(of_15.does(&json!(["subscribe", GEAR, [0], 0])), "OK");
    assert_eq!(of_15.does(&json!(["subscribe", SPEED, [0], 0])), "INVALID_ARG");
    of_15.does(&json!(["follow"]));
    assert_eq!(of_15.set(&json!({ "prop": NIGHT, "int32_values": [1] })), "OK");
    assert_eq!(of_15.set(&json!({ "prop": GEAR, "int32_values": [4] })), "OK");
    assert_eq!(of_15.does(&json!(["hear", GEAR, 0, [4]])), 0);
    assert_eq!(of_15.does(&json!(["unsubscribe", GEAR, 0])), "OK");
    assert_eq!(of_15.set(&json!({ "prop": GEAR, "int32_values": [8] })), "OK");
    assert_eq!(of_15.does(&json!(["told", GEAR, 0.5])), 0);
    drop(of_15);
    at("a client of Android 15 chose");

    // Android 16, and all of it.
    let methods = client.connect(&yard, &car.id);
    assert_eq!(methods.as_array().map(Vec::len), Some(12), "{methods}");
    let listed = client.does(&json!(["configurations"]));
    let fan = listed.as_array().expect("a list").iter().find(|each| each["prop"] == FAN).expect("a fan");
    assert_eq!(fan["area_configs"].as_array().map(Vec::len), Some(5), "{fan}");
    assert_eq!(fan["area_configs"][0]["max_int32_value"], 7, "{fan}");
    assert_eq!(
        client.does(&json!(["limits", FAN, 1])),
        json!([{ "min_supported_value": { "int32_values": [1] }, "max_supported_value": { "int32_values": [7] } }, {}])
    );
    assert_eq!(client.set(&json!({ "prop": FAN, "area_id": 1, "int32_values": [8] })), "INVALID_ARG");
    assert_eq!(client.does(&json!(["get", [{ "prop": BRIGHTNESS }]])), json!(["NOT_AVAILABLE"]));
    assert!(client.does(&json!(["dump", ["--list"]])).as_str().is_some_and(|text| text.contains("HVAC")));
    client.does(&json!(["follow"]));
    assert_eq!(client.does(&json!(["subscribe", SPEED, [0], 10])), "OK");
    assert_eq!(client.does(&json!(["subscribe", FAN, [1], 0])), "OK");
    client.drives(33.5);
    client.does(&json!(["hear", SPEED, 0, [33.5]]));
    shows(&adb, &car.address, INSIDE, "33.5");
    assert_eq!(adb.shell(&car.address, "vehicle get PERF_VEHICLE_SPEED"), "33.5");
    // From inside to outside.
    adb.shell(&car.address, "vehicle set HVAC_FAN_SPEED 0x1 5");
    client.does(&json!(["hear", FAN, 1, [5]]));
    // Health and reflection need no credential, everything else does.
    for service in ["", SERVICE] {
        assert_eq!(client.does(&json!(["health", service])), "SERVING");
    }
    assert_eq!(client.is_refused(&json!(["health", "no.such.Service"])), "NOT_FOUND");
    let told = client.does(&json!(["reflection"]));
    assert!(told["services"].as_array().expect("services").contains(&json!(SERVICE)), "{told}");
    assert_eq!(told["methods"].as_array().map(Vec::len), Some(12), "{told}");
    assert_eq!(told["fields"], json!(["requests"]));
    client.does(&json!(["connect", yard.daemon.address, "nobody", car.id]));
    assert_eq!(client.is_refused(&json!(["get", [{ "prop": SPEED }]])), "UNAUTHENTICATED");
    client.connect(&yard, "emu_01jcr8e8v0e9bvqz3tz4d0wq2h");
    assert_eq!(client.is_refused(&json!(["get", [{ "prop": SPEED }]])), "NOT_FOUND");
    client.connect(&yard, &car.id);
    at("a client of Android 16 did everything");

    // The server is killed: the stream says so; values, the device's way to its car and its clock come back.
    let before = client.time_of(SPEED);
    let yard = yard.reopen();
    assert_eq!(client.does(&json!(["ended"])), "UNAVAILABLE");
    client.connect(&yard, &car.id);
    assert_eq!(yard.until(&car.id, "running").await["incarnation"], 1);
    assert_eq!((client.get(SPEED, 0), client.get(FAN, 1)), (json!([33.5]), json!([5])));
    assert!(client.time_of(SPEED) >= before);
    client.does(&json!(["follow"]));
    assert_eq!(client.does(&json!(["subscribe", SPEED, [0], 10])), "OK");
    assert_eq!(client.does(&json!(["subscribe", FAN, [1], 0])), "OK");
    shows(&adb, &car.address, CONNECTED, "1");
    client.drives(20.0);
    shows(&adb, &car.address, INSIDE, "20");
    adb.shell(&car.address, "vehicle set HVAC_FAN_SPEED 0x1 6");
    client.does(&json!(["hear", FAN, 1, [6]]));
    at("the server was killed, and the device found its car again");

    play_the_guide(&yard, &car.id);
    shows(&adb, &car.address, INSIDE, "27.5");
    at("the guide's script was played");

    // A drive is recorded, while somebody drives.
    let drive = data.path().join("drive.jsonl");
    let drive = drive.to_str().expect("text");
    let mut recording = paddock(&yard, &["vehicle", "record", "car", "--for", "3s", "--to", drive])
        .stderr(Stdio::piped())
        .spawn()
        .expect("paddock");
    let mut notice = String::new();
    let mut notices = BufReader::new(recording.stderr.take().expect("its output"));
    notices.read_line(&mut notice).expect("text");
    assert!(notice.starts_with("Recording vtr_"), "{notice}");
    for speed in [5.0, 10.0, 15.0, 40.0] {
        client.drives(speed);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(recording.wait().expect("an end").success());
    at("a drive was recorded");

    // What is captured is what clones begin with, each as a car of its own.
    client.drives(61.5);
    captured(&yard, &car.id, "on-the-road").await;
    at("the device was captured");
    client.drives(1.0);
    let mut clones = Vec::new();
    for name in ["clone-1", "clone-2", "clone-3"] {
        let body = json!({ "tenantId": tenant, "snapshot": "on-the-road", "name": name });
        clones.push(Phone::read(&yard.call("POST", "/api/v1/emulators", Some(body)).await));
    }
    let mut numbers = vec![client.get(VIN, 0)];
    for clone in &clones {
        yard.until(&clone.id, "running").await;
        adb.connect(&clone.address);
        client.connect(&yard, &clone.id);
        assert_eq!((client.get(SPEED, 0), client.get(FAN, 1)), (json!([61.5]), json!([6])));
        numbers.push(client.get(VIN, 0));
        shows(&adb, &clone.address, CONNECTED, "1");
        shows(&adb, &clone.address, INSIDE, "61.5");
        assert_eq!(adb.shell(&clone.address, "vehicle get PERF_VEHICLE_SPEED"), "61.5");
    }
    numbers.sort_by_key(Value::to_string);
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "{numbers:?}");
    at("three clones are up, each with the speed of then");

    // The drive in all three at half its pace; the server is killed before it is over.
    let replay = ["vehicle", "replay", drive, "clone-1", "clone-2", "clone-3", "--speed", "0.5"];
    let told = says(&yard, &replay);
    assert_eq!(told.matches("0.5x").count(), 3, "{told}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let yard = yard.reopen();
    let path = |clone: &Phone| format!("/api/v1/emulators/{}/vehicle/replay", clone.id);
    let under_way = yard.call("GET", &path(&clones[2]), None).await;
    assert!(under_way["endedAt"].is_null() && under_way["speed"] == 0.5, "{under_way}");
    for clone in &clones {
        let begun = Instant::now();
        let mut seen = yard.call("GET", &path(clone), None).await;
        while seen["endedAt"].is_null() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{seen}");
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen = yard.call("GET", &path(clone), None).await;
        }
        assert!(seen["problem"].is_null() && seen["eventsDone"] == seen["eventsTotal"], "{seen}");
        client.connect(&yard, &clone.id);
        assert_eq!(client.get(SPEED, 0), json!([40.0]));
        shows(&adb, &clone.address, INSIDE, "40");
    }
    assert!(says(&yard, &["vehicle", "get", "clone-2", "PERF_VEHICLE_SPEED"]).contains("40"));
    // Nobody drove the first one meanwhile.
    client.connect(&yard, &car.id);
    assert_eq!(client.get(SPEED, 0), json!([1.0]));
    at("the drive was played into all three, over a kill");
}
