//! What the control plane adds to the start of a device: a start by the API against the same command line in a shell script.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::{Bench, http};

const PATIENCE: Duration = Duration::from_secs(120);

/// The name by which this program, started instead of QEMU, says when that was and becomes QEMU. Both parties
/// start it, so both pay for it; a script would cost four milliseconds.
const STAND_IN: &str = "qemu";

/// Does not come back if this program was started by that name.
pub fn stand_in(words: &mut std::env::ArgsOs) -> Result<()> {
    let name = words.next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name).is_none_or(|name| name != STAND_IN) {
        return Ok(());
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Whoever only asks for its version does so from anywhere.
    if Path::new("identity.json").exists() {
        std::fs::write("spawned", since.as_secs_f64().to_string())?;
    }
    Err(Command::new("qemu-system-x86_64").args(words).exec().into())
}

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let wrapper = bench.folder("start-script")?.join(STAND_IN);
    std::os::unix::fs::symlink(std::env::current_exe()?, &wrapper)?;
    let images = images()?;
    let flags =
        ["--devices-images", &images.display().to_string(), "--devices-qemu", &wrapper.display().to_string()]
            .map(str::to_owned);
    let paddock = Paddock::start_with_flags(bench, "start", &flags)?;
    let tenant = paddock.create_tenant("bench")?;
    let tenant = tenant.rsplit('/').next().context("a path has parts")?.to_owned();
    wait_for_image(&paddock)?;

    let (mut spawned, mut ready) = (Vec::new(), Pairs::default());
    for round in 0..bench.rounds {
        let ours = by_paddock(&paddock, &tenant)?;
        let peer = by_script(bench, &wrapper, &ours, round)?;
        spawned.push(ours.spawned.as_secs_f64() * 1e3);
        ready.push(ours.ready.as_secs_f64() * 1e3, peer.as_secs_f64() * 1e3);
    }
    Ok(vec![
        Row {
            name: "start: POST until QEMU is started, ms".to_owned(),
            figures: Figures::of(spawned),
            goal: Some(Goal::AtMost(10.0)),
            note: String::new(),
        },
        Row {
            name: "start: device up ÷ same command line by a script".to_owned(),
            figures: ready.ratios(),
            goal: Some(Goal::AtMost(1.05)),
            note: ready.note("ms"),
        },
    ])
}

/// A start, and what it takes to do the same without Paddock.
struct Started {
    spawned: Duration,
    ready: Duration,
    words: Vec<String>,
    identity: Vec<u8>,
    disk: PathBuf,
}

