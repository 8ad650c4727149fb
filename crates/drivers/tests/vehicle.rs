//! A real automotive device in QEMU and its real car: what is told to either arrives at the other.

mod world;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_drivers::clock::SystemClock;
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::emulator_hosts::qemu::{QemuHost, QemuSettings};
use paddock_drivers::random::OsRandom;
use paddock_model::devices::VehicleLink;
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource};
use paddock_model::drivers::emulator_hosts::{Channel, Consistency, EmulatorHost, Launch, Switch};
use paddock_model::drivers::garages::{Garage as _, NO_VEHICLE};
use paddock_model::layers::DiskId;
use paddock_model::templates::TemplateId;
use paddock_model::vehicles::{AreaId, PropertyChange, PropertyStatus, VehicleOrder};
use paddock_vehicle::{Catalogue, Garage};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Adb, Folder, disk, images, is_ready, launch, layer, now, until};

/// What `paddockd connect SOCKET` does; `server/tests/process.rs` has that one itself.
const CONNECTOR: &str = r#"#!/usr/bin/perl
use IO::Select; use IO::Socket::UNIX;
$ARGV[0] eq "connect" && $ARGV[1] =~ m{^(.*)/(.*)$} && chdir($1) or exit 1;
my $car = IO::Socket::UNIX->new($2) or exit 0;
my $both = IO::Select->new($car, \*STDIN);
while (1) {
    for my $from ($both->can_read) {
        sysread($from, my $bytes, 65536) or exit 0;
        my $to = $from == $car ? \*STDOUT : $car;
        while (length $bytes) { my $n = syswrite($to, $bytes) or exit 0; substr($bytes, 0, $n, ""); }
    }
}
"#;

/// On the dial: lit when the car goes fast enough, and not when it stands.
const ON_THE_DIAL: (usize, usize) = (154, 372);
const LIT: [u8; 3] = [0x3d, 0xdc, 0x84];
const UNLIT: [u8; 3] = [0x24, 0x33, 0x48];
/// What is told outside is to be seen inside by then.
const SOON: Duration = Duration::from_secs(10);

