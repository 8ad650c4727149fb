//! ADB over a WebSocket: bytes a second both ways, a round trip, and the memory of a bridge that nobody uses.
//!
//! The device is a program of ours that sends, takes or repeats, as its first bytes say; every party bridges to the same one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::{Bench, http};

/// What goes one way in one measurement.
const VOLUME: u64 = 256 << 20;
const CHUNK: usize = 64 << 10;
/// An ADB message without content.
const MESSAGE: usize = 24;
const TRIPS: usize = 4000;
const IDLE: usize = 2000;

const SEND: u8 = b's';
const TAKE: u8 = b't';
const REPEAT: u8 = b'r';

/// Any key but zero costs the same.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x17, 0x88];

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let device = device()?;
    let websockify = Websockify::start(device)?;
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../image");
    let peer = device.to_string();
    let flags =
        ["--devices-simulated", "true", "--devices-images", images, "--devices-simulated-peer", &peer];
    let flags =
        [&flags[..], &["--limits-streams-per-caller", "100000", "--limits-stall-seconds", "3600"]].concat();
    let flags: Vec<String> = flags.into_iter().map(str::to_owned).collect();
    let paddock = Paddock::start_with_flags(bench, "bridge", &flags)?;
    let path = format!("/api/v1/emulators/{}/adb/proxy", paddock.deploy()?);
    // A token lives for 15 minutes, and so does what was opened with it.
    let ours = || Client::upgraded(paddock.address, &path, &paddock.token()?);
    let theirs = || Client::upgraded(websockify.address, "/", "");
    let raw = || Client::plain(device);

    let mut rows = Vec::new();
    for (direction, kind) in [("device to client", SEND), ("client to device", TAKE)] {
        let (mut over_peer, mut over_raw) = (Pairs::default(), Pairs::default());
        for _ in 0..bench.rounds {
            let bare = raw()?.throughput(kind)?;
            let peer = theirs()?.throughput(kind)?;
            let mine = ours()?.throughput(kind)?;
            over_peer.push(mine, peer);
            over_raw.push(mine, bare);
        }
        let row = |name: String, pairs: &Pairs, goal| Row {
            name,
            figures: pairs.ratios(),
            goal: Some(Goal::AtLeast(goal)),
            note: pairs.note("MiB/s"),
        };
        rows.push(row(format!("bridge, {direction} ÷ websockify"), &over_peer, 1.5));
        rows.push(row(format!("bridge, {direction} ÷ plain TCP"), &over_raw, 0.45));
    }
    let (mut over_peer, mut over_raw) = (Pairs::default(), Pairs::default());
    for _ in 0..bench.rounds {
        let bare = raw()?.round_trip()?;
        let peer = theirs()?.round_trip()?;
        let mine = ours()?.round_trip()?;
        over_peer.push(peer, mine);
        over_raw.push(mine, bare);
    }
    rows.push(Row {
        name: "bridge, websockify's round trip ÷ ours".to_owned(),
        figures: over_peer.ratios(),
        goal: Some(Goal::AtLeast(2.5)),
        note: over_peer.note("µs"),
    });
    rows.push(Row {
        name: "bridge, round trip ÷ plain TCP's".to_owned(),
        figures: over_raw.ratios(),
        goal: Some(Goal::AtMost(2.5)),
        note: over_raw.note("µs"),
    });

    let before = paddock.resident_megabytes()?;
    let mut idle = Vec::new();
    let token = paddock.token()?;
    for _ in 0..IDLE {
        let mut client = Client::upgraded(paddock.address, &path, &token)
            .with_context(|| format!("after {} idle ones", idle.len()))?;
        client.ask(REPEAT, 0)?;
        idle.push(client);
    }
    std::thread::sleep(Duration::from_secs(2));
    let each = (paddock.resident_megabytes()? - before) * 1e6 / 1024.0 / IDLE as f64;
    rows.push(Row {
        name: "bridge, memory of an idle one, KiB".to_owned(),
        figures: Figures::of([each]),
        goal: Some(Goal::AtMost(24.0)),
        note: format!("{IDLE} of them, resident"),
    });
    let among = ours()?.round_trip()?;
    rows.push(Row {
        name: format!("bridge, round trip beside {IDLE} idle ones, µs"),
        figures: Figures::of([among]),
        goal: None,
        note: "median".to_owned(),
    });
    drop(idle);
    Ok(rows)
}

/// Plays the device; lives as long as the process.
fn device() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Thousands of them, and each needs next to nothing. One that cannot be played would look like a bridge's fault.
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            if let Err(error) = stream.and_then(|stream| thread.spawn(move || play(stream))) {
                eprintln!("  the device cannot take a connection: {error}");
            }
        }
    });
    Ok(address)
}

fn play(mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut wish = [0; 9];
    stream.read_exact(&mut wish).ok()?;
    let mut left = u64::from_be_bytes(wish[1..].try_into().ok()?);
    match wish[0] {
        REPEAT => {
            let mut message = [0; MESSAGE];
            loop {
                stream.read_exact(&mut message).ok()?;
                stream.write_all(&message).ok()?;
            }
        }
        kind => {
            let mut buffer = vec![7; CHUNK];
            while left > 0 {
                let most = CHUNK.min(usize::try_from(left).ok()?);
                let done = match kind {
                    SEND => stream.write(&buffer[..most]).ok()?,
                    _ => stream.read(&mut buffer[..most]).ok()?,
                };
                if done == 0 {
                    return None;
                }
                left -= done as u64;
            }
            // Only what has arrived counts.
            if kind == TAKE {
                stream.write_all(&[1]).ok()?;
            }
            // The client closes first: websockify may lose what a device says right before it hangs up.
            while stream.read(&mut buffer).ok()? > 0 {}
            Some(())
        }
    }
}

