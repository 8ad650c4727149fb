//! What every host and every pool promises, said once and tried on the real one and on the simulated one.

mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::disk_pools::simulated::{SimulatedPool, SimulatedPoolSettings};
use paddock_drivers::emulator_hosts::simulated::{SimulatedHost, SimulatedHostSettings};
use paddock_model::devices::Phase;
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource, Volume};
use paddock_model::drivers::emulator_hosts::{Channel, EmulatorHost, Launch};
use ring::digest::{Context, SHA256};
use tokio::io::AsyncWriteExt;
use world::{Folder, disk, emulator, images, is_ready, launch, layer, open_host, until};

/// A pool, how another process would open it again, and something to make layers of.
struct Pool {
    pool: Arc<dyn DiskPool>,
    reopened: Box<dyn Fn() -> Arc<dyn DiskPool>>,
    stray: Box<dyn Fn()>,
    source: LayerSource,
}

fn qcow2_pool() -> Pool {
    let folder = Folder::new();
    let path = folder.path().join("pool");
    let stray = path.join("disks/somebody's.qcow2");
    let open = move || -> Arc<dyn DiskPool> {
        // The folder lives as long as what may open it.
        let _kept = &folder;
        Arc::new(Qcow2Pool::open("local", &path).expect("a pool"))
    };
    Pool {
        pool: open(),
        reopened: Box::new(open),
        stray: Box::new(move || std::fs::write(&stray, "x").expect("written")),
        source: LayerSource::File(images().join("phone.qcow2")),
    }
}

fn simulated_pool() -> Pool {
    let pool = SimulatedPool::new(SimulatedPoolSettings::default());
    let (again, stray) = (pool.clone(), pool.clone());
    Pool {
        pool: Arc::new(pool),
        reopened: Box::new(move || Arc::new(again.clone())),
        stray: Box::new(move || stray.add_stranger("disks/somebody's.qcow2")),
        source: LayerSource::File(PathBuf::from("phone.qcow2")),
    }
}

/// A host, how another process would open it again, and a device to run on it.
struct Host {
    host: Arc<dyn EmulatorHost>,
    reopened: Box<dyn Fn() -> Arc<dyn EmulatorHost>>,
    pool: Pool,
    profile: PathBuf,
}

impl Host {
    async fn launch(&self) -> Launch {
        let image = self.host.ensure_image(&self.profile).await.expect("an image");
        launch(&image.name, &self.volume().await, Vec::new())
    }

    async fn volume(&self) -> Volume {
        let below = layer();
        self.pool.pool.ensure_layer(below, &self.pool.source).await.expect("a layer");
        self.pool.pool.ensure_disk(disk(), below).await.expect("a disk")
    }
}

fn qemu_host() -> Host {
    let folder = Folder::new();
    let open = move || -> Arc<dyn EmulatorHost> { Arc::new(open_host(&folder.path().join("host"))) };
    let profile = images().join("phone.profile.json");
    Host { host: open(), reopened: Box::new(open), pool: qcow2_pool(), profile }
}

fn simulated_host() -> Host {
    let host =
        SimulatedHost::new(SimulatedHostSettings { boot: Duration::from_millis(50), ..Default::default() });
    let again = host.clone();
    let profile = PathBuf::from("phone.profile.json");
    Host {
        host: Arc::new(host),
        reopened: Box::new(move || Arc::new(again.clone())),
        pool: simulated_pool(),
        profile,
    }
}

macro_rules! sentences {
    ($kind:ident, $real:ident, $simulated:ident: $($name:ident),* $(,)?) => {
        mod $kind {
            mod real {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() { crate::$name(crate::$real()).await; })*
            }
            mod simulated {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() { crate::$name(crate::$simulated()).await; })*
            }
        }
    };
}

sentences!(pools, qcow2_pool, simulated_pool:
    a_layer_is_taken_once,
    a_disk_is_made_once_and_stays_on_its_layer,
    no_disk_stands_on_what_is_not_there,
    a_layer_in_quarantine_carries_no_new_disk,
    a_layer_is_read_in_pieces_and_they_make_its_digest,
    a_layer_is_verified_against_its_digest,
    what_is_removed_is_gone_and_may_be_removed_again,
    strangers_are_told_of_and_left_alone,
    a_pool_that_is_opened_again_has_everything,
);

sentences!(hosts, qemu_host, simulated_host:
    an_image_keeps_its_name,
    nothing_is_known_of_an_absent_device,
    a_device_comes_up_once_and_goes,
    a_newer_incarnation_replaces_an_older_one_and_never_the_other_way_round,
    a_host_that_is_opened_again_has_its_devices,
);

