//! The way to a vehicle by gRPC: calls and streams through Paddock, and through Envoy in front of the very same car.
//!
//! The car is one that Paddock holds; it answers on a Unix socket too, without asking who calls. There Envoy fetches, and there the bench asks it
//! directly. One client, on one thread, speaks to all three.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddock_vehicle::proto::vehicle_server_server::SERVICE_NAME;
use paddock_vehicle::proto::{
    GetValueResults, VehiclePropValue, VehiclePropValueRequest, VehiclePropValueRequests,
};
use prost::Message;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};

use crate::Bench;
use crate::envoy::Envoy;
use crate::figures::{Figures, Goal, Pairs, Row};
use crate::paddock::Paddock;

const SPEED: i32 = 0x1160_0207;
/// CRUISE_CONTROL_TARGET_SPEED: told when it changes, and any number will do.
const TARGET: i32 = 0x1160_1013;
const CONNECTIONS: usize = 4;
/// Calls under way on one connection.
const AT_ONCE: usize = 16;
/// Streams on one connection, where there are many.
const STREAMS_EACH: usize = 10;
const MANY: usize = 100;
/// Changes that may be ahead of the slowest stream; a car lets go of streams that fall behind by a thousand.
const AHEAD: u64 = 128;
/// Changes that are set in one measurement of streams; with many streams, a tenth of it.
const CHANGES: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../image");
    let flags = ["--devices-simulated", "true", "--devices-images", images];
    let flags: Vec<String> =
        flags.iter().chain(&["--limits-streams-per-caller", "100000"]).map(|&flag| flag.to_owned()).collect();
    let paddock = Paddock::start_with_flags(bench, "vehicle", &flags)?;
    let emulator = paddock.deploy_a("automotive")?;
    let socket = paddock.data().join("vehicles").join(&emulator).join("vehicle.sock");
    let envoy = Envoy::in_front_of(bench, &socket)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A token lives for 15 minutes.
    let parties = || -> Result<Parties> {
        let who = vec![
            ("authorization", format!("Bearer {}", paddock.token()?)),
            ("x-paddock-emulator", emulator.clone()),
        ];
        let car = || Party { place: Place::Unix(socket.clone()), who: Vec::new() };
        Ok(Parties {
            ours: Party { place: Place::Tcp(paddock.address), who: who.clone() },
            // It is sent the same headers, and passes them on.
            envoy: Party { place: Place::Tcp(envoy.address), who },
            car: car(),
        })
    };
    let first = parties()?;
    for party in [&first.ours, &first.envoy, &first.car] {
        runtime.block_on(party.answers())?;
    }

    let spent =
        || -> Result<(f64, f64)> { Ok((paddock.processor_microseconds()?, envoy.processor_microseconds()?)) };
    let (mut over_envoy, mut over_car, mut processor) =
        (Pairs::default(), Pairs::default(), Pairs::default());
    let (mut added, mut whole) = (Pairs::default(), Pairs::default());
    for _ in 0..bench.rounds {
        let Parties { ours, envoy, car } = parties()?;
        let load = |party: &Party| {
            LocalSet::new().block_on(&runtime, party.calls(Duration::from_secs(bench.seconds)))
        };
        let bare = load(&car)?;
        let before = spent()?;
        let theirs = load(&envoy)?;
        let between = spent()?;
        let mine = load(&ours)?;
        let after = spent()?;
        let pace = |calls: u64| calls as f64 / bench.seconds as f64;
        over_envoy.push(pace(mine), pace(theirs));
        over_car.push(pace(mine), pace(bare));
        let theirs_spent = (between.0 - before.0) + (between.1 - before.1);
        processor.push(theirs_spent / theirs as f64, (after.0 - between.0) / mine as f64);

        let trip = |party: &Party| runtime.block_on(party.median_trip(Duration::from_secs(bench.seconds)));
        let (bare, theirs, mine) = (trip(&car)?, trip(&envoy)?, trip(&ours)?);
        added.push((mine - bare).max(0.0), (theirs - bare).max(f64::MIN_POSITIVE));
        whole.push(mine, theirs);
    }
    let row = |name: &str, pairs: &Pairs, goal, unit| Row {
        name: name.to_owned(),
        figures: pairs.ratios(),
        goal,
        note: pairs.note(unit),
    };
    let mut rows = vec![
        row("vehicle, GetValues ÷ Envoy, 64 at once", &over_envoy, Some(Goal::AtLeast(1.5)), "/s"),
        row("vehicle, GetValues p50 added ÷ Envoy's", &added, Some(Goal::AtMost(0.7)), "µs"),
        row("vehicle, GetValues p50 ÷ Envoy's", &whole, None, "µs"),
        row("vehicle, GetValues ÷ car alone, 64 at once", &over_car, None, "/s"),
        row("vehicle, processor time Envoy and car ÷ ours", &processor, None, "µs"),
    ];

    for (streams, changes, goal) in [(1, CHANGES, None), (MANY, CHANGES / 10, Some(Goal::AtLeast(1.5)))] {
        let (mut over_envoy, mut over_car, mut processor) =
            (Pairs::default(), Pairs::default(), Pairs::default());
        for _ in 0..bench.rounds {
            let Parties { ours, envoy, car } = parties()?;
            let follow =
                |party: &Party| LocalSet::new().block_on(&runtime, party.events(&car, streams, changes));
            let bare = follow(&car)?;
            let before = spent()?;
            let theirs = follow(&envoy)?;
            let between = spent()?;
            let mine = follow(&ours)?;
            let after = spent()?;
            over_envoy.push(mine, theirs);
            over_car.push(mine, bare);
            let events = (streams as u64 * changes) as f64;
            let theirs_spent = (between.0 - before.0) + (between.1 - before.1);
            processor.push(theirs_spent / events, (after.0 - between.0) / events);
        }
        let name = |what: &str| format!("vehicle, {what}, {streams} followed");
        rows.push(row(&name("events ÷ Envoy"), &over_envoy, goal, "/s"));
        rows.push(row(&name("events ÷ car alone"), &over_car, None, "/s"));
        rows.push(row(&name("processor time Envoy and car ÷ ours"), &processor, None, "µs"));
    }
    Ok(rows)
}