fn by_paddock(paddock: &Paddock, tenant: &str) -> Result<Started> {
    let token = paddock.token()?;
    let body = format!(r#"{{"tenantId":"{tenant}","deviceType":"phone"}}"#);
    // What the script's device has left unflushed would otherwise be flushed with ours.
    ensure!(Command::new("sync").status()?.success(), "the file systems cannot be flushed");
    let (clock, begun) = (SystemTime::now(), Instant::now());
    let made = http::post(paddock.address, "/api/v1/emulators", &token, &body)?;
    let made: Value = serde_json::from_str(&made.body)?;
    let id = made["id"].as_str().context("an emulator has an id")?.to_owned();
    let path = format!("/api/v1/emulators/{id}/status?wait=8");
    while status(paddock, &path, &token)? != "running" {
        ensure!(begun.elapsed() < PATIENCE, "{id} does not come up");
    }
    let ready = begun.elapsed();
    let folder = paddock.data().join("devices/run").join(&id);
    let seconds: f64 = std::fs::read_to_string(folder.join("spawned"))?.trim().parse()?;
    let spawned = UNIX_EPOCH + Duration::from_secs_f64(seconds);
    let record: Value = serde_json::from_slice(&std::fs::read(folder.join("device.json"))?)?;
    let pid = record["process"]["pid"].as_i64().context("a device has a process")?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline"))?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .skip(1)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let identity = std::fs::read(folder.join("identity.json"))?;
    let disk = PathBuf::from(record["volume"].as_str().context("a device has a disk")?);
    http::delete(paddock.address, &format!("/api/v1/emulators/{id}"), &token)?;
    while status(paddock, &format!("/api/v1/emulators/{id}/status?wait=8"), &token)? != "terminated" {}
    let words = words.into_iter().filter(|word| !word.is_empty()).collect();
    let spawned = spawned.duration_since(clock).unwrap_or_default();
    Ok(Started { spawned, ready, words, identity, disk })
}

/// Makes the disk with `qemu-img`, as a script would, starts QEMU, and asks the device whether it is up.
fn by_script(bench: &Bench, wrapper: &Path, ours: &Started, round: usize) -> Result<Duration> {
    let folder = bench.folder(&format!("start-script/run-{round}"))?;
    let pool = ours.disk.parent().context("a disk lies in a folder")?;
    let layers = std::fs::read_dir(pool.join("../layers"))?.filter_map(|entry| Some(entry.ok()?.path()));
    let layer = layers
        .filter(|path| path.extension().is_some_and(|kind| kind == "qcow2"))
        .min()
        .context("the pool has a layer")?;
    let layer = layer.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let script = format!(
        "set -e\nqemu-img create -q -f qcow2 -o extended_l2=on,cluster_size=128k -F qcow2 -b ../layers/{layer} {disk}\n\
         exec setsid {wrapper} \"$@\"\n",
        disk = ours.disk.display(),
        wrapper = wrapper.display()
    );
    std::fs::write(folder.join("identity.json"), &ours.identity)?;
    let begun = Instant::now();
    let child = Command::new("/bin/bash")
        .args(["-c", &script, "start"])
        .args(&ours.words)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("said"))?)
        .spawn()?;
    let running = Running(child);
    let up = wait_until_up(&folder);
    let took = begun.elapsed();
    drop(running);
    std::fs::remove_file(&ours.disk)?;
    let said = std::fs::read_to_string(folder.join("said")).unwrap_or_default();
    up.with_context(|| format!("the script's device: {said}"))?;
    Ok(took)
}

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent says by itself when it is up; whoever comes late asks.
fn wait_until_up(folder: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        ensure!(begun.elapsed() < PATIENCE, "it does not come up");
        let Ok(mut socket) = UnixStream::connect(folder.join("control.sock")) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        socket.write_all(b"{\"id\": 1, \"op\": \"health\"}\n")?;
        let mut heard = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let length = socket.read(&mut piece)?;
            if length == 0 {
                break;
            }
            heard.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&heard);
            if text.lines().any(is_ready) {
                return Ok(());
            }
        }
    }
}

fn is_ready(line: &str) -> bool {
    let Ok(said) = serde_json::from_str::<Value>(line) else { return false };
    said["event"] == "ready" || said["ok"]["ready"] == true
}

pub fn status(paddock: &Paddock, path: &str, token: &str) -> Result<String> {
    let answer: Value = serde_json::from_str(&http::get(paddock.address, path, token)?.body)?;
    let status = answer["status"].as_str().unwrap_or_default().to_owned();
    if status == "failed" {
        bail!("the device failed: {answer}");
    }
    Ok(status)
}

pub fn wait_for_image(paddock: &Paddock) -> Result<()> {
    let (token, begun) = (paddock.token()?, Instant::now());
    loop {
        let page = http::get(paddock.address, "/api/v1/snapshots?deployable=true&deviceType=phone", &token)?;
        let page: Value = serde_json::from_str(&page.body)?;
        if !page["items"][0].is_null() {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "no image came in");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where `make image` has put the images.
pub fn images() -> Result<PathBuf> {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/paddock"));
    let folder = cache.or(home).context("neither CACHE nor HOME is set")?.join("image");
    ensure!(
        folder.join("phone.profile.json").exists(),
        "there is no image in {}; run `make image`",
        folder.display()
    );
    Ok(folder)
}
