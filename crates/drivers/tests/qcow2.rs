//! The qcow2 pool as QEMU's own tools see it, and against files that mean harm.

mod world;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::disk_pools::qcow2::format::{Backing, Overlay};
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource, Volume};
use paddock_model::layers::LayerId;
use rustix::fs::inotify;
use world::{Folder, SmallDisk, disk, images, layer};

fn tool(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?} {}: {output:?}", file.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn qemu_img(arguments: &[&str], file: &Path) -> String {
    tool("qemu-img", arguments, file)
}

fn equal(one: &Path, other: &Path) {
    let compared = Command::new("qemu-img").arg("compare").arg(one).arg(other).output().expect("qemu-img");
    assert!(compared.status.success(), "{compared:?}");
}

fn number_in(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

struct World {
    folder: Folder,
    pool: Qcow2Pool,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let pool = Qcow2Pool::open("local", &folder.path().join("pool")).expect("a pool");
        World { folder, pool }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn layer_file(&self, id: LayerId) -> PathBuf {
        self.path(&format!("pool/layers/{id}.qcow2"))
    }

    fn image(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        let mut arguments = vec!["create", "-q", "-f", "qcow2"];
        arguments.extend(options);
        let output =
            Command::new("qemu-img").args(&arguments).arg(&path).arg("8M").output().expect("qemu-img");
        assert!(output.status.success(), "{output:?}");
        path
    }

    async fn refusal(&self, path: &Path) -> String {
        let refused = self.pool.ensure_layer(layer(), &LayerSource::File(path.to_owned())).await;
        let refused = refused.expect_err("refused");
        assert_eq!((refused.code, refused.retry), ("image_refused", Retry::Never), "{refused}");
        let left: Vec<_> = fs::read_dir(self.path("pool/layers")).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        refused.message
    }
}

#[tokio::test]
async fn qemu_s_own_tools_find_nothing_wrong_with_a_disk() {
    let world = World::new();
    let (below, id) = (layer(), disk());
    let source = images().join("phone.qcow2");

    world.pool.ensure_layer(below, &LayerSource::File(source.clone())).await.expect("taken");
    let volume = world.pool.ensure_disk(id, below).await.expect("made");

    let path = Path::new(&volume.0);
    assert!(qemu_img(&["check"], path).contains("No errors were found"));
    let chain = qemu_img(&["info", "--backing-chain"], path);
    for expected in
        ["virtual size: 2 GiB", "cluster_size: 131072", "extended l2: true", "backing file format: qcow2"]
    {
        assert!(chain.contains(expected), "{expected}: {chain}");
    }
    assert!(chain.contains(&format!("backing file: ../layers/{below}.qcow2")), "{chain}");
    equal(path, &source);
    assert_eq!(fs::metadata(world.layer_file(below)).expect("a layer").permissions().mode() & 0o777, 0o444);
    assert_eq!(fs::metadata(path).expect("a disk").permissions().mode() & 0o777, 0o600);

    // Written to by QEMU it stays sound, and the layer below is not touched.
    let before = fs::read(world.layer_file(below)).expect("a layer");
    tool("qemu-io", &["-f", "qcow2", "-c", "write -P 7 1G 1M", "-c", "write -P 8 4k 4k"], path);
    tool("qemu-io", &["-f", "qcow2", "-c", "read -P 7 1G 1M", "-c", "read -P 8 4k 4k"], path);
    assert!(qemu_img(&["check"], path).contains("No errors were found"));
    assert!(fs::read(world.layer_file(below)).expect("a layer") == before);
}

#[tokio::test]
async fn disks_of_any_size_are_sound() {
    let folder = Folder::new();
    let below = Backing { name: "below.raw".to_owned(), format: Some("raw".to_owned()) };
    fs::File::create(folder.path().join("below.raw")).expect("a file").set_len(1 << 20).expect("a length");
    for virtual_bytes in [512, 1 << 20, (1 << 30) + 512, 3 << 40, 1 << 50] {
        let overlay = Overlay::new(virtual_bytes, &below).expect("an overlay");
        let path = folder.path().join("disk.qcow2");
        let file = fs::File::create(&path).expect("a file");
        file.set_len(overlay.file_bytes).expect("a length");
        for (offset, bytes) in &overlay.pieces {
            file.write_all_at(bytes, *offset).expect("written");
        }

        assert!(qemu_img(&["check"], &path).contains("No errors were found"), "{virtual_bytes}");
        let info = qemu_img(&["info", "--output=json"], &path);
        assert!(info.contains(&format!("\"virtual-size\": {virtual_bytes}")), "{info}");
        let last = format!("write -P 9 {} 512", virtual_bytes - 512);
        tool("qemu-io", &["-f", "qcow2", "-c", &last], &path);
        assert!(qemu_img(&["check"], &path).contains("No errors were found"), "{virtual_bytes}, written");
    }
}

#[tokio::test]
async fn a_raw_disk_becomes_a_layer_and_takes_no_room_for_its_holes() {
    let world = World::new();
    let (path, below) = (world.path("raw.img"), layer());
    let file = fs::File::create(&path).expect("a file");
    file.set_len(256 << 20).expect("a length");
    file.write_all_at(b"in the middle", 100 << 20).expect("written");

    let facts = world.pool.ensure_layer(below, &LayerSource::File(path.clone())).await.expect("taken");
    let volume = world.pool.ensure_disk(disk(), below).await.expect("made");

    assert_eq!(facts.virtual_bytes, 256 << 20);
    assert!(facts.allocated_bytes < 1 << 20, "{facts:?}");
    assert_eq!(facts.digest, tool("sha256sum", &[], &path).trim_start_matches('\\')[..64]);
    assert_eq!(world.pool.verify_layer(below, &facts.digest).await.expect("looked at"), Integrity::Sound);
    equal(Path::new(&volume.0), &path);
    assert_eq!(world.pool.list().await.expect("listed").disks[0].on, below);
}

/// A device may write to the beginning of its disk what it likes: to bring that back makes no other kind of file of it.
#[tokio::test]
async fn what_a_device_saw_is_a_disk_whatever_it_begins_with() {
    let world = World::new();
    let image = fs::read(world.image("within", &[])).expect("an image");
    for beginning in [&image[..], b"LUKS\xba\xbe", b"PK\x03\x04", b"QFI\xfb"] {
        let (id, mut bytes) = (layer(), vec![0; 1 << 20]);
        bytes[..beginning.len()].copy_from_slice(beginning);
        let digest = world.pool.receive(id, &mut &bytes[..], 1 << 30, None).await.expect("received");

        let source = LayerSource::Received { digest, disk: true };
        let facts = world.pool.ensure_layer(id, &source).await.expect("taken");
        let volume = world.pool.ensure_disk(disk(), id).await.expect("made");

        assert_eq!(facts.virtual_bytes, 1 << 20);
        let path = world.path("expected.img");
        fs::write(&path, &bytes).expect("written");
        let mut compare = Command::new("qemu-img");
        compare.args(["compare", "-f", "qcow2", "-F", "raw", &volume.0]).arg(&path);
        assert!(compare.output().expect("qemu-img").status.success());
    }
}

#[tokio::test]
async fn images_of_every_plain_kind_are_taken() {
    let world = World::new();
    for options in [
        ["-o", "compat=0.10"],
        ["-o", "cluster_size=4k"],
        ["-o", "extended_l2=on"],
        ["-o", "compression_type=zstd"],
        ["-o", "preallocation=metadata"],
        ["-o", "lazy_refcounts=on"],
    ] {
        let path = world.image("plain.qcow2", &options);
        tool("qemu-io", &["-f", "qcow2", "-c", "write -P 3 1M 1M"], &path);
        // What has its place already cannot be compressed.
        if options[1] != "preallocation=metadata" {
            tool("qemu-io", &["-f", "qcow2", "-c", "write -c -P 4 4M 64k"], &path);
        }
        let below = layer();

        let facts = world.pool.ensure_layer(below, &LayerSource::File(path.clone())).await;
        let facts = facts.unwrap_or_else(|error| panic!("{options:?}: {error}"));

        assert_eq!(facts.digest, tool("sha256sum", &[], &path).trim_start_matches('\\')[..64]);
        let volume = world.pool.ensure_disk(disk(), below).await.expect("made");
        equal(Path::new(&volume.0), &path);
    }
}

#[tokio::test]
async fn a_file_that_would_open_another_or_is_broken_is_refused() {
    let world = World::new();
    let secret = world.path("secret");
    fs::write(&secret, [b'x'; 512]).expect("written");
    let secret = secret.display().to_string().replace(',', ",,");

    let backed = world.image("backed.qcow2", &["-u", "-b", "secret", "-F", "raw"]);
    assert!(world.refusal(&backed).await.contains("stands on another file"));
    let external = world.image("external.qcow2", &["-o", &format!("data_file={secret}.data")]);
    assert!(world.refusal(&external).await.contains("in another file"));
    let encrypted = world.image(
        "encrypted.qcow2",
        &[
            "--object",
            "secret,id=k,data=abc",
            "-o",
            "encrypt.format=luks,encrypt.key-secret=k,encrypt.iter-time=10",
        ],
    );
    assert!(world.refusal(&encrypted).await.contains("encrypted"));
    let old = world.path("old.qcow");
    assert!(
        Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow"])
            .arg(&old)
            .arg("8M")
            .status()
            .expect("ran")
            .success()
    );
    assert!(world.refusal(&old).await.contains("version 1"));
    let other = world.path("other.vmdk");
    assert!(
        Command::new("qemu-img")
            .args(["create", "-q", "-f", "vmdk"])
            .arg(&other)
            .arg("8M")
            .status()
            .expect("ran")
            .success()
    );
    assert!(world.refusal(&other).await.contains("VMDK"));

    let good = world.image("good.qcow2", &[]);
    tool("qemu-io", &["-f", "qcow2", "-c", "write 0 4M"], &good);
    let bytes = fs::read(&good).expect("a file");
    let damaged = world.path("damaged.qcow2");
    let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let l1 = usize::try_from(number(40)).expect("an offset");
    let l2 = usize::try_from(number(l1) & 0x00ff_ffff_ffff_fe00).expect("an offset");
    for (reason, change) in [
        (
            "outside the file",
            Box::new(|bytes: &mut Vec<u8>| bytes.truncate(1 << 20)) as Box<dyn Fn(&mut Vec<u8>)>,
        ),
        ("cut off", Box::new(|bytes: &mut Vec<u8>| bytes.truncate(50))),
        (
            "overlaps",
            Box::new(move |bytes: &mut Vec<u8>| {
                bytes[l1..l1 + 8].copy_from_slice(&(l1 as u64).to_be_bytes());
            }),
        ),
        (
            "in a table",
            Box::new(move |bytes: &mut Vec<u8>| {
                bytes[l2..l2 + 8].copy_from_slice(&(l2 as u64).to_be_bytes());
            }),
        ),
        (
            "outside the file",
            Box::new(move |bytes: &mut Vec<u8>| {
                bytes[l2..l2 + 8].copy_from_slice(&(1u64 << 40).to_be_bytes());
            }),
        ),
        ("not a", Box::new(|bytes: &mut Vec<u8>| bytes[20..24].fill(0))),
        // The refcount table within the data, and a table that names itself.
        (
            "in a table",
            Box::new(move |bytes: &mut Vec<u8>| {
                let data = number_in(bytes, l2) & 0x00ff_ffff_ffff_fe00;
                let [table, at] =
                    [number_in(bytes, 48), data].map(|at| usize::try_from(at).expect("an offset"));
                bytes.copy_within(table..table + 65536, at);
                bytes[48..56].copy_from_slice(&data.to_be_bytes());
            }),
        ),
        (
            "overlaps",
            Box::new(move |bytes: &mut Vec<u8>| {
                let table = number_in(bytes, 48);
                let at = usize::try_from(table).expect("an offset");
                bytes[at..at + 8].copy_from_slice(&table.to_be_bytes());
            }),
        ),
        // Two pieces of the disk in one place, which the refcounts deny; and refcounts that know of nothing.
        (
            "used 2 times",
            Box::new(move |bytes: &mut Vec<u8>| {
                let first = number_in(bytes, l2).to_be_bytes();
                bytes[l2 + 8..l2 + 16].copy_from_slice(&first);
            }),
        ),
        (
            "its flag says otherwise",
            Box::new(move |bytes: &mut Vec<u8>| {
                let block = number_in(bytes, usize::try_from(number_in(bytes, 48)).expect("an offset"));
                let block = usize::try_from(block).expect("an offset");
                bytes[block..block + 65536].fill(0);
            }),
        ),
        (
            "more than the",
            Box::new(move |bytes: &mut Vec<u8>| bytes[24..32].copy_from_slice(&(1u64 << 60).to_be_bytes())),
        ),
        ("L1 table of", Box::new(move |bytes: &mut Vec<u8>| bytes[36..40].fill(0xff))),
        ("refcounts of 2^255", Box::new(move |bytes: &mut Vec<u8>| bytes[99] = 255)),
    ] {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(&damaged, &bytes).expect("written");
        let refusal = world.refusal(&damaged).await;
        assert!(
            refusal.contains(reason) || reason == "not a" && refusal.contains("not possible"),
            "{reason}: {refusal}"
        );
    }
    assert!(world.refusal(&world.folder.path()).await.contains("no file"));
    let pipe = world.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("ran").success());
    assert!(world.refusal(&pipe).await.contains("no file"));
    let missing = world.pool.ensure_layer(layer(), &LayerSource::File(world.path("absent"))).await;
    assert_eq!(missing.expect_err("absent").code, "image_missing");
}

