//! Real devices through the API: the real binary, QEMU, and Debian's `adb`.

mod daemon;
mod yard;

use std::process::Command;
use std::time::Duration;

use yard::{Adb, Data, Yard};

#[tokio::test]
async fn a_device_lives_through_whatever_happens_to_its_server_and_leaves_nothing_behind() {
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;
    let phone = yard.phone(&tenant).await;
    let (id, device) = (phone.id.clone(), phone.address.clone());
    yard.until(&id, "running").await;

    // It is the device that it says it is, and keeps what is written to it.
    adb.connect(&device);
    let said = adb.says(&["-s", &device, "shell", "getprop ro.serialno; echo kept > /data/kept; sync"]);
    assert_eq!(said.trim(), phone.serial);
    let live = yard.call("GET", &format!("/api/v1/emulators/{id}"), None).await;
    assert_eq!(live["live"]["properties"]["ro.serialno"], phone.serial.as_str(), "{live}");
    let big = data.path().join("big");
    let bytes: Vec<u8> =
        (0..8u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&big, &bytes).expect("a file");
    let back = data.path().join("back");
    adb.says(&["-s", &device, "push", big.to_str().expect("text"), "/data/big"]);
    adb.says(&["-s", &device, "pull", "/data/big", back.to_str().expect("text")]);
    assert!(std::fs::read(&back).is_ok_and(|copy| copy == bytes), "what came back is not what went in");

    // The doctor finds what is too much and what is missing, and touches neither.
    yard.sound();
    let disks = data.path().join("disks/disks");
    let (stranger, disk) = (disks.join("notes.txt"), std::fs::read_dir(&disks).expect("disks").next());
    let disk = disk.expect("a disk").expect("an entry").path();
    std::fs::write(&stranger, "mine").expect("a file");
    let aside = data.path().join("aside");
    std::fs::rename(&disk, &aside).expect("moved");
    let found = yard.doctor();
    std::fs::rename(&aside, &disk).expect("moved back");
    let told = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && told.lines().count() == 2, "{found:?}");
    assert!(told.contains("notes.txt") && told.contains(&format!("of emulator {id} is recorded")), "{told}");
    std::fs::remove_file(&stranger).expect("nobody has touched it");

    // The server dies: the device does not notice, nor does an open shell.
    let before = data.processes(&id);
    assert_eq!(before.len(), 1);
    let shell = adb
        .command(&["-s", &device, "shell", "sleep 4; echo still here"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let yard = yard.reopen();
    assert_eq!(data.processes(&id), before);
    assert_eq!(yard.until(&id, "running").await["incarnation"], 1);
    let shell = shell.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&shell.stdout).trim(), "still here");

    // The device dies: the status says so, and a restart mends it, on the same disk and address.
    Command::new("kill").args(["-9", &before[0]]).status().expect("killed");
    // How it ended is known only to the server that started it.
    assert_eq!(yard.until(&id, "failed").await["statusReason"]["code"], "ended");
    yard.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await;
    assert_eq!(yard.until(&id, "running").await["incarnation"], 2);
    adb.connect(&device);
    assert_eq!(adb.says(&["-s", &device, "shell", "cat /data/kept"]).trim(), "kept");

    // It is stopped dead: unreachable, and there again when it goes on.
    let qemu = data.processes(&id);
    Command::new("kill").args(["-STOP", &qemu[0]]).status().expect("stopped");
    yard.until(&id, "unreachable").await;
    Command::new("kill").args(["-CONT", &qemu[0]]).status().expect("continued");
    yard.until(&id, "running").await;

    // The server dies in the middle of the end: the end is reached all the same, and nothing is left.
    yard.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await;
    let yard = yard.reopen();
    yard.until(&id, "terminated").await;
    assert!(data.processes(&id).is_empty());
    assert_eq!(data.leftovers(), [] as [std::path::PathBuf; 0]);
    yard.sound();
}