struct World {
    folder: Folder,
    host: QemuHost,
    pool: Qcow2Pool,
    adb: Adb,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        // A name with everything that means something to QEMU or to a shell.
        let connector = folder.path().join("it's, \"$HOME\" & co");
        fs::write(&connector, CONNECTOR).expect("written");
        fs::set_permissions(&connector, fs::Permissions::from_mode(0o755)).expect("a program");
        let settings = QemuSettings { connector, ..QemuSettings::in_folder(folder.path().join("host")) };
        let host = QemuHost::open(settings).expect("a host");
        let pool = Qcow2Pool::open("local", &folder.path().join("pool")).expect("a pool");
        World { folder, host, pool, adb: Adb::new() }
    }

    fn garage_folder(&self) -> PathBuf {
        self.folder.path().join("it's, \"a\" garage")
    }

    fn garage(&self) -> Arc<Garage> {
        let clock = Arc::new(SystemClock::default());
        Garage::open(&self.garage_folder(), Catalogue::standard(), clock).expect("a garage")
    }

    fn socket(&self, launch: &Launch) -> PathBuf {
        self.garage_folder().join(launch.emulator.to_string()).join("vehicle.sock")
    }

    async fn automotive(&self) -> (Launch, DiskId) {
        self.of_profile(&images().join("automotive.profile.json")).await
    }

    async fn of_profile(&self, profile: &Path) -> (Launch, DiskId) {
        let image = self.host.ensure_image(profile).await.expect("an image");
        let (below, id) = (layer(), disk());
        let source = LayerSource::File(images().join("automotive.qcow2"));
        self.pool.ensure_layer(below, &source).await.expect("a layer");
        let volume = self.pool.ensure_disk(id, below).await.expect("a disk");
        let mut launch = launch(&image.name, &volume, vec![self.adb.key()]);
        launch.vehicle = Some(self.socket(&launch));
        (launch, id)
    }

    async fn starts(&self, launch: &Launch) {
        self.host.ensure(launch).await.expect("started");
        until(&self.host, launch.emulator, "ready", is_ready).await;
        let said = self.adb.connect(launch.address);
        assert!(said.starts_with("connected to"), "{said}");
    }

    /// How long it took until the device showed this.
    async fn shows(&self, launch: &Launch, property: &str, value: &str) -> Duration {
        let started = Instant::now();
        loop {
            let shown = self.adb.shell(launch.address, &format!("getprop {property}"));
            if shown == value {
                return started.elapsed();
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{property} is {shown}, not {value}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn link(&self, launch: &Launch) -> Option<VehicleLink> {
        self.host.inspect(launch.emulator).await.expect("asked").vehicle
    }

    /// A device shows values while it still reads the rest of them.
    async fn is_connected(&self, launch: &Launch) {
        let started = Instant::now();
        while self.link(launch).await != Some(VehicleLink::Connected) {
            assert!(started.elapsed() < Duration::from_secs(30), "{:?}", self.link(launch).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A pixel of what the device would put on a picture.
    fn captured_pixel(&self, launch: &Launch, (x, y): (usize, usize)) -> [u8; 3] {
        let output = self.adb.on(launch.address, &["exec-out", "screencap"]).output().expect("adb");
        let at = 16 + (y * 1280 + x) * 4;
        output.stdout[at..at + 3].try_into().expect("a pixel")
    }

    /// A pixel of what the display device shows, over RFB.
    async fn shown_pixel(&self, launch: &Launch, (x, y): (usize, usize)) -> [u8; 3] {
        let mut screen = self.host.open(launch.emulator, Channel::Display).await.expect("opened");
        let mut version = [0; 12];
        screen.read_exact(&mut version).await.expect("a version");
        screen.write_all(b"RFB 003.008\n").await.expect("said");
        let mut kinds = [0; 2];
        screen.read_exact(&mut kinds).await.expect("kinds of security");
        // Without security; others may look on.
        screen.write_all(&[1]).await.expect("said");
        let mut accepted = [0; 4];
        screen.read_exact(&mut accepted).await.expect("an answer");
        screen.write_all(&[1]).await.expect("said");
        let mut greeting = [0; 24];
        screen.read_exact(&mut greeting).await.expect("a greeting");
        let size = |at: usize| usize::from(u16::from_be_bytes([greeting[at], greeting[at + 1]]));
        assert_eq!((size(0), size(2), greeting[4]), (1280, 720, 32));
        let mut name = vec![0; u32::from_be_bytes(greeting[20..].try_into().expect("four")) as usize];
        screen.read_exact(&mut name).await.expect("a name");
        // All of this one pixel, and not only what changes.
        let place = [x, y, 1, 1].map(|number| u16::try_from(number).expect("small").to_be_bytes()).concat();
        screen.write_all(&[&[3, 0], place.as_slice()].concat()).await.expect("asked");
        let mut update = [0; 20];
        screen.read_exact(&mut update).await.expect("an update");
        assert_eq!(update[..4], [0, 0, 0, 1], "{update:?}");
        [update[18], update[17], update[16]]
    }
}

async fn order(garage: &Garage, launch: &Launch) {
    let order = VehicleOrder {
        emulator: launch.emulator,
        identity: launch.identity.clone(),
        footing: 1,
        previous: None,
        begins_with: None,
    };
    garage.ensure(&order).await.expect("a car");
}

async fn tell(garage: &Garage, launch: &Launch, name: &str, area: i32, value: Value) {
    let property = garage.find(name).expect("a property");
    let change = PropertyChange { value: Some(value), status: PropertyStatus::Available };
    garage.set(launch.emulator, property, AreaId(area), &change).await.expect("told");
}

async fn told(garage: &Garage, launch: &Launch, name: &str, area: i32) -> Option<Value> {
    let id = garage.find(name).expect("a property");
    let properties = garage.properties(launch.emulator).await.expect("asked");
    let property = properties.into_iter().find(|property| property.id == id).expect("a property");
    property.areas.into_iter().find(|own| own.area == AreaId(area)).expect("an area").value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_follows_its_car_and_obeys_androids_rules() {
    let world = World::new();
    let (device, _) = world.automotive().await;
    world.starts(&device).await;
    let at = device.address;

    // The car is not there yet; the device waits for it.
    assert_eq!(world.link(&device).await, Some(VehicleLink::Connecting));
    assert_eq!(world.adb.shell(at, "getprop sys.vehicle.connected"), "0");
    let inside = world.host.open(device.emulator, Channel::Vehicle).await.err().expect("no server inside");
    assert_eq!(inside.code, NO_VEHICLE);

    let garage = world.garage();
    order(&garage, &device).await;
    let took = world.shows(&device, "sys.vehicle.connected", "1").await;
    println!("connected {took:?} after the car came");
    assert!(took < Duration::from_secs(30), "{took:?}");
    world.is_connected(&device).await;
    assert_eq!(world.adb.shell(at, "getprop vehicle.perf_vehicle_speed"), "0");
    assert_eq!(world.captured_pixel(&device, ON_THE_DIAL), UNLIT);

    // From outside to inside: as a property, on a picture, on the display.
    tell(&garage, &device, "PERF_VEHICLE_SPEED", 0, json!(33.5)).await;
    let took = world.shows(&device, "vehicle.perf_vehicle_speed", "33.5").await;
    println!("a speed arrived after {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!(world.captured_pixel(&device, ON_THE_DIAL), LIT);
    let started = Instant::now();
    while world.shown_pixel(&device, ON_THE_DIAL).await != LIT {
        assert!(started.elapsed() < SOON, "the display does not follow");
    }
    println!("the display followed {:?} later at most", started.elapsed());
    assert_eq!(world.adb.shell(at, "vehicle get PERF_VEHICLE_SPEED"), "33.5");

    // From inside to outside, where Android may.
    world.adb.shell(at, "vehicle set HVAC_FAN_SPEED 0x1 5");
    assert_eq!(told(&garage, &device, "HVAC_FAN_SPEED", 1).await, Some(json!(5)));
    world.shows(&device, "vehicle.hvac_fan_speed.1", "5").await;
    for (line, refusal) in [
        ("vehicle set PERF_VEHICLE_SPEED 0 1", "vehicle: ACCESS_DENIED: PERF_VEHICLE_SPEED is read-only\n"),
        ("vehicle set HVAC_FAN_SPEED 0x1 99", "vehicle: INVALID_ARG\n"),
        ("vehicle get 0x21400999 0", "vehicle: INVALID_ARG: the car has no 0x21400999\n"),
    ] {
        let output = world.adb.output(at, line);
        assert!(!output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), refusal, "{line}");
    }
    assert_eq!(told(&garage, &device, "PERF_VEHICLE_SPEED", 0).await, Some(json!(33.5)));

    // The car goes, and comes back.
    garage.let_go().await;
    drop(garage);
    world.shows(&device, "sys.vehicle.connected", "0").await;
    assert_eq!(world.adb.shell(at, "getprop vehicle.perf_vehicle_speed"), "33.5");
    let garage = world.garage();
    order(&garage, &device).await;
    let took = world.shows(&device, "sys.vehicle.connected", "1").await;
    println!("connected again {took:?} after the car came back");
    tell(&garage, &device, "PERF_VEHICLE_SPEED", 0, json!(1.5)).await;
    let took = world.shows(&device, "vehicle.perf_vehicle_speed", "1.5").await;
    assert!(took < SOON, "{took:?}");
    assert_eq!(world.captured_pixel(&device, ON_THE_DIAL), UNLIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clone_that_resumes_from_memory_has_a_car_of_its_own() {
    let world = World::new();
    let garage = world.garage();
    let (origin, from) = world.automotive().await;
    order(&garage, &origin).await;
    world.starts(&origin).await;
    world.shows(&origin, "sys.vehicle.connected", "1").await;
    tell(&garage, &origin, "PERF_VEHICLE_SPEED", 0, json!(33.5)).await;
    world.shows(&origin, "vehicle.perf_vehicle_speed", "33.5").await;

    let (captured, next, memory) = (layer(), disk(), TemplateId::new(now(), &OsRandom::default()));
    let to = world.pool.ensure_successor(from, captured, next).await.expect("a successor");
    let switch = Switch {
        emulator: origin.emulator,
        from: origin.volume.clone(),
        to,
        patience: Duration::from_secs(20),
        memory: Some(memory),
    };
    assert_eq!(world.host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
    world.pool.seal_layer(captured, from).await.expect("sealed");
    world.host.ensure_template(memory).await.expect("a template");
    let volume = world.pool.ensure_disk(disk(), captured).await.expect("a clone");
    let mut clone =
        Launch { template: Some(memory), ..launch(&origin.image, &volume, origin.adb_keys.clone()) };
    clone.vehicle = Some(world.socket(&clone));
    order(&garage, &clone).await;
    tell(&garage, &clone, "PERF_VEHICLE_SPEED", 0, json!(2.5)).await;
    world.starts(&clone).await;

    let took = world.shows(&clone, "vehicle.perf_vehicle_speed", "2.5").await;
    println!("the clone's own car was shown after {took:?}");
    world.is_connected(&clone).await;
    // Neither hears the other.
    tell(&garage, &clone, "PERF_VEHICLE_SPEED", 0, json!(3.5)).await;
    world.shows(&clone, "vehicle.perf_vehicle_speed", "3.5").await;
    assert_eq!(world.adb.shell(origin.address, "getprop vehicle.perf_vehicle_speed"), "33.5");
    tell(&garage, &origin, "PERF_VEHICLE_SPEED", 0, json!(4.5)).await;
    world.shows(&origin, "vehicle.perf_vehicle_speed", "4.5").await;
    assert_eq!(world.adb.shell(clone.address, "getprop vehicle.perf_vehicle_speed"), "3.5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_an_image_brings_itself_is_reached_at_the_devices_address() {
    let world = World::new();
    // The reference device with another profile; in place of a VehicleServer somebody listens who says one line.
    let folder = world.folder.path().join("image");
    fs::create_dir(&folder).expect("a folder");
    for file in ["vmlinux", "initramfs.cpio", "automotive.qcow2"] {
        std::os::unix::fs::symlink(images().join(file), folder.join(file)).expect("a link");
    }
    let profile = fs::read(images().join("automotive.profile.json")).expect("a profile");
    let mut profile: Value = serde_json::from_slice(&profile).expect("JSON");
    profile["vehicle"] = json!({"port": 9301});
    fs::write(folder.join("own.profile.json"), profile.to_string()).expect("written");
    let (device, _) = world.of_profile(&folder.join("own.profile.json")).await;
    world.starts(&device).await;

    // It gets no way to a car outside, and is told of none.
    assert_eq!(world.link(&device).await, Some(VehicleLink::Absent));
    world.adb.shell(device.address, "(echo from inside | nc -l -p 9301 >/dev/null 2>&1 &)");
    let started = Instant::now();
    loop {
        let mut inside = world.host.open(device.emulator, Channel::Vehicle).await.expect("opened");
        let mut line = [0; 11];
        // QEMU takes the connection before anybody listens.
        match inside.read_exact(&mut line).await {
            Ok(_) => break assert_eq!(&line, b"from inside"),
            Err(error) => assert!(started.elapsed() < Duration::from_secs(20), "{error}"),
        }
    }
}