/// Tells of every opening of a file.
struct Watched(rustix::fd::OwnedFd);

impl Watched {
    fn new(path: &Path) -> Watched {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).expect("a watch");
        inotify::add_watch(&watch, path, inotify::WatchFlags::OPEN).expect("watched");
        Watched(watch)
    }

    fn was_opened(&self) -> bool {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&self.0, &mut buffer).next().is_ok()
    }
}

#[tokio::test]
async fn nothing_that_an_image_names_is_ever_opened() {
    let world = World::new();
    let secret = world.path("secret");
    fs::write(&secret, [b'x'; 1 << 16]).expect("written");
    let name = secret.display().to_string();
    let watched = Watched::new(&secret);
    fs::read(&secret).expect("read");
    assert!(watched.was_opened(), "the watch sees what is opened");
    let named = |bytes: &mut Vec<u8>, format: Option<&str>| {
        // At the end of the first cluster, and before it the format's extension.
        let offset = 4096 - name.len();
        bytes[offset..4096].copy_from_slice(name.as_bytes());
        bytes[8..16].copy_from_slice(&(offset as u64).to_be_bytes());
        bytes[16..20].copy_from_slice(&(name.len() as u32).to_be_bytes());
        if let Some(format) = format {
            bytes[112..116].copy_from_slice(&0xe279_2acau32.to_be_bytes());
            bytes[116..120].copy_from_slice(&(format.len() as u32).to_be_bytes());
            bytes[120..120 + format.len()].copy_from_slice(format.as_bytes());
            bytes[120 + format.len()..136].fill(0);
        }
    };
    let data_file = |bytes: &mut Vec<u8>, bits: u8| {
        bytes[79] |= bits;
        bytes[112..116].copy_from_slice(&0x4441_5441u32.to_be_bytes());
        bytes[116..120].copy_from_slice(&(name.len() as u32).to_be_bytes());
        bytes[120..120 + name.len()].copy_from_slice(name.as_bytes());
        bytes[120 + name.len()..1024].fill(0);
    };
    let good = world.image("good.qcow2", &[]);
    tool("qemu-io", &["-f", "qcow2", "-c", "write 0 1M"], &good);
    let good = fs::read(&good).expect("a file");
    let qcow2 = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let text = |text: String| {
        let mut bytes = text.into_bytes();
        bytes.resize(1 << 16, 0);
        bytes
    };
    let extent = format!(
        "version=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 128 FLAT \"{name}\" 0\n"
    );
    // What it is called, its bytes, and whether it is taken, as the plain bytes that it is.
    let images = [
        ("a backing file without format", qcow2(&|bytes| named(bytes, None)), false),
        ("a raw backing file", qcow2(&|bytes| named(bytes, Some("raw"))), false),
        ("a qcow2 backing file", qcow2(&|bytes| named(bytes, Some("qcow2"))), false),
        ("a data file", qcow2(&|bytes| data_file(bytes, 1 << 2)), false),
        ("a data file without its bit", qcow2(&|bytes| data_file(bytes, 0)), false),
        (
            "a name behind what is looked at",
            qcow2(&|bytes| {
                // Extensions that nobody knows, up to exactly the end of what is read.
                bytes[112..116].copy_from_slice(&7u32.to_be_bytes());
                bytes[116..120].copy_from_slice(&(4096u32 - 120).to_be_bytes());
                bytes[79] |= 1 << 2;
                bytes[4096..4100].copy_from_slice(&0x4441_5441u32.to_be_bytes());
                bytes[4100..4104].copy_from_slice(&(name.len() as u32).to_be_bytes());
                bytes[4104..4104 + name.len()].copy_from_slice(name.as_bytes());
            }),
            false,
        ),
        ("a VMDK of text", text(format!("# Disk DescriptorFile\n{extent}")), false),
        // QEMU would take this for VMDK too, if it were left to guess.
        ("a VMDK that begins with a line of its own", text(format!("\n# a disk\n{extent}")), true),
        ("a qcow2 in a raw disk", [vec![0; 512], qcow2(&|bytes| named(bytes, None))].concat(), true),
        ("a word that QEMU knows", text(format!("json:{{\"driver\":\"file\",\"filename\":{name:?}}}")), true),
    ];
    for (what, bytes, taken) in images {
        let path = world.path("hostile.img");
        fs::write(&path, &bytes).expect("written");
        let below = layer();

        let facts = world.pool.ensure_layer(below, &LayerSource::File(path.clone())).await;

        assert_eq!(facts.is_ok(), taken, "{what}: {facts:?}");
        if let Err(refused) = &facts {
            assert_eq!((refused.code, refused.retry), ("image_refused", Retry::Never), "{what}");
        } else {
            let volume = world.pool.ensure_disk(disk(), below).await.expect("made");
            let volume = Path::new(&volume.0);
            let chain = qemu_img(&["info", "--backing-chain"], volume);
            assert!(chain.contains("backing file format: raw"), "{what}: {chain}");
            // As a device would read it: nothing but the bytes that came in.
            let plain = world.path("plain");
            let arguments = ["convert", "-f", "qcow2", "-O", "raw"];
            let read = Command::new("qemu-img").args(arguments).args([volume, &plain]).output().expect("ran");
            assert!(read.status.success(), "{what}: {read:?}");
            assert!(fs::read(&plain).expect("read") == bytes, "{what}");
        }
        assert!(!watched.was_opened(), "{what}");
    }
}

