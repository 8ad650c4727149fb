//! What the tests stand on: images, launches, folders with long names, the real `adb`, and a sweep of whatever is left.

// Each test file uses its part.
#![allow(dead_code)]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use paddock_drivers::clock::SystemClock;
use paddock_drivers::emulator_hosts::qemu::{QemuHost, QemuSettings};
use paddock_drivers::random::OsRandom;
use paddock_model::Timestamp;
use paddock_model::devices::{DeviceIdentity, Observed, Phase};
use paddock_model::drivers::disk_pools::Volume;
use paddock_model::drivers::emulator_hosts::{EmulatorHost, Launch};
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::ports::Random;
use tempfile::TempDir;

pub fn now() -> Timestamp {
    use paddock_model::ports::Clock;
    SystemClock::default().now()
}

pub fn emulator() -> EmulatorId {
    EmulatorId::new(now(), &OsRandom::default())
}

pub fn layer() -> LayerId {
    LayerId::new(now(), &OsRandom::default())
}

pub fn disk() -> DiskId {
    DiskId::new(now(), &OsRandom::default())
}

/// Where `make image` has put the images.
pub fn images() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache =
        || variable("CACHE").unwrap_or_else(|| variable("HOME").expect("HOME").join(".cache/paddock"));
    let folder = variable("PADDOCK_IMAGE").unwrap_or_else(|| cache().join("image"));
    assert!(
        folder.join("SHA256SUMS").exists(),
        "there are no images in {}: run `make image`",
        folder.display()
    );
    folder
}

/// A loopback address of nobody else: by process, then by count.
pub fn address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = std::process::id();
    let octet = |number: u32| u8::try_from(number % 250).expect("small");
    Ipv4Addr::new(
        127,
        100 + octet(process / 250) % 100,
        octet(process) + 1,
        NEXT.fetch_add(1, Ordering::Relaxed),
    )
}

pub fn launch(image: &str, volume: &Volume, adb_keys: Vec<String>) -> Launch {
    let mut bytes = [0; 32];
    OsRandom::default().fill(&mut bytes);
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Launch {
        emulator: emulator(),
        incarnation: 1,
        name: "A device, \"of a test\"".to_owned(),
        image: image.to_owned(),
        volume: volume.clone(),
        identity: DeviceIdentity {
            serial: format!("PDK{}", &digits[..8]),
            android_id: digits[..16].to_owned(),
            machine_id: digits[..32].to_owned(),
            mac: format!("52:54:00:{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..6]),
            seed: digits.clone(),
            vin: None,
        },
        adb_keys,
        address: address(),
        memory_bytes: 256 << 20,
        cpus: 1,
        template: None,
        vehicle: None,
    }
}

/// A folder whose path is longer than a socket's may be. Whatever still runs in it ends with it.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(tempfile::Builder::new().prefix("pdk").tempdir_in("/var/tmp").expect("a folder"));
        fs::create_dir(folder.path()).expect("a folder");
        folder
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join(format!("a folder, {}", "long ".repeat(24)))
    }

    /// Processes that run in it.
    pub fn processes(&self) -> Vec<i32> {
        processes_within(self.0.path())
    }
}

fn processes_within(folder: &Path) -> Vec<i32> {
    let pids = fs::read_dir("/proc").expect("processes").filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let within = fs::read_link(format!("/proc/{pid}/cwd")).ok()?.starts_with(folder);
        let gone = fs::read(format!("/proc/{pid}/cmdline")).ok()?.is_empty();
        (within && !gone).then_some(pid)
    });
    pids.collect()
}

impl Drop for Folder {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
    }
}

pub fn signal(pid: i32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).output().expect("kill");
    assert!(sent.status.success(), "{sent:?}");
}

pub fn open_host(folder: &Path) -> QemuHost {
    let mut settings = QemuSettings::in_folder(folder);
    settings.silence = Duration::from_secs(3);
    settings.resume_free_bytes = 16 << 20;
    QemuHost::open(settings).expect("a host")
}

/// Waits until the device is as wanted.
pub async fn until(
    host: &dyn EmulatorHost,
    emulator: EmulatorId,
    what: &str,
    wanted: impl Fn(&Phase) -> bool,
) -> Observed {
    let started = Instant::now();
    loop {
        // Simulated faults are part of life.
        let observed = host.observe(emulator).await.ok().flatten();
        if let Some(observed) = &observed
            && wanted(&observed.phase)
        {
            return observed.clone();
        }
        assert!(started.elapsed() < Duration::from_secs(90), "in vain: {what}, {observed:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn is_ready(phase: &Phase) -> bool {
    matches!(phase, Phase::Ready { .. })
}

/// A host with its own key and its own adb server, which ends with it.
pub struct Adb {
    home: TempDir,
    port: u16,
}

impl Adb {
    pub fn new() -> Adb {
        let home = tempfile::tempdir().expect("a folder");
        fs::create_dir(home.path().join(".android")).expect("a folder");
        let made = Command::new("adb").arg("keygen").arg(home.path().join(".android/adbkey")).output();
        assert!(made.expect("adb; `scripts/setup image` installs it").status.success());
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        Adb { home, port }
    }

    pub fn key(&self) -> String {
        fs::read_to_string(self.home.path().join(".android/adbkey.pub")).expect("a key").trim().to_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("adb");
        command
            .env("HOME", self.home.path())
            .env("ANDROID_ADB_SERVER_PORT", self.port.to_string())
            // The server must not look for other emulators of this machine.
            .env("ADB_LOCAL_TRANSPORT_MAX_PORT", "5553")
            .env_remove("ADB_VENDOR_KEYS")
            .env_remove("ANDROID_SERIAL")
            .stdin(Stdio::null());
        command
    }

    /// Anew, for the server does not notice at once that a device has started anew.
    pub fn connect(&self, address: Ipv4Addr) -> String {
        let _ = self.command().args(["disconnect", &format!("{address}:5555")]).output();
        let output = self.command().args(["connect", &format!("{address}:5555")]).output().expect("adb");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn on(&self, address: Ipv4Addr, args: &[&str]) -> Command {
        let mut command = self.command();
        command.args(["-s", &format!("{address}:5555")]).args(args);
        command
    }

    pub fn output(&self, address: Ipv4Addr, line: &str) -> Output {
        self.on(address, &["shell", line]).output().expect("adb")
    }

    pub fn shell(&self, address: Ipv4Addr, line: &str) -> String {
        let output = self.output(address, line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

/// A file system of its own that is soon full. Mounting needs root, as the rest of the set-up does.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn new(size: &str) -> SmallDisk {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output()
            .expect("mount");
        assert!(mounted.status.success(), "{mounted:?}");
        SmallDisk(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}
