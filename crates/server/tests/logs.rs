//! Logs over HTTP: followed, cut off, resumed, filtered, and read by many of whom some do not read.

mod daemon;
mod sse;
mod world;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Daemon, client};
use paddock_engine::reconcile::LOOPS;
use serde_json::{Value, json};
use sse::{Event, Reader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use world::{BOTH, On, World};

fn path(id: &str, query: &str) -> String {
    format!("/api/v1/emulators/{id}/logs{query}")
}

async fn open(world: &World, id: &str, query: &str, last: Option<u64>) -> Reader {
    Reader::open(&world.server.address.to_string(), &world.token, &path(id, query), last).await
}

/// The numbers that a simulated device has given its lines, by incarnation.
fn numbers(events: &[Event]) -> BTreeMap<i64, Vec<u64>> {
    let mut found: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.data()["source"] == "logcat" && event.is("log")) {
        let words: Vec<&str> = event.line().split(' ').collect();
        let incarnation = event.data()["incarnation"].as_i64().expect("an incarnation");
        assert_eq!(words[4].parse(), Ok(incarnation), "{event:?}");
        found.entry(incarnation).or_default().push(words[1].parse().expect("a number"));
    }
    found
}

fn statuses(events: &[Event]) -> Vec<String> {
    let statuses = events.iter().filter(|event| event.is("status"));
    statuses.map(|event| event.data()["status"].as_str().expect("a status").to_owned()).collect()
}

fn console(events: &[Event]) -> Vec<&str> {
    events.iter().filter(|event| event.data()["source"] == "console").map(Event::line).collect()
}

/// Reads so many events, and lets time pass meanwhile.
async fn take(world: &World, reader: &mut Reader, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        match reader.next_within(Duration::from_millis(5)).await {
            Ok(Some(event @ Event::Named { .. })) => events.push(event),
            Ok(Some(Event::Comment)) => {}
            Ok(None) => return events,
            Err(()) => world.clock.advance(Duration::from_millis(20)),
        }
        if events.len() >= count {
            return events;
        }
    }
    panic!("only {} events of {count}", events.len());
}

#[tokio::test]
async fn a_log_goes_on_where_it_was_cut_over_restarts_of_the_device_to_its_end() {
    for on in BOTH {
        let world = World::with(on, &["--devices-simulated-log-rate", "500"], LOOPS).await;
        let acme = world.tenant("acme").await;
        world.snapshot().await;
        let made =
            world.call("POST", "/api/v1/emulators", Some(json!({ "tenantId": acme }))).await.expect(201);
        let id = made.id();
        let mut reader = open(&world, &id, "", None).await;
        let mut events = Vec::new();
        for round in 0..12 {
            events.extend(take(&world, &mut reader, 7 + 13 * round).await);
            let last = reader.last;
            drop(reader);
            reader = open(&world, &id, "", last).await;
            match round {
                4 => {
                    world.until(&id, "running").await;
                    world.call("POST", &format!("/api/v1/emulators/{id}/restart"), None).await.expect(200);
                }
                8 => world.until(&id, "running").await,
                _ => {}
            }
        }
        world.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await.expect(202);
        events.extend(take(&world, &mut reader, usize::MAX).await);

        let end = events.pop().expect("an end");
        assert_eq!((end.is("end"), &end.data()["reason"]), (true, &json!("terminated")), "{end:?}");
        let ids: Vec<u64> = events.iter().filter_map(Event::id).collect();
        assert_eq!(ids, (ids[0]..ids[0] + events.len() as u64).collect::<Vec<_>>(), "one after the other");
        assert_eq!(
            statuses(&events),
            ["provisioning", "running", "restarting", "running", "terminating", "terminated"]
        );
        for (incarnation, numbers) in numbers(&events) {
            assert!(numbers.len() > 10, "{incarnation}: {numbers:?}");
            assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        }
        let once = [
            "[    0.000000] simulated kernel",
            "[    0.100000] init: a simulated device boots",
            "[    0.200000] init: up",
            "[    9.000000] init: shutting down",
            "[    9.100000] reboot: power down",
        ];
        assert_eq!(console(&events), [once, once].concat());
        // Who has everything is told so; who has nothing gets all of it.
        let again = open(&world, &id, "", ids.last().copied()).await.rest().await;
        assert_eq!(again.len(), 1, "{again:?}");
        let all = open(&world, &id, "", None).await.rest().await;
        assert_eq!(all[..all.len() - 1], events[..]);
    }
}

