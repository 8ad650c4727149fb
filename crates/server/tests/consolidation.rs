//! Long lineages over HTTP, on simulated devices and both databases: they become short, whatever comes in between, and nothing that
//! anybody needs goes with them; and the pool that they lie in, which fills up.

mod world;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use paddock_engine::reconcile::{LOOPS, Loop, Report, Run, capacity, consolidation};
use paddock_engine::users;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity};
use paddock_server::auth::access_token;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";
const SHORT: [&str; 6] =
    ["--snapshots-soft-depth", "3", "--snapshots-hard-depth", "4", "--consolidation-grace-seconds", "30"];

/// A world in which lineages become shorter, and the pool is looked at, when the test says so.
async fn quiet(on: On, flags: &[&str]) -> World {
    let quiet = ["consolidation", "capacity"];
    let others: Vec<Loop> = LOOPS.iter().copied().filter(|each| !quiet.contains(&each.name)).collect();
    World::with(on, flags, Box::leak(others.into_boxed_slice())).await
}

async fn round(world: &World) -> Report {
    let report = (consolidation::LOOP.run)(&world.server.engine).await.expect("a round without trouble");
    world.clock.advance(Duration::from_secs(1));
    report
}

/// As many rounds as it takes until nothing is left to do.
async fn rounds(world: &World) -> usize {
    for count in 0..200 {
        let report = round(world).await;
        if report == Report::default() {
            return count;
        }
        world.clock.advance(Duration::from_secs(3));
    }
    panic!("it does not come to an end");
}

async fn snapshot(world: &World, name: &str) -> Value {
    world.call("GET", &format!("{SNAPSHOTS}/{name}"), None).await.expect(200).json()
}

async fn capture(world: &World, emulator: &str, name: &str) -> Value {
    let body = json!({ "emulatorId": emulator, "name": name });
    world.call("POST", SNAPSHOTS, Some(body)).await.expect(202);
    world.until_snapshot(name, "ready").await
}

async fn is_healthy(world: &World) {
    let engine = &world.server.engine;
    let found = paddock_engine::doctor::examine(engine, &*world.simulation.pool, &[]).await.expect("a look");
    assert_eq!(found, []);
}

/// A device, and so many captures of it, `s1` and on.
async fn lineage(world: &World, count: usize) -> (String, String) {
    let tenant = world.tenant("acme").await;
    let token = world.token.clone();
    let emulator = world.emulator(&token, &tenant).await;
    for number in 1..=count {
        capture(world, &emulator, &format!("s{number}")).await;
    }
    (tenant, emulator)
}

/// Time passes, and credentials expire.
async fn fresh_token(world: &World) -> String {
    let engine = &world.server.engine;
    let admin = users::first_admin(engine).await.expect("the first admin");
    access_token::mint(engine, admin.id, engine.now()).await.expect("a token")
}

async fn layers(world: &World) -> usize {
    world.simulation.pool.list().await.expect("a list").layers.len()
}

#[tokio::test]
async fn what_stands_on_too_many_layers_can_be_deployed_once_they_are_fewer() {
    for on in BOTH {
        let world = quiet(on, &SHORT).await;
        let (tenant, emulator) = lineage(&world, 7).await;
        let deep = snapshot(&world, "s7").await;
        assert_eq!((&deep["depth"], &deep["deployable"]), (&json!(8), &json!(false)), "{deep}");
        assert_eq!(deep["deployableProblems"], json!(["chain_too_deep"]));
        let body = json!({ "tenantId": tenant, "snapshot": "s7" });
        let refused = world.call("POST", EMULATORS, Some(body.clone())).await.expect(409);
        assert_eq!(refused.code(), "not_deployable");
        assert!(refused.text.contains("chain_too_deep"), "{}", refused.text);
        let parents = |page: Value| -> Vec<Value> {
            page["items"].as_array().expect("items").iter().map(|item| item["parent"].clone()).collect()
        };
        let all = format!("{SNAPSHOTS}?limit=100");
        let before = parents(world.call("GET", &all, None).await.expect(200).json());

        assert!(round(&world).await.changed > 0);
        is_healthy(&world).await;
        rounds(&world).await;

        for number in 1..=7 {
            let seen = snapshot(&world, &format!("s{number}")).await;
            assert!(seen["depth"].as_i64().is_some_and(|depth| depth <= 3), "{seen}");
            assert_eq!(seen["deployable"], true, "{seen}");
        }
        let after = parents(world.call("GET", &all, None).await.expect(200).json());
        assert_eq!(before, after, "what was derived from what is as it was");
        is_healthy(&world).await;
        assert_eq!(round(&world).await, Report::default(), "a settled world stays as it is");
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;
        // The device goes on being captured, on what has become short.
        let next = capture(&world, &emulator, "s8").await;
        assert!(next["depth"].as_i64().is_some_and(|depth| depth <= 4), "{next}");
        is_healthy(&world).await;
    }
}

