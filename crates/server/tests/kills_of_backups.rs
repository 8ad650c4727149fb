//! The daemon is killed in the middle of a backup, at one step after another: whatever moment it is, the backup comes to its end, the
//! stock restic finds nothing to complain of, and what is restored is the same byte for byte.

mod daemon;
mod yard;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::kills::{PATIENCE, SNAPSHOTS, World, steps_by};
use yard::{Data, images, noise};

const BACKUPS: &str = "/api/v1/backups";
const RESTORES: &str = "/api/v1/restores";

/// What no compression makes smaller, so that a backup takes several packs.
const NOISE: usize = 40 << 20;

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("a program");
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The phone's disk with noise where its file system has nothing.
fn noisy_phone(folder: &Path) -> PathBuf {
    let (disk, bytes) = (folder.join("phone.qcow2"), folder.join("noise"));
    std::fs::copy(images().join("phone.qcow2"), &disk).expect("a copy");
    std::fs::write(&bytes, noise(NOISE)).expect("a file");
    run("qemu-io", &["-f", "qcow2", "-c", &format!("write -s {} 1500M {NOISE}", text(&bytes)), text(&disk)]);
    disk
}

/// The disks of layers.
fn layers(data: &Data) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(data.path().join("disks/layers")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_disk = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        matches!(kind, Some("qcow2" | "raw"))
    };
    paths.filter(is_disk).collect()
}

/// The one layer that has come since.
fn added(data: &Data, before: &BTreeSet<PathBuf>) -> PathBuf {
    let after = layers(data);
    let new: Vec<&PathBuf> = after.difference(before).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    new[0].clone()
}

fn is_same(one: &Path, other: &Path) {
    let kind = |path: &Path| path.extension().and_then(|kind| kind.to_str()).expect("a kind").to_owned();
    let (first, second) = (kind(one), kind(other));
    run("qemu-img", &["compare", "-U", "-f", &first, "-F", &second, text(one), text(other)]);
}

async fn until(world: &World<'_>, path: &str, is_so: impl Fn(u16, &Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let seen = world.yard.ask("GET", path, None, None).await;
        let (status, seen) = seen.unwrap_or_else(|| panic!("no answer, {}", world.kills.last()));
        if is_so(status, &seen) {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "{seen}, {}", world.kills.last());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_over(seen: &Value) -> bool {
    matches!(seen["phase"].as_str(), Some("completed" | "failed"))
}

/// Wants a backup of a daemon that has so many steps to live once it writes to the repository; tells it as it is when it is over, and whether
/// the daemon was killed on the way.
async fn back_up(world: &mut World<'_>, steps: i64, key: &str, body: &Value) -> (Value, bool) {
    world.kills.arm_from("backups/", steps);
    let mut asked = world.yard.ask("POST", BACKUPS, Some(body), Some(key)).await;
    let started = Instant::now();
    let mut killed = false;
    loop {
        if world.is_dead() {
            world.revive();
            killed = true;
            // Whoever was not told asks again, and gets the one that was made.
            asked = world.yard.ask("POST", BACKUPS, Some(body), Some(key)).await;
        }
        if let Some((status, made)) = &asked {
            assert_eq!(*status, 202, "{made}, {}", world.kills.last());
            let path = format!("{BACKUPS}/{}", made["podName"].as_str().expect("a name"));
            match world.yard.ask("GET", &path, None, None).await {
                Some((_, seen)) if is_over(&seen) => {
                    world.kills.disarm();
                    // It may have taken its last step this moment.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    if !world.is_dead() {
                        return (seen, killed);
                    }
                }
                _ => {}
            }
        }
        assert!(started.elapsed() < PATIENCE, "{asked:?}, {}", world.kills.last());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_backup_survives_a_kill_at_every_step_and_restores_byte_for_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = noisy_phone(folder.path());
    let data = Data::new();
    let flags = ["--snapshots-import-folders", text(folder.path())];
    let mut world = World::new(&data, &flags).await;
    let tenant = world.tenant.clone();
    let roots = world.yard.call("GET", &format!("{SNAPSHOTS}?root=true&deviceType=phone"), None).await;
    let before = layers(&data);
    let import = json!({ "tenantId": tenant, "like": roots["items"][0]["name"], "path": disk });
    world.yard.call("POST", SNAPSHOTS, Some(json!({ "name": "noisy", "import": import }))).await;
    until(&world, &format!("{SNAPSHOTS}/noisy"), |_, seen| seen["state"] == "ready").await;
    let source = added(&data, &before);
    is_same(&disk, &source);
    let repository = data.path().join("backups").join(&tenant);
    let key = data.path().join("backup-keys").join(&tenant);
    let restic = ["-r", text(&repository), "-p", text(&key), "--no-cache"];

    let wanted = json!({ "tenantId": tenant, "source": { "snapshot": "noisy" } });
    let (begun, mut kills, mut checksum) = (Instant::now(), 0, Value::Null);
    for steps in steps_by(32) {
        let (backup, killed) = back_up(&mut world, steps, &format!("key-{steps}"), &wanted).await;
        let last = world.kills.last();
        assert_eq!((&backup["phase"], &backup["error"]), (&json!("completed"), &Value::Null), "{last}");
        assert_eq!(world.yard.call("GET", BACKUPS, None).await["items"].as_array().map(Vec::len), Some(1));
        if checksum.is_null() {
            checksum = backup["checksum"].clone();
        }
        assert_eq!(backup["checksum"], checksum, "{last}");
        let said = run("restic", &[&restic[..], &["check", "--read-data"]].concat());
        assert!(said.contains("no errors were found"), "{said}, {last}");

        let (before, name) = (layers(&data), backup["podName"].as_str().expect("a name"));
        let body = json!({ "backup": name, "name": format!("again-{steps}") });
        let restore = world.yard.call("POST", RESTORES, Some(body)).await;
        let path = format!("{RESTORES}/{}", restore["podName"].as_str().expect("a name"));
        let restored = until(&world, &path, |_, seen| is_over(seen)).await;
        assert_eq!(restored["phase"], "completed", "{restored}, {last}");
        is_same(&source, &added(&data, &before));

        // Nothing is left of it, so that the next one writes everything again.
        let again = format!("{SNAPSHOTS}/again-{steps}");
        world.yard.call("DELETE", &again, None).await;
        world.yard.call("DELETE", &format!("{BACKUPS}/{name}"), None).await;
        until(&world, &again, |status, _| status == 404).await;
        until(&world, &format!("{BACKUPS}/{name}"), |status, _| status == 404).await;
        let started = Instant::now();
        while packs(&repository) > 0 || layers(&data).len() > before.len() {
            let left = (packs(&repository), layers(&data).len() - before.len());
            assert!(started.elapsed() < PATIENCE, "{left:?} packs and layers are left, {last}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if !killed {
            println!("{kills} kills, until there were no {steps} steps, in {:?}", begun.elapsed());
            assert!(kills > 0, "it was never killed");
            world.yard.sound();
            return;
        }
        kills += 1;
    }
}

fn packs(repository: &Path) -> usize {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    entries(&repository.join("data")).map(|entry| entries(&entry.path()).count()).sum()
}
