//! What holds for every endpoint: errors, limits, headers, health.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paddock_engine::reconcile::{LOOPS, Loop, Report};
use paddock_model::Timestamp;
use paddock_model::ports::{Clock, ManualClock, Sleep};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use world::{On, World, new_postgres_database};

const TENANTS: &str = "/api/v1/tenants";

async fn stored(world: &World) -> usize {
    world.call("GET", TENANTS, None).await.expect(200).json()["items"].as_array().expect("items").len()
}

#[tokio::test]
async fn bad_input_gets_a_clear_error_and_nothing_is_stored() {
    let world = World::new(On::Sqlite).await;
    let post = |body: &'static str| {
        world.request("POST", TENANTS, None).header("content-type", "application/json").body(body)
    };
    for (request, status, code) in [
        (post("{"), 400, "malformed_json"),
        (post(""), 400, "malformed_json"),
        (post("{\"name\":\"a\",\"name\":\"b\"}"), 400, "malformed_json"),
        (post("{\"name\":\"a\",\"labels\":{\"k\":\"1\",\"k\":\"2\"}}"), 400, "malformed_json"),
        (post("{\"name\":\"a\",\"colour\":1}"), 400, "unknown_member"),
        (post("{\"name\":7}"), 422, "invalid_request"),
        (post("{}"), 422, "invalid_request"),
        (post("[]"), 422, "invalid_request"),
        (post("null"), 422, "invalid_request"),
        (post("{\"name\":\"A\"}"), 422, "invalid_request"),
        (post("{\"name\":\"a\",\"displayName\":null}"), 422, "invalid_request"),
        (
            world.request("POST", TENANTS, None).header("content-type", "text/plain").body("{}"),
            415,
            "unsupported_media_type",
        ),
        (world.request("POST", TENANTS, None).body("{}"), 415, "unsupported_media_type"),
        (world.request("POST", TENANTS, Some(json!({ "name": "x".repeat(2 << 20) }))), 413, "body_too_large"),
        (world.request("GET", "/api/v1/nothing", None), 404, "no_such_path"),
        (world.request("GET", "/nothing", None), 404, "no_such_path"),
        (world.request("PATCH", TENANTS, None), 405, "method_not_allowed"),
        (world.request("GET", TENANTS, None).header("accept", "text/html"), 406, "not_acceptable"),
        (world.request("GET", "/api/v1/tenants?limit=0", None), 400, "invalid_parameter"),
        (world.request("GET", "/api/v1/tenants?limit=201", None), 400, "invalid_parameter"),
        (world.request("GET", "/api/v1/tenants?limit=many", None), 400, "invalid_parameter"),
        (world.request("GET", "/api/v1/tenants?colour=red", None), 400, "invalid_parameter"),
        (world.request("GET", "/api/v1/tenants?limit=1&limit=2", None), 400, "invalid_parameter"),
        (world.request("GET", "/api/v1/tenants?name=%ff", None), 400, "invalid_parameter"),
    ] {
        let shown = format!("{request:?}");
        let answer = world.send(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{shown}: {}",
            answer.text
        );
    }
    assert_eq!(stored(&world).await, 0);
}

#[tokio::test]
async fn all_faults_are_named_at_once_with_their_places() {
    let world = World::new(On::Sqlite).await;
    let body = json!({ "name": "Not A Slug", "displayName": 7, "labels": { "Bad Key": "x", "ok": 1, "a/b": "x".repeat(201) } });

    let answer = world.call("POST", TENANTS, Some(body)).await.expect(422).json();

    let faults = answer["errors"].as_array().expect("faults");
    let mut found: Vec<(&str, &str)> = faults
        .iter()
        .map(|fault| (fault["pointer"].as_str().expect("a pointer"), fault["code"].as_str().expect("a code")))
        .collect();
    found.sort_unstable();
    let expected = [
        ("/displayName", "wrong_type"),
        ("/labels", "wrong_pattern"),
        ("/labels/a~1b", "too_long"),
        ("/labels/ok", "wrong_type"),
        ("/name", "wrong_pattern"),
    ];
    assert_eq!(found, expected);
    assert!(!answer.to_string().contains("xxxx"), "what was sent is not repeated");
}