struct Parties {
    ours: Party,
    envoy: Party,
    car: Party,
}

enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Somebody who answers for the car.
struct Party {
    place: Place,
    who: Vec<(&'static str, String)>,
}

type Connection = SendRequest<Full<Bytes>>;

impl Party {
    async fn connect(&self) -> Result<Connection> {
        match &self.place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                shake(TokioIo::new(stream)).await
            }
            Place::Unix(path) => shake(TokioIo::new(UnixStream::connect(path).await?)).await,
        }
    }

    fn request(&self, method: &str, message: &Bytes) -> Result<Request<Full<Bytes>>> {
        let request = Request::post(format!("http://vehicle/{SERVICE_NAME}/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let request = self.who.iter().fold(request, |request, (name, value)| request.header(*name, value));
        Ok(request.body(Full::new(message.clone()))?)
    }

    /// The answer's message, with its frame.
    async fn call(&self, connection: &mut Connection, method: &str, message: &Bytes) -> Result<Bytes> {
        connection.ready().await?;
        let answer = connection.send_request(self.request(method, message)?).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
        ensure!(status.is_some_and(|status| status == "0"), "{method}: {:?} {trailers:?}", head.headers);
        Ok(body.to_bytes())
    }

    /// All parties give the same answer before anything is measured.
    async fn answers(&self) -> Result<()> {
        let answer = self.call(&mut self.connect().await?, "GetValues", &asked()).await?;
        let results = GetValueResults::decode(answer.slice(5..))?.results;
        let value = results.first().and_then(|result| result.value.as_ref()).context("a value")?;
        ensure!(value.prop == SPEED && value.float_values == [0.0], "another value: {value:?}");
        Ok(())
    }

    /// How many calls are answered in this time.
    async fn calls(&self, time: Duration) -> Result<u64> {
        let question = asked();
        let count = Cell::new(0u64);
        let mut callers = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = self.connect().await?;
            for _ in 0..AT_ONCE {
                callers.push(connection.clone());
            }
        }
        let end = Instant::now() + time;
        let work = callers.into_iter().map(|mut connection| {
            let (question, count) = (&question, &count);
            async move {
                while Instant::now() < end {
                    self.call(&mut connection, "GetValues", question).await?;
                    count.set(count.get() + 1);
                }
                anyhow::Ok(())
            }
        });
        futures_util::future::try_join_all(work).await?;
        Ok(count.get())
    }

    /// Microseconds of a call that is alone.
    async fn median_trip(&self, time: Duration) -> Result<f64> {
        let (question, mut connection) = (asked(), self.connect().await?);
        let mut trips = Vec::new();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let begun = Instant::now();
            self.call(&mut connection, "GetValues", &question).await?;
            trips.push(begun.elapsed().as_nanos() as f64 / 1e3);
        }
        Ok(Figures::of(trips).median())
    }

    /// Events a second until the last stream has the last, while the car is told of changes as fast as it takes them.
    async fn events(&self, car: &Party, streams: usize, changes: u64) -> Result<f64> {
        let heard = Rc::new(Heard { of: RefCell::new(vec![0; streams]), more: Notify::new() });
        let mut connection = self.connect().await?;
        let nothing = Bytes::from_static(&[0; 5]);
        let mut followers: Vec<JoinHandle<Result<()>>> = Vec::new();
        for index in 0..streams {
            if index % STREAMS_EACH == 0 {
                connection = self.connect().await?;
            }
            let request = self.request("StartPropertyValuesStream", &nothing)?;
            let answer = connection.send_request(request).await?;
            ensure!(!answer.headers().contains_key("grpc-status"), "no stream: {:?}", answer.headers());
            let heard = heard.clone();
            followers.push(tokio::task::spawn_local(async move {
                let (mut body, mut frames) = (answer.into_body(), Frames::default());
                loop {
                    let frame = body.frame().await.context("a stream ended")??;
                    let Ok(data) = frame.into_data() else { bail!("a stream was ended") };
                    heard.add(index, frames.count(&data));
                }
            }));
        }
        let begun = Instant::now();
        let driving = self.drive(car, changes, &heard);
        tokio::time::timeout(PATIENCE, driving).await.context("not all was heard")??;
        let took = begun.elapsed().as_secs_f64();
        for follower in followers {
            // One that has ended by itself has missed something.
            ensure!(!follower.is_finished(), "{:?}", follower.await);
            follower.abort();
        }
        Ok((streams as u64 * changes) as f64 / took)
    }

    async fn drive(&self, car: &Party, changes: u64, heard: &Rc<Heard>) -> Result<()> {
        let connection = car.connect().await?;
        let next = Cell::new(0u64);
        let drivers = (0..AT_ONCE).map(|_| {
            let (mut connection, next) = (connection.clone(), &next);
            async move {
                loop {
                    let number = next.get();
                    if number == changes {
                        return anyhow::Ok(());
                    }
                    next.set(number + 1);
                    heard.at_least((number + 1).saturating_sub(AHEAD)).await;
                    car.call(&mut connection, "SetValues", &set(number)).await?;
                }
            }
        });
        futures_util::future::try_join_all(drivers).await?;
        heard.at_least(changes).await;
        Ok(())
    }
}

