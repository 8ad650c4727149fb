//! Snapshots over HTTP, on simulated devices and both databases: capture, verification, tree, roots, swap, deletion.

mod world;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use paddock_engine::reconcile::{self, LOOPS, Loop};
use paddock_model::drivers::disk_pools::DiskPool;
use paddock_model::drivers::emulator_hosts::EmulatorHost;
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::LayerId;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";

async fn read(world: &World, path: &str) -> Value {
    world.call("GET", path, None).await.expect(200).json()
}

async fn snapshot(world: &World, name: &str) -> Value {
    read(world, &format!("{SNAPSHOTS}/{name}")).await
}

/// A world with a tenant, and an emulator that runs.
async fn with_a_device(on: On) -> (World, String, String) {
    let world = World::new(on).await;
    let acme = world.tenant("acme").await;
    let token = world.token.clone();
    let emulator = world.emulator(&token, &acme).await;
    (world, acme, emulator)
}

#[tokio::test]
async fn a_device_is_captured_while_it_runs_and_the_capture_is_deployed() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let body = json!({ "emulatorId": emulator, "name": "with-app", "group": "nightly", "labels": { "team": "maps" } });
        let made = world.call("POST", SNAPSHOTS, Some(body)).await.expect(202).json();
        assert_eq!((&made["state"], &made["deployable"]), (&json!("creating"), &json!(false)));
        assert_eq!(made["origin"], json!({ "kind": "manual", "emulatorId": emulator }));
        let taken = world.until_snapshot("with-app", "ready").await;
        assert_eq!(taken["consistency"], "filesystem");
        assert_eq!((&taken["parent"], &taken["depth"]), (&json!("simulated-phone"), &json!(2)));
        assert_eq!(taken["verifiedBoot"]["adb"], true);
        assert_eq!((&taken["group"], &taken["trust"]), (&json!("nightly"), &json!("internal")));
        assert_eq!(
            taken["sizeBytes"].as_i64(),
            taken["exclusiveBytes"].as_i64().zip(taken["sharedBytes"].as_i64()).map(|(a, b)| a + b)
        );
        assert_eq!(read(&world, &format!("{EMULATORS}/{emulator}")).await["incarnation"], 1, "it went on");
        let parent = snapshot(&world, "simulated-phone").await;
        assert_eq!(parent["childCount"], 1);
        assert_eq!(parent["sourceVolumes"][0]["emulatorId"], emulator.as_str());

        // Taken again: the lineage grows by what was captured.
        let token = world.token.clone();
        let again = world.captured(&token, &emulator).await;
        assert_eq!(snapshot(&world, &again).await["parent"], "with-app");

        let body = json!({ "tenantId": acme, "snapshot": "with-app" });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;
        let used = snapshot(&world, "with-app").await;
        assert_eq!((&used["useCount"], &used["sourceVolumes"][0]["emulatorId"]), (&json!(1), &json!(clone)));
        let taken =
            world.call("POST", SNAPSHOTS, Some(json!({ "emulatorId": clone, "name": "with-app" }))).await;
        assert_eq!(taken.expect(409).code(), "name_taken");
    }
}

#[tokio::test]
async fn what_is_parked_can_be_captured_and_what_starts_cannot() {
    let (world, acme, emulator) = with_a_device(On::Sqlite).await;
    world.call("POST", &format!("{EMULATORS}/{emulator}/park"), None).await.expect(200);
    let token = world.token.clone();
    let name = world.captured(&token, &emulator).await;
    assert_eq!(snapshot(&world, &name).await["consistency"], "filesystem");
    world.call("POST", &format!("{EMULATORS}/{emulator}/restart"), None).await.expect(200);
    world.until(&emulator, "running").await;

    let young = world.call("POST", EMULATORS, Some(json!({ "tenantId": acme }))).await.expect(201).id();
    let refused = world.call("POST", SNAPSHOTS, Some(json!({ "emulatorId": young }))).await.expect(409);
    assert_eq!(refused.code(), "invalid_state");
    for (name, code) in [("tree", 422), ("diskpool", 422), ("Upper", 422), ("-", 422)] {
        let body = json!({ "emulatorId": emulator, "name": name });
        let answer = world.call("POST", SNAPSHOTS, Some(body)).await;
        assert!(matches!(answer.status.as_u16(), 400 | 422), "{name} {code}: {answer:?}");
    }
}

