//! Everything at once: deploys, captures, swaps, restarts and deletions of the same few things, in thousands of orders.
//! Whatever wins, nobody meets an inner error, nothing that is needed goes, and in the end nothing is left.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use paddock_model::drivers::disk_pools::DiskPool;
use paddock_model::drivers::emulator_hosts::EmulatorHost;
use paddock_model::emulators::EmulatorId;
use paddock_model::ports::{Random, SeededRandom};
use serde_json::{Value, json};
use world::{BOTH, On, World};

const EMULATORS: &str = "/api/v1/emulators";
const SNAPSHOTS: &str = "/api/v1/snapshots";
const AT_ONCE: u64 = 8;
/// So often they begin again, until everything has worked once.
const TURNS: u64 = 5;

struct Dice(SeededRandom);

impl Dice {
    fn roll(&self, sides: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_be_bytes(bytes) as usize % sides
    }

    fn one_of<'a>(&self, things: &'a [String]) -> Option<&'a String> {
        (!things.is_empty()).then(|| &things[self.roll(things.len())])
    }
}

async fn names(world: &World, path: &str, member: &str) -> Vec<String> {
    let page = world
        .call("GET", &format!("{path}{}limit=200", if path.contains('?') { '&' } else { '?' }), None)
        .await
        .expect(200)
        .json();
    let items = page["items"].as_array().expect("a list");
    items.iter().filter_map(|item| item[member].as_str().map(str::to_owned)).collect()
}

/// One request of one of those who are all in each other's way; what it was, and how it was answered.
async fn act(world: &World, tenant: &str, dice: &Dice) -> Option<(&'static str, u16)> {
    let emulators = names(world, EMULATORS, "id").await;
    let running = names(world, &format!("{EMULATORS}?status=running"), "id").await;
    let snapshots = names(world, SNAPSHOTS, "name").await;
    let deployable = names(world, &format!("{SNAPSHOTS}?deployable=true"), "name").await;
    // Mostly what can be done, and now and then what cannot.
    let likely = dice.roll(4) > 0;
    let emulator = dice.one_of(if likely { &running } else { &emulators });
    let snapshot = dice.one_of(if likely { &deployable } else { &snapshots });
    let (what, method, path, body): (_, _, String, Option<Value>) = match dice.roll(12) {
        0 | 1 if emulators.len() < 12 => {
            ("deploy", "POST", EMULATORS.into(), Some(json!({ "tenantId": tenant, "snapshot": snapshot? })))
        }
        2..=4 => ("capture", "POST", SNAPSHOTS.into(), Some(json!({ "emulatorId": emulator? }))),
        5 => {
            let body = json!({ "snapshot": snapshot? });
            ("swap", "PUT", format!("{EMULATORS}/{}/snapshot", emulator?), Some(body))
        }
        6 => ("restart", "POST", format!("{EMULATORS}/{}/restart", emulator?), None),
        7 => ("park", "POST", format!("{EMULATORS}/{}/park", emulator?), None),
        8 => ("delete an emulator", "DELETE", format!("{EMULATORS}/{}", emulator?), None),
        9 => ("verify", "POST", format!("{SNAPSHOTS}/{}/verify", snapshot?), None),
        10 => {
            if let Some(id) = emulator.and_then(|id| EmulatorId::parse(id)) {
                world.simulation.host.crash(id);
            }
            return None;
        }
        _ => ("delete a snapshot", "DELETE", format!("{SNAPSHOTS}/{}", snapshot?), None),
    };
    let answer = world.call(method, &path, body).await;
    let status = answer.status.as_u16();
    assert!(matches!(status, 200..300 | 404 | 409 | 429 | 503), "{what} {path}: {answer:?}");
    Some((what, status))
}

