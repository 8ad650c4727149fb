//! Retention over HTTP, on simulated devices and both databases: scores, policies, previews, and what is let go.

mod world;

use std::time::Duration;

use paddock_engine::reconcile::{LOOPS, Loop, Report, retention};
use paddock_model::drivers::disk_pools::DiskPool;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";
const POLICIES: &str = "/api/v1/retention_policies";

/// A world in which retention runs when the test says so, and lineages stay as they are.
async fn quiet(on: On) -> World {
    let quiet = ["retention", "consolidation"];
    let others: Vec<Loop> = LOOPS.iter().copied().filter(|each| !quiet.contains(&each.name)).collect();
    World::with(on, &[], Box::leak(others.into_boxed_slice())).await
}

async fn round(world: &World) -> Report {
    (retention::LOOP.run)(&world.server.engine).await.expect("a round without trouble")
}

async fn snapshot(world: &World, name: &str) -> Value {
    world.call("GET", &format!("{SNAPSHOTS}/{name}"), None).await.expect(200).json()
}

async fn capture(world: &World, emulator: &str, name: &str, group: &str) {
    let body = json!({ "emulatorId": emulator, "name": name, "group": group });
    world.call("POST", SNAPSHOTS, Some(body)).await.expect(202);
    world.until_snapshot(name, "ready").await;
}

/// A snapshot that nothing stands on: its device is gone.
async fn lone(world: &World, tenant: &str, name: &str, group: &str) {
    let token = world.token.clone();
    let emulator = world.emulator(&token, tenant).await;
    capture(world, &emulator, name, group).await;
    world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
    world.until(&emulator, "terminated").await;
}

