//! Backups of real disks, read by the stock `restic`, in a folder and on an S3 server.

mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use paddock_drivers::backup_repositories::{
    RepositoryPlace, RepositorySettings, ResticRepositories, S3Settings,
};
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::random::OsRandom;
use paddock_model::drivers::DriverResult;
use paddock_model::drivers::backup_repositories::{
    BackupOrder, BackupRepositories, KnownContent, Progress, StoredBackup,
};
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource};
use paddock_model::layers::LayerId;
use paddock_model::tenants::TenantId;
use tokio::io::AsyncReadExt;
use world::{Folder, disk, layer, now};

const MIB: usize = 1 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; `scripts/setup test` installs it"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

struct World {
    folder: Folder,
    pool: Qcow2Pool,
    repositories: ResticRepositories,
    tenant: TenantId,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let place = RepositoryPlace::Folder(folder.path().join("backups"));
        World::with(folder, place)
    }

    fn with(folder: Folder, place: RepositoryPlace) -> World {
        let pool = Qcow2Pool::open("local", &folder.path().join("pool")).expect("a pool");
        let keys = folder.path().join("keys");
        let repositories = ResticRepositories::new(RepositorySettings { place, keys }).expect("repositories");
        World { folder, pool, repositories, tenant: TenantId::new(now(), &OsRandom::default()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self) -> PathBuf {
        self.path("keys").join(self.tenant.to_string())
    }

    /// A disk of some sense, made by QEMU's own tools in this way.
    async fn base(&self, options: &[&str]) -> LayerId {
        let (raw, image) = (self.path("base.raw"), self.path("base.qcow2"));
        let mut bytes = vec![0u8; 24 * MIB + 512];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = match at / MIB {
                1..=6 => (at / 1000) as u8,
                10..=14 => (at.wrapping_mul(at).wrapping_mul(2_654_435_761) >> 13) as u8,
                24 => 3,
                _ => 0,
            };
        }
        fs::write(&raw, bytes).expect("raw");
        let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2"];
        arguments.extend(options);
        arguments.extend([raw.to_str().expect("path"), image.to_str().expect("path")]);
        run("qemu-img", &arguments);
        let id = layer();
        self.pool.ensure_layer(id, &LayerSource::File(image)).await.expect("a layer");
        id
    }

    /// A layer on top of another, with this done to it.
    async fn above(&self, below: LayerId, commands: &[&str]) -> LayerId {
        let (from, to, id) = (disk(), disk(), layer());
        let volume = self.pool.ensure_disk(from, below).await.expect("a disk");
        let mut arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        arguments.push(&volume.0);
        run("qemu-io", &arguments);
        self.pool.ensure_successor(from, id, to).await.expect("a successor");
        self.pool.seal_layer(id, from).await.expect("sealed");
        id
    }

    /// What QEMU's own tools see.
    fn truth(&self, id: LayerId) -> Vec<u8> {
        let raw = self.path("truth.raw");
        let file = self.path(&format!("pool/layers/{id}.qcow2"));
        run("qemu-img", &["convert", "-O", "raw", file.to_str().expect("path"), raw.to_str().expect("path")]);
        fs::read(raw).expect("read")
    }

    async fn store(&self, name: &str, id: LayerId, known: Vec<KnownContent>) -> (StoredBackup, u64) {
        let order = BackupOrder {
            tenant: self.tenant,
            name: name.to_owned(),
            about: serde_json::json!({ "name": name }),
            known,
            at: now(),
        };
        let progress = Arc::new(Progress::default());
        let content = self.pool.content(id).await.expect("content");
        let stored = self.repositories.store(&order, content, progress.clone()).await.expect("stored");
        assert_eq!(progress.done(), progress.total());
        (stored, progress.total())
    }

    async fn restore(&self, stored: &StoredBackup) -> DriverResult<Vec<u8>> {
        let progress = Arc::new(Progress::default());
        let fetched = self.repositories.fetch(self.tenant, &stored.id, &stored.checksum, progress).await?;
        let (mut content, mut bytes) = (fetched.content, Vec::new());
        match content.read_to_end(&mut bytes).await {
            Ok(_) => Ok(bytes),
            Err(_) => Err(fetched.failure.take().expect("a reason")),
        }
    }

    fn restic(&self, arguments: &[&str]) -> String {
        let (repository, key) = (self.repositories.location(self.tenant), self.key());
        let mut all = vec!["-r", &repository, "-p", key.to_str().expect("path"), "--no-cache"];
        all.extend(arguments);
        run("restic", &all)
    }
}

