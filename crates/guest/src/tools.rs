//! The tools of a shell on the device: each is this program under another name, which asks the agent.

mod activity_manager;
mod input;
mod log;
mod package_manager;
mod state;
mod vehicle;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::adb::shell::{Kind, read_packet, write_packet};
use crate::device::Device;

/// Names under which this program is a tool. Debian's busybox prefers its own applets, so none of them is here.
pub const NAMES: [&str; 13] = [
    "am",
    "cmd",
    "dumpsys",
    "getprop",
    "input",
    "log",
    "logcat",
    "pm",
    "screencap",
    "setprop",
    "settings",
    "vehicle",
    "wm",
];

/// The variable that tells a tool where the agent listens, and where it does on a device.
pub const SOCKET: &str = "PADDOCK_AGENT";
pub const SOCKET_PATH: &str = "/dev/socket/agent";

const MAX_CALL: u64 = 1024 * 1024;

/// What a tool was called with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub tool: String,
    pub args: Vec<String>,
    pub folder: PathBuf,
    pub pid: u32,
    /// Filters of `logcat` from the environment.
    pub tags: String,
}

/// Asks the agent to carry out the call, passing input and output on.
pub fn ask(tool: &str, args: Vec<String>) -> Result<ExitCode> {
    let socket = std::env::var(SOCKET).unwrap_or(SOCKET_PATH.to_owned());
    let mut agent =
        UnixStream::connect(&socket).with_context(|| format!("cannot reach the agent at {socket}"))?;
    let reads_input = args.iter().any(|arg| arg == "-S");
    let call = Call {
        tool: tool.to_owned(),
        args,
        folder: std::env::current_dir().unwrap_or_default(),
        pid: std::process::id(),
        tags: std::env::var("ANDROID_LOG_TAGS").unwrap_or_default(),
    };
    let mut line = serde_json::to_vec(&call)?;
    line.push(b'\n');
    agent.write_all(&line)?;
    if reads_input {
        let mut to = agent.try_clone()?;
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
    while let Some((kind, data)) = read_packet(&mut agent)? {
        let written = match kind {
            Kind::Stdout => io::stdout().write_all(&data).and_then(|()| io::stdout().flush()),
            Kind::Stderr => io::stderr().write_all(&data),
            Kind::Exit => return Ok(ExitCode::from(data.first().copied().unwrap_or(1))),
            _ => Ok(()),
        };
        if written.is_err() {
            break;
        }
    }
    Ok(ExitCode::FAILURE)
}

/// Listens for tools for ever.
pub fn start(device: &Arc<Device>) -> Result<()> {
    let path = device.path(SOCKET_PATH);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).with_context(|| format!("listen at {}", path.display()))?;
    let device = device.clone();
    std::thread::Builder::new().name("tools".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let device = device.clone();
            let _ =
                std::thread::Builder::new().name("tool".to_owned()).spawn(move || answer(&device, stream));
        }
    })?;
    Ok(())
}

/// Where a tool's answer goes.
pub struct Answer {
    stream: UnixStream,
}

impl Answer {
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.bytes(text.as_bytes())
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(64 * 1024).try_for_each(|piece| write_packet(&mut self.stream, Kind::Stdout, piece))
    }

    pub fn complain(&mut self, text: &str) -> io::Result<()> {
        write_packet(&mut self.stream, Kind::Stderr, text.as_bytes())
    }

    /// Whether whoever asked has left. A tool that never ends has to know.
    pub fn is_abandoned(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut watched = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok_and(|count| count > 0)
    }
}

/// How a tool ends: its exit code, or what was wrong with the call.
pub type Outcome = Result<u8, Failure>;

pub enum Failure {
    /// The caller is told, and the code is 1.
    Wrong(String),
    /// The caller has left.
    Gone,
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Failure {
        Failure::Gone
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Wrong(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::Wrong(message.to_owned())
    }
}

fn answer(device: &Arc<Device>, stream: UnixStream) {
    let Ok(from) = stream.try_clone() else {
        return;
    };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let read = (&mut from).take(MAX_CALL).read_until(b'\n', &mut line);
    let (Ok(_), Ok(call)) = (read, serde_json::from_slice::<Call>(&line)) else {
        return;
    };
    let mut answer = Answer { stream };
    let code = match carry_out(device, &call, &mut from, &mut answer) {
        Ok(code) => code,
        Err(Failure::Wrong(message)) => {
            let _ = answer.complain(&format!("{}: {message}\n", call.tool));
            1
        }
        Err(Failure::Gone) => return,
    };
    let _ = write_packet(&mut answer.stream, Kind::Exit, &[code]);
}

fn carry_out(device: &Arc<Device>, call: &Call, from: &mut impl Read, to: &mut Answer) -> Outcome {
    let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
    match (call.tool.as_str(), args.as_slice()) {
        ("getprop", args) => state::getprop(device, args, to),
        ("setprop", args) => state::setprop(device, args),
        ("settings", args) => state::settings(device, args, to),
        ("wm", args) => state::wm(device, args, to),
        ("dumpsys", args) => state::dumpsys(device, args, to),
        ("screencap", args) => state::screencap(device, call, args, to),
        ("vehicle", args) => vehicle::vehicle(device, args, to),
        ("log", args) => log::log(device, call.pid, args),
        ("logcat", _) => log::logcat(device, call, to),
        ("input", args) | ("cmd", ["input", args @ ..]) => input::input(device, args),
        ("pm", args) | ("cmd", ["package", args @ ..]) => package_manager::pm(device, call, args, from, to),
        ("am", args) | ("cmd", ["activity", args @ ..]) => activity_manager::am(device, args, to),
        ("cmd", [] | ["-l"]) => Ok(to.say("activity\ninput\npackage\n").map(|()| 0)?),
        ("cmd", [service, ..]) => Err(format!("Can't find service: {service}").into()),
        (tool, _) => Err(format!("no such tool: {tool}").into()),
    }
}

/// Options with values and the words between them, for tools whose options do not stand together.
struct Words<'a> {
    options: BTreeMap<&'a str, &'a str>,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Those in `valued` take the next word; other options stand alone.
    fn parse(args: &[&'a str], valued: &[&str]) -> Result<Words<'a>, String> {
        let mut parsed = Words { options: BTreeMap::new(), words: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if valued.contains(arg) {
                let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
                parsed.options.insert(arg, value);
            } else if arg.starts_with('-') && arg.len() > 1 {
                parsed.options.insert(arg, "");
            } else {
                parsed.words.push(arg);
            }
        }
        Ok(parsed)
    }

    fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }
}

/// A path as the caller meant it: relative to where it stands.
fn path_from(device: &Device, folder: &Path, path: &str) -> PathBuf {
    if path.starts_with('/') { device.path(path) } else { device.path_of(folder.join(path).as_os_str()) }
}
