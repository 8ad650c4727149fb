//! Real devices through the API: the real binary, QEMU, and Debian's `adb`.

mod daemon;
mod sse;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use daemon::{Daemon, free_port};
use serde_json::{Value, json};

fn images() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    let folder = cache.unwrap_or_else(home).join("image");
    let there = folder.join("phone.profile.json").exists();
    assert!(there, "there is no image in {}; run `make image`", folder.display());
    folder
}

/// A server with real devices, and its admin.
struct Yard {
    daemon: Daemon,
    data: PathBuf,
    http: reqwest::Client,
    token: String,
}

impl Yard {
    fn open(data: &Path) -> Yard {
        let images = images();
        let flags = ["--devices-images", images.to_str().expect("text")];
        let daemon = Daemon::start(data, &flags);
        let token =
            daemon::paddockd().args(["admin", "token", "--data"]).arg(data).output().expect("a token");
        let token = String::from_utf8(token.stdout).expect("text").trim().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(90)).build().expect("a client");
        Yard { daemon, data: data.to_owned(), http, token }
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.http.request(method, self.daemon.url(path)).bearer_auth(&self.token);
        let request = body.into_iter().fold(request, |request, body| request.json(&body));
        let answer = request.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    async fn until(&self, id: &str, wanted: &str) -> Value {
        let started = Instant::now();
        loop {
            let seen = self.call("GET", &format!("/api/v1/emulators/{id}/status?wait=1"), None).await;
            if seen["status"] == wanted {
                return seen;
            }
            assert!(started.elapsed() < Duration::from_secs(90), "{seen} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// As if the power had gone, and come back.
    fn reopen(mut self) -> Yard {
        let _ = self.daemon.child.kill();
        let _ = self.daemon.child.wait();
        Yard::open(&self.data)
    }
}

/// Devices outlive their server; those of a test that failed must not outlive the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        for process in processes(&self.0.display().to_string()) {
            let _ = Command::new("kill").args(["-9", &process]).status();
        }
    }
}

/// Debian's adb, with a server of its own that ends with the test.
struct Adb(u16);

