//! Processes that outlive this one: started in a session of their own, found again, and never mistaken for another.
//!
//! A pid says nothing: the system gives it to somebody else as soon as its process is gone. A process is known by its
//! pid, the time of its start and a marker in its command line, and every signal goes through a pidfd, which stays with
//! the process it was opened for.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What is written down of a process, to find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessName {
    pub pid: i32,
    /// In clock ticks since the system's start.
    pub start_time: u64,
}

/// How a process ended, as far as its parent is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Status(i32),
    Signal(i32),
    /// Another process was its parent.
    Unknown,
}

pub struct Process {
    pub name: ProcessName,
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
}

struct Stat {
    state: char,
    start_time: u64,
}

/// The name in the brackets may hold anything, brackets too.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // Counted from the third field of proc(5), `state`; the start time is the 22nd.
    Some(Stat { state: fields.first()?.chars().next()?, start_time: fields.get(19)?.parse().ok()? })
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn has_word(pid: i32, word: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
}

/// Processes that run in a folder below `within`, with the words of their command lines.
pub fn running_within(within: &Path) -> io::Result<Vec<(i32, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // Processes of other users do not tell, and those that end meanwhile neither.
        let Ok(folder) = fs::read_link(format!("/proc/{pid}/cwd")) else { continue };
        if folder.starts_with(within) && folder != within {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
            found.push((pid, words.collect()));
        }
    }
    Ok(found)
}

/// By its full name: whoever changes the environment and has the system look for a program pays for a copy of this process.
fn setsid() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let name = Path::new("setsid");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        found.unwrap_or_else(|| name.to_owned())
    })
}

impl Process {
    /// Starts a program in a session of its own, so that no terminal and no signal to our group reaches it.
    pub fn start(program: &Path, arguments: &[String], folder: &Path, output: &File) -> io::Result<Process> {
        // `setsid` becomes the program itself, with the same pid; to do it here would need unsafe code.
        let mut child = Command::new(setsid())
            .arg(program)
            .args(arguments)
            // Our environment may hold secrets.
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        // Its parent is this process, which has not waited for it: the pid is still its own.
        let process = Process::open(pid).and_then(|process| process.ok_or(io::ErrorKind::NotFound.into()));
        // What cannot be looked after must not run.
        process.inspect_err(|_| drop(child.kill().and_then(|()| child.wait())))
    }

    /// The process of that name, if it still runs and has the marker.
    pub fn find(name: ProcessName, marker: &str) -> io::Result<Option<Process>> {
        // The pidfd first: whoever has the pid while we look, signals go only to the one that was looked at.
        let Some(process) = Process::open(name.pid)? else { return Ok(None) };
        Ok((process.name == name && has_word(name.pid, marker)).then_some(process))
    }

    /// The process that has this pid now.
    pub fn open(pid: i32) -> io::Result<Option<Process>> {
        let Some(raw) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else { return Ok(None) };
        let handle = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let Some(stat) = stat(pid) else { return Ok(None) };
        let name = ProcessName { pid, start_time: stat.start_time };
        #[expect(
            deprecated,
            reason = "its successor is unsafe because a type could give away another descriptor later; `OwnedFd` cannot"
        )]
        let handle = AsyncFd::with_interest(handle, Interest::READABLE)?;
        Ok(Some(Process { name, pid: raw, handle }))
    }

    /// Waits for the end, and takes the process off the system's list if it is our child.
    pub async fn ended(&self) -> Ended {
        // An error can only mean that the runtime ends, and then nobody waits for the answer.
        let _ = self.handle.readable().await;
        match waitid(
            WaitId::PidFd(rustix::fd::AsFd::as_fd(self.handle.get_ref())),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(status), _) => Ended::Status(status),
                (None, Some(signal)) => Ended::Signal(signal),
                (None, None) => Ended::Unknown,
            },
            Ok(None) | Err(_) => Ended::Unknown,
        }
    }

    /// Whether somebody has stopped it with a signal.
    pub fn is_stopped(&self) -> bool {
        stat(self.name.pid)
            .is_some_and(|stat| stat.start_time == self.name.start_time && matches!(stat.state, 'T' | 't'))
    }

    /// Ends the process and everything in its group, at once.
    pub fn kill(&self) {
        // Stopped through the pidfd it cannot end by itself, so its number, which is the group's, stays its own.
        let held = pidfd_send_signal(self.handle.get_ref(), Signal::STOP).is_ok();
        if held
            && stat(self.name.pid)
                .is_some_and(|stat| stat.start_time == self.name.start_time && stat.state != 'Z')
        {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = pidfd_send_signal(self.handle.get_ref(), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start(script: &str) -> Process {
        let folder = tempfile::tempdir().expect("a folder");
        let output = tempfile::tempfile().expect("a file");
        let arguments = ["-c".to_owned(), script.to_owned(), "marker".to_owned()];
        Process::start(Path::new("/bin/sh"), &arguments, folder.path(), &output).expect("a process")
    }

    #[test]
    fn the_name_in_the_brackets_confuses_nobody() {
        let text = "12 (a) b) (c) T 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 5";
        let stat = parse_stat(text).expect("read");
        assert_eq!((stat.state, stat.start_time), ('T', 777));
        for text in ["", "12 (x", "12 (x) S 1"] {
            assert!(parse_stat(text).is_none(), "{text}");
        }
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_told_with_its_status() {
        assert_eq!(start("exit 3").ended().await, Ended::Status(3));
        let process = start("sleep 1000");
        process.kill();
        assert_eq!(process.ended().await, Ended::Signal(9));
    }

    #[tokio::test]
    async fn the_group_ends_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("child");
        let process = start(&format!("sleep 1000 & echo $! > {}; wait", file.display()));
        let child = loop {
            let pid = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            if let Some(pid) = pid {
                break Process::open(pid).expect("opened").expect("a process");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };

        process.kill();

        process.ended().await;
        tokio::time::timeout(Duration::from_secs(5), child.ended()).await.expect("the child ended too");
    }

    #[tokio::test]
    async fn a_reused_pid_is_somebody_else() {
        let process = start("sleep 1000");
        let name = process.name;
        while !has_word(name.pid, "marker") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        assert!(Process::find(name, "marker").expect("looked").is_some());
        assert!(Process::find(name, "other").expect("looked").is_none());
        let earlier = ProcessName { start_time: name.start_time - 1, ..name };
        assert!(Process::find(earlier, "marker").expect("looked").is_none());
        for pid in [0, -1, i32::MAX] {
            assert!(Process::find(ProcessName { pid, start_time: 1 }, "marker").expect("looked").is_none());
        }
        process.kill();
        process.ended().await;
        assert!(Process::find(name, "marker").expect("looked").is_none());
    }
}