#[tokio::test]
async fn a_body_without_a_length_is_limited_too() {
    let world = World::with(On::Sqlite, &["--limits-body-bytes", "2048"], LOOPS).await;
    let mut stream = TcpStream::connect(world.server.address).await.expect("a connection");
    let head = format!(
        "POST {TENANTS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        world.token
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    for _ in 0..8 {
        let chunk = format!("200\r\n{}\r\n", " ".repeat(512));
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    stream.write_all(b"0\r\n\r\n").await.expect("sent");
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("body_too_large"), "{answer}");
}

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let world = World::with(On::Sqlite, &["--limits-body-seconds", "1"], LOOPS).await;
    let mut stream = TcpStream::connect(world.server.address).await.expect("a connection");
    let head = format!(
        "POST {TENANTS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n{{",
        world.token
    );
    stream.write_all(head.as_bytes()).await.expect("sent");

    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer, then the end of the connection");

    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("body_too_slow"), "{answer}");
    assert_eq!(stored(&world).await, 0);
}

#[tokio::test]
async fn who_sends_no_request_is_cut_off() {
    let world = World::with(On::Sqlite, &["--limits-header-seconds", "1"], LOOPS).await;
    for sent in ["", "G", "GET / HTTP/1.1\r\nhost:", "PRI * HTTP/2.0\r\n"] {
        let mut stream = TcpStream::connect(world.server.address).await.expect("a connection");
        stream.write_all(sent.as_bytes()).await.expect("sent");

        let started = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;

        let held = started.elapsed();
        assert!(
            held > Duration::from_millis(500) && held < Duration::from_secs(5),
            "{sent:?} was held for {held:?}"
        );
    }
    // One that has sent a request may be silent for longer: it may want to send another.
    let mut stream = TcpStream::connect(world.server.address).await.expect("a connection");
    for _ in 0..2 {
        stream.write_all(b"GET /-/alivez HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        let mut answer = [0; 1024];
        assert!(stream.read(&mut answer).await.expect("an answer") > 0);
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up() {
    let world = World::with(On::Sqlite, &["--limits-request-seconds", "1"], LOOPS).await;
    let mut stream = TcpStream::connect(world.server.address).await.expect("a connection");
    let head = format!(
        "POST {TENANTS} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 20\r\nconnection: close\r\n\r\n{{",
        world.token
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"timeout\""), "{answer}");
    assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
}

#[tokio::test]
async fn a_panic_is_answered_and_harms_nobody_else() {
    /// Panics when asked for the time, once it is armed.
    struct Explosive(Arc<ManualClock>, AtomicBool);
    impl Clock for Explosive {
        fn now(&self) -> Timestamp {
            assert!(!self.1.load(Ordering::SeqCst), "a panic, as this test wants it: hunter2");
            self.0.now()
        }
        fn elapsed(&self) -> Duration {
            self.0.elapsed()
        }
        fn sleep(&self, duration: Duration) -> Sleep<'_> {
            self.0.sleep(duration)
        }
    }
    let manual = Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse().expect("a time")));
    let clock = Arc::new(Explosive(manual.clone(), AtomicBool::new(false)));
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let data = folder.path().display().to_string();
    let flags = ["--data", &data, "--listen", "127.0.0.1:0"];
    let world = World::on_clock(folder, &flags, &[], manual, clock.clone()).await;

    clock.1.store(true, Ordering::SeqCst);
    let answer = world.call("GET", TENANTS, None).await.expect(500);
    assert_eq!(answer.code(), "internal");
    assert!(!answer.text.contains("hunter2"));
    clock.1.store(false, Ordering::SeqCst);
    world.call("GET", TENANTS, None).await.expect(200);
}

#[tokio::test]
async fn a_flood_of_faults_gets_a_short_answer() {
    let world = World::new(On::Sqlite).await;
    let many: serde_json::Map<String, Value> =
        (0..50_000).map(|number| (format!("m{number}"), json!(1))).collect();
    let long = json!({ "x".repeat(500_000): 1 });
    for body in [Value::Object(many), long, json!({ "name": "a", "labels": { "K".repeat(500_000): "v" } })] {
        let answer = world.call("POST", TENANTS, Some(body)).await;
        assert!(answer.status == 400 || answer.status == 422, "{:?}", answer.status);
        assert!(answer.text.len() < 30_000, "{} bytes", answer.text.len());
    }
}