impl Adb {
    fn run(&self, arguments: &[&str]) -> Output {
        let port = self.0.to_string();
        let adb = Command::new("timeout").args(["30", "adb", "-P", &port]).args(arguments).output();
        adb.expect("adb; `make test` installs it")
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// A connection of an earlier start of the device is of no use any more.
    fn connect(&self, device: &str) {
        self.run(&["disconnect", device]);
        let said = self.says(&["connect", device]);
        assert!(said.contains("connected to"), "{said}");
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// The devices' processes that have this in their arguments.
fn processes(text: &str) -> Vec<String> {
    let listed = Command::new("pgrep").args(["-f", &format!("qemu-system.*{text}")]).output().expect("pgrep");
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

impl Yard {
    /// A phone that is up, and where `adb` finds it.
    async fn phone(&self) -> (String, String) {
        let tenant = self.call("POST", "/api/v1/tenants", Some(json!({ "name": "acme" }))).await;
        for _ in 0..600 {
            let ready = self.call("GET", "/api/v1/snapshots?deployable=true&deviceType=phone", None).await;
            if !ready["items"][0].is_null() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let spec = json!({ "tenantId": tenant["id"], "deviceType": "phone" });
        let made = self.call("POST", "/api/v1/emulators", Some(spec)).await;
        let id = made["id"].as_str().expect("an id").to_owned();
        self.until(&id, "running").await;
        let host = made["endpoints"]["adb"]["host"].as_str().expect("an address").to_owned();
        (id, format!("{host}:5555"))
    }

    async fn log(&self, id: &str, last: Option<u64>) -> sse::Reader {
        let path = format!("/api/v1/emulators/{id}/logs");
        sse::Reader::open(&self.daemon.address, &self.token, &path, last).await
    }
}

#[tokio::test]
async fn no_line_of_a_device_is_lost_or_told_twice_however_often_its_server_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let _cleared = Cleared(folder.path().to_owned());
    let mut yard = Yard::open(folder.path());
    let adb = Adb(free_port());
    let (id, device) = yard.phone().await;
    adb.connect(&device);
    const LINES: usize = 300;
    let count = format!(
        "i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); log -t Count \"number $i\"; echo \"number $i\" > /dev/ttyS0; done"
    );
    let port = adb.0.to_string();
    let mut counting = Command::new("timeout")
        .args(["120", "adb", "-P", &port, "-s", &device, "shell", &count])
        .spawn()
        .expect("a shell");

    // Killed while lines come, at moments that have nothing to do with them.
    let (mut events, mut last) = (Vec::new(), None);
    let mut kills = 0;
    while counting.try_wait().expect("a process").is_none() || kills < 3 {
        let mut reader = yard.log(&id, last).await;
        let until = Instant::now() + Duration::from_millis(700 + 211 * kills);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Ok(Some(event)) = reader.next_within(left).await {
                events.push(event);
            }
        }
        let _ = yard.daemon.child.kill();
        while let Ok(Some(event)) = reader.next_within(Duration::from_secs(5)).await {
            events.push(event);
        }
        last = reader.last;
        yard = yard.reopen();
        kills += 1;
    }
    assert!(counting.wait().expect("an end").success());
    // A new start of the device, and its end.
    yard.until(&id, "running").await;
    yard.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await;
    yard.until(&id, "running").await;
    yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
    events.extend(yard.log(&id, last).await.rest().await);
    events.retain(|event| *event != sse::Event::Comment);

    let end = events.pop().expect("an end");
    assert_eq!(end.data()["reason"], "terminated", "{end:?}");
    let ids: Vec<u64> = events.iter().filter_map(sse::Event::id).collect();
    assert_eq!(ids, (ids[0]..ids[0] + events.len() as u64).collect::<Vec<_>>(), "one after the other");
    let expected: Vec<String> = (1..=LINES).map(|number| format!("number {number}")).collect();
    let of = |source: &str| -> Vec<String> {
        let lines = events.iter().filter(|event| event.data()["source"] == source);
        lines.map(|event| event.line().to_owned()).filter(|line| line.starts_with("number ")).collect()
    };
    assert_eq!(of("logcat"), expected, "after {kills} kills");
    assert_eq!(of("console"), expected, "after {kills} kills");
    assert!(!events.iter().any(|event| event.is("gap")));
    let incarnations = |source: &str| -> Vec<i64> {
        let mut found: Vec<i64> = events
            .iter()
            .filter(|event| event.data()["source"] == source)
            .filter_map(|event| event.data()["incarnation"].as_i64())
            .collect();
        found.dedup();
        found
    };
    assert_eq!(incarnations("logcat"), [1, 2], "one start after the other");
    assert_eq!(incarnations("console"), [1, 2], "one start after the other");
    println!("{} events over {kills} kills", events.len());
}

#[tokio::test]
async fn a_device_lives_through_whatever_happens_to_its_server_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let _cleared = Cleared(folder.path().to_owned());
    let yard = Yard::open(folder.path());
    let adb = Adb(free_port());
    let tenant = yard.call("POST", "/api/v1/tenants", Some(json!({ "name": "acme" }))).await;
    for _ in 0..600 {
        let ready = yard.call("GET", "/api/v1/snapshots?deployable=true&deviceType=phone", None).await;
        if !ready["items"][0].is_null() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let spec = json!({ "tenantId": tenant["id"], "deviceType": "phone" });
    let made = yard.call("POST", "/api/v1/emulators", Some(spec)).await;
    let id = made["id"].as_str().expect("an id").to_owned();
    yard.until(&id, "running").await;
    let device = format!("{}:5555", made["endpoints"]["adb"]["host"].as_str().expect("an address"));

    // It is the device that it says it is, and keeps what is written to it.
    adb.connect(&device);
    let said = adb.says(&["-s", &device, "shell", "getprop ro.serialno; echo kept > /data/kept; sync"]);
    assert_eq!(said.trim(), made["serial"].as_str().expect("a serial"));
    let live = yard.call("GET", &format!("/api/v1/emulators/{id}"), None).await;
    assert_eq!(live["live"]["properties"]["ro.serialno"], made["serial"], "{live}");
    let big = folder.path().join("big");
    let bytes: Vec<u8> =
        (0..8u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&big, &bytes).expect("a file");
    let back = folder.path().join("back");
    adb.says(&["-s", &device, "push", big.to_str().expect("text"), "/data/big"]);
    adb.says(&["-s", &device, "pull", "/data/big", back.to_str().expect("text")]);
    assert!(std::fs::read(&back).is_ok_and(|copy| copy == bytes), "what came back is not what went in");

    // The doctor finds what is too much and what is missing, and touches neither.
    let doctor =
        || daemon::paddockd().args(["doctor", "--data"]).arg(folder.path()).output().expect("output");
    assert!(doctor().status.success(), "{:?}", doctor());
    let disks = folder.path().join("disks/disks");
    let (stranger, disk) = (disks.join("notes.txt"), std::fs::read_dir(&disks).expect("disks").next());
    let disk = disk.expect("a disk").expect("an entry").path();
    std::fs::write(&stranger, "mine").expect("a file");
    let aside = folder.path().join("aside");
    std::fs::rename(&disk, &aside).expect("moved");
    let found = doctor();
    std::fs::rename(&aside, &disk).expect("moved back");
    let told = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && told.lines().count() == 2, "{found:?}");
    assert!(told.contains("notes.txt") && told.contains(&format!("of emulator {id} is recorded")), "{told}");
    std::fs::remove_file(&stranger).expect("nobody has touched it");

    // The server dies: the device does not notice, nor does an open shell.
    let before = processes(&id);
    assert_eq!(before.len(), 1);
    let port = adb.0.to_string();
    let shell = Command::new("timeout")
        .args(["60", "adb", "-P", &port, "-s", &device, "shell", "sleep 4; echo still here"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let yard = yard.reopen();
    assert_eq!(processes(&id), before);
    assert_eq!(yard.until(&id, "running").await["incarnation"], 1);
    let shell = shell.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), "still here");

    // The device dies: the status says so, and a restart mends it, on the same disk and address.
    Command::new("kill").args(["-9", &before[0]]).status().expect("killed");
    // How it ended is known only to the server that started it.
    assert_eq!(yard.until(&id, "failed").await["statusReason"]["code"], "ended");
    yard.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await;
    assert_eq!(yard.until(&id, "running").await["incarnation"], 2);
    adb.connect(&device);
    assert_eq!(adb.says(&["-s", &device, "shell", "cat /data/kept"]).trim(), "kept");

    // It is stopped dead: unreachable, and there again when it goes on.
    let qemu = processes(&id);
    Command::new("kill").args(["-STOP", &qemu[0]]).status().expect("stopped");
    yard.until(&id, "unreachable").await;
    Command::new("kill").args(["-CONT", &qemu[0]]).status().expect("continued");
    yard.until(&id, "running").await;

    // The server dies in the middle of the end: the end is reached all the same, and nothing is left.
    yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
    let yard = yard.reopen();
    yard.until(&id, "terminated").await;
    assert!(processes(&id).is_empty());
    assert_eq!(entries(&folder.path().join("disks/disks")), 0);
    assert_eq!(entries(&folder.path().join("devices/run")), 0);
}