/// The same numbers in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("small")
    }
}

/// 2,000 changed images, or with TEST_LONG ten times as many.
#[tokio::test]
async fn whatever_is_done_to_an_image_it_is_refused_or_sound() {
    let world = World::new();
    let kinds: [(&[&str], &[&str]); 4] = [
        (&[], &["write -P 3 0 1M", "write -c -P 4 2M 64k", "write -z 3M 1M"]),
        (
            &["-o", "extended_l2=on,cluster_size=64k"],
            &["write -P 3 0 1M", "write -z 4k 4k", "discard 64k 64k"],
        ),
        (&["-o", "cluster_size=4k,refcount_bits=1"], &["write -P 3 0 1M"]),
        (&["-o", "compat=0.10,cluster_size=512"], &["write -P 3 0 256k", "write -c -P 4 4M 512"]),
    ];
    let rounds = if std::env::var_os("TEST_LONG").is_some() { 5000 } else { 500 };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (mut taken, mut refused) = (0, 0);
    for (options, commands) in kinds {
        let original = world.image("original.qcow2", options);
        for command in commands {
            tool("qemu-io", &["-f", "qcow2", "-c", command], &original);
        }
        let bytes = fs::read(&original).expect("a file");
        let number = |at: u64| {
            let at = usize::try_from(at).expect("small");
            u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let (l1, refcount_table) = (number(40), number(48));
        let l2 = number(l1) & 0x00ff_ffff_ffff_fe00;
        let places = [0, l1, refcount_table, number(refcount_table), l2];
        let path = world.path("changed.qcow2");
        for round in 0..rounds {
            let mut changed = bytes.clone();
            for _ in 0..=dice.below(3) {
                let place = usize::try_from(places[dice.below(places.len())]).expect("small");
                let at = (place + dice.below(160)).min(bytes.len() - 8);
                match dice.below(5) {
                    0 => changed[at] ^= 1 << dice.below(8),
                    1 => changed[at] = dice.next().to_be_bytes()[0],
                    // A pointer to a table, with or without its flags; or to anywhere.
                    2 => {
                        let target = places[dice.below(places.len())] | (dice.next() & 3) << 62;
                        changed[at & !7..][..8].copy_from_slice(&target.to_be_bytes());
                    }
                    3 => changed[at & !7..][..8]
                        .copy_from_slice(&(dice.next() >> dice.below(64)).to_be_bytes()),
                    _ => {
                        let from = dice.below(bytes.len() - 8) & !7;
                        changed[at & !7..][..8].copy_from_slice(&bytes[from..from + 8]);
                    }
                }
            }
            if dice.below(20) == 0 {
                changed.truncate(dice.below(bytes.len()));
            }
            fs::write(&path, &changed).expect("written");
            let below = layer();

            match world.pool.ensure_layer(below, &LayerSource::File(path.clone())).await {
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.code, "image_refused", "{options:?} {round}: {error}");
                }
                // What has lost its first bytes is a raw disk like any other.
                Ok(_) if !world.layer_file(below).exists() => taken += 1,
                Ok(_) => {
                    taken += 1;
                    let layer_file = world.layer_file(below);
                    // No file below, and none for the data, by the words of the format's description.
                    assert_eq!(number_in(&changed, 8), 0, "{options:?} {round}");
                    assert!(changed[7] == 2 || changed[79] & 1 << 2 == 0, "{options:?} {round}");
                    let checked = Command::new("qemu-img")
                        .args(["check", "-f", "qcow2"])
                        .arg(&layer_file)
                        .output()
                        .expect("qemu-img");
                    // 3 stands for room that is taken in vain.
                    let code = checked.status.code();
                    assert!(matches!(code, Some(0 | 3)), "{options:?} {round}: {checked:?}");
                }
            }
            world.pool.remove_layer(below).await.expect("removed");
        }
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 50 && refused > 1000, "{taken} taken, {refused} refused");
}

