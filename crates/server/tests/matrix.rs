//! Who may do what: every operation of the contract, tried by every kind of caller, on what is theirs, on what is another
//! tenant's, and on what is not there. The outcome is held against a committed table.
//!
//! `BLESS=1 cargo test -p paddock-server --test matrix` writes the table anew; read its difference before you commit it.

mod issuer;
mod world;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use issuer::{Key, TestIssuer, section};
use paddock_engine::reconcile::LOOPS;
use serde_json::{Value, json};
use world::{Contract, On, World};

const TABLE: &str = "tests/matrix.txt";

/// Everyone who tries. The other tenant's admin is at home in `other`, all the rest in `own`; the service account
/// is a member there.
const CALLERS: [&str; 14] = [
    "none",
    "garbage",
    "expired",
    "wrong_audience",
    "stranger",
    "leaver",
    "member",
    "service_account",
    "operator",
    "auditor",
    "tenant_admin",
    "other_admin",
    "api_key",
    "global_admin",
];

const TARGETS: [&str; 3] = ["own", "other", "absent"];

/// Things of one tenant, for one try.
#[derive(Clone)]
struct Things {
    tenant: String,
    policy: String,
    group: String,
    /// A member, who is in the group.
    user: String,
    /// A member who is not.
    newcomer: String,
    key: String,
    /// Of that member.
    emulator: String,
    /// Of that emulator.
    snapshot: String,
    /// Of that snapshot, and by the tenant's first admin.
    backup: String,
    restore: String,
    trace: String,
}

struct Stage {
    world: World,
    credentials: BTreeMap<&'static str, Option<String>>,
    ids: BTreeMap<&'static str, String>,
    round: usize,
}

impl Stage {
    async fn new() -> Stage {
        let key = Key::ed25519("cluster");
        let cluster = TestIssuer::start(&[&key]).await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("paddockd.toml");
        std::fs::write(&file, section("cluster", &cluster.url, "kind = \"service_account\""))
            .expect("a file");
        let file = file.display().to_string();
        let flags = [
            "--config",
            &file,
            "--limits-costly-per-minute",
            "1000000",
            "--limits-failed-authentications-per-minute",
            "1000000",
            "--limits-requests-per-minute",
            "10000000",
            "--limits-burst",
            "10000000",
        ];
        let world = World::with(On::Sqlite, &flags, LOOPS).await;
        let mut ids = BTreeMap::new();
        for name in ["stranger", "leaver", "member", "operator", "auditor", "tenant_admin", "other_admin"] {
            ids.insert(name, world.user(&name.replace('_', "-")).await);
        }
        let expired = world.token_of(&ids["tenant_admin"]).await;
        world.clock.advance(Duration::from_secs(16 * 60));
        let mut stage = Stage { world, credentials: BTreeMap::new(), ids, round: 0 };
        stage.world.token = stage.admins_token().await;
        let mut credentials: BTreeMap<&'static str, Option<String>> = BTreeMap::new();
        for (name, id) in &stage.ids {
            credentials.insert(name, Some(stage.world.token_of(id).await));
        }
        credentials.insert("none", None);
        credentials.insert("garbage", Some("garbage".to_owned()));
        credentials.insert("expired", Some(expired));
        credentials.insert("wrong_audience", Some(stage.world.token_for_audience("urn:other").await));
        let account = cluster.account_claims(stage.world.server.engine.now().as_second());
        credentials.insert("service_account", Some(key.projected(&account)));
        credentials.insert("global_admin", Some(stage.world.token.clone()));
        stage.credentials = credentials;
        stage
    }

    async fn admins_token(&self) -> String {
        let admin = paddock_engine::users::first_admin(&self.world.server.engine).await.expect("the admin");
        self.world.token_of(&admin.id.to_string()).await
    }

