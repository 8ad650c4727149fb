//! The daemon is killed at every step of a snapshot's life, its devices too: what was acknowledged comes to an end, no device
//! loses what it wrote, and nothing is left of what is not wanted.

mod daemon;
mod yard;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::kills::{
    Act, Casualties, EMULATORS, PATIENCE, SNAPSHOTS, Until, World, delete, deploy, restart, steps_by,
};
use yard::{Adb, Data, Phone};

/// Captures of the same device make a long lineage; how long it may be, and how it becomes shorter, is another matter.
const DEEP: [&str; 4] = ["--snapshots-hard-depth", "1000", "--consolidation-at-once", "0"];

fn capture(emulator: &str, name: &str) -> Act<'static> {
    let body = Some(json!({ "emulatorId": emulator, "name": name }));
    Act { method: "POST", path: SNAPSHOTS.to_owned(), body }
}

fn verify(name: &str) -> Act<'static> {
    Act { method: "POST", path: format!("{SNAPSHOTS}/{name}/verify"), body: None }
}

fn purge(name: &str) -> Act<'static> {
    Act { method: "DELETE", path: format!("{SNAPSHOTS}/{name}"), body: None }
}

fn swap(emulator: &str, to: &str) -> Act<'static> {
    let path = format!("{EMULATORS}/{emulator}/snapshot");
    Act { method: "PUT", path, body: Some(json!({ "snapshot": to })) }
}

async fn device(world: &mut World<'_>) -> Phone {
    let (made, _) = world.ask(i64::MAX, &deploy(&world.tenant), Until::Status("running")).await;
    let phone = Phone::read(&made);
    world.made.insert(phone.id.clone());
    phone
}

async fn settled(world: &mut World<'_>, name: &str, states: &[&str]) -> Value {
    let seen = world.watch(&Value::Null, Until::State(name, states)).await;
    seen.expect("a server that lives")
}

async fn take(world: &mut World<'_>, phone: &Phone, name: &str) -> Value {
    world.ask(i64::MAX, &capture(&phone.id, name), Until::State(name, &["ready"])).await;
    settled(world, name, &["ready"]).await
}

async fn drop_snapshot(world: &mut World<'_>, name: &str) {
    world.ask(i64::MAX, &purge(name), Until::State(name, &["gone"])).await;
}

async fn drop_device(world: &mut World<'_>, id: &str) {
    world.ask(i64::MAX, &delete(id), Until::Status("terminated")).await;
}

/// A device that died comes back by a restart.
async fn mend(world: &mut World<'_>, adb: &Adb, phone: &Phone) {
    world.yard.until(&phone.id, "failed").await;
    world.ask(i64::MAX, &restart(&phone.id), Until::Status("running")).await;
    adb.connect(&phone.address);
}

/// What a snapshot holds, by a device that is made of it.
async fn content(world: &mut World<'_>, adb: &Adb, name: &str) -> String {
    let body = Some(json!({ "tenantId": world.tenant, "snapshot": name }));
    let act = Act { method: "POST", path: EMULATORS.to_owned(), body };
    let (made, _) = world.ask(i64::MAX, &act, Until::Status("running")).await;
    let phone = Phone::read(&made);
    world.made.insert(phone.id.clone());
    adb.connect(&phone.address);
    let said = adb.shell(&phone.address, "cat /data/kept");
    drop_device(world, &phone.id).await;
    said
}

/// The files of layers that are left besides those of the images, each with its record.
fn layers(data: &Data) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data.path().join("disks/layers")).expect("a folder");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

