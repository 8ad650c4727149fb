//! Retention at the command line: what a preview lists is what goes, by a cap on simulated devices, and on a real disk that fills up.

mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use world::{EXIT_DONE, EXIT_USAGE, World};

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "{what} does not come");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The tenant's snapshots.
fn snapshots(world: &World) -> BTreeSet<String> {
    let list = ["snapshot", "list", "--tenant", "acme", "-o", "name"];
    world.run(&list).expect(EXIT_DONE).lines().into_iter().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn named(judged: &Value) -> BTreeSet<String> {
    let names = judged.as_array().expect("snapshots").iter();
    names.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn preview(world: &World, arguments: &[&str]) -> Value {
    let all = [&["retention-policy", "preview"], arguments, &["-o", "json"]].concat();
    world.run(&all).expect(EXIT_DONE).json()
}

/// Has every snapshot judged now: a new policy is a reason to look, whatever it is about.
fn look(world: &World, group: &str) {
    let other = ["retention-policy", "create", "--tenant", "acme", "--group", group, "--keep-last", "1"];
    world.run(&other).expect(EXIT_DONE);
    let scores = || {
        let all = preview(world, &["--tenant", "acme", "--keep-last", "1"]);
        let judged =
            ["released", "kept"].into_iter().flat_map(|part| all[part].as_array().expect("some").clone());
        judged.map(|one| one["score"].clone()).collect::<Vec<_>>()
    };
    until("a score", || scores().iter().all(Value::is_number));
}

fn ready(world: &World) -> String {
    let list = ["snapshot", "list", "--root", "--deployable", "--device-type", "phone", "-o", "name"];
    until("an image", || !world.run(&list).expect(EXIT_DONE).lines().is_empty());
    world.run(&list).expect(EXIT_DONE).lines()[0].clone()
}

#[test]
fn what_the_preview_of_a_cap_lists_is_exactly_what_goes() {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
    let world = World::with(&["--devices-simulated", "true", "--devices-images", images]);
    ready(&world);
    world.create(&["acme"]);
    world.run(&["emulator", "create", "--tenant", "acme", "--name", "first", "--wait"]).expect(EXIT_DONE);
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        let take = ["snapshot", "create", "first", "--name", name, "--group", "nightly", "--wait"];
        world.run(&take).expect(EXIT_DONE);
    }
    let other = ["snapshot", "create", "first", "--name", "other", "--group", "weekly", "--wait"];
    world.run(&other).expect(EXIT_DONE);
    world.run(&["snapshot", "promote", "n1"]).expect(EXIT_DONE);
    look(&world, "elsewhere");

    let rules = ["--tenant", "acme", "--group", "nightly", "--max-count", "2"];
    let proposed = preview(&world, &rules);
    let (going, staying) = (named(&proposed["released"]), named(&proposed["kept"]));
    assert!(!going.is_empty() && staying.contains("n1") && staying.contains("n5"), "{proposed}");
    assert_eq!(&going | &staying, set(&["n1", "n2", "n3", "n4", "n5"]));
    let table = world.run(&[&["retention-policy", "preview"], &rules[..]].concat()).expect(EXIT_DONE);
    let released = table.cells().iter().filter(|cells| cells.contains(&"released")).count();
    assert_eq!(released, going.len(), "{table:?}");
    assert!(table.stderr.starts_with(&format!("{} would be released", going.len())), "{table:?}");
    assert_eq!(snapshots(&world).len(), 6, "a preview releases nothing");

    let made = world.run(&[&["retention-policy", "create"], &rules[..]].concat()).expect(EXIT_DONE);
    let id = made.stdout.trim();
    until("what goes", || snapshots(&world).is_disjoint(&going));
    let after = world.run(&["retention-policy", "get", id]).expect(EXIT_DONE);
    assert_eq!(after.cells()[1], [id, "nightly", "always", "max count 2"]);
    assert_eq!(snapshots(&world), &staying | &set(&["other"]));
    let again = preview(&world, &[id]);
    assert_eq!((named(&again["released"]), named(&again["kept"])), (BTreeSet::new(), staying));
    let both = ["retention-policy", "preview", id, "--keep-last", "9"];
    world.run(&both).expect(EXIT_USAGE).says_only("--keep-last");
    world.run(&["retention-policy", "delete", id, "--yes"]).expect(EXIT_DONE);
}

/// A file system of its own that is soon full. Mounting needs root, as the rest of the set-up does.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(mebibytes: u64) -> SmallDisk {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let (file, path) = (folder.path().join("disk"), folder.path().join("mounted"));
        std::fs::File::create(&file).and_then(|file| file.set_len(mebibytes << 20)).expect("a file");
        std::fs::create_dir(&path).expect("a folder");
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&file));
        run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&path));
        SmallDisk(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

/// Clones that prove a snapshot outlive their server; those of a test that failed must not outlive the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let listed = Command::new("pgrep").args(["-f", "qemu-system"]).output().expect("pgrep");
        for process in String::from_utf8_lossy(&listed.stdout).lines() {
            let folder = std::fs::read_link(format!("/proc/{process}/cwd"));
            if folder.is_ok_and(|folder| folder.starts_with(&self.0)) {
                let _ = Command::new("kill").args(["-9", process]).status();
            }
        }
    }
}