#[tokio::test]
async fn the_tree_shows_lineage_and_sizes_that_add_up() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let token = world.token.clone();
        let first = world.captured(&token, &emulator).await;
        let second = world.captured(&token, &emulator).await;
        let tree = read(&world, &format!("{SNAPSHOTS}/tree")).await;
        let roots = tree["roots"].as_array().expect("roots");
        assert_eq!(roots.len(), 2, "{tree}");
        let phone =
            roots.iter().find(|node| node["snapshot"]["name"] == "simulated-phone").expect("the phone");
        assert_eq!(phone["children"][0]["snapshot"]["name"], first.as_str());
        assert_eq!(phone["children"][0]["children"][0]["snapshot"]["name"], second.as_str());
        let part = read(&world, &format!("{SNAPSHOTS}/tree?root={first}&depth=1")).await;
        assert_eq!(part["roots"][0]["snapshot"]["name"], first.as_str());
        assert_eq!(part["roots"][0]["children"], json!([]));
        world.call("GET", &format!("{SNAPSHOTS}/tree?root=absent"), None).await.expect(404);

        // A stranger sees the platform's own, and not even that they have children.
        let stranger = world.user("stranger").await;
        let stranger = world.token_of(&stranger).await;
        let tree =
            world.call_as(&stranger, "GET", &format!("{SNAPSHOTS}/tree"), None).await.expect(200).json();
        for node in tree["roots"].as_array().expect("roots") {
            assert_eq!((&node["snapshot"]["childCount"], &node["children"]), (&json!(0), &json!([])));
        }

        // Deleted in the middle: its child moves up, and keeps its bytes.
        let before = snapshot(&world, &second).await;
        world.call("DELETE", &format!("{SNAPSHOTS}/{first}"), None).await.expect(202);
        world.until_snapshot(&first, "gone").await;
        let after = snapshot(&world, &second).await;
        assert_eq!((&after["parent"], &after["depth"]), (&json!("simulated-phone"), &before["depth"]));
        assert_eq!(after["sizeBytes"], before["sizeBytes"]);
        let clone = json!({ "tenantId": acme, "snapshot": second });
        let clone = world.call("POST", EMULATORS, Some(clone)).await.expect(201).id();
        world.until(&clone, "running").await;
    }
}

/// What holds the last of a lineage holds its bytes, even if it never got bytes of its own.
#[tokio::test]
async fn a_capture_that_came_to_nothing_tells_what_its_lineage_takes() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let token = world.token.clone();
        let first = world.captured(&token, &emulator).await;
        let body = json!({ "tenantId": acme, "snapshot": first });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;
        world.simulation.host.set_stubborn(true);
        let body = json!({ "emulatorId": clone, "name": "nothing" });
        let begun = world.call("POST", SNAPSHOTS, Some(body)).await.expect(202).json();
        assert_eq!(
            begun["sizeBytes"],
            snapshot(&world, &first).await["sizeBytes"],
            "as much as it stands on"
        );
        // The device does not hold still for as long as it may take.
        world.clock.advance(Duration::from_secs(600));
        world.until_snapshot("nothing", "faulted").await;
        for id in [&clone, &emulator] {
            world.call("DELETE", &format!("{EMULATORS}/{id}"), None).await.expect(202);
            world.until(id, "terminated").await;
        }
        let bytes = snapshot(&world, &first).await["sizeBytes"].clone();
        world.call("DELETE", &format!("{SNAPSHOTS}/{first}"), None).await.expect(202);
        world.until_snapshot(&first, "gone").await;

        let left = snapshot(&world, "nothing").await;

        assert_eq!(left["sizeBytes"], bytes);
        let base = snapshot(&world, "simulated-phone").await["sizeBytes"].as_i64().expect("a size");
        assert_eq!(left["sharedBytes"], base);
        assert_eq!(left["exclusiveBytes"].as_i64(), bytes.as_i64().map(|bytes| bytes - base));
        assert_ne!(left["exclusiveBytes"], 0, "it holds what the first one wrote");
    }
}

