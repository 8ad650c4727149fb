//! A world for tests: a real server on a free port, on either database, and a caller who holds every answer
//! against the published contract.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use paddock_engine::reconcile::{LOOPS, Loop};
use paddock_engine::users;
use paddock_model::Timestamp;
use paddock_model::ports::{Clock, ManualClock, SeededRandom};
use paddock_model::users::UserId;
use paddock_server::auth::access_token;
use paddock_server::config::{self, Config};
use paddock_server::http::meta::Build;
use paddock_server::wiring::{self, Server, Simulation};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

pub struct World {
    pub server: Server,
    pub clock: Arc<ManualClock>,
    pub folder: Arc<tempfile::TempDir>,
    pub token: String,
    pub http: reqwest::Client,
    pub simulation: Simulation,
    contract: Contract,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("visible ASCII"))
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().expect("a problem document").to_owned()
    }

    pub fn id(&self) -> String {
        self.json()["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }
}

/// Which database a world stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Sqlite,
    Postgres,
}

pub const BOTH: [On; 2] = [On::Sqlite, On::Postgres];

impl World {
    pub async fn new(on: On) -> World {
        World::with(on, &[], LOOPS).await
    }

    /// A world with settings of its own, as flags.
    pub async fn with(on: On, flags: &[&str], loops: &'static [Loop]) -> World {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let database = match on {
            On::Sqlite => String::new(),
            On::Postgres => new_postgres_database().await,
        };
        World::on_database(folder, &database, flags, loops).await
    }

    pub async fn on_database(
        folder: Arc<tempfile::TempDir>,
        database: &str,
        flags: &[&str],
        loops: &'static [Loop],
    ) -> World {
        let data = folder.path().display().to_string();
        let mut all = vec!["--data", &data, "--listen", "127.0.0.1:0", "--database-url", database];
        all.extend(flags);
        let clock = Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse::<Timestamp>().expect("a time")));
        World::on_clock(folder, &all, loops, clock.clone(), clock).await
    }

    /// A world whose clock may be more than the manual one that tests hold.
    pub async fn on_clock(
        folder: Arc<tempfile::TempDir>,
        flags: &[&str],
        loops: &'static [Loop],
        clock: Arc<ManualClock>,
        shown: Arc<dyn Clock>,
    ) -> World {
        // Devices that exist in memory only: what they are is tried elsewhere, with real ones.
        let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../image");
        let mut all = vec!["--devices-simulated", "true", "--devices-images", images];
        all.extend(flags);
        let config = config(&all);
        let simulation = Simulation::new(shown.clone(), config.simulated_peer, config.simulated_log_rate.0);
        let world = wiring::World {
            simulation: Some(simulation.clone()),
            clock: shown,
            random: Arc::new(SeededRandom::new(COUNT.fetch_add(1, Ordering::Relaxed).into())),
            loops,
            build: Build { commit: "unknown", built_at: "2026-11-15T04:00:00Z" },
        };
        let server = wiring::start(&config, world).await.expect("a server");
        let admin = users::first_admin(&server.engine).await.expect("the first admin");
        let token = access_token::mint(&server.engine, admin.id, server.engine.now()).await.expect("a token");
        // The client's TLS is set up although no test speaks it through this client.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("a client");
        World { server, clock, folder, token, http, contract: Contract::new(), simulation }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    /// A request with the admin's credential; the answer is held against the contract.
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.send(self.request(method, path, body)).await
    }

    pub fn request(&self, method: &str, path: &str, body: Option<Value>) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.http.request(method, self.url(path)).bearer_auth(&self.token);
        match body {
            Some(body) => request.json(&body),
            None => request,
        }
    }

    pub fn anonymous(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.request(Method::from_bytes(method.as_bytes()).expect("a method"), self.url(path))
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let request = request.build().expect("a request");
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let response = self.http.execute(request).await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let answer = Answer { status, headers, text };
        self.contract.hold(&method, &path, &answer);
        answer
    }

    pub async fn create_tenant(&self, name: &str) -> Answer {
        self.call("POST", "/api/v1/tenants", Some(json!({ "name": name }))).await
    }

    /// A request with another credential than the admin's.
    pub async fn call_as(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let request = self.anonymous(method, path).bearer_auth(token);
        self.send(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    /// A new tenant's id.
    pub async fn tenant(&self, name: &str) -> String {
        self.create_tenant(name).await.expect(201).id()
    }

    /// A new group's id.
    pub async fn group(&self, tenant: &str, name: &str) -> String {
        let path = format!("/api/v1/tenants/{tenant}/groups");
        self.call("POST", &path, Some(json!({ "name": name }))).await.expect(201).id()
    }

    /// A new user's id.
    pub async fn user(&self, login: &str) -> String {
        self.call("POST", "/api/v1/users", Some(json!({ "login": login }))).await.expect(201).id()
    }

    /// Gives a user a role in a tenant.
    pub async fn join(&self, tenant: &str, user: &str, role: &str) {
        let path = format!("/api/v1/tenants/{tenant}/members");
        self.call("POST", &path, Some(json!({ "userId": user, "role": role }))).await.expect(201);
    }

    /// Returns when there is a snapshot to deploy.
    pub async fn snapshot(&self) -> String {
        self.root("phone").await
    }

    async fn root(&self, device_type: &str) -> String {
        let path = format!("/api/v1/snapshots?deployable=true&deviceType={device_type}");
        for _ in 0..500 {
            let page = self.call("GET", &path, None).await.expect(200).json();
            if let Some(name) = page["items"][0]["name"].as_str() {
                return name.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no image was brought in");
    }

    /// A new emulator of the tenant, by this credential; it is up.
    pub async fn emulator(&self, token: &str, tenant: &str) -> String {
        self.snapshot().await;
        let body = json!({ "tenantId": tenant });
        let id = self.call_as(token, "POST", "/api/v1/emulators", Some(body)).await.expect(201).id();
        self.until(&id, "running").await;
        id
    }

    /// The same, automotive.
    pub async fn car(&self, token: &str, tenant: &str) -> String {
        let body = json!({ "tenantId": tenant, "snapshot": self.root("automotive").await });
        let id = self.call_as(token, "POST", "/api/v1/emulators", Some(body)).await.expect(201).id();
        self.until(&id, "running").await;
        id
    }

    /// Lets time pass until the emulator is in this status.
    pub async fn until(&self, emulator: &str, status: &str) {
        let path = format!("/api/v1/emulators/{emulator}/status");
        let mut seen = Value::Null;
        for _ in 0..500 {
            seen = self.call("GET", &path, None).await.expect(200).json();
            if seen["status"] == status {
                return;
            }
            self.clock.advance(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is {seen} and not {status}");
    }

    /// A snapshot of the emulator, by this credential; it can be deployed.
    pub async fn captured(&self, token: &str, emulator: &str) -> String {
        let body = json!({ "emulatorId": emulator });
        let made = self.call_as(token, "POST", "/api/v1/snapshots", Some(body)).await.expect(202).json();
        let name = made["name"].as_str().expect("a name").to_owned();
        self.until_snapshot(&name, "ready").await;
        name
    }

    /// Lets time pass until the snapshot is in this state; none when it is gone.
    pub async fn until_snapshot(&self, name: &str, state: &str) -> Value {
        let path = format!("/api/v1/snapshots/{name}");
        let mut seen = Value::Null;
        for _ in 0..500 {
            let answer = self.call("GET", &path, None).await;
            if answer.status == 404 && state == "gone" {
                return Value::Null;
            }
            seen = answer.expect(200).json();
            if seen["state"] == state {
                return seen;
            }
            self.clock.advance(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is {seen} and not {state}");
    }

    /// Lets time pass until a backup or a restore is in this phase; none when it is gone.
    pub async fn until_phase(&self, path: &str, phase: &str) -> Value {
        let mut seen = Value::Null;
        for _ in 0..1000 {
            let answer = self.call("GET", path, None).await;
            if answer.status == 404 && phase == "gone" {
                return Value::Null;
            }
            seen = answer.expect(200).json();
            if seen["phase"] == phase {
                return seen;
            }
            self.clock.advance(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is {seen} and not {phase}");
    }

    /// A credential of a user, as if they had just signed in.
    pub async fn token_of(&self, user: &str) -> String {
        let user = UserId::parse(user).expect("a user's id");
        let now = self.server.engine.now();
        access_token::mint(&self.server.engine, user, now).await.expect("a token")
    }

    /// A token of ours as another server would want it.
    pub async fn token_for_audience(&self, audience: &str) -> String {
        let admin = users::first_admin(&self.server.engine).await.expect("the first admin");
        let now = self.server.engine.now();
        access_token::mint_for(&self.server.engine, admin.id, now, audience).await.expect("a token")
    }

    /// Whether the holder of this credential may.
    pub async fn may(&self, token: &str, relation: &str, object: &str) -> bool {
        let path = format!("/api/v1/permissions/check?relation={relation}&object={object}");
        let answer = self.call_as(token, "GET", &path, None).await.expect(200);
        answer.json()["allowed"].as_bool().expect("an answer")
    }
}

static COUNT: AtomicU32 = AtomicU32::new(1);

pub fn config(flags: &[&str]) -> Config {
    let arguments = ["paddockd"].into_iter().chain(flags.iter().copied());
    let matches =
        config::command(clap::Command::new("paddockd")).try_get_matches_from(arguments).expect("known flags");
    config::load(&matches, std::iter::empty()).expect("valid settings").0
}

pub async fn new_postgres_database() -> String {
    let server = std::env::var("TEST_POSTGRES_URL")
        .expect("TEST_POSTGRES_URL; `make test` starts a server and sets it");
    let name = format!("server_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a new database");
    let (address, _) = server.rsplit_once('/').expect("a URL with a database");
    format!("{address}/{name}")
}

/// The published contract, against which every answer is held.
pub struct Contract(pub &'static Value);

/// Schemas that were compiled before, by their text: that takes a thousand times as long as using one.
static COMPILED: Mutex<BTreeMap<String, Arc<jsonschema::Validator>>> = Mutex::new(BTreeMap::new());

impl Contract {
    pub fn new() -> Self {
        static DOCUMENT: LazyLock<Value> =
            LazyLock::new(|| paddock_server::http::document(&Config::default()).value);
        Contract(&DOCUMENT)
    }

    /// Every operation as (path template, method, operation).
    pub fn operations(&self) -> Vec<(String, String, Value)> {
        let paths = self.0["paths"].as_object().expect("paths");
        paths
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().expect("operations");
                methods
                    .iter()
                    .map(move |(method, operation)| (path.clone(), method.to_uppercase(), operation.clone()))
            })
            .collect()
    }

    /// Every error is a problem document; every answer of a documented operation is one that it documents.
    pub fn hold(&self, method: &str, path: &str, answer: &Answer) {
        assert!(!answer.header("x-request-id").is_empty(), "no request id: {answer:?}");
        let (status, kind) = (answer.status.as_u16(), answer.header("content-type"));
        let kind = kind.split(';').next().unwrap_or_default();
        let documented = if method == "HEAD" { "GET" } else { method }.to_lowercase();
        let paths = self.0["paths"].as_object().expect("paths");
        // A path without place holders is the better match.
        let item = paths
            .get(path)
            .or_else(|| paths.iter().find(|(template, _)| matches(template, path)).map(|(_, item)| item));
        let operation = item.and_then(|item| item.get(&documented));
        // Readiness is a line of text, a page is HTML, and OAuth has errors of its own.
        let own_form = operation.is_some_and(|operation| {
            let response = self.resolve(&operation["responses"][status.to_string()]);
            !operation["security"].is_null() && response["content"].get(kind).is_some()
        });
        if status >= 400 && !own_form && method != "HEAD" {
            assert_eq!(kind, "application/problem+json", "{method} {path}: {answer:?}");
            self.validate(&json!({ "$ref": "#/components/schemas/Problem" }), &answer.json());
            assert_eq!(answer.json()["requestId"], answer.header("x-request-id"));
            assert_eq!(answer.json()["status"], status);
        }
        let Some(operation) = operation else { return };
        let response = self.resolve(&operation["responses"][status.to_string()]);
        assert!(response.is_object(), "{method} {path} does not document {status}: {answer:?}");
        if method == "HEAD" || status == 304 {
            assert!(answer.text.is_empty());
            return;
        }
        match response["content"].get(kind) {
            Some(content) if kind.ends_with("json") && kind != "application/x-ndjson" => {
                self.validate(&content["schema"], &answer.json());
            }
            Some(_) => {}
            None => assert!(
                answer.text.is_empty(),
                "{method} {path} does not document {kind} for {status}: {answer:?}"
            ),
        }
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let sent = answer.header(name);
            if sent.is_empty() {
                // The others depend on the caller.
                let always = ["ETag", "Location", "Allow", "WWW-Authenticate", "Paddock-Revision"];
                let always =
                    always.contains(&name.as_str()) || (name == "Retry-After" && path != "/-/readyz");
                assert!(!always, "{method} {path} promises {name} with {status}: {answer:?}");
                continue;
            }
            let schema = &self.resolve(header)["schema"];
            let number = || json!(sent.parse::<i64>().expect("a number"));
            self.validate(schema, &if schema["type"] == "integer" { number() } else { json!(sent) });
        }
    }

    fn compiled(&self, schema: &Value) -> Arc<jsonschema::Validator> {
        let text = schema.to_string();
        let known = COMPILED.lock().expect("no test panicked here").get(&text).cloned();
        known.unwrap_or_else(|| {
            let mut schema = schema.clone();
            schema["components"] = self.0["components"].clone();
            let compiled =
                jsonschema::options().should_validate_formats(true).build(&schema).expect("a valid schema");
            let compiled = Arc::new(compiled);
            COMPILED.lock().expect("no test panicked here").insert(text, compiled.clone());
            compiled
        })
    }

    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                self.0.pointer(reference.trim_start_matches('#')).expect("a reference that leads somewhere")
            }
            None => value,
        }
    }

    pub fn validate(&self, schema: &Value, value: &Value) {
        let validator = self.compiled(schema);
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|fault| format!("{} at {}", fault, fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?} in {value:#}");
    }
}

/// A path with its place holders filled by ids of nothing.
pub fn example(path: &str) -> String {
    const NOTHING: &str = "01jcr8e8v0e9bvqz3tz4d0wq2h";
    let mut filled = String::new();
    for part in path.split('/').skip(1) {
        let noun = filled.rsplit('/').next().unwrap_or_default();
        let text = match (part, noun) {
            ("{id}", "tenants") => format!("ten_{NOTHING}"),
            ("{id}", "groups") => format!("grp_{NOTHING}"),
            ("{id}", "users") | ("{userId}" | "{memberId}", _) => format!("usr_{NOTHING}"),
            ("{id}", "api_keys") => format!("key_{NOTHING}"),
            ("{id}", "emulators") => format!("emu_{NOTHING}"),
            ("{id}", "retention_policies") => format!("pol_{NOTHING}"),
            ("{podName}", "backups") => format!("backup-{NOTHING}"),
            ("{podName}", "restores") => format!("restore-{NOTHING}"),
            ("{name}", "snapshots") => "nothing".to_owned(),
            ("{property}", _) => "PERF_VEHICLE_SPEED".to_owned(),
            ("{area}", _) => "0".to_owned(),
            ("{trace}", _) => format!("vtr_{NOTHING}"),
            ("{subject}", _) => format!("user:usr_{NOTHING}"),
            ("{grantId}", _) => format!("granted_viewer@emulator:emu_{NOTHING}"),
            (part, noun) => {
                assert!(!part.starts_with('{'), "an example for {part} behind {noun}");
                part.to_owned()
            }
        };
        filled.push('/');
        filled.push_str(&text);
    }
    filled
}

pub fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template.iter().zip(path).all(|(part, text)| part.starts_with('{') || *part == text)
}
