//! Reverse connections: listeners on the device whose connections lead to the host.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{Connection, Stream};
use super::services::{Socket, relay};

const MAX_LISTENERS: usize = 64;

/// What a connection listens on. Dropped with it.
#[derive(Default)]
pub struct Listeners {
    all: Mutex<Vec<Listener>>,
}

struct Listener {
    /// As the host names it, `tcp:8080`.
    device: String,
    host: Arc<Mutex<String>>,
    ended: Arc<AtomicBool>,
    address: Address,
}

#[derive(Clone)]
enum Address {
    Tcp(SocketAddr),
    Abstract(String),
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // The listening thread sleeps in accept; a connection wakes it.
        match &self.address {
            Address::Tcp(address) => drop(TcpStream::connect(address)),
            Address::Abstract(name) => {
                drop(
                    std::os::unix::net::SocketAddr::from_abstract_name(name)
                        .map(|name| UnixStream::connect_addr(&name)),
                );
            }
        }
    }
}

impl Listeners {
    fn all(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn clear(&self) {
        let ended = std::mem::take(&mut *self.all());
        drop(ended);
    }
}

pub fn serve(connection: &Arc<Connection>, stream: &Arc<Stream>, request: &str) -> io::Result<()> {
    stream.accept()?;
    // A blob is the length in four hexadecimal digits and the text.
    let blob = |text: &str| format!("{:04x}{text}", text.len());
    let answer = match carry_out(connection, request) {
        Ok(Answer::Done(None)) => "OKAY".to_owned(),
        Ok(Answer::Done(Some(port))) => format!("OKAY{}", blob(&port.to_string())),
        Ok(Answer::List(text)) => blob(&text),
        Err(error) => format!("FAIL{}", blob(&error.to_string())),
    };
    stream.writer().write_all(answer.as_bytes())
}

enum Answer {
    Done(Option<u16>),
    List(String),
}

fn carry_out(connection: &Arc<Connection>, request: &str) -> io::Result<Answer> {
    let listeners = &connection.listeners;
    if request == "list-forward" {
        let line = |listener: &Listener| {
            let host = listener.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
            format!("host {} {host}\n", listener.device)
        };
        return Ok(Answer::List(listeners.all().iter().map(line).collect()));
    }
    if request == "killforward-all" {
        listeners.clear();
        return Ok(Answer::Done(None));
    }
    if let Some(device) = request.strip_prefix("killforward:") {
        let mut all = listeners.all();
        let at = all.iter().position(|listener| listener.device == device);
        let at = at.ok_or_else(|| io::Error::other(format!("listener '{device}' not found")))?;
        all.remove(at);
        return Ok(Answer::Done(None));
    }
    let (rest, rebind) = match request.strip_prefix("forward:") {
        Some(rest) => rest.strip_prefix("norebind:").map_or((rest, true), |rest| (rest, false)),
        None => return Err(io::Error::other(format!("unknown request: reverse:{request}"))),
    };
    let (device, host) = rest.split_once(';').ok_or_else(|| io::Error::other("wanted DEVICE;HOST"))?;
    listen(connection, device, host, rebind)
}

fn listen(connection: &Arc<Connection>, device: &str, host: &str, rebind: bool) -> io::Result<Answer> {
    let mut all = connection.listeners.all();
    if let Some(listener) = all.iter().find(|listener| listener.device == device) {
        if !rebind {
            return Err(io::Error::other("cannot rebind existing socket"));
        }
        host.clone_into(&mut listener.host.lock().unwrap_or_else(PoisonError::into_inner));
        return Ok(Answer::Done(None));
    }
    if all.len() >= MAX_LISTENERS {
        return Err(io::Error::other("too many reverse connections"));
    }
    let (kind, name) = device.split_once(':').ok_or_else(|| io::Error::other("wanted KIND:ADDRESS"))?;
    let host = Arc::new(Mutex::new(host.to_owned()));
    let ended = Arc::new(AtomicBool::new(false));
    let acceptor =
        Acceptor { connection: Arc::downgrade(connection), host: host.clone(), ended: ended.clone() };
    let (device, address, port) = match kind {
        "tcp" => {
            let wanted: u16 = name.parse().map_err(|_| io::Error::other(format!("bad port '{name}'")))?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted))?;
            let address = listener.local_addr()?;
            acceptor.start(move || listener.accept().map(|(socket, _)| Socket::Tcp(socket)))?;
            let port = (wanted == 0).then_some(address.port());
            (format!("tcp:{}", address.port()), Address::Tcp(address), port)
        }
        "localabstract" => {
            let listener =
                UnixListener::bind_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
            acceptor.start(move || listener.accept().map(|(socket, _)| Socket::Unix(socket)))?;
            (device.to_owned(), Address::Abstract(name.to_owned()), None)
        }
        _ => return Err(io::Error::other(format!("cannot listen on '{device}': use tcp or localabstract"))),
    };
    all.push(Listener { device, host, ended, address });
    Ok(Answer::Done(port))
}

struct Acceptor {
    connection: Weak<Connection>,
    host: Arc<Mutex<String>>,
    ended: Arc<AtomicBool>,
}

impl Acceptor {
    fn start(self, accept: impl Fn() -> io::Result<Socket> + Send + 'static) -> io::Result<()> {
        std::thread::Builder::new().name("reverse".to_owned()).spawn(move || {
            while let Ok(socket) = accept() {
                let connection = self.connection.upgrade().filter(|_| !self.ended.load(Ordering::Acquire));
                let Some(connection) = connection else {
                    return;
                };
                let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let _ = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
                    if let Ok(stream) = connection.open(&host) {
                        let _ = relay(&stream, socket);
                        stream.close();
                    }
                });
            }
        })?;
        Ok(())
    }
}