#[tokio::test]
async fn a_reader_gets_what_it_asks_for() {
    let world = World::with(On::Sqlite, &["--devices-simulated-log-rate", "100"], LOOPS).await;
    let acme = world.tenant("acme").await;
    let id = world.emulator(&world.token, &acme).await;
    let mut reader = open(&world, &id, "", None).await;
    take(&world, &mut reader, 60).await;
    // Time stands still, and so does the device once it has said what was due.
    while reader.next_within(Duration::from_millis(500)).await.is_ok() {}
    let read = async |query: &str| open(&world, &id, query, None).await.rest().await;

    let all = read("?follow=false").await;
    assert_eq!(all.last().map(|end| end.data()["reason"].clone()), Some(json!("complete")));
    let sources = async |query: &str| {
        let mut sources: Vec<String> = read(query)
            .await
            .iter()
            .filter(|event| event.is("log"))
            .map(|event| event.data()["source"].as_str().expect("a source").to_owned())
            .collect();
        sources.sort();
        sources.dedup();
        sources
    };
    assert_eq!(sources("?follow=false").await, ["console", "lifecycle", "logcat"]);
    assert_eq!(sources("?follow=false&source=console").await, ["console"]);
    assert_eq!(sources("?follow=false&source=logcat").await, ["logcat"]);
    assert_eq!(sources("?follow=false&level=warn").await, [""; 0]);
    assert_eq!(statuses(&read("?follow=false&level=warn&source=logcat").await), ["provisioning", "running"]);
    for (tail, query) in [(0, ""), (1, ""), (5, "&source=logcat"), (2, "&source=console"), (10_000, "")] {
        let lines = async |query: String| -> Vec<Event> {
            read(&query).await.into_iter().filter(|event| event.is("log")).collect()
        };
        let everything = lines(format!("?follow=false{query}")).await;
        let some = lines(format!("?follow=false&tail={tail}{query}")).await;
        assert_eq!(some, everything[everything.len().saturating_sub(tail)..], "{tail}{query}");
    }
    let logcat: Vec<&Event> = all.iter().filter(|event| event.data()["source"] == "logcat").collect();
    for field in ["tag", "pid", "buffer", "ts", "incarnation"] {
        assert!(!logcat[0].data()[field].is_null(), "{:?}", logcat[0]);
    }
    let middle = logcat[logcat.len() / 2].data()["ts"].as_str().expect("a time").to_owned();
    let since = read(&format!("?follow=false&source=logcat&since={middle}")).await;
    let first = since.iter().find(|event| event.is("log")).expect("a line");
    assert_eq!(first.data()["ts"], middle.as_str());
    // The id as a parameter does what the header does.
    let behind = logcat[3].id().expect("an id");
    let resumed = read(&format!("?follow=false&after={behind}")).await;
    assert_eq!(resumed[0].id(), Some(behind + 1));
    // What was never given out is no reason to wait.
    let ahead = open(&world, &id, "?follow=false", Some((1 << 53) - 1)).await.rest().await;
    assert!(ahead[0].is("end"), "{ahead:?}");
    for (name, value) in
        [("last-event-id", "x"), ("last-event-id", "-1"), ("last-event-id", "9007199254740992")]
    {
        let request = world.request("GET", &path(&id, "?follow=false"), None).header(name, value);
        world.send(request).await.expect(400);
    }
    for query in ["?tail=-1", "?tail=10001", "?since=yesterday", "?source=radio", "?level=loud", "?color=red"]
    {
        world.call("GET", &path(&id, query), None).await.expect(400);
    }
    // The contract says what comes.
    world.call("GET", &path(&id, "?follow=false"), None).await.expect(200);
    let json_only = world.request("GET", &path(&id, "?follow=false"), None).header("accept", "text/html");
    world.send(json_only).await.expect(406);
}