#[tokio::test]
async fn what_nothing_stands_on_any_more_goes_after_a_while_and_nothing_else_does() {
    for on in BOTH {
        let world = quiet(on, &SHORT).await;
        let (_, emulator) = lineage(&world, 6).await;
        let with_images = layers(&world).await;
        for number in 1..=5 {
            world.call("DELETE", &format!("{SNAPSHOTS}/s{number}"), None).await.expect(202);
            world.until_snapshot(&format!("s{number}"), "gone").await;
        }
        assert_eq!(layers(&world).await, with_images, "s6 stands on all of them");

        while round(&world).await.changed > 0 {}
        let depth = snapshot(&world, "s6").await["depth"].as_i64();
        assert!(depth.is_some_and(|depth| depth <= 3), "{depth:?}");
        assert_eq!(layers(&world).await, with_images, "a device may just be opening them");
        world.clock.advance(Duration::from_secs(31));
        rounds(&world).await;

        for _ in 0..200 {
            if layers(&world).await == with_images - 5 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(layers(&world).await, with_images - 5);
        world.call("POST", &format!("{EMULATORS}/{emulator}/restart"), None).await.expect(200);
        world.until(&emulator, "running").await;
        is_healthy(&world).await;
    }
}

/// Lets a run come so far, and drops it there.
struct Cut<'a> {
    run: Run<'a>,
    left: usize,
}

impl Future for Cut<'_> {
    /// Whether it came to its end.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        if self.left == 0 {
            return Poll::Ready(false);
        }
        self.left -= 1;
        self.run.as_mut().poll(context).map(|_| true)
    }
}

#[tokio::test]
async fn wherever_it_is_cut_off_it_goes_on() {
    for on in BOTH {
        let flags = ["--consolidation-bytes-per-second", "20480"];
        let mut world = quiet(on, &[&SHORT[..], &flags].concat()).await;
        let (tenant, emulator) = lineage(&world, 3).await;
        let (mut cuts, mut deepest) = (0, 0);
        for after in 0..24 {
            let name = format!("n{after}");
            world.token = fresh_token(&world).await;
            let seen = capture(&world, &emulator, &name).await;
            deepest = deepest.max(seen["depth"].as_i64().expect("a depth"));
            for _ in 0..6 {
                let run = (consolidation::LOOP.run)(&world.server.engine);
                // SQLite waits for nothing but commits.
                let left = if on == On::Sqlite { 1 + after % 4 } else { 1 + after };
                cuts += usize::from(!Cut { run, left }.await);
                world.clock.advance(Duration::from_secs(2));
            }
            let (engine, pool) = (&world.server.engine, &*world.simulation.pool);
            let found = paddock_engine::doctor::examine(engine, pool, &[]).await.expect("a look");
            assert_eq!(found, [], "{on:?}, cut off after {after}");
            if after % 3 == 0 {
                rounds(&world).await;
                let seen = snapshot(&world, &name).await;
                assert!(seen["depth"].as_i64().is_some_and(|depth| depth <= 3), "{seen}");
                world.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await.expect(202);
            }
        }
        assert!(cuts > 8 && deepest > 4, "{cuts} cuts, {deepest} layers");
        rounds(&world).await;
        is_healthy(&world).await;
        world.token = fresh_token(&world).await;
        let body = json!({ "tenantId": tenant, "snapshot": "n23" });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;
    }
}