#[tokio::test]
async fn an_altered_and_a_broken_layer_are_told_apart() {
    let world = World::new();
    let id = layer();
    let facts =
        world.pool.ensure_layer(id, &LayerSource::File(images().join("phone.qcow2"))).await.expect("taken");
    let path = world.layer_file(id);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    let open = world.pool.glance_at_layer(id, &facts.digest).await.expect("looked at");
    assert!(matches!(&open, Integrity::Broken(how) if how.contains("600")), "{open:?}");
    let length = fs::metadata(&path).expect("a file").len();
    let file = fs::File::options().write(true).open(&path).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("a mode");

    file.write_all_at(b"x", length - 1).expect("written");
    assert_eq!(world.pool.verify_layer(id, &facts.digest).await.expect("looked at"), Integrity::Altered);
    file.set_len(1 << 20).expect("cut off");
    assert_eq!(world.pool.glance_at_layer(id, &facts.digest).await.expect("looked at"), Integrity::Altered);
    let broken = world.pool.verify_layer(id, &facts.digest).await.expect("looked at");
    assert!(matches!(&broken, Integrity::Broken(how) if how.contains("outside the file")), "{broken:?}");
}

#[tokio::test]
async fn a_byte_that_somebody_writes_into_a_captured_layer_is_noticed() {
    let world = World::new();
    let (below, first, captured, second) = (layer(), disk(), layer(), disk());
    let source = LayerSource::File(images().join("phone.qcow2"));
    world.pool.ensure_layer(below, &source).await.expect("taken");
    let volume = world.pool.ensure_disk(first, below).await.expect("made");
    tool("qemu-io", &["-f", "qcow2", "-c", "write -P 7 1G 1M"], Path::new(&volume.0));
    let next = world.pool.ensure_successor(first, captured, second).await.expect("made");
    let facts = world.pool.seal_layer(captured, first).await.expect("sealed");
    tool("qemu-io", &["-f", "qcow2", "-c", "write -P 8 1G 4k"], Path::new(&next.0));
    let verify = async || world.pool.verify_layer(captured, &facts.digest).await.expect("looked at");
    assert_eq!(verify().await, Integrity::Sound, "its successor is another file");

    let path = world.layer_file(captured);
    let at = fs::read(&path).expect("a layer").windows(64).position(|bytes| bytes == [7; 64]);
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.write_all_at(b"x", at.expect("data") as u64).expect("written");

    assert!(qemu_img(&["check"], &path).contains("No errors were found"), "QEMU itself sees nothing");
    assert_eq!(verify().await, Integrity::Altered);
}

