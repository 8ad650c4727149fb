//! Emulators over HTTP, on simulated devices and both databases.

mod world;

use std::sync::Arc;
use std::time::Duration;

use paddock_engine::reconcile::LOOPS;
use paddock_engine::usage;
use paddock_model::drivers::disk_pools::DiskPool;
use paddock_model::tenants::TenantId;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const EMULATORS: &str = "/api/v1/emulators";

async fn read(world: &World, id: &str) -> Value {
    world.call("GET", &format!("{EMULATORS}/{id}"), None).await.expect(200).json()
}

#[tokio::test]
async fn an_emulator_comes_up_is_restarted_parked_woken_and_goes() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let snapshot = world.snapshot().await;
        let made = world
            .call("POST", EMULATORS, Some(json!({ "tenantId": acme, "name": "first" })))
            .await
            .expect(201);
        let id = made.id();
        assert_eq!(made.json()["status"], "provisioning");
        assert_eq!(made.json()["snapshot"]["name"], snapshot.as_str());
        world.until(&id, "running").await;
        // Wanted; its disk there and to be started; started; up. What comes between costs no commit of its own.
        let read_once = world.call("GET", &format!("{EMULATORS}/{id}"), None).await.expect(200);
        assert!(["\"3\"", "\"4\""].contains(&read_once.header("etag")), "{:?}", read_once.headers);
        let up = read(&world, &id).await;
        assert_eq!((up["incarnation"].as_i64(), up["deviceState"].as_str()), (Some(1), Some("ready")));
        let address = up["endpoints"]["adb"]["host"].clone();
        assert!(
            up["conditions"].as_array().expect("a list").iter().all(|step| step["status"] == "true"),
            "{up}"
        );

        let act = async |verb: &str| world.call("POST", &format!("{EMULATORS}/{id}/{verb}"), None).await;
        assert_eq!(act("restart").await.expect(200).json()["status"], "restarting");
        world.until(&id, "running").await;
        let again = read(&world, &id).await;
        assert_eq!(again["incarnation"], 2);
        assert_eq!((&again["endpoints"]["adb"]["host"], &again["serial"]), (&address, &up["serial"]));

        assert_eq!(act("park").await.expect(200).json()["status"], "parked");
        let refused = act("park").await.expect(409).json();
        assert_eq!(refused["code"], "invalid_state");
        assert!(
            refused["problems"]
                .as_array()
                .expect("a list")
                .contains(&json!({ "code": "allowed_action", "message": "wake" }))
        );
        assert_eq!(act("restart").await.expect(200).json()["status"], "provisioning");
        world.until(&id, "running").await;

        let path = format!("{EMULATORS}/{id}");
        assert_eq!(world.call("DELETE", &path, None).await.expect(202).json()["status"], "terminating");
        world.until(&id, "terminated").await;
        world.call("DELETE", &path, None).await.expect(202);
        let left = world.call("GET", EMULATORS, None).await.expect(200).json();
        assert_eq!(left["items"], json!([]), "a tombstone answers to its id alone");
        world.call("DELETE", &format!("/api/v1/tenants/{acme}"), None).await.expect(204);
        // After a day nothing is left.
        world.clock.advance(Duration::from_secs(25 * 3600));
        let admin = paddock_engine::users::first_admin(&world.server.engine).await.expect("the admin");
        let token = world.token_of(&admin.id.to_string()).await;
        for _ in 0..500 {
            if world.call_as(&token, "GET", &path, None).await.status == 404 {
                break;
            }
            world.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.call_as(&token, "GET", &path, None).await.expect(404);
    }
}

#[tokio::test]
async fn no_two_devices_are_the_same_unless_that_was_asked_for() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    world.snapshot().await;
    let serial = async |identity: Value| {
        let body = json!({ "tenantId": acme, "identity": identity });
        world.call("POST", EMULATORS, Some(body)).await.expect(201).json()["serial"].clone()
    };
    let (one, two) =
        (serial(json!({ "mode": "regenerate" })).await, serial(json!({ "mode": "regenerate" })).await);
    assert_ne!(one, two);
    let kept = json!({ "mode": "keep", "seed": "the same" });
    assert_eq!(serial(kept.clone()).await, serial(kept).await);
    for wrong in [json!({ "mode": "keep" }), json!({ "mode": "regenerate", "seed": "x" })] {
        let body = json!({ "tenantId": acme, "identity": wrong });
        world.call("POST", EMULATORS, Some(body)).await.expect(422);
    }
}

