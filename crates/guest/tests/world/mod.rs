//! What the tests stand on: the real `adb`, the agent as a process, the image in QEMU, and the host's side of the channels.

// Each test file uses its part.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

pub fn folder() -> TempDir {
    // Paths of sockets are short.
    tempfile::Builder::new().prefix("pdk").tempdir_in("/tmp").expect("a folder")
}

pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host with its own key and its own adb server, which ends with it.
pub struct Adb {
    home: TempDir,
    port: u16,
    device: String,
}

impl Adb {
    pub fn new() -> Adb {
        let home = folder();
        fs::create_dir(home.path().join(".android")).expect("a folder");
        let made = Command::new("adb").arg("keygen").arg(home.path().join(".android/adbkey")).output();
        assert!(made.expect("adb; `scripts/setup image` installs it").status.success());
        Adb { home, port: free_port(), device: String::new() }
    }

    /// The public half of the host's key, as a device is given it.
    pub fn key(&self) -> String {
        fs::read_to_string(self.home.path().join(".android/adbkey.pub")).expect("a key").trim().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub fn command(&self) -> Command {
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

    pub fn connect(&mut self, port: u16) -> String {
        self.device = format!("127.0.0.1:{port}");
        let output = self.command().args(["connect", &self.device]).output().expect("adb");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Connects anew, whatever adb believes of the connection it has.
    pub fn reconnect(&mut self, port: u16) {
        let _ = self.command().arg("disconnect").output();
        eventually("a new connection", || self.connect(port).starts_with("connected").then_some(()));
    }

    pub fn on_device(&self, args: &[&str]) -> Command {
        let mut command = self.command();
        command.args(["-s", &self.device]).args(args);
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.on_device(args).output().expect("adb")
    }

    /// Standard output of a command that must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        assert!(output.status.success(), "adb {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn shell(&self, line: &str) -> String {
        self.run(&["shell", line]).trim_end().to_owned()
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

/// The host's end of a channel.
pub struct Channel {
    reader: BufReader<UnixStream>,
    next: u64,
}

impl Channel {
    pub fn open(path: &Path) -> Channel {
        let stream = eventually("a channel", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Channel { reader: BufReader::new(stream), next: 1 }
    }

    pub fn say(&mut self, line: &Value) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).expect("a line");
    }

    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Asks, and leaves out the events before the answer.
    pub fn ask(&mut self, mut request: Value) -> Value {
        self.next += 1;
        request["id"] = self.next.into();
        self.say(&request);
        loop {
            let answer = self.hear();
            if answer["id"] == request["id"] {
                return answer;
            }
        }
    }

    pub fn wait_for(&mut self, event: &str) -> Value {
        loop {
            let heard = self.hear();
            if heard["event"] == event {
                return heard;
            }
        }
    }
}

/// The agent as an ordinary process with a folder for its root; ended when dropped.
pub struct Agent {
    child: Child,
    pub folder: TempDir,
    pub port: u16,
}

impl Agent {
    pub fn start(identity: &Value) -> Agent {
        let folder = folder();
        fs::create_dir(folder.path().join("root")).expect("a folder");
        Agent::start_in(folder, identity)
    }

    fn start_in(folder: TempDir, identity: &Value) -> Agent {
        let path = |name: &str| folder.path().join(name);
        fs::write(path("identity"), identity.to_string()).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_paddock-guest"))
            .args(["agent", "--adb", "127.0.0.1:0"])
            .args(["--root".into(), path("root"), "--control".into(), path("control")])
            .args(["--log".into(), path("log"), "--identity".into(), path("identity")])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        Agent { child, port: port.unwrap_or_else(|| panic!("no port in {line:?}")), folder }
    }

    pub fn open() -> Agent {
        Agent::start(&json!({"serial": "TEST-1", "adb": {"access": "open"}}))
    }

    /// Ends the process and starts another on the same folder.
    pub fn restarted(mut self, identity: &Value) -> Agent {
        self.child.kill().expect("a process");
        self.child.wait().expect("a process");
        let folder = std::mem::replace(&mut self.folder, folder());
        Agent::start_in(folder, identity)
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub fn control(&self) -> Channel {
        Channel::open(&self.folder.path().join("control"))
    }

    pub fn log(&self) -> Channel {
        Channel::open(&self.folder.path().join("log"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A device with ADB open for all, and a host that is connected to it.
pub fn open_device() -> (Agent, Adb) {
    let (agent, mut adb) = (Agent::open(), Adb::new());
    let said = adb.connect(agent.port);
    assert!(said.starts_with("connected to"), "{said}");
    (agent, adb)
}

/// A ZIP archive with one stored file: the smallest APK the device takes.
pub fn apk(package: &str) -> Vec<u8> {
    let (name, data) =
        ("AndroidManifest.xml", format!("<manifest package=\"{package}\" android:versionCode=\"3\">"));
    let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let sizes = words(&[0, data.len() as u32, data.len() as u32]);
    let length = (name.len() as u16).to_le_bytes();
    let local = [
        b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0".as_slice(),
        &sizes,
        &length,
        &[0; 2],
        name.as_bytes(),
        data.as_bytes(),
    ]
    .concat();
    let entry =
        [b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0".as_slice(), &sizes, &length, &[0; 16], name.as_bytes()]
            .concat();
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

/// The reference device in QEMU, launched as its profile says; ended when dropped.
pub struct Machine {
    child: Child,
    pub folder: TempDir,
    pub port: u16,
}

/// How the memory of a machine is kept.
pub enum Memory<'a> {
    Own,
    /// In a file that clones can start from.
    Template,
    /// A private copy of a template's.
    CloneOf(&'a Path),
}

impl Machine {
    pub fn boot(kind: &str, identity: &Value) -> Machine {
        let folder = folder();
        let disk = folder.path().join("disk.qcow2");
        overlay(&images().join(format!("{kind}.qcow2")), &disk);
        Machine::launch(kind, identity, folder, &Memory::Own)
    }

    /// Starts QEMU on `disk.qcow2` in the folder.
    pub fn launch(kind: &str, identity: &Value, folder: TempDir, memory: &Memory<'_>) -> Machine {
        let images = images();
        let text = fs::read_to_string(images.join(format!("{kind}.profile.json"))).expect("a profile");
        let profile: Value = serde_json::from_str(&text).expect("JSON");
        let word = |path: &str| {
            profile.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}")).to_owned()
        };
        let file = |path: &str| images.join(word(path)).display().to_string();
        let size = profile["machine"]["memoryMiB"].as_u64().expect("memory");
        fs::write(folder.path().join("identity.json"), identity.to_string()).expect("a file");
        let port = free_port();
        let here = |name: &str| folder.path().join(name).display().to_string();
        let mut machine = format!("{},{}", word("/machine/type"), word("/machine/options"));
        let mut command = Command::new("qemu-system-x86_64");
        match memory {
            Memory::Own => {}
            Memory::Template | Memory::CloneOf(_) => {
                machine += ",memory-backend=ram0";
                let (path, share) = match memory {
                    Memory::CloneOf(template) => (template.join("ram").display().to_string(), "off"),
                    _ => (here("ram"), "on"),
                };
                command.args([
                    "-object",
                    &format!("memory-backend-file,id=ram0,size={size}M,mem-path={path},share={share}"),
                ]);
            }
        }
        if let Memory::CloneOf(_) = memory {
            command.args(["-incoming", "defer"]);
        }
        let serial_port = |id: &str, name: &str| format!("{},chardev={id},name={name}", "virtserialport");
        let child = command
            .args(["-accel", "tcg", "-machine", &machine, "-cpu", &word("/machine/cpu"), "-smp", "1"])
            .args([
                "-m",
                &size.to_string(),
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args([
                "-kernel",
                &file("/boot/kernel"),
                "-initrd",
                &file("/boot/initramfs"),
                "-append",
                &word("/boot/commandLine"),
            ])
            .args([
                "-blockdev",
                &format!("driver=file,node-name=f0,filename={},discard=unmap", here("disk.qcow2")),
            ])
            .args(["-blockdev", "driver=qcow2,node-name=d0,file=f0,discard=unmap,detect-zeroes=unmap"])
            .args(["-device", &format!("{},drive=d0", word("/disks/0/device"))])
            .args([
                "-netdev",
                &format!("user,id=n0,hostfwd=tcp:127.0.0.1:{port}-:{}", profile["adb"]["port"]),
            ])
            .args([
                "-device",
                &format!("{},netdev=n0,{}", word("/network/device"), word("/network/deviceOptions")),
            ])
            .args(["-device", &word("/display/device"), "-device", &word("/channels/device")])
            .args(["-device", &word("/input/0"), "-device", &word("/input/1")])
            .args(["-chardev", &format!("socket,id=control,path={},server=on,wait=off", here("control"))])
            .args(["-device", &serial_port("control", &word("/channels/control"))])
            .args(["-chardev", &format!("socket,id=log,path={},server=on,wait=off", here("log"))])
            .args(["-device", &serial_port("log", &word("/channels/log"))])
            .args(["-fw_cfg", &format!("name={},file={}", word("/identity/name"), here("identity.json"))])
            .args([
                "-chardev",
                &format!("file,id=console,path={}", here("console")),
                "-serial",
                "chardev:console",
            ])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", here("qmp"))])
            .stdin(Stdio::null())
            .spawn()
            .expect("QEMU; `scripts/setup image` installs it");
        Machine { child, folder, port }
    }

    pub fn control(&self) -> Channel {
        Channel::open(&self.folder.path().join("control"))
    }

    pub fn log(&self) -> Channel {
        Channel::open(&self.folder.path().join("log"))
    }

    /// The control channel of a device that is ready.
    pub fn ready(&self) -> Channel {
        let mut control = self.control();
        loop {
            let heard = control.hear();
            if heard["event"] == "ready" || heard["ready"] == true {
                return control;
            }
        }
    }

    /// Carries out QEMU commands, one after the other, and says what the last one answered.
    pub fn qmp(&self, commands: &[Value]) -> Value {
        let mut monitor = Channel::open(&self.folder.path().join("qmp"));
        monitor.hear();
        let mut answer = Value::Null;
        for command in [json!({"execute": "qmp_capabilities"})].iter().chain(commands) {
            monitor.say(command);
            answer = loop {
                let heard = monitor.hear();
                assert!(heard.get("error").is_none(), "{command}: {heard}");
                if let Some(answer) = heard.get("return") {
                    break answer.clone();
                }
            };
        }
        answer
    }

    /// Waits for the end of the machine, which it has to reach by itself.
    pub fn ends(&mut self) -> bool {
        eventually("the machine ends", || self.child.try_wait().expect("a process")).success()
    }

    pub fn console(&self) -> String {
        fs::read_to_string(self.folder.path().join("console")).unwrap_or_default()
    }

    /// Ends the machine and gives back its folder with the disk.
    pub fn into_folder(mut self) -> TempDir {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::replace(&mut self.folder, folder())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the console said:\n{}", self.console());
        }
    }
}

/// A new disk over an old one.
pub fn overlay(base: &Path, disk: &Path) {
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-o", "extended_l2=on,cluster_size=128k", "-b"])
        .args([base, disk])
        .output()
        .expect("qemu-img");
    assert!(made.status.success(), "{made:?}");
}
