//! A conversation in lines with the host: over a virtio-serial port, or over a socket where there is no machine.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// The longest line that is understood.
const MAX_LINE: usize = 1024 * 1024;
/// While the host takes nothing, no more than this is waiting for it.
const MAX_WAITING: usize = 1024 * 1024;

/// What is said on the device's side.
pub trait Conversation {
    /// The host has connected.
    fn greeted(&mut self) -> Vec<String>;
    /// The host has said a line.
    fn heard(&mut self, line: &str) -> Vec<String>;
    /// Lines to say unasked, whenever there is room.
    fn unasked(&mut self) -> Vec<String>;
}

/// Wakes a conversation that waits for the host, because there is something to say.
#[derive(Clone)]
pub struct Wake(Arc<OwnedFd>);

impl Wake {
    pub fn new() -> io::Result<Wake> {
        Ok(Wake(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn up(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// Where the host is.
pub enum Place {
    /// The virtio-serial port of this name.
    Port(&'static str),
    /// A socket that the agent listens on.
    Socket(PathBuf),
}

/// Talks with whoever comes, one at a time, for ever.
pub fn start(
    place: Place,
    wake: Wake,
    mut conversation: impl Conversation + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new().name("channel".to_owned()).spawn(move || {
        // A machine may have no such port; then there is no host to talk to.
        let _ = match place {
            Place::Port(name) => talk_on_port(name, &wake, &mut conversation),
            Place::Socket(path) => talk_on_socket(&path, &wake, &mut conversation),
        };
    })?;
    Ok(())
}

fn talk_on_port(name: &str, wake: &Wake, conversation: &mut dyn Conversation) -> io::Result<()> {
    let path = find_port(name).ok_or(io::ErrorKind::NotFound)?;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let port = File::options().read(true).write(true).custom_flags(nonblocking).open(path)?;
    loop {
        // The kernel tells that the host has left, but not that it has come.
        while !is_connected(&port) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = converse(&port, wake, conversation);
    }
}

/// Port numbers move with the list of devices; names do not.
fn find_port(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let port = ports
        .into_iter()
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|found| found.trim() == name))?;
    Some(Path::new("/dev").join(port.file_name()))
}

fn is_connected(port: &File) -> bool {
    let mut watched = [PollFd::new(port, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok() && !watched[0].revents().contains(PollFlags::HUP)
}

fn talk_on_socket(path: &Path, wake: &Wake, conversation: &mut dyn Conversation) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nonblocking(true)?;
        let _ = converse(&stream, wake, conversation);
    }
    Ok(())
}

/// Talks until the host leaves. What was half said is forgotten, so the next host hears whole lines.
fn converse<S: AsFd>(port: &S, wake: &Wake, conversation: &mut dyn Conversation) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    let mut said: VecDeque<u8> = VecDeque::new();
    let mut heard = Vec::new();
    let say = |said: &mut VecDeque<u8>, lines: Vec<String>| {
        for line in lines {
            said.extend(line.as_bytes());
            said.push_back(b'\n');
        }
    };
    say(&mut said, conversation.greeted());
    loop {
        if said.is_empty() {
            say(&mut said, conversation.unasked());
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::OUT, !said.is_empty());
        wanted.set(PollFlags::IN, said.len() < MAX_WAITING);
        let mut watched = [PollFd::new(port, wanted), PollFd::new(&*wake.0, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (ready, woken) = (watched[0].revents(), !watched[1].revents().is_empty());
        if woken {
            wake.clear();
        }
        if ready.contains(PollFlags::HUP) && !ready.contains(PollFlags::IN) {
            return Ok(());
        }
        if ready.contains(PollFlags::OUT) {
            match (&mut &*port).write(said.make_contiguous()) {
                Ok(length) => drop(said.drain(..length)),
                Err(error) if would_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if ready.contains(PollFlags::IN) {
            let mut buffer = [0; 16 * 1024];
            match (&mut &*port).read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => heard.extend_from_slice(&buffer[..length]),
                Err(error) if would_wait(&error) => {}
                Err(error) => return Err(error),
            }
            while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                if !line.trim().is_empty() {
                    say(&mut said, conversation.heard(line.trim()));
                }
            }
            if heard.len() > MAX_LINE {
                heard.clear();
            }
        }
    }
}

fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