#[tokio::test]
async fn a_snapshot_goes_only_when_nothing_is_made_of_it() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let token = world.token.clone();
        let name = world.captured(&token, &emulator).await;
        let path = format!("{SNAPSHOTS}/{name}");
        let root = world.call("DELETE", &format!("{SNAPSHOTS}/simulated-phone"), None).await.expect(409);
        assert_eq!(root.code(), "is_root");
        let clone = json!({ "tenantId": acme, "snapshot": name });
        let clone = world.call("POST", EMULATORS, Some(clone)).await.expect(201).id();
        let used = world.call("DELETE", &path, None).await.expect(409);
        assert_eq!(used.code(), "in_use");
        assert!(used.json()["problems"][0]["message"].as_str().expect("words").contains(&clone), "{used:?}");
        world.call("DELETE", &format!("{EMULATORS}/{clone}"), None).await.expect(202);
        world.until(&clone, "terminated").await;

        assert_eq!(world.call("DELETE", &path, None).await.expect(202).json()["state"], "deleting");
        world.until_snapshot(&name, "gone").await;
        let deployed =
            world.call("POST", EMULATORS, Some(json!({ "tenantId": acme, "snapshot": name }))).await;
        deployed.expect(404);
        // The device that it was captured from still stands on its bytes, and runs on.
        world.call("POST", &format!("{EMULATORS}/{emulator}/restart"), None).await.expect(200);
        world.until(&emulator, "running").await;
        world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
        world.until(&emulator, "terminated").await;
        for _ in 0..200 {
            let pools = read(&world, &format!("{SNAPSHOTS}/diskpool")).await;
            if pools["pools"][0]["reclaimableBytes"] == 0 {
                break;
            }
            world.clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stray = paddock_engine::doctor::examine(&world.server.engine, &*world.simulation.pool, &[])
            .await
            .expect("a look");
        assert_eq!(stray, [], "nothing is left behind");
    }
}

#[tokio::test]
async fn a_root_is_proved_or_forced() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let body = json!({ "emulatorId": emulator, "name": "young" });
        world.call("POST", SNAPSHOTS, Some(body)).await.expect(202);
        let path = format!("{SNAPSHOTS}/young");
        let unsafe_yet = world.call("POST", &format!("{path}/promote-root"), None).await.expect(409);
        assert_eq!(unsafe_yet.code(), "promote_unsafe");
        let problems: Vec<String> = unsafe_yet.json()["problems"]
            .as_array()
            .expect("problems")
            .iter()
            .map(|problem| problem["code"].as_str().expect("a code").to_owned())
            .collect();
        assert_eq!(problems, ["not_deployable", "verification_pending"]);
        let forced = json!({ "force": true });
        let forced =
            world.call("POST", &format!("{path}/promote-root"), Some(forced)).await.expect(200).json();
        assert_eq!(forced["root"], true);
        let audit = read(&world, "/api/v1/audit?limit=5&action=snapshots.promote_root").await;
        let done = audit["items"].as_array().expect("events").iter().find(|event| event["outcome"] == "done");
        assert_eq!(
            done.expect("an event")["details"],
            json!({ "force": true, "overridden": ["not_deployable", "verification_pending"] })
        );
        world.until_snapshot("young", "ready").await;
        // What is a root stays one, however often it is said.
        world.call("POST", &format!("{path}/promote-root"), None).await.expect(200);
        let newest =
            world.call("POST", EMULATORS, Some(json!({ "tenantId": acme }))).await.expect(201).json();
        assert_eq!(newest["snapshot"]["name"], "young", "the newest root is what one gets");
        for _ in 0..2 {
            let demoted = world.call("POST", &format!("{path}/demote-root"), None).await.expect(200).json();
            assert_eq!((&demoted["root"], &demoted["rootedAt"]), (&json!(false), &Value::Null));
        }
        let picker = read(&world, &format!("{SNAPSHOTS}?deployable=true")).await;
        assert_eq!(picker["items"][0]["name"], "simulated-phone", "the newest root stands first: {picker}");
    }
}

