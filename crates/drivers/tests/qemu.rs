//! Real devices in QEMU, driven with the real `adb`: what happens to them when something goes wrong, and what does not.

mod world;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::emulator_hosts::qemu::QemuHost;
use paddock_drivers::emulator_hosts::qemu::arguments::{self, BlockNode};
use paddock_drivers::emulator_hosts::qemu::control::Control;
use paddock_drivers::emulator_hosts::qemu::qmp::Qmp;
use paddock_model::devices::Phase;
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource, Volume};
use paddock_model::drivers::emulator_hosts::{Channel, Consistency, EmulatorHost, Launch, Switch};
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use world::{
    Adb, Folder, SmallDisk, disk, emulator, images, is_ready, launch, layer, open_host, signal, until,
};

struct World {
    folder: Folder,
    host: QemuHost,
    adb: Adb,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let host = open_host(&folder.path().join("host"));
        World { folder, host, adb: Adb::new() }
    }

    /// As after a restart of the daemon.
    fn reopen(&mut self) {
        // The old one is gone before the new one looks.
        let empty = self.folder.path().join("another host");
        drop(std::mem::replace(&mut self.host, open_host(&empty)));
        self.host = open_host(&self.folder.path().join("host"));
    }

    async fn volume(&self, pool: &std::path::Path, source: PathBuf) -> Volume {
        let pool = Qcow2Pool::open("local", pool).expect("a pool");
        let below = layer();
        pool.ensure_layer(below, &LayerSource::File(source)).await.expect("a layer");
        pool.ensure_disk(disk(), below).await.expect("a disk")
    }

    async fn phone(&self) -> Launch {
        let image = self.host.ensure_image(&images().join("phone.profile.json")).await.expect("an image");
        let volume = self.volume(&self.folder.path().join("pool"), images().join("phone.qcow2")).await;
        launch(&image.name, &volume, vec![self.adb.key()])
    }

    async fn is_ready(&self, launch: &Launch) {
        until(&self.host, launch.emulator, "ready", is_ready).await;
    }

    fn device_folder(&self, launch: &Launch) -> PathBuf {
        self.host.device_folder(launch.emulator)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_devices_have_their_own_addresses_and_outlive_the_host() {
    let mut world = World::new();
    let launches = [world.phone().await, world.phone().await];
    for launch in &launches {
        world.host.ensure(launch).await.expect("started");
    }
    for launch in &launches {
        world.is_ready(launch).await;
        let said = world.adb.connect(launch.address);
        assert!(said.starts_with("connected to"), "{said}");
        assert_eq!(world.adb.shell(launch.address, "getprop ro.serialno"), launch.identity.serial);
        assert_eq!(
            world.adb.shell(launch.address, "settings get secure android_id"),
            launch.identity.android_id
        );
        assert_eq!(world.adb.shell(launch.address, "cat /sys/class/net/eth0/address"), launch.identity.mac);
    }
    let [one, two] = &launches;
    let foreign = Adb::new();
    assert!(foreign.connect(one.address).contains("failed to authenticate"));

    // The other ways in.
    let mut screen = world.host.open(one.emulator, Channel::Display).await.expect("opened");
    let mut greeting = [0; 12];
    screen.read_exact(&mut greeting).await.expect("a greeting");
    assert_eq!(&greeting, b"RFB 003.008\n");
    let mut log = world.host.open(one.emulator, Channel::Log).await.expect("opened");
    let busy = world.host.open(one.emulator, Channel::Log).await.err().expect("one at a time");
    assert_eq!(busy.code, "host_busy");
    log.write_all(b"{\"after\": 0}\n").await.expect("said");
    let mut line = String::new();
    tokio::io::BufReader::new(log).read_line(&mut line).await.expect("a line");
    assert!(serde_json::from_str::<Value>(&line).expect("JSON")["seq"].is_u64(), "{line}");
    let state = world.host.inspect(one.emulator).await.expect("asked");
    assert!(state.adb_connections >= 1 && state.clock_offset_ms.abs() < 60_000, "{state:?}");

    // Secrets are nobody else's.
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(world.device_folder(one)), 0o700);
    assert_eq!(mode(world.device_folder(one).join("identity.json")), 0o600);

    // The host goes and comes back while a shell is open.
    let mut shell = world.adb.on(one.address, &["shell", "cat"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("adb");
    let (mut typed, mut shown) =
        (shell.stdin.take().expect("input"), BufReader::new(shell.stdout.take().expect("output")).lines());
    let mut echo = |word: &str| {
        writeln!(typed, "{word}").expect("typed");
        assert_eq!(shown.next().expect("a line").expect("text"), word);
    };
    echo("before");
    let seen = world.host.observe(one.emulator).await.expect("seen");
    let pids = launches.each_ref().map(|launch| world.host.pid(launch.emulator).expect("a pid"));
    // One of them as if the daemon had been killed right after the start of QEMU.
    let record = world.device_folder(two).join("device.json");
    let mut text: Value = serde_json::from_slice(&fs::read(&record).expect("a record")).expect("JSON");
    (text["process"], text["bootMs"]) = (Value::Null, Value::Null);
    fs::write(&record, text.to_string()).expect("written");
    world.reopen();
    echo("after");
    for (launch, pid) in launches.iter().zip(pids) {
        world.is_ready(launch).await;
        assert_eq!(world.host.pid(launch.emulator), Some(pid));
        world.host.inspect(launch.emulator).await.expect("asked");
    }

    assert_eq!(world.host.observe(one.emulator).await.expect("seen"), seen);

    // Killed, it says so.
    let mut changes = world.host.changes();
    let killed = Instant::now();
    signal(pids[1], "KILL");
    let observed =
        until(&world.host, two.emulator, "the end", |phase| matches!(phase, Phase::Exited { .. })).await;
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
    assert!(matches!(observed.phase, Phase::Exited { code: "killed", .. }), "{observed:?}");
    assert_eq!(changes.recv().await.expect("told"), two.emulator);
    echo("still there");
    world.reopen();
    assert_eq!(world.host.observe(two.emulator).await.expect("seen").expect("a trace"), observed);

    // Gone, they leave nothing but their volumes.
    for launch in &launches {
        world.host.remove(launch.emulator).await.expect("removed");
    }
    assert_eq!(world.folder.processes(), [0; 0]);
    assert_eq!(fs::read_dir(world.folder.path().join("host/run")).expect("a folder").count(), 0);
    assert!(PathBuf::from(&one.volume.0).exists());
    let _ = shell.kill();
    let _ = shell.wait();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_stopped_restarted_and_rebooted() {
    let world = World::new();
    let first = world.phone().await;
    world.host.ensure(&first).await.expect("started");
    world.is_ready(&first).await;
    let pid = world.host.pid(first.emulator).expect("a pid");

    signal(pid, "STOP");
    until(&world.host, first.emulator, "silent", |phase| *phase == Phase::Silent).await;
    let asked = Instant::now();
    assert_eq!(world.host.inspect(first.emulator).await.expect_err("silent").code, "device_silent");
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    signal(pid, "CONT");
    world.is_ready(&first).await;

    // A restart from within keeps the process, and the device comes up again.
    world.adb.connect(first.address);
    world.adb.shell(first.address, "echo kept > /data/kept");
    let _ = world.adb.on(first.address, &["reboot"]).output();
    until(&world.host, first.emulator, "booting", |phase| *phase == Phase::Booting).await;
    world.is_ready(&first).await;
    assert_eq!(world.host.pid(first.emulator), Some(pid));

    // A newer incarnation is another process on the same disk; the old one was asked to switch off.
    world.adb.connect(first.address);
    world.adb.shell(first.address, "echo not yet on the disk > /data/late");
    let second = Launch { incarnation: 2, ..first.clone() };
    world.host.ensure(&second).await.expect("started anew");
    let observed = until(&world.host, first.emulator, "ready", is_ready).await;
    assert_eq!(observed.incarnation, 2);
    assert_ne!(world.host.pid(first.emulator), Some(pid));
    assert_eq!(world.folder.processes().len(), 1);
    world.adb.connect(first.address);
    assert_eq!(world.adb.shell(first.address, "cat /data/kept /data/late"), "kept\nnot yet on the disk");

    // Switched off from within, it has ended, and may be started anew as it was.
    let _ = world.adb.on(first.address, &["reboot", "poweroff"]).output();
    let observed =
        until(&world.host, first.emulator, "the end", |phase| matches!(phase, Phase::Exited { .. })).await;
    assert!(matches!(observed.phase, Phase::Exited { code: "switched_off", .. }), "{observed:?}");
    world.host.ensure(&second).await.expect("started again");
    assert!(matches!(
        world.host.observe(first.emulator).await.expect("seen").expect("there").phase,
        Phase::Booting
    ));
    let console = fs::read_to_string(world.device_folder(&first).join("console-1.log"));
    assert!(console.is_ok());
    world.host.remove(first.emulator).await.expect("removed");
    assert_eq!(world.folder.processes(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pid_that_belongs_to_somebody_else_is_left_alone() {
    let mut world = World::new();
    let mut somebody = Command::new("sleep").arg("1000").spawn().expect("a process");
    let stat = fs::read_to_string(format!("/proc/{}/stat", somebody.id())).expect("a process");
    let start_time: u64 = stat.split_whitespace().nth(21).and_then(|word| word.parse().ok()).expect("a time");
    let launches: Vec<Launch> =
        (0..3).map(|_| launch("none", &Volume("/none".to_owned()), Vec::new())).collect();
    // The number was given to somebody else, who began later or, by bad luck, in the same tick; or nothing can be read.
    for (launch, time) in launches.iter().zip([start_time - 1, start_time, 0]) {
        let folder = world.device_folder(launch);
        fs::create_dir_all(&folder).expect("a folder");
        let record = json!({
            "emulator": launch.emulator, "incarnation": 1, "address": launch.address, "volume": "/none",
            "hasAgent": true, "readyBy": "control", "startedAt": "2026-01-01T00:00:00Z",
            "process": {"pid": somebody.id(), "startTime": time},
        });
        let text = if time == 0 { "torn".to_owned() } else { record.to_string() };
        fs::write(folder.join("device.json"), text).expect("written");
    }

    world.reopen();

    assert_eq!(world.host.list().await.expect("listed").len(), 3);
    for launch in &launches {
        let observed = world.host.observe(launch.emulator).await.expect("seen").expect("a trace");
        assert!(matches!(observed.phase, Phase::Exited { code: "lost", .. }), "{observed:?}");
        world.host.remove(launch.emulator).await.expect("removed");
    }
    assert!(somebody.try_wait().expect("a process").is_none(), "somebody else was killed");
    assert_eq!(world.host.list().await.expect("listed"), []);
    somebody.kill().expect("ended");
    somebody.wait().expect("ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_halts_a_device_until_there_is_room() {
    let world = World::new();
    let small = SmallDisk::new("60M");
    // Its readiness is seen from outside, as with an image that has no agent.
    let source = world.folder.path().join("image");
    fs::create_dir(&source).expect("a folder");
    for name in ["vmlinux", "initramfs.cpio"] {
        fs::copy(images().join(name), source.join(name)).expect("copied");
    }
    let text = fs::read_to_string(images().join("phone.profile.json")).expect("a profile");
    let mut profile: Value = serde_json::from_str(&text).expect("JSON");
    profile["ready"]["by"] = "adb".into();
    fs::write(source.join("phone.profile.json"), profile.to_string()).expect("written");
    let image = world.host.ensure_image(&source.join("phone.profile.json")).await.expect("an image");
    let volume = world.volume(small.path(), images().join("phone.qcow2")).await;
    let launch = launch(&image.name, &volume, vec![world.adb.key()]);
    world.host.ensure(&launch).await.expect("started");
    world.is_ready(&launch).await;
    world.adb.connect(launch.address);
    let ballast = small.path().join("ballast");
    fs::write(&ballast, vec![1; 40 << 20]).expect("written");

    let mut write = world.adb.on(
        launch.address,
        &["shell", "head -c 20000000 /dev/urandom > /data/f && sync && sha256sum /data/f"],
    );
    let mut write = write.stdout(Stdio::piped()).spawn().expect("adb");
    let halted =
        until(&world.host, launch.emulator, "halted", |phase| matches!(phase, Phase::Paused { .. })).await;
    assert!(matches!(halted.phase, Phase::Paused { code: "no_space", .. }), "{halted:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(write.try_wait().expect("adb").is_none(), "a write to a full pool went through");

    fs::remove_file(&ballast).expect("room");
    world.is_ready(&launch).await;
    let written = tokio::task::block_in_place(|| write.wait_with_output()).expect("adb");
    assert!(written.status.success());
    let sum = String::from_utf8_lossy(&written.stdout).into_owned();
    assert_eq!(world.adb.shell(launch.address, "sha256sum /data/f"), sum.trim_end());
    world.host.remove(launch.emulator).await.expect("removed");
    let checked = Command::new("qemu-img").arg("check").arg(&volume.0).output().expect("qemu-img");
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_with_its_own_boot_loader_is_started_by_the_firmware() {
    let world = World::new();
    let said = b"started from the disk\r\n\0";
    // xor ax,ax; mov ds,ax; cld; mov si,text; next: lodsb; test al,al; jz end; mov dx,0x3f8; out dx,al; jmp next; end: hlt; jmp end
    let code = b"\x31\xc0\x8e\xd8\xfc\xbe\x16\x7c\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5\xf4\xeb\xfd";
    let mut sector = [code.as_slice(), said].concat();
    sector.resize(510, 0);
    sector.extend_from_slice(b"\x55\xaa");
    sector.resize(1 << 20, 0);
    let source = world.folder.path().join("boot.img");
    fs::write(&source, sector).expect("written");
    let text = include_str!("../../../docs/guide/android-x86.profile.json");
    let profile = world.folder.path().join("android-x86.profile.json");
    fs::write(&profile, text).expect("written");
    let image = world.host.ensure_image(&profile).await.expect("an image");
    let volume = world.volume(&world.folder.path().join("pool"), source).await;
    let launch = Launch { emulator: emulator(), ..launch(&image.name, &volume, Vec::new()) };

    world.host.ensure(&launch).await.expect("started");

    let console = world.device_folder(&launch).join("console-1.log");
    let started = Instant::now();
    while !fs::read_to_string(&console).unwrap_or_default().contains("started from the disk") {
        let observed = world.host.observe(launch.emulator).await.expect("seen");
        assert!(started.elapsed() < Duration::from_secs(60), "in vain: {observed:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Nothing answers on its ADB port, so it is not up, and is not asked in vain to switch itself off.
    assert!(matches!(
        world.host.observe(launch.emulator).await.expect("seen").expect("there").phase,
        Phase::Booting
    ));
    let removing = Instant::now();
    world.host.remove(launch.emulator).await.expect("removed");
    assert!(removing.elapsed() < Duration::from_secs(4), "{:?}", removing.elapsed());
    assert!(TcpStream::connect((launch.address, 5555)).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_says_why() {
    let world = World::new();
    let good = world.phone().await;
    let observe = async |launch: &Launch| world.host.observe(launch.emulator).await.expect("seen");

    let unknown = Launch { image: "absent-0123456789ab".to_owned(), ..good.clone() };
    assert_eq!(world.host.ensure(&unknown).await.expect_err("no image").code, "image_missing");
    let bare = Launch { volume: Volume("/absent".to_owned()), ..good.clone() };
    assert_eq!(world.host.ensure(&bare).await.expect_err("no volume").code, "volume_missing");
    assert_eq!(observe(&good).await, None);
    assert_eq!(
        world.host.ensure_image(&world.folder.path().join("absent")).await.expect_err("no profile").code,
        "image_missing"
    );

    // QEMU finds something that is no disk, and says so.
    let file = world.folder.path().join("no disk");
    fs::write(&file, "x").expect("written");
    let broken = Launch { volume: Volume(file.display().to_string()), ..good.clone() };
    world.host.ensure(&broken).await.expect("QEMU was started");
    let observed =
        until(&world.host, good.emulator, "the end", |phase| matches!(phase, Phase::Exited { .. })).await;
    let Phase::Exited { code, message } = observed.phase else { panic!("{observed:?}") };
    assert_eq!(code, "failed");
    assert!(message.contains("qcow2"), "{message}");
    world.host.remove(good.emulator).await.expect("removed");
}

/// A device with the pool that holds its disks.
struct Captured {
    pool: Qcow2Pool,
    launch: Launch,
    disk: DiskId,
}

impl World {
    async fn captured(&self) -> Captured {
        let pool = Qcow2Pool::open("local", &self.folder.path().join("pool")).expect("a pool");
        self.captured_in(pool).await
    }

    async fn captured_in(&self, pool: Qcow2Pool) -> Captured {
        let image = self.host.ensure_image(&images().join("phone.profile.json")).await.expect("an image");
        let (below, id) = (layer(), disk());
        let source = LayerSource::File(images().join("phone.qcow2"));
        pool.ensure_layer(below, &source).await.expect("a layer");
        let volume = pool.ensure_disk(id, below).await.expect("a disk");
        Captured { pool, launch: launch(&image.name, &volume, vec![self.adb.key()]), disk: id }
    }

    async fn starts(&self, launch: &Launch) {
        self.host.ensure(launch).await.expect("started");
        self.is_ready(launch).await;
        let said = self.adb.connect(launch.address);
        assert!(said.starts_with("connected to"), "{said}");
    }

    /// Something that writes without a pause, until it is dropped.
    fn load(&self, launch: &Launch) -> Load {
        let line = "while :; do head -c 400000 /dev/urandom > /data/load; sync; done";
        let mut command = self.adb.on(launch.address, &["shell", line]);
        Load(command.stdin(Stdio::piped()).spawn().expect("adb"))
    }
}

struct Load(std::process::Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Captured {
    /// What the device has written so far becomes this layer, and it goes on on a new disk.
    async fn capture(&mut self, host: &QemuHost) -> (LayerId, Consistency) {
        let (captured, next) = (layer(), disk());
        let switch = self.successor(captured, next).await;
        let begun = Instant::now();
        let consistency = host.switch(&switch).await.expect("moved");
        println!("moved to another disk in {:?}: {consistency:?}", begun.elapsed());
        assert_eq!(host.volume(self.launch.emulator).await.expect("asked").as_ref(), Some(&switch.to));
        self.pool.seal_layer(captured, self.disk).await.expect("sealed");
        (self.launch.volume, self.disk) = (switch.to, next);
        (captured, consistency)
    }

    async fn successor(&self, captured: LayerId, next: DiskId) -> Switch {
        let to = self.pool.ensure_successor(self.disk, captured, next).await.expect("a successor");
        let (emulator, from) = (self.launch.emulator, self.launch.volume.clone());
        Switch { emulator, from, to, patience: Duration::from_secs(20), memory: None }
    }

    async fn clone_of(&self, below: LayerId) -> Launch {
        let volume = self.pool.ensure_disk(disk(), below).await.expect("a clone");
        Launch { incarnation: 1, ..launch(&self.launch.image, &volume, self.launch.adb_keys.clone()) }
    }
}

fn check(volume: &Volume) {
    let checked = Command::new("qemu-img").args(["check", "-U"]).arg(&volume.0).output().expect("qemu-img");
    // 3 stands for room that is taken in vain, which a kill may leave.
    assert!(matches!(checked.status.code(), Some(0 | 3)), "{checked:?}");
}

fn lineage(volume: &Volume) -> usize {
    let arguments = ["info", "-U", "--backing-chain", "--output=json"];
    let told = Command::new("qemu-img").args(arguments).arg(&volume.0).output().expect("qemu-img");
    assert!(told.status.success(), "{told:?}");
    serde_json::from_slice::<Value>(&told.stdout).expect("JSON").as_array().expect("a chain").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_is_captured_while_it_writes_and_notices_nothing() {
    let mut world = World::new();
    let mut captured = world.captured().await;
    let (emulator, address) = (captured.launch.emulator, captured.launch.address);
    world.starts(&captured.launch).await;
    let pid = world.host.pid(emulator);
    let mut shell = world.adb.on(address, &["shell", "cat"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("adb");
    let (mut typed, mut shown) =
        (shell.stdin.take().expect("input"), BufReader::new(shell.stdout.take().expect("output")).lines());
    let mut echo = |word: &str| {
        writeln!(typed, "{word}").expect("typed");
        assert_eq!(shown.next().expect("a line").expect("text"), word);
    };
    let load = world.load(&captured.launch);

    let mut layers = Vec::new();
    for number in 0..4 {
        echo(&format!("before {number}"));
        world.adb.shell(address, &format!("echo {number} > /data/n{number}"));
        if number == 3 {
            world.reopen();
            world.is_ready(&captured.launch).await;
        }
        let (layer, consistency) = captured.capture(&world.host).await;
        assert_eq!(consistency, Consistency::Filesystem, "capture {number}");
        layers.push(layer);
        echo(&format!("after {number}"));
        let sealed = world.folder.path().join(format!("pool/layers/{}.qcow2", layers[number]));
        check(&Volume(sealed.display().to_string()));
        assert_eq!(lineage(&captured.launch.volume), number + 3);
    }
    world.adb.shell(address, "echo later > /data/later");
    drop(load);
    assert_eq!(world.host.pid(emulator), pid);
    let _ = shell.kill();
    let _ = shell.wait();

    // A clone of each holds what was written before it, and nothing else; nothing had to be mended.
    for number in [0, 3] {
        let clone = captured.clone_of(layers[number]).await;
        world.starts(&clone).await;
        let numbers: Vec<String> = (0..=number).map(|number| number.to_string()).collect();
        let (found, expected) = (world.adb.shell(clone.address, "cat /data/n*"), numbers.join("\n"));
        assert_eq!(found, expected);
        let kernel = world.adb.shell(clone.address, "dmesg");
        assert!(kernel.contains("EXT4-fs") && !kernel.contains("recovery complete"), "{kernel}");
        world.host.remove(clone.emulator).await.expect("removed");
    }
    // The device itself goes on, on its last disk.
    world.host.remove(emulator).await.expect("removed");
    world.starts(&captured.launch).await;
    assert_eq!(world.adb.shell(address, "cat /data/n0 /data/n3 /data/later"), "0\n3\nlater");
    world.host.remove(emulator).await.expect("removed");
    check(&captured.launch.volume);
    let listed = captured.pool.list().await.expect("listed");
    assert_eq!((listed.layers.len(), listed.strangers.len()), (5, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_killed_while_it_moves_goes_on_from_its_new_disk() {
    let world = World::new();
    let mut captured = world.captured().await;
    let emulator = captured.launch.emulator;
    for (round, delay) in [0, 40, 100, 140, 200].into_iter().enumerate() {
        world.starts(&captured.launch).await;
        let address = captured.launch.address;
        world.adb.shell(address, &format!("echo {round} > /data/n{round}; sync"));
        let load = world.load(&captured.launch);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (captured_layer, next) = (layer(), disk());
        let switch = captured.successor(captured_layer, next).await;
        let pid = world.host.pid(emulator).expect("a pid");

        let (moved, ()) = tokio::join!(world.host.switch(&switch), async {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            signal(pid, "KILL");
        });

        println!("killed after {delay} ms: {:?}", moved.as_ref().map_err(|error| error.code));
        assert!(moved.as_ref().err().is_none_or(|error| error.code == "device_silent"), "{moved:?}");
        until(&world.host, emulator, "the end", |phase| matches!(phase, Phase::Exited { .. })).await;
        drop(load);
        assert_eq!(world.host.volume(emulator).await.expect("asked"), None);
        check(&switch.from);
        check(&switch.to);
        // Right whether or not it had moved.
        captured.pool.seal_layer(captured_layer, captured.disk).await.expect("sealed");
        (captured.launch.volume, captured.disk) = (switch.to, next);
        world.starts(&captured.launch).await;
        let numbers: Vec<String> = (0..=round).map(|number| number.to_string()).collect();
        assert_eq!(world.adb.shell(address, "cat /data/n*"), numbers.join("\n"));
    }
    world.host.remove(emulator).await.expect("removed");
    assert_eq!(lineage(&captured.launch.volume), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_was_broken_off_is_finished_by_whoever_comes_next() {
    let mut world = World::new();
    let mut captured = world.captured().await;
    let emulator = captured.launch.emulator;

    // While it boots nobody can hold it still, and it comes up all the same.
    world.host.ensure(&captured.launch).await.expect("started");
    let (_, consistency) = captured.capture(&world.host).await;
    assert_eq!(consistency, Consistency::Crash);
    world.is_ready(&captured.launch).await;

    // Killed after the new disk was opened and the device frozen, but not moved.
    let folder = world.device_folder(&captured.launch);
    let (next_layer, next) = (layer(), disk());
    let switch = captured.successor(next_layer, next).await;
    let another = world.folder.path().join("another host");
    drop(std::mem::replace(&mut world.host, open_host(&another)));
    let patience = Duration::from_secs(10);
    {
        let (qmp, _events) = Qmp::open(&folder, patience).await.expect("a monitor");
        let node = arguments::successor(&BlockNode { disk: 0, turn: 2 }, &switch.to.0);
        qmp.add_block_node(node, patience).await.expect("added");
        let (control, _events) = Control::open(&folder).await.expect("an agent");
        control.freeze(false, Duration::from_secs(60)).await.expect("frozen");
    }
    // Open in the device, it is not taken back from under it.
    let refused = captured.pool.abandon_successor(captured.disk, next_layer, next).await;
    assert_eq!(refused.expect_err("open").code, "disk_in_use");
    let refused = captured.pool.seal_layer(next_layer, captured.disk).await.expect_err("written to");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Soon));
    world.host = open_host(&world.folder.path().join("host"));
    // Frozen by somebody else, it did not hold still for this one; and it is thawed afterwards.
    assert_eq!(world.host.switch(&switch).await.expect("moved"), Consistency::Crash);
    assert_eq!(world.host.volume(emulator).await.expect("asked").as_ref(), Some(&switch.to));
    captured.pool.seal_layer(next_layer, captured.disk).await.expect("sealed");
    (captured.launch.volume, captured.disk) = (switch.to, next);
    world.adb.connect(captured.launch.address);
    world.adb.shell(captured.launch.address, "echo thawed > /data/thawed; sync");

    // A disk that is not there, or is none, leaves everything as it was.
    let (from, patience) = (captured.launch.volume.clone(), Duration::from_secs(10));
    let no_disk = world.folder.path().join("no disk");
    fs::write(&no_disk, "x").expect("written");
    for (to, code) in
        [("/absent".to_owned(), "volume_missing"), (no_disk.display().to_string(), "switch_refused")]
    {
        let switch = Switch { emulator, from: from.clone(), to: Volume(to), patience, memory: None };
        assert_eq!(world.host.switch(&switch).await.expect_err("no disk").code, code);
        assert_eq!(world.host.volume(emulator).await.expect("asked").as_ref(), Some(&from));
        world.adb.shell(captured.launch.address, "echo written > /data/written; sync");
    }

    // Called off, the disk that was opened in vain is closed, whatever is written down of the device.
    let (abandoned, in_vain) = (layer(), disk());
    let switch = captured.successor(abandoned, in_vain).await;
    drop(std::mem::replace(&mut world.host, open_host(&another)));
    {
        let (qmp, _events) = Qmp::open(&folder, patience).await.expect("a monitor");
        let node = arguments::successor(&BlockNode { disk: 0, turn: 3 }, &switch.to.0);
        qmp.add_block_node(node, patience).await.expect("added");
    }
    let record = folder.join("device.json");
    let mut text: Value = serde_json::from_slice(&fs::read(&record).expect("a record")).expect("JSON");
    assert_eq!(text["moves"][1], from.0, "{text}");
    text["moves"] = json!([]);
    fs::write(&record, text.to_string()).expect("written");
    world.host = open_host(&world.folder.path().join("host"));
    assert_eq!(world.host.volume(emulator).await.expect("asked").as_ref(), Some(&from));
    captured.pool.abandon_successor(captured.disk, abandoned, in_vain).await.expect("taken back");
    world.is_ready(&captured.launch).await;

    // A device that stands still is told of as silent, and has moved or not by its own word once it goes on.
    let switch = captured.successor(layer(), disk()).await;
    let pid = world.host.pid(emulator).expect("a pid");
    signal(pid, "STOP");
    assert_eq!(world.host.switch(&switch).await.expect_err("silent").code, "device_silent");
    assert_eq!(world.host.volume(emulator).await.expect_err("silent").code, "device_silent");
    signal(pid, "CONT");
    world.is_ready(&captured.launch).await;
    assert_eq!(world.host.volume(emulator).await.expect("asked").as_ref(), Some(&from));
    assert_eq!(world.host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
    world.host.remove(emulator).await.expect("removed");
    check(&switch.to);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_pool_in_the_middle_of_a_capture_loses_nothing() {
    let world = World::new();
    let small = SmallDisk::new("60M");
    let mut captured = world.captured_in(Qcow2Pool::open("local", small.path()).expect("a pool")).await;
    let (emulator, address) = (captured.launch.emulator, captured.launch.address);
    world.starts(&captured.launch).await;
    let ballast = small.path().join("ballast");
    let fill = || {
        let mut file = fs::File::create(&ballast).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    let before = captured.pool.list().await.expect("listed");

    // No room for a successor: nothing is left of the attempt.
    fill();
    let refused = captured.pool.ensure_successor(captured.disk, layer(), disk()).await.expect_err("no room");
    assert_eq!((refused.code, refused.retry), ("no_space", Retry::Later));
    let after = captured.pool.list().await.expect("listed");
    assert_eq!((after.layers.len(), after.disks.len()), (before.layers.len(), before.disks.len()));
    fs::remove_file(&ballast).expect("room");

    // No room for what the device has yet to write: it is halted, and the move waits for nobody.
    let (captured_layer, next) = (layer(), disk());
    let mut switch = captured.successor(captured_layer, next).await;
    switch.patience = Duration::from_secs(3);
    world.adb.shell(address, "head -c 3000000 /dev/urandom > /data/f; sha256sum /data/f > /data/sum");
    fill();
    let moved = world.host.switch(&switch).await;
    println!("{:?}", moved.as_ref().map_err(|error| error.code));
    let now = world.host.volume(emulator).await.expect("asked").expect("it runs");
    assert_eq!(now == switch.to, moved.is_ok());
    assert!(matches!(moved, Ok(Consistency::Crash) | Err(_)), "{moved:?}");
    fs::remove_file(&ballast).expect("room");
    world.is_ready(&captured.launch).await;
    assert_eq!(world.adb.shell(address, "cd /data && sync && sha256sum -c sum"), "/data/f: OK");
    if moved.is_err() {
        assert_eq!(world.host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
    }
    captured.pool.seal_layer(captured_layer, captured.disk).await.expect("sealed");
    (captured.launch.volume, captured.disk) = (switch.to, next);
    // Halted again, now that the first disk has lost its name, it still notices that there is room.
    world.adb.shell(address, "head -c 3000000 /dev/urandom > /data/f");
    fill();
    let mut flush = world.adb.on(address, &["shell", "sync"]).spawn().expect("adb");
    until(&world.host, emulator, "halted", |phase| matches!(phase, Phase::Paused { .. })).await;
    fs::remove_file(&ballast).expect("room");
    world.is_ready(&captured.launch).await;
    assert!(tokio::task::block_in_place(|| flush.wait()).expect("adb").success());
    world.host.remove(emulator).await.expect("removed");
    check(&captured.launch.volume);
}

/// What the test below runs in another process, to be killed: it starts a device, as a daemon would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only the next test runs it"]
async fn a_daemon_starts_a_device() {
    let text = std::env::var("LAUNCH").expect("what to start");
    let [folder, image, volume, emulator, address, incarnation] =
        serde_json::from_str::<[String; 6]>(&text).expect("JSON");
    let host = open_host(&PathBuf::from(folder));
    let launch = Launch {
        emulator: EmulatorId::parse(&emulator).expect("an id"),
        address: address.parse().expect("an address"),
        incarnation: incarnation.parse().expect("a number"),
        ..launch(&image, &Volume(volume), Vec::new())
    };
    println!("begin");
    host.ensure(&launch).await.expect("started");
    println!("done");
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_the_daemon_is_killed_one_device_runs_in_the_end() {
    let world = World::new();
    let folder = world.folder.path().join("killed host");
    let image =
        open_host(&folder).ensure_image(&images().join("phone.profile.json")).await.expect("an image");
    let volume = world.volume(&world.folder.path().join("pool"), images().join("phone.qcow2")).await;
    let launch = launch(&image.name, &volume, Vec::new());
    let mut incarnation = 0;
    // Milliseconds after it has begun; nothing stands for after it is done.
    for delay in [Some(0), Some(3), Some(6), Some(10), Some(20), Some(40), None] {
        incarnation += 1;
        let words = [
            folder.display().to_string(),
            image.name.clone(),
            volume.0.clone(),
            launch.emulator.to_string(),
            launch.address.to_string(),
            incarnation.to_string(),
        ];
        let mut daemon = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_daemon_starts_a_device", "--ignored", "--nocapture"])
            .env("LAUNCH", json!(words).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a daemon");
        let mut lines = BufReader::new(daemon.stdout.take().expect("its output")).lines();
        let awaited = if delay.is_some() { "begin" } else { "done" };
        lines.by_ref().map_while(Result::ok).find(|line| line.ends_with(awaited)).expect("a word");
        tokio::time::sleep(Duration::from_millis(delay.unwrap_or_default())).await;
        daemon.kill().expect("killed");
        daemon.wait().expect("ended");

        let host = open_host(&folder);
        let before = host.pid(launch.emulator);
        let wanted = Launch { incarnation, ..launch.clone() };
        host.ensure(&wanted).await.expect("started, or there already");
        let observed = host.observe(launch.emulator).await.expect("seen").expect("there");
        assert_eq!(observed.incarnation, incarnation, "{delay:?}");
        assert!(!matches!(observed.phase, Phase::Exited { .. }), "{delay:?}: {observed:?}");
        let pid = host.pid(launch.emulator).expect("a pid");
        let looked = Instant::now();
        // Whoever is just becoming another program has no command line for a moment.
        while world.folder.processes() != [pid] {
            let seen = world.folder.processes();
            assert!(looked.elapsed() < Duration::from_secs(10), "{delay:?}: {seen:?} and not {pid}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if delay.is_none() {
            assert_eq!(host.pid(launch.emulator), before, "it ran, and was left alone");
            let observed = until(&host, launch.emulator, "ready", is_ready).await;
            signal(before.expect("a pid"), "KILL");
            let ended =
                until(&host, launch.emulator, "the end", |phase| matches!(phase, Phase::Exited { .. })).await;
            assert_eq!(ended.incarnation, observed.incarnation);
            host.remove(launch.emulator).await.expect("removed");
        }
    }
    assert_eq!(world.folder.processes(), [0; 0]);
    assert_eq!(fs::read_dir(folder.join("run")).expect("a folder").count(), 0);
}

/// A few, or with TEST_LONG twenty, on whatever processors there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_devices_come_up_at_once() {
    let world = World::new();
    let count = if std::env::var_os("TEST_LONG").is_some() { 20 } else { 3 };
    let mut launches = Vec::new();
    for _ in 0..count {
        launches.push(world.phone().await);
    }
    let begun = Instant::now();
    for launch in &launches {
        world.host.ensure(launch).await.expect("started");
    }
    println!("{count} devices started after {:?}", begun.elapsed());
    for launch in &launches {
        world.is_ready(launch).await;
    }
    println!("{count} devices ready after {:?}", begun.elapsed());
    for launch in &launches {
        assert!(world.adb.connect(launch.address).starts_with("connected to"));
        assert_eq!(world.adb.shell(launch.address, "getprop ro.serialno"), launch.identity.serial);
    }
    for launch in &launches {
        world.host.remove(launch.emulator).await.expect("removed");
    }
    assert_eq!(world.folder.processes(), [0; 0]);
}
