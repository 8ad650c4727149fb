//! One ADB connection: who the peer is, the streams inside it, and their flow control.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::auth::{Gate, TOKEN};
use super::packet::{self, Command, MAX_PAYLOAD, MAX_STRANGER_PAYLOAD, Packet, VERSION, invalid};
use super::reverse::Listeners;
use super::services;
use crate::device::Device;

/// How many streams one connection may have. With one packet in flight each, this bounds its memory.
const MAX_STREAMS: usize = 128;
const MAX_SIGNATURES: usize = 32;
const AUTHORISATION_TIME: Duration = Duration::from_secs(30);

const TOKEN_KIND: u32 = 1;
const SIGNATURE_KIND: u32 = 2;
const PUBLIC_KEY_KIND: u32 = 3;

const FEATURES: &str = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,sendrecv_v2";

pub struct Connection {
    pub device: Arc<Device>,
    pub listeners: Listeners,
    out: Mutex<TcpStream>,
    max_payload: usize,
    with_sum: bool,
    streams: Mutex<HashMap<u32, Arc<Stream>>>,
    next_id: AtomicU32,
}

/// Serves one peer until it leaves, misbehaves, or is refused.
pub fn serve(device: &Arc<Device>, socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
    let mut incoming = io::BufReader::with_capacity(64 * 1024, socket.try_clone()?);
    let hello = authorise(device, &mut incoming, &socket)?;
    let with_sum = hello.arg0 < VERSION;
    let max_payload = (hello.arg1 as usize).clamp(4096, MAX_PAYLOAD);
    let connection = Arc::new(Connection {
        device: device.clone(),
        listeners: Listeners::default(),
        out: Mutex::new(socket),
        max_payload,
        with_sum,
        streams: Mutex::default(),
        next_id: AtomicU32::new(1),
    });
    connection.send(
        Command::Connect,
        (VERSION.min(hello.arg0), MAX_PAYLOAD as u32),
        banner(device).as_bytes(),
    )?;
    let outcome = connection.receive(&mut incoming);
    connection.end();
    outcome
}

/// Lets the peer in, or fails. A stranger gets small packets, a few tries and little time.
fn authorise(device: &Device, incoming: &mut impl Read, socket: &TcpStream) -> io::Result<Packet> {
    socket.set_read_timeout(Some(AUTHORISATION_TIME))?;
    let hello = Packet::read(incoming, MAX_STRANGER_PAYLOAD)?;
    if hello.command != Command::Connect {
        return Err(invalid("the first packet is not CNXN"));
    }
    let gate = device.gate();
    if matches!(*gate, Gate::Open) || proves_itself(device, &gate, incoming, socket)? {
        socket.set_read_timeout(None)?;
        return Ok(hello);
    }
    Err(invalid("too many wrong signatures"))
}