async fn a_layer_is_taken_once(world: Pool) {
    let id = layer();

    let facts = world.pool.ensure_layer(id, &world.source).await.expect("taken");
    let again = world.pool.ensure_layer(id, &world.source).await.expect("taken");

    assert_eq!(facts, again);
    assert_eq!((facts.virtual_bytes, facts.digest.len()), (2 << 30, 64));
    assert!(facts.allocated_bytes > 0);
    let listed = world.pool.list().await.expect("listed");
    assert_eq!(listed.layers.len(), 1);
    assert_eq!((listed.layers[0].id, listed.layers[0].parent), (id, None));
    assert_eq!(listed.layers[0].allocated_bytes, facts.allocated_bytes);
}

async fn a_disk_is_made_once_and_stays_on_its_layer(world: Pool) {
    let (below, other, id) = (layer(), layer(), disk());
    world.pool.ensure_layer(below, &world.source).await.expect("taken");
    world.pool.ensure_layer(other, &world.source).await.expect("taken");
    let used = world.pool.capacity().await.expect("measured").used_bytes;

    let volume = world.pool.ensure_disk(id, below).await.expect("made");
    let again = world.pool.ensure_disk(id, below).await.expect("made");
    let refused = world.pool.ensure_disk(id, other).await.expect_err("another layer");

    assert_eq!(volume, again);
    assert_eq!((refused.code, refused.retry), ("disk_conflict", Retry::Never));
    let listed = world.pool.list().await.expect("listed");
    assert_eq!(listed.disks.iter().map(|disk| (disk.id, disk.on)).collect::<Vec<_>>(), [(id, below)]);
    let capacity = world.pool.capacity().await.expect("measured");
    assert_eq!(capacity.used_bytes, used + listed.disks[0].allocated_bytes);
    assert!(listed.disks[0].allocated_bytes < 128 << 10, "{:?}", listed.disks[0]);
    assert!(capacity.capacity_bytes >= capacity.used_bytes && capacity.free_bytes > 0);
}

async fn no_disk_stands_on_what_is_not_there(world: Pool) {
    let refused = world.pool.ensure_disk(disk(), layer()).await.expect_err("nothing to stand on");

    assert_eq!((refused.code, refused.retry), ("layer_missing", Retry::Later));
    assert!(world.pool.list().await.expect("listed").disks.is_empty());
}

async fn a_layer_is_read_in_pieces_and_they_make_its_digest(world: Pool) {
    let below = layer();
    let facts = world.pool.ensure_layer(below, &world.source).await.expect("a layer");

    let mut context = Context::new(&SHA256);
    let mut at = 0;
    loop {
        let piece = world.pool.read_layer(below, at, 100_000).await.expect("a piece");
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        context.update(&piece);
    }

    let digits: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, facts.digest);
    assert_eq!(world.pool.read_layer(layer(), 0, 1).await.expect_err("no layer").code, "layer_missing");
    for (layer, digest, expected) in [
        (below, facts.digest.as_str(), Integrity::Sound),
        (below, "another", Integrity::Altered),
        (layer(), facts.digest.as_str(), Integrity::Missing),
    ] {
        assert_eq!(world.pool.glance_at_layer(layer, digest).await.expect("looked at"), expected);
    }
}

async fn a_layer_in_quarantine_carries_no_new_disk(world: Pool) {
    let (below, earlier) = (layer(), disk());
    world.pool.ensure_layer(below, &world.source).await.expect("taken");
    let volume = world.pool.ensure_disk(earlier, below).await.expect("made");

    world.pool.quarantine_layer(below).await.expect("put aside");
    world.pool.quarantine_layer(below).await.expect("put aside again");
    world.pool.quarantine_layer(layer()).await.expect("nothing to put aside");

    let pool = (world.reopened)();
    let refused = pool.ensure_disk(disk(), below).await.expect_err("in quarantine");
    assert_eq!((refused.code, refused.retry), ("layer_quarantined", Retry::Never));
    assert_eq!(pool.ensure_disk(earlier, below).await.expect("was there before"), volume);
    assert_eq!(pool.list().await.expect("listed").layers.len(), 1);
}

async fn a_layer_is_verified_against_its_digest(world: Pool) {
    let id = layer();
    let facts = world.pool.ensure_layer(id, &world.source).await.expect("taken");

    for (layer, digest, expected) in [
        (id, facts.digest.as_str(), Integrity::Sound),
        (id, "0123", Integrity::Altered),
        (layer(), "0123", Integrity::Missing),
    ] {
        assert_eq!(world.pool.verify_layer(layer, digest).await.expect("looked at"), expected);
    }
}

async fn what_is_removed_is_gone_and_may_be_removed_again(world: Pool) {
    let (below, id) = (layer(), disk());
    world.pool.ensure_layer(below, &world.source).await.expect("taken");
    world.pool.ensure_disk(id, below).await.expect("made");

    for _ in 0..2 {
        world.pool.remove_disk(id).await.expect("removed");
        world.pool.remove_layer(below).await.expect("removed");
    }

    assert_eq!((world.reopened)().list().await.expect("listed"), Default::default());
    assert_eq!(world.pool.capacity().await.expect("measured").used_bytes, 0);
}

