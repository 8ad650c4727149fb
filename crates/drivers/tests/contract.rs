//! What every host and every pool promises, said once and tried on the real one and on the simulated one.

mod world;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::disk_pools::simulated::{SimulatedPool, SimulatedPoolSettings};
use paddock_drivers::emulator_hosts::simulated::{SimulatedHost, SimulatedHostSettings};
use paddock_drivers::random::OsRandom;
use paddock_model::devices::Phase;
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource, Merging, Volume};
use paddock_model::drivers::emulator_hosts::{Channel, Consistency, EmulatorHost, Launch, Switch};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::templates::TemplateId;
use ring::digest::SHA256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use world::{Folder, disk, emulator, images, is_ready, launch, layer, open_host, until};

/// A pool, how another process would open it again, and something to make layers of.
struct Pool {
    pool: Arc<dyn DiskPool>,
    reopened: Box<dyn Fn() -> Arc<dyn DiskPool>>,
    stray: Box<dyn Fn()>,
    /// As a device would.
    write_to: Box<dyn Fn(DiskId)>,
    source: LayerSource,
}

fn qcow2_pool() -> Pool {
    let folder = Folder::new();
    let path = folder.path().join("pool");
    let stray = path.join("disks/somebody's.qcow2");
    let disks = path.join("disks");
    let open = move || -> Arc<dyn DiskPool> {
        // The folder lives as long as what may open it.
        let _kept = &folder;
        Arc::new(Qcow2Pool::open("local", &path).expect("a pool"))
    };
    Pool {
        pool: open(),
        reopened: Box::new(open),
        stray: Box::new(move || std::fs::write(&stray, "x").expect("written")),
        write_to: Box::new(move |disk| {
            let path = disks.join(format!("{disk}.qcow2"));
            let arguments = ["-f", "qcow2", "-c", "write -P 7 1G 64k"];
            let written = Command::new("qemu-io").args(arguments).arg(path).output().expect("qemu-io");
            assert!(written.status.success(), "{written:?}");
        }),
        source: LayerSource::File(images().join("phone.qcow2")),
    }
}