async fn until_layers(world: &World<'_>, count: usize) {
    let started = Instant::now();
    while layers(world.data).len() != count {
        let (left, last) = (layers(world.data), world.kills.last());
        assert!(started.elapsed() < PATIENCE, "{left:?} and not {count}, {last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn capturing_survives_a_kill_at_every_step_and_so_does_the_device() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let adb = Adb::new();
    let mut phone = device(&mut world).await;
    adb.connect(&phone.address);
    world.kills.talk = true;
    let (begun, mut kills) = (Instant::now(), 0);
    for (round, steps) in steps_by(12).enumerate() {
        if round % 32 == 31 {
            drop_device(&mut world, &phone.id).await;
            phone = device(&mut world).await;
            adb.connect(&phone.address);
        }
        let name = format!("taken-{steps}");
        adb.shell(&phone.address, &format!("echo {name} > /data/kept; sync"));
        let process = data.processes(&phone.id);
        // Mostly the daemon dies, now and then the device with it or in its stead.
        let (power_cut, device_alone) = (round % 8 == 2, round % 8 == 6);
        world.casualties = if power_cut { Casualties::All } else { Casualties::None };
        if device_alone {
            world.kills.arm_for(&process[0], steps);
        } else {
            world.kills.arm(steps);
        }
        let (_, killed) = world.ask_armed(&capture(&phone.id, &name), Until::Trial(&phone.id)).await;
        kills += u32::from(killed || device_alone);
        let taken = settled(&mut world, &name, &["verifying", "ready", "faulted"]).await;
        assert_ne!(taken["state"], "faulted", "{taken}, {}", world.kills.last());

        if killed && power_cut || device_alone && data.processes(&phone.id) != process {
            mend(&mut world, &adb, &phone).await;
        } else {
            assert_eq!(data.processes(&phone.id), process, "it went on: {}", world.kills.last());
        }
        // It has what it wrote, and it can write: nobody has left it frozen.
        let said = adb.shell(&phone.address, "cat /data/kept; echo after > /data/kept; sync");
        assert_eq!(said, name, "{}", world.kills.last());
        if round % 12 == 0 {
            settled(&mut world, &name, &["ready"]).await;
            assert_eq!(content(&mut world, &adb, &name).await, name, "{}", world.kills.last());
        }
        drop_snapshot(&mut world, &name).await;
        world.yard.sound();
        if !killed && !device_alone {
            println!("a capture has {} steps until a clone boots", steps - 1);
            break;
        }
    }
    drop_device(&mut world, &phone.id).await;
    until_layers(&world, images).await;
    world.is_clean().await;
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_job_that_ends_leaves_its_capture_and_no_device_whenever_the_daemon_is_killed() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let adb = Adb::new();
    world.kills.talk = true;
    let (begun, mut kills) = (Instant::now(), 0);
    for (round, steps) in steps_by(40).enumerate() {
        let mut wanted = deploy(&world.tenant);
        wanted.body.as_mut().expect("a body")["capture"] = json!({ "when": "always", "key": "job" });
        let (made, _) = world.ask(i64::MAX, &wanted, Until::Status("running")).await;
        let phone = Phone::read(&made);
        world.made.insert(phone.id.clone());
        adb.connect(&phone.address);
        let text = format!("after {steps}");
        adb.shell(&phone.address, &format!("echo {text} > /data/kept; sync"));
        world.casualties = if round % 4 == 2 { Casualties::All } else { Casualties::None };
        let end =
            Act { method: "DELETE", path: format!("{EMULATORS}/{}?outcome=success", phone.id), body: None };
        let (_, killed) = world.ask(steps, &end, Until::Status("terminated")).await;
        kills += u32::from(killed);
        world.yard.until(&phone.id, "terminated").await;
        let started = Instant::now();
        let capture = loop {
            let gone = world.yard.call("GET", &format!("{EMULATORS}/{}", phone.id), None).await;
            if gone["capture"]["state"] != "capturing" {
                break gone["capture"].clone();
            }
            assert!(started.elapsed() < PATIENCE, "{gone}, {}", world.kills.last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(capture["state"], "captured", "{capture}, {}", world.kills.last());
        let name = capture["snapshot"].as_str().expect("a name").to_owned();
        settled(&mut world, &name, &["ready"]).await;
        assert_eq!(content(&mut world, &adb, &name).await, text, "{}", world.kills.last());
        drop_snapshot(&mut world, &name).await;
        until_layers(&world, images).await;
        world.is_clean().await;
        if !killed {
            println!("the end of a job has less than {steps} steps");
            break;
        }
    }
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn verifying_survives_a_kill_of_the_daemon_and_of_the_clone() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let adb = Adb::new();
    let phone = device(&mut world).await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo kept > /data/kept; sync");
    let mut proved = take(&mut world, &phone, "proved").await["verifiedBoot"]["at"].clone();
    drop_device(&mut world, &phone.id).await;
    let begun = Instant::now();

    // From the wish to the boot, and from the end of the boot to its record; in between nothing happens but waiting.
    let mut kills = 0;
    for (from, stride) in [("", 160), ("console-1.log", 12)] {
        for steps in steps_by(stride) {
            world.casualties = if steps % 4 == 1 { Casualties::All } else { Casualties::None };
            world.kills.arm_from(from, steps);
            let (_, killed) = world.ask_armed(&verify("proved"), Until::Proved("proved", &proved)).await;
            let seen = world.watch(&Value::Null, Until::Proved("proved", &proved)).await.expect("a server");
            assert_eq!(seen["state"], "ready", "{seen}, {}", world.kills.last());
            proved = seen["verifiedBoot"]["at"].clone();
            world.is_clean().await;
            if !killed {
                println!("a verification has up to {steps} steps from {from:?}");
                break;
            }
            kills += 1;
        }
    }

    // A clone that somebody kills is booted once more, and again. One that never comes up is a fault with a reason.
    for (deaths, state) in [(1, "ready"), (3, "faulted"), (0, "ready")] {
        world.yard.call("POST", &format!("{SNAPSHOTS}/proved/verify"), None).await;
        for _ in 0..deaths {
            world.watch(&Value::Null, Until::Trial("nobody")).await.expect("a clone");
            world.kill_devices("");
        }
        let started = Instant::now();
        let seen = loop {
            let seen = world.yard.call("GET", &format!("{SNAPSHOTS}/proved"), None).await;
            if seen["state"] == "faulted" && deaths > 0 || seen["verifiedBoot"]["at"] != proved {
                break seen;
            }
            assert!(started.elapsed() < PATIENCE, "{seen} after {deaths} deaths");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(seen["state"], state, "{seen} after {deaths} deaths");
        if state == "faulted" {
            assert_eq!(seen["deployableProblems"], json!(["verification_failed"]), "{seen}");
        } else {
            proved = seen["verifiedBoot"]["at"].clone();
        }
        world.is_clean().await;
    }
    assert_eq!(content(&mut world, &adb, "proved").await, "kept");

    // Nobody wants to know any more, while it boots.
    world.yard.call("POST", &format!("{SNAPSHOTS}/proved/verify"), None).await;
    world.watch(&Value::Null, Until::Trial("nobody")).await.expect("a clone");
    drop_snapshot(&mut world, "proved").await;
    until_layers(&world, images).await;
    world.is_clean().await;
    println!("{kills} kills in {:?}", begun.elapsed());
}

/// Where a swap is, and until nothing is left of the one before.
async fn footing(world: &World<'_>, id: &str) -> (String, i64) {
    let seen = world.yard.call("GET", &format!("{EMULATORS}/{id}"), None).await;
    let name = seen["snapshot"]["name"].as_str().expect("a name").to_owned();
    (name, seen["incarnation"].as_i64().expect("a number"))
}

/// Kills the device until it has failed for good, on one disk; a swap that is not up yet goes back first.
async fn knock_out(world: &World<'_>, id: &str) {
    let started = Instant::now();
    loop {
        let seen = world.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
        let disks = std::fs::read_dir(world.data.path().join("disks/disks")).expect("disks").count();
        if seen["status"] == "failed" && disks == 1 {
            return;
        }
        world.kill_devices(id);
        assert!(started.elapsed() < PATIENCE, "{seen}, {disks} disks, {}", world.kills.last());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The device's process is there, of whatever incarnation is wanted now, and there is no other.
async fn comes_up(world: &World<'_>, id: &str) -> (String, i64) {
    let started = Instant::now();
    loop {
        let (name, incarnation) = footing(world, id).await;
        let own = world.data.processes(&format!("{id}\\.{incarnation} "));
        if own.len() == 1 && world.data.processes("") == own {
            return (name, incarnation);
        }
        let seen = world.yard.call("GET", &format!("{EMULATORS}/{id}/status"), None).await;
        assert!(started.elapsed() < PATIENCE, "{seen}, {own:?}, {}", world.kills.last());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A device, failed, and two snapshots of it that hold their names.
async fn with_two_snapshots(world: &mut World<'_>, adb: &Adb) -> Phone {
    let phone = device(world).await;
    adb.connect(&phone.address);
    for name in ["one", "two"] {
        adb.shell(&phone.address, &format!("echo {name} > /data/kept; sync"));
        take(world, &phone, name).await;
    }
    phone
}

async fn clear(world: &mut World<'_>, phone: &Phone, images: usize) {
    drop_device(world, &phone.id).await;
    for name in ["one", "two"] {
        drop_snapshot(world, name).await;
    }
    until_layers(world, images).await;
    world.is_clean().await;
}

#[tokio::test]
async fn swapping_survives_a_kill_at_every_step() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let adb = Adb::new();
    let phone = with_two_snapshots(&mut world, &adb).await;
    let (begun, mut kills) = (Instant::now(), 0);
    for (round, steps) in steps_by(12).enumerate() {
        // In most rounds it does not run before, so that there is nothing to stop, nor need it be up afterwards.
        if round % 6 != 1 {
            knock_out(&world, &phone.id).await;
        }
        let (from, before) = footing(&world, &phone.id).await;
        let to = if from == "one" { "two" } else { "one" };
        let power_cut = round % 8 == 5;
        world.casualties = if power_cut { Casualties::All } else { Casualties::None };
        let (_, killed) = world.ask(steps, &swap(&phone.id, to), Until::Status("running")).await;
        kills += u32::from(killed);
        let (now, incarnation) = comes_up(&world, &phone.id).await;
        if killed && power_cut {
            // It may have died with the power while it booted; then it is back where it was.
            let at = (now.as_str(), incarnation);
            assert!(at == (to, before + 1) || at == (&from, before + 2), "{at:?}, {}", world.kills.last());
        } else {
            assert_eq!((now.as_str(), incarnation), (to, before + 1), "{}", world.kills.last());
        }
        if round % 6 == 0 || !killed {
            world.runs(&phone.id, incarnation, true).await;
            adb.connect(&phone.address);
            assert_eq!(adb.shell(&phone.address, "cat /data/kept"), now, "{}", world.kills.last());
            let started = Instant::now();
            while std::fs::read_dir(data.path().join("disks/disks")).expect("disks").count() != 1 {
                assert!(started.elapsed() < PATIENCE, "the old disk is left, {}", world.kills.last());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if round % 4 == 0 {
            world.yard.sound();
        }
        if !killed {
            println!("a swap has {} steps", steps - 1);
            break;
        }
    }
    clear(&mut world, &phone, images).await;
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_swap_that_fails_comes_back_whenever_the_daemon_is_killed() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let adb = Adb::new();
    let phone = with_two_snapshots(&mut world, &adb).await;
    world.ask(i64::MAX, &swap(&phone.id, "one"), Until::Status("running")).await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo mine > /data/kept; sync");
    let (begun, mut kills) = (Instant::now(), 0);
    for (round, steps) in steps_by(20).enumerate() {
        knock_out(&world, &phone.id).await;
        let (_, before) = footing(&world, &phone.id).await;
        world.yard.call("PUT", &swap(&phone.id, "two").path, Some(json!({ "snapshot": "two" }))).await;
        world.runs(&phone.id, before + 1, false).await;
        world.kills.arm(steps);
        world.kill_devices(&phone.id);
        // It is over when the old disk's device runs; a while later nothing more is to be done before that is up.
        let started = Instant::now();
        while !world.is_dead() && world.data.processes(&format!("{}\\.{} ", phone.id, before + 2)).is_empty()
        {
            assert!(started.elapsed() < PATIENCE, "it does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let killed = world.is_dead();
        if killed {
            world.revive();
            kills += 1;
        }
        world.kills.disarm();
        let at = comes_up(&world, &phone.id).await;
        assert_eq!(at, ("one".to_owned(), before + 2), "{}", world.kills.last());
        if round % 5 == 0 || !killed {
            world.runs(&phone.id, before + 2, true).await;
            let seen = world.yard.call("GET", &format!("{EMULATORS}/{}/status", phone.id), None).await;
            assert_eq!(seen["statusReason"]["code"], "swap_failed", "{seen}, {}", world.kills.last());
            adb.connect(&phone.address);
            assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "mine", "{}", world.kills.last());
            world.yard.sound();
        }
        if !killed {
            println!("to swap back has {} steps", steps - 1);
            break;
        }
    }
    clear(&mut world, &phone, images).await;
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn purging_survives_a_kill_at_every_step() {
    let data = Data::new();
    let mut world = World::new(&data, &DEEP).await;
    let images = layers(&data).len();
    let begun = Instant::now();
    let mut kills = 0;
    // A parent's child keeps its layer; a leaf's goes, and perhaps others below it.
    let (mut parents, mut leaves) = (steps_by(8), steps_by(8));
    let (mut parent, mut leaf) = (parents.next(), leaves.next());
    for lineage in 0.. {
        // Of the lineage nothing is left but the snapshots. That none of them can boot in so short a time saves some.
        const LENGTH: usize = 24;
        let phone = device(&mut world).await;
        let mut left: Vec<String> = (0..LENGTH).map(|number| format!("of-{lineage}-{number}")).collect();
        for name in &left {
            world.ask(i64::MAX, &capture(&phone.id, name), Until::State(name, &["verifying", "ready"])).await;
        }
        drop_device(&mut world, &phone.id).await;
        let short = ["--devices-boot-seconds", "1", "--snapshots-verifications-at-once", "4"];
        world.revive_with(&[&DEEP, short.as_slice()].concat());
        for name in &left {
            settled(&mut world, name, &["faulted", "ready"]).await;
        }
        world.revive_with(&DEEP);

        while !left.is_empty() {
            let is_parent = parent.is_some() && left.len() > 1 && left.len().is_multiple_of(2);
            let name = left.remove(if is_parent { left.len() / 2 } else { left.len() - 1 });
            let steps = if is_parent { &mut parent } else { &mut leaf };
            let (_, killed) = world.ask(steps.unwrap_or(i64::MAX), &purge(&name), Until::Purged(&name)).await;
            kills += u32::from(killed);
            world.watch(&Value::Null, Until::Purged(&name)).await.expect("a server");
            match steps {
                Some(count) if !killed => {
                    println!(
                        "a purge of a {} has {} steps",
                        if is_parent { "parent" } else { "leaf" },
                        *count - 1
                    );
                    *steps = None;
                }
                Some(_) => *steps = if is_parent { parents.next() } else { leaves.next() },
                None => {}
            }
            let path = format!("{SNAPSHOTS}?tenantId={}&limit=200", world.tenant);
            let there = world.yard.call("GET", &path, None).await;
            assert_eq!(there["items"].as_array().map(Vec::len), Some(left.len()), "{}", world.kills.last());
            world.yard.sound();
        }
        until_layers(&world, images).await;
        if parent.is_none() && leaf.is_none() {
            break;
        }
    }
    world.is_clean().await;
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn what_boots_while_nobody_watches_is_not_late() {
    let data = Data::new();
    let mut world = World::new(&data, &[]).await;
    let adb = Adb::new();
    let phone = device(&mut world).await;
    world.ask(i64::MAX, &capture(&phone.id, "taken"), Until::Trial(&phone.id)).await;
    let other = world.yard.phone(&world.tenant).await;
    world.made.insert(other.id.clone());
    world.runs_or_failed(&other.id).await;

    // Longer than a device may take.
    let _ = world.yard.daemon.child.kill();
    tokio::time::sleep(Duration::from_secs(17)).await;
    world.revive_with(&["--devices-boot-seconds", "15"]);
    let seen = settled(&mut world, "taken", &["ready", "faulted"]).await;
    assert_eq!(seen["state"], "ready", "{seen}");
    world.yard.until(&other.id, "running").await;
    adb.connect(&other.address);
    for id in [&phone.id, &other.id] {
        drop_device(&mut world, id).await;
    }
    drop_snapshot(&mut world, "taken").await;
    world.is_clean().await;
}

#[tokio::test]
async fn a_device_that_falls_silent_while_it_is_captured_is_mended_by_a_restart() {
    let data = Data::new();
    let mut world = World::new(&data, &[]).await;
    let adb = Adb::new();
    let phone = device(&mut world).await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo kept > /data/kept; sync");
    let process = data.processes(&phone.id);
    let signal = |name: &str| {
        let done = std::process::Command::new("kill").args([name, &process[0]]).status();
        assert!(done.is_ok_and(|status| status.success()));
    };
    // That it stands still may be noticed before it is asked for.
    loop {
        signal("-STOP");
        let asked = capture(&phone.id, "taken");
        let (status, answer) =
            world.yard.ask(asked.method, &asked.path, asked.body.as_ref(), None).await.expect("an answer");
        if status == 202 {
            break;
        }
        assert_eq!(answer["code"], "invalid_state", "{answer}");
        signal("-CONT");
        world.yard.until(&phone.id, "running").await;
    }
    world.yard.until(&phone.id, "unreachable").await;
    world.ask(i64::MAX, &restart(&phone.id), Until::Status("running")).await;
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "kept");
    let taken = settled(&mut world, "taken", &["ready", "faulted"]).await;
    assert_eq!((&taken["state"], &taken["consistency"]), (&json!("ready"), &json!("crash")), "{taken}");
    assert_eq!(content(&mut world, &adb, "taken").await, "kept");
    drop_device(&mut world, &phone.id).await;
    drop_snapshot(&mut world, "taken").await;
    world.is_clean().await;
}