fn known(layer: LayerId, stored: &StoredBackup) -> KnownContent {
    KnownContent { layer, id: stored.id.clone() }
}

const CHANGES: &[&str] = &["write -P 9 3M 100k", "write -z 11M 1M", "write -P 77 23M 4k", "discard 12M 64k"];

#[tokio::test]
async fn what_is_read_of_a_chain_is_what_qemu_sees_however_its_layers_were_written() {
    for options in [
        &["-o", "cluster_size=64k"][..],
        &["-c", "-o", "compression_type=zlib"],
        &["-c", "-o", "compression_type=zstd"],
        &["-o", "extended_l2=on,cluster_size=128k"],
        &["-o", "compat=0.10,cluster_size=4k"],
    ] {
        let world = World::new();
        let base = world.base(options).await;
        let middle = world.above(base, CHANGES).await;
        let top = world.above(middle, &["write -P 5 0 1k", "write -P 6 11500k 8k", "write -z 3M 4k"]).await;
        for id in [base, middle, top] {
            let mut content = world.pool.content(id).await.expect("content");
            let truth = world.truth(id);
            let mut bytes = vec![0; usize::try_from(content.bytes()).expect("small")];
            // At odd places, as nobody would.
            for (number, piece) in bytes.chunks_mut(70_001).enumerate() {
                content.read(number as u64 * 70_001, piece).expect("read");
            }
            assert!(bytes == truth, "{options:?}: {id} reads differently");
            let written = content.written(None).expect("written");
            let mut at = 0;
            for range in &written {
                assert!(
                    truth[at..range.start as usize].iter().all(|byte| *byte == 0),
                    "{options:?} {written:?}"
                );
                at = range.end as usize;
            }
            assert!(truth[at..].iter().all(|byte| *byte == 0));
        }
        // What is said to be as below is.
        let mut content = world.pool.content(top).await.expect("content");
        let (truth, below) = (world.truth(top), world.truth(base));
        let mut at = 0;
        for range in content.written(Some(base)).expect("written") {
            assert!(truth[at..range.start as usize] == below[at..range.start as usize], "{options:?}");
            at = range.end as usize;
        }
        assert!(truth[at..] == below[at..]);
        assert!(content.written(Some(top)).expect("written").is_empty());
    }
}

#[tokio::test]
async fn the_stock_restic_checks_and_restores_what_we_have_written() {
    let world = World::new();
    let base = world.base(&[]).await;
    let (first, all) = world.store("backup-a", base, Vec::new()).await;
    let top = world.above(base, CHANGES).await;
    let (second, some) = world.store("backup-b", top, vec![known(base, &first)]).await;
    assert!(some * 4 < all, "{some} bytes were read of a small change, and {all} at first");
    assert_eq!(world.restore(&second).await.expect("restored"), world.truth(top));

    let checked = world.restic(&["check", "--read-data"]);
    assert!(checked.contains("no errors were found"), "{checked}");
    let listed: serde_json::Value =
        serde_json::from_str(&world.restic(&["snapshots", "--json"])).expect("json");
    assert_eq!(listed.as_array().expect("list").len(), 2);
    for (stored, id) in [(&first, base), (&second, top)] {
        let target = world.path(&format!("restored-{id}"));
        world.restic(&["restore", &stored.id, "--target", target.to_str().expect("path")]);
        assert!(
            fs::read(target.join("disk.raw")).expect("read") == world.truth(id),
            "restic restores other bytes"
        );
        assert!(target.join("snapshot.json").exists());
    }

    world.repositories.forget(world.tenant, "backup-a", true).await.expect("forgotten");
    world.repositories.prune(world.tenant).await.expect("pruned");
    let checked = world.restic(&["check", "--read-data"]);
    assert!(checked.contains("no errors were found"), "{checked}");
    assert_eq!(world.restore(&second).await.expect("restored"), world.truth(top));
    assert_eq!(world.repositories.list(world.tenant).await.expect("listed"), ["backup-b"]);
    assert_eq!(world.restore(&first).await.expect_err("gone").code, "object_missing");
    // What restic removes is gone for us too.
    world.restic(&["forget", &second.id]);
    assert!(world.repositories.list(world.tenant).await.expect("listed").is_empty());
}

