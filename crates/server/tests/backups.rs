//! Backups and restores over HTTP: on simulated disks and both databases, under kills, and with real devices.

mod daemon;
mod world;
mod yard;

use std::process::Command;
use std::time::{Duration, Instant};

use paddock_engine::reconcile::{LOOPS, backups};
use serde_json::{Value, json};
use world::{Answer, BOTH, On, World};
use yard::{Adb, Data, Phone, Yard};

const BACKUPS: &str = "/api/v1/backups";
const RESTORES: &str = "/api/v1/restores";
const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";

fn name(made: &Value) -> String {
    made["podName"].as_str().expect("a name").to_owned()
}

/// A world with a tenant, a device in it and a snapshot of that.
async fn furnished(on: On, flags: &[&str]) -> (World, String, String, String) {
    let world = World::with(on, flags, LOOPS).await;
    let acme = world.tenant("acme").await;
    let token = world.token.clone();
    let emulator = world.emulator(&token, &acme).await;
    let snapshot = world.captured(&token, &emulator).await;
    (world, acme, emulator, snapshot)
}

async fn back_up(world: &World, tenant: &str, source: Value) -> Value {
    let body = json!({ "tenantId": tenant, "source": source });
    let made = world.call("POST", BACKUPS, Some(body)).await.expect(202);
    let made_name = name(&made.json());
    assert_eq!(made.header("location"), format!("{BACKUPS}/{made_name}"));
    world.until_phase(&format!("{BACKUPS}/{made_name}"), "completed").await
}

async fn restore(world: &World, backup: &str, called: &str) -> Value {
    let body = json!({ "backup": backup, "name": called });
    let made = world.call("POST", RESTORES, Some(body)).await.expect(202).json();
    world.until_phase(&format!("{RESTORES}/{}", name(&made)), "completed").await
}

#[tokio::test]
async fn a_snapshot_is_backed_up_lost_and_restored_byte_for_byte() {
    for on in BOTH {
        let (world, acme, emulator, snapshot) = furnished(on, &[]).await;
        let before = world.until_snapshot(&snapshot, "ready").await;
        let backup = back_up(&world, &acme, json!({ "snapshot": snapshot })).await;
        assert_eq!(backup["source"], json!({ "snapshot": snapshot }));
        assert_eq!(backup["progress"]["bytesDone"], backup["progress"]["bytesTotal"]);
        assert!(backup["checksum"].as_str().is_some_and(|sum| sum.starts_with("sha256-256k:")), "{backup}");
        assert!(backup["location"].as_str().is_some_and(|place| place.contains(&acme)), "{backup}");
        assert_eq!((&backup["error"], &backup["expiresAt"]), (&Value::Null, &Value::Null));
        let seen = world.call("GET", &format!("{SNAPSHOTS}/{snapshot}"), None).await.expect(200).json();
        assert_eq!(seen["backups"], json!([name(&backup)]));

        world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
        world.until(&emulator, "terminated").await;
        world.call("DELETE", &format!("{SNAPSHOTS}/{snapshot}"), None).await.expect(202);
        world.until_snapshot(&snapshot, "gone").await;
        let restored = restore(&world, &name(&backup), "again").await;
        assert_eq!((&restored["snapshot"], &restored["error"]), (&json!("again"), &Value::Null));
        let again = world.until_snapshot("again", "ready").await;
        assert_eq!(again["checksum"], before["checksum"], "the bytes are those of before");
        assert_eq!(again["origin"]["kind"], "restore");
        assert_eq!((&again["deployable"], &again["parent"]), (&json!(true), &Value::Null));
        let body = json!({ "tenantId": acme, "snapshot": "again" });
        let clone = world.call("POST", EMULATORS, Some(body)).await.expect(201).id();
        world.until(&clone, "running").await;

        let trail = world.call("GET", &format!("/api/v1/audit?tenantId={acme}"), None).await.expect(200).text;
        assert!(trail.contains("backups.create") && trail.contains("restores.create"), "{trail}");
    }
}