#[tokio::test]
async fn what_is_kept_no_longer_comes_as_a_gap() {
    let flags = ["--devices-simulated-log-rate", "1000", "--logs-keep-bytes", "65536"];
    let world = World::with(On::Sqlite, &flags, LOOPS).await;
    let acme = world.tenant("acme").await;
    let id = world.emulator(&world.token, &acme).await;
    let mut reader = open(&world, &id, "", None).await;
    let first = take(&world, &mut reader, 10).await;
    let last = first.last().and_then(Event::id).expect("an id");
    let seen = numbers(&first).get(&1).and_then(|numbers| numbers.last().copied()).unwrap_or_default();
    take(&world, &mut reader, 1_500).await;
    // What readers share in memory goes when there are none, at the next line.
    drop(reader);
    world.clock.advance(Duration::from_millis(100));
    tokio::time::sleep(Duration::from_millis(500)).await;

    let resumed = open(&world, &id, "?follow=false", Some(last)).await.rest().await;
    let gap = &resumed[0];
    let dropped = gap.data()["dropped"].as_u64().expect("a number");
    assert!(gap.is("gap") && dropped > 100, "{gap:?}");
    assert_eq!(resumed[1].id(), Some(last + dropped + 1));
    assert_eq!(gap.id(), Some(last + dropped), "who comes back with it is not told again");
    let numbers = &numbers(&resumed)[&1];
    assert!(numbers[0] > seen);
    assert_eq!(*numbers, (numbers[0]..numbers[0] + numbers.len() as u64).collect::<Vec<_>>());
    // Who asks for all that is there misses nothing that it knew of.
    let fresh = open(&world, &id, "?follow=false", None).await.rest().await;
    assert!(!fresh.iter().any(|event| event.is("gap")));
    // What a device has overwritten is told, too: nobody listened for longer than it remembers.
    let mut reader = open(&world, &id, "?tail=0", None).await;
    world.clock.advance(Duration::from_secs(60));
    let lost = reader.until(|event| event.is("gap")).await;
    assert_eq!(lost.data()["source"], "logcat", "{lost:?}");
    assert!(lost.data()["dropped"].as_u64() > Some(10_000), "{lost:?}");
}

#[tokio::test]
async fn a_stream_shows_that_it_is_there_and_ends_with_the_right_and_the_credential() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let other = world.tenant("other").await;
        let mut tokens = BTreeMap::new();
        for (login, tenant) in [("ada", &acme), ("bob", &acme), ("eve", &other)] {
            let user = world.user(login).await;
            world.join(tenant, &user, "operator").await;
            tokens.insert(login, (world.token_of(&user).await, user));
        }
        let id = world.emulator(&tokens["ada"].0, &acme).await;
        let address = world.server.address.to_string();
        let foreign = world.call_as(&tokens["eve"].0, "GET", &path(&id, ""), None).await.expect(404);
        let absent = path("emu_01jcr8e8v0e9bvqz3tz4d0wq2h", "");
        let absent = world.call_as(&tokens["eve"].0, "GET", &absent, None).await.expect(404);
        assert_eq!(foreign.json()["detail"], absent.json()["detail"]);

        let mut ada = Reader::open(&address, &tokens["ada"].0, &path(&id, "?tail=0"), None).await;
        let mut bob = Reader::open(&address, &tokens["bob"].0, &path(&id, "?tail=0"), None).await;
        for _ in 0..3 {
            assert!(ada.next_within(Duration::from_millis(50)).await.is_err(), "nothing before its time");
            world.clock.advance(Duration::from_secs(15));
            assert_eq!(ada.next().await, Some(Event::Comment));
        }
        let member = format!("/api/v1/tenants/{acme}/members/{}", tokens["bob"].1);
        world.call("DELETE", &member, None).await.expect(204);
        let end = bob.until(|event| event.is("end")).await;
        assert_eq!(end.data()["reason"], "permission_lost");
        assert_eq!(bob.next().await, None);
        world.clock.advance(Duration::from_secs(16 * 60));
        let end = ada.until(|event| event.is("end")).await;
        assert_eq!(end.data()["reason"], "credential_expired");
        // The server leaves in order.
        let admin = paddock_engine::users::first_admin(&world.server.engine).await.expect("the admin");
        let token = world.token_of(&admin.id.to_string()).await;
        let mut last = Reader::open(&address, &token, &path(&id, "?tail=0"), None).await;
        let stopped = tokio::spawn(world.server.stop());
        let end = last.until(|event| event.is("end")).await;
        assert_eq!(end.data()["reason"], "server_going_away");
        stopped.await.expect("stopped");
    }
}

