//! Merging layers: whatever was written, branched, merged and removed, in whatever order and however often it was killed, every layer
//! that is left shows what it showed before, as QEMU's own tools read it.

mod world;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource, Merging};
use paddock_model::layers::{LayerFacts, LayerId};
use paddock_model::ports::{Random, SeededRandom};
use world::{Folder, disk, layer};

/// Not a whole number of clusters.
const SIZE: usize = 3 * (1 << 20) + 5 * 4096;

/// Numbers by lot, the same again for the same seed.
struct Lot(SeededRandom);

impl Lot {
    fn below(&self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % end as u64).expect("small")
    }

    fn one_in(&self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A layer, and what a device sees of it.
struct Node {
    id: LayerId,
    parent: Option<usize>,
    shows: Vec<u8>,
    /// A snapshot stands on it.
    wanted: bool,
    gone: bool,
}

struct Tree {
    lot: Lot,
    folder: Folder,
    pool: Qcow2Pool,
    nodes: Vec<Node>,
}

impl Tree {
    async fn new(seed: u64) -> Tree {
        let folder = Folder::new();
        let pool = Qcow2Pool::open("local", &folder.path().join("pool")).expect("a pool");
        let lot = Lot(SeededRandom::new(seed));
        let mut shows = vec![0; SIZE];
        for _ in 0..6 {
            let at = lot.below(SIZE / 4096) * 4096;
            let end = (at + (1 + lot.below(40)) * 4096).min(SIZE);
            shows[at..end].fill(1 + u8::try_from(lot.below(250)).expect("a byte"));
        }
        let image = folder.path().join("base.raw");
        fs::write(&image, &shows).expect("an image");
        let id = layer();
        pool.ensure_layer(id, &LayerSource::File(image)).await.expect("a layer");
        let base = Node { id, parent: None, shows, wanted: true, gone: false };
        Tree { lot, folder, pool, nodes: vec![base] }
    }

    fn file(&self, id: LayerId) -> PathBuf {
        let named = |kind: &str| self.folder.path().join(format!("pool/layers/{id}.{kind}"));
        let raw = named("raw");
        if raw.exists() { raw } else { named("qcow2") }
    }

    /// As after a kill -9: what this process knew is gone.
    fn kill(&mut self) {
        self.pool = Qcow2Pool::open("local", &self.folder.path().join("pool")).expect("a pool");
    }

    /// A device writes on a layer and is captured.
    async fn grow(&mut self, parent: usize) {
        let (from, id, to) = (disk(), layer(), disk());
        let volume = self.pool.ensure_disk(from, self.nodes[parent].id).await.expect("a disk");
        let mut shows = self.nodes[parent].shows.clone();
        let mut command = Command::new("qemu-io");
        command.args(["-f", "qcow2"]);
        for _ in 0..self.lot.below(6) {
            let (unit, longest) = if self.lot.one_in(3) { (512, 64) } else { (4096, 60) };
            let at = self.lot.below(SIZE / unit) * unit;
            let length = ((1 + self.lot.below(longest)) * unit).min(SIZE - at);
            let byte = u8::try_from(self.lot.below(256)).expect("a byte");
            let (byte, verb) = match self.lot.below(5) {
                0 => (0, "write -z".to_owned()),
                1 => (0, "write -z -u".to_owned()),
                _ => (byte, format!("write -P {byte}")),
            };
            shows[at..at + length].fill(byte);
            command.args(["-c", &format!("{verb} {at} {length}")]);
        }
        let written = command.args(["-c", "flush"]).arg(&volume.0).output().expect("qemu-io");
        assert!(written.status.success(), "{written:?}");
        self.pool.ensure_successor(from, id, to).await.expect("a successor");
        self.pool.seal_layer(id, from).await.expect("sealed");
        self.pool.remove_disk(to).await.expect("removed");
        let wanted = !self.lot.one_in(3);
        self.nodes.push(Node { id, parent: Some(parent), shows, wanted, gone: false });
    }

    fn lineage(&self, mut node: usize) -> Vec<usize> {
        let mut below = Vec::new();
        while let Some(parent) = self.nodes[node].parent {
            below.push(parent);
            node = parent;
        }
        below
    }

    /// Merges a layer onto one below it, with kills on the way.
    async fn merge(&mut self, node: usize, onto: usize) {
        let (id, below) = (self.nodes[node].id, self.nodes[onto].id);
        let facts = loop {
            let most = [1, 4096, 200_000, u64::MAX][self.lot.below(4)];
            match self.pool.merge_layer(id, below, most).await.expect("merged") {
                Merging::Ready(facts) => break facts,
                Merging::UnderWay(_) if self.lot.one_in(40) => self.kill(),
                Merging::UnderWay(_) => {}
            }
        };
        let again = self.pool.merge_layer(id, below, 1).await.expect("merged");
        assert_eq!(again, Merging::Ready(facts.clone()));
        let named = |kind: &str| self.folder.path().join(format!("pool/layers/{id}.{kind}"));
        let facts = match self.lot.below(5) {
            // Before it was recorded that the file is whole.
            0 => {
                fs::remove_file(named("merged.json")).expect("removed");
                self.kill();
                self.merged(id, below).await
            }
            // Given up, and thought better of.
            1 => {
                self.pool.abandon_merge(id).await.expect("abandoned");
                self.merged(id, below).await
            }
            // Between its two names.
            2 => {
                fs::rename(named("merged"), named("qcow2")).expect("renamed");
                self.kill();
                let refused = self.pool.abandon_merge(id).await.expect_err("too late");
                assert_eq!((refused.code, refused.retry), ("merge_in_place", Retry::Never));
                assert_eq!(self.merged(id, below).await, facts);
                facts
            }
            3 => {
                self.kill();
                facts
            }
            _ => facts,
        };
        let replaced = self.pool.replace_layer(id, &facts.digest).await.expect("replaced");
        assert_eq!(replaced, facts);
        self.kill();
        assert_eq!(self.pool.replace_layer(id, &facts.digest).await.expect("replaced"), facts);
        assert_eq!(self.merged(id, below).await, facts);
        let sound = self.pool.verify_layer(id, &facts.digest).await.expect("looked at");
        assert_eq!(sound, Integrity::Sound);
        assert_eq!(self.pool.glance_at_layer(id, &facts.digest).await.expect("looked at"), Integrity::Sound);
        let checked = Command::new("qemu-img").arg("check").arg(self.file(id)).output().expect("qemu-img");
        assert!(checked.status.success(), "{checked:?}");
        self.nodes[node].parent = Some(onto);
    }

    async fn merged(&self, layer: LayerId, onto: LayerId) -> LayerFacts {
        match self.pool.merge_layer(layer, onto, u64::MAX).await.expect("merged") {
            Merging::Ready(facts) => facts,
            Merging::UnderWay(_) => panic!("all at once"),
        }
    }

    /// What nothing stands on goes.
    async fn clean(&mut self) {
        loop {
            let below: BTreeSet<usize> =
                self.nodes.iter().filter(|node| !node.gone).filter_map(|node| node.parent).collect();
            let loose = (0..self.nodes.len()).find(|at| {
                let node = &self.nodes[*at];
                !node.gone && !node.wanted && !below.contains(at)
            });
            let Some(loose) = loose else { return };
            self.pool.remove_layer(self.nodes[loose].id).await.expect("removed");
            self.nodes[loose].gone = true;
        }
    }

    async fn is_whole(&self, seed: u64) {
        let expected = self.folder.path().join("expected.raw");
        for node in self.nodes.iter().filter(|node| node.wanted) {
            fs::write(&expected, &node.shows).expect("written");
            let mut compare = Command::new("qemu-img");
            compare.args(["compare", "-f", "raw"]).arg(&expected).arg(self.file(node.id));
            let compared = compare.output().expect("qemu-img");
            assert!(compared.status.success(), "tree {seed}, {}: {compared:?}", node.id);
        }
        let listed = self.pool.list().await.expect("listed");
        assert_eq!((listed.strangers, listed.merged), (vec![], vec![]), "tree {seed}");
        let parents = listed.layers.iter().map(|layer| (layer.id, layer.parent)).collect::<BTreeSet<_>>();
        let left = self.nodes.iter().filter(|node| !node.gone);
        let ours = left.map(|node| (node.id, node.parent.map(|parent| self.nodes[parent].id)));
        assert_eq!(parents, ours.collect(), "tree {seed}");
    }
}

async fn try_tree(seed: u64) -> usize {
    let mut tree = Tree::new(seed).await;
    for _ in 0..3 + tree.lot.below(5) {
        // Mostly one after another, now and then a branch.
        let last = tree.nodes.len() - 1;
        let parent = if tree.lot.one_in(4) { tree.lot.below(last + 1) } else { last };
        tree.grow(parent).await;
    }
    let mut merges = 0;
    // From the top down, from the bottom up, or as it comes.
    let mut order: Vec<usize> = (0..tree.nodes.len()).collect();
    match tree.lot.below(3) {
        0 => order.reverse(),
        1 => order.sort_by_key(|at| (at * 7 + seed as usize) % 5),
        _ => {}
    }
    for node in order {
        let below = tree.lineage(node);
        if below.len() < 2 || tree.nodes[node].gone || tree.lot.one_in(3) {
            continue;
        }
        let onto = below[1 + tree.lot.below(below.len() - 1)];
        tree.merge(node, onto).await;
        merges += 1;
        if tree.lot.one_in(2) {
            tree.clean().await;
        }
        if !tree.nodes[node].gone && tree.lot.one_in(4) {
            tree.grow(node).await;
        }
    }
    tree.clean().await;
    tree.is_whole(seed).await;
    merges
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_merged_in_whatever_order_every_layer_that_is_left_shows_what_it_did() {
    let trees: u64 = if std::env::var_os("TEST_LONG").is_some() { 500 } else { 60 };
    let halves = [0, 1].map(|half| {
        tokio::spawn(async move {
            let mut merges = 0;
            for seed in (half..trees).step_by(2) {
                merges += try_tree(seed).await;
            }
            merges
        })
    });
    let mut merges = 0;
    for half in halves {
        merges += half.await.expect("no panic");
    }
    assert!(merges as u64 > trees, "only {merges} merges");
}

/// A chain of so many captures of devices, each of which wrote its part; the base first.
async fn chain(tree: &mut Tree, length: usize) {
    for _ in 0..length {
        let last = tree.nodes.len() - 1;
        tree.grow(last).await;
        tree.nodes[last + 1].wanted = true;
    }
}

#[tokio::test]
async fn no_more_is_written_than_lives() {
    let tree = Tree::new(7).await;
    // Each writes half of what the one before it wrote anew.
    let (id, length) = (tree.nodes[0].id, 24usize);
    let mut below = id;
    for number in 0..length {
        let (from, captured, to) = (disk(), layer(), disk());
        let volume = tree.pool.ensure_disk(from, below).await.expect("a disk");
        let write = format!("write -P {} {}k 512k", number + 1, number * 64);
        let written = Command::new("qemu-io")
            .args(["-f", "qcow2", "-c", &write])
            .arg(&volume.0)
            .output()
            .expect("qemu-io");
        assert!(written.status.success(), "{written:?}");
        tree.pool.ensure_successor(from, captured, to).await.expect("a successor");
        tree.pool.seal_layer(captured, from).await.expect("sealed");
        below = captured;
    }
    let live = ((length - 1) * 64 + 512) << 10;

    let facts = tree.merged(below, id).await;
    tree.pool.replace_layer(below, &facts.digest).await.expect("replaced");

    let taken = fs::metadata(tree.file(below)).expect("a file").blocks() * 512;
    assert!(taken as f64 <= live as f64 * 1.1, "{taken} bytes for {live}");
    assert_eq!(facts.allocated_bytes, i64::try_from(taken).expect("small"));
}

#[tokio::test]
async fn bytes_that_somebody_has_changed_are_not_merged() {
    let mut tree = Tree::new(8).await;
    chain(&mut tree, 3).await;
    let (top, base) = (tree.nodes[3].id, tree.nodes[0].id);
    let path = tree.file(tree.nodes[2].id);
    let mut mode = fs::metadata(&path).expect("a file").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o644);
    fs::set_permissions(&path, mode).expect("allowed");
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.write_all_at(b"x", fs::metadata(&path).expect("a file").len() - 1).expect("written");

    let refused = tree.pool.merge_layer(top, base, u64::MAX).await.expect_err("altered");

    assert_eq!((refused.code, refused.retry), ("layer_altered", Retry::Never), "{refused}");
    let left = fs::read_dir(tree.folder.path().join("pool/layers")).expect("a folder");
    let left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left.len(), 8, "{left:?}");
}