/// Whether the peer signs one of a few tokens with a key that is known.
fn proves_itself(
    device: &Device,
    gate: &Gate,
    incoming: &mut impl Read,
    mut socket: &TcpStream,
) -> io::Result<bool> {
    for _ in 0..MAX_SIGNATURES {
        let token = random_token()?;
        packet::write(&mut socket, Command::Auth, (TOKEN_KIND, 0), &token, true)?;
        let signature = loop {
            let answer = Packet::read(incoming, MAX_STRANGER_PAYLOAD)?;
            match (answer.command, answer.arg0) {
                (Command::Auth, SIGNATURE_KIND) => break answer.data,
                // The host has no key that we know. A person would now be asked; nobody sits at this device.
                (Command::Auth, PUBLIC_KEY_KIND) => {
                    device
                        .log
                        .warn("adbd", "refused a host: its key is not among those given to this device");
                }
                _ => return Err(invalid("a stranger may only authorise itself")),
            }
        };
        if gate.admits(&token, &signature) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn random_token() -> io::Result<[u8; TOKEN]> {
    let mut token = [0; TOKEN];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    Ok(token)
}

fn banner(device: &Device) -> String {
    let mut banner = String::from("device::");
    for name in ["ro.product.name", "ro.product.model", "ro.product.device"] {
        banner += &format!("{name}={};", device.properties.get(name).replace([' ', ';'], "_"));
    }
    banner + "features=" + FEATURES
}

impl Connection {
    pub fn send(&self, command: Command, args: (u32, u32), data: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        packet::write(&mut *out, command, args, data, self.with_sum)
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u32, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(self: &Arc<Self>, incoming: &mut impl Read) -> io::Result<()> {
        loop {
            let packet = match Packet::read(incoming, MAX_PAYLOAD) {
                Ok(packet) => packet,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            match packet.command {
                Command::Open => self.opened(packet.arg0, &packet.data)?,
                Command::Okay => {
                    if let Some(stream) = self.find(packet.arg1) {
                        stream.acknowledged(packet.arg0);
                    }
                }
                Command::Write => {
                    if let Some(stream) = self.find(packet.arg1) {
                        stream.received(packet.data)?;
                    }
                }
                Command::Close => {
                    let stream = self.streams().remove(&packet.arg1);
                    if let Some(stream) = stream {
                        stream.peer_closed();
                    }
                }
                Command::Connect | Command::Auth => return Err(invalid("the connection is already made")),
            }
        }
    }

    fn find(&self, id: u32) -> Option<Arc<Stream>> {
        self.streams().get(&id).cloned()
    }

    /// The peer asks for a service; it runs on a thread of its own.
    fn opened(self: &Arc<Self>, remote: u32, name: &[u8]) -> io::Result<()> {
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let stream =
            std::str::from_utf8(name).ok().filter(|_| remote != 0).and_then(|_| self.add_stream(remote));
        let (Some(stream), Ok(name)) = (stream, String::from_utf8(name.to_vec())) else {
            return self.send(Command::Close, (0, remote), &[]);
        };
        let (connection, served) = (self.clone(), stream.clone());
        let thread = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            services::serve(&connection, &served, &name);
            served.close();
        });
        if thread.is_err() {
            stream.close();
        }
        Ok(())
    }

    fn add_stream(self: &Arc<Self>, remote: u32) -> Option<Arc<Stream>> {
        let mut streams = self.streams();
        if streams.len() >= MAX_STREAMS {
            return None;
        }
        let local = self.next_id.fetch_add(1, Ordering::Relaxed).max(1);
        let state = State { remote, ..State::default() };
        let stream = Arc::new(Stream {
            connection: self.clone(),
            local,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        streams.insert(local, stream.clone());
        Some(stream)
    }

    /// Opens a stream towards the peer, which is how a reverse connection reaches the host.
    pub fn open(self: &Arc<Self>, service: &str) -> io::Result<Arc<Stream>> {
        let stream = self.add_stream(0).ok_or_else(|| io::Error::other("too many streams"))?;
        if let Err(error) = self.send(Command::Open, (stream.local, 0), format!("{service}\0").as_bytes()) {
            self.streams().remove(&stream.local);
            return Err(error);
        }
        // The peer may have accepted, sent everything and closed before this thread comes to look.
        let state = stream.wait(|state| state.accepted || state.closed);
        if !state.accepted {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        drop(state);
        Ok(stream)
    }

    /// Ends everything that depends on the peer.
    fn end(&self) {
        // First of all nothing can be sent any more: whoever opens a stream after this finds out.
        let _ = self.out.lock().unwrap_or_else(PoisonError::into_inner).shutdown(std::net::Shutdown::Both);
        self.listeners.clear();
        let streams: Vec<_> = self.streams().drain().map(|(_, stream)| stream).collect();
        for stream in streams {
            stream.peer_closed();
        }
    }
}

#[derive(Default)]
struct State {
    /// The peer's number of the stream; 0 until it has told.
    remote: u32,
    inbox: VecDeque<Vec<u8>>,
    /// A packet that we have not yet acknowledged.
    owes_okay: bool,
    /// The peer has acknowledged what we sent last.
    may_send: bool,
    accepted: bool,
    closed: bool,
}

/// A stream inside a connection. One packet is in flight each way.
pub struct Stream {
    connection: Arc<Connection>,
    local: u32,
    state: Mutex<State>,
    changed: Condvar,
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), |state| !until(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledged(&self, remote: u32) {
        let mut state = self.lock();
        if state.remote == 0 {
            state.remote = remote;
            state.accepted = true;
        }
        state.may_send = true;
        self.changed.notify_all();
    }

    fn received(&self, data: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        if state.owes_okay {
            return Err(invalid("a packet was sent before the last was acknowledged"));
        }
        if data.is_empty() {
            drop(state);
            return self.acknowledge();
        }
        state.owes_okay = true;
        state.inbox.push_back(data);
        self.changed.notify_all();
        Ok(())
    }

    fn peer_closed(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn acknowledge(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.owes_okay = false;
        let (remote, closed) = (state.remote, state.closed);
        drop(state);
        if closed { Ok(()) } else { self.connection.send(Command::Okay, (self.local, remote), &[]) }
    }

    /// Tells the peer that its service is there; nothing may be written before.
    pub fn accept(&self) -> io::Result<()> {
        let mut state = self.lock();
        (state.accepted, state.may_send) = (true, true);
        let remote = state.remote;
        drop(state);
        self.connection.send(Command::Okay, (self.local, remote), &[])
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Closes after the peer has taken everything. Without `accept` before, this refuses the service.
    pub fn close(&self) {
        let mut state = self.wait(|state| state.closed || state.may_send || !state.accepted);
        if std::mem::replace(&mut state.closed, true) {
            return;
        }
        let local = if state.accepted { self.local } else { 0 };
        let remote = state.remote;
        self.changed.notify_all();
        drop(state);
        self.connection.streams().remove(&self.local);
        let _ = self.connection.send(Command::Close, (local, remote), &[]);
    }

    pub fn reader(self: &Arc<Self>) -> Reader {
        Reader { stream: self.clone(), packet: Vec::new(), at: 0 }
    }

    pub fn writer(self: &Arc<Self>) -> Writer {
        Writer { stream: self.clone() }
    }
}

/// What the peer sends. A packet is acknowledged when its last byte has been taken.
pub struct Reader {
    stream: Arc<Stream>,
    packet: Vec<u8>,
    at: usize,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.packet.len() {
            let mut state = self.stream.wait(|state| state.closed || !state.inbox.is_empty());
            let Some(packet) = state.inbox.pop_front() else {
                return Ok(0);
            };
            (self.packet, self.at) = (packet, 0);
        }
        let length = buffer.len().min(self.packet.len() - self.at);
        buffer[..length].copy_from_slice(&self.packet[self.at..self.at + length]);
        self.at += length;
        if self.at == self.packet.len() {
            (self.packet, self.at) = (Vec::new(), 0);
            self.stream.acknowledge()?;
        }
        Ok(length)
    }
}

/// What goes to the peer, in packets it can take.
pub struct Writer {
    stream: Arc<Stream>,
}

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        let connection = &self.stream.connection;
        let mut state = self.stream.wait(|state| state.closed || state.may_send);
        if state.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.may_send = false;
        let remote = state.remote;
        drop(state);
        let length = data.len().min(connection.max_payload);
        connection.send(Command::Write, (self.stream.local, remote), &data[..length])?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