#[tokio::test]
async fn a_tenant_has_no_more_than_its_quota_however_many_ask_at_once() {
    for on in BOTH {
        let world = World::with(on, &["--quotas-emulators", "3"], LOOPS).await;
        let acme = world.tenant("acme").await;
        world.snapshot().await;
        let create = || world.call("POST", EMULATORS, Some(json!({ "tenantId": acme })));
        let (a, b, c, d, e) = tokio::join!(create(), create(), create(), create(), create());
        let mut outcomes = [a, b, c, d, e].map(|answer| answer.status.as_u16());
        outcomes.sort_unstable();
        assert_eq!(outcomes, [201, 201, 201, 409, 409]);
        assert_eq!(create().await.expect(409).code(), "quota_exceeded");
        let first = world.call("GET", EMULATORS, None).await.expect(200).json()["items"][0]["id"].clone();
        let first = first.as_str().expect("an id");
        world.call("DELETE", &format!("{EMULATORS}/{first}"), None).await.expect(202);
        world.until(first, "terminated").await;
        create().await.expect(201);
    }
}

#[tokio::test]
async fn a_tenant_whose_disks_take_too_much_gets_no_more_until_some_are_gone() {
    for on in BOTH {
        // Room is counted in whole mebibytes, so that any disk makes one.
        let world = World::with(on, &["--quotas-disk-bytes", "1048576"], LOOPS).await;
        let acme = world.tenant("acme").await;
        world.snapshot().await;
        let create_until = async |wanted: u16| {
            for _ in 0..500 {
                let answer = world.call("POST", EMULATORS, Some(json!({ "tenantId": acme }))).await;
                if answer.status == wanted {
                    return answer;
                }
                world.clock.advance(Duration::from_secs(1));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            panic!("no answer was {wanted}");
        };
        create_until(201).await;
        let refused = create_until(409).await;
        assert_eq!(refused.code(), "quota_exceeded");
        assert!(refused.json()["detail"].as_str().expect("words").contains("1 MiB on disk"), "{refused:?}");
        let there = world.call("GET", &format!("{EMULATORS}?limit=200"), None).await.expect(200).json();
        let running = there["items"][0]["id"].as_str().expect("an id");
        world.until(running, "running").await;
        let capture = json!({ "emulatorId": running });
        let more = world.call("POST", "/api/v1/snapshots", Some(capture)).await.expect(409);
        assert_eq!(more.code(), "quota_exceeded", "a snapshot takes room as well");
        for emulator in there["items"].as_array().expect("a list") {
            let id = emulator["id"].as_str().expect("an id");
            world.call("DELETE", &format!("{EMULATORS}/{id}"), None).await.expect(202);
            world.until(id, "terminated").await;
        }
        create_until(201).await;
    }
}

#[tokio::test]
async fn what_a_tenant_takes_is_its_disks_and_its_snapshots_and_nothing_of_the_platforms() {
    for on in BOTH {
        let world = World::with(on, &[], LOOPS).await;
        let acme = world.tenant("acme").await;
        world.snapshot().await;
        let whose = TenantId::parse(&acme).expect("an id");
        let pool = &world.simulation.pool;
        let taken = async || {
            let measured = usage::measure(&world.server.engine, &**pool).await.expect("measured");
            measured.of_tenants.get(&whose).copied()
        };
        let bytes = async |disks: bool| {
            let contents = pool.list().await.expect("a look");
            let disks = if disks { contents.disks } else { Vec::new() };
            let own = contents.layers.iter().filter(|layer| layer.parent.is_some());
            let layers: i64 = own.map(|layer| layer.allocated_bytes).sum();
            layers + disks.iter().map(|disk| disk.allocated_bytes).sum::<i64>()
        };
        assert_eq!(taken().await, None);
        let emulator = world.emulator(&world.token, &acme).await;
        let below = world.captured(&world.token, &emulator).await;
        let above = world.captured(&world.token, &emulator).await;
        assert_eq!(taken().await, Some(bytes(true).await));
        world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
        world.until(&emulator, "terminated").await;
        assert_eq!(taken().await, Some(bytes(false).await));
        // What stands on it keeps its bytes, and is charged for them.
        world.call("DELETE", &format!("/api/v1/snapshots/{below}"), None).await.expect(202);
        world.until_snapshot(&below, "gone").await;
        assert_eq!(taken().await, Some(bytes(false).await));
        world.call("DELETE", &format!("/api/v1/snapshots/{above}"), None).await.expect(202);
        world.until_snapshot(&above, "gone").await;
        for _ in 0..500 {
            if taken().await.is_none() {
                break;
            }
            world.clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(taken().await, None);
    }
}

#[tokio::test]
async fn a_full_pool_names_only_what_the_caller_sees() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let before = World::on_database(folder.clone(), "", &[], LOOPS).await;
    let acme = before.tenant("acme").await;
    before.snapshot().await;
    let mut users = Vec::new();
    for (login, role) in [("ada", "member"), ("bob", "member"), ("eve", "operator")] {
        let user = before.user(login).await;
        before.join(&acme, &user, role).await;
        users.push(user);
    }
    let spec = json!({ "tenantId": acme, "name": "adas-own" });
    let token = before.token_of(&users[0]).await;
    before.call_as(&token, "POST", EMULATORS, Some(spec)).await.expect(201);
    before.server.stop().await;

    let world = World::on_database(folder, "", &["--pool-critical-percent", "0"], LOOPS).await;
    // Before it was first looked at, a pool counts as empty.
    let elsewhere = json!({ "tenantId": world.tenant("elsewhere").await });
    while world.call("POST", EMULATORS, Some(elsewhere.clone())).await.status != 503 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let told = async |user: &str| {
        let token = world.token_of(user).await;
        let refused = world.call_as(&token, "POST", EMULATORS, Some(json!({ "tenantId": acme }))).await;
        assert_eq!(refused.clone().expect(503).code(), "no_capacity");
        refused.json()["detail"].as_str().expect("words").to_owned()
    };
    let (ada, bob, eve) = (told(&users[0]).await, told(&users[1]).await, told(&users[2]).await);
    assert!(ada.contains("adas-own") && eve.contains("adas-own"), "{ada} {eve}");
    assert!(!bob.contains("adas-own"), "{bob}");
}

#[tokio::test]
async fn a_member_sees_its_own_and_an_operator_sees_all() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let mut tokens = Vec::new();
        for (login, role) in [("ada", "member"), ("bob", "member"), ("eve", "operator"), ("max", "auditor")] {
            let user = world.user(login).await;
            world.join(&acme, &user, role).await;
            tokens.push(world.token_of(&user).await);
        }
        let (ada, bob) = (world.emulator(&tokens[0], &acme).await, world.emulator(&tokens[1], &acme).await);
        let list = async |token: &str| {
            let page = world.call_as(token, "GET", EMULATORS, None).await.expect(200).json();
            let items = page["items"].as_array().expect("items").clone();
            items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(list(&tokens[0]).await, std::slice::from_ref(&ada));
        assert_eq!(list(&tokens[1]).await, std::slice::from_ref(&bob));
        assert_eq!(list(&tokens[2]).await.len(), 2);
        assert_eq!(list(&tokens[3]).await.len(), 2);
        world.call_as(&tokens[1], "GET", &format!("{EMULATORS}/{ada}"), None).await.expect(404);
        world.call_as(&tokens[3], "POST", &format!("{EMULATORS}/{ada}/restart"), None).await.expect(403);
        // A grant to a group lets its members see and act.
        let group = world.group(&acme, "qa").await;
        let bobs = world.call_as(&tokens[1], "GET", "/api/v1/whoami", None).await.expect(200).id();
        world
            .call("POST", &format!("/api/v1/groups/{group}/members"), Some(json!({ "userId": bobs })))
            .await
            .expect(201);
        let grant = json!({ "object": format!("emulator:{ada}"), "relation": "granted_operator" });
        world.call("POST", &format!("/api/v1/groups/{group}/grants"), Some(grant)).await.expect(201);
        assert_eq!(list(&tokens[1]).await.len(), 2);
        world.call_as(&tokens[1], "POST", &format!("{EMULATORS}/{ada}/restart"), None).await.expect(200);
    }
}

