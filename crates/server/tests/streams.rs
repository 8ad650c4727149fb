//! Ways into a device that stay open: who may open them, what goes through, and how they end.

mod daemon;
mod world;

use std::time::{Duration, Instant};

use daemon::Daemon;
use futures_util::{SinkExt, StreamExt};
use paddock_engine::reconcile::LOOPS;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use world::{Answer, BOTH, On, World};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A tenant with a member who has a device.
struct Place {
    world: World,
    tenant: String,
    user: String,
    token: String,
    emulator: String,
}

impl Place {
    async fn new(on: On) -> Place {
        Place::with(on, &[]).await
    }

    async fn with(on: On, flags: &[&str]) -> Place {
        let world = World::with(on, flags, LOOPS).await;
        let tenant = world.tenant("acme").await;
        let user = world.user("ada").await;
        world.join(&tenant, &user, "member").await;
        let token = world.token_of(&user).await;
        let emulator = world.emulator(&token, &tenant).await;
        Place { world, tenant, user, token, emulator }
    }

    fn adb(&self) -> String {
        format!("/api/v1/emulators/{}/adb/proxy", self.emulator)
    }

    fn display(&self) -> String {
        format!("/api/v1/emulators/{}/display", self.emulator)
    }

    async fn open(&self, path: &str) -> Socket {
        open(&self.world, path, &[("authorization", &format!("Bearer {}", self.token))])
            .await
            .expect("a stream")
    }

    async fn ticket(&self, channel: &str) -> String {
        let path = format!("/api/v1/emulators/{}/tickets", self.emulator);
        let body = json!({ "channel": channel });
        let answer = self.world.call_as(&self.token, "POST", &path, Some(body)).await.expect(201);
        answer.json()["ticket"].as_str().expect("a ticket").to_owned()
    }

    async fn act(&self, method: &str, rest: &str) -> Answer {
        self.world.call(method, &format!("/api/v1/emulators/{}{rest}", self.emulator), None).await
    }
}

/// A WebSocket, or the status and the problem with which it was refused.
async fn open(world: &World, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, (u16, Value)> {
    let url = world.url(path).replacen("http", "ws", 1);
    let mut request = url.into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a value"));
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(answer)) => {
            let body = answer.body().as_deref().unwrap_or_default();
            Err((answer.status().as_u16(), serde_json::from_slice(body).unwrap_or_default()))
        }
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused(answer: Result<Socket, (u16, Value)>) -> (u16, String) {
    let (status, problem) = answer.expect_err("a refusal");
    (status, problem["code"].as_str().unwrap_or_else(|| panic!("no problem document: {problem}")).to_owned())
}

/// What a simulated device is told, it says again.
async fn echo(socket: &mut Socket, bytes: &[u8]) {
    socket.send(Message::binary(bytes.to_vec())).await.expect("sent");
    let mut heard = Vec::new();
    while heard.len() < bytes.len() {
        match socket.next().await.expect("more").expect("a message") {
            Message::Binary(part) => heard.extend_from_slice(&part),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(heard == bytes, "what came back is not what went in");
}

/// The code that closes it; waits for it, and lets the world's time go on meanwhile.
async fn close_code(socket: &mut Socket) -> u16 {
    let code = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(Message::Close(None)) | Err(_)) | None => return 1006,
                Some(Ok(_)) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), code).await.expect("an end")
}