#[tokio::test]
async fn whoever_has_a_layer_open_goes_on_with_what_was_there() {
    let mut tree = Tree::new(9).await;
    chain(&mut tree, 4).await;
    let (top, base) = (tree.nodes[4].id, tree.nodes[0].id);
    let standing = tree.pool.ensure_disk(disk(), top).await.expect("a disk");
    let expected = tree.folder.path().join("expected.raw");
    fs::write(&expected, &tree.nodes[4].shows).expect("written");
    // Opens everything at once, waits, and then compares what it has open with what was written.
    let socket = tree.folder.path().parent().expect("a folder").join("nbd");
    let mut server = Command::new("qemu-nbd");
    server.args(["-r", "-t", "-k"]).arg(&socket).args(["-f", "qcow2"]).arg(&standing.0);
    let mut server = server.spawn().expect("qemu-nbd");
    while !socket.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }

    let facts = tree.merged(top, base).await;
    tree.pool.replace_layer(top, &facts.digest).await.expect("replaced");
    for node in [3, 2, 1] {
        tree.pool.remove_layer(tree.nodes[node].id).await.expect("removed");
    }

    let address = format!("nbd+unix:///?socket={}", socket.display());
    for image in [address.as_str(), &standing.0] {
        let compared = Command::new("qemu-img").args(["compare", "-U"]).arg(&expected).arg(image).output();
        let compared = compared.expect("qemu-img");
        assert!(compared.status.success(), "{image}: {compared:?}");
    }
    server.kill().expect("ended");
    server.wait().expect("ended");
}