    /// Two tenants with everything in them, untouched.
    async fn set(&mut self, operation: &str) -> (Things, Things) {
        self.round += 1;
        let own = self.things(&format!("own-{}", self.round), operation).await;
        let other = self.things(&format!("other-{}", self.round), operation).await;
        for (name, role) in [
            ("leaver", "member"),
            ("member", "member"),
            ("operator", "operator"),
            ("auditor", "auditor"),
            ("tenant_admin", "admin"),
        ] {
            self.world.join(&own.tenant, &self.ids[name], role).await;
        }
        self.world.join(&other.tenant, &self.ids["other_admin"], "admin").await;
        let path = format!("/api/v1/tenants/{}/members", own.tenant);
        let account = json!({ "serviceAccount": "cluster/ci/runner", "role": "member" });
        self.world.call("POST", &path, Some(account)).await.expect(201);
        let leaver = format!("{path}/{}", self.ids["leaver"]);
        self.world.call("DELETE", &leaver, None).await.expect(204);
        let body = json!({ "tenantId": own.tenant, "name": "ci", "scopes": ["device:read", "device:write"] });
        let key = self.world.call("POST", "/api/v1/api_keys", Some(body)).await.expect(201).json();
        let key = key["key"].as_str().expect("a key").to_owned();
        self.credentials.insert("api_key", Some(key));
        (own, other)
    }