#[tokio::test]
async fn a_pool_has_one_name_for_a_disk_however_its_folder_was_called() {
    let world = World::new();
    let (below, id) = (layer(), disk());
    let source = LayerSource::File(images().join("phone.qcow2"));
    world.pool.ensure_layer(below, &source).await.expect("taken");
    let volume = world.pool.ensure_disk(id, below).await.expect("made");
    let link = world.path("link");
    std::os::unix::fs::symlink(world.path("pool"), &link).expect("a link");

    let pool = Qcow2Pool::open("local", &link).expect("a pool");

    assert_eq!(pool.ensure_disk(id, below).await.expect("there"), volume);
}

#[tokio::test]
async fn what_a_kill_or_a_power_cut_left_is_swept_or_finished() {
    let world = World::new();
    let (below, id, other) = (layer(), disk(), disk());
    world.pool.ensure_layer(below, &LayerSource::File(images().join("phone.qcow2"))).await.expect("taken");
    let volume = world.pool.ensure_disk(id, below).await.expect("made");
    let path = Path::new(&volume.0);
    let whole = fs::read(path).expect("a disk");
    let ours = world.path(&format!("pool/disks/.{other}.77-0.tmp"));
    let foreign = world.path("pool/disks/.somebody.tmp");
    for file in [&ours, &foreign] {
        fs::write(file, "x").expect("written");
    }

    let pool = Qcow2Pool::open("local", &world.path("pool")).expect("a pool");
    assert!(!ours.exists() && foreign.exists());
    assert_eq!(pool.list().await.expect("listed").strangers, ["disks/.somebody.tmp"]);

    // Named, but not every page came to the disk: nobody can have written to it.
    let torn =
        [Vec::new(), vec![0; whole.len()], [&[0; 4096], &whole[4096..]].concat(), whole[..100].to_vec()];
    for bytes in torn {
        fs::write(path, &bytes).expect("written");
        assert_eq!(pool.ensure_disk(id, below).await.expect("finished"), volume);
        assert!(fs::read(path).expect("a disk") == whole);
    }
    // A disk that holds anything else is never made anew.
    let mut damaged = whole.clone();
    damaged[..8].fill(0);
    damaged.extend_from_slice(b"of a device");
    fs::write(path, &damaged).expect("written");
    assert_eq!(pool.ensure_disk(id, below).await.expect_err("damaged").code, "disk_damaged");
    assert!(fs::read(path).expect("a disk") == damaged);
    assert_eq!(
        pool.list().await.expect("listed").strangers.len(),
        2,
        "a disk without a header is a stranger"
    );
}

