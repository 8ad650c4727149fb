//! Logs as Server-Sent Events: how quickly what a device says reaches everybody who follows it, against nginx with nchan.
//!
//! A measurement says so many lines at once and ends when the last reader has read the last of them. Every reader must get every line.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::LocalSet;

use crate::Bench;
use crate::figures::{Figures, Goal, Pairs, Row};
use crate::nginx::Nginx;
use crate::paddock::Paddock;

/// So many readers; however many they are, they get as many lines together.
const CROWDS: [usize; 3] = [100, 1_000, 10_000];
const DELIVERIES: usize = 500_000;
/// Those who follow and never read.
const STALLED: usize = 100;
/// Stands in every line once, and nowhere else.
const MARK: u8 = b'~';
/// For one reader to be let in, and for all of them; and for all lines to reach them. Whoever takes longer is an error and no figure.
const ADMISSION: Duration = Duration::from_secs(10);
const GATHERING: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);
const LINE: &str = "a line of a log that is as long as lines of logs usually are, with a few words in it ~";

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&runtime, measure(bench))
}

async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let nginx = Nginx::with_nchan(bench)?;
    let theirs = Party { address: nginx.address, path: "/hear".to_owned(), voice: Voice::Nchan };
    let (device, said) = device().await?;
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../image");
    let peer = device.to_string();
    let flags =
        ["--devices-simulated", "true", "--devices-images", images, "--devices-simulated-peer", &peer];
    // Readers and those who never read are more than a server takes by default; the others would wait at its door.
    let limits = [
        "--limits-connections",
        "100000",
        "--limits-streams-per-caller",
        "100000",
        "--limits-stall-seconds",
        "3600",
    ];
    let flags: Vec<String> = flags.iter().chain(&limits).map(|flag| (*flag).to_owned()).collect();
    // Blocking calls from here on would stop the device that this thread plays.
    let (paddock, id) = {
        let bench = bench.clone();
        tokio::task::spawn_blocking(move || {
            let paddock = Paddock::start_with_flags(&bench, "fanout", &flags)?;
            let id = paddock.deploy()?;
            anyhow::Ok((paddock, id))
        })
        .await??
    };
    let path = format!("/api/v1/emulators/{id}/logs?tail=0");
    let ours = Party { address: paddock.address, path, voice: Voice::Device(said) };

    let mut rows = Vec::new();
    for crowd in CROWDS {
        let token = paddock.token()?;
        let lines = DELIVERIES / crowd;
        let (mut pairs, mut stalls) = (Pairs::default(), Pairs::default());
        let mut each = Vec::new();
        for _ in 0..bench.rounds {
            let before = paddock.resident_megabytes()?;
            let readers = ours.gather(crowd, &token).await.context("readers of Paddock")?;
            each.push((paddock.resident_megabytes()? - before) * 1e6 / 1024.0 / crowd as f64);
            let mine = ours.tell(&readers, lines).await.context("Paddock")?;
            // What is compared with the time beside others must not be the first, which is slower.
            let alone = ours.tell(&readers, lines).await.context("Paddock, once more")?;
            let stalled = ours.stall(&token).await?;
            // They must have stopped to take anything before it counts.
            ours.tell(&readers, lines).await?;
            let beside = ours.tell(&readers, lines).await.context("Paddock, with stalled readers")?;
            drop((readers, stalled));
            let readers = theirs.gather(crowd, "").await.context("readers of nchan")?;
            let peer = theirs.tell(&readers, lines).await.context("nchan")?;
            drop(readers);
            pairs.push(mine, peer);
            stalls.push(alone, beside);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        rows.push(Row {
            name: format!("fanout, events a second to {crowd} ÷ nchan"),
            figures: pairs.ratios(),
            goal: Some(Goal::AtLeast(2.0)),
            note: pairs.note("/s"),
        });
        rows.push(Row {
            name: format!("fanout to {crowd}, slower beside {STALLED} that never read"),
            figures: stalls.ratios(),
            goal: Some(Goal::AtMost(1.1)),
            note: stalls.note("/s"),
        });
        if crowd == CROWDS[CROWDS.len() - 1] {
            rows.push(Row {
                name: "fanout, memory of a stream, KiB".to_owned(),
                // Later rounds find room that earlier ones have left.
                figures: Figures::of([each[0]]),
                goal: Some(Goal::AtMost(2.0)),
                note: format!("{crowd} of them, resident"),
            });
        }
    }
    Ok(rows)
}

/// Who tells the lines.
enum Voice {
    Device(mpsc::UnboundedSender<usize>),
    Nchan,
}

struct Party {
    address: SocketAddr,
    path: String,
    voice: Voice,
}

/// How an answer begins.
const ANSWER: &[u8] = b"HTTP/1.1 20";