#[tokio::test]
async fn a_log_reads_the_same_over_every_version_of_http() {
    let world = World::with(On::Sqlite, &["--devices-simulated-log-rate", "100"], LOOPS).await;
    let acme = world.tenant("acme").await;
    let id = world.emulator(&world.token, &acme).await;
    let mut reader = open(&world, &id, "", None).await;
    take(&world, &mut reader, 30).await;
    world.call("DELETE", &format!("/api/v1/emulators/{id}"), None).await.expect(202);
    take(&world, &mut reader, usize::MAX).await;
    let log = world.url(&path(&id, ""));
    let read = async |client: reqwest::Client| {
        let answer = client.get(&log).bearer_auth(&world.token).send().await.expect("an answer");
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let last = answer.headers().get("connection").is_some_and(|value| value == "close");
        (last, answer.text().await.expect("a log"))
    };

    let (last, text) = read(reqwest::Client::new()).await;
    assert!(last, "whoever follows has the connection for itself");
    assert!(
        text.starts_with("retry: 1000\n\n") && text.ends_with("data: {\"reason\":\"terminated\"}\n\n"),
        "{text}"
    );

    let second = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    assert_eq!(read(second).await, (false, text.clone()));

    let ask = |version: &str, query: &str| {
        let (path, token) = (path(&id, query), &world.token);
        format!("GET {path} HTTP/{version}\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")
    };
    let mut oldest = TcpStream::connect(world.server.address).await.expect("a connection");
    oldest.write_all(ask("1.0", "").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    oldest.read_to_string(&mut answer).await.expect("an answer");
    assert_eq!(answer.split_once("\r\n\r\n").map(|(_, body)| body), Some(text.as_str()));

    // Who does not follow may ask for more, and a head alone has no body to wait for.
    let mut kept = TcpStream::connect(world.server.address).await.expect("a connection");
    let questions = [ask("1.1", "?follow=false"), ask("1.1", "").replacen("GET", "HEAD", 1), ask("1.1", "")];
    kept.write_all(questions.concat().as_bytes()).await.expect("sent");
    let mut answers = String::new();
    kept.read_to_string(&mut answers).await.expect("answers");
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    assert_eq!(answers.matches("\"reason\":\"complete\"").count(), 0, "it is over, whoever asks: {answers}");
    assert_eq!(answers.matches("\"reason\":\"terminated\"").count(), 2, "{answers}");
}

/// A daemon with simulated devices that talk.
struct Yard {
    daemon: Daemon,
    token: String,
    http: reqwest::Client,
}

impl Yard {
    fn open(folder: &Path, flags: &[&str]) -> Yard {
        let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
        let fixed = ["--devices-simulated", "true", "--devices-images", images];
        let limits = [
            "--limits-streams-per-caller",
            "100000",
            "--limits-burst",
            "1000000",
            "--limits-requests-per-minute",
            "10000000",
        ];
        let daemon = Daemon::start(folder, &[&fixed[..], &limits, flags].concat());
        Yard { token: daemon.token(), daemon, http: client() }
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.http.request(method, self.daemon.url(path)).bearer_auth(&self.token);
        let request = body.into_iter().fold(request, |request, body| request.json(&body));
        let answer = request.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    async fn emulator(&self) -> String {
        let tenant = self.call("POST", "/api/v1/tenants", Some(json!({ "name": "acme" }))).await;
        for _ in 0..600 {
            let ready = self.call("GET", "/api/v1/snapshots?deployable=true&deviceType=phone", None).await;
            if !ready["items"][0].is_null() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let spec = json!({ "tenantId": tenant["id"], "deviceType": "phone" });
        let made = self.call("POST", "/api/v1/emulators", Some(spec)).await;
        let id = made["id"].as_str().expect("an id").to_owned();
        self.until(&id, "running").await;
        id
    }

    async fn until(&self, id: &str, status: &str) {
        for _ in 0..600 {
            let seen = self.call("GET", &format!("/api/v1/emulators/{id}/status?wait=1"), None).await;
            if seen["status"] == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{id} is never {status}");
    }

    fn resident_bytes(&self) -> u64 {
        let statm =
            std::fs::read_to_string(format!("/proc/{}/statm", self.daemon.child.id())).expect("a process");
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
    }
}

/// Asks for a log and never reads the answer.
async fn deaf_reader(address: &str, token: &str, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    // As little as the system allows, so that it is full soon.
    socket.set_recv_buffer_size(2048).expect("a buffer");
    let mut stream = socket.connect(address.parse().expect("an address")).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream
}

async fn open_streams(yard: &Yard) -> f64 {
    let text = yard
        .http
        .get(yard.daemon.url("/-/metrics"))
        .send()
        .await
        .expect("metrics")
        .text()
        .await
        .expect("text");
    let line = text.lines().find(|line| line.starts_with("paddock_streams_open{channel=\"logs\"}"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_readers_that_do_not_read_harm_nobody_and_are_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["--devices-simulated-log-rate", "100", "--limits-stall-seconds", "3"];
    let yard = Yard::open(folder.path(), &flags);
    let id = yard.emulator().await;
    let (address, log) = (yard.daemon.address.clone(), path(&id, ""));
    let mut good = Reader::open(&address, &yard.token, &path(&id, "?tail=0"), None).await;
    good.next().await;
    let before = yard.resident_bytes();

    let mut deaf = Vec::new();
    for _ in 0..1_000 {
        deaf.push(deaf_reader(&address, &yard.token, &path(&id, "?tail=0")).await);
    }
    let (mut slowest, mut most, mut lines) = (Duration::ZERO, 0.0_f64, 0_u64);
    let started = Instant::now();
    let mut resident = before;
    let mut looked = Instant::now();
    // Until they are cut off, and what they were sent would have filled any buffer.
    loop {
        let asked = Instant::now();
        let event = good.next().await.expect("the stream goes on");
        slowest = slowest.max(asked.elapsed());
        lines += u64::from(event.is("log"));
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            let open = open_streams(&yard).await;
            most = most.max(open);
            resident = resident.max(yard.resident_bytes());
            if open <= 1.0 && most > 500.0 {
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{open} are still open");
        }
    }
    println!(
        "{most} at once, cut off after {:?}; {lines} lines to the reader that reads, the longest wait {slowest:?}; {} KiB more memory",
        started.elapsed(),
        (resident - before) / 1024
    );
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    assert!(lines > 200, "only {lines} lines in {:?}", started.elapsed());
    assert!(resident - before < 128 << 20, "{} KiB more memory", (resident - before) / 1024);
    drop(deaf);
    // Whoever was cut off comes again where it was.
    let last = good.last.map(|last| last - 100);
    let mut again = Reader::open(&address, &yard.token, &log, last).await;
    assert_eq!(again.next().await.and_then(|event| event.id()), last.map(|last| last + 1));
}

/// From now on no packet reaches this socket, so none is answered: as if its machine had lost its network.
fn vanish(stream: &TcpStream) {
    // BPF_RET | BPF_K: take nothing of whatever comes.
    let nothing = socket2::SockFilter::new(0x06, 0, 0, 0);
    socket2::SockRef::from(stream).attach_filter(&[nothing]).expect("a filter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_without_a_word_is_cut_off_whether_anything_is_said_or_not() {
    for rate in ["0", "50"] {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = ["--devices-simulated-log-rate", rate, "--limits-stall-seconds", "3"];
        let yard = Yard::open(folder.path(), &flags);
        let id = yard.emulator().await;
        let follow =
            async || Reader::open(&yard.daemon.address, &yard.token, &path(&id, "?tail=0"), None).await;
        let (mut stays, vanishes) = (follow().await, follow().await);
        let reading = tokio::spawn(async move { while stays.next().await.is_some() {} });
        assert!((open_streams(&yard).await - 2.0).abs() < 0.1);

        vanish(&vanishes.stream);

        let since = Instant::now();
        while open_streams(&yard).await > 1.0 {
            assert!(since.elapsed() < Duration::from_secs(10), "it is still served, {rate} lines a second");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(
            (open_streams(&yard).await - 1.0).abs() < 0.1 && !reading.is_finished(),
            "who is there stays"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_keeps_its_place_among_the_connections_whatever_it_says_until_it_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut yard =
        Yard::open(folder.path(), &["--limits-connections", "2", "--devices-simulated-log-rate", "50"]);
    let id = yard.emulator().await;
    // Whatever it has kept open for the next question is closed.
    yard.http = client();
    let follow = async || Reader::open(&yard.daemon.address, &yard.token, &path(&id, "?tail=0"), None).await;
    let (mut first, second) = (follow().await, follow().await);
    let mut third = TcpStream::connect(&yard.daemon.address).await.expect("a connection");
    third.write_all(b"GET /-/alivez HTTP/1.1\r\nHost: us\r\n\r\n").await.expect("sent");
    let mut answer = [0; 1024];
    let early = tokio::time::timeout(Duration::from_secs(1), third.read(&mut answer)).await;
    assert!(early.is_err(), "there is no place for it");

    let noise = vec![b'x'; 100_000];
    first.stream.write_all(&noise).await.expect("dropped at the other end");
    for _ in 0..100 {
        assert!(first.next().await.is_some(), "nobody answers what is said here, or minds it");
    }
    drop(second);
    let length = third.read(&mut answer).await.expect("an answer");
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_come_back_at_once_and_each_finds_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let yard = Yard::open(folder.path(), &["--devices-simulated-log-rate", "10"]);
    let id = yard.emulator().await;
    let mut reader = Reader::open(&yard.daemon.address, &yard.token, &path(&id, ""), None).await;
    for _ in 0..90 {
        reader.next().await;
    }
    let last = reader.last.expect("an id");
    // A first wave warms everything up that is kept for the next one.
    let (mut resident, mut slowest) = (Vec::new(), Duration::ZERO);
    let size = if std::env::var_os("TEST_LONG").is_some() { 5_000_u64 } else { 2_000 };
    for wave in [size; 3] {
        let token = Arc::new(yard.token.clone());
        let started = Instant::now();
        let readers: Vec<_> = (0..wave)
            .map(|number| {
                let (address, token, log) = (yard.daemon.address.clone(), token.clone(), path(&id, ""));
                tokio::spawn(async move {
                    let behind = last - number % 80;
                    let mut reader = Reader::open(&address, &token, &log, Some(behind)).await;
                    let first = reader.until(|event| event.id().is_some()).await;
                    assert_eq!(first.id(), Some(behind + 1));
                    reader
                })
            })
            .collect();
        let mut open = Vec::new();
        for reader in readers {
            open.push(reader.await.expect("a reader"));
        }
        slowest = slowest.max(started.elapsed());
        resident.push(yard.resident_bytes());
        drop(open);
        for _ in 0..200 {
            if open_streams(&yard).await <= 1.0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        resident.push(yard.resident_bytes());
    }
    let mib = |bytes: &u64| bytes >> 20;
    println!(
        "waves within {slowest:?}; MiB during and after each: {:?}",
        resident.iter().map(mib).collect::<Vec<_>>()
    );
    assert!(open_streams(&yard).await <= 1.0, "streams are left over");
    assert!(slowest < Duration::from_secs(240), "{slowest:?}");
    // Two waves of the same size take the same room.
    assert!(resident[5] < resident[3] + resident[3] / 10 + (8 << 20), "{resident:?}");
    assert!(resident[4] < 1 << 30, "{resident:?}");
}