async fn strangers_are_told_of_and_left_alone(world: Pool) {
    (world.stray)();

    for pool in [world.pool, (world.reopened)()] {
        let listed = pool.list().await.expect("listed");
        assert_eq!(listed.strangers, ["disks/somebody's.qcow2"]);
        assert!(listed.disks.is_empty());
    }
}

async fn a_pool_that_is_opened_again_has_everything(world: Pool) {
    let (below, id) = (layer(), disk());
    let facts = world.pool.ensure_layer(below, &world.source).await.expect("taken");
    let volume = world.pool.ensure_disk(id, below).await.expect("made");
    let listed = world.pool.list().await.expect("listed");
    drop(world.pool);

    let pool = (world.reopened)();

    assert_eq!(pool.list().await.expect("listed"), listed);
    assert_eq!(pool.ensure_layer(below, &world.source).await.expect("there"), facts);
    assert_eq!(pool.ensure_disk(id, below).await.expect("there"), volume);
}

async fn an_image_keeps_its_name(world: Host) {
    let image = world.host.ensure_image(&world.profile).await.expect("taken");
    let again = (world.reopened)().ensure_image(&world.profile).await.expect("taken");

    assert_eq!(image, again);
    assert_eq!((image.memory_bytes, image.cpus, image.abi.as_str()), (256 << 20, 1, "x86_64"));
}

async fn nothing_is_known_of_an_absent_device(world: Host) {
    let absent = emulator();

    assert_eq!(world.host.observe(absent).await.expect("looked"), None);
    assert_eq!(world.host.list().await.expect("listed"), []);
    world.host.remove(absent).await.expect("nothing to remove");
    assert_eq!(world.host.inspect(absent).await.expect_err("absent").code, "device_missing");
    let opened = world.host.open(absent, Channel::Adb).await;
    assert_eq!(opened.err().expect("absent").code, "device_missing");
}

async fn a_device_comes_up_once_and_goes(world: Host) {
    let host = &*world.host;
    let mut changes = host.changes();
    let launch = world.launch().await;

    host.ensure(&launch).await.expect("started");
    host.ensure(&launch).await.expect("started already");
    assert_eq!(host.list().await.expect("listed"), [launch.emulator]);
    assert_eq!(changes.recv().await.expect("told"), launch.emulator);
    let booting = host.open(launch.emulator, Channel::Adb).await.err().map(|error| error.code);
    let observed = until(host, launch.emulator, "ready", is_ready).await;

    // A slow test may have found it up at once.
    assert!(booting.is_none_or(|code| code == "not_ready"), "{booting:?}");
    assert_eq!(observed.incarnation, 1);
    let state = host.inspect(launch.emulator).await.expect("asked");
    assert_eq!(state.properties["ro.serialno"], launch.identity.serial);
    assert!(state.memory_total_bytes > 0 && state.disk_total_bytes > 0 && !state.uptime.is_zero());
    let mut stream = host.open(launch.emulator, Channel::Adb).await.expect("opened");
    stream.write_all(b"CNXN").await.expect("said");
    drop(stream);

    while changes.try_recv().is_ok() {}
    host.remove(launch.emulator).await.expect("removed");
    host.remove(launch.emulator).await.expect("removed already");
    assert_eq!(changes.recv().await.expect("told"), launch.emulator);
    assert_eq!(host.observe(launch.emulator).await.expect("looked"), None);
    assert_eq!(host.list().await.expect("listed"), []);
}

async fn a_newer_incarnation_replaces_an_older_one_and_never_the_other_way_round(world: Host) {
    let host = &*world.host;
    let first = world.launch().await;
    host.ensure(&first).await.expect("started");

    let third = Launch { incarnation: 3, ..first.clone() };
    host.ensure(&third).await.expect("started anew");
    let refused = host.ensure(&first).await.expect_err("past");

    assert_eq!((refused.code, refused.retry), ("stale_incarnation", Retry::Never));
    let observed = host.observe(first.emulator).await.expect("looked").expect("there");
    assert_eq!(observed.incarnation, 3);
    assert!(!matches!(observed.phase, Phase::Exited { .. }), "{observed:?}");
    assert_eq!(host.list().await.expect("listed"), [first.emulator]);
    host.remove(first.emulator).await.expect("removed");
}

async fn a_host_that_is_opened_again_has_its_devices(world: Host) {
    let launch = world.launch().await;
    world.host.ensure(&launch).await.expect("started");
    drop(world.host);

    let host = (world.reopened)();

    assert_eq!(host.list().await.expect("listed"), [launch.emulator]);
    host.ensure(&launch).await.expect("started already");
    let observed = until(&*host, launch.emulator, "ready", is_ready).await;
    assert_eq!(observed.incarnation, launch.incarnation);
    host.remove(launch.emulator).await.expect("removed");
    assert_eq!(host.list().await.expect("listed"), []);
}
