//! Memory of real devices: taken while they run, and resumed from by clones that are somebody else, with QEMU and the real `adb`.

mod world;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::emulator_hosts::qemu::QemuHost;
use paddock_drivers::emulator_hosts::qemu::control::{self, Control};
use paddock_drivers::random::OsRandom;
use paddock_model::devices::Phase;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource};
use paddock_model::drivers::emulator_hosts::{Consistency, EmulatorHost, Launch, Switch};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::templates::TemplateId;
use world::{Adb, Folder, disk, images, is_ready, launch, layer, now, open_host, signal, until};

struct World {
    folder: Folder,
    host: QemuHost,
    pool: Qcow2Pool,
    adb: Adb,
}

/// A device that runs on a disk of its own.
struct Origin {
    launch: Launch,
    disk: DiskId,
}

fn template() -> TemplateId {
    TemplateId::new(now(), &OsRandom::default())
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let host = open_host(&folder.path().join("host"));
        let pool = Qcow2Pool::open("local", &folder.path().join("pool")).expect("a pool");
        World { folder, host, pool, adb: Adb::new() }
    }

    /// As after a restart of the daemon.
    fn reopen(&mut self) {
        let empty = self.folder.path().join("another host");
        drop(std::mem::replace(&mut self.host, open_host(&empty)));
        self.host = open_host(&self.folder.path().join("host"));
    }

    async fn origin(&self) -> Origin {
        let image = self.host.ensure_image(&images().join("phone.profile.json")).await.expect("an image");
        let (below, id) = (layer(), disk());
        let source = LayerSource::File(images().join("phone.qcow2"));
        self.pool.ensure_layer(below, &source).await.expect("a layer");
        let volume = self.pool.ensure_disk(id, below).await.expect("a disk");
        let origin = Origin { launch: launch(&image.name, &volume, vec![self.adb.key()]), disk: id };
        self.starts(&origin.launch).await;
        origin
    }

    async fn starts(&self, launch: &Launch) {
        self.host.ensure(launch).await.expect("started");
        until(&self.host, launch.emulator, "ready", is_ready).await;
        self.connect(launch);
    }

    fn connect(&self, launch: &Launch) {
        let said = self.adb.connect(launch.address);
        assert!(said.starts_with("connected to"), "{said}");
    }

    /// Captures disk and memory of one moment.
    async fn capture(&self, origin: &mut Origin) -> (LayerId, TemplateId) {
        let (captured, next, memory) = (layer(), disk(), template());
        let to = self.pool.ensure_successor(origin.disk, captured, next).await.expect("a successor");
        let (emulator, from) = (origin.launch.emulator, origin.launch.volume.clone());
        let patience = Duration::from_secs(20);
        let switch = Switch { emulator, from, to, patience, memory: Some(memory) };
        let begun = Instant::now();
        assert_eq!(self.host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
        println!("captured in {:?}", begun.elapsed());
        self.pool.seal_layer(captured, origin.disk).await.expect("sealed");
        (origin.launch.volume, origin.disk) = (switch.to, next);
        (captured, memory)
    }

    async fn clone_of(&self, origin: &Origin, below: LayerId, template: TemplateId) -> Launch {
        let volume = self.pool.ensure_disk(disk(), below).await.expect("a clone");
        Launch {
            template: Some(template),
            ..launch(&origin.launch.image, &volume, origin.launch.adb_keys.clone())
        }
    }

    /// Why it did not resume.
    async fn refused(&self, launch: &Launch) -> String {
        self.host.ensure(launch).await.expect("told");
        let ended = |phase: &Phase| matches!(phase, Phase::Exited { .. });
        match until(&self.host, launch.emulator, "an end", ended).await.phase {
            Phase::Exited { code: "not_resumed", message } => message,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clones_resume_from_one_memory_and_are_nobody_else() {
    let mut world = World::new();
    let mut origin = world.origin().await;
    let at = origin.launch.address;
    world.adb.shell(
        at,
        "echo disk > /data/kept; echo memory > /tmp/kept; (sleep 100000 </dev/null >/dev/null 2>&1 &)",
    );
    let ticks = world.adb.shell(at, "cat /proc/$(pidof sleep)/stat");

    let (captured, memory) = world.capture(&mut origin).await;

    // The device goes on; what it does now is not in the clones.
    world.adb.shell(at, "echo later > /tmp/kept; echo later > /data/kept; sync");
    let begun = Instant::now();
    let facts = world.host.ensure_template(memory).await.expect("a template");
    println!("made a template of {} KiB in {:?}", facts.allocated_bytes >> 10, begun.elapsed());
    assert_eq!(world.host.ensure_template(memory).await.expect("still there"), facts);
    assert_eq!(world.host.verify_template(memory).await.expect("read"), Integrity::Sound);

    let mut clones = Vec::new();
    for _ in 0..3 {
        clones.push(world.clone_of(&origin, captured, memory).await);
    }
    let begun = Instant::now();
    for clone in &clones {
        world.host.ensure(clone).await.expect("started");
    }
    for clone in &clones {
        let up = until(&world.host, clone.emulator, "ready", is_ready).await;
        println!("{:?} after {:?}", up.phase, begun.elapsed());
    }
    let mut random = BTreeSet::new();
    for clone in &clones {
        world.connect(clone);
        let shell = |line: &str| world.adb.shell(clone.address, line);
        assert_eq!(shell("cat /tmp/kept"), "memory");
        assert_eq!(shell("cat /data/kept"), "disk");
        // The very process, with everything that it did so far.
        let stat = shell("cat /proc/$(pidof sleep)/stat");
        let (name, started) = (|text: &str| text.split(' ').next().map(str::to_owned), 21);
        assert_eq!(name(&stat), name(&ticks));
        assert_eq!(stat.split(' ').nth(started), ticks.split(' ').nth(started));
        assert_eq!(shell("getprop ro.serialno"), clone.identity.serial);
        assert_eq!(shell("settings get secure android_id"), clone.identity.android_id);
        assert_eq!(shell("cat /sys/class/net/eth0/address"), clone.identity.mac);
        assert_eq!(shell("cat /etc/machine-id"), clone.identity.machine_id);
        random.insert(shell("head -c 16 /dev/urandom | od -An -tx1"));
        let state = world.host.inspect(clone.emulator).await.expect("asked");
        assert!(state.clock_offset_ms.abs() < 2_000, "{state:?}");
        shell("echo own > /data/own; sync");
    }
    assert_eq!(random.len(), 3, "{random:?}");
    assert_eq!(world.adb.shell(at, "cat /tmp/kept"), "later");

    // One that is stopped as soon as it is up is switched off, not killed.
    let hasty = world.clone_of(&origin, captured, memory).await;
    world.host.ensure(&hasty).await.expect("started");
    until(&world.host, hasty.emulator, "ready", is_ready).await;
    world.host.stop(hasty.emulator).await.expect("stopped");
    let over = world.host.observe(hasty.emulator).await.expect("seen").expect("a trace");
    assert!(matches!(over.phase, Phase::Exited { code: "switched_off", .. }), "{over:?}");
    world.host.remove(hasty.emulator).await.expect("removed");

    // A clone's own memory can be taken, too; and a clone that is restarted boots from what it has written.
    let clone = clones.remove(0);
    let disk_of_clone = world.pool.list().await.expect("listed").disks.into_iter().map(|disk| disk.id);
    let own =
        disk_of_clone.into_iter().find(|id| clone.volume.0.contains(&id.to_string())).expect("its disk");
    let mut second = Origin { launch: clone, disk: own };
    world.adb.shell(second.launch.address, "echo grandchild > /tmp/kept");
    let (captured, memory_of_clone) = world.capture(&mut second).await;
    world.host.ensure_template(memory_of_clone).await.expect("a template");
    let grandchild = world.clone_of(&second, captured, memory_of_clone).await;
    world.starts(&grandchild).await;
    assert_eq!(world.adb.shell(grandchild.address, "cat /tmp/kept /data/own"), "grandchild\nown");
    assert_eq!(world.adb.shell(grandchild.address, "getprop ro.serialno"), grandchild.identity.serial);
    let again = Launch { incarnation: 2, template: None, ..clones.remove(0) };
    world.starts(&again).await;
    assert_eq!(world.adb.shell(again.address, "cat /data/own"), "own");
    assert_eq!(world.adb.shell(again.address, "cat /tmp/kept 2>/dev/null || echo none"), "none");

    // What has run on the disk since would not fit the memory.
    let used = Launch { incarnation: 3, template: Some(memory), ..again };
    let why = world.refused(&used).await;
    assert!(why.contains("used since"), "{why}");

    // The template may go while its clones run, and after a restart of the daemon they still do.
    world.host.remove_template(memory).await.expect("removed");
    world.host.remove_template(memory).await.expect("gone already");
    world.reopen();
    let left: Vec<TemplateId> =
        world.host.templates().await.expect("listed").iter().map(|template| template.id).collect();
    assert_eq!(left, [memory_of_clone]);
    until(&world.host, clones[0].emulator, "ready", is_ready).await;
    world.connect(&clones[0]);
    assert_eq!(world.adb.shell(clones[0].address, "cat /tmp/kept /data/own"), "memory\nown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_resume_says_why_and_boots() {
    let world = World::new();
    let mut origin = world.origin().await;
    world.adb.shell(origin.launch.address, "echo disk > /data/kept");
    let (captured, memory) = world.capture(&mut origin).await;
    let clone = world.clone_of(&origin, captured, memory).await;
    assert!(world.refused(&clone).await.contains("not there"), "nobody has made it yet");
    world.host.ensure_template(memory).await.expect("a template");
    let folder = world.folder.path().join("host/templates").join(memory.to_string());

    // It boots from the same disk.
    world.starts(&Launch { template: None, ..clone.clone() }).await;
    assert_eq!(world.adb.shell(clone.address, "cat /data/kept"), "disk");
    assert_eq!(world.adb.shell(clone.address, "getprop ro.serialno"), clone.identity.serial);
    world.host.remove(clone.emulator).await.expect("removed");

    // Another machine.
    let clone = world.clone_of(&origin, captured, memory).await;
    let larger = Launch { memory_bytes: clone.memory_bytes * 2, ..clone.clone() };
    assert!(world.refused(&larger).await.contains("another machine"));

    // Bytes that are not what they were.
    let state = fs::File::options().write(true).open(folder.join("memory.state")).expect("a file");
    let before = state.metadata().expect("facts").modified().expect("a time");
    state.write_all_at(b"nonsense", 100_000).expect("written");
    let clone = world.clone_of(&origin, captured, memory).await;
    assert!(world.refused(&clone).await.contains("memory.state"));
    assert_eq!(world.host.verify_template(memory).await.expect("read"), Integrity::Altered);
    // Also if somebody hides it.
    state.set_modified(before).expect("a time");
    let clone = world.clone_of(&origin, captured, memory).await;
    assert!(world.refused(&clone).await.contains("not what was recorded"));

    // A clone that QEMU itself does not take ends, and does not stand there.
    fs::remove_file(folder.join("memory.ram")).expect("removed");
    let clone = world.clone_of(&origin, captured, memory).await;
    assert!(world.refused(&clone).await.contains("memory.ram"));
    assert_eq!(world.host.verify_template(memory).await.expect("read"), Integrity::Missing);

    // Memory that nobody took.
    let missing = world.host.ensure_template(template()).await.expect_err("nothing there");
    assert_eq!(missing.code, "memory_missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_ends_in_the_middle_leaves_nobody_standing_still() {
    let mut world = World::new();
    let mut origin = world.origin().await;
    let (captured, memory) = world.capture(&mut origin).await;
    world.host.ensure_template(memory).await.expect("a template");
    let clone = world.clone_of(&origin, captured, memory).await;

    // Just started: whoever comes next finds a machine that waits for its memory, and brings it up.
    world.host.ensure(&clone).await.expect("started");
    world.reopen();
    until(&world.host, clone.emulator, "ready", is_ready).await;
    world.connect(&clone);
    assert_eq!(world.adb.shell(clone.address, "getprop ro.serialno"), clone.identity.serial);

    // A clone that is killed on the way says that it did not resume.
    let killed = world.clone_of(&origin, captured, memory).await;
    world.host.ensure(&killed).await.expect("started");
    signal(world.host.pid(killed.emulator).expect("a process"), "KILL");
    let ended = |phase: &Phase| matches!(phase, Phase::Exited { code: "not_resumed", .. });
    until(&world.host, killed.emulator, "an end", ended).await;

    // In the middle of a capture: the device goes on by itself, on the disk that it says.
    for pause in [0, 20, 60, 120, 250] {
        let (layer, next, memory) = (layer(), disk(), template());
        let to = world.pool.ensure_successor(origin.disk, layer, next).await.expect("a successor");
        let (emulator, from) = (origin.launch.emulator, origin.launch.volume.clone());
        let patience = Duration::from_secs(20);
        let switch = Switch { emulator, from, to, patience, memory: Some(memory) };
        // Nothing of this runtime goes on once it is gone, as with a process.
        let folder = world.folder.path().join("host");
        let moving = switch.clone();
        let empty = world.folder.path().join("another host");
        drop(std::mem::replace(&mut world.host, open_host(&empty)));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let host = open_host(&folder);
                until(&host, moving.emulator, "ready", is_ready).await;
                host.inspect(moving.emulator).await.expect("asked");
                let moved = tokio::spawn(async move { host.switch(&moving).await });
                tokio::time::sleep(Duration::from_millis(pause)).await;
                moved.abort();
            });
            runtime.shutdown_timeout(Duration::ZERO);
        })
        .join()
        .expect("ended");
        world.host = open_host(&world.folder.path().join("host"));
        until(&world.host, emulator, "ready", is_ready).await;
        let begun = Instant::now();
        assert!(world.host.inspect(emulator).await.is_ok(), "after {pause} ms");
        world.connect(&origin.launch);
        world.adb.shell(origin.launch.address, "echo on > /data/on; sync");
        println!("cut off after {pause} ms, goes on after {:?}", begun.elapsed());
        let made = world.host.ensure_template(memory).await;
        println!("of the memory there is {made:?}");
        let volume = world.host.volume(emulator).await.expect("asked").expect("runs");
        if volume == switch.to {
            world.pool.seal_layer(layer, origin.disk).await.expect("sealed");
            (origin.launch.volume, origin.disk) = (switch.to, next);
        } else {
            assert!(made.is_err(), "memory without its disk");
            world.pool.abandon_successor(origin.disk, layer, next).await.expect("taken back");
        }
        world.host.remove_template(memory).await.expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_stand_still_with_the_memory_until_the_device_is_told_who_it_is() {
    let mut world = World::new();
    let origin = world.origin().await;
    let at = origin.launch.address;
    let counts =
        "(n=0; while :; do n=$((n+1)); echo $n > /tmp/next; mv /tmp/next /tmp/count; usleep 10000; done)";
    world.adb.shell(at, &format!("{counts} </dev/null >/dev/null 2>&1 &"));
    let count = |world: &World| world.adb.shell(at, "cat /tmp/count").parse::<u64>().expect("a number");
    let goes_on = async |world: &World| {
        let first = count(world);
        tokio::time::sleep(Duration::from_millis(500)).await;
        count(world) > first
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(goes_on(&world).await);
    let folder = world.host.device_folder(origin.launch.emulator);
    // The port takes one at a time.
    let empty = world.folder.path().join("another host");
    drop(std::mem::replace(&mut world.host, open_host(&empty)));
    let patience = Duration::from_secs(20);
    let (control, _events) = loop {
        let (control, events) = Control::open(&folder).await.expect("opened");
        if control.hello(Duration::from_secs(2)).await.is_ok() {
            break (control, events);
        }
    };

    control.freeze(true, patience).await.expect("frozen");
    assert!(!goes_on(&world).await, "a process ran on");
    assert!(control.thaw(patience).await.expect("thawed"));
    assert!(goes_on(&world).await, "a process was left standing still");

    control.freeze(true, patience).await.expect("frozen");
    let told = Launch { name: "told".to_owned(), ..launch("", &origin.launch.volume, vec![world.adb.key()]) };
    let identity = control::identity(&told, None);
    control.resume(now(), &identity, patience).await.expect("resumed");
    world.connect(&origin.launch);
    assert!(goes_on(&world).await, "a process was left standing still");
    assert_eq!(world.adb.shell(at, "getprop ro.serialno"), identity["serial"]);

    // Nobody comes to thaw it.
    control.freeze(true, Duration::from_secs(1)).await.expect("frozen");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(goes_on(&world).await, "the watchdog did not let it go");
}