fn simulated_pool() -> Pool {
    let pool = SimulatedPool::new(SimulatedPoolSettings::default());
    let (again, stray, written) = (pool.clone(), pool.clone(), pool.clone());
    Pool {
        pool: Arc::new(pool),
        reopened: Box::new(move || Arc::new(again.clone())),
        stray: Box::new(move || stray.add_stranger("disks/somebody's.qcow2")),
        write_to: Box::new(move |disk| written.write_to(disk)),
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

impl Pool {
    /// A layer and a disk on it.
    async fn disk(&self) -> (LayerId, DiskId, Volume) {
        let (below, id) = (layer(), disk());
        self.pool.ensure_layer(below, &self.source).await.expect("a layer");
        let volume = self.pool.ensure_disk(id, below).await.expect("a disk");
        (below, id, volume)
    }

    async fn used_bytes(&self) -> i64 {
        let (capacity, listed) = (self.pool.capacity().await, self.pool.list().await.expect("listed"));
        let used = capacity.expect("measured").used_bytes;
        let layers: i64 = listed.layers.iter().map(|layer| layer.allocated_bytes).sum();
        let disks: i64 = listed.disks.iter().map(|disk| disk.allocated_bytes).sum();
        // What is not told of in the list is the records.
        assert!((0..64 << 10).contains(&(used - layers - disks)), "{used}: {listed:?}");
        assert_eq!(listed.strangers, [""; 0]);
        layers + disks
    }
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
    what_is_received_becomes_a_layer_and_nothing_else_stays,
    a_disk_is_made_once_and_stays_on_its_layer,
    no_disk_stands_on_what_is_not_there,
    a_layer_in_quarantine_carries_no_new_disk,
    a_layer_is_read_in_pieces_and_they_make_its_digest,
    a_layer_is_verified_against_its_digest,
    what_is_removed_is_gone_and_may_be_removed_again,
    strangers_are_told_of_and_left_alone,
    a_pool_that_is_opened_again_has_everything,
    a_disk_becomes_a_layer_and_its_successor_stands_on_it,
    an_unsealed_layer_carries_nothing_but_the_successor,
    a_successor_is_taken_back_unless_a_device_has_written_to_it,
    a_successor_of_nothing_is_refused,
    a_lost_successor_is_never_made_anew,
    a_chain_is_merged_in_pieces_and_takes_its_layer_s_place,
    a_merge_that_is_abandoned_leaves_nothing,
    a_layer_is_merged_onto_nothing_but_what_it_stands_on,
);

sentences!(hosts, qemu_host, simulated_host:
    clones_resume_from_the_memory_that_was_taken_with_their_disk,
    an_image_keeps_its_name,
    nothing_is_known_of_an_absent_device,
    a_device_comes_up_once_and_goes,
    a_newer_incarnation_replaces_an_older_one_and_never_the_other_way_round,
    a_host_that_is_opened_again_has_its_devices,
    a_device_moves_from_disk_to_disk,
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

async fn what_is_received_becomes_a_layer_and_nothing_else_stays(world: Pool) {
    let (id, bytes) = (layer(), vec![7; 3 << 20]);
    let sum = |bytes: &[u8]| {
        let sum = ring::digest::digest(&SHA256, bytes);
        sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let digest = sum(&bytes);
    let receive = async |mut from: &[u8], most: u64, digest: &str| {
        world.pool.receive(id, &mut from, most, Some(digest)).await.map_err(|error| error.code)
    };
    assert_eq!(receive(&bytes, bytes.len() as u64 - 1, &digest).await, Err("too_large"));
    assert_eq!(receive(&bytes[1..], 1 << 30, &digest).await, Err("checksum_mismatch"));
    // A sender whose connection breaks.
    let mut broken = bytes[..2 << 20].chain(Broken);
    let refused = world.pool.receive(id, &mut broken, 1 << 30, Some(&digest)).await.expect_err("broken off");
    assert_eq!(refused.code, "broken_off");
    // One who is not waited for any longer.
    let (mut silent, _kept) = tokio::io::duplex(64);
    let given_up = world.pool.receive(id, &mut silent, 1 << 30, Some(&digest));
    tokio::time::timeout(Duration::from_millis(100), given_up).await.expect_err("it is silent");
    assert_eq!(world.pool.received().await.expect("listed"), [] as [LayerId; 0]);
    assert_eq!(world.used_bytes().await, 0);
    let source = LayerSource::Received { digest: digest.clone(), disk: false };
    assert_eq!(world.pool.ensure_layer(id, &source).await.expect_err("nothing").code, "not_received");

    receive(&bytes, 1 << 30, &digest).await.expect("received");
    receive(&bytes, 1 << 30, &digest).await.expect("received again");
    let reopened = (world.reopened)();
    assert_eq!(reopened.received().await.expect("listed"), [id]);
    let listed = reopened.list().await.expect("listed");
    assert_eq!((listed.layers, listed.strangers), (vec![], vec![]), "it is no layer yet, and no stranger");
    let facts = reopened.ensure_layer(id, &source).await.expect("taken");
    assert_eq!(facts.digest, digest);
    assert_eq!(reopened.ensure_layer(id, &source).await.expect("there"), facts);
    assert_eq!(reopened.received().await.expect("listed"), [] as [LayerId; 0]);
    assert_eq!(reopened.verify_layer(id, &digest).await.expect("read"), Integrity::Sound);

    let other = layer();
    world.pool.receive(other, &mut &bytes[..], 1 << 30, Some(&digest)).await.expect("received");
    world.pool.discard(other).await.expect("discarded");
    world.pool.discard(other).await.expect("discarded again");
    assert_eq!(world.pool.received().await.expect("listed"), [] as [LayerId; 0]);
}

/// A connection that breaks.
struct Broken;

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
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

    let mut context = ring::digest::Context::new(&SHA256);
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

    pool.readmit_layer(below).await.expect("taken back");
    pool.readmit_layer(below).await.expect("taken back again");
    pool.readmit_layer(layer()).await.expect("nothing to take back");
    (world.reopened)().ensure_disk(disk(), below).await.expect("in use again");
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

async fn a_disk_becomes_a_layer_and_its_successor_stands_on_it(world: Pool) {
    let (below, first, volume) = world.disk().await;
    let (captured, second) = (layer(), disk());
    (world.write_to)(first);
    let used = world.used_bytes().await;

    let next = world.pool.ensure_successor(first, captured, second).await.expect("made");
    assert_eq!(world.pool.ensure_successor(first, captured, second).await.expect("made already"), next);
    assert_ne!(next, volume);
    let empty = world.used_bytes().await - used;
    assert!((0..128 << 10).contains(&empty), "one name more takes no room: {empty}");
    let facts = world.pool.seal_layer(captured, first).await.expect("sealed");
    // A kill may have come between the act and the note of it.
    for pool in [&world.pool, &(world.reopened)()] {
        assert_eq!(pool.seal_layer(captured, first).await.expect("sealed already"), facts);
        assert_eq!(pool.ensure_successor(first, captured, second).await.expect("made already"), next);
    }

    assert_eq!(world.used_bytes().await, used + empty);
    assert_eq!((facts.virtual_bytes, facts.digest.len()), (2 << 30, 64));
    let listed = world.pool.list().await.expect("listed");
    let lineage: Vec<_> = listed.layers.iter().map(|layer| (layer.id, layer.parent)).collect();
    assert_eq!(lineage, [(below, None), (captured, Some(below))]);
    assert_eq!(listed.disks.iter().map(|disk| (disk.id, disk.on)).collect::<Vec<_>>(), [(second, captured)]);
    assert_eq!(listed.layers[1].allocated_bytes, facts.allocated_bytes);
    let looked = world.pool.verify_layer(captured, &facts.digest).await.expect("looked at");
    assert_eq!(looked, Integrity::Sound);
    world.pool.ensure_disk(disk(), captured).await.expect("a clone");
    let refused = world.pool.abandon_successor(first, captured, second).await.expect_err("too late");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Never));
}

async fn an_unsealed_layer_carries_nothing_but_the_successor(world: Pool) {
    let (_, first, _) = world.disk().await;
    let (captured, second) = (layer(), disk());
    world.pool.ensure_successor(first, captured, second).await.expect("made");

    let refused = world.pool.ensure_disk(disk(), captured).await.expect_err("unsealed");
    assert_eq!((refused.code, refused.retry), ("layer_unsealed", Retry::Later));
    let refused = world.pool.verify_layer(captured, "0123").await.expect_err("unsealed");
    assert_eq!((refused.code, refused.retry), ("layer_unsealed", Retry::Later));
    let refused = world.pool.ensure_layer(captured, &world.source).await.expect_err("unsealed");
    assert_eq!((refused.code, refused.retry), ("layer_unsealed", Retry::Later));

    // It is told of all the same, and so are both disks.
    let listed = world.pool.list().await.expect("listed");
    assert_eq!((listed.layers.len(), listed.disks.len()), (2, 2));
    // Without its other name the layer holds the bytes alone, and can still be sealed.
    let used = world.used_bytes().await;
    world.pool.remove_disk(first).await.expect("removed");
    assert_eq!(world.used_bytes().await, used);
    world.pool.seal_layer(captured, first).await.expect("sealed");
    world.pool.ensure_disk(disk(), captured).await.expect("a clone");
}

async fn a_successor_is_taken_back_unless_a_device_has_written_to_it(world: Pool) {
    let (_, first, volume) = world.disk().await;
    let (captured, second) = (layer(), disk());
    let (before, used) = (world.pool.list().await.expect("listed"), world.used_bytes().await);

    world.pool.abandon_successor(first, captured, second).await.expect("nothing to take back");
    world.pool.ensure_successor(first, captured, second).await.expect("made");
    for _ in 0..2 {
        world.pool.abandon_successor(first, captured, second).await.expect("taken back");
        assert_eq!(world.pool.list().await.expect("listed"), before);
        assert_eq!(world.used_bytes().await, used);
    }

    world.pool.ensure_successor(first, captured, second).await.expect("made again");
    (world.write_to)(second);
    let refused = world.pool.abandon_successor(first, captured, second).await.expect_err("written to");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Never));
    assert_eq!(world.pool.list().await.expect("listed").disks.len(), 2);
    // Nor is the only name of what the disk held ever taken away.
    let (third, fourth) = (layer(), disk());
    world.pool.ensure_successor(second, third, fourth).await.expect("made");
    world.pool.remove_disk(second).await.expect("removed");
    let refused = world.pool.abandon_successor(second, third, fourth).await.expect_err("the last name");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Never));
    assert_eq!(world.pool.list().await.expect("listed").layers.len(), 3);
    assert_eq!(world.pool.ensure_disk(first, before.disks[0].on).await.expect("untouched"), volume);
}