/// The same client for everybody; only what it wraps around its bytes differs.
struct Client {
    stream: TcpStream,
    framed: bool,
    /// What is left of the frame that is being read.
    left: u64,
}

impl Client {
    fn plain(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { stream, framed: false, left: 0 })
    }

    fn upgraded(address: SocketAddr, path: &str, token: &str) -> Result<Client> {
        let mut client = Client::plain(address)?;
        let credential =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\n{credential}Connection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        client.stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client
                .stream
                .read_exact(&mut byte)
                .with_context(|| format!("an answer to the upgrade of {path}"))?;
            head.push(byte[0]);
        }
        ensure!(head.starts_with(b"HTTP/1.1 101"), "no WebSocket: {}", String::from_utf8_lossy(&head));
        client.framed = true;
        Ok(client)
    }

    fn ask(&mut self, kind: u8, volume: u64) -> Result<()> {
        let mut wish = vec![kind];
        wish.extend_from_slice(&volume.to_be_bytes());
        self.send(&wish)
    }

    fn send(&mut self, content: &[u8]) -> Result<()> {
        let mut frame = Vec::with_capacity(content.len() + 14);
        self.frame(content, &mut frame);
        Ok(self.stream.write_all(&frame)?)
    }

    fn frame(&self, content: &[u8], frame: &mut Vec<u8>) {
        if self.framed {
            frame.push(0x82);
            match content.len() {
                length @ 0..=125 => frame.push(0x80 | length as u8),
                length => {
                    frame.push(0x80 | 127);
                    frame.extend_from_slice(&(length as u64).to_be_bytes());
                }
            }
            frame.extend_from_slice(&MASK);
            frame.extend(content.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        } else {
            frame.extend_from_slice(content);
        }
    }

    /// Reads some of the content into the buffer; what says something about the connection is passed over.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.framed && self.left == 0 {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head)?;
            let length = match head[1] {
                126 => {
                    let mut length = [0; 2];
                    self.stream.read_exact(&mut length)?;
                    u64::from(u16::from_be_bytes(length))
                }
                127 => {
                    let mut length = [0; 8];
                    self.stream.read_exact(&mut length)?;
                    u64::from_be_bytes(length)
                }
                short => u64::from(short),
            };
            match head[0] & 0x0f {
                0x0 | 0x2 => self.left = length,
                0x8 => {
                    let mut reason = Vec::new();
                    (&mut self.stream).take(length).read_to_end(&mut reason)?;
                    let (code, words) = reason.split_at(reason.len().min(2));
                    let code = code.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
                    bail!("the connection was closed: {code} {}", String::from_utf8_lossy(words));
                }
                _ => drop(std::io::copy(&mut (&mut self.stream).take(length), &mut std::io::sink())?),
            }
        }
        let most = if self.framed { buffer.len().min(usize::try_from(self.left)?) } else { buffer.len() };
        let read = self.stream.read(&mut buffer[..most])?;
        ensure!(read > 0, "the connection broke");
        if self.framed {
            self.left -= read as u64;
        }
        Ok(read)
    }

    /// In MiB a second.
    fn throughput(mut self, kind: u8) -> Result<f64> {
        let mut buffer = vec![0; 4 * CHUNK];
        let mut frame = Vec::new();
        // Masked once: what a client does to mask is no part of the bridge.
        self.frame(&[7; CHUNK], &mut frame);
        let begun = Instant::now();
        self.ask(kind, VOLUME)?;
        if kind == SEND {
            let mut left = VOLUME;
            while left > 0 {
                left -= self.read(&mut buffer)? as u64;
            }
        } else {
            for _ in 0..VOLUME / CHUNK as u64 {
                self.stream.write_all(&frame)?;
            }
            self.read(&mut buffer[..1])?;
        }
        Ok((VOLUME >> 20) as f64 / begun.elapsed().as_secs_f64())
    }

    /// The median, in microseconds.
    fn round_trip(mut self) -> Result<f64> {
        self.ask(REPEAT, 0)?;
        let mut frame = Vec::new();
        self.frame(&[7; MESSAGE], &mut frame);
        let mut answer = [0; MESSAGE];
        let mut trips = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let begun = Instant::now();
            self.stream.write_all(&frame)?;
            let mut heard = 0;
            while heard < MESSAGE {
                heard += self.read(&mut answer[heard..])?;
            }
            trips.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        Ok(Figures::of(trips).median())
    }
}

/// The peer: Debian's package, one process a connection.
struct Websockify {
    address: SocketAddr,
    process: Child,
}

impl Websockify {
    fn start(device: SocketAddr) -> Result<Websockify> {
        let address = http::free_address()?;
        let process = Command::new("websockify")
            .args([address.to_string(), device.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start websockify")?;
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(begun.elapsed() < Duration::from_secs(10), "websockify does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Websockify { address, process })
    }
}

impl Drop for Websockify {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
