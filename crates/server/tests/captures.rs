//! Snapshots of real devices: captured while they run, deployed, swapped in, and proved, with QEMU and Debian's `adb`.

mod daemon;
mod yard;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use yard::{Adb, Data, Phone, Yard, noise};

const SNAPSHOTS: &str = "/api/v1/snapshots";
const EMULATORS: &str = "/api/v1/emulators";

async fn until(yard: &Yard<'_>, name: &str, state: &str) -> Value {
    let started = Instant::now();
    loop {
        let (status, seen) =
            yard.ask("GET", &format!("{SNAPSHOTS}/{name}"), None, None).await.expect("an answer");
        if status == 404 && state == "gone" || seen["state"] == state {
            return seen;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{seen} and not {state}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn capture(yard: &Yard<'_>, emulator: &str, name: &str) -> Value {
    let body = json!({ "emulatorId": emulator, "name": name });
    yard.call("POST", SNAPSHOTS, Some(body)).await;
    until(yard, name, "ready").await
}

async fn deploy(yard: &Yard<'_>, tenant: &str, snapshot: &str) -> Phone {
    let body = json!({ "tenantId": tenant, "snapshot": snapshot });
    let phone = Phone::read(&yard.call("POST", EMULATORS, Some(body)).await);
    yard.until(&phone.id, "running").await;
    phone
}

async fn delete(yard: &Yard<'_>, phone: &Phone) {
    yard.call("DELETE", &format!("{EMULATORS}/{}", phone.id), None).await;
    yard.until(&phone.id, "terminated").await;
}

#[tokio::test]
async fn a_running_device_is_captured_and_what_was_captured_boots_elsewhere() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    let bytes = noise(16 << 20);
    let big = data.path().join("big");
    std::fs::write(&big, &bytes).expect("a file");
    adb.says(&["-s", &phone.address, "push", big.to_str().expect("text"), "/data/big"]);
    adb.shell(&phone.address, "echo first > /data/kept");

    // The device does not notice: same process, and a shell that stays open.
    let before = data.processes(&phone.id);
    let shell = adb
        .command(&[
            "-s",
            &phone.address,
            "shell",
            "while ! test -e /data/over; do sleep 0.2; done; echo still here",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let first = capture(&yard, &phone.id, "first").await;
    assert_eq!(first["consistency"], "filesystem", "{first}");
    assert!(first["exclusiveBytes"].as_i64().is_some(), "{first}");
    assert!(first["verifiedBoot"]["durationMs"].as_i64().is_some_and(|time| time > 0), "{first}");
    assert_eq!(data.processes(&phone.id), before);
    adb.shell(&phone.address, "echo second > /data/kept; touch /data/over");
    let said = shell.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "still here");
    let second = capture(&yard, &phone.id, "second").await;
    assert_eq!(second["parent"], "first");
    yard.sound();

    // The parent goes; the child still boots, with everything in it.
    yard.call("DELETE", &format!("{SNAPSHOTS}/first"), None).await;
    until(&yard, "first", "gone").await;
    let clone = deploy(&yard, &tenant, "second").await;
    adb.connect(&clone.address);
    assert_eq!(adb.shell(&clone.address, "cat /data/kept"), "second");
    let back = data.path().join("back");
    adb.says(&["-s", &clone.address, "pull", "/data/big", back.to_str().expect("text")]);
    assert!(std::fs::read(&back).is_ok_and(|copy| copy == bytes), "the clone has other bytes");
    assert_ne!(adb.shell(&clone.address, "getprop ro.serialno"), phone.serial);

    // The device that was captured goes on with its own disk, through a restart of the server and of itself.
    adb.shell(&phone.address, "echo third > /data/kept; sync");
    let yard = yard.reopen();
    yard.call("POST", &format!("{EMULATORS}/{}/restart", phone.id), None).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "third");

    for phone in [&phone, &clone] {
        delete(&yard, phone).await;
    }
    yard.call("DELETE", &format!("{SNAPSHOTS}/second"), None).await;
    until(&yard, "second", "gone").await;
    let layers = || std::fs::read_dir(data.path().join("disks/layers")).expect("layers").count();
    let started = Instant::now();
    // The two images, a file and a record each.
    while layers() > 4 {
        assert!(started.elapsed() < Duration::from_secs(60), "{} files of layers are left", layers());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(data.leftovers(), [] as [std::path::PathBuf; 0]);
    yard.sound();
}

#[tokio::test]
async fn a_swap_that_cannot_boot_gives_the_old_disk_back_and_a_layer_that_was_written_to_is_noticed() {
    let data = Data::new();
    let yard = Yard::open(&data, &["--devices-boot-seconds", "25"]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    adb.shell(&phone.address, "echo old > /data/kept; dd if=/dev/urandom of=/data/noise bs=1M count=4; sync");
    capture(&yard, &phone.id, "good").await;
    adb.shell(&phone.address, "echo newer > /data/kept; sync");
    capture(&yard, &phone.id, "bad").await;

    // There and back, under the same id and address.
    let path = format!("{EMULATORS}/{}", phone.id);
    let swap =
        async |to: &str| yard.call("PUT", &format!("{path}/snapshot"), Some(json!({ "snapshot": to }))).await;
    assert_eq!(swap("good").await["status"], "swapping");
    yard.until(&phone.id, "running").await;
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "old");
    adb.shell(&phone.address, "echo mine > /data/kept; sync");

    // Somebody writes to the other one's layer, past us.
    let bad = yard.call("GET", &format!("{SNAPSHOTS}/bad"), None).await;
    let digest = bad["checksum"].as_str().expect("a checksum").trim_start_matches("sha256:").to_owned();
    let layers = data.path().join("disks/layers");
    let record = std::fs::read_dir(&layers).expect("layers").map(|entry| entry.expect("an entry").path());
    let record = record.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let record = record
        .into_iter()
        .find(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&digest)));
    let file = record.expect("its record").with_extension("qcow2");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("writable");
    let layer = std::fs::File::options().write(true).open(&file).expect("the layer");
    // Its tables of clusters: whatever reads them finds nothing that makes sense.
    let length = layer.metadata().expect("facts").len();
    let mut at = 64 << 10;
    while at < length {
        layer.write_all_at(&[0xa5; 4096], at).expect("written");
        at += 64 << 10;
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).expect("as it was");
    drop(layer);

    swap("bad").await;
    let back = yard.until(&phone.id, "running").await;
    assert_eq!(back["statusReason"]["code"], "swap_failed", "{back}");
    assert_eq!(back["incarnation"], 4);
    assert_eq!(yard.call("GET", &path, None).await["snapshot"]["name"], "good");
    adb.connect(&phone.address);
    assert_eq!(adb.shell(&phone.address, "cat /data/kept"), "mine");

    yard.call("POST", &format!("{SNAPSHOTS}/bad/verify"), None).await;
    let noticed = until(&yard, "bad", "faulted").await;
    assert_eq!(noticed["deployableProblems"], json!(["integrity_mismatch"]), "{noticed}");
    let body = json!({ "tenantId": tenant, "snapshot": "bad" });
    let refused = yard.ask("POST", EMULATORS, Some(&body), None).await.expect("an answer");
    assert_eq!((refused.0, &refused.1["code"]), (409, &json!("not_deployable")));
    delete(&yard, &phone).await;
}