async fn a_successor_of_nothing_is_refused(world: Pool) {
    let (below, first, _) = world.disk().await;

    let refused = world.pool.ensure_successor(disk(), layer(), disk()).await.expect_err("no disk");
    assert_eq!((refused.code, refused.retry), ("disk_missing", Retry::Later));
    let refused = world.pool.seal_layer(layer(), first).await.expect_err("no layer");
    assert_eq!((refused.code, refused.retry), ("layer_missing", Retry::Later));
    for refused in [
        world.pool.ensure_successor(first, below, disk()).await.map(drop),
        world.pool.seal_layer(below, first).await.map(drop),
        world.pool.abandon_successor(first, below, disk()).await,
    ] {
        let refused = refused.expect_err("another's layer");
        assert!(["disk_conflict", "disk_in_use"].contains(&refused.code), "{refused}");
        assert_eq!(refused.retry, Retry::Never);
    }
    let listed = world.pool.list().await.expect("listed");
    assert_eq!((listed.layers.len(), listed.disks.len()), (1, 1));
}

async fn a_lost_successor_is_never_made_anew(world: Pool) {
    let (_, first, _) = world.disk().await;
    let (captured, second) = (layer(), disk());
    world.pool.ensure_successor(first, captured, second).await.expect("made");
    world.pool.seal_layer(captured, first).await.expect("sealed");

    world.pool.remove_disk(second).await.expect("removed");

    let refused = world.pool.ensure_successor(first, captured, second).await.expect_err("lost");
    assert_eq!((refused.code, refused.retry), ("disk_missing", Retry::Never));
    world.pool.remove_layer(captured).await.expect("removed");
    world.pool.remove_layer(captured).await.expect("removed already");
    assert_eq!(world.pool.list().await.expect("listed").layers.len(), 1);
}

