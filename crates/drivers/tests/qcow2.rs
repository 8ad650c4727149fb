//! The qcow2 pool as QEMU's own tools see it, and against files that mean harm.

mod world;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::disk_pools::qcow2::format::{Backing, Overlay};
use paddock_model::drivers::Retry;
use paddock_model::drivers::disk_pools::{DiskPool, Integrity, LayerSource};
use paddock_model::layers::LayerId;
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
