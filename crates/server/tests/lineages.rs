//! Long lineages of real devices become short while the devices run, with QEMU and Debian's `adb`; the server may be killed meanwhile.

mod daemon;
mod yard;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::kills::{PATIENCE, SNAPSHOTS, World, steps_by};
use yard::{Adb, Data, Phone, Yard};

const EMULATORS: &str = "/api/v1/emulators";
const SHORT: [&str; 6] =
    ["--snapshots-soft-depth", "2", "--snapshots-hard-depth", "3", "--consolidation-grace-seconds", "1"];
const NEVER: [&str; 2] = ["--consolidation-at-once", "0"];

async fn until(yard: &Yard<'_>, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let seen = yard.call("GET", &format!("{SNAPSHOTS}/{name}"), None).await;
        if is_so(&seen) {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "{seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn capture(yard: &Yard<'_>, emulator: &str, name: &str) -> Value {
    yard.call("POST", SNAPSHOTS, Some(json!({ "emulatorId": emulator, "name": name }))).await;
    until(yard, name, |seen| seen["state"] == "ready").await
}

/// The files of layers.
fn layers(data: &Data) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data.path().join("disks/layers")).expect("layers");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "qcow2")).collect()
}

fn qemu_img(arguments: &[&str], files: [&Path; 2]) {
    let done = Command::new("qemu-img").args(arguments).args(files).output().expect("qemu-img");
    assert!(done.status.success(), "{arguments:?} {files:?}: {done:?}");
}

/// What each layer shows, as QEMU's own tools read it through all that is below.
fn copies(data: &Data) -> Vec<(PathBuf, PathBuf)> {
    let mut copies = Vec::new();
    for layer in layers(data) {
        let copy = data.path().join(layer.with_extension("copy").file_name().expect("a name"));
        qemu_img(&["convert", "-U", "-O", "raw"], [&layer, &copy]);
        copies.push((layer, copy));
    }
    copies
}

#[tokio::test]
async fn captures_beyond_the_limit_can_be_deployed_once_they_are_consolidated() {
    let data = Data::new();
    let yard = Yard::open(&data, &[&SHORT[..], &NEVER].concat());
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    for number in 1..=4 {
        adb.shell(&phone.address, &format!("echo {number} > /data/file{number}; sync"));
        capture(&yard, &phone.id, &format!("c{number}")).await;
    }
    adb.shell(&phone.address, "echo last > /data/last; sync");
    let deep = until(&yard, "c4", |_| true).await;
    assert_eq!(deep["deployableProblems"], json!(["chain_too_deep"]), "{deep}");
    let body = json!({ "tenantId": tenant, "snapshot": "c4" });
    let (status, refused) = yard.ask("POST", EMULATORS, Some(&body), None).await.expect("an answer");
    assert_eq!((status, &refused["code"]), (409, &json!("not_deployable")));
    let (before, process) = (copies(&data), data.processes(&phone.id));

    // The same server, now with leave to consolidate; the device runs on.
    drop(yard);
    let yard = Yard::open(&data, &SHORT);
    for name in ["c4", "c3", "c2", "c1"] {
        until(&yard, name, |seen| seen["depth"] == 2 && seen["deployable"] == true).await;
    }
    for (layer, copy) in &before {
        qemu_img(&["compare", "-U"], [copy, layer]);
    }
    assert_eq!(data.processes(&phone.id), process, "the device noticed nothing");
    assert_eq!(adb.shell(&phone.address, "cat /data/file1 /data/last"), "1\nlast");
    let clone = Phone::read(&yard.call("POST", EMULATORS, Some(body)).await);
    yard.until(&clone.id, "running").await;
    adb.connect(&clone.address);
    assert_eq!(
        adb.shell(&clone.address, "cat /data/file1 /data/file2 /data/file3 /data/file4"),
        "1\n2\n3\n4"
    );
    assert!(!adb.says(&["-s", &clone.address, "shell", "cat /data/last"]).contains("last\n"));

    // What stands on nothing any more goes, and the device boots from what is there now.
    for name in ["c1", "c2", "c3"] {
        yard.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await;
    }
    let (started, images) = (Instant::now(), before.len() - 4);
    while layers(&data).len() != images + 1 {
        assert!(started.elapsed() < PATIENCE, "{:?}", layers(&data));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    yard.call("POST", &format!("{EMULATORS}/{}/restart", phone.id), None).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/file1 /data/file4 /data/last"), "1\n4\nlast");
    yard.sound();
}

#[tokio::test]
async fn consolidating_survives_a_kill_at_every_step() {
    let data = Data::new();
    let mut world = World::new(&data, &SHORT).await;
    let adb = Adb::new();
    let phone = world.yard.phone(&world.tenant).await;
    world.yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    capture(&world.yard, &phone.id, "first").await;
    let process = data.processes(&phone.id);
    let (mut kills, mut last) = (0, "first".to_owned());
    for steps in steps_by(11) {
        adb.shell(&phone.address, &format!("echo {steps} > /data/kept; sync"));
        let name = format!("taken-{steps}");
        // From the moment on at which the layer gets its record.
        world.kills.arm_from(".lay_", steps);
        let body = json!({ "emulatorId": phone.id, "name": name });
        world.yard.call("POST", SNAPSHOTS, Some(body)).await;
        let started = Instant::now();
        let mut killed = false;
        let seen = loop {
            if world.is_dead() {
                killed = true;
                world.revive();
            }
            let seen = world.yard.ask("GET", &format!("{SNAPSHOTS}/{name}"), None, None).await;
            match seen {
                Some((200, seen)) if seen["depth"] == 2 => break seen,
                _ => assert!(started.elapsed() < PATIENCE, "{seen:?}, {}", world.kills.last()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let (counted, step) = (world.kills.disarm(), world.kills.last());
        kills += u32::from(killed);
        assert_ne!(seen["state"], "faulted", "{seen}, {step}");
        assert_eq!(data.processes(&phone.id), process, "it went on: {step}");
        assert_eq!(adb.shell(&phone.address, "cat /data/kept"), steps.to_string(), "{step}");
        // What is on its way is no fault.
        let started = Instant::now();
        while !world.yard.doctor().status.success() {
            let said = world.yard.doctor();
            assert!(said.status.success() || started.elapsed() < PATIENCE, "{said:?}, {step}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        world.yard.call("DELETE", &format!("{SNAPSHOTS}/{last}"), None).await;
        last = name;
        if !killed && counted < steps {
            break;
        }
    }
    assert!(kills >= 3, "only {kills} kills");
    until(&world.yard, &last, |seen| seen["state"] == "ready" && seen["deployable"] == true).await;
    let body = json!({ "tenantId": world.tenant, "snapshot": last });
    let clone = Phone::read(&world.yard.call("POST", EMULATORS, Some(body)).await);
    world.yard.until(&clone.id, "running").await;
    adb.connect(&clone.address);
    let kept = adb.shell(&clone.address, "cat /data/kept");
    assert_eq!(format!("taken-{kept}"), last);
    world.yard.sound();
}