/// Everything in the pool by name: its bytes, and whether it may be written.
fn everything(world: &World) -> BTreeMap<String, (Vec<u8>, bool)> {
    let files = ["layers", "disks"].into_iter().flat_map(|folder| {
        fs::read_dir(world.path("pool").join(folder)).expect("a folder").map(move |entry| (folder, entry))
    });
    let files = files.map(|(folder, entry)| {
        let path = entry.expect("an entry").path();
        let writable = fs::metadata(&path).expect("a file").permissions().mode() & 0o222 != 0;
        let name = format!("{folder}/{}", path.file_name().expect("a name").to_string_lossy());
        (name, (fs::read(path).expect("a file"), writable))
    });
    files.collect()
}

#[tokio::test]
async fn whatever_a_kill_leaves_of_a_capture_is_finished_by_the_next_try() {
    // How far the first try came: the verb, then what of it was done.
    for state in [
        "linked",
        "linked, disk prepared",
        "linked, disk named but not written",
        "made",
        "read-only",
        "recorded",
        "disk's name gone",
    ] {
        let world = World::new();
        let (below, first, captured, second) = (layer(), disk(), layer(), disk());
        let source = LayerSource::File(images().join("phone.qcow2"));
        world.pool.ensure_layer(below, &source).await.expect("taken");
        let volume = world.pool.ensure_disk(first, below).await.expect("made");
        let (from, path) = (PathBuf::from(&volume.0), world.layer_file(captured));
        tool("qemu-io", &["-f", "qcow2", "-c", "write -P 7 1G 1M"], &from);
        let to = world.path(&format!("pool/disks/{second}.qcow2"));
        let record = world.path(&format!("pool/layers/{captured}.json"));
        let read_only = || fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("a mode");
        match state {
            "linked" => fs::hard_link(&from, &path).expect("linked"),
            "linked, disk prepared" => {
                fs::hard_link(&from, &path).expect("linked");
                fs::write(world.path(&format!("pool/disks/.{second}.77-0.tmp")), "x").expect("written");
            }
            "linked, disk named but not written" => {
                fs::hard_link(&from, &path).expect("linked");
                fs::write(&to, vec![0; 4 << 17]).expect("written");
            }
            _ => {
                world.pool.ensure_successor(first, captured, second).await.expect("made");
                match state {
                    "read-only" => read_only(),
                    "recorded" => {
                        read_only();
                        // As it is written at the end, from a pool beside this one.
                        world.pool.seal_layer(captured, first).await.expect("sealed");
                        fs::hard_link(&path, &from).expect("not yet removed");
                    }
                    "disk's name gone" => drop(world.pool.seal_layer(captured, first).await.expect("sealed")),
                    _ => {}
                }
            }
        }
        assert_eq!(record.exists(), ["recorded", "disk's name gone"].contains(&state), "{state}");

        // What it tells in this state is true: nothing is strange, and no byte counts twice.
        let pool = Qcow2Pool::open("local", &world.path("pool")).expect("a pool");
        let listed = pool.list().await.expect("listed");
        let unfinished = state.ends_with("not written");
        assert_eq!(listed.strangers.len(), usize::from(unfinished), "{state}: {:?}", listed.strangers);
        assert_eq!(listed.layers.iter().map(|layer| layer.id).collect::<Vec<_>>(), [below, captured]);
        assert_eq!(listed.layers[1].parent, Some(below), "{state}");
        let told: i64 = listed.layers.iter().map(|layer| layer.allocated_bytes).sum::<i64>()
            + listed.disks.iter().map(|disk| disk.allocated_bytes).sum::<i64>();
        let du = Command::new("du").args(["-s", "-B1"]).arg(world.path("pool")).output().expect("du");
        let du = String::from_utf8_lossy(&du.stdout).split_whitespace().next().map(str::parse::<i64>);
        let du = du.expect("a word").expect("a number");
        let used = pool.capacity().await.expect("measured").used_bytes;
        assert!(told <= used && used <= du && du - used < 64 << 10, "{state}: {told} {used} {du}");

        // Not yet sealed, the whole may still be called off.
        if !record.exists() {
            let before = fs::read(&from).expect("a disk");
            pool.abandon_successor(first, captured, second).await.expect("called off");
            assert!(!path.exists() && !to.exists() && fs::read(&from).expect("a disk") == before, "{state}");
            let left = pool.list().await.expect("listed");
            assert_eq!((left.layers.len(), left.disks.len(), left.strangers.len()), (1, 1, 0), "{state}");
            // Its device must not find it read-only.
            assert_eq!(fs::metadata(&from).expect("a disk").permissions().mode() & 0o777, 0o600, "{state}");
        }
        // Or be finished, however often it is tried.
        let volume = pool.ensure_successor(first, captured, second).await.expect("made");
        let facts = pool.seal_layer(captured, first).await.expect("sealed");
        let done = everything(&world);
        assert_eq!(pool.ensure_successor(first, captured, second).await.expect("made"), volume);
        assert_eq!(pool.seal_layer(captured, first).await.expect("sealed"), facts);
        assert!(everything(&world) == done, "{state}");

        assert!(!from.exists() && to.exists(), "{state}");
        assert_eq!(facts.digest, tool("sha256sum", &[], &path).trim_start_matches('\\')[..64]);
        assert_eq!(fs::metadata(&path).expect("a layer").permissions().mode() & 0o777, 0o444);
        let chain = qemu_img(&["info", "--backing-chain"], Path::new(&volume.0));
        for id in [captured, below] {
            assert!(chain.contains(&format!("backing file: ../layers/{id}.qcow2")), "{state}: {chain}");
        }
        for file in [Path::new(&volume.0), &path] {
            assert!(qemu_img(&["check"], file).contains("No errors were found"), "{state}");
            tool("qemu-io", &["-r", "-f", "qcow2", "-c", "read -P 7 1G 1M"], file);
        }
        let clone = pool.ensure_disk(disk(), captured).await.expect("a clone");
        equal(Path::new(&clone.0), Path::new(&volume.0));
        let looked = pool.verify_layer(captured, &facts.digest).await.expect("looked at");
        assert_eq!(looked, Integrity::Sound);
    }
}