#[tokio::test]
async fn emulators_are_found_by_filters_and_expire() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    let snapshot = world.snapshot().await;
    let body =
        json!({ "tenantId": acme, "name": "short", "labels": { "team": "maps" }, "expiresInSeconds": 60 });
    let id = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
    world.until(&id, "running").await;
    for (filter, found) in [
        ("status=running", 1),
        ("status=failed", 0),
        (&format!("snapshot={snapshot}"), 1),
        ("snapshot=other", 0),
        ("labelSelector=team%3Dmaps", 1),
        ("labelSelector=team%3Dradio", 0),
        ("name=short", 1),
    ] {
        let page = world.call("GET", &format!("{EMULATORS}?{filter}"), None).await.expect(200).json();
        assert_eq!(page["items"].as_array().expect("items").len(), found, "{filter}");
    }
    world.clock.advance(Duration::from_secs(61));
    world.until(&id, "terminated").await;
    assert_eq!(read(&world, &id).await["statusReason"]["code"], "expired");
}

#[tokio::test]
async fn what_cannot_be_deployed_is_refused() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    world.snapshot().await;
    for (body, status, code) in [
        (json!({ "tenantId": acme, "snapshot": "nothing" }), 404, "not_found"),
        (json!({ "tenantId": acme, "deviceType": "tv" }), 409, "no_deployable_root"),
        (json!({ "snapshot": "simulated-phone" }), 422, "tenant_required"),
        (json!({ "tenantId": acme, "cpus": 4 }), 400, "unknown_member"),
    ] {
        assert_eq!(
            world.call("POST", EMULATORS, Some(body.clone())).await.expect(status).code(),
            code,
            "{body}"
        );
    }
}
