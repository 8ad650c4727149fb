//! `paddock adb connect` with real devices: QEMU runs one, and Debian's `adb` does through us what it does directly.

mod world;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use world::{EXIT_CONFLICT, EXIT_DONE, EXIT_NOT_AUTHENTICATED, EXIT_NOT_FOUND, World};

fn images() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    let folder = cache.unwrap_or_else(home).join("image");
    let there = folder.join("phone.profile.json").exists();
    assert!(there, "there is no image in {}; run `make image`", folder.display());
    folder
}

/// A program of ours that stays; ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Devices outlive their server; those of a test that failed must not outlive the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let ours = format!("qemu-system.*{}", self.0.display());
        let listed = Command::new("pgrep").args(["-f", &ours]).output().expect("pgrep");
        for process in String::from_utf8_lossy(&listed.stdout).lines() {
            let _ = Command::new("kill").args(["-9", process]).status();
        }
    }
}

/// Debian's adb, with a server of its own that ends with the test.
struct Adb {
    port: u16,
    serial: String,
}

impl Adb {
    fn run(&self, arguments: &[&str]) -> Output {
        let (port, serial) = (self.port.to_string(), self.serial.as_str());
        let mut command = Command::new("timeout");
        command.args(["120", "adb", "-P", &port, "-s", serial]).args(arguments);
        command.output().expect("adb; `make test` installs it")
    }

    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Starts `paddock adb connect`; returns it and the serial that it says.
fn connect(world: &World, emulator: &str, adb_port: u16, more: &[&str]) -> (Running, String) {
    let mut command = world.paddock(&[&["adb", "connect", emulator], more].concat());
    command.env("ANDROID_ADB_SERVER_PORT", adb_port.to_string());
    for name in ["PATH", "HOME"] {
        command.env(name, std::env::var_os(name).expect("a setting"));
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("paddock starts");
    let mut serial = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut serial).expect("a line");
    (Running(child), serial.trim().to_owned())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn pattern(path: &Path, length: u32) -> Vec<u8> {
    let bytes: Vec<u8> = (0..length).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(path, &bytes).expect("a file");
    bytes
}

#[test]
fn adb_does_through_the_server_what_it_does_directly() {
    let images = images();
    let world = World::with(&["--devices-images", images.to_str().expect("text")]);
    let _cleared = Cleared(world.data().to_owned());
    world.create(&["acme"]);
    until("an image", || world.run(&["snapshot", "list", "-o", "name"]).expect(EXIT_DONE).lines().len() > 1);
    let made = world.run(&["emulator", "create", "--tenant", "acme", "--name", "one", "--wait"]);
    let id = made.expect(EXIT_DONE).stdout.trim().to_owned();
    let port = free_port();
    // Two who start its server at once stand in each other's way.
    Command::new("adb").args(["-P", &port.to_string(), "start-server"]).output().expect("adb");
    let (mut running, serial) = connect(&world, "one", port, &[]);
    let adb = Adb { port, serial: serial.clone() };
    adb.says(&["wait-for-device"]);

    let shown = world.run(&["emulator", "get", "one", "-o", "json"]).expect(EXIT_DONE).json();
    assert_eq!(adb.says(&["shell", "getprop ro.serialno"]), shown["serial"].as_str().expect("a serial"));
    // The exit code and both outputs come through.
    let output = adb.run(&["shell", "echo out; echo err >&2; exit 7"]);
    assert_eq!(
        (output.status.code(), output.stdout, output.stderr),
        (Some(7), b"out\n".into(), b"err\n".into())
    );
    // Much of it, both ways, and unchanged.
    let folder = tempfile::tempdir().expect("a folder");
    let (big, back) = (folder.path().join("big"), folder.path().join("back"));
    let bytes = pattern(&big, 64 << 20);
    let started = Instant::now();
    adb.says(&["push", big.to_str().expect("text"), "/data/big"]);
    let pushed = started.elapsed();
    adb.says(&["pull", "/data/big", back.to_str().expect("text")]);
    println!("64 MiB pushed in {pushed:?}, pulled in {:?}", started.elapsed() - pushed);
    assert!(std::fs::read(&back).is_ok_and(|copy| copy == bytes), "what came back is not what went in");
    let sum = Command::new("sha256sum").arg(&big).output().expect("sha256sum");
    let here = String::from_utf8_lossy(&sum.stdout).split_whitespace().next().map(str::to_owned);
    let there = adb.says(&["shell", "sha256sum /data/big"]).split_whitespace().next().map(str::to_owned);
    assert_eq!(here, there);
    // A port of the device as one of ours: adbd itself answers there.
    let forwarded = adb.says(&["forward", "tcp:0", "tcp:5555"]);
    std::net::TcpStream::connect(("127.0.0.1", forwarded.parse().expect("a port"))).expect("a connection");

    // A restart ends the connection; adb comes back by itself, or when it is told to.
    world.run(&["emulator", "restart", "one", "--wait"]).expect(EXIT_DONE);
    until("adb", || {
        adb.run(&["connect", &serial]);
        adb.run(&["shell", "true"]).status.success()
    });
    assert_eq!(adb.says(&["shell", "cat /data/big | wc -c"]), (64 << 20).to_string());

    // Ctrl-C disconnects, and that is no failure.
    Command::new("kill").args(["-INT", &running.0.id().to_string()]).status().expect("a signal");
    assert_eq!(running.0.wait().expect("an end").code(), Some(0));
    assert!(!adb.says(&["devices"]).contains(&serial));

    // Whatever stands in the way is said, with its exit code.
    world.run(&["adb", "connect", "nobody", "--no-adb"]).expect(EXIT_NOT_FOUND);
    world.run_as("garbage", &["adb", "connect", &id, "--no-adb"]).expect(EXIT_NOT_AUTHENTICATED);
    world.run(&["emulator", "park", "one"]).expect(EXIT_DONE);
    world
        .run(&["adb", "connect", "one", "--no-adb"])
        .expect(EXIT_CONFLICT)
        .says_only("The emulator is parked");
    world.run(&["emulator", "restart", "one", "--wait"]).expect(EXIT_DONE);

    // When the device goes, so does the connection.
    let (mut running, serial) = connect(&world, "one", port, &[]);
    let adb = Adb { port, serial };
    adb.says(&["wait-for-device"]);
    world.run(&["emulator", "delete", "one", "--yes", "--wait"]).expect(EXIT_DONE);
    assert_eq!(running.0.wait().expect("an end").code(), Some(1));
}