#[tokio::test]
async fn bytes_go_to_the_device_and_back() {
    let place = Place::new(On::Sqlite).await;
    let mut socket = place.open(&place.adb()).await;
    let pattern: Vec<u8> =
        (0..3_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for length in [1, 125, 126, 4096, 65_535, 65_536, 200_000] {
        echo(&mut socket, &pattern[..length]).await;
    }
    // Much at once: both directions have to flow, or both stand still.
    let (mut to, mut from) = socket.split();
    let send = async {
        for part in pattern.chunks(777_777) {
            to.send(Message::binary(part.to_vec())).await.expect("sent");
        }
    };
    let receive = async {
        let mut heard = Vec::new();
        while heard.len() < pattern.len() {
            heard.extend_from_slice(&from.next().await.expect("more").expect("a message").into_data());
        }
        heard
    };
    let ((), heard) = tokio::join!(send, receive);
    assert!(heard == pattern);
    let mut socket = to.reunite(from).expect("the same");
    // A ping is answered, and a close is answered with the same code.
    socket.send(Message::Ping("there?".into())).await.expect("sent");
    assert_eq!(socket.next().await.expect("more").expect("a message"), Message::Pong("there?".into()));
    socket.close(None).await.expect("closed");
    while let Some(message) = socket.next().await {
        assert!(matches!(message, Ok(Message::Close(_))), "{message:?}");
    }
}

#[tokio::test]
async fn whoever_may_not_is_told_before_the_upgrade() {
    for on in BOTH {
        let place = Place::with(on, &["--limits-failed-authentications-per-minute", "1000"]).await;
        let world = &place.world;
        let other = world.tenant("other").await;
        let (stranger, auditor) = (world.user("eve").await, world.user("max").await);
        world.join(&other, &stranger, "admin").await;
        world.join(&place.tenant, &auditor, "auditor").await;
        let (stranger, auditor) = (world.token_of(&stranger).await, world.token_of(&auditor).await);
        for path in [place.adb(), place.display()] {
            let bearer = |token: &str| format!("Bearer {token}");
            assert_eq!(refused(open(world, &path, &[]).await), (401, "credential_missing".into()));
            let garbage = open(world, &path, &[("authorization", "Bearer garbage")]).await;
            assert_eq!(refused(garbage), (401, "invalid_credential".into()));
            let watching = open(world, &path, &[("authorization", &bearer(&auditor))]).await;
            assert_eq!(refused(watching), (403, "forbidden".into()));
            // Another tenant's device cannot be told from none at all.
            let absent = path.replace(&place.emulator, "emu_01jcr8e8v0e9bvqz3tz4d0wq2h");
            let words = async |path: &str| {
                let (status, mut problem) =
                    open(world, path, &[("authorization", &bearer(&stranger))]).await.expect_err("a refusal");
                problem["requestId"].take();
                problem["instance"].take();
                (status, problem)
            };
            assert_eq!(words(&path).await, words(&absent).await);
            assert_eq!(words(&path).await.0, 404);
            // What is no WebSocket, or speaks something else.
            let plain = world.call_as(&place.token, "GET", &path, None).await;
            assert_eq!(plain.expect(400).code(), "websocket_required");
            let mine = bearer(&place.token);
            let chat = [("authorization", mine.as_str()), ("sec-websocket-protocol", "chat")];
            assert_eq!(refused(open(world, &path, &chat).await), (400, "unsupported_subprotocol".into()));
            let page = [("authorization", mine.as_str()), ("origin", "https://evil.example")];
            assert_eq!(refused(open(world, &path, &page).await), (403, "foreign_origin".into()));
            let own = world.url("");
            let page = [("authorization", mine.as_str()), ("origin", own.as_str())];
            open(world, &path, &page).await.expect("a page of ours").close(None).await.expect("closed");
        }
        for (path, offered, chosen) in [
            (place.adb(), "chat, adb.paddock.v1", "adb.paddock.v1"),
            (place.display(), "binary", "binary"),
            (place.display(), "binary, rfb.paddock.v1", "rfb.paddock.v1"),
        ] {
            let mut request =
                world.url(&path).replacen("http", "ws", 1).into_client_request().expect("a request");
            let headers = request.headers_mut();
            headers.insert("authorization", format!("Bearer {}", place.token).parse().expect("a value"));
            headers.insert("sec-websocket-protocol", offered.parse().expect("a value"));
            let (_, answer) = tokio_tungstenite::connect_async(request).await.expect("a stream");
            assert_eq!(answer.headers()["sec-websocket-protocol"], chosen);
        }
        place.act("POST", "/park").await.expect(200);
        let mine = format!("Bearer {}", place.token);
        let parked = open(world, &place.adb(), &[("authorization", &mine)]).await;
        assert_eq!(refused(parked), (409, "invalid_state".into()));
    }
}

#[tokio::test]
async fn a_caller_has_no_more_streams_than_it_may() {
    let place = Place::with(On::Sqlite, &["--limits-streams-per-caller", "3"]).await;
    let mut open_ones = Vec::new();
    for path in [place.adb(), place.display(), place.adb()] {
        open_ones.push(place.open(&path).await);
    }
    let mine = format!("Bearer {}", place.token);
    let one_more = async || open(&place.world, &place.adb(), &[("authorization", &mine)]).await;
    assert_eq!(refused(one_more().await), (429, "too_many_streams".into()));
    // Others have their own.
    let admins = format!("Bearer {}", place.world.token);
    open(&place.world, &place.adb(), &[("authorization", &admins)]).await.expect("a stream");
    open_ones.pop().expect("one").close(None).await.expect("closed");
    for attempt in 0.. {
        match one_more().await {
            Ok(_) => break,
            Err((429, _)) if attempt < 200 => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn every_end_has_its_code() {
    for on in BOTH {
        let mut place = Place::new(on).await;
        let mut sockets = vec![place.open(&place.adb()).await, place.open(&place.display()).await];
        for socket in &mut sockets {
            echo(socket, b"there").await;
        }
        place.act("POST", "/restart").await.expect(200);
        for socket in &mut sockets {
            assert_eq!(close_code(socket).await, 4410, "{on:?}");
        }

        place.world.until(&place.emulator, "running").await;
        let mut socket = place.open(&place.adb()).await;
        place.world.clock.advance(Duration::from_secs(16 * 60));
        assert_eq!(close_code(&mut socket).await, 4401, "{on:?}");

        let admin = paddock_engine::users::first_admin(&place.world.server.engine).await.expect("the admin");
        place.world.token = place.world.token_of(&admin.id.to_string()).await;
        place.token = place.world.token_of(&place.user).await;
        let (mut mine, mut admins) = (place.open(&place.adb()).await, {
            let admins = format!("Bearer {}", place.world.token);
            open(&place.world, &place.adb(), &[("authorization", &admins)]).await.expect("a stream")
        });
        let membership = format!("/api/v1/tenants/{}/members/{}", place.tenant, place.user);
        place.world.call("DELETE", &membership, None).await.expect(204);
        assert_eq!(close_code(&mut mine).await, 4403, "{on:?}");
        echo(&mut admins, b"still there").await;

        place.act("POST", "/park").await.expect(200);
        assert_eq!(close_code(&mut admins).await, 4404, "{on:?}");

        place.act("POST", "/restart").await.expect(200);
        place.world.until(&place.emulator, "running").await;
        place.token = place.world.token.clone();
        let mut socket = place.open(&place.adb()).await;
        place.act("DELETE", "").await.expect(202);
        assert_eq!(close_code(&mut socket).await, 4404, "{on:?}");

        place.emulator = place.world.emulator(&place.token, &place.tenant).await;
        let mut sockets = vec![place.open(&place.adb()).await, place.open(&place.display()).await];
        let stopped = tokio::spawn(place.world.server.stop());
        for socket in &mut sockets {
            assert_eq!(close_code(socket).await, 1001, "{on:?}");
        }
        stopped.await.expect("stopped");
    }
}

#[tokio::test]
async fn what_is_no_stream_of_bytes_is_refused_with_its_code() {
    let place = Place::new(On::Sqlite).await;
    let mut socket = place.open(&place.adb()).await;
    socket.send(Message::text("hello")).await.expect("sent");
    assert_eq!(close_code(&mut socket).await, 1003);
    let mut socket = place.open(&place.adb()).await;
    // It is refused when it is announced, not when it has come.
    let _ = socket.send(Message::binary(vec![0; 17 << 20])).await;
    assert_eq!(close_code(&mut socket).await, 1009);
    let mut raw = raw(&place.world.server.address.to_string(), &place.token, &place.adb()).await;
    raw.write_all(&[0x82, 0x01, b'x']).await.expect("sent");
    let mut said = Vec::new();
    raw.read_to_end(&mut said).await.expect("an end");
    assert_eq!(said[..4], [0x88, said[1], 0x03, 0xea], "unmasked: 1002");
}

/// A WebSocket without anybody who knows its rules.
async fn raw(address: &str, token: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

#[tokio::test]
async fn a_peer_that_gives_no_sign_of_life_is_cut_off() {
    let place = Place::with(On::Sqlite, &["--limits-stall-seconds", "3"]).await;
    let mut silent = raw(&place.world.server.address.to_string(), &place.token, &place.adb()).await;
    let mut answering = place.open(&place.adb()).await;
    let started = Instant::now();
    let mut said = Vec::new();
    let end = silent.read_to_end(&mut said);
    let listening = async {
        loop {
            // Reading is what answers pings.
            answering.next().await;
        }
    };
    tokio::select! {
        _ = end => {}
        () = listening => {}
    }
    assert!(said.starts_with(&[0x89, 0x00]), "it was asked first: {said:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    echo(&mut answering, b"still there").await;
}

#[tokio::test]
async fn a_reader_that_stalls_harms_only_itself_and_takes_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
    // A process of its own, so that the memory is the server's and nobody else's.
    let flags = ["--devices-simulated", "true", "--devices-images", images, "--limits-stall-seconds", "6"];
    let daemon = Daemon::start(folder.path(), &[&flags[..], &["--limits-streams-per-caller", "40"]].concat());
    let token = daemon.token();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let call = async |method: &str, path: &str, body: Value| -> Value {
        let method = method.parse().expect("a method");
        let request = http.request(method, daemon.url(path)).bearer_auth(&token).json(&body);
        request.send().await.expect("an answer").json().await.expect("JSON")
    };
    let tenant = call("POST", "/api/v1/tenants", json!({ "name": "acme" })).await["id"].clone();
    let emulator = loop {
        let made = call("POST", "/api/v1/emulators?wait=20", json!({ "tenantId": tenant })).await;
        if let Some(id) = made["id"].as_str() {
            break id.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let path = format!("/api/v1/emulators/{emulator}/adb/proxy");
    let memory = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).expect("a status");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
        line.split_whitespace().nth(1).expect("a figure").parse::<u64>().expect("a number") >> 10
    };
    let before = memory();
    // Each says much and hears nothing of what comes back.
    let mut frame = vec![0x82, 0xff];
    frame.extend_from_slice(&(1u64 << 20).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(frame.len() + (1 << 20), 0);
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut socket = raw(&daemon.address, &token, &path).await;
        let mut taken = 0;
        let patience = Duration::from_millis(100);
        while let Ok(written) =
            tokio::time::timeout(patience, socket.write(&frame[taken % frame.len()..])).await
        {
            taken += written.expect("written");
            assert!(taken < 64 << 20, "it takes all there is, and nobody reads it");
        }
        stalled.push(socket);
    }
    let more = memory().saturating_sub(before);
    println!("20 stalled readers take {more} MiB of memory");
    assert!(more < 16, "{more} MiB");
    let mut request = format!("ws://{}{path}", daemon.address).into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a value"));
    let (mut good, _) = tokio_tungstenite::connect_async(request).await.expect("a stream");
    let started = Instant::now();
    for _ in 0..100 {
        echo(&mut good, b"prompt").await;
    }
    println!("100 round trips beside them: {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(10));
    // They are cut off when they have not read for too long; what has reached them by then is all they ever get.
    tokio::time::sleep(Duration::from_secs(7)).await;
    for mut socket in stalled {
        let mut rest = vec![0; 1 << 20];
        let cut = async { while matches!(socket.read(&mut rest).await, Ok(1..)) {} };
        tokio::time::timeout(Duration::from_secs(20), cut).await.expect("cut off");
    }
}

#[tokio::test]
async fn a_ticket_opens_its_stream_once() {
    for on in BOTH {
        let mut place = Place::with(on, &["--limits-failed-authentications-per-minute", "100000"]).await;
        let world = &place.world;
        let another = world.emulator(&place.token, &place.tenant).await;
        let used = |path: String, ticket: &str| format!("{path}?ticket={ticket}");
        let ticket = place.ticket("adb").await;
        let invalid = (401, "invalid_ticket".to_owned());
        // Neither for another channel nor for another device; and that does not use it up.
        assert_eq!(refused(open(world, &used(place.display(), &ticket), &[]).await), invalid);
        let elsewhere = used(place.adb().replace(&place.emulator, &another), &ticket);
        assert_eq!(refused(open(world, &elsewhere, &[]).await), invalid);
        // Of fifty who come at once, one gets in.
        let path = used(place.adb(), &ticket);
        let tries: Vec<_> = (0..50).map(|_| open(world, &path, &[])).collect();
        let outcomes = futures_util::future::join_all(tries).await;
        let (let_in, turned_away): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((let_in.len(), turned_away.len()), (1, 49), "{on:?}");
        for answer in turned_away {
            assert_eq!(refused(answer), invalid);
        }
        let mut socket = let_in.into_iter().next().expect("one").expect("a stream");
        echo(&mut socket, b"by ticket").await;
        // The stream ends with the credential that the ticket was got with.
        place.world.clock.advance(Duration::from_secs(16 * 60));
        assert_eq!(close_code(&mut socket).await, 4401, "{on:?}");
        // A ticket lives for half a minute.
        place.token = place.world.token_of(&place.user).await;
        let (fresh, late) = (place.ticket("display").await, place.ticket("display").await);
        place.world.clock.advance(Duration::from_secs(29));
        open(&place.world, &used(place.display(), &fresh), &[]).await.expect("in time");
        place.world.clock.advance(Duration::from_secs(1));
        assert_eq!(refused(open(&place.world, &used(place.display(), &late), &[]).await), invalid);
        // Whoever may not open the stream gets no ticket for it.
        let admin = paddock_engine::users::first_admin(&place.world.server.engine).await.expect("the admin");
        place.world.token = place.world.token_of(&admin.id.to_string()).await;
        let auditor = place.world.user("max").await;
        place.world.join(&place.tenant, &auditor, "auditor").await;
        let auditor = place.world.token_of(&auditor).await;
        let path = format!("/api/v1/emulators/{}/tickets", place.emulator);
        for (channel, status) in [("adb", 403), ("display", 403), ("logs", 201)] {
            let body = Some(json!({ "channel": channel }));
            place.world.call_as(&auditor, "POST", &path, body).await.expect(status);
        }
        let mine = place.ticket("adb").await;
        let both = [("authorization", format!("Bearer {}", place.token))];
        let both: Vec<(&'static str, &str)> =
            both.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = open(&place.world, &used(place.adb(), &mine), &both).await;
        assert_eq!(refused(answer), (400, "two_credentials".into()));
        // One whose holder has lost the right meanwhile is worth nothing more than they are.
        let membership = format!("/api/v1/tenants/{}/members/{}", place.tenant, place.user);
        place.world.call("DELETE", &membership, None).await.expect(204);
        assert_eq!(refused(open(&place.world, &used(place.adb(), &mine), &[]).await).0, 404);
    }
}

#[tokio::test]
async fn a_device_with_an_open_stream_is_in_use() {
    let mut place = Place::new(On::Sqlite).await;
    let body = json!({ "tenantId": place.tenant, "idleTimeoutSeconds": 300 });
    let path = "/api/v1/emulators";
    place.emulator = place.world.call_as(&place.token, "POST", path, Some(body)).await.expect(201).id();
    place.world.until(&place.emulator, "running").await;
    let mut socket = place.open(&place.display()).await;
    // Much longer than that, in steps that the loops can follow.
    for _ in 0..80 {
        place.world.clock.advance(Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    echo(&mut socket, b"still there").await;
    let seen = place.act("GET", "/status").await.expect(200).json();
    assert_eq!(seen["status"], "running");
    socket.close(None).await.expect("closed");
    drop(socket);
    let admin = paddock_engine::users::first_admin(&place.world.server.engine).await.expect("the admin");
    for _ in 0..40 {
        place.world.clock.advance(Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    place.world.token = place.world.token_of(&admin.id.to_string()).await;
    let seen = place.act("GET", "/status").await.expect(200).json();
    assert_eq!((&seen["status"], &seen["statusReason"]["code"]), (&json!("parked"), &json!("idle")));
}

#[tokio::test]
async fn endpoints_say_where_streams_are_opened() {
    let place = Place::with(On::Sqlite, &["--public-url", "https://paddock.example.com"]).await;
    let endpoints = place.act("GET", "").await.expect(200).json()["endpoints"].clone();
    let url = |place: &str| format!("wss://paddock.example.com{place}");
    assert_eq!(endpoints["adb"]["webSocketUrl"], url(&place.adb()));
    assert_eq!(endpoints["display"]["webSocketUrl"], url(&place.display()));
}
