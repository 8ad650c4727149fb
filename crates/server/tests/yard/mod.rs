//! A server with real devices, as tests need it: the real binary, QEMU, and Debian's `adb`.

#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod kills;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{self, Daemon, free_port};

/// Where `make image` has put the images.
pub fn images() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    let folder = cache.unwrap_or_else(home).join("image");
    let there = folder.join("phone.profile.json").exists();
    assert!(there, "there is no image in {}; run `make image`", folder.display());
    folder
}

/// Bigger numbers, for whoever has the time.
pub fn is_long() -> bool {
    std::env::var_os("TEST_LONG").is_some()
}

/// Addresses of nobody else: by process, then by count.
fn first_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() % 3500;
    let octet = |number: u32| u8::try_from(number % 256).expect("small");
    let part = octet(NEXT.fetch_add(1, Ordering::Relaxed) % 6 * 40 + 1);
    Ipv4Addr::new(127, 81 + octet(number / 250), octet(number % 250), part)
}

/// A folder for a server's data; whatever still runs in it ends with it. Devices outlive their server; those of a test
/// that failed must not outlive the test.
pub struct Data {
    path: PathBuf,
    address: Ipv4Addr,
    _folder: Option<TempDir>,
}

impl Data {
    pub fn new() -> Data {
        let folder = tempfile::tempdir().expect("a folder");
        Data { path: folder.path().to_owned(), address: first_address(), _folder: Some(folder) }
    }

    /// In a folder of somebody else's.
    pub fn within(path: &Path) -> Data {
        Data { path: path.to_owned(), address: first_address(), _folder: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The devices' processes that have this in their arguments.
    pub fn processes(&self, text: &str) -> Vec<String> {
        processes(&self.path().display().to_string(), text)
    }

    /// Everything that devices left where they run and write.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let entries = |folder: &str| std::fs::read_dir(self.path().join(folder)).expect("a folder");
        let entries = ["disks/disks", "devices/run"].into_iter().flat_map(entries);
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        for process in self.processes("") {
            let _ = Command::new("kill").args(["-9", &process]).status();
        }
    }
}

/// Processes of QEMU in a folder whose arguments have this text.
fn processes(folder: &str, text: &str) -> Vec<String> {
    let listed = Command::new("pgrep").args(["-f", &format!("qemu-system.*{text}")]).output().expect("pgrep");
    let ours = |pid: &&str| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|path| path.starts_with(folder))
    };
    String::from_utf8_lossy(&listed.stdout).lines().filter(ours).map(str::to_owned).collect()
}

/// A server with real devices, and its admin.
pub struct Yard<'a> {
    pub daemon: Daemon,
    pub data: &'a Data,
    flags: Vec<String>,
    http: reqwest::Client,
    token: String,
}