    /// A change leaves one event, a refusal leaves one, and nothing else leaves any.
    async fn hold_against_audit(&self, operation: &str, number: usize, answer: &world::Answer) {
        let (status, code) = (answer.status.as_u16(), answer.text.clone());
        let page = self.world.call("GET", "/api/v1/audit?limit=10", None).await.expect(200).json();
        let id = format!("try-{number}");
        let events: Vec<&Value> = page["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter(|event| event["requestId"] == id.as_str())
            .collect();
        let outcome = match status {
            200..300 if operation != "permissions.check_many" && !operation.contains(".preview") => {
                Some("done")
            }
            403 => Some("refused"),
            401 if !code.contains("credential_missing") && !code.contains("credential_expired") => {
                Some("refused")
            }
            _ => None,
        };
        match outcome {
            Some(outcome) => {
                assert_eq!(events.len(), 1, "{operation}: {events:#?} {answer:?}");
                assert_eq!(events[0]["outcome"], outcome, "{operation}");
                assert_eq!(events[0]["action"], operation);
            }
            // What is there but hidden is told to the audit a moment later.
            None if status == 404 => {}
            None => assert!(events.is_empty(), "{operation}: {events:#?} {answer:?}"),
        }
    }

    async fn things(&self, name: &str, operation: &str) -> Things {
        let world = &self.world;
        let tenant = world.tenant(name).await;
        let group = world.group(&tenant, "qa").await;
        let user = world.user(&format!("victim-{name}")).await;
        world.join(&tenant, &user, "member").await;
        let newcomer = world.user(&format!("newcomer-{name}")).await;
        world.join(&tenant, &newcomer, "member").await;
        let body = json!({ "userId": user });
        world.call("POST", &format!("/api/v1/groups/{group}/members"), Some(body)).await.expect(201);
        let grant = json!({ "object": format!("tenant:{tenant}"), "relation": "auditor" });
        world.call("POST", &format!("/api/v1/groups/{group}/grants"), Some(grant)).await.expect(201);
        let owner = world.token_of(&user).await;
        let body = json!({ "tenantId": tenant, "name": "key", "scopes": ["device:read"] });
        let key = world.call_as(&owner, "POST", "/api/v1/api_keys", Some(body)).await.expect(201).id();
        // A device takes a while to come up; only those who ask for one need it.
        let kept = operation.starts_with("backups.") || operation.starts_with("restores.");
        let devices = ["emulators.", "snapshots.", "streams.", "tickets."];
        let devices = kept || devices.iter().any(|noun| operation.starts_with(noun));
        let drives = operation.starts_with("vehicles.");
        let emulator = match (devices, drives) {
            (_, true) => world.car(&owner, &tenant).await,
            (true, false) => world.emulator(&owner, &tenant).await,
            (false, false) => nothing().emulator,
        };
        let mut trace = nothing().trace;
        if operation.contains("trace") || operation.contains("replay") {
            let path = format!("/api/v1/emulators/{emulator}/vehicle");
            trace = world.call_as(&owner, "POST", &format!("{path}/traces"), None).await.expect(201).id();
            if operation.contains("replay") {
                let finish = format!("{path}/traces/{trace}/finish");
                world.call_as(&owner, "POST", &finish, None).await.expect(200);
                let body = Some(json!({ "traceId": trace }));
                world.call_as(&owner, "PUT", &format!("{path}/replay"), body).await.expect(200);
            }
        }
        let captures = kept || operation.starts_with("snapshots.") || operation == "emulators.swap_snapshot";
        let snapshot = if operation == "snapshots.upload" {
            let import = json!({ "tenantId": tenant, "like": "simulated-phone", "checksum": OF_NOTHING });
            let body = Some(json!({ "import": import }));
            let made = world.call("POST", "/api/v1/snapshots", body).await.expect(202).json();
            made["name"].as_str().expect("a name").to_owned()
        } else if captures {
            world.captured(&owner, &emulator).await
        } else {
            nothing().snapshot
        };
        let policy = json!({ "tenantId": tenant, "rules": { "keepLast": 3 } });
        let policy = world.call("POST", "/api/v1/retention_policies", Some(policy)).await.expect(201).id();
        let (mut backup, mut restore) = (nothing().backup, nothing().restore);
        if kept {
            let body = json!({ "tenantId": tenant, "source": { "snapshot": snapshot } });
            let made = world.call("POST", "/api/v1/backups", Some(body)).await.expect(202).json();
            backup = made["podName"].as_str().expect("a name").to_owned();
            world.until_phase(&format!("/api/v1/backups/{backup}"), "completed").await;
        }
        if operation.starts_with("restores.") {
            let body = json!({ "backup": backup });
            let made = world.call("POST", "/api/v1/restores", Some(body)).await.expect(202).json();
            restore = made["podName"].as_str().expect("a name").to_owned();
            world.until_phase(&format!("/api/v1/restores/{restore}"), "completed").await;
        }
        Things { tenant, group, user, newcomer, key, emulator, snapshot, policy, backup, restore, trace }
    }
}

/// The checksum of an image without a byte.
const OF_NOTHING: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn nothing() -> Things {
    const NOTHING: &str = "01jcr8e8v0e9bvqz3tz4d0wq2h";
    Things {
        tenant: format!("ten_{NOTHING}"),
        group: format!("grp_{NOTHING}"),
        user: format!("usr_{NOTHING}"),
        newcomer: format!("usr_{NOTHING}"),
        key: format!("key_{NOTHING}"),
        emulator: format!("emu_{NOTHING}"),
        snapshot: "nothing".to_owned(),
        policy: format!("pol_{NOTHING}"),
        backup: format!("backup-{NOTHING}"),
        restore: format!("restore-{NOTHING}"),
        trace: format!("vtr_{NOTHING}"),
    }
}

/// The request that tries an operation on these things. A new operation needs a row here.
fn attempt(operation: &str, things: &Things, round: usize) -> (String, Option<Value>) {
    let Things { tenant, group, user, newcomer, key, emulator, snapshot, policy, backup, restore, trace } =
        things;
    let api = |rest: String| format!("/api/v1{rest}");
    match operation {
        "admins.create" => (api("/admins".into()), Some(json!({ "subject": format!("user:{user}") }))),
        "admins.delete" => (api(format!("/admins/user:{user}")), None),
        "admins.list" => (api("/admins".into()), None),
        "api_keys.create" => (
            api("/api_keys".into()),
            Some(json!({ "tenantId": tenant, "name": "k", "scopes": ["device:read"] })),
        ),
        "api_keys.delete" | "api_keys.get" => (api(format!("/api_keys/{key}")), None),
        "api_keys.list" => (api(format!("/api_keys?tenantId={tenant}")), None),
        "audit.list" => (api(format!("/audit?tenantId={tenant}")), None),
        "backups.create" => {
            let body = json!({ "tenantId": tenant, "source": { "snapshot": snapshot } });
            (api("/backups".into()), Some(body))
        }
        "backups.delete" | "backups.get" => (api(format!("/backups/{backup}")), None),
        "backups.list" => (api(format!("/backups?tenantId={tenant}")), None),
        "emulators.create" => (api("/emulators".into()), Some(json!({ "tenantId": tenant }))),
        "emulators.delete" | "emulators.get" => (api(format!("/emulators/{emulator}")), None),
        "emulators.list" => (api(format!("/emulators?tenantId={tenant}")), None),
        "emulators.logs" => (api(format!("/emulators/{emulator}/logs?follow=false")), None),
        "emulators.park" => (api(format!("/emulators/{emulator}/park")), None),
        "emulators.restart" => (api(format!("/emulators/{emulator}/restart")), None),
        "emulators.swap_snapshot" => {
            (api(format!("/emulators/{emulator}/snapshot")), Some(json!({ "snapshot": "simulated-phone" })))
        }
        "emulators.status" => (api(format!("/emulators/{emulator}/status")), None),
        "grants.create" => {
            let body = json!({ "object": format!("tenant:{tenant}"), "relation": "operator" });
            (api(format!("/groups/{group}/grants")), Some(body))
        }
        "grants.delete" => (api(format!("/groups/{group}/grants/auditor@tenant:{tenant}")), None),
        "grants.list" => (api(format!("/groups/{group}/grants")), None),
        "groups.add_member" => (api(format!("/groups/{group}/members")), Some(json!({ "userId": newcomer }))),
        "groups.create" => {
            (api(format!("/tenants/{tenant}/groups")), Some(json!({ "name": format!("new-{round}") })))
        }
        "groups.delete" | "groups.get" => (api(format!("/groups/{group}")), None),
        "groups.list" => (api(format!("/tenants/{tenant}/groups")), None),
        "groups.list_members" => (api(format!("/groups/{group}/members")), None),
        "groups.remove_member" => (api(format!("/groups/{group}/members/{user}")), None),
        "groups.update" => (api(format!("/groups/{group}")), Some(json!({ "name": "renamed" }))),
        "invitations.create" => (api(format!("/users/{user}/invitations")), Some(json!({}))),
        "members.add" => {
            (api(format!("/tenants/{tenant}/members")), Some(json!({ "userId": user, "role": "operator" })))
        }
        "members.get" | "members.remove" => (api(format!("/tenants/{tenant}/members/{user}")), None),
        "members.list" => (api(format!("/tenants/{tenant}/members")), None),
        "permissions.check" => {
            (api(format!("/permissions/check?relation=can_view&object=tenant:{tenant}")), None)
        }
        "permissions.check_many" => {
            let body = json!({
                "relation": "can_view", "object": format!("tenant:{tenant}"), "subject": format!("user:{user}"),
            });
            (api("/permissions/check".into()), Some(body))
        }
        "permissions.me" => (api("/permissions/me".into()), None),
        "permissions.whoami" => (api("/whoami".into()), None),
        "restores.create" => (api("/restores".into()), Some(json!({ "backup": backup }))),
        "restores.get" => (api(format!("/restores/{restore}")), None),
        "restores.list" => (api(format!("/restores?tenantId={tenant}")), None),
        "retention_policies.create" => {
            let body =
                json!({ "tenantId": tenant, "group": format!("new-{round}"), "rules": { "keepLast": 3 } });
            (api("/retention_policies".into()), Some(body))
        }
        "retention_policies.delete" | "retention_policies.get" => {
            (api(format!("/retention_policies/{policy}")), None)
        }
        "retention_policies.list" => (api(format!("/retention_policies?tenantId={tenant}")), None),
        "retention_policies.preview" => (api(format!("/retention_policies/{policy}/preview")), None),
        "retention_policies.preview_proposed" => {
            let body = json!({ "tenantId": tenant, "rules": { "keepLast": 3 } });
            (api("/retention_policies/preview".into()), Some(body))
        }
        "retention_policies.update" => {
            (api(format!("/retention_policies/{policy}")), Some(json!({ "rules": { "keepLast": 4 } })))
        }
        "snapshots.create" => (api("/snapshots".into()), Some(json!({ "emulatorId": emulator }))),
        "snapshots.delete" | "snapshots.get" => (api(format!("/snapshots/{snapshot}")), None),
        "snapshots.demote_root" => (api(format!("/snapshots/{snapshot}/demote-root")), None),
        "snapshots.diskpool" => (api("/snapshots/diskpool".into()), None),
        "snapshots.list" => (api("/snapshots".into()), None),
        "snapshots.promote_root" => (api(format!("/snapshots/{snapshot}/promote-root")), Some(json!({}))),
        "snapshots.tree" => (api(format!("/snapshots/tree?root={snapshot}")), None),
        "snapshots.upload" => (api(format!("/snapshots/{snapshot}/content")), None),
        "snapshots.verify" => (api(format!("/snapshots/{snapshot}/verify")), None),
        // What is no WebSocket gets no further than to be told so.
        "streams.adb" => (api(format!("/emulators/{emulator}/adb/proxy")), None),
        "streams.display" => (api(format!("/emulators/{emulator}/display")), None),
        "tenants.create" => (api("/tenants".into()), Some(json!({ "name": format!("try-{round}") }))),
        "tenants.delete" | "tenants.get" => (api(format!("/tenants/{tenant}")), None),
        "tenants.list" => (api("/tenants".into()), None),
        "tenants.update" => {
            (api(format!("/tenants/{tenant}")), Some(json!({ "name": format!("re-{round}") })))
        }
        "tickets.create" => {
            (api(format!("/emulators/{emulator}/tickets")), Some(json!({ "channel": "adb" })))
        }
        "users.create" => (api("/users".into()), Some(json!({ "login": format!("new-{round}") }))),
        "users.get" => (api(format!("/users/{user}")), None),
        "users.list" => (api("/users".into()), None),
        "users.update" => (api(format!("/users/{user}")), Some(json!({ "name": "Renamed" }))),
        "vehicles.list_properties" => (api(format!("/emulators/{emulator}/vehicle/properties")), None),
        "vehicles.get_property" => {
            (api(format!("/emulators/{emulator}/vehicle/properties/PERF_VEHICLE_SPEED")), None)
        }
        "vehicles.set_property" => {
            let path = format!("/emulators/{emulator}/vehicle/properties/PERF_VEHICLE_SPEED/0");
            (api(path), Some(json!({ "value": 12.5 })))
        }
        "vehicles.list_traces" => (api(format!("/emulators/{emulator}/vehicle/traces")), None),
        "vehicles.create_trace" => (api(format!("/emulators/{emulator}/vehicle/traces")), Some(json!({}))),
        "vehicles.get_trace" | "vehicles.delete_trace" => {
            (api(format!("/emulators/{emulator}/vehicle/traces/{trace}")), None)
        }
        "vehicles.finish_trace" => {
            (api(format!("/emulators/{emulator}/vehicle/traces/{trace}/finish")), None)
        }
        "vehicles.read_trace" => (api(format!("/emulators/{emulator}/vehicle/traces/{trace}/content")), None),
        "vehicles.get_replay" | "vehicles.delete_replay" => {
            (api(format!("/emulators/{emulator}/vehicle/replay")), None)
        }
        "vehicles.create_replay" => {
            (api(format!("/emulators/{emulator}/vehicle/replay")), Some(json!({ "traceId": trace })))
        }
        unknown => panic!("{unknown} has no row here: say how it is tried, and check who may"),
    }
}

/// What a caller who sees nothing may still ask: about itself, and lists of what it sees.
const FOR_ANYONE: &[&str] = &[
    "api_keys.list",
    "audit.list",
    "backups.list",
    "emulators.list",
    "permissions.check",
    "permissions.me",
    "permissions.whoami",
    "restores.list",
    "retention_policies.list",
    "snapshots.list",
    "tenants.list",
    "users.list",
];

#[tokio::test]
async fn everyone_may_do_what_the_table_says_and_nothing_else() {
    let contract = Contract::new();
    let operations: BTreeMap<String, String> = contract
        .operations()
        .into_iter()
        .filter(|(path, ..)| path.starts_with("/api/"))
        .map(|(_, method, operation)| (operation["operationId"].as_str().expect("a name").to_owned(), method))
        .collect();
    let mut stage = Stage::new().await;
    let (mut own, mut other);
    let (mut table, mut tries) = (header(), 0);
    for (operation, method) in &operations {
        (own, other) = stage.set(operation).await;
        for target in TARGETS {
            let mut row = format!("{operation:<24} {target:<7}");
            for caller in CALLERS {
                let things = match target {
                    "own" => own.clone(),
                    "other" => other.clone(),
                    _ => nothing(),
                };
                // Events are sorted by their time.
                stage.world.clock.advance(Duration::from_millis(1));
                let (path, body) = attempt(operation, &things, tries);
                let request =
                    stage.world.anonymous(method, &path).header("x-request-id", format!("try-{tries}"));
                let request = match &stage.credentials[caller] {
                    Some(credential) => request.bearer_auth(credential),
                    None => request,
                };
                let request = match operation.as_str() {
                    "snapshots.upload" => request.header("content-type", "application/octet-stream"),
                    _ => request,
                };
                let answer = stage
                    .world
                    .send(body.into_iter().fold(request, |request, body| request.json(&body)))
                    .await;
                if method != "GET" || answer.status == 403 {
                    stage.hold_against_audit(operation, tries, &answer).await;
                }
                tries += 1;
                let status = answer.status.as_u16();
                write!(row, " {status:>width$}", width = caller.len()).expect("text");
                if matches!(caller, "none" | "garbage" | "expired" | "wrong_audience") {
                    assert_eq!(status, 401, "{caller} {operation} {target}: {answer:?}");
                }
                if matches!(caller, "stranger" | "leaver") && !FOR_ANYONE.contains(&operation.as_str()) {
                    assert!(matches!(status, 403 | 404), "{caller} {operation} {target}: {answer:?}");
                }
                if answer.status.is_success() && method != "GET" {
                    (own, other) = stage.set(operation).await;
                }
            }
            table.push_str(&row);
            table.push('\n');
        }
    }
    println!("{tries} tries of {} operations", operations.len());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &table).expect("the table is written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    for (line, (was, is)) in committed.lines().zip(table.lines()).enumerate() {
        assert_eq!(is, was, "line {} of {TABLE}: someone may do more or less than before", line + 1);
    }
    assert_eq!(table.lines().count(), committed.lines().count(), "{TABLE} has other rows");
}

fn header() -> String {
    let mut header = String::from(
        "# What each operation answers to each caller. `own` is a tenant in which the caller has its role (the other\n\
         # tenant's admin: none), `other` is another tenant, `absent` is nothing at all.\n",
    );
    write!(header, "{:<24} {:<7}", "# operation", "target").expect("text");
    for caller in CALLERS {
        write!(header, " {caller}").expect("text");
    }
    header.push('\n');
    header
}