#[tokio::test]
async fn without_its_database_the_server_is_not_ready() {
    let database = new_postgres_database().await;
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let world = World::on_database(folder, &database, &[], LOOPS).await;
    world.send(world.anonymous("GET", "/-/readyz")).await.expect(200);

    let (server, name) = database.rsplit_once('/').expect("a database");
    let (client, connection) = tokio_postgres::connect(&format!("{server}/postgres"), tokio_postgres::NoTls)
        .await
        .expect("a server");
    tokio::spawn(connection);
    // In two commits: until the first is done, a loop of the server may still connect.
    client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await.expect("closed");
    let away =
        format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'");
    client.batch_execute(&away).await.expect("gone");

    let verbose = world.send(world.anonymous("GET", "/-/readyz?verbose")).await.expect(503).text;
    assert!(verbose.contains("[-] database: does not answer"), "{verbose}");
    let refused = world.call("GET", TENANTS, None).await.expect(503);
    assert_eq!(refused.code(), "database_unavailable");
    world.send(world.anonymous("GET", "/-/alivez")).await.expect(200);

    client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await.expect("back");
    world.send(world.anonymous("GET", "/-/readyz")).await.expect(200);
    world.call("GET", TENANTS, None).await.expect(200);
}

#[tokio::test]
async fn one_caller_is_held_to_its_rate_and_told_when_to_come_again() {
    let world =
        World::with(On::Sqlite, &["--limits-burst", "5", "--limits-requests-per-minute", "60"], LOOPS).await;
    for left in (0..5).rev() {
        let answer = world.call("GET", TENANTS, None).await.expect(200);
        assert_eq!(answer.header("ratelimit"), format!("\"requests\";r={left}"));
    }
    let refused = world.call("GET", TENANTS, None).await.expect(429);
    assert_eq!(refused.code(), "rate_limited");
    assert_eq!(refused.header("retry-after"), "1");
    // Health is not a matter of rates.
    world.send(world.anonymous("GET", "/-/readyz")).await.expect(200);
}

#[tokio::test]
async fn failed_authentications_are_limited_without_harm_to_valid_callers() {
    let world = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "3"], LOOPS).await;
    let guess = || world.anonymous("GET", TENANTS).bearer_auth("nonsense");
    for _ in 0..3 {
        assert_eq!(world.send(guess()).await.expect(401).code(), "invalid_credential");
    }
    let refused = world.send(guess()).await.expect(429);
    assert_eq!(refused.code(), "authentication_rate_limited");
    assert!(refused.header("retry-after").parse::<u32>().expect("seconds") >= 1);
    world.call("GET", TENANTS, None).await.expect(200);
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_address_has_its_own_limit() {
    let flags = ["--limits-failed-authentications-per-minute", "1", "--proxies-trusted", "127.0.0.1"];
    let world = World::with(On::Sqlite, &flags, LOOPS).await;
    let guess = |from: &'static str| {
        world.send(world.anonymous("GET", TENANTS).bearer_auth("nonsense").header("x-forwarded-for", from))
    };
    guess("198.51.100.1").await.expect(401);
    guess("198.51.100.1").await.expect(429);
    guess("198.51.100.2").await.expect(401);
    // What the client itself writes in front does not help it.
    guess("203.0.113.5, 198.51.100.1").await.expect(429);
}

#[tokio::test]
async fn without_a_valid_credential_nothing_is_done() {
    let world = World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "1000"], LOOPS).await;
    let mut forged = world.token.clone();
    forged.truncate(forged.len() - 4);
    forged.push_str("AAAA");
    let (_, unsigned) = world.token.split_once('.').expect("a token");
    let unsigned =
        format!("eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0.{}.", unsigned.split('.').next().expect("claims"));
    for (value, code) in [
        (None, "credential_missing"),
        (Some("Basic YWRtaW46YWRtaW4=".to_owned()), "credential_missing"),
        (Some("Bearer".to_owned()), "credential_missing"),
        (Some("Bearer nonsense".to_owned()), "invalid_credential"),
        (Some(format!("Bearer {forged}")), "invalid_credential"),
        (Some(format!("Bearer {unsigned}")), "invalid_credential"),
        (Some("Bearer glpat-12345678901234567890".to_owned()), "credential_type_not_supported"),
        (Some(format!("Bearer {}", "a".repeat(5000))), "invalid_credential"),
    ] {
        let mut request = world.anonymous("GET", TENANTS);
        if let Some(value) = &value {
            request = request.header("authorization", value);
        }
        let answer = world.send(request).await.expect(401);
        assert_eq!(answer.code(), code, "{value:?}");
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
    }
    let twice = world.request("GET", TENANTS, None).header("authorization", "Bearer another");
    assert_eq!(world.send(twice).await.expect(401).code(), "invalid_credential");

    world.clock.advance(Duration::from_secs(15 * 60));
    assert_eq!(world.call("GET", TENANTS, None).await.expect(401).code(), "credential_expired");
}