#[tokio::test]
async fn what_a_device_writes_to_is_not_sealed_and_what_it_has_opened_not_taken_back() {
    let world = World::new();
    let (below, first, captured, second) = (layer(), disk(), layer(), disk());
    let source = LayerSource::File(images().join("phone.qcow2"));
    world.pool.ensure_layer(below, &source).await.expect("taken");
    let from = world.pool.ensure_disk(first, below).await.expect("made");
    let to = world.pool.ensure_successor(first, captured, second).await.expect("made");
    let open = |volume: &Volume| {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "qcow2"]).arg(&volume.0);
        let mut device = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("qemu-io");
        let (mut typed, mut prompt) =
            (device.stdin.take().expect("input"), device.stdout.take().expect("output"));
        typed.write_all(b"read 0 512\n").expect("typed");
        let mut shown = String::new();
        while !shown.contains("read 512/512") {
            let mut piece = [0; 256];
            let length = prompt.read(&mut piece).expect("an answer");
            shown += &String::from_utf8_lossy(&piece[..length]);
        }
        (device, typed)
    };

    let (mut device, typed) = open(&from);
    let refused = world.pool.seal_layer(captured, first).await.expect_err("written to");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Soon));
    assert!(Path::new(&from.0).exists());
    drop(typed);
    device.wait().expect("ended");
    let (mut device, typed) = open(&to);
    let refused = world.pool.abandon_successor(first, captured, second).await.expect_err("open");
    assert_eq!((refused.code, refused.retry), ("disk_in_use", Retry::Never));
    drop(typed);
    device.wait().expect("ended");

    world.pool.abandon_successor(first, captured, second).await.expect("nobody has written");
    assert!(!Path::new(&to.0).exists());
}

#[tokio::test]
async fn a_full_pool_says_so_and_keeps_nothing_half_written() {
    let small = SmallDisk::new("7M");
    let pool = Qcow2Pool::open("local", small.path()).expect("a pool");
    let below = layer();
    pool.ensure_layer(below, &LayerSource::File(images().join("phone.qcow2"))).await.expect("taken");

    let refused = pool.ensure_layer(layer(), &LayerSource::File(images().join("automotive.qcow2"))).await;
    let refused = refused.expect_err("no room");
    assert_eq!((refused.code, refused.retry), ("no_space", Retry::Later));
    let mut made = 0;
    let refused = loop {
        match pool.ensure_disk(disk(), below).await {
            Ok(_) => made += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.code, refused.retry), ("no_space", Retry::Later));

    let listed = pool.list().await.expect("listed");
    assert_eq!((listed.layers.len(), listed.disks.len()), (1, made));
    assert!(listed.strangers.is_empty(), "{:?}", listed.strangers);
    pool.remove_disk(listed.disks[0].id).await.expect("removed");
    pool.ensure_disk(disk(), below).await.expect("there is room again");
}