#[tokio::test]
async fn a_device_is_backed_up_while_it_runs_and_no_snapshot_of_it_stays() {
    for on in BOTH {
        let (world, acme, emulator, snapshot) = furnished(on, &[]).await;
        let layers = |world: &World| {
            let pool = world.simulation.pool.clone();
            async move {
                use paddock_model::drivers::disk_pools::DiskPool;
                pool.list().await.expect("a list").layers.len()
            }
        };
        let backup = back_up(&world, &acme, json!({ "emulatorId": emulator })).await;
        assert_eq!(backup["source"], json!({ "emulatorId": emulator }));
        let seen = world.call("GET", &format!("{EMULATORS}/{emulator}"), None).await.expect(200).json();
        assert_eq!(seen["status"], "running");
        for _ in 0..200 {
            let all =
                world.call("GET", &format!("{SNAPSHOTS}?tenantId={acme}"), None).await.expect(200).json();
            let names: Vec<&Value> =
                all["items"].as_array().expect("items").iter().map(|one| &one["name"]).collect();
            if names == [&json!(snapshot)] {
                break;
            }
            world.clock.advance(Duration::from_millis(50));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let all = world.call("GET", &format!("{SNAPSHOTS}?tenantId={acme}"), None).await.expect(200).json();
        assert_eq!(all["items"].as_array().expect("items").len(), 1, "{all}");

        // The same by the name of its disk, which the snapshot that it runs from tells.
        let path = format!("{SNAPSHOTS}/{}", seen["snapshot"]["name"].as_str().expect("a name"));
        let from = world.call("GET", &path, None).await.expect(200).json();
        let volumes = from["sourceVolumes"].as_array().expect("volumes");
        let volume =
            &volumes.iter().find(|one| one["emulatorId"] == emulator.as_str()).expect("it")["volume"];
        let of_volume = back_up(&world, &acme, json!({ "volume": volume })).await;
        assert_eq!(of_volume["source"], json!({ "volume": volume }));

        // Deleted device, restored from its backup.
        world.call("DELETE", &format!("{EMULATORS}/{emulator}"), None).await.expect(202);
        world.until(&emulator, "terminated").await;
        restore(&world, &name(&backup), "device").await;
        world.until_snapshot("device", "ready").await;
        // What was kept for the backup's sake is gone: what is left are the two images, the snapshot's layer and the restored one.
        for _ in 0..200 {
            if layers(&world).await == 4 {
                break;
            }
            world.clock.advance(Duration::from_millis(50));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(layers(&world).await, 4);
    }
}

#[tokio::test]
async fn what_cannot_be_backed_up_or_restored_is_refused() {
    let (world, acme, emulator, snapshot) = furnished(On::Sqlite, &[]).await;
    let other = world.tenant("other").await;
    let ask = |body: Value| world.call("POST", BACKUPS, Some(body));
    let code = |answer: Answer, status: u16| answer.expect(status).code();
    let both = json!({ "snapshot": snapshot, "emulatorId": emulator });
    for source in [json!({}), both] {
        // Told by the schema: exactly one.
        ask(json!({ "tenantId": acme, "source": source })).await.expect(422);
    }
    assert_eq!(
        code(ask(json!({ "tenantId": other, "source": { "snapshot": snapshot } })).await, 409),
        "other_tenant"
    );
    assert_eq!(
        code(ask(json!({ "tenantId": other, "source": { "emulatorId": emulator } })).await, 409),
        "other_tenant"
    );
    ask(json!({ "tenantId": acme, "source": { "snapshot": "nothing" } })).await.expect(404);
    ask(json!({ "tenantId": acme, "source": { "volume": "dsk_01jcr8e8v0e9bvqz3tz4d0wq2h" } }))
        .await
        .expect(404);
    world
        .call("POST", RESTORES, Some(json!({ "backup": "backup-01jcr8e8v0e9bvqz3tz4d0wq2h" })))
        .await
        .expect(404);

    // One that is not done is not restored, and a name that is taken is refused.
    let backup = back_up(&world, &acme, json!({ "snapshot": snapshot })).await;
    let body = json!({ "backup": name(&backup), "name": snapshot });
    assert_eq!(code(world.call("POST", RESTORES, Some(body)).await, 409), "name_taken");
    // Members without a role do not see it, nor make any.
    let ada = world.user("ada").await;
    world.join(&acme, &ada, "member").await;
    let ada = world.token_of(&ada).await;
    let path = format!("{BACKUPS}/{}", name(&backup));
    world.call_as(&ada, "GET", &path, None).await.expect(404);
    let body = json!({ "tenantId": acme, "source": { "snapshot": snapshot } });
    world.call_as(&ada, "POST", BACKUPS, Some(body)).await.expect(403);
    world.call_as(&ada, "POST", RESTORES, Some(json!({ "backup": name(&backup) }))).await.expect(404);
    let seen = world.call_as(&ada, "GET", BACKUPS, None).await.expect(200).json();
    assert_eq!(seen["items"], json!([]));
    // A tenant that has backups is not deleted by mistake.
    let refused = world.call("DELETE", &format!("/api/v1/tenants/{acme}"), None).await.expect(409).json();
    assert!(refused["problems"].to_string().contains("has_backups"), "{refused}");
}

#[tokio::test]
async fn backups_are_listed_by_what_they_are_of_and_go_when_they_are_deleted_or_expire() {
    for on in BOTH {
        let (world, acme, _, snapshot) = furnished(on, &[]).await;
        let first = back_up(&world, &acme, json!({ "snapshot": snapshot })).await;
        let body = json!({ "tenantId": acme, "source": { "snapshot": snapshot }, "labels": { "team": "maps" }, "expiresInSeconds": 300 });
        let second = name(&world.call("POST", BACKUPS, Some(body)).await.expect(202).json());
        world.until_phase(&format!("{BACKUPS}/{second}"), "completed").await;
        let list = |query: String| {
            let path = format!("{BACKUPS}{query}");
            let world = &world;
            async move {
                let page = world.call("GET", &path, None).await.expect(200).json();
                page["items"].as_array().expect("items").iter().map(name).collect::<Vec<_>>()
            }
        };
        assert_eq!(list(format!("?tenantId={acme}")).await, [second.clone(), name(&first)]);
        assert_eq!(list("?labelSelector=team%3Dmaps".to_owned()).await, [second.as_str()]);
        assert_eq!(list(format!("?snapshot={snapshot}&phase=completed&limit=1")).await, [second.as_str()]);
        assert_eq!(list("?phase=failed".to_owned()).await, [] as [&str; 0]);

        world.clock.advance(Duration::from_secs(301));
        world.until_phase(&format!("{BACKUPS}/{second}"), "gone").await;
        let path = format!("{BACKUPS}/{}", name(&first));
        let stale = world.request("DELETE", &path, None).header("if-match", "\"999\"");
        world.send(stale).await.expect(412);
        let deleting = world.call("DELETE", &path, None).await.expect(202).json();
        assert_eq!(deleting["phase"], "deleting");
        world.until_phase(&path, "gone").await;
        let trail = world.call("GET", &format!("/api/v1/audit?tenantId={acme}"), None).await.expect(200).text;
        assert!(trail.contains("backups.expire") && trail.contains("backups.delete"), "{trail}");
        let restores = world.call("GET", RESTORES, None).await.expect(200).json();
        assert_eq!(restores["items"], json!([]));
    }
}

/// All backups that there are, once nothing of them is under way.
async fn settled(world: &World) -> Vec<Value> {
    // Also where others run the loop at the same time, nothing is done twice.
    for _ in 0..500 {
        let engine = &world.server.engine;
        let (one, other) = tokio::join!((backups::LOOP.run)(engine), (backups::LOOP.run)(engine));
        let quiet =
            one.is_ok_and(|report| report.changed == 0) && other.is_ok_and(|report| report.changed == 0);
        let all = world.call("GET", BACKUPS, None).await.expect(200).json();
        let items = all["items"].as_array().expect("items").clone();
        if quiet && items.iter().all(|one| one["phase"] == "completed" || one["phase"] == "failed") {
            return items;
        }
        world.clock.advance(Duration::from_millis(100));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("something is always under way");
}

#[tokio::test]
async fn a_promoted_root_is_backed_up_by_itself_where_that_is_wanted() {
    for on in BOTH {
        let (world, _, _, snapshot) = furnished(on, &[]).await;
        let promote = format!("{SNAPSHOTS}/{snapshot}/promote-root");
        world.call("POST", &promote, Some(json!({}))).await.expect(200);
        assert_eq!(settled(&world).await, [] as [Value; 0], "nobody wants that by default");

        let (world, acme, emulator, snapshot) = furnished(on, &["--backups-roots", "true"]).await;
        assert_eq!(settled(&world).await, [] as [Value; 0], "images are nobody's, and this is no root");
        let promote = format!("{SNAPSHOTS}/{snapshot}/promote-root");
        world.call("POST", &promote, Some(json!({}))).await.expect(200);
        let made = settled(&world).await;
        assert_eq!(made.len(), 1, "{made:?}");
        let first = &made[0];
        assert_eq!((&first["phase"], &first["ownerId"]), (&json!("completed"), &json!("system")));
        assert_eq!((&first["source"], &first["tenantId"]), (&json!({ "snapshot": snapshot }), &json!(acme)));
        let trail = world.call("GET", "/api/v1/audit?action=backups.create", None).await.expect(200).json();
        assert_eq!(trail["items"][0]["requestId"], "backups.roots", "{trail}");
        assert_eq!(trail["items"][0]["actor"], Value::Null, "{trail}");
        assert_eq!(settled(&world).await, made, "one is enough");

        // One that somebody has made is as good.
        let token = world.token.clone();
        let second = world.captured(&token, &emulator).await;
        let own = back_up(&world, &acme, json!({ "snapshot": second })).await;
        world.call("POST", &format!("{SNAPSHOTS}/{second}/promote-root"), Some(json!({}))).await.expect(200);
        let names: Vec<String> = settled(&world).await.iter().map(name).collect();
        assert_eq!(names, [name(&own), name(first)]);
        // One that is deleted is made again.
        let path = format!("{BACKUPS}/{}", name(first));
        world.call("DELETE", &path, None).await.expect(202);
        world.until_phase(&path, "gone").await;
        let again = settled(&world).await;
        assert_eq!(again.len(), 2, "{again:?}");
        assert_eq!((&again[0]["source"], &again[0]["ownerId"]), (&first["source"], &json!("system")));
    }
}

#[tokio::test]
async fn a_backup_that_was_tampered_with_is_refused_and_says_so() {
    let (world, acme, _, snapshot) = furnished(On::Sqlite, &[]).await;
    let backup = back_up(&world, &acme, json!({ "snapshot": snapshot })).await;
    let location = backup["location"].as_str().expect("a place");
    let repository =
        std::path::Path::new(location).parent().and_then(|path| path.parent()).expect("a folder");
    for entry in std::fs::read_dir(repository.join("data")).expect("data") {
        for pack in std::fs::read_dir(entry.expect("entry").path()).expect("packs") {
            let path = pack.expect("pack").path();
            let mut bytes = std::fs::read(&path).expect("bytes");
            bytes[20] ^= 1;
            std::fs::write(&path, bytes).expect("altered");
        }
    }
    let body = json!({ "backup": name(&backup), "name": "broken" });
    let made = world.call("POST", RESTORES, Some(body)).await.expect(202).json();
    let failed = world.until_phase(&format!("{RESTORES}/{}", name(&made)), "failed").await;
    assert_eq!(failed["error"]["code"], "object_damaged", "{failed}");
    let broken = world.until_snapshot("broken", "faulted").await;
    assert_eq!(
        (&broken["deployable"], &broken["deployableProblems"]),
        (&json!(false), &json!(["restore_failed"]))
    );
}

#[tokio::test]
async fn a_restore_ends_when_its_snapshot_is_deleted_and_reads_no_more() {
    let (world, acme, _, snapshot) = furnished(On::Sqlite, &[]).await;
    let backup = back_up(&world, &acme, json!({ "snapshot": snapshot })).await;
    // Whoever opens a pipe waits until somebody writes to it, so the restore stands where it reads what the backup is.
    let location = backup["location"].as_str().expect("a place");
    let bytes = std::fs::read(location).expect("the backup");
    std::fs::remove_file(location).expect("moved away");
    assert!(Command::new("mkfifo").arg(location).status().expect("mkfifo").success());
    let body = json!({ "backup": name(&backup), "name": "unwanted" });
    let made = world.call("POST", RESTORES, Some(body)).await.expect(202).json();
    let path = format!("{RESTORES}/{}", name(&made));
    world.until_phase(&path, "running").await;

    world.call("DELETE", &format!("{SNAPSHOTS}/unwanted"), None).await.expect(202);
    world.until_snapshot("unwanted", "gone").await;
    // Long enough for the loop to look after it some times.
    for _ in 0..20 {
        world.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let pipe = location.to_owned();
    tokio::task::spawn_blocking(move || std::fs::write(pipe, bytes))
        .await
        .expect("a thread")
        .expect("written");

    let failed = world.until_phase(&path, "failed").await;
    assert_eq!(failed["error"]["code"], "snapshot_gone", "{failed}");
    assert_eq!(failed["progress"]["bytesDone"], 0, "nothing of it was read any more: {failed}");
}

async fn until(yard: &Yard<'_>, path: &str, member: &str, wanted: &str) -> Value {
    let started = Instant::now();
    loop {
        let (status, seen) = yard.ask("GET", path, None, None).await.expect("an answer");
        if status == 404 && wanted == "gone" || seen[member] == wanted {
            return seen;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{seen} and not {wanted}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_real_device_is_backed_up_while_it_runs_and_comes_back_after_it_and_its_snapshots_are_gone() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo precious > /data/kept; sync");
    yard.call("POST", SNAPSHOTS, Some(json!({ "emulatorId": phone.id, "name": "first" }))).await;
    until(&yard, &format!("{SNAPSHOTS}/first"), "state", "ready").await;
    let body = json!({ "tenantId": tenant, "source": { "snapshot": "first" } });
    let first = yard.call("POST", BACKUPS, Some(body)).await;
    let first = until(&yard, &format!("{BACKUPS}/{}", name(&first)), "phase", "completed").await;

    // The device goes on; its next backup reads what has changed.
    adb.shell(&phone.address, "echo newer > /data/later; sync");
    let before = data.processes(&phone.id);
    let body = json!({ "tenantId": tenant, "source": { "emulatorId": phone.id } });
    let second = yard.call("POST", BACKUPS, Some(body)).await;
    let second = until(&yard, &format!("{BACKUPS}/{}", name(&second)), "phase", "completed").await;
    assert_eq!(data.processes(&phone.id), before, "the device did not notice");
    let read = |backup: &Value| backup["progress"]["bytesTotal"].as_i64().expect("bytes");
    println!("{} bytes were read at first, then {}", read(&first), read(&second));
    assert!(read(&second) < read(&first), "{} of {} bytes were read", read(&second), read(&first));
    yard.sound();

    // The server is killed with a backup on its way, and takes it up again.
    adb.shell(&phone.address, "dd if=/dev/urandom of=/data/more bs=1M count=8; sync");
    let body = json!({ "tenantId": tenant, "source": { "emulatorId": phone.id } });
    let third = yard.call("POST", BACKUPS, Some(body)).await;
    assert_eq!(third["phase"], "queued");
    let third = name(&third);
    let yard = yard.reopen();
    until(&yard, &format!("{BACKUPS}/{third}"), "phase", "completed").await;

    yard.call("DELETE", &format!("{EMULATORS}/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    yard.call("DELETE", &format!("{SNAPSHOTS}/first"), None).await;
    until(&yard, &format!("{SNAPSHOTS}/first"), "state", "gone").await;
    let restored =
        yard.call("POST", RESTORES, Some(json!({ "backup": name(&second), "name": "again" }))).await;
    until(&yard, &format!("{RESTORES}/{}", name(&restored)), "phase", "completed").await;
    let again = until(&yard, &format!("{SNAPSHOTS}/again"), "state", "ready").await;
    assert_eq!(again["deployable"], true);
    let clone = Phone::read(
        &yard.call("POST", EMULATORS, Some(json!({ "tenantId": tenant, "snapshot": "again" }))).await,
    );
    yard.until(&clone.id, "running").await;
    adb.connect(&clone.address);
    assert_eq!(adb.shell(&clone.address, "cat /data/kept"), "precious");
    assert_eq!(adb.shell(&clone.address, "cat /data/later"), "newer");

    // What is forgotten is pruned, and the stock restic finds nothing to complain of.
    yard.call("DELETE", &format!("{BACKUPS}/{}", name(&first)), None).await;
    until(&yard, &format!("{BACKUPS}/{}", name(&first)), "phase", "gone").await;
    let repository = data.path().join("backups").join(&tenant);
    let key = data.path().join("backup-keys").join(&tenant);
    let started = Instant::now();
    loop {
        let check = Command::new("restic")
            .arg("-r")
            .arg(&repository)
            .arg("-p")
            .arg(&key)
            .args(["--no-cache", "check", "--read-data"])
            .output()
            .expect("restic; `scripts/setup test` installs it");
        let said =
            String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
        if check.status.success() && said.contains("no errors were found") {
            break;
        }
        // A prune that is under way has the repository to itself.
        assert!(said.contains("locked") && started.elapsed() < Duration::from_secs(60), "{said}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    yard.sound();
}