#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_browsers() {
    let world = World::new(On::Sqlite).await;
    for path in [TENANTS, "/-/alivez", "/nothing"] {
        let answer = world.call("GET", path, None).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test]
async fn a_request_id_of_the_callers_own_comes_back() {
    let world = World::new(On::Sqlite).await;
    let answer =
        world.send(world.request("GET", "/nothing", None).header("x-request-id", "ci-42")).await.expect(404);
    assert_eq!(
        (answer.header("x-request-id"), answer.json()["requestId"].as_str()),
        ("ci-42", Some("ci-42"))
    );
}

#[tokio::test]
async fn a_large_answer_is_compressed_and_a_small_one_is_not() {
    let world = World::new(On::Sqlite).await;
    let get = |path: &str| {
        world
            .request("GET", path, None)
            .header("accept-encoding", "gzip")
            .header("accept", "application/json")
    };
    let large =
        world.http.execute(get("/-/openapi/schema").build().expect("a request")).await.expect("an answer");
    assert_eq!(large.headers()["content-encoding"], "gzip");
    let small = world.http.execute(get("/-/version").build().expect("a request")).await.expect("an answer");
    assert!(!small.headers().contains_key("content-encoding"));
}

#[tokio::test]
async fn http2_is_spoken_on_the_same_port() {
    let world = World::new(On::Sqlite).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let answer = client.get(world.url(TENANTS)).bearer_auth(&world.token).send().await.expect("an answer");
    assert_eq!((answer.version(), answer.status().as_u16()), (reqwest::Version::HTTP_2, 200));
}

#[tokio::test]
async fn health_needs_no_credential() {
    let world = World::new(On::Sqlite).await;
    let get = |path: &str| world.send(world.anonymous("GET", path));
    assert_eq!(get("/-/alivez").await.expect(200).text, "ok");
    assert_eq!(get("/-/readyz").await.expect(200).text, "ok");
    let verbose = get("/-/readyz?verbose").await.expect(200).text;
    assert!(verbose.contains("[+] database: ok") && verbose.contains("loop idempotency_keys"), "{verbose}");
    let version = get("/-/version").await.expect(200).json();
    assert_eq!(version["apiVersions"], json!(["v1"]));
}

#[tokio::test]
async fn a_stuck_loop_makes_the_server_not_ready() {
    const STUCK: &[Loop] = &[Loop {
        name: "stuck",
        watches: &[],
        every: Duration::from_secs(1),
        run: |_| Box::pin(async { std::future::pending::<Result<Report, _>>().await }),
    }];
    let world = World::with(On::Sqlite, &[], STUCK).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.send(world.anonymous("GET", "/-/readyz")).await.expect(200);

    world.clock.advance(Duration::from_secs(301));

    assert_eq!(world.send(world.anonymous("GET", "/-/readyz")).await.expect(503).text, "not ready");
    let verbose = world.send(world.anonymous("GET", "/-/readyz?verbose")).await.expect(503).text;
    assert!(verbose.contains("[-] loop stuck: stuck since "), "{verbose}");
}