#[tokio::test]
async fn without_room_a_lineage_waits_and_what_is_reserved_is_nobody_else_s() {
    for on in BOTH {
        let slow = ["--consolidation-bytes-per-second", "1024"];
        let world = quiet(on, &[&SHORT[..], &slow].concat()).await;
        let (tenant, _) = lineage(&world, 4).await;
        let pool = &world.simulation.pool;
        let look = async || {
            (capacity::LOOP.run)(&world.server.engine).await.expect("a look");
            world.call("GET", &format!("{SNAPSHOTS}/diskpool"), None).await.expect(200).json()["pools"][0]
                .clone()
        };
        let whole = look().await["capacityBytes"].as_i64().expect("bytes");
        // So that what is to be merged is just too much.
        pool.occupy(whole / 100 * 95 - (1 << 20));
        let before = look().await;
        assert_eq!(round(&world).await.changed, 0);
        assert_eq!(snapshot(&world, "s4").await["depth"], 5);

        pool.occupy(whole / 100 * 95 - (20 << 20));
        world.clock.advance(Duration::from_secs(61));
        assert_eq!(round(&world).await.changed, 1);
        let reserved = look().await["committedBytes"].as_i64().expect("bytes")
            - before["committedBytes"].as_i64().expect("bytes");
        assert!(reserved >= 1 << 20, "{reserved}");

        // What others may take ends where the reservation begins.
        pool.occupy(whole / 100 * 95 - (10 << 10));
        look().await;
        let body = json!({ "tenantId": tenant });
        let refused = world.call("POST", EMULATORS, Some(body)).await.expect(503);
        assert_eq!(refused.code(), "no_capacity");
    }
}

#[tokio::test]
async fn bytes_that_are_not_what_was_recorded_are_put_aside_and_not_merged() {
    for on in BOTH {
        let world = quiet(on, &SHORT).await;
        lineage(&world, 4).await;
        let pool = &world.simulation.pool;
        let listed = pool.list().await.expect("a list").layers;
        let is_top = |id| !listed.iter().any(|other| other.parent == Some(id));
        let spoilt =
            listed.iter().filter(|one| is_top(one.id)).find_map(|top| top.parent).expect("a lineage");
        pool.spoil_layer(spoilt, Integrity::Altered);

        rounds_until_put_off(&world).await;

        let engine = &world.server.engine;
        let found = paddock_engine::doctor::examine(engine, &**pool, &[]).await.expect("a look");
        assert_eq!(found, [paddock_engine::doctor::Finding::Quarantined(spoilt)]);
        let seen = snapshot(&world, "s4").await;
        assert_eq!((&seen["depth"], &seen["deployable"]), (&json!(5), &json!(false)), "{seen}");
    }
}

async fn rounds_until_put_off(world: &World) {
    while round(world).await.changed > 0 {}
}

#[tokio::test]
async fn a_pool_that_fills_up_says_when_it_will_be_full() {
    let mut world = quiet(On::Sqlite, &[]).await;
    let pool = world.simulation.pool.clone();
    let look = async || {
        (capacity::LOOP.run)(&world.server.engine).await.expect("a look");
        world.call("GET", &format!("{SNAPSHOTS}/diskpool"), None).await.expect(200).json()["pools"][0].clone()
    };
    let mut taken = 1_000_000_000;
    for _ in 0..10 {
        taken -= 50_000_000;
        pool.occupy(taken);
        assert_eq!(look().await["secondsToFull"], Value::Null, "it becomes emptier");
        world.clock.advance(Duration::from_secs(60));
    }
    for _ in 0..62 {
        taken += 6_000_000;
        pool.occupy(taken);
        (capacity::LOOP.run)(&world.server.engine).await.expect("a look");
        world.clock.advance(Duration::from_secs(60));
    }

    world.token = fresh_token(&world).await;
    (capacity::LOOP.run)(&world.server.engine).await.expect("a look");
    let pools = world.call("GET", &format!("{SNAPSHOTS}/diskpool"), None).await.expect(200).json();
    let seen = &pools["pools"][0];

    let (left, free) =
        (seen["secondsToFull"].as_i64().expect("a time"), seen["freeBytes"].as_i64().expect("bytes"));
    assert!((left - free / 100_000).abs() < free / 100_000 / 20, "{seen}");
    let at: paddock_model::Timestamp = seen["fullAt"].as_str().expect("a time").parse().expect("a time");
    let shown = at.duration_since(world.server.engine.now()).as_secs();
    assert!((shown - left).abs() <= 1, "{seen}");
    let sum = seen["usedBytes"].as_i64().expect("bytes") + free + taken;
    assert_eq!(seen["capacityBytes"], sum, "it adds up");
}