fn run(command: &mut Command) {
    let done = command.output().expect("a program");
    assert!(done.status.success(), "{command:?}: {done:?}");
}

fn images() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    let folder = cache.unwrap_or_else(home).join("image");
    let there = folder.join("phone.profile.json").exists();
    assert!(there, "there is no image in {}; run `make image`", folder.display());
    folder
}

/// The phone's disk, with so many bytes of noise where its file system has nothing.
fn phone(folder: &Path, number: u8, mebibytes: u8) -> PathBuf {
    let disk = folder.join(format!("{number}.qcow2"));
    std::fs::copy(images().join("phone.qcow2"), &disk).expect("a copy");
    let write = format!("write -P {number} 1500M {mebibytes}M");
    run(Command::new("qemu-io").args(["-f", "qcow2", "-c", &write]).arg(&disk));
    disk
}

#[test]
fn a_disk_that_fills_up_loses_what_the_preview_listed_and_nothing_else() {
    let disk = SmallDisk::new(256);
    let folder = tempfile::tempdir().expect("a folder");
    let data = tempfile::tempdir().expect("a folder");
    let _cleared = Cleared(data.path().to_owned());
    // The pool alone is on the small disk: a database without room for a word could not say what has happened.
    std::os::unix::fs::symlink(disk.path(), data.path().join("disks")).expect("a link");
    let (shelf, address) =
        (images().display().to_string(), format!("127.80.{}.201", std::process::id() % 250));
    let flags =
        ["--devices-images", &shelf, "--devices-first-address", &address, "--pool-measure-seconds", "1"];
    let world = World::within(data, &flags);
    let like = ready(&world);
    world.create(&["acme"]);
    let rules = ["--tenant", "acme", "--group", "nightly", "--mode", "pressure", "--keep-last", "1"];
    let made = world.run(&[&["retention-policy", "create"], &rules[..]].concat()).expect(EXIT_DONE);
    let id = made.stdout.trim();
    for (number, name) in (1..).zip(["base", "older", "old", "newest"]) {
        let file = phone(folder.path(), number, 16).display().to_string();
        let import = ["snapshot", "import", &file, "--like", &like, "--name", name, "--tenant", "acme"];
        world.run(&[&import[..], &["--group", "nightly", "--wait"]].concat()).expect(EXIT_DONE);
    }
    world.run(&["snapshot", "promote", "base"]).expect(EXIT_DONE);
    look(&world, "elsewhere");

    let foretold = preview(&world, &[id]);
    let going = named(&foretold["released"]);
    assert_eq!((&going, named(&foretold["kept"])), (&set(&["older", "old"]), set(&["base", "newest"])));
    let table = world.run(&["retention-policy", "preview", id]).expect(EXIT_DONE);
    assert!(table.stderr.starts_with("Nothing while the disk pool has room"), "{table:?}");
    assert_eq!(snapshots(&world), set(&["base", "older", "old", "newest"]), "there is room");

    // Somebody else fills the disk, for good: all that may go must go, and nothing else does.
    let pool = world.run(&["snapshot", "pool", "-o", "json"]).expect(EXIT_DONE).json();
    let number = |member: &str| pool["pools"][0][member].as_u64().expect("a number");
    let ballast = number("freeBytes") - number("capacityBytes") / 20;
    run(Command::new("fallocate").args(["-l", &ballast.to_string()]).arg(disk.path().join("ballast")));
    let started = Instant::now();
    while !snapshots(&world).is_disjoint(&going) {
        let pool = world.run(&["snapshot", "pool"]).expect(EXIT_DONE);
        let left = snapshots(&world);
        assert!(started.elapsed() < Duration::from_secs(120), "{left:?} are left: {pool:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(snapshots(&world), set(&["base", "newest"]));
    let free = || {
        let pool = world.run(&["snapshot", "pool", "-o", "json"]).expect(EXIT_DONE).json();
        pool["pools"][0]["freeBytes"].as_u64().expect("a number")
    };
    let promised = foretold["freesBytes"].as_u64().expect("bytes");
    assert!(promised > 32 << 20, "{foretold}");
    let before = number("freeBytes") - ballast;
    until("the room", || free() + (1 << 20) > before + promised);
    let released = ["audit", "list", "--action", "snapshots.release", "-o", "json"];
    let events = world.run(&released).expect(EXIT_DONE).json();
    let reasons: Vec<&Value> =
        events["items"].as_array().expect("events").iter().map(|event| &event["details"]["reason"]).collect();
    assert_eq!(reasons, ["pressure", "pressure"], "{events}");
    // Two more looks, and it is still so: a root and the newest stay, however short room is.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(snapshots(&world), set(&["base", "newest"]));
}