#[tokio::test]
async fn a_key_is_for_its_owner_alone_and_nothing_is_made_anew_without_it() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let base = world.base(&[]).await;
    let (stored, _) = world.store("backup-a", base, Vec::new()).await;
    let key = fs::metadata(world.key()).expect("a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    fs::rename(world.key(), world.path("elsewhere")).expect("moved");

    let place = RepositoryPlace::Folder(world.path("backups"));
    let later =
        ResticRepositories::new(RepositorySettings { place, keys: world.path("keys") }).expect("opened");
    let refused = later.fetch(world.tenant, &stored.id, &stored.checksum, Arc::default()).await;
    assert_eq!(refused.err().expect("refused").code, "key_missing");
    assert!(!world.key().exists());
}

/// An S3 server in this process; where it is.
async fn s3_server(folder: &Path) -> String {
    fs::create_dir_all(folder.join("vault")).expect("a bucket");
    let mut service = s3s::service::S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).expect("a folder"));
    service.set_auth(s3s::auth::SimpleAuth::from_single("paddock", "open-sesame"));
    let service = service.build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listening");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let Ok((socket, _)) = listener.accept().await else { continue };
            let service = service.clone();
            tokio::spawn(async move {
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    format!("http://{address}")
}

fn s3(endpoint: &str, secret: &str) -> RepositoryPlace {
    RepositoryPlace::S3(S3Settings {
        endpoint: Some(endpoint.to_owned()),
        bucket: "vault".to_owned(),
        region: "us-east-1".to_owned(),
        prefix: "paddock/backups".to_owned(),
        access_key: Some(("paddock".to_owned(), secret.to_owned())),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_in_an_s3_store_are_the_same() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = Folder::new();
    let endpoint = s3_server(&folder.path().join("s3")).await;
    let world = World::with(folder, s3(&endpoint, "open-sesame"));
    let base = world.base(&[]).await;
    let (first, _) = world.store("backup-a", base, Vec::new()).await;
    let top = world.above(base, CHANGES).await;
    let (second, _) = world.store("backup-b", top, vec![known(base, &first)]).await;
    assert_eq!(world.restore(&first).await.expect("restored"), world.truth(base));
    world.repositories.forget(world.tenant, "backup-a", true).await.expect("forgotten");
    world.repositories.prune(world.tenant).await.expect("pruned");
    assert_eq!(world.restore(&second).await.expect("restored"), world.truth(top));
    assert_eq!(world.repositories.list(world.tenant).await.expect("listed"), ["backup-b"]);

    // The objects as the server keeps them are what the stock restic reads. (Asked over S3, restic names an empty delimiter,
    // which this server takes for one.)
    let kept = world.path("s3/vault/paddock/backups").join(world.tenant.to_string());
    let (kept, key) = (kept.to_str().expect("path"), world.key());
    run("restic", &["-r", kept, "-p", key.to_str().expect("path"), "--no-cache", "check", "--read-data"]);

    let stranger = RepositorySettings { place: s3(&endpoint, "guessed"), keys: world.path("keys") };
    let stranger = ResticRepositories::new(stranger).expect("opened");
    let refused = stranger.fetch(world.tenant, &second.id, &second.checksum, Arc::default()).await;
    let refused = refused.err().expect("refused");
    assert_eq!(refused.code, "store_denied", "{refused}");
    assert!(!refused.to_string().contains("guessed"));
}