impl<'a> Yard<'a> {
    pub fn open(data: &'a Data, flags: &[&str]) -> Yard<'a> {
        Yard::open_as(data, flags, &[])
    }

    /// The same with more in the daemon's environment.
    pub fn open_as(data: &'a Data, flags: &[&str], environment: &[(&str, &str)]) -> Yard<'a> {
        let (images, address) = (images().display().to_string(), data.address.to_string());
        let usual = ["--devices-images", &images, "--devices-first-address", &address];
        let daemon = Daemon::start_in(data.path(), &[&usual, flags].concat(), environment);
        let token = daemon.token();
        // A connection for each request: while a test waits for `adb`, nobody would notice that an idle one is closed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(90)).pool_max_idle_per_host(0);
        let http = http.build().expect("a client");
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Yard { daemon, data, flags, http, token }
    }

    /// As if the power had gone, and come back.
    pub fn reopen(mut self) -> Yard<'a> {
        let _ = self.daemon.child.kill();
        let _ = self.daemon.child.wait();
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Yard::open(self.data, &flags)
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.http.request(method, self.daemon.url(path)).bearer_auth(&self.token)
    }

    /// The answer's status and body; none when the server went away.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Option<(u16, Value)> {
        let request = self.request(method, path);
        let request = body.into_iter().fold(request, reqwest::RequestBuilder::json);
        let request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
        let answer = request.send().await.ok()?;
        let (status, text) = (answer.status().as_u16(), answer.text().await.ok()?);
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method, path, body.as_ref(), None).await.expect("an answer");
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// A tenant, once there is something to deploy in it.
    pub async fn tenant(&self, name: &str) -> String {
        let tenant = self.call("POST", "/api/v1/tenants", Some(json!({ "name": name }))).await;
        let started = Instant::now();
        loop {
            let ready = self.call("GET", "/api/v1/snapshots?deployable=true&deviceType=phone", None).await;
            if !ready["items"][0].is_null() {
                return tenant["id"].as_str().expect("an id").to_owned();
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no image came in: {ready}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A phone that is wanted; it comes up by itself.
    pub async fn phone(&self, tenant: &str) -> Phone {
        let spec = json!({ "tenantId": tenant, "deviceType": "phone" });
        Phone::read(&self.call("POST", "/api/v1/emulators", Some(spec)).await)
    }

    pub async fn until(&self, id: &str, wanted: &str) -> Value {
        let started = Instant::now();
        loop {
            let seen = self.call("GET", &format!("/api/v1/emulators/{id}/status?wait=1"), None).await;
            if seen["status"] == wanted {
                return seen;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "{seen} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn doctor(&self) -> Output {
        daemon::paddockd().args(["doctor", "--data"]).arg(self.data.path()).output().expect("output")
    }

    /// What the doctor says when nothing is wrong.
    pub fn sound(&self) -> String {
        let said = self.doctor();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).expect("text")
    }
}

pub struct Phone {
    pub id: String,
    /// As `adb connect` wants it.
    pub address: String,
    pub serial: String,
}

impl Phone {
    pub fn read(made: &Value) -> Phone {
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        Phone {
            id: text(&made["id"]),
            address: format!("{}:5555", text(&made["endpoints"]["adb"]["host"])),
            serial: text(&made["serial"]),
        }
    }
}

/// Debian's adb, with a server of its own that ends with the test.
pub struct Adb(u16);

impl Adb {
    pub fn new() -> Adb {
        Adb(free_port())
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", "adb", "-P", &self.0.to_string()]).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("adb; `make test` installs it")
    }

    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// A connection of an earlier start of the device is of no use any more; and one that is there is of use only once the device has
    /// answered on it, which on a busy machine may take a while or be missed.
    pub fn connect(&self, device: &str) {
        let mut said = String::new();
        for _ in 0..4 {
            self.run(&["disconnect", device]);
            said = self.says(&["connect", device]);
            let port = self.0.to_string();
            let mut wait = Command::new("timeout");
            wait.args(["20", "adb", "-P", &port, "-s", device, "wait-for-device"]);
            if said.contains("connected to") && wait.status().expect("adb").success() {
                return;
            }
        }
        panic!("{device} does not answer: {said}");
    }

    pub fn shell(&self, device: &str, line: &str) -> String {
        let output = self.run(&["-s", device, "shell", line]);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

/// A ZIP archive with one stored file: the smallest APK the device takes.
pub fn apk(package: &str) -> Vec<u8> {
    let (name, data) =
        ("AndroidManifest.xml", format!("<manifest package=\"{package}\" android:versionCode=\"3\">"));
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let sizes = words(&[0, data.len() as u32, data.len() as u32]);
    let length = (name.len() as u16).to_le_bytes();
    let header = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0".as_slice();
    let local = [header, &sizes, &length, &[0; 2], name.as_bytes(), data.as_bytes()].concat();
    let header = b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0".as_slice();
    let entry = [header, &sizes, &length, &[0; 16], name.as_bytes()].concat();
    let places = words(&[entry.len() as u32, local.len() as u32]);
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0".as_slice(), &places, &[0; 2]].concat();
    [local, entry, end].concat()
}

/// Bytes that no compression and no luck could restore.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