async fn names(world: &World) -> Vec<String> {
    let page = world.call("GET", &format!("{SNAPSHOTS}?limit=200"), None).await.expect(200).json();
    let items = page["items"].as_array().expect("items").iter();
    let ours = items.filter(|item| !item["tenantId"].is_null());
    let mut names: Vec<String> = ours.map(|item| item["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

fn named(judged: &Value) -> Vec<&str> {
    judged.as_array().expect("snapshots").iter().map(|one| one["name"].as_str().expect("a name")).collect()
}

fn kept_because(preview: &Value, name: &str) -> Value {
    let kept = preview["kept"].as_array().expect("snapshots");
    kept.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {preview}"))["keptBecause"]
        .clone()
}

async fn used_bytes(world: &World) -> i64 {
    world.simulation.pool.capacity().await.expect("a pool").used_bytes
}

/// Everything that is on its way out has gone.
async fn settled(world: &World) {
    for _ in 0..500 {
        let pools = world.call("GET", &format!("{SNAPSHOTS}/diskpool"), None).await.expect(200).json();
        let all = world.call("GET", &format!("{SNAPSHOTS}?state=deleting"), None).await.expect(200).json();
        if pools["pools"][0]["reclaimableBytes"] == 0 && all["items"] == json!([]) {
            return;
        }
        world.clock.advance(Duration::from_millis(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("something does not go");
}

#[tokio::test]
async fn what_the_preview_says_is_what_then_happens() {
    for on in BOTH {
        let world = quiet(on).await;
        let acme = world.tenant("acme").await;
        let token = world.token.clone();
        let emulator = world.emulator(&token, &acme).await;
        for name in ["n1", "n2", "n3", "n4", "n5"] {
            capture(&world, &emulator, name, "nightly").await;
        }
        capture(&world, &emulator, "other", "weekly").await;
        world.call("POST", &format!("{SNAPSHOTS}/n1/promote-root"), Some(json!({}))).await.expect(200);
        let body = json!({ "tenantId": acme, "snapshot": "n2" });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;

        // Nothing that was not annotated goes.
        let spec = json!({ "tenantId": acme, "group": "nightly", "rules": { "keepLast": 1 } });
        let proposed = format!("{POLICIES}/preview");
        let seen = world.call("POST", &proposed, Some(spec.clone())).await.expect(200).json();
        assert_eq!(seen["released"], json!([]), "{seen}");
        assert_eq!(snapshot(&world, "n3").await.get("retentionScore"), None);
        round(&world).await;
        let scored = snapshot(&world, "n3").await;
        let points = scored["scoreBreakdown"].as_array().expect("a breakdown").iter();
        assert_eq!(
            points.map(|part| part["points"].as_i64().expect("points")).sum::<i64>(),
            scored["retentionScore"]
        );
        assert_eq!(scored["keptBecause"], json!(["no_policy"]));

        let seen = world.call("POST", &proposed, Some(spec.clone())).await.expect(200).json();
        assert_eq!(named(&seen["released"]), ["n3", "n4"]);
        assert_eq!(named(&seen["kept"]), ["n1", "n2", "n5"]);
        assert_eq!(kept_because(&seen, "n1"), json!(["root"]));
        assert_eq!(kept_because(&seen, "n2"), json!(["source_of_volume"]));
        assert_eq!(kept_because(&seen, "n5"), json!(["newest_deployable", "keep_last"]));
        assert_eq!(seen["freesBytes"], 0, "others stand on them");
        let policy = world.call("POST", POLICIES, Some(spec.clone())).await.expect(201).id();
        let again =
            world.call("POST", &format!("{POLICIES}/{policy}/preview"), None).await.expect(200).json();
        assert_eq!(again, seen);
        assert_eq!(world.call("POST", POLICIES, Some(spec)).await.expect(409).code(), "policy_exists");

        round(&world).await;
        settled(&world).await;
        assert_eq!(names(&world).await, ["n1", "n2", "n5", "other"]);
        assert_eq!(snapshot(&world, "n5").await["keptBecause"], json!(["newest_deployable", "keep_last"]));
        let events =
            world.call("GET", "/api/v1/audit?action=snapshots.release", None).await.expect(200).json();
        let events = events["items"].as_array().expect("events");
        assert_eq!(events.len(), 2, "{events:?}");
        for event in events {
            assert_eq!((&event["requestId"], &event["actor"]), (&json!("retention"), &Value::Null));
            assert_eq!(event["details"]["policy"], policy.as_str(), "{event}");
            assert_eq!(event["details"]["reason"], "not_kept");
        }
        assert_eq!(round(&world).await.changed, 0, "judged again, nothing changes");
    }
}

#[tokio::test]
async fn the_preview_tells_the_bytes_that_are_really_freed() {
    for on in BOTH {
        let world = quiet(on).await;
        let acme = world.tenant("acme").await;
        for name in ["a", "b", "c"] {
            lone(&world, &acme, name, "g").await;
        }
        settled(&world).await;
        round(&world).await;
        let spec = json!({ "tenantId": acme, "rules": { "maxCount": 1 } });
        let seen =
            world.call("POST", &format!("{POLICIES}/preview"), Some(spec.clone())).await.expect(200).json();
        assert_eq!(seen["releasedCount"], 2);
        let before = used_bytes(&world).await;
        world.call("POST", POLICIES, Some(spec)).await.expect(201);
        round(&world).await;
        settled(&world).await;
        assert_eq!(names(&world).await, ["c"]);
        assert_eq!(Some(before - used_bytes(&world).await), seen["freesBytes"].as_i64());
    }
}

#[tokio::test]
async fn under_pressure_the_least_relevant_go_and_no_more_than_it_takes() {
    for on in BOTH {
        let world = quiet(on).await;
        let acme = world.tenant("acme").await;
        for name in ["a", "b", "c", "d"] {
            lone(&world, &acme, name, "g").await;
        }
        settled(&world).await;
        // What was used is worth more than what was not.
        let body = json!({ "tenantId": acme, "snapshot": "a" });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;
        world.call("DELETE", &format!("{EMULATORS}/{clone}"), None).await.expect(202);
        world.until(&clone, "terminated").await;
        let spec = json!({ "tenantId": acme, "mode": "pressure", "rules": { "keepLast": 1 } });
        world.call("POST", POLICIES, Some(spec)).await.expect(201);
        round(&world).await;
        assert_eq!(names(&world).await, ["a", "b", "c", "d"], "there is room");
        assert_eq!(snapshot(&world, "b").await["keptBecause"], json!(["no_pressure"]));
        let score =
            async |name: &str| snapshot(&world, name).await["retentionScore"].as_i64().expect("a score");
        assert!(score("a").await > score("b").await);

        let capacity = world.simulation.pool.capacity().await.expect("a pool");
        let warn = capacity.capacity_bytes / 100 * 80;
        world.simulation.pool.occupy(warn - capacity.used_bytes);
        round(&world).await;
        // The pool has not been told yet: another look decides nothing more.
        round(&world).await;
        settled(&world).await;
        assert_eq!(names(&world).await, ["a", "c", "d"]);
        round(&world).await;
        settled(&world).await;
        assert_eq!(names(&world).await, ["a", "c", "d"], "one was enough");

        world.simulation.pool.occupy(capacity.capacity_bytes / 100 * 90);
        round(&world).await;
        settled(&world).await;
        assert_eq!(names(&world).await, ["d"], "the newest deployable stays, however short room is");
        let events =
            world.call("GET", "/api/v1/audit?action=snapshots.release", None).await.expect(200).json();
        assert!(
            events["items"]
                .as_array()
                .expect("events")
                .iter()
                .all(|event| event["details"]["reason"] == "pressure")
        );
    }
}

#[tokio::test]
async fn a_policy_is_read_changed_and_deleted_by_those_who_may() {
    for on in BOTH {
        let world = quiet(on).await;
        let acme = world.tenant("acme").await;
        for rules in [
            json!({}),
            json!({ "keepLast": 0 }),
            json!({ "keepLast": 0, "maxCount": 5 }),
            json!({ "keepLast": 2, "maxCount": 0 }),
        ] {
            let body = json!({ "tenantId": acme, "rules": rules });
            let refused = world.call("POST", POLICIES, Some(body)).await.expect(422).json();
            assert_eq!(refused["errors"][0]["code"], "keeps_nothing", "{refused}");
        }
        let body = json!({ "tenantId": acme, "rules": { "keepLast": 2 } });
        let made = world.call("POST", POLICIES, Some(body.clone())).await.expect(201);
        let (path, tag) = (format!("{POLICIES}/{}", made.id()), made.header("etag").to_owned());
        let change =
            json!({ "group": "nightly", "mode": "pressure", "rules": { "keepDaily": 7, "maxCount": 9 } });
        let stale = world.request("PUT", &path, Some(change.clone())).header("if-match", "\"77\"");
        world.send(stale).await.expect(412);
        let changed = world.request("PUT", &path, Some(change)).header("if-match", &tag);
        let changed = world.send(changed).await.expect(200).json();
        assert_eq!(
            (&changed["mode"], &changed["rules"]),
            (&json!("pressure"), &json!({ "keepDaily": 7, "maxCount": 9 }))
        );
        assert_eq!(world.call("GET", &path, None).await.expect(200).json(), changed);

        let (member, stranger) = (world.user("member").await, world.user("stranger").await);
        world.join(&acme, &member, "member").await;
        let elsewhere = world.tenant("elsewhere").await;
        world.join(&elsewhere, &stranger, "admin").await;
        let (member, stranger) = (world.token_of(&member).await, world.token_of(&stranger).await);
        let preview = format!("{path}/preview");
        for (token, method, path, body, status) in [
            (&member, "GET", path.as_str(), None, 200),
            (&member, "POST", preview.as_str(), None, 200),
            (&member, "POST", POLICIES, Some(body.clone()), 403),
            (&member, "PUT", path.as_str(), Some(json!({ "rules": { "keepLast": 1 } })), 403),
            (&member, "DELETE", path.as_str(), None, 403),
            (&stranger, "GET", path.as_str(), None, 404),
            (&stranger, "POST", preview.as_str(), None, 404),
            (&stranger, "POST", POLICIES, Some(body.clone()), 404),
            (&stranger, "POST", "/api/v1/retention_policies/preview", Some(body), 404),
            (&stranger, "PUT", path.as_str(), Some(json!({ "rules": { "keepLast": 1 } })), 404),
            (&stranger, "DELETE", path.as_str(), None, 404),
        ] {
            let answer = world.call_as(token, method, path, body).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
        }
        let list = world.call_as(&stranger, "GET", POLICIES, None).await.expect(200).json();
        assert_eq!(list["items"], json!([]));
        world.call("DELETE", &path, None).await.expect(204);
        world.call("GET", &path, None).await.expect(404);
    }
}

#[tokio::test]
async fn a_round_that_is_cut_off_anywhere_is_finished_by_the_next() {
    for on in BOTH {
        let world = quiet(on).await;
        let acme = world.tenant("acme").await;
        let token = world.token.clone();
        let emulator = world.emulator(&token, &acme).await;
        for number in 0..6 {
            capture(&world, &emulator, &format!("s{number}"), "g").await;
        }
        world.call("POST", &format!("{SNAPSHOTS}/s1/promote-root"), Some(json!({}))).await.expect(200);
        let body = json!({ "tenantId": acme, "rules": { "keepLast": 2 } });
        world.call("POST", POLICIES, Some(body)).await.expect(201);
        // Ever a little further before it is dropped, with two at once: nobody notices but the round itself.
        for micros in [0, 50, 200, 500, 1000, 2000, 4000, 8000, 16_000] {
            let wait = Duration::from_micros(micros);
            let cut = || tokio::time::timeout(wait, (retention::LOOP.run)(&world.server.engine));
            let _ = tokio::join!(cut(), cut());
        }
        while round(&world).await.changed > 0 {}
        settled(&world).await;
        assert_eq!(names(&world).await, ["s1", "s4", "s5"]);
        let events =
            world.call("GET", "/api/v1/audit?action=snapshots.release", None).await.expect(200).json();
        assert_eq!(events["items"].as_array().map(Vec::len), Some(3), "each was released once");
    }
}