#[tokio::test]
async fn a_loop_that_panics_or_fails_is_reported_and_tried_again() {
    const PANICS: &[Loop] = &[Loop {
        name: "panics",
        watches: &["tenants"],
        every: Duration::from_secs(3600),
        run: |_| Box::pin(async { panic!("a loop that panics, as this test wants it") }),
    }];
    let world = World::with(On::Sqlite, &[], PANICS).await;
    let failures = |count: u32| format!("{count} failures in a row");
    let eventually = async |text: String| {
        for _ in 0..100 {
            if world.send(world.anonymous("GET", "/-/readyz?verbose")).await.text.contains(&text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never saw {text}");
    };
    eventually(failures(1)).await;
    // While it backs off, changes do not wake it.
    world.create_tenant("acme").await.expect(201);
    tokio::time::sleep(Duration::from_millis(100)).await;
    eventually(failures(1)).await;
    world.clock.advance(Duration::from_secs(60));
    eventually(failures(2)).await;
}

#[tokio::test]
async fn metrics_follow_the_naming_rules_and_name_no_user() {
    let world = World::new(On::Sqlite).await;
    let tenant = world.create_tenant("acme").await.expect(201);
    world.call("GET", tenant.header("location"), None).await.expect(200);
    world.call("GET", "/some/unknown/path", None).await.expect(404);

    let text = world.send(world.anonymous("GET", "/-/metrics")).await.expect(200).text;

    assert!(text.contains("paddock_http_request_duration_seconds_count{method=\"GET\",route=\"/api/v1/tenants/{id}\",status=\"200\"}"), "{text}");
    assert!(text.contains("route=\"unmatched\",status=\"404\""));
    for secret in ["ten_", "usr_", "/some/unknown", &world.token] {
        assert!(!text.contains(secret), "{secret} is a label");
    }
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let mut words = line.split(' ').skip(2);
        let (name, kind) = (words.next().expect("a name"), words.next().expect("a kind"));
        assert!(name.starts_with("paddock_") && !name.contains("__") && !name.ends_with('_'), "{line}");
        match kind {
            "counter" => assert!(name.ends_with("_total"), "{line}"),
            "histogram" => assert!(name.ends_with("_seconds") || name.ends_with("_bytes"), "{line}"),
            _ => assert!(!name.ends_with("_total"), "{line}"),
        }
        assert!(text.contains(&format!("# HELP {name} ")), "{name} is not described");
    }
}

#[tokio::test]
async fn the_contract_comes_as_json_or_yaml() {
    let world = World::new(On::Sqlite).await;
    let get =
        |path: &str, accept: &'static str| world.send(world.anonymous("GET", path).header("accept", accept));
    let json: Value = get("/-/openapi/schema", "*/*").await.expect(200).json();
    assert_eq!(json["openapi"], "3.1.0");
    let yaml = get("/-/openapi/schema", "application/yaml").await.expect(200);
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert_eq!(yaml_serde::from_str::<Value>(&yaml.text).expect("YAML"), json);
    assert_eq!(get("/-/openapi/schema?format=json", "application/yaml").await.expect(200).json(), json);
    assert_eq!(get("/-/openapi/schema?format=yaml", "application/json").await.expect(200).text, yaml.text);
    get("/-/openapi/schema?format=xml", "*/*").await.expect(400);
}

#[tokio::test]
async fn the_contract_names_the_limits_that_are_in_force() {
    let world =
        World::with(On::Sqlite, &["--limits-body-bytes", "4096", "--limits-burst", "77"], LOOPS).await;
    let document = world.send(world.anonymous("GET", "/-/openapi/schema")).await.expect(200).json();
    let description = document["info"]["description"].as_str().expect("a description");
    assert!(
        description.contains("4096 bytes a body") && description.contains("a burst of 77"),
        "{description}"
    );
}

#[tokio::test]
async fn operations_can_have_an_address_of_their_own() {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let address = format!("127.0.0.1:{port}");
    let world = World::with(On::Sqlite, &["--operations-listen", &address], LOOPS).await;
    let get = |path: &str| world.http.get(format!("http://{address}{path}")).bearer_auth(&world.token).send();
    assert_eq!(get("/-/readyz").await.expect("an answer").status(), 200);
    assert_eq!(get("/-/metrics").await.expect("an answer").status(), 200);
    assert_eq!(get(TENANTS).await.expect("an answer").status(), 404);
}

#[tokio::test]
async fn only_configured_pages_may_call_from_elsewhere() {
    let world = World::with(On::Sqlite, &["--cors-origins", "https://console.example.com"], LOOPS).await;
    let get = |origin: &'static str| world.send(world.request("GET", TENANTS, None).header("origin", origin));
    let allowed = get("https://console.example.com").await.expect(200);
    assert_eq!(allowed.header("access-control-allow-origin"), "https://console.example.com");
    assert_eq!(get("https://evil.example").await.expect(200).header("access-control-allow-origin"), "");

    let ask = world.anonymous("OPTIONS", TENANTS).header("access-control-request-method", "PUT");
    let answer = world
        .http
        .execute(ask.header("origin", "https://console.example.com").build().expect("a request"))
        .await;
    let headers = answer.expect("an answer").headers().clone();
    assert!(headers["access-control-allow-methods"].to_str().expect("text").contains("PUT"));
    assert!(!headers.contains_key("access-control-allow-credentials"));
}