/// What must have worked for the rest to say anything.
fn never_worked(counts: &BTreeMap<(&'static str, u16), u32>) -> Vec<&'static str> {
    let worked = |what: &str| counts.keys().any(|(done, status)| *done == what && *status < 300);
    let wanted = ["deploy", "capture", "swap", "delete a snapshot", "delete an emulator"];
    wanted.into_iter().filter(|what| !worked(what)).collect()
}

/// Asks again and again, while time passes, until nothing is left of this.
async fn clear(world: &World, path: &str, member: &str, kept: &[&str]) {
    for _ in 0..2000 {
        let mut left = names(world, path, member).await;
        left.retain(|name| !kept.contains(&name.as_str()));
        if left.is_empty() {
            return;
        }
        for name in left {
            let answer = world.call("DELETE", &format!("{path}/{name}"), None).await;
            assert!(matches!(answer.status.as_u16(), 202 | 404 | 409), "{answer:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?} never went", names(world, path, member).await);
}

async fn everything_at_once(on: On, seed: u64, requests: u64) {
    let flags = ["--limits-requests-per-minute", "10000000", "--limits-burst", "1000000"];
    let flags: Vec<&str> = flags
        .into_iter()
        .chain(["--limits-costly-per-minute", "1000000", "--quotas-emulators", "20"])
        .collect();
    // What was consolidated goes at once, and lineages are short so that much is.
    let short = ["--consolidation-grace-seconds", "0", "--snapshots-soft-depth", "2"];
    let flags = [&flags[..], &short].concat();
    let world = Arc::new(World::with(on, &flags, paddock_engine::reconcile::LOOPS).await);
    let tenant = world.tenant("acme").await;
    world.snapshot().await;
    let over = Arc::new(AtomicBool::new(false));
    let passing = tokio::spawn({
        let (world, over) = (world.clone(), over.clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                world.clock.advance(Duration::from_millis(20));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let mut counts: BTreeMap<(&'static str, u16), u32> = BTreeMap::new();
    // On a busy machine devices are seldom up when somebody wants to swap them: whoever had no luck goes on for a while.
    for turn in 0..TURNS {
        let mut people = tokio::task::JoinSet::new();
        for person in 0..AT_ONCE {
            let (world, tenant) = (world.clone(), tenant.clone());
            people.spawn(async move {
                let dice = Dice(SeededRandom::new(seed * 1000 + turn * 100 + person));
                let mut counts: BTreeMap<(&'static str, u16), u32> = BTreeMap::new();
                for _ in 0..requests / AT_ONCE {
                    if let Some(done) = act(&world, &tenant, &dice).await {
                        *counts.entry(done).or_default() += 1;
                    }
                }
                counts
            });
        }
        while let Some(done) = people.join_next().await {
            for (what, count) in done.expect("nobody failed") {
                *counts.entry(what).or_default() += count;
            }
        }
        if never_worked(&counts).is_empty() {
            break;
        }
    }
    println!("seed {seed}: {counts:?}");
    assert_eq!(never_worked(&counts), [] as [&str; 0], "{counts:?}");
    // Whatever is there can be what it says it is: a clone of each deployable snapshot boots.
    for name in names(&world, &format!("{SNAPSHOTS}?deployable=true&tenantId={tenant}"), "name").await {
        let body = json!({ "tenantId": tenant, "snapshot": name });
        let made = world.call("POST", EMULATORS, Some(body)).await;
        if made.status == 201 {
            let answer = world.call("GET", &format!("{EMULATORS}/{}/status?wait=30", made.id()), None).await;
            let status = answer.expect(200).json();
            assert_eq!(status["status"], "running", "{name}: {status}");
            world.call("DELETE", &format!("{EMULATORS}/{}", made.id()), None).await.expect(202);
        }
    }
    clear(&world, EMULATORS, "id", &[]).await;
    clear(&world, SNAPSHOTS, "name", &["simulated-phone", "simulated-automotive"]).await;
    // What is gone for callers is gone from the pool a moment later, and so is the clone that proved a root once more.
    for _ in 0..1000 {
        let contents = world.simulation.pool.list().await.expect("a look");
        let devices = world.simulation.host.list().await.expect("a look");
        if contents.layers.len() == 2 && contents.disks.is_empty() && devices.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    over.store(true, Ordering::Relaxed);
    passing.await.expect("an end");
    let contents = world.simulation.pool.list().await.expect("a look");
    assert_eq!((contents.layers.len(), contents.disks.len()), (2, 0), "{contents:?}");
    assert_eq!(world.simulation.host.list().await.expect("a look"), []);
    let engine = &world.server.engine;
    let found = paddock_engine::doctor::examine(engine, &*world.simulation.pool, &[]).await.expect("a look");
    assert_eq!(found, []);
}

#[tokio::test]
async fn everything_at_once_leaves_nothing_broken_and_nothing_behind() {
    let (seeds, requests) = if std::env::var_os("TEST_LONG").is_some() { (20, 4000) } else { (1, 480) };
    for seed in 0..seeds {
        for on in BOTH {
            everything_at_once(on, seed, requests).await;
        }
    }
}