#[tokio::test]
async fn a_swap_keeps_id_and_address_and_comes_back_if_it_does_not_come_up() {
    for on in BOTH {
        let (world, acme, emulator) = with_a_device(on).await;
        let token = world.token.clone();
        let name = world.captured(&token, &emulator).await;
        let path = format!("{EMULATORS}/{emulator}");
        let before = read(&world, &path).await;
        let swapped = world.call("PUT", &format!("{path}/snapshot"), Some(json!({ "snapshot": name }))).await;
        let swapped = swapped.expect(200).json();
        assert_eq!((&swapped["status"], &swapped["incarnation"]), (&json!("swapping"), &json!(2)));
        world.until(&emulator, "running").await;
        let after = read(&world, &path).await;
        assert_eq!((&after["endpoints"], &after["serial"]), (&before["endpoints"], &before["serial"]));
        assert_eq!(after["snapshot"], json!({ "name": name, "parent": "simulated-phone" }));
        assert_eq!(after["statusReason"], Value::Null);
        // The snapshot before is free again once its clone is gone.
        for _ in 0..200 {
            if snapshot(&world, "simulated-phone").await["sourceVolumes"] == json!([]) {
                break;
            }
            world.clock.advance(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(snapshot(&world, "simulated-phone").await["sourceVolumes"], json!([]));

        // The next one never comes up.
        let body = json!({ "snapshot": "simulated-phone" });
        world.call("PUT", &format!("{path}/snapshot"), Some(body)).await.expect(200);
        let id = EmulatorId::parse(&emulator).expect("an id");
        let host = &world.simulation.host;
        while host.observe(id).await.expect("a look").is_none_or(|seen| seen.incarnation < 3) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        host.crash(id);
        world.until(&emulator, "running").await;
        let back = read(&world, &path).await;
        assert_eq!(back["snapshot"]["name"], name.as_str());
        assert_eq!((&back["statusReason"]["code"], &back["incarnation"]), (&json!("swap_failed"), &json!(4)));

        // The bytes of the next one are not there, and nobody knows when they will be.
        let pool = &world.simulation.pool;
        let layers = async || -> HashSet<LayerId> {
            pool.list().await.expect("a look").layers.iter().map(|layer| layer.id).collect()
        };
        let known = layers().await;
        let second = world.emulator(&token, &acme).await;
        let lost = world.captured(&token, &second).await;
        let new: Vec<LayerId> = layers().await.difference(&known).copied().collect();
        world.call("DELETE", &format!("{EMULATORS}/{second}"), None).await;
        world.until(&second, "terminated").await;
        assert_eq!(new.len(), 1);
        pool.remove_layer(new[0]).await.expect("gone");
        world.call("PUT", &format!("{path}/snapshot"), Some(json!({ "snapshot": lost }))).await.expect(200);
        world.until(&emulator, "running").await;
        let back = read(&world, &path).await;
        assert_eq!(back["snapshot"]["name"], name.as_str());
        assert_eq!((&back["statusReason"]["code"], &back["incarnation"]), (&json!("swap_failed"), &json!(6)));

        let car = json!({ "snapshot": "simulated-automotive" });
        let other = world.call("PUT", &format!("{path}/snapshot"), Some(car)).await.expect(409);
        assert_eq!(other.code(), "other_device_type");
    }
}

/// Nothing is captured, purged or verified.
const HELD: &[Loop] = &[reconcile::emulators::LOOP, reconcile::images::LOOP, reconcile::layers::LOOP];

#[tokio::test]
async fn what_is_saved_from_deletion_is_not_more_than_it_was() {
    for on in BOTH {
        let world = World::with(on, &[], HELD).await;
        let acme = world.tenant("acme").await;
        let token = world.token.clone();
        let emulator = world.emulator(&token, &acme).await;
        let body = json!({ "emulatorId": emulator, "name": "young" });
        world.call("POST", SNAPSHOTS, Some(body)).await.expect(202);
        let path = format!("{SNAPSHOTS}/young");
        world.call("DELETE", &path, None).await.expect(202);
        let forced = Some(json!({ "force": true }));
        let saved = world.call("POST", &format!("{path}/promote-root"), forced).await.expect(200).json();
        // Its bytes are still to come.
        assert_eq!((&saved["state"], &saved["deployable"]), (&json!("creating"), &json!(false)), "{saved}");
    }
}

#[tokio::test]
async fn a_captured_disk_that_is_damaged_is_a_fault_with_a_reason_and_can_be_deleted() {
    for on in BOTH {
        let (world, _, emulator) = with_a_device(on).await;
        let pool = &world.simulation.pool;
        pool.damage_disk(pool.list().await.expect("a look").disks[0].id);
        let body = json!({ "emulatorId": emulator, "name": "torn" });
        world.call("POST", SNAPSHOTS, Some(body)).await.expect(202);
        let torn = world.until_snapshot("torn", "faulted").await;
        assert_eq!(torn["deployableProblems"], json!(["layer_damaged"]), "{torn}");
        // The device goes on, and can be captured again; that nothing new is made of the layer is nobody's surprise.
        world.call("POST", &format!("{EMULATORS}/{emulator}/restart"), None).await.expect(200);
        world.until(&emulator, "running").await;
        world.call("DELETE", &format!("{SNAPSHOTS}/torn"), None).await.expect(202);
        world.until_snapshot("torn", "gone").await;
        world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
        world.until(&emulator, "terminated").await;
        for _ in 0..500 {
            if pool.list().await.expect("a look").layers.len() == 2 {
                break;
            }
            world.clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let engine = &world.server.engine;
        let found = paddock_engine::doctor::examine(engine, &**pool, &[]).await.expect("a look");
        assert_eq!(found, [], "nothing is left behind");
        let contents = pool.list().await.expect("a look");
        assert_eq!((contents.layers.len(), contents.disks.len()), (2, 0), "{contents:?}");
    }
}

/// Everything that the list shows this caller, by name.
async fn listed(world: &World, token: &str) -> BTreeMap<String, Value> {
    let path = format!("{SNAPSHOTS}?limit=200");
    let page = world.call_as(token, "GET", &path, None).await.expect(200).json();
    assert!(page["nextCursor"].is_null(), "a test makes fewer than a page");
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| (item["name"].as_str().expect("a name").to_owned(), item.clone())).collect()
}

/// The tree of this caller, as a list; each stands below the nearest ancestor that the caller may see.
async fn drawn(world: &World, token: &str) -> BTreeMap<String, Value> {
    fn walk(node: &Value, above: Option<&Value>, drawn: &mut BTreeMap<String, Value>) {
        let found = &node["snapshot"];
        if let Some(above) = above {
            assert_eq!(found["parent"], above["name"], "in these worlds no parent is hidden");
        }
        drawn.insert(found["name"].as_str().expect("a name").to_owned(), found.clone());
        node["children"]
            .as_array()
            .expect("children")
            .iter()
            .for_each(|child| walk(child, Some(found), drawn));
    }
    let tree = world.call_as(token, "GET", &format!("{SNAPSHOTS}/tree"), None).await.expect(200).json();
    let mut drawn = BTreeMap::new();
    tree["roots"].as_array().expect("roots").iter().for_each(|root| walk(root, None, &mut drawn));
    drawn
}

/// What the loops change between two looks proves nothing: only a tree between two lists that are equal is held to them.
async fn assert_tree_is_true(world: &World, tokens: &[String], when: &str) {
    for (number, token) in tokens.iter().enumerate() {
        for attempt in 0.. {
            assert!(attempt < 50, "the list never stands still");
            let before = listed(world, token).await;
            let tree = drawn(world, token).await;
            if before == listed(world, token).await {
                assert_eq!(tree, before, "caller {number}, {when}");
                break;
            }
        }
    }
}

/// The tree is kept between requests; that must never show.
#[tokio::test]
async fn the_tree_is_what_the_list_says_after_whatever_has_changed() {
    for (on, mut state) in BOTH.into_iter().zip([7u64, 11]) {
        let (world, acme, emulator) = with_a_device(on).await;
        let other = world.tenant("other").await;
        let mut tokens = vec![world.token.clone()];
        for tenant in [&acme, &other] {
            let user = world.user(&format!("member-{}", tokens.len())).await;
            world.join(tenant, &user, "member").await;
            tokens.push(world.token_of(&user).await);
        }
        let theirs = world.emulator(&tokens[0], &other).await;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for step in 0..30 {
            let names: Vec<String> = listed(&world, &tokens[0]).await.into_keys().collect();
            let name = &names[next(names.len())];
            let path = format!("{SNAPSHOTS}/{name}");
            let act = next(6);
            // Some of these are refused for good reasons; what they leave behind is what is compared.
            match act {
                0 => drop(world.captured(&tokens[0], &emulator).await),
                1 => drop(world.captured(&tokens[0], &theirs).await),
                2 => drop(
                    world.call("POST", &format!("{path}/promote-root"), Some(json!({ "force": true }))).await,
                ),
                3 => drop(world.call("POST", &format!("{path}/demote-root"), None).await),
                4 => drop(world.call("DELETE", &path, None).await),
                _ => {
                    let body = json!({ "tenantId": acme, "snapshot": name });
                    drop(world.call("POST", EMULATORS, Some(body)).await);
                }
            }
            assert_tree_is_true(&world, &tokens, &format!("{on:?}, step {step}: {act} on {name}")).await;
        }
        // Whoever may see more from now on sees it at once.
        let user = world.user("newcomer").await;
        let token = world.token_of(&user).await;
        let before = drawn(&world, &token).await;
        world.join(&acme, &user, "member").await;
        assert_tree_is_true(&world, std::slice::from_ref(&token), "after joining").await;
        world.captured(&tokens[0], &emulator).await;
        assert_ne!(drawn(&world, &token).await.len(), before.len(), "they see what is of their tenant");
    }
}

#[tokio::test]
async fn a_change_by_another_replica_shows_in_the_tree_within_a_second() {
    let database = world::new_postgres_database().await;
    let folder = || Arc::new(tempfile::tempdir().expect("a folder"));
    let here = World::on_database(folder(), &database, &[], LOOPS).await;
    let there = World::on_database(folder(), &database, &[], LOOPS).await;
    let name = here.snapshot().await;
    for round in 0..6 {
        // Written down before the change, so that there is something that could be out of date.
        let is_root = |tree: BTreeMap<String, Value>| tree[&name]["root"].as_bool().expect("a root or not");
        let before = is_root(drawn(&there, &there.token).await);
        let (act, body) =
            if before { ("demote-root", None) } else { ("promote-root", Some(json!({ "force": true }))) };
        here.call("POST", &format!("{SNAPSHOTS}/{name}/{act}"), body).await.expect(200);
        let changed = std::time::Instant::now();
        assert_eq!(
            is_root(drawn(&here, &here.token).await),
            !before,
            "round {round}: at once where it was done"
        );
        while is_root(drawn(&there, &there.token).await) == before {
            assert!(changed.elapsed() < Duration::from_secs(10), "round {round}: it is not seen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
