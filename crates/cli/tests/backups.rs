//! Backups and restores at the command line, on simulated devices.

mod world;

use std::thread;
use std::time::Duration;

use serde_json::json;
use world::{EXIT_DONE, EXIT_NOT_FOUND, EXIT_USAGE, World};

#[test]
fn an_emulator_is_backed_up_shown_restored_and_its_backup_deleted() {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
    let world = World::with(&["--devices-simulated", "true", "--devices-images", images]);
    let ready = ["snapshot", "list", "--deployable", "--device-type", "phone", "-o", "name"];
    while world.run(&ready).expect(EXIT_DONE).lines().is_empty() {
        thread::sleep(Duration::from_millis(50));
    }
    let acme = world.create(&["acme"]);
    let make = ["emulator", "create", "--tenant", "acme", "--name", "first", "--wait", "-o", "name"];
    world.run(&make).expect(EXIT_DONE);

    let made = world
        .run(
            &[
                &["backup", "create", "--emulator", "first", "--tenant", "acme", "--label", "team=maps"][..],
                &["--expires-in", "30d", "--wait", "-o", "json"],
            ]
            .concat(),
        )
        .expect(EXIT_DONE);
    let backup = made.json();
    assert_eq!((&backup["phase"], &backup["tenantId"]), (&json!("completed"), &json!(acme)));
    assert_eq!(made.stderr, "", "a program reads a document or a problem, and nothing else");
    let name = backup["podName"].as_str().expect("a name");
    let list = world.run(&["backups", "list", "-l", "team=maps", "--phase", "completed"]).expect(EXIT_DONE);
    assert_eq!(list.cells()[0], ["NAME", "SOURCE", "PHASE", "DISK", "ADDED", "AGE"]);
    assert_eq!(list.cells()[1][0], name);
    let shown = world.run(&["backup", "show", name, "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(shown["checksum"], backup["checksum"]);

    let again = ["restore", "create", name, "--name", "again", "--wait", "-o", "json"];
    let restored = world.run(&again).expect(EXIT_DONE).json();
    assert_eq!((&restored["phase"], &restored["snapshot"]), (&json!("completed"), &json!("again")));
    let list = world.run(&["restore", "list", "--backup", name, "-o", "name"]).expect(EXIT_DONE);
    assert_eq!(list.lines(), [restored["podName"].as_str().expect("a name")]);
    world.run(&["restore", "get", list.lines()[0].as_str()]).expect(EXIT_DONE);

    world.run(&["backup", "delete", name]).expect(EXIT_USAGE).says_only("--yes");
    world.run(&["backup", "delete", name, "--yes"]).expect(EXIT_DONE);
    for _ in 0..200 {
        if !world.run(&["backup", "list", "-o", "name"]).expect(EXIT_DONE).lines().is_empty() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    world.run(&["backup", "get", name]).expect(EXIT_NOT_FOUND);
}