async fn shake<S>(stream: S) -> Result<Connection>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (connection, work) = http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(async move { drop(work.await) });
    Ok(connection)
}

/// How many events each stream has had.
struct Heard {
    of: RefCell<Vec<u64>>,
    more: Notify,
}

impl Heard {
    fn add(&self, stream: usize, events: u64) {
        self.of.borrow_mut()[stream] += events;
        self.more.notify_waiters();
    }

    async fn at_least(&self, events: u64) {
        while self.of.borrow().iter().any(|heard| *heard < events) {
            self.more.notified().await;
        }
    }
}

/// Counts gRPC's messages in what comes, however it is cut.
#[derive(Default)]
struct Frames {
    rest: BytesMut,
}

impl Frames {
    fn count(&mut self, data: &[u8]) -> u64 {
        self.rest.extend_from_slice(data);
        let mut count = 0;
        while let Some(head) = self.rest.get(1..5) {
            let length = 5 + head.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
            if self.rest.len() < length {
                break;
            }
            self.rest.advance(length);
            count += 1;
        }
        count
    }
}

fn asked() -> Bytes {
    framed(VehiclePropValue { prop: SPEED, ..VehiclePropValue::default() })
}

/// Another value for another number, so that each is a change in whatever order they arrive.
fn set(number: u64) -> Bytes {
    framed(VehiclePropValue {
        prop: TARGET,
        float_values: vec![number as f32],
        ..VehiclePropValue::default()
    })
}

fn framed(value: VehiclePropValue) -> Bytes {
    let request = VehiclePropValueRequest { request_id: 1, value: Some(value) };
    let message = VehiclePropValueRequests { requests: vec![request] }.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], &message].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let all = [asked(), set(4), set(8)].concat();
        for cut in 0..=all.len() {
            let mut frames = Frames::default();
            let (first, second) = all.split_at(cut);
            let count = frames.count(first) + frames.count(second);
            assert_eq!(count, 3, "cut at {cut}");
        }
    }
}