async fn a_device_moves_from_disk_to_disk(world: Host) {
    let Host { mut host, reopened, pool, profile } = world;
    let (_, first, volume) = pool.disk().await;
    let image = host.ensure_image(&profile).await.expect("an image");
    let launch = launch(&image.name, &volume, Vec::new());
    let emulator = launch.emulator;
    let patience = Duration::from_secs(20);
    assert_eq!(host.volume(emulator).await.expect("asked"), None);
    let absent = Switch { emulator, from: volume.clone(), to: volume.clone(), patience, memory: None };
    assert_eq!(host.switch(&absent).await.expect_err("absent").code, "device_missing");
    host.ensure(&launch).await.expect("started");
    until(&*host, emulator, "ready", is_ready).await;
    assert_eq!(host.volume(emulator).await.expect("asked").as_ref(), Some(&volume));

    let (mut from, mut disk_now) = (volume.clone(), first);
    for _ in 0..3 {
        // A host that has just come back must hear from the device before it can hold it still.
        until(&*host, emulator, "ready", is_ready).await;
        let (captured, next) = (layer(), disk());
        let to = pool.pool.ensure_successor(disk_now, captured, next).await.expect("a successor");
        let switch = Switch { emulator, from: from.clone(), to: to.clone(), patience, memory: None };
        assert_eq!(host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
        // Asked again, nobody knows how it came there.
        assert_eq!(host.switch(&switch).await.expect("moved already"), Consistency::Crash);
        assert_eq!(host.volume(emulator).await.expect("asked").as_ref(), Some(&to));
        let wrong = Switch { emulator, from: from.clone(), to: from.clone(), patience, memory: None };
        let refused = host.switch(&Switch { to: volume_of_nobody(), ..wrong }).await.expect_err("not there");
        assert_eq!((refused.code, refused.retry), ("volume_conflict", Retry::Never));
        pool.pool.seal_layer(captured, disk_now).await.expect("sealed");
        assert_eq!(host.volume(emulator).await.expect("asked").as_ref(), Some(&to));
        (from, disk_now) = (to, next);
        drop(host);
        host = reopened();
    }
    let observed = until(&*host, emulator, "ready", is_ready).await;
    assert_eq!(observed.incarnation, 1);
    host.inspect(emulator).await.expect("it answers");

    // The next start is on the last disk.
    let second = Launch { incarnation: 2, volume: from.clone(), ..launch };
    host.ensure(&second).await.expect("started anew");
    until(&*host, emulator, "ready", is_ready).await;
    assert_eq!(host.volume(emulator).await.expect("asked"), Some(from));
    host.remove(emulator).await.expect("removed");
    assert_eq!(host.volume(emulator).await.expect("asked"), None);
}

async fn clones_resume_from_the_memory_that_was_taken_with_their_disk(world: Host) {
    let Host { mut host, reopened, pool, profile } = world;
    let (_, first, volume) = pool.disk().await;
    let image = host.ensure_image(&profile).await.expect("an image");
    let origin = launch(&image.name, &volume, Vec::new());
    let memory = TemplateId::new(world::now(), &OsRandom::default());
    assert_eq!(host.ensure_template(memory).await.expect_err("nobody took it").code, "memory_missing");
    assert_eq!(host.verify_template(memory).await.expect("looked"), Integrity::Missing);
    host.ensure(&origin).await.expect("started");
    until(&*host, origin.emulator, "ready", is_ready).await;
    let (captured, next, patience) = (layer(), disk(), Duration::from_secs(20));
    let to = pool.pool.ensure_successor(first, captured, next).await.expect("a successor");
    let switch = Switch { emulator: origin.emulator, from: volume, to, patience, memory: Some(memory) };
    assert_eq!(host.switch(&switch).await.expect("moved"), Consistency::Filesystem);
    pool.pool.seal_layer(captured, first).await.expect("sealed");

    // It is listed from its first trace on, and made once.
    assert_eq!(host.templates().await.expect("listed").len(), 1);
    let facts = host.ensure_template(memory).await.expect("made");
    assert!(facts.allocated_bytes > 0 && !facts.fingerprint.is_empty(), "{facts:?}");
    drop(host);
    host = reopened();
    assert_eq!(host.ensure_template(memory).await.expect("made before"), facts);
    assert_eq!(host.verify_template(memory).await.expect("read"), Integrity::Sound);
    assert_eq!(host.templates().await.expect("listed")[0].allocated_bytes, facts.allocated_bytes);

    let clone = async || {
        let volume = pool.pool.ensure_disk(disk(), captured).await.expect("a clone");
        Launch { template: Some(memory), ..launch(&image.name, &volume, Vec::new()) }
    };
    let clones = [clone().await, clone().await];
    for clone in &clones {
        host.ensure(clone).await.expect("started");
        host.ensure(clone).await.expect("started already");
    }
    for clone in &clones {
        until(&*host, clone.emulator, "ready", is_ready).await;
        let state = host.inspect(clone.emulator).await.expect("asked");
        assert_eq!(state.properties["ro.serialno"], clone.identity.serial);
    }

    // Another machine cannot use it, nor can anybody once it is gone; both may boot.
    let not_resumed = |phase: &Phase| matches!(phase, Phase::Exited { code: "not_resumed", .. });
    let other = Launch { memory_bytes: 512 << 20, ..clone().await };
    host.ensure(&other).await.expect("told");
    until(&*host, other.emulator, "refused", not_resumed).await;
    host.remove_template(memory).await.expect("removed");
    host.remove_template(memory).await.expect("removed already");
    assert!(host.templates().await.expect("listed").is_empty());
    let late = clone().await;
    host.ensure(&late).await.expect("told");
    until(&*host, late.emulator, "refused", not_resumed).await;
    host.ensure(&Launch { template: None, ..late.clone() }).await.expect("started");
    until(&*host, late.emulator, "ready", is_ready).await;
    // Those that had resumed do not mind.
    host.inspect(clones[1].emulator).await.expect("it answers");
    for emulator in [origin.emulator, other.emulator, late.emulator, clones[0].emulator, clones[1].emulator] {
        host.remove(emulator).await.expect("removed");
    }
}

fn volume_of_nobody() -> Volume {
    Volume("/nowhere/dsk.qcow2".to_owned())
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

/// A base, and layers that were captured one on another; the base first.
async fn chain(world: &Pool, length: usize) -> Vec<LayerId> {
    let (below, mut from, _) = world.disk().await;
    let mut layers = vec![below];
    for _ in 0..length {
        (world.write_to)(from);
        let (captured, to) = (layer(), disk());
        world.pool.ensure_successor(from, captured, to).await.expect("a successor");
        world.pool.seal_layer(captured, from).await.expect("sealed");
        layers.push(captured);
        from = to;
    }
    layers
}

async fn a_chain_is_merged_in_pieces_and_takes_its_layer_s_place(world: Pool) {
    let layers = chain(&world, 4).await;
    let (base, top) = (layers[0], layers[3]);
    let merge = async |pool: &Arc<dyn DiskPool>| pool.merge_layer(top, base, 4096).await.expect("merged");

    assert!(matches!(merge(&world.pool).await, Merging::UnderWay(_)), "a piece at a time");
    let pool = (world.reopened)();
    let facts = loop {
        if let Merging::Ready(facts) = merge(&pool).await {
            break facts;
        }
    };
    let listed = pool.list().await.expect("listed");
    assert_eq!((listed.merged.as_slice(), listed.strangers.len()), ([top].as_slice(), 0));
    assert_eq!(listed.layers.iter().find(|layer| layer.id == top).expect("there").parent, Some(layers[2]));

    for pool in [pool, (world.reopened)()] {
        let replaced = pool.replace_layer(top, &facts.digest).await.expect("replaced");
        assert_eq!(replaced, facts);
    }
    assert_eq!(merge(&world.pool).await, Merging::Ready(facts.clone()), "it stands there already");
    let looked = world.pool.verify_layer(top, &facts.digest).await.expect("looked at");
    assert_eq!(looked, Integrity::Sound);
    let listed = world.pool.list().await.expect("listed");
    assert_eq!(listed.merged, []);
    assert_eq!(listed.layers.iter().find(|layer| layer.id == top).expect("there").parent, Some(base));
    // What stands on it stands on it still, and what it was made of may go.
    for layer in &layers[1..3] {
        world.pool.remove_layer(*layer).await.expect("removed");
    }
    world.pool.ensure_disk(disk(), top).await.expect("a disk");
    world.used_bytes().await;
    let lost = world.pool.replace_layer(top, "0123").await.expect_err("nothing is ready");
    assert_eq!((lost.code, lost.retry), ("merge_missing", Retry::Never));
}

async fn a_merge_that_is_abandoned_leaves_nothing(world: Pool) {
    let layers = chain(&world, 3).await;
    let before = world.used_bytes().await;
    for most in [4096, u64::MAX] {
        world.pool.merge_layer(layers[3], layers[0], most).await.expect("merged");

        for _ in 0..2 {
            world.pool.abandon_merge(layers[3]).await.expect("abandoned");
        }

        assert_eq!(world.used_bytes().await, before);
        assert_eq!(world.pool.list().await.expect("listed").merged, []);
    }
    world.pool.merge_layer(layers[3], layers[0], u64::MAX).await.expect("merged");
    world.pool.remove_layer(layers[3]).await.expect("removed");
    assert_eq!(world.pool.list().await.expect("listed").merged, []);
}

async fn a_layer_is_merged_onto_nothing_but_what_it_stands_on(world: Pool) {
    let (layers, other) = (chain(&world, 2).await, layer());
    world.pool.ensure_layer(other, &world.source).await.expect("a layer");
    let refused = async |layer, onto| {
        let refused = world.pool.merge_layer(layer, onto, u64::MAX).await.expect_err("refused");
        (refused.code, refused.retry)
    };

    for (layer, onto) in [(layers[2], other), (layers[1], layers[2]), (layers[2], layers[2])] {
        assert_eq!(refused(layer, onto).await, ("merge_refused", Retry::Never));
    }
    assert_eq!(refused(layer(), layers[0]).await, ("layer_missing", Retry::Later));
    world.pool.quarantine_layer(layers[1]).await.expect("put aside");
    assert_eq!(refused(layers[2], layers[0]).await, ("layer_quarantined", Retry::Never));
}
