//! The audit over HTTP: who sees which events, and what is in them.

mod world;

use std::time::Duration;

use paddock_engine::audit;
use serde_json::{Value, json};
use world::{BOTH, World};

async fn events(world: &World, token: &str, filters: &str) -> Vec<Value> {
    let path = format!("/api/v1/audit?{filters}");
    let page = world.call_as(token, "GET", &path, None).await.expect(200).json();
    page["items"].as_array().expect("items").clone()
}

fn actions(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["action"].as_str().expect("an action")).collect()
}

#[tokio::test]
async fn an_event_says_who_did_what_by_which_credential() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        let body = json!({ "userId": ada, "role": "operator" });
        let path = format!("/api/v1/tenants/{acme}/members");
        let request = world.request("POST", &path, Some(body)).header("x-request-id", "the-request");
        world.send(request).await.expect(201);

        let found = events(&world, &world.token, &format!("tenantId={acme}&action=members.")).await;

        assert_eq!(found.len(), 1);
        let me = world.call("GET", "/api/v1/whoami", None).await.expect(200).id();
        let event = &found[0];
        assert_eq!(event["actor"], format!("user:{me}"));
        assert_eq!(event["credential"], "access_token");
        assert_ne!(event["credentialId"], Value::Null);
        assert_eq!(
            (event["action"].as_str(), event["outcome"].as_str()),
            (Some("members.add"), Some("done"))
        );
        assert_eq!(event["object"], format!("tenant:{acme}"));
        assert_eq!(event["requestId"], "the-request");
        assert_eq!(event["address"], "127.0.0.1");
        assert_eq!(event["details"], json!({ "role": "operator", "subject": format!("user:{ada}") }));
        assert_eq!(event["occurredAt"], "2026-11-15T04:00:00.000000Z");
    }
}

#[tokio::test]
async fn auditors_and_admins_see_their_tenant_and_nobody_sees_more() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let (ada, eve) = (world.user("ada").await, world.user("eve").await);
        world.join(&acme, &ada, "auditor").await;
        world.join(&acme, &eve, "operator").await;
        let (auditor, operator) = (world.token_of(&ada).await, world.token_of(&eve).await);

        let seen = events(&world, &auditor, "").await;
        assert!(!seen.is_empty() && seen.iter().all(|event| event["tenantId"] == acme.as_str()), "{seen:#?}");
        assert!(events(&world, &auditor, &format!("tenantId={other}")).await.is_empty());
        assert!(events(&world, &operator, "").await.is_empty());
        let all = events(&world, &world.token, "limit=200").await;
        assert!(all.iter().any(|event| event["tenantId"] == Value::Null));
        assert!(all.iter().any(|event| event["tenantId"] == other.as_str()));
    }
}

#[tokio::test]
async fn a_refusal_is_recorded_where_the_object_belongs() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let (ada, eve) = (world.user("ada").await, world.user("eve").await);
        world.join(&acme, &ada, "member").await;
        world.join(&other, &eve, "member").await;
        let (ada_token, eve_token) = (world.token_of(&ada).await, world.token_of(&eve).await);

        // Visible but not allowed, invisible, and not recognised at all.
        let path = format!("/api/v1/tenants/{acme}");
        world.call_as(&ada_token, "PUT", &path, Some(json!({ "name": "mine" }))).await.expect(403);
        world.clock.advance(Duration::from_millis(1));
        world.call_as(&eve_token, "GET", &path, None).await.expect(404);
        world.call_as("nonsense", "GET", &path, None).await.expect(401);

        let filter = format!("tenantId={acme}&outcome=refused");
        let mut found = events(&world, &world.token, &filter).await;
        for _ in 0..100 {
            if found.len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = events(&world, &world.token, &filter).await;
        }
        assert_eq!(actions(&found), ["tenants.get", "tenants.update"]);
        assert_eq!(found[0]["actor"], format!("user:{eve}"));
        assert_eq!(
            (found[0]["code"].as_str(), found[1]["code"].as_str()),
            (Some("not_found"), Some("forbidden"))
        );
        let unknown = events(&world, &world.token, "outcome=refused&limit=200").await;
        let unknown = unknown.iter().find(|event| event["actor"] == Value::Null).expect("the failed sign-in");
        assert_eq!(unknown["code"], "invalid_credential");
        let verified = audit::verify(&world.server.engine).await.expect("verified");
        assert!(
            verified.len() >= 3 && verified.iter().all(|chain| chain.broken_at.is_none()),
            "{verified:?}"
        );
    }
}

#[tokio::test]
async fn events_are_found_by_filters_and_read_in_pages() {
    for on in BOTH {
        let world = World::new(on).await;
        let ada = world.user("ada").await;
        let mut names = Vec::new();
        for number in 0..5 {
            world.clock.advance(Duration::from_millis(1));
            names.push(world.tenant(&format!("acme-{number}")).await);
        }
        let created = events(&world, &world.token, "action=tenants.create").await;
        let objects: Vec<&str> = created.iter().filter_map(|event| event["object"].as_str()).collect();
        let newest_first: Vec<String> = names.iter().rev().map(|id| format!("tenant:{id}")).collect();
        assert_eq!(objects, newest_first);
        let one = events(&world, &world.token, &format!("object=tenant:{}", names[2])).await;
        assert_eq!(actions(&one), ["tenants.create"]);
        assert!(events(&world, &world.token, &format!("actor=user:{ada}")).await.is_empty());
        assert!(events(&world, &world.token, "since=2026-11-15T04:00:01Z").await.is_empty());
        assert!(!events(&world, &world.token, "until=2026-11-15T04:00:01Z").await.is_empty());

        let first = world.call("GET", "/api/v1/audit?action=tenants.&limit=2", None).await.expect(200).json();
        let cursor = first["nextCursor"].as_str().expect("another page");
        let next = format!("/api/v1/audit?action=tenants.&limit=2&cursor={cursor}");
        let next = world.call("GET", &next, None).await.expect(200).json();
        assert_eq!(next["items"][0]["object"], newest_first[2].as_str());
        let foreign = format!("/api/v1/audit?action=users.&cursor={cursor}");
        assert_eq!(world.call("GET", &foreign, None).await.expect(400).code(), "invalid_cursor");
        for wrong in ["since=yesterday", "outcome=maybe", "unknown=1"] {
            world.call("GET", &format!("/api/v1/audit?{wrong}"), None).await.expect(400);
        }
    }
}