/// Everybody who reads, and how much they have read.
struct Readers {
    count: usize,
    marks: Rc<Cell<usize>>,
    broken: Rc<Cell<bool>>,
    news: Rc<Notify>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Party {
    async fn follow(&self, token: &str, room: Option<u32>) -> Result<TcpStream> {
        let admitted = tokio::time::timeout(ADMISSION, self.ask(token, room)).await;
        admitted.with_context(|| format!("no answer within {ADMISSION:?}"))?
    }

    async fn ask(&self, token: &str, room: Option<u32>) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(room) = room {
            socket.set_recv_buffer_size(room)?;
        }
        let mut stream = socket.connect(self.address).await?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n",
            self.path
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut head).await? > 0, "it hung up: {}", String::from_utf8_lossy(&head));
        }
        ensure!(head.starts_with(b"HTTP/1.1 200"), "no stream: {}", String::from_utf8_lossy(&head));
        Ok(stream)
    }

    async fn gather(&self, count: usize, token: &str) -> Result<Readers> {
        let readers = Readers {
            count,
            marks: Rc::default(),
            broken: Rc::default(),
            news: Rc::default(),
            tasks: Vec::new(),
        };
        let mut readers = readers;
        let begun = Instant::now();
        for at in 0..count {
            ensure!(begun.elapsed() < GATHERING, "only {at} of {count} were let in within {GATHERING:?}");
            let stream = self.follow(token, None).await.with_context(|| format!("after {at}"))?;
            let (marks, broken, news) = (readers.marks.clone(), readers.broken.clone(), readers.news.clone());
            readers.tasks.push(tokio::task::spawn_local(async move {
                read(&stream, &marks, &news).await;
                broken.set(true);
                news.notify_one();
            }));
        }
        Ok(readers)
    }

    async fn stall(&self, token: &str) -> Result<Vec<TcpStream>> {
        let mut stalled = Vec::new();
        for at in 0..STALLED {
            let stream = self.follow(token, Some(4096)).await;
            stalled.push(stream.with_context(|| format!("after {at} that never read"))?);
        }
        Ok(stalled)
    }

    /// Events a second, all readers together.
    async fn tell(&self, readers: &Readers, lines: usize) -> Result<f64> {
        readers.marks.set(0);
        let wanted = lines * readers.count;
        let begun = Instant::now();
        match &self.voice {
            Voice::Device(said) => said.send(lines)?,
            Voice::Nchan => {
                let told = tokio::time::timeout(PATIENCE, post(self.address, lines)).await;
                told.with_context(|| format!("it did not take {lines} messages within {PATIENCE:?}"))??;
            }
        }
        while readers.marks.get() < wanted {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let more = tokio::time::timeout(left, readers.news.notified()).await;
            ensure!(more.is_ok(), "only {} of {wanted} came within {PATIENCE:?}", readers.marks.get());
            ensure!(!readers.broken.get(), "a reader was cut off after {} of {wanted}", readers.marks.get());
        }
        let took = begun.elapsed();
        // None may come twice.
        tokio::time::sleep(Duration::from_millis(50)).await;
        ensure!(readers.marks.get() == wanted, "{} came instead of {wanted}", readers.marks.get());
        Ok(wanted as f64 / took.as_secs_f64())
    }
}

thread_local! {
    /// All readers use it in turn.
    static BUFFER: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; 256 << 10]);
}

/// Counts until the stream ends.
async fn read(stream: &TcpStream, marks: &Cell<usize>, news: &Notify) {
    while stream.readable().await.is_ok() {
        let found = BUFFER.with_borrow_mut(|buffer| match stream.try_read(buffer) {
            Ok(0) => None,
            Ok(length) => Some(buffer[..length].iter().filter(|byte| **byte == MARK).count()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        });
        let Some(found) = found else { return };
        if found > 0 {
            marks.set(marks.get() + found);
            news.notify_one();
        }
    }
}

/// As the log of a device would be told, one message a line, over one connection that does not wait for answers.
async fn post(address: SocketAddr, lines: usize) -> Result<()> {
    let body = format!(
        r#"{{"ts":"2026-11-15T12:00:00.000Z","source":"logcat","level":"info","line":"{LINE}","incarnation":1,"tag":"Bench","pid":1,"buffer":"main"}}"#
    );
    let request =
        format!("POST /say HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let (mut answers, mut requests) = TcpStream::connect(address).await?.into_split();
    let asking = async {
        for _ in 0..lines {
            requests.write_all(request.as_bytes()).await?;
        }
        anyhow::Ok(())
    };
    let answering = async {
        let (mut heard, mut text) = (0, Vec::new());
        while heard < lines {
            ensure!(answers.read_buf(&mut text).await? > 0, "nchan hung up after {heard} messages");
            heard += text.windows(ANSWER.len()).filter(|word| *word == ANSWER).count();
            if heard == 0 {
                bail!("nchan does not take messages: {}", String::from_utf8_lossy(&text));
            }
            // One that has come by half is counted when the rest is there.
            text.drain(..text.len().saturating_sub(ANSWER.len() - 1));
        }
        Ok(())
    };
    // What is still unanswered has been told: readers are the measure.
    tokio::select! {
        done = answering => done,
        Err(error) = asking => Err(error),
    }
}

/// Plays the device, whose log says as many lines as are asked for.
async fn device() -> Result<(SocketAddr, mpsc::UnboundedSender<usize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (say, mut wishes) = mpsc::unbounded_channel::<usize>();
    tokio::task::spawn_local(async move {
        let mut last = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let (reader, mut writer) = stream.into_split();
            let mut requests = BufReader::new(reader).lines();
            loop {
                let wish = tokio::select! {
                    request = requests.next_line() => match request {
                        Ok(Some(_)) => continue,
                        _ => break,
                    },
                    wish = wishes.recv() => wish,
                };
                let Some(wish) = wish else { return };
                let mut text = String::new();
                for seq in last + 1..=last + wish {
                    text += &format!(
                        r#"{{"seq":{seq},"time":1,"buffer":"main","level":"info","tag":"Bench","pid":1,"message":"{LINE}"}}"#
                    );
                    text.push('\n');
                }
                last += wish;
                if writer.write_all(text.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    Ok((address, say))
}
