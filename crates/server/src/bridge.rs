//! Carries bytes between a WebSocket and a device, both ways, and no faster than the slower side takes them.
//!
//! Each direction has one buffer, which is small until there is much to carry, and no queue: a side that does not
//! read stops the other. Nothing is copied between reading and writing; and where a device has much to say to a client without
//! TLS, the kernel carries it.

mod shortcut;
mod sockets;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::upgrade::Upgraded;
use paddock_api::frames::{self, BINARY, Decoder, LONGEST_HEADER, PING, PONG, Piece, Violation};
use paddock_engine::streams::{End, Stream};
use paddock_model::drivers::emulator_hosts::ByteStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};

use self::shortcut::Shortcut;
use self::sockets::Side;

/// What an idle connection keeps, each way.
const SMALL: usize = 4 << 10;
/// What one that has much to carry takes, each way.
const LARGE: usize = 128 << 10;
/// For so long after something was carried the thread stays awake, where answers come that quickly: to be woken takes longer
/// than an answer that is on its way. Others on the thread are served meanwhile.
const ALERT: Duration = Duration::from_micros(50);
/// So many times in a row it may have been in vain.
const IN_VAIN: u8 = 4;
/// Who carries more at once is in no conversation, and needs the processor for something better.
const A_WORD: usize = 1 << 10;
/// How long the other side may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long after a device's end the reason for it may become known.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Why nothing is carried any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Ended(End),
    DeviceClosed,
    ClientClosed(Option<u16>),
    ClientBroke(Violation),
    /// Gone without a word, or too slow; there is nobody to say goodbye to.
    ClientLost,
}

impl Over {
    /// How the client is told.
    const fn close(self) -> Option<(u16, &'static str)> {
        match self {
            Over::Ended(end) => Some((end.code(), end.name())),
            Over::DeviceClosed => Some((1000, "the device has closed the connection")),
            Over::ClientClosed(Some(code)) => Some((code, "")),
            Over::ClientClosed(None) => Some((1000, "")),
            Over::ClientBroke(Violation(code, words)) => Some((code, words)),
            Over::ClientLost => None,
        }
    }
}

/// What both directions know of the client.
struct Client {
    since: Instant,
    /// In milliseconds since then.
    heard_at: AtomicU64,
    /// While the device does not take what came, the client is not listened to, and cannot be blamed for its silence.
    is_listened_to: AtomicBool,
    /// How often it was the other side's turn to speak, and whose it is.
    turns: AtomicU64,
    client_spoke: AtomicBool,
    turn: Notify,
}

impl Client {
    fn new() -> Self {
        Client {
            since: Instant::now(),
            heard_at: AtomicU64::new(0),
            is_listened_to: AtomicBool::new(true),
            turns: AtomicU64::new(0),
            client_spoke: AtomicBool::new(false),
            turn: Notify::new(),
        }
    }

    /// What one side says in several words is no conversation yet.
    fn is_carried(&self, bytes: usize, by_client: bool) {
        if bytes <= A_WORD && self.client_spoke.swap(by_client, Relaxed) != by_client {
            self.turns.fetch_add(1, Relaxed);
            self.turn.notify_one();
        }
    }

    /// Never returns. See [`ALERT`].
    async fn stay_alert(&self) -> std::convert::Infallible {
        let (mut in_vain, mut last) = (IN_VAIN, Instant::now());
        loop {
            self.turn.notified().await;
            if last.elapsed() < ALERT {
                in_vain = 0;
            }
            last = Instant::now();
            let mut turns = self.turns.load(Relaxed);
            while in_vain < IN_VAIN {
                tokio::task::yield_now().await;
                let now = self.turns.load(Relaxed);
                if now != turns {
                    (turns, last, in_vain) = (now, Instant::now(), 0);
                } else if last.elapsed() >= ALERT {
                    in_vain += 1;
                    break;
                }
            }
        }
    }

    fn is_heard(&self) {
        self.heard_at.store(self.since.elapsed().as_millis() as u64, Relaxed);
        self.is_listened_to.store(true, Relaxed);
    }

    fn is_silent_for(&self, long: Duration) -> bool {
        let heard = self.since + Duration::from_millis(self.heard_at.load(Relaxed));
        self.is_listened_to.load(Relaxed) && heard.elapsed() > long
    }
}

/// Carries until one side ends, or the stream has to. The client is asked for a sign of life this often; half of those
/// that it gives no answer to, it may miss.
pub async fn carry(
    socket: Upgraded,
    device: Box<dyn ByteStream>,
    mut stream: Stream,
    asked_every: Duration,
) -> Carried {
    let [socket, device] = [sockets::of_client(socket), device].map(Side::new);
    let client = Client::new();
    // An answer that waits makes a second one needless.
    let (ask, asked) = mpsc::channel(1);
    let mut up = Up { client: socket.clone(), device: device.clone(), pongs: ask, carried: 0 };
    let mut down = Down { device, client: socket, pongs: asked, within_frame: false, carried: 0 };
    let mut over = tokio::select! {
        over = up.carry(&client) => over,
        over = down.carry(&client, asked_every) => over,
        never = client.stay_alert() => match never {},
        end = stream.ended() => Over::Ended(end),
    };
    if over == Over::DeviceClosed {
        // Why it did is known to whoever looks after devices, in a moment.
        if let Ok(end) = tokio::time::timeout(AFTERMATH, stream.ended()).await {
            over = Over::Ended(end);
        }
    }
    let _ = up.device.shutdown().await;
    if let Some((code, words)) = over.close() {
        let _ = tokio::time::timeout(FAREWELL, farewell(&mut up, &mut down, code, words)).await;
    }
    Carried { up: up.carried, down: down.carried, reason: over.close().map_or(0, |(code, _)| code) }
}

