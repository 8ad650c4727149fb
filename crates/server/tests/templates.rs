//! Snapshots with memory: real devices are captured while they run, and their clones resume where they stood, each as itself.

mod daemon;
mod yard;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use yard::kills::{Act, PATIENCE, Until, World, delete, deploy, steps_by};
use yard::{Adb, Data, Phone, Yard};

const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";

async fn until(yard: &Yard<'_>, name: &str, state: &str) -> Value {
    let started = Instant::now();
    loop {
        let path = format!("{SNAPSHOTS}/{name}");
        let (status, seen) = yard.ask("GET", &path, None, None).await.expect("an answer");
        if status == 404 && state == "gone" || seen["state"] == state {
            return seen;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{seen} and not {state}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn capture(yard: &Yard<'_>, emulator: &str, name: &str) -> Value {
    let body = json!({ "emulatorId": emulator, "name": name, "memory": true });
    let made = yard.call("POST", SNAPSHOTS, Some(body)).await;
    assert_eq!((&made["hasMemory"], &made["memory"]["state"]), (&json!(false), &json!("pending")), "{made}");
    until(yard, name, "ready").await
}

/// A clone that is wanted; it comes up by itself.
async fn deploys(yard: &Yard<'_>, tenant: &str, snapshot: &str) -> Phone {
    let body = json!({ "tenantId": tenant, "snapshot": snapshot });
    Phone::read(&yard.call("POST", EMULATORS, Some(body)).await)
}

async fn delete_all(yard: &Yard<'_>, phones: &[&Phone]) {
    for phone in phones {
        yard.call("DELETE", &format!("{EMULATORS}/{}", phone.id), None).await;
    }
    for phone in phones {
        yard.until(&phone.id, "terminated").await;
    }
}

async fn used_bytes(yard: &Yard<'_>) -> i64 {
    let pools = yard.call("GET", &format!("{SNAPSHOTS}/diskpool"), None).await;
    pools["pools"][0]["usedBytes"].as_i64().expect("a size")
}

fn templates(data: &Data) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data.path().join("devices/templates")).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

async fn until_no_templates(data: &Data) {
    let started = Instant::now();
    while !templates(data).is_empty() {
        assert!(started.elapsed() < PATIENCE, "{:?} are left", templates(data));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn clones_resume_at_once_where_the_device_stood_and_each_is_itself() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    let up = yard.until(&phone.id, "running").await;
    assert_eq!(up["start"], json!({ "kind": "cold", "reason": null }), "{up}");
    adb.connect(&phone.address);
    // Something that only memory holds: a file that is on no disk, and a process that counts.
    adb.shell(&phone.address, "echo disk > /data/kept; echo memory > /tmp/kept; mkdir -p /tmp/own");
    let counts = "(n=0; while :; do n=$((n+1)); echo $n > /tmp/next; mv /tmp/next /tmp/count; usleep 20000; done) </dev/null >/dev/null 2>&1 &";
    adb.shell(&phone.address, counts);
    // In one step, or somebody would read it half written.
    let count = |device: &str| adb.shell(device, "cat /tmp/count").parse::<u64>().expect("a number");
    // How long it stands still, as somebody who looks at it sees it.
    let clock = adb
        .command(&[
            "-s",
            &phone.address,
            "shell",
            "while ! test -e /tmp/over; do cut -d' ' -f1 /proc/uptime; usleep 10000; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let pause = std::thread::spawn(move || {
        use std::io::BufRead;
        let mut longest = Duration::ZERO;
        let mut last: Option<Instant> = None;
        let mut clock = clock;
        for _ in std::io::BufReader::new(clock.stdout.take().expect("its output")).lines() {
            let now = Instant::now();
            longest = longest.max(last.map(|last| now - last).unwrap_or_default());
            last = Some(now);
        }
        let _ = clock.wait();
        longest
    });
    let process = data.processes(&phone.id);

    let warm = capture(&yard, &phone.id, "warm").await;

    assert_eq!(warm["hasMemory"], true, "{warm}");
    assert_eq!(
        (&warm["memory"]["state"], &warm["consistency"]),
        (&json!("ready"), &json!("filesystem")),
        "{warm}"
    );
    assert!(warm["memory"]["sizeBytes"].as_i64().is_some_and(|bytes| bytes > 1 << 20), "{warm}");
    assert!(warm["verifiedBoot"]["durationMs"].as_i64().is_some(), "the disk was booted, too: {warm}");
    assert_eq!(data.processes(&phone.id), process, "the device went on");
    adb.shell(&phone.address, "touch /tmp/over; echo later > /tmp/kept");
    let pause = pause.join().expect("a time");
    println!(
        "the longest pause was {pause:?}; a clone resumed in {} ms, and booted in {} ms",
        warm["memory"]["resumeDurationMs"], warm["verifiedBoot"]["durationMs"]
    );
    assert!(pause < Duration::from_secs(5), "{pause:?}");
    let counted = count(&phone.address);
    let begun = Instant::now();
    let mut clones = Vec::new();
    for _ in 0..3 {
        clones.push(deploys(&yard, &tenant, "warm").await);
    }
    for clone in &clones {
        let up = yard.until(&clone.id, "running").await;
        assert_eq!(up["start"], json!({ "kind": "warm", "reason": null }), "{up}");
    }
    println!("3 clones after {:?}", begun.elapsed());
    let mut random = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for clone in &clones {
        adb.connect(&clone.address);
        let shell = |line: &str| adb.shell(&clone.address, line);
        assert_eq!(shell("cat /tmp/kept /data/kept"), "memory\ndisk");
        assert_eq!(shell("getprop ro.serialno"), clone.serial);
        ids.insert(shell("settings get secure android_id"));
        ids.insert(shell("cat /sys/class/net/eth0/address"));
        ids.insert(shell("cat /etc/machine-id"));
        random.insert(shell("head -c 32 /dev/urandom | od -An -tx1"));
        let host = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let guest: u64 = shell("date +%s").parse().expect("a time");
        assert!(host.abs_diff(guest) <= 3, "{guest} there and {host} here");
        // The process goes on from where it was, and by itself.
        let first = count(&clone.address);
        assert!(first > 0, "it counts");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(count(&clone.address) > first, "it goes on");
        shell(&format!("echo {} > /data/own; sync", clone.id));
    }
    assert_eq!((random.len(), ids.len()), (3, 9), "{random:?} {ids:?}");
    assert!(count(&phone.address) > counted);
    assert_eq!(
        adb.shell(&phone.address, "cat /tmp/kept; cat /data/own 2>/dev/null || echo none"),
        "later\nnone"
    );
    yard.sound();

    // A restart boots from the clone's own disk; a server that comes back finds the others as they are.
    yard.call("POST", &format!("{EMULATORS}/{}/restart", clones[0].id), None).await;
    let up = yard.until(&clones[0].id, "running").await;
    assert_eq!(up["start"], json!({ "kind": "cold", "reason": null }), "{up}");
    adb.connect(&clones[0].address);
    assert_eq!(
        adb.shell(&clones[0].address, "cat /data/own; cat /tmp/kept 2>/dev/null || echo none"),
        format!("{}\nnone", clones[0].id)
    );
    let yard = yard.reopen();
    yard.until(&clones[1].id, "running").await;
    adb.connect(&clones[1].address);
    assert_eq!(adb.shell(&clones[1].address, "cat /tmp/kept"), "memory");

    // A swap resumes, too, and what is proved again stays.
    let swap = json!({ "snapshot": "warm" });
    yard.call("PUT", &format!("{EMULATORS}/{}/snapshot", clones[0].id), Some(swap)).await;
    let up = yard.until(&clones[0].id, "running").await;
    assert_eq!(up["start"]["kind"], "warm", "{up}");
    yard.call("POST", &format!("{SNAPSHOTS}/warm/verify"), None).await;
    let started = Instant::now();
    loop {
        let seen = yard.call("GET", &format!("{SNAPSHOTS}/warm"), None).await;
        assert_eq!(seen["hasMemory"], true, "{seen}");
        if seen["verifiedBoot"]["at"] != warm["verifiedBoot"]["at"] {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // With its snapshot the memory goes.
    delete_all(&yard, &[&phone, &clones[0], &clones[1], &clones[2]]).await;
    assert_eq!(templates(&data).len(), 1);
    let memory = warm["memory"]["sizeBytes"].as_i64().expect("a size");
    // The pool is looked at now and then.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = used_bytes(&yard).await;
    yard.call("DELETE", &format!("{SNAPSHOTS}/warm"), None).await;
    until(&yard, "warm", "gone").await;
    until_no_templates(&data).await;
    let started = Instant::now();
    while used_bytes(&yard).await > before - memory {
        assert!(started.elapsed() < PATIENCE, "{memory} bytes of memory were not counted in {before}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(data.leftovers(), [] as [PathBuf; 0]);
    yard.sound();
}

#[tokio::test]
async fn what_cannot_resume_boots_and_says_why() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo disk > /data/kept; echo memory > /tmp/kept; sync");
    let warm = capture(&yard, &phone.id, "warm").await;
    assert_eq!(warm["hasMemory"], true, "{warm}");
    let folder = templates(&data).remove(0);
    let record = folder.join("template.json");
    let text = std::fs::read_to_string(&record).expect("a record");
    let told: Value = serde_json::from_str(&text).expect("JSON");
    let fingerprint = told["fingerprint"].as_str().expect("a fingerprint").to_owned();

    let boots = async |why: &str| {
        let clone = deploys(&yard, &tenant, "warm").await;
        let up = yard.until(&clone.id, "running").await;
        let (kind, reason) = (&up["start"]["kind"], &up["start"]["reason"]);
        assert_eq!((kind, &reason["code"]), (&json!("cold"), &json!("not_resumed")), "{up}");
        assert!(reason["message"].as_str().is_some_and(|text| text.contains(why)), "{why}: {up}");
        adb.connect(&clone.address);
        assert_eq!(
            adb.shell(&clone.address, "cat /data/kept; cat /tmp/kept 2>/dev/null || echo none"),
            "disk\nnone"
        );
        assert_eq!(adb.shell(&clone.address, "getprop ro.serialno"), clone.serial);
        delete_all(&yard, &[&clone]).await;
    };
    // Another version of QEMU, another machine.
    std::fs::write(&record, text.replace(&fingerprint, &"0".repeat(64))).expect("written");
    boots("another machine").await;
    std::fs::write(&record, &text).expect("written");
    // Bytes that somebody has changed.
    let memory = std::fs::File::options().write(true).open(folder.join("memory.ram")).expect("a file");
    memory.write_all_at(b"nonsense", 1 << 20).expect("written");
    boots("memory.ram").await;

    // Looked at again, the snapshot has no memory any more, and stays what it was otherwise.
    yard.call("POST", &format!("{SNAPSHOTS}/warm/verify"), None).await;
    let started = Instant::now();
    let seen = loop {
        let seen = yard.call("GET", &format!("{SNAPSHOTS}/warm"), None).await;
        if seen["memory"]["state"] == "failed" && seen["verifiedBoot"]["at"] != warm["verifiedBoot"]["at"] {
            break seen;
        }
        assert!(started.elapsed() < PATIENCE, "{seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((&seen["hasMemory"], &seen["deployable"]), (&json!(false), &json!(true)), "{seen}");
    assert_eq!(seen["memory"]["reason"]["code"], "integrity_mismatch", "{seen}");
    until_no_templates(&data).await;
    let clone = deploys(&yard, &tenant, "warm").await;
    let up = yard.until(&clone.id, "running").await;
    assert_eq!(up["start"], json!({ "kind": "cold", "reason": null }), "{up}");

    // Nobody's memory is to be had of a device that does not run.
    yard.call("POST", &format!("{EMULATORS}/{}/park", phone.id), None).await;
    yard.until(&phone.id, "parked").await;
    let body = json!({ "emulatorId": phone.id, "name": "parked", "memory": true });
    let started = Instant::now();
    // What is left of its run is put away first.
    while yard.ask("POST", SNAPSHOTS, Some(&body), None).await.expect("an answer").0 != 202 {
        assert!(started.elapsed() < PATIENCE, "it cannot be captured");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let parked = until(&yard, "parked", "ready").await;
    assert_eq!(
        (&parked["hasMemory"], &parked["memory"]["state"]),
        (&json!(false), &json!("failed")),
        "{parked}"
    );
    assert_eq!(parked["memory"]["reason"]["code"], "memory_missing", "{parked}");
    yard.sound();
}

#[tokio::test]
async fn a_capture_with_memory_survives_a_kill_at_its_steps_and_so_does_the_device() {
    let data = Data::new();
    let mut world = World::new(&data, &["--snapshots-hard-depth", "1000"]).await;
    let adb = Adb::new();
    let (made, _) = world.ask(i64::MAX, &deploy(&world.tenant), Until::Status("running")).await;
    let phone = Phone::read(&made);
    world.made.insert(phone.id.clone());
    adb.connect(&phone.address);
    world.kills.talk = true;
    let (mut kept, mut dropped) = (0, 0);
    for steps in steps_by(48) {
        let name = format!("taken-{steps}");
        adb.shell(&phone.address, &format!("echo {name} > /data/kept; echo {name} > /tmp/kept; sync"));
        let process = data.processes(&phone.id);
        let body = json!({ "emulatorId": phone.id, "name": name, "memory": true });
        let act = Act { method: "POST", path: SNAPSHOTS.to_owned(), body: Some(body) };
        let (_, killed) = world.ask(steps, &act, Until::State(&name, &["ready"])).await;
        let taken = world.watch(&Value::Null, Until::State(&name, &["ready", "faulted"])).await;
        let taken = taken.expect("a server that lives");
        assert_eq!(taken["state"], "ready", "{taken}, {}", world.kills.last());
        assert_eq!(data.processes(&phone.id), process, "it went on: {}", world.kills.last());
        // It is neither frozen nor does it stand still.
        let said = adb.shell(&phone.address, "cat /data/kept; echo after > /data/kept; sync");
        assert_eq!(said, name, "{}", world.kills.last());
        // Whole or none, and a clone is what was captured either way.
        let has_memory = taken["hasMemory"] == true;
        println!("{steps} steps, killed: {killed}, memory: {has_memory}, at {}", world.kills.last());
        *(if has_memory { &mut kept } else { &mut dropped }) += 1;
        let clone = deploys(&world.yard, &world.tenant, &name).await;
        world.made.insert(clone.id.clone());
        let up = world.yard.until(&clone.id, "running").await;
        assert_eq!(up["start"]["kind"], if has_memory { "warm" } else { "cold" }, "{up} {taken}");
        adb.connect(&clone.address);
        assert_eq!(adb.shell(&clone.address, "cat /data/kept"), name);
        if has_memory {
            assert_eq!(adb.shell(&clone.address, "cat /tmp/kept"), name);
        }
        world.ask(i64::MAX, &delete(&clone.id), Until::Status("terminated")).await;
        let purge = Act { method: "DELETE", path: format!("{SNAPSHOTS}/{name}"), body: None };
        world.ask(i64::MAX, &purge, Until::State(&name, &["gone"])).await;
        until_no_templates(&data).await;
        world.yard.sound();
        if !killed {
            break;
        }
    }
    println!("{kept} with memory, {dropped} without");
    world.ask(i64::MAX, &delete(&phone.id), Until::Status("terminated")).await;
    world.is_clean().await;
}
