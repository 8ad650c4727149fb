//! The published contract and the code say the same.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use paddock_engine::reconcile::LOOPS;
use serde_json::{Value, json};
use world::{Contract, On, World};

#[test]
fn the_committed_contract_is_fresh() {
    let live = paddock_server::http::document(&paddock_server::config::Config::default()).json;
    let live = std::str::from_utf8(&live).expect("text");
    assert!(
        paddock_api::OPENAPI_JSON == live,
        "crates/api/openapi.json is stale; run `make contract` and commit it"
    );
}

#[tokio::test]
async fn every_documented_operation_is_served_and_no_other_method() {
    let world = World::new(On::Sqlite).await;
    let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, method, _) in Contract::new().operations() {
        methods.entry(path).or_default().insert(method);
    }
    for (path, documented) in methods {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let answer = world.call(method, &world::example(&path), None).await;
            if documented.contains(method) {
                assert_ne!(answer.status, 405, "{method} {path} is documented but not served");
                let page = answer.header("content-type").starts_with("text/html");
                assert!(
                    answer.status != 404 || page || answer.code() != "no_such_path",
                    "{method} {path} is documented but not served"
                );
            } else {
                assert_eq!(answer.status, 405, "{method} {path} is served but not documented");
                let allowed: BTreeSet<String> = answer
                    .header("allow")
                    .split(',')
                    .filter(|method| *method != "HEAD")
                    .map(|method| method.trim().to_owned())
                    .collect();
                assert_eq!(allowed, documented, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn no_operation_of_the_api_is_open_without_a_credential() {
    let world =
        World::with(On::Sqlite, &["--limits-failed-authentications-per-minute", "100000"], LOOPS).await;
    for (path, method, _) in
        Contract::new().operations().into_iter().filter(|(path, ..)| path.starts_with("/api/"))
    {
        let path = world::example(&path);
        let nothing = world.send(world.anonymous(&method, &path)).await.expect(401);
        assert_eq!(nothing.code(), "credential_missing", "{method} {path}");
        let garbage = world.send(world.anonymous(&method, &path).bearer_auth("garbage")).await.expect(401);
        assert_eq!(garbage.code(), "invalid_credential", "{method} {path}");
    }
}

/// A route can only enter through `routes!`, which documents it; so no route is without a document.
#[test]
fn no_route_bypasses_the_contract() {
    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 10);
    // What is served by gRPC has its own document, which reflection tells.
    for path in found.into_iter().filter(|path| !path.ends_with("src/grpc.rs")) {
        let source = std::fs::read_to_string(&path).expect("text");
        for bypass in [".route(", ".route_service(", ".nest_service("] {
            assert!(!source.contains(bypass), "{} adds a route with {bypass}; use routes!", path.display());
        }
    }
}

#[test]
fn every_operation_is_described_in_full() {
    let contract = Contract::new();
    let operations = contract.operations();
    let ids: BTreeSet<&str> =
        operations.iter().filter_map(|(_, _, operation)| operation["operationId"].as_str()).collect();
    assert_eq!(ids.len(), operations.len(), "an operationId stands twice: {ids:?}");
    for (path, method, operation) in &operations {
        for member in ["summary", "description", "operationId"] {
            assert!(
                operation[member].as_str().is_some_and(|text| text.len() > 3),
                "{method} {path} has no {member}"
            );
        }
        let responses = operation["responses"].as_object().expect("responses");
        let guarded = path.starts_with("/api/");
        for status in ["400", "405", "429", "500", "503"] {
            assert!(responses.contains_key(status), "{method} {path} does not document {status}");
        }
        for status in ["401", "403", "406"] {
            // A page says in words what is not allowed.
            if responses.contains_key("303") || operation["tags"][0] == "sign_in" {
                continue;
            }
            assert_eq!(responses.contains_key(status), guarded, "{method} {path}: {status}");
        }
        for (status, response) in responses {
            let response = contract.resolve(response);
            assert!(
                response["headers"]["X-Request-Id"].is_object(),
                "{method} {path} {status} has no request id"
            );
        }
    }
}

#[test]
fn every_example_is_valid() {
    let contract = Contract::new();
    let mut seen = 0;
    let mut check = |schema: &Value, example: &Value| {
        contract.validate(schema, example);
        seen += 1;
    };
    for response in contract.0["components"]["responses"].as_object().expect("responses").values() {
        let content = &response["content"]["application/problem+json"];
        if content["example"].is_object() {
            check(&content["schema"], &content["example"]);
        }
    }
    for parameter in contract.0["components"]["parameters"].as_object().expect("parameters").values() {
        check(&parameter["schema"], &parameter["example"]);
    }
    for header in contract.0["components"]["headers"].as_object().expect("headers").values() {
        check(&header["schema"], &header["example"]);
    }
    for schema in contract.0["components"]["schemas"].as_object().expect("schemas").values() {
        for property in schema["properties"].as_object().into_iter().flatten().map(|(_, property)| property) {
            for example in property["examples"].as_array().into_iter().flatten() {
                check(property, example);
            }
        }
    }
    assert!(seen > 30, "only {seen} examples were found");
}

/// utoipa overwrites a schema by another of the same name without a word.
#[test]
fn no_two_shapes_share_a_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/src");
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let entries = std::fs::read_dir(folder).expect("the sources");
    let files = entries.map(|entry| entry.expect("a source").path()).filter(|path| path.is_file());
    for path in files {
        let source = std::fs::read_to_string(path).expect("text");
        for line in source.lines() {
            let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
            if let Some(name) =
                rest.and_then(|rest| rest.split(|letter: char| !letter.is_alphanumeric()).next())
            {
                *names.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    assert!(names.contains_key("Tenant"));
    let twice: Vec<_> = names.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn the_contract_and_the_model_agree_on_names() {
    let contract = Contract::new();
    let schema = &contract.0["components"]["schemas"]["TenantSpec"]["properties"]["name"];
    assert_eq!(schema["pattern"], paddock_model::slug::Slug::PATTERN);
}

#[tokio::test]
async fn every_post_can_be_repeated_with_a_key() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    let group = world.group(&acme, "qa").await;
    let ada = world.user("ada").await;
    world.join(&acme, &ada, "member").await;
    let admin = world.token.clone();
    let (first, second) = (world.emulator(&admin, &acme).await, world.emulator(&admin, &acme).await);
    let (third, name) = (world.emulator(&admin, &acme).await, world.captured(&admin, &second).await);
    let policy = json!({ "tenantId": acme, "rules": { "keepLast": 3 } });
    let made = world.call("POST", "/api/v1/retention_policies", Some(policy.clone())).await.expect(201).id();
    let nightly = json!({ "tenantId": acme, "group": "nightly", "rules": { "keepLast": 3 } });
    let backup = json!({ "tenantId": acme, "source": { "snapshot": name } });
    let done = world.call("POST", "/api/v1/backups", Some(backup.clone())).await.expect(202).json();
    let done = done["podName"].as_str().expect("a name").to_owned();
    world.until_phase(&format!("/api/v1/backups/{done}"), "completed").await;
    let car = world.car(&admin, &acme).await;
    let traces = format!("/api/v1/emulators/{car}/vehicle/traces");
    let trace = world.call("POST", &traces, None).await.expect(201).id();
    let bodies = BTreeMap::from([
        (format!("{traces}/{trace}/finish"), json!({})),
        (traces, json!({ "name": "motorway" })),
        ("/api/v1/backups".to_owned(), backup),
        ("/api/v1/restores".to_owned(), json!({ "backup": done })),
        ("/api/v1/retention_policies".to_owned(), nightly),
        ("/api/v1/retention_policies/preview".to_owned(), policy),
        (format!("/api/v1/retention_policies/{made}/preview"), json!({})),
        ("/api/v1/snapshots".to_owned(), json!({ "emulatorId": third })),
        (format!("/api/v1/snapshots/{name}/promote-root"), json!({})),
        (format!("/api/v1/snapshots/{name}/demote-root"), json!({})),
        (format!("/api/v1/snapshots/{name}/verify"), json!({})),
        ("/api/v1/emulators".to_owned(), json!({ "tenantId": acme })),
        (format!("/api/v1/emulators/{first}/park"), json!({})),
        (format!("/api/v1/emulators/{second}/restart"), json!({})),
        (format!("/api/v1/emulators/{second}/tickets"), json!({ "channel": "logs" })),
        ("/api/v1/admins".to_owned(), json!({ "subject": format!("user:{ada}") })),
        ("/api/v1/api_keys".to_owned(), json!({ "tenantId": acme, "name": "ci", "scopes": ["device:read"] })),
        (
            format!("/api/v1/groups/{group}/grants"),
            json!({ "object": format!("tenant:{acme}"), "relation": "operator" }),
        ),
        (format!("/api/v1/groups/{group}/members"), json!({ "userId": ada })),
        ("/api/v1/permissions/check".to_owned(), json!({ "relation": "admin", "object": "system:paddock" })),
        ("/api/v1/tenants".to_owned(), json!({ "name": "other" })),
        (format!("/api/v1/tenants/{acme}/groups"), json!({ "name": "dev" })),
        (format!("/api/v1/tenants/{acme}/members"), json!({ "login": "bob", "role": "operator" })),
        ("/api/v1/users".to_owned(), json!({ "login": "eve" })),
        (format!("/api/v1/users/{ada}/invitations"), json!({})),
    ]);
    let contract = Contract::new();
    let posts = contract.operations();
    let posts: Vec<&String> = posts
        .iter()
        .filter(|(path, method, _)| method == "POST" && path.starts_with("/api/"))
        .map(|(path, ..)| path)
        .collect();
    assert_eq!(
        posts.len(),
        bodies.len(),
        "each POST needs a body here, so that its key can be tried: {posts:?}"
    );
    for (number, (path, body)) in bodies.iter().enumerate() {
        assert!(posts.iter().any(|template| world::matches(template, path)), "{path} is no POST");
        let send = |body: &Value| {
            let key = format!("again-{number}");
            world.send(world.request("POST", path, Some(body.clone())).header("idempotency-key", key))
        };
        let (first, again) = (send(body).await, send(body).await);
        assert!(first.status.is_success(), "{path}: {first:?}");
        assert_eq!((first.status, untold(&first.json())), (again.status, untold(&again.json())), "{path}");
        // A question changes nothing; a device goes on between two answers.
        if path == "/api/v1/permissions/check" || path.ends_with("/preview") {
            continue;
        }
        let mut other = body.clone();
        other["name"] = json!("another");
        let answer = send(&other).await;
        let refused = answer.status == 409 && answer.code() == "idempotency_mismatch";
        // A body that takes no name refuses it before the key is looked at.
        assert!(refused || answer.status == 400, "{path}: {answer:?}");
    }
}

/// What a snapshot takes and how it is judged is told as it is at the moment, whichever answer it stands in.
const MEASURED: &[&str] = &[
    "checksum",
    "sizeBytes",
    "exclusiveBytes",
    "sharedBytes",
    "virtualBytes",
    "sourceVolumes",
    "childCount",
    "retentionScore",
    "scoreBreakdown",
    "keptBecause",
    "backups",
];

/// An answer without what is told once and never again, and without what is measured anew for each.
fn untold(answer: &Value) -> Value {
    let mut answer = answer.clone();
    for member in ["key", "invitation", "ticket", "url", "expiresAt"].iter().chain(MEASURED) {
        answer.as_object_mut().expect("an object").remove(*member);
    }
    answer
}