/// How much went each way, and the code that ended it; none where nobody was left to be told.
#[derive(Debug, Clone, Copy)]
pub struct Carried {
    pub up: u64,
    pub down: u64,
    pub reason: u16,
}

/// Closes, and waits until the client has too: to hang up with something unread would take back what was just said.
async fn farewell(up: &mut Up, down: &mut Down, code: u16, words: &str) -> std::io::Result<()> {
    // Inside another frame it would be taken for a part of that.
    if !down.within_frame {
        down.send(&frames::close_frame(code, words, None)).await?;
    }
    down.client.shutdown().await?;
    let mut unread = [0; 1024];
    while up.client.read(&mut unread).await? > 0 {}
    Ok(())
}

/// From the client to the device.
struct Up {
    client: Side,
    device: Side,
    pongs: mpsc::Sender<Vec<u8>>,
    carried: u64,
}

impl Up {
    async fn carry(&mut self, client: &Client) -> Over {
        let mut decoder = Decoder::of_client();
        let mut buffer = vec![0; SMALL];
        let mut waiting = 0;
        loop {
            let room = buffer.len() - waiting;
            let Ok(read @ 1..) = self.client.read(&mut buffer[waiting..]).await else {
                return Over::ClientLost;
            };
            client.is_heard();
            let (mut start, end) = (0, waiting + read);
            loop {
                let (used, event) = match decoder.read(&mut buffer[start..end]) {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(violation) => return Over::ClientBroke(violation),
                };
                match event {
                    Piece::Data(range) => {
                        let bytes = &buffer[start + range.start..start + range.end];
                        client.is_listened_to.store(false, Relaxed);
                        let written = self.device.write_all(bytes).await;
                        client.is_heard();
                        if written.is_err() {
                            return Over::DeviceClosed;
                        }
                        client.is_carried(bytes.len(), true);
                        self.carried += bytes.len() as u64;
                    }
                    Piece::Ping(content) => drop(self.pongs.try_send(content)),
                    Piece::Pong => {}
                    Piece::Close(code) => return Over::ClientClosed(code),
                }
                start += used;
            }
            // No more than a piece of a header, or of a frame that says something about the connection.
            buffer.copy_within(start..end, 0);
            waiting = end - start;
            resize(&mut buffer, read == room, read < SMALL / 2 && waiting == 0);
        }
    }
}

/// From the device to the client.
struct Down {
    device: Side,
    client: Side,
    pongs: mpsc::Receiver<Vec<u8>>,
    within_frame: bool,
    carried: u64,
}

impl Down {
    async fn carry(&mut self, client: &Client, asked_every: Duration) -> Over {
        let mut buffer = vec![0; SMALL];
        let mut shortcut = None;
        let mut tick = tokio::time::interval_at(Instant::now() + asked_every, asked_every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let sent = tokio::select! {
                taken = take(&mut self.device, shortcut.as_ref(), &mut buffer) => {
                    let Ok(taken @ 1..) = taken else { return Over::DeviceClosed };
                    client.is_carried(taken, false);
                    self.carried += taken as u64;
                    if let Some(way) = &shortcut {
                        let sent = self.pass_on(way, taken).await;
                        if taken < SMALL / 2 {
                            shortcut = None;
                        }
                        sent
                    } else {
                        let end = LONGEST_HEADER + taken;
                        let start = frames::put(&mut buffer[..end], LONGEST_HEADER, BINARY, None);
                        let sent = self.send(&buffer[start..end]).await;
                        let full = end == buffer.len();
                        if full && end == LARGE {
                            shortcut = self.shortcut();
                        }
                        resize(&mut buffer, full, taken < SMALL / 2 || shortcut.is_some());
                        sent
                    }
                }
                Some(content) = self.pongs.recv() => self.send(&frames::control_frame(PONG, &content, None)).await,
                _ = tick.tick() => {
                    // Not quite two: an answer to the one before last must not be late by its way here.
                    if client.is_silent_for(asked_every.mul_f32(1.9)) {
                        return Over::ClientLost;
                    }
                    self.send(&frames::control_frame(PING, b"", None)).await
                }
            };
            if sent.is_err() {
                return Over::ClientLost;
            }
        }
    }

    /// Nothing where there is none, or the system has no room for it.
    fn shortcut(&self) -> Option<Shortcut> {
        let (device, client) = (self.device.stream(), self.client.stream());
        Shortcut::open(device.socket()?, client.socket()?).ok()
    }

    /// Sends what the shortcut has taken as one frame.
    async fn pass_on(&mut self, shortcut: &Shortcut, taken: usize) -> std::io::Result<()> {
        self.within_frame = true;
        shortcut.give(&frames::header(BINARY, taken as u64), taken).await?;
        self.within_frame = false;
        Ok(())
    }

    async fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        self.within_frame = true;
        self.client.write_all(frame).await?;
        self.client.flush().await?;
        self.within_frame = false;
        Ok(())
    }
}

/// Takes what the device says, into the shortcut if one is open. May be dropped at any moment.
async fn take(device: &mut Side, shortcut: Option<&Shortcut>, buffer: &mut [u8]) -> std::io::Result<usize> {
    match shortcut {
        Some(shortcut) => shortcut.take().await,
        None => device.read(&mut buffer[LONGEST_HEADER..]).await,
    }
}

/// Much to carry makes a buffer larger, little makes it small again.
fn resize(buffer: &mut Vec<u8>, is_full: bool, is_little: bool) {
    if is_full && buffer.len() < LARGE {
        buffer.resize((buffer.len() * 4).min(LARGE), 0);
    } else if is_little && buffer.len() > SMALL {
        *buffer = vec![0; SMALL];
    }
}
