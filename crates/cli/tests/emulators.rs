//! Emulators and snapshots at the command line, on simulated devices.

mod world;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use world::{EXIT_CONFLICT, EXIT_DONE, EXIT_NOT_FOUND, EXIT_USAGE, Outcome, World, outcome};

const NOBODY: &str = "emu_00000000000000000000000000";

/// A world with devices, and the snapshot of a phone that they can boot from.
fn world() -> (World, String) {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
    let world = World::with(&["--devices-simulated", "true", "--devices-images", images]);
    let list = ["snapshot", "list", "--deployable", "--device-type", "phone", "-o", "name"];
    for _ in 0..200 {
        if let Some(name) = world.run(&list).expect(EXIT_DONE).lines().first() {
            return (world, name.clone());
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("no image was brought in");
}

fn emulator(world: &World, id_or_name: &str) -> Value {
    world.run(&["emulator", "get", id_or_name, "-o", "json"]).expect(EXIT_DONE).json()
}

fn id(outcome: &Outcome) -> &str {
    outcome.stdout.trim()
}

#[test]
fn an_emulator_is_made_shown_restarted_parked_and_deleted() {
    let (world, snapshot) = world();
    let acme = world.create(&["acme"]);

    let created = world
        .run(
            &[
                &["emulator", "create", "--tenant", "acme", "--name", "first", "--device-type", "phone"][..],
                &["--label", "team=maps", "--expires-in", "1h", "--idle-timeout", "10m", "--wait"],
            ]
            .concat(),
        )
        .expect(EXIT_DONE);
    let id = id(&created);
    let up = emulator(&world, "first");
    let address = format!("{}:5555", up["endpoints"]["adb"]["host"].as_str().expect("an address"));
    assert!(created.stderr.contains(&format!("{id}: running")), "{created:?}");
    assert!(created.stderr.ends_with(&format!("Next: adb connect {address}\n")), "{created:?}");
    assert_eq!((&up["id"], &up["tenantId"], &up["status"]), (&json!(id), &json!(acme), &json!("running")));
    assert_eq!((&up["labels"], &up["idleTimeoutSeconds"]), (&json!({ "team": "maps" }), &json!(600)));
    assert!(up["expiresAt"].is_string(), "{up}");

    let list = world.run(&["emulators", "list", "--tenant", "acme", "-l", "team=maps"]).expect(EXIT_DONE);
    assert_eq!(list.cells()[0], ["NAME", "ID", "STATUS", "SNAPSHOT", "ADB", "AGE"]);
    assert_eq!(list.cells()[1][..5], ["first", id, "running", snapshot.as_str(), address.as_str()]);
    let none = world.run(&["emulator", "list", "--status", "parked", "-o", "name"]).expect(EXIT_DONE);
    assert_eq!(none.stdout, "");
    let status = world.run(&["emulator", "status", id]).expect(EXIT_DONE);
    assert_eq!(status.cells()[1], [id, "running", "scheduled,disk_ready,booted,adb_ready"]);

    let again = world.run(&["emulator", "restart", "first", "-o", "json", "--wait", "60"]).expect(EXIT_DONE);
    assert_eq!((&again.json()["status"], &again.json()["incarnation"]), (&json!("running"), &json!(2)));
    assert_eq!(again.stderr, "", "a program reads a document or a problem, and nothing else");

    let park = ["emulator", "park", "first", "-o", "json"];
    assert_eq!(world.run(&park).expect(EXIT_DONE).json()["status"], "parked");
    world.run(&["emulator", "park", id]).expect(EXIT_CONFLICT).says_only("wake");
    let woken = world.run(&["emulator", "restart", id, "--wait"]).expect(EXIT_DONE);
    assert!(woken.stderr.contains(&format!("adb connect {address}")), "{woken:?}");

    world.run(&["emulator", "delete", "first"]).expect(EXIT_USAGE).says_only("--yes");
    let shown = world.run(&["emulator", "delete", "first", "--dry-run"]).expect(EXIT_DONE);
    assert!(shown.stderr.contains(&format!("Would delete emulator first ({id})")), "{shown:?}");
    let deleted = world.run(&["emulator", "delete", "first", "--yes", "--wait"]).expect(EXIT_DONE);
    assert!(deleted.stderr.ends_with(&format!("Deleted emulator first ({id}).\n")), "{deleted:?}");
    assert_eq!(deleted.stdout, "");
    assert_eq!(emulator(&world, id)["status"], "terminated");
    // What it has said can be read until it is forgotten.
    let log = world.run(&["emulator", "logs", id, "--follow"]).expect(EXIT_DONE);
    assert!(log.stdout.contains("lifecycle I running (incarnation 2)\n"), "{log:?}");
    assert!(log.stdout.contains("console   I [    0.200000] init: up\n"), "{log:?}");
    assert!(log.stdout.ends_with("lifecycle I terminated (incarnation 3)\n"), "{log:?}");
    let short = ["emulator", "logs", id, "--tail", "2", "--source", "console", "-o", "json"];
    let short: Vec<Value> = world
        .run(&short)
        .expect(EXIT_DONE)
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a document a line"))
        .collect();
    let lines: Vec<&Value> = short.iter().filter(|event| event["event"] == "log").collect();
    assert_eq!(
        (lines.len(), &lines[1]["line"]),
        (2, &json!("[    9.100000] reboot: power down")),
        "{short:?}"
    );
    assert!(short.iter().all(|event| event["id"].is_u64()), "{short:?}");
    world.run(&["emulator", "logs", id, "-o", "yaml"]).expect(EXIT_USAGE).says_only("-o json");
    world.run(&["emulator", "get", "first"]).expect(EXIT_NOT_FOUND).says_only("no emulator named first");
}

#[test]
fn an_emulator_is_made_in_the_usual_tenant_and_can_be_waited_for_later() {
    let (world, snapshot) = world();
    let acme = world.create(&["acme"]);
    let create = |arguments: &[&str]| {
        let mut command = world.paddock(&[&["emulator", "create"], arguments].concat());
        outcome(command.env("PADDOCK_TENANT", "acme")).expect(EXIT_DONE)
    };

    let one = create(&["--snapshot", &snapshot, "--keep-identity", "car 7", "--name", "twin"]);
    let two = create(&["--keep-identity", "car 7", "--device-type", "phone", "--name", "twin"]);

    assert!(one.stderr.contains(&format!("paddock emulator status {} --wait", id(&one))), "{one:?}");
    let status = ["emulator", "status", id(&one), "--wait", "-o", "json"];
    assert_eq!(world.run(&status).expect(EXIT_DONE).json()["status"], "running");
    let (first, second) = (emulator(&world, id(&one)), emulator(&world, id(&two)));
    assert_eq!((&first["tenantId"], &first["snapshot"]["name"]), (&json!(acme), &json!(snapshot)));
    assert_eq!(first["serial"], second["serial"]);
    world.run(&["emulator", "park", "twin"]).expect(EXIT_USAGE).says_only(id(&two));
    world.run(&["emulator", "restart", "--wait", "twin"]).expect(EXIT_USAGE).says_only("seconds");
    world.run(&["emulator", "get", NOBODY]).expect(EXIT_NOT_FOUND);
    world.run(&["emulator", "get", ""]).expect(EXIT_USAGE).says_only("empty");
    world.run(&["emulator", "delete", NOBODY, "--yes"]).expect(EXIT_NOT_FOUND);
}

#[test]
fn a_snapshot_is_listed_and_shown() {
    let (world, snapshot) = world();

    let table = world.run(&["snapshots", "list", "--device-type", "phone", "--root"]).expect(EXIT_DONE);
    let one = world.run(&["snapshot", "get", &snapshot, "-o", "json"]).expect(EXIT_DONE).json();

    let headings = ["NAME", "STATE", "DEPLOYABLE", "ROOT", "TYPE", "ANDROID", "SIZE", "AGE"];
    assert_eq!(table.cells()[0], headings);
    assert_eq!(table.cells()[1][..5], [snapshot.as_str(), "ready", "yes", "yes", "phone"]);
    assert_eq!((&one["name"], &one["android"]["deviceType"]), (&json!(snapshot), &json!("phone")));
    world.run(&["snapshot", "get", "absent"]).expect(EXIT_NOT_FOUND);
}

#[test]
fn a_job_starts_its_device_and_leaves_something_for_the_next() {
    let (world, root) = world();
    world.create(&["acme"]);
    let file = world.data().join("paddock.env");
    let file = file.to_str().expect("text");
    let ci = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = world.paddock(&[&["ci"], arguments].concat());
        command.envs([
            ("PADDOCK_TENANT", "acme"),
            ("CI_PROJECT_PATH", "acme/app"),
            ("CI_COMMIT_REF_NAME", "main"),
        ]);
        outcome(command.envs(variables.iter().copied()))
    };
    let value = |outcome: &Outcome, name: &str| {
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{outcome:?}")).to_owned()
    };
    let capture = [("PADDOCK_SNAPSHOT_CAPTURE", "success"), ("PADDOCK_SNAPSHOT_LABELS", "team=maps")];

    let first = ci(&["start", "--env-file", file], &capture).expect(EXIT_DONE);
    assert_eq!(value(&first, "PADDOCK_SNAPSHOT_HIT"), "root");
    assert_eq!(value(&first, "PADDOCK_SNAPSHOT_RESTORED"), root);
    assert_eq!(std::fs::read_to_string(file).expect("a file"), first.stdout);
    let id = value(&first, "PADDOCK_EMULATOR_ID");
    let up = emulator(&world, &id);
    let address = format!("{}:5555", up["endpoints"]["adb"]["host"].as_str().expect("an address"));
    assert_eq!((&up["status"], value(&first, "PADDOCK_ADB_SERIAL")), (&json!("running"), address));
    assert_eq!(up["capture"]["key"], "acme/app main phone");
    ci(&["finish", "--emulator", &id], &[]).expect(EXIT_USAGE).says_only("--outcome");
    let ended =
        ci(&["finish"], &[("PADDOCK_EMULATOR_ID", &id), ("CI_JOB_STATUS", "success")]).expect(EXIT_DONE);
    let name = value(&ended, "PADDOCK_SNAPSHOT_CAPTURED");
    world.run(&["snapshot", "verify", &name, "--wait"]);
    let left = world.run(&["snapshot", "get", &name, "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!((&left["state"], &left["labels"]), (&json!("ready"), &json!({ "team": "maps" })), "{left}");

    let second = ci(&["start"], &[("PADDOCK_SNAPSHOT_RESTORE", "required")]).expect(EXIT_DONE);
    assert_eq!(value(&second, "PADDOCK_SNAPSHOT_HIT"), "exact");
    assert_eq!(value(&second, "PADDOCK_SNAPSHOT_RESTORED"), name);
    let id = value(&second, "PADDOCK_EMULATOR_ID");
    let ended = ci(&["finish", "--emulator", &id, "--outcome", "failure"], &[]).expect(EXIT_DONE);
    assert_eq!(value(&ended, "PADDOCK_SNAPSHOT_CAPTURED"), "");
    let missed = [("PADDOCK_SNAPSHOT_RESTORE", "required"), ("PADDOCK_SNAPSHOT_KEY", "other")];
    ci(&["start"], &missed).expect(EXIT_CONFLICT).says_only("Nothing was captured");
    let fallback =
        [("PADDOCK_SNAPSHOT_KEY", "other"), ("PADDOCK_SNAPSHOT_FALLBACK_KEYS", "no such,acme/app *")];
    let third = ci(&["start"], &fallback).expect(EXIT_DONE);
    assert_eq!(value(&third, "PADDOCK_SNAPSHOT_HIT"), "fallback");
    let off = ci(&["start"], &[("PADDOCK_SNAPSHOT_RESTORE", "off")]).expect(EXIT_DONE);
    assert_eq!(
        (value(&off, "PADDOCK_SNAPSHOT_HIT"), value(&off, "PADDOCK_SNAPSHOT_RESTORED")),
        ("none".into(), String::new())
    );
}

#[test]
fn several_are_made_at_once() {
    let (world, snapshot) = world();
    world.create(&["acme"]);
    let many = [
        "emulator",
        "create",
        "--tenant",
        "acme",
        "--snapshot",
        &snapshot,
        "--name",
        "shard",
        "--count",
        "3",
    ];
    let made = world.run(&[&many[..], &["-o", "json"]].concat()).expect(EXIT_DONE).json();
    assert_eq!(made["items"].as_array().map(Vec::len), Some(3), "{made}");
    assert_eq!(made["items"][2]["emulator"]["name"], "shard-3");
    world.run(&[&many[..], &["--wait"]].concat()).expect(EXIT_USAGE);
}
