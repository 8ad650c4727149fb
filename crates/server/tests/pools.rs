//! A disk pool in trouble, seen through the API with real devices: it is full, a tenant takes too much of it, its bytes change.

mod daemon;
mod yard;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use yard::{Adb, Data, Yard};

/// A file system of its own that is soon full. Mounting needs root, as the rest of the set-up does.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(mebibytes: u64) -> SmallDisk {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let (file, path) = (folder.path().join("disk"), folder.path().join("mounted"));
        File::create(&file).and_then(|file| file.set_len(mebibytes << 20)).expect("a file");
        fs::create_dir(&path).expect("a folder");
        for words in [&["mkfs.ext4", "-q", "-m", "0"][..], &["mount", "-o", "loop"]] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg(&file);
            if words[0] == "mount" {
                command.arg(&path);
            }
            let done = command.output().expect("a program");
            assert!(done.status.success(), "{done:?}");
        }
        SmallDisk(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    fn free(&self) -> u64 {
        let told = Command::new("df").args(["--output=avail", "-B1"]).arg(self.path()).output().expect("df");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        text.lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("a number")
    }

    /// Takes all room but so much.
    fn leave(&self, bytes: u64) -> PathBuf {
        let ballast = self.path().join("ballast");
        let length = (self.free() - bytes).to_string();
        let made = Command::new("fallocate").args(["-l", &length]).arg(&ballast).output().expect("fallocate");
        assert!(made.status.success(), "{made:?}");
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

/// Asks to deploy until the answer has this status.
async fn deploy_until(yard: &Yard<'_>, body: &Value, wanted: u16) -> Value {
    let started = Instant::now();
    loop {
        let (status, answer) =
            yard.ask("POST", "/api/v1/emulators", Some(body), None).await.expect("an answer");
        if status == wanted {
            return answer;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{status} {answer} and not {wanted}");
        if let Some(id) = answer["id"].as_str() {
            yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
            yard.until(id, "terminated").await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn a_full_pool_refuses_what_is_new_and_halts_who_writes_until_there_is_room() {
    let disk = SmallDisk::new(512);
    // The pool alone is on the small disk: a database without room for a word could not say what has happened.
    let data = Data::new();
    std::os::unix::fs::symlink(disk.path(), data.path().join("disks")).expect("a link");
    let yard = Yard::open(&data, &["--pool-measure-seconds", "1", "--quotas-disk-bytes", "104857600"]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    let spec = json!({ "tenantId": tenant, "deviceType": "phone" });
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "head -c 10000000 /dev/urandom > /data/first; sync");

    // Nothing new, and the words say what would help.
    let ballast = disk.leave(16 << 20);
    let refused = deploy_until(&yard, &spec, 503).await;
    assert_eq!(refused["code"], "no_capacity");
    let detail = refused["detail"].as_str().expect("words");
    assert!(
        detail.contains("1 emulator in this tenant holds") && detail.contains(" MiB are free"),
        "{detail}"
    );
    println!("{detail}");

    // Who is there already and writes on is halted, and nothing that it has written is lost.
    let mut writing = adb.command(&[
        "-s",
        &phone.address,
        "shell",
        "head -c 40000000 /dev/urandom > /data/second && sync && sha256sum /data/second",
    ]);
    let mut writing = writing.stdout(Stdio::piped()).spawn().expect("adb");
    let halted = yard.until(&phone.id, "unreachable").await;
    assert_eq!(halted["statusReason"]["code"], "no_space", "{halted}");
    assert_eq!(yard.call("GET", "/api/v1/emulators", None).await["items"].as_array().map(Vec::len), Some(1));
    assert!(writing.try_wait().expect("adb").is_none(), "a write to a full pool went through");

    fs::remove_file(&ballast).expect("room");
    yard.until(&phone.id, "running").await;
    let written = tokio::task::spawn_blocking(move || writing.wait_with_output()).await.expect("a thread");
    let written = written.expect("adb");
    assert!(written.status.success(), "{written:?}");
    let sum = String::from_utf8_lossy(&written.stdout).trim_end().to_owned();
    assert_eq!(adb.shell(&phone.address, "sha256sum /data/second"), sum);
    let another = deploy_until(&yard, &spec, 201).await;
    let another = another["id"].as_str().expect("an id").to_owned();
    yard.until(&another, "running").await;
    yard.call("DELETE", &format!("/api/v1/emulators/{another}"), None).await;
    yard.until(&another, "terminated").await;

    // A tenant that takes too much gets nothing more, although the pool has room.
    adb.shell(&phone.address, "head -c 70000000 /dev/urandom > /data/third; sync");
    let refused = deploy_until(&yard, &spec, 409).await;
    assert_eq!(refused["code"], "quota_exceeded");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("100 MiB on disk")), "{refused}");
    yard.call("DELETE", &format!("/api/v1/emulators/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    deploy_until(&yard, &spec, 201).await;
}

/// The layer on which the only disk stands.
fn layer_below_the_disk(data: &Path) -> PathBuf {
    let disk =
        fs::read_dir(data.join("disks/disks")).expect("disks").next().expect("a disk").expect("an entry");
    let mut beginning = vec![0; 4096];
    File::open(disk.path()).expect("a disk").read_exact_at(&mut beginning, 0).expect("a header");
    let text = String::from_utf8_lossy(&beginning).into_owned();
    let name = text.split("../layers/").nth(1).and_then(|rest| rest.split(".qcow2").next()).expect("a layer");
    data.join("disks/layers").join(format!("{name}.qcow2"))
}

#[tokio::test]
async fn a_layer_whose_bytes_have_changed_is_put_aside_and_reported_and_nothing_else_happens_to_it() {
    let data = Data::new();
    let yard = Yard::open(&data, &["--pool-verify-seconds", "2"]);
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    let process = data.processes(&phone.id);
    let layer = layer_below_the_disk(data.path());
    let name = layer.file_stem().expect("a name").to_string_lossy().into_owned();
    let found = async |yard: &Yard<'_>, problem: &str| {
        let started = Instant::now();
        loop {
            let snapshots = yard.call("GET", "/api/v1/snapshots?deployable=false", None).await;
            let doubted = snapshots["items"]
                .as_array()
                .expect("a list")
                .iter()
                .find(|snapshot| snapshot["deployableProblems"].to_string().contains(problem));
            if let Some(doubted) = doubted {
                return doubted["name"].as_str().expect("a name").to_owned();
            }
            assert!(started.elapsed() < Duration::from_secs(60), "nobody noticed: {snapshots}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Read several times over, it is what it was.
    tokio::time::sleep(Duration::from_secs(5)).await;
    yard.sound();

    let file = File::options().read(true).write(true).open(&layer).expect("the layer");
    let (middle, mut byte) = (file.metadata().expect("facts").len() / 2, [0]);
    file.read_exact_at(&mut byte, middle).expect("a byte");
    byte[0] ^= 1;
    file.write_all_at(&byte, middle).expect("a byte flipped");
    let bytes = fs::read(&layer).expect("the layer");

    let snapshot = found(&yard, "integrity_mismatch").await;
    let spec = json!({ "tenantId": tenant, "snapshot": snapshot });
    let (status, refused) =
        yard.ask("POST", "/api/v1/emulators", Some(&spec), None).await.expect("an answer");
    assert!((400..500).contains(&status), "{status} {refused}");
    let told = yard.doctor();
    assert!(!told.status.success());
    assert!(
        String::from_utf8_lossy(&told.stdout).contains(&format!("layer {name} is not what was recorded")),
        "{told:?}"
    );
    let (_, metrics) = yard.ask("GET", "/-/metrics", None, None).await.expect("metrics");
    assert!(metrics.as_str().is_some_and(|text| text.contains("paddock_layers_quarantined 1")));
    // Who runs on it runs on, and the bytes are left to whoever looks into it.
    assert_eq!(data.processes(&phone.id), process);
    assert_eq!(yard.until(&phone.id, "running").await["incarnation"], 1);
    assert!(fs::read(&layer).expect("the layer") == bytes);
    let verify = format!("/api/v1/snapshots/{snapshot}/verify");
    let state = format!("/api/v1/snapshots/{snapshot}");
    let proved = async |yard: &Yard<'_>, wanted: &str| {
        yard.call("POST", &verify, None).await;
        let started = Instant::now();
        loop {
            let seen = yard.call("GET", &state, None).await;
            let told = (seen["state"] == wanted).then(|| seen["deployableProblems"].to_string());
            if let Some(problems) = told.filter(|told| told.contains("integrity") == (wanted == "faulted")) {
                return problems;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{seen} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    proved(&yard, "faulted").await;

    // Its bytes come back, as from a backup of the machine: asked to prove itself, it is in use again.
    byte[0] ^= 1;
    file.write_all_at(&byte, middle).expect("a byte flipped back");
    proved(&yard, "ready").await;
    yard.sound();
    let (_, metrics) = yard.ask("GET", "/-/metrics", None, None).await.expect("metrics");
    assert!(metrics.as_str().is_some_and(|text| text.contains("paddock_layers_quarantined 0")));
    let another = deploy_until(&yard, &spec, 201).await;
    let another = another["id"].as_str().expect("an id");
    yard.until(another, "running").await;
    yard.call("DELETE", &format!("/api/v1/emulators/{another}"), None).await;
    yard.until(another, "terminated").await;

    // One that was cut off is noticed by the first look of the next server, without reading it.
    let other = fs::read_dir(data.path().join("disks/layers")).expect("layers").find_map(|entry| {
        let path = entry.expect("an entry").path();
        (path.extension().is_some_and(|kind| kind == "qcow2") && path != layer).then_some(path)
    });
    let other = File::options().write(true).open(other.expect("another layer")).expect("a layer");
    other.set_len(other.metadata().expect("facts").len() - 65536).expect("cut off");
    drop(yard);
    // A car that was left behind is found as well; the next server clears it away.
    let (beginning, last) = phone.id.split_at(phone.id.len() - 1);
    let stray = format!("{beginning}{}", if last == "0" { "1" } else { "0" });
    fs::create_dir_all(data.path().join("vehicles").join(stray)).expect("a folder");
    let told = daemon::paddockd().args(["doctor", "--data"]).arg(data.path()).output().expect("output");
    assert!(String::from_utf8_lossy(&told.stdout).contains("the car of emulator "), "{told:?}");
    let yard = Yard::open(&data, &["--pool-verify-seconds", "0"]);
    let started = Instant::now();
    loop {
        let deployable = yard.call("GET", "/api/v1/snapshots?deployable=true", None).await;
        let names: Vec<&Value> =
            deployable["items"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        if names == [&json!(snapshot)] {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "nobody noticed: {names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(data.processes(&phone.id), process);
    yard.call("DELETE", &format!("/api/v1/emulators/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
    assert_eq!(data.leftovers(), [] as [PathBuf; 0]);
}
