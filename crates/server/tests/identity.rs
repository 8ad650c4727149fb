//! Users, members, groups, grants, admins and keys, over HTTP, on both databases.

mod world;

use std::sync::Arc;
use std::time::Duration;

use paddock_engine::reconcile::LOOPS;
use paddock_engine::{api_keys, members};
use paddock_model::api_keys::ApiKeyId;
use paddock_model::caller::Caller;
use paddock_model::credentials::{CI_JOB, Ceiling, Credential, CredentialKind, VCS_READING};
use paddock_model::page::PageRequest;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::users::UserId;
use paddock_server::auth::api_key;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const NOBODY: &str = "usr_01jcr8e8v0e9bvqz3tz4d0wq2h";

fn members(tenant: &str) -> String {
    format!("/api/v1/tenants/{tenant}/members")
}

fn member(tenant: &str, user: &str) -> String {
    format!("/api/v1/tenants/{tenant}/members/{user}")
}

#[tokio::test]
async fn a_member_sees_the_tenant_and_a_stranger_does_not() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let ada = world.user("ada").await;
        let token = world.token_of(&ada).await;
        let list = || world.call_as(&token, "GET", "/api/v1/tenants", None);
        assert_eq!(list().await.expect(200).json()["items"], json!([]));

        world.join(&acme, &ada, "member").await;

        let seen = list().await.expect(200).json();
        assert_eq!(seen["items"].as_array().expect("items").len(), 1);
        assert_eq!(seen["items"][0]["id"], acme.as_str());
        let foreign =
            world.call_as(&token, "GET", &format!("/api/v1/tenants/{other}"), None).await.expect(404);
        let absent = world
            .call_as(&token, "GET", "/api/v1/tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h", None)
            .await
            .expect(404);
        let same = |answer: &world::Answer| {
            let mut body = answer.json();
            for member in ["requestId", "instance"] {
                body.as_object_mut().expect("an object").remove(member);
            }
            let mut headers: Vec<String> = answer
                .headers
                .iter()
                .filter(|(name, _)| !["x-request-id", "date", "ratelimit"].contains(&name.as_str()))
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            headers.sort();
            (body, headers)
        };
        assert_eq!(same(&foreign), same(&absent), "another tenant's can be told from an absent one");
        world
            .call_as(&token, "PUT", &format!("/api/v1/tenants/{acme}"), Some(json!({ "name": "mine" })))
            .await
            .expect(403);
    }
}

#[tokio::test]
async fn a_role_replaces_the_one_before() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        let token = world.token_of(&ada).await;
        let object = format!("tenant:{acme}");

        world.join(&acme, &ada, "operator").await;
        assert!(world.may(&token, "can_create_backup", &object).await);
        world.join(&acme, &ada, "auditor").await;
        assert!(!world.may(&token, "can_create_backup", &object).await);
        assert!(world.may(&token, "can_view_audit", &object).await);

        let list = world.call("GET", &members(&acme), None).await.expect(200).json();
        assert_eq!(list["items"].as_array().expect("items").len(), 1);
        assert_eq!(list["items"][0]["role"], "auditor");
        assert_eq!(list["items"][0]["login"], "ada");
        let one = world.call("GET", &member(&acme, &ada), None).await.expect(200).json();
        assert_eq!(one, list["items"][0]);
    }
}

#[tokio::test]
async fn members_come_in_pages_that_hold_each_once() {
    for on in BOTH {
        let world = World::with(on, &["--limits-costly-per-minute", "1000"], LOOPS).await;
        let acme = world.tenant("acme").await;
        let mut all = Vec::new();
        for number in 0..7 {
            let user = world.user(&format!("user-{number}")).await;
            world.join(&acme, &user, ["admin", "operator", "member", "auditor"][number % 4]).await;
            all.push(user);
        }
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("{}?limit=3{cursor}", members(&acme));
            let page = world.call("GET", &path, None).await.expect(200).json();
            for item in page["items"].as_array().expect("items") {
                seen.push(item["id"].as_str().expect("an id").to_owned());
            }
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        all.sort();
        assert_eq!(seen, all);
    }
}

#[tokio::test]
async fn who_leaves_loses_everything_at_once() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let (qa, ops) = (world.group(&acme, "qa").await, world.group(&acme, "ops").await);
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "member").await;
        let token = world.token_of(&ada).await;
        for group in [&qa, &ops] {
            let path = format!("/api/v1/groups/{group}/members");
            world.call("POST", &path, Some(json!({ "userId": ada }))).await.expect(201);
        }
        let grant = json!({ "object": format!("tenant:{acme}"), "relation": "operator" });
        world.call("POST", &format!("/api/v1/groups/{ops}/grants"), Some(grant)).await.expect(201);
        let key = json!({ "name": "ci", "scopes": ["device:read"] });
        let key = world.call_as(&token, "POST", "/api/v1/api_keys", Some(key)).await.expect(201).json();
        let key = key["key"].as_str().expect("a key").to_owned();
        assert!(api_key::verify(&world.server.engine, &key).await.is_ok());
        assert!(world.may(&token, "can_create_backup", &format!("tenant:{acme}")).await);

        let left = world.call("DELETE", &member(&acme, &ada), None).await.expect(204);
        assert!(left.header("paddock-revision").starts_with("r-"));

        for relation in ["can_view", "can_create_backup", "member", "operator"] {
            assert!(!world.may(&token, relation, &format!("tenant:{acme}")).await, "{relation}");
        }
        assert!(api_key::verify(&world.server.engine, &key).await.is_err());
        world.call_as(&token, "GET", &format!("/api/v1/tenants/{acme}"), None).await.expect(404);
        world.call_as(&token, "GET", &format!("/api/v1/groups/{qa}"), None).await.expect(404);
        // Who comes back does not find the old rights again.
        world.join(&acme, &ada, "auditor").await;
        assert!(!world.may(&token, "can_create_backup", &format!("tenant:{acme}")).await);
        let inside = world.call("GET", &format!("/api/v1/groups/{ops}/members"), None).await.expect(200);
        assert_eq!(inside.json()["items"], json!([]));
        world.call("DELETE", &member(&acme, NOBODY), None).await.expect(404);
    }
}

#[tokio::test]
async fn one_may_leave_oneself_but_remove_nobody_else() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    world.join(&acme, &ada, "member").await;
    world.join(&acme, &bob, "member").await;
    let token = world.token_of(&ada).await;
    world.call_as(&token, "DELETE", &member(&acme, &bob), None).await.expect(403);
    world.call_as(&token, "DELETE", &member(&acme, &ada), None).await.expect(204);
    world.call_as(&token, "GET", &members(&acme), None).await.expect(404);
}

#[tokio::test]
async fn a_tenant_keeps_an_admin_however_one_tries() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "admin").await;
        let refused = |answer: world::Answer| assert_eq!(answer.expect(409).code(), "last_admin");
        let demote = json!({ "userId": ada, "role": "member" });
        refused(world.call("DELETE", &member(&acme, &ada), None).await);
        refused(world.call("POST", &members(&acme), Some(demote.clone())).await);

        // A group may be the admin instead, as long as someone is in it.
        let bob = world.user("bob").await;
        world.join(&acme, &bob, "member").await;
        let group = world.group(&acme, "admins").await;
        let grants = format!("/api/v1/groups/{group}/grants");
        let inside = format!("/api/v1/groups/{group}/members");
        let grant = json!({ "object": format!("tenant:{acme}"), "relation": "admin" });
        world.call("POST", &grants, Some(grant)).await.expect(201);
        refused(world.call("POST", &members(&acme), Some(demote.clone())).await);
        world.call("POST", &inside, Some(json!({ "userId": bob }))).await.expect(201);
        world.call("POST", &members(&acme), Some(demote)).await.expect(201);
        let token = world.token_of(&bob).await;
        assert!(world.may(&token, "can_manage_members", &format!("tenant:{acme}")).await);
        refused(world.call("DELETE", &format!("{inside}/{bob}"), None).await);
        refused(world.call("DELETE", &format!("{grants}/admin@tenant:{acme}"), None).await);
        refused(world.call("DELETE", &format!("/api/v1/groups/{group}"), None).await);
        refused(world.call("DELETE", &member(&acme, &bob), None).await);
    }
}

#[tokio::test]
async fn two_admins_who_remove_each_other_at_once_leave_one() {
    for on in BOTH {
        let world = World::new(on).await;
        for round in 0..5 {
            let acme = world.tenant(&format!("acme-{round}")).await;
            let (ada, bob) =
                (world.user(&format!("ada-{round}")).await, world.user(&format!("bob-{round}")).await);
            world.join(&acme, &ada, "admin").await;
            world.join(&acme, &bob, "admin").await;
            let (a, b) = (world.token_of(&ada).await, world.token_of(&bob).await);
            let (path_a, path_b) = (member(&acme, &bob), member(&acme, &ada));
            let (one, other) = tokio::join!(
                world.call_as(&a, "DELETE", &path_a, None),
                world.call_as(&b, "DELETE", &path_b, None)
            );
            let gone = [&one, &other].into_iter().filter(|answer| answer.status == 204).count();
            assert_eq!(gone, 1, "{one:?} {other:?}");
            let left = world.call("GET", &members(&acme), None).await.expect(200).json();
            assert_eq!(left["items"].as_array().expect("items").len(), 1);
        }
    }
}

#[tokio::test]
async fn the_installation_keeps_an_admin() {
    for on in BOTH {
        let world = World::new(on).await;
        let admins = world.call("GET", "/api/v1/admins", None).await.expect(200).json();
        let first = admins["items"][0]["subject"].as_str().expect("a subject").to_owned();
        let path = format!("/api/v1/admins/{first}");
        assert_eq!(world.call("DELETE", &path, None).await.expect(409).code(), "last_admin");
        let id = first.trim_start_matches("user:");
        let closed = json!({ "name": "admin", "disabled": true });
        let account = format!("/api/v1/users/{id}");
        assert_eq!(world.call("PUT", &account, Some(closed.clone())).await.expect(409).code(), "last_admin");

        let ada = world.user("ada").await;
        let body = json!({ "subject": format!("user:{ada}") });
        let made = world.call("POST", "/api/v1/admins", Some(body)).await.expect(201);
        assert_eq!(made.json()["name"], "ada");
        let token = world.token_of(&ada).await;
        world.call_as(&token, "PUT", &account, Some(closed)).await.expect(200);
        // A closed account opens nothing, from that moment, whatever credential it still has.
        world.call("GET", "/api/v1/whoami", None).await.expect(401);
        let path = format!("/api/v1/admins/user:{ada}");
        assert_eq!(world.call_as(&token, "DELETE", &path, None).await.expect(409).code(), "last_admin");
    }
}

#[tokio::test]
async fn the_unknown_cannot_be_made_admin_or_member() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    for (path, body, pointer) in [
        ("/api/v1/admins".to_owned(), json!({ "subject": format!("user:{NOBODY}") }), "/subject"),
        (members(&acme), json!({ "userId": NOBODY, "role": "member" }), "/userId"),
    ] {
        let answer = world.call("POST", &path, Some(body)).await.expect(422).json();
        assert_eq!(answer["errors"][0]["code"], "unknown_user", "{path}");
        assert_eq!(answer["errors"][0]["pointer"], pointer);
    }
    for body in [json!({ "role": "member" }), json!({ "userId": NOBODY, "login": "ada", "role": "member" })] {
        let answer = world.call("POST", &members(&acme), Some(body)).await.expect(422).json();
        assert_eq!(answer["errors"][0]["code"], "ambiguous");
    }
    let body = json!({ "login": "ada", "role": "king" });
    world.call("POST", &members(&acme), Some(body)).await.expect(422);
}

#[tokio::test]
async fn someone_new_is_invited_by_their_login() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "admin").await;
        let token = world.token_of(&ada).await;

        let body = json!({ "login": "bob", "role": "operator" });
        let added =
            world.call_as(&token, "POST", &members(&acme), Some(body.clone())).await.expect(201).json();
        let link = added["invitation"]["url"].as_str().expect("a link");
        assert!(link.starts_with("/invitation?token="), "{link}");
        // The next time they are known: no other link, and the same person.
        let again = world.call_as(&token, "POST", &members(&acme), Some(body)).await.expect(201).json();
        assert_eq!(again["id"], added["id"]);
        assert_eq!(again["invitation"], Value::Null);
        let bob = world.token_of(added["id"].as_str().expect("an id")).await;
        assert!(world.may(&bob, "can_create_backup", &format!("tenant:{acme}")).await);
    }
}

#[tokio::test]
async fn a_group_gives_its_members_what_it_was_given_through_other_groups_too() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "member").await;
        let token = world.token_of(&ada).await;
        let (outer, inner) = (world.group(&acme, "outer").await, world.group(&acme, "inner").await);
        let put = async |group: &str, body: Value| {
            world.call("POST", &format!("/api/v1/groups/{group}/members"), Some(body)).await
        };
        put(&outer, json!({ "groupId": inner })).await.expect(201);
        put(&inner, json!({ "userId": ada })).await.expect(201);
        let object = format!("tenant:{acme}");
        assert!(!world.may(&token, "operator", &object).await);
        let grant = json!({ "object": object, "relation": "operator" });
        world.call("POST", &format!("/api/v1/groups/{outer}/grants"), Some(grant)).await.expect(201);
        assert!(world.may(&token, "operator", &object).await, "a grant counts at once");

        let circle = put(&inner, json!({ "groupId": outer })).await.expect(409);
        assert_eq!(circle.code(), "circular_membership");
        put(&inner, json!({ "groupId": inner })).await.expect(409);

        let listed =
            world.call("GET", &format!("/api/v1/groups/{outer}/grants"), None).await.expect(200).json();
        let id = listed["items"][0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(id, format!("operator@tenant:{acme}"));
        world.call("DELETE", &format!("/api/v1/groups/{outer}/grants/{id}"), None).await.expect(204);
        assert!(!world.may(&token, "operator", &object).await);
        world.call("DELETE", &format!("/api/v1/groups/{outer}/grants/{id}"), None).await.expect(404);
    }
}

#[tokio::test]
async fn nothing_is_shared_between_tenants() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let (eve, ada) = (world.user("eve").await, world.user("ada").await);
        world.join(&acme, &ada, "admin").await;
        world.join(&other, &eve, "admin").await;
        let (mine, theirs) = (world.group(&acme, "mine").await, world.group(&other, "theirs").await);
        let token = world.token_of(&ada).await;
        let path = format!("/api/v1/groups/{mine}");
        for body in [json!({ "userId": eve }), json!({ "groupId": theirs })] {
            let answer = world
                .call_as(&token, "POST", &format!("{path}/members"), Some(body))
                .await
                .expect(422)
                .json();
            assert_eq!(answer["errors"][0]["code"], "not_a_member");
        }
        for object in [format!("tenant:{other}"), format!("group:{theirs}"), "emulator:emu_none".to_owned()] {
            let body = json!({ "object": object, "relation": "operator" });
            let answer =
                world.call_as(&token, "POST", &format!("{path}/grants"), Some(body)).await.expect(422).json();
            assert_eq!(answer["errors"][0]["code"], "unknown_object", "{object}");
        }
        for relation in ["can_view", "system", "nonsense"] {
            let body = json!({ "object": format!("tenant:{acme}"), "relation": relation });
            let answer =
                world.call_as(&token, "POST", &format!("{path}/grants"), Some(body)).await.expect(422).json();
            assert_eq!(answer["errors"][0]["code"], "not_grantable", "{relation}");
        }
        world.call_as(&token, "GET", &format!("/api/v1/groups/{theirs}"), None).await.expect(404);
        world.call_as(&token, "GET", &members(&other), None).await.expect(404);
        // Of the people elsewhere nothing is told, and of those here no more than the name.
        let users = world.call_as(&token, "GET", "/api/v1/users", None).await.expect(200).json();
        let names: Vec<&str> = users["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|user| user["name"].as_str())
            .collect();
        assert_eq!(names, ["ada"]);
        world.call_as(&token, "GET", &format!("/api/v1/users/{eve}"), None).await.expect(404);
    }
}

#[tokio::test]
async fn a_tenant_that_still_has_things_says_what_stands_in_the_way() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let group = world.group(&acme, "qa").await;
        let path = format!("/api/v1/tenants/{acme}");
        let refused = world.call("DELETE", &path, None).await.expect(409).json();
        assert_eq!(refused["code"], "tenant_not_empty");
        assert_eq!(
            refused["problems"],
            json!([{ "code": "has_groups", "message": "It still has groups: qa." }])
        );
        world.call("DELETE", &format!("/api/v1/groups/{group}"), None).await.expect(204);
        world.call("DELETE", &path, None).await.expect(204);
    }
}

#[tokio::test]
async fn a_sign_in_of_long_ago_does_not_delete_a_tenant() {
    let world = World::new(On::Sqlite).await;
    let acme = world.tenant("acme").await;
    let me = world.call("GET", "/api/v1/whoami", None).await.expect(200).id();
    world.clock.advance(Duration::from_secs(3600));
    // Refreshed since, but nobody has typed a password for an hour.
    let user = UserId::parse(&me).expect("an id");
    let long_ago = world.server.engine.now() - Duration::from_secs(3600);
    let token = paddock_server::auth::access_token::mint(&world.server.engine, user, long_ago)
        .await
        .expect("a token");
    let path = format!("/api/v1/tenants/{acme}");
    let refused = world.call_as(&token, "DELETE", &path, None).await.expect(403);
    assert_eq!(refused.code(), "reauthentication_required");
    let check = json!({ "relation": "can_delete", "object": format!("tenant:{acme}") });
    let asked =
        world.call_as(&token, "POST", "/api/v1/permissions/check", Some(check)).await.expect(200).json();
    assert_eq!(
        (asked["allowed"].as_bool(), asked["reason"].as_str()),
        (Some(false), Some("reauthentication_required"))
    );
    world.call_as(&world.token_of(&me).await, "DELETE", &path, None).await.expect(204);
}

#[tokio::test]
async fn a_sign_in_of_long_ago_gives_nobody_a_password() {
    for on in BOTH {
        let world = World::new(on).await;
        let (me, ada) =
            (world.call("GET", "/api/v1/whoami", None).await.expect(200).id(), world.user("ada").await);
        world.clock.advance(Duration::from_secs(3600));
        let user = UserId::parse(&me).expect("an id");
        let long_ago = world.server.engine.now() - Duration::from_secs(3600);
        let stale = paddock_server::auth::access_token::mint(&world.server.engine, user, long_ago)
            .await
            .expect("a token");
        let fresh = world.token_of(&me).await;
        let account = format!("/api/v1/users/{ada}");
        for (method, path, body, status) in [
            ("POST", "/api/v1/users".to_owned(), Some(json!({ "login": "eve" })), 201),
            ("POST", format!("{account}/invitations"), None, 201),
            ("PUT", account.clone(), Some(json!({ "name": "Ada", "disabled": true })), 200),
            ("PUT", account.clone(), Some(json!({ "name": "Ada", "disabled": false })), 200),
        ] {
            let refused = world.call_as(&stale, method, &path, body.clone()).await.expect(403);
            assert_eq!(refused.code(), "reauthentication_required", "{method} {path}");
            world.call_as(&fresh, method, &path, body).await.expect(status);
        }
        // A name is no way in.
        world.call_as(&stale, "PUT", &account, Some(json!({ "name": "Ada" }))).await.expect(200);
    }
}

#[tokio::test]
async fn a_user_changes_themself_but_not_their_rights() {
    for on in BOTH {
        let world = World::new(on).await;
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        let token = world.token_of(&ada).await;
        let path = format!("/api/v1/users/{ada}");
        let read = world.call_as(&token, "GET", &path, None).await.expect(200);
        let body = json!({ "name": "Ada Lovelace", "email": "ada@acme.example" });
        let changed = world
            .send(
                world
                    .anonymous("PUT", &path)
                    .bearer_auth(&token)
                    .header("if-match", read.header("etag"))
                    .json(&body),
            )
            .await
            .expect(200)
            .json();
        assert_eq!(
            (changed["name"].as_str(), changed["login"].as_str()),
            (Some("Ada Lovelace"), Some("ada"))
        );
        let who = world.call_as(&token, "GET", "/api/v1/whoami", None).await.expect(200).json();
        assert_eq!(who["email"], "ada@acme.example");
        for (body, status) in [
            (json!({ "name": "Ada", "disabled": true }), 403),
            (json!({ "name": "Ada", "admin": true }), 400),
            (json!({ "name": "Ada", "id": bob }), 400),
            (json!({}), 422),
        ] {
            world.call_as(&token, "PUT", &path, Some(body)).await.expect(status);
        }
        let other = format!("/api/v1/users/{bob}");
        world.call_as(&token, "PUT", &other, Some(json!({ "name": "Eve" }))).await.expect(404);
        world.call_as(&token, "POST", "/api/v1/users", Some(json!({ "login": "eve" }))).await.expect(403);
        let taken = world.call("POST", "/api/v1/users", Some(json!({ "login": "ada" }))).await.expect(409);
        assert_eq!(taken.code(), "login_taken");
    }
}

#[tokio::test]
async fn a_key_is_shown_once_and_opens_only_the_device_api() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        world.join(&acme, &ada, "member").await;
        world.join(&acme, &bob, "admin").await;
        let token = world.token_of(&ada).await;
        // Who has one tenant need not name it.
        let body = json!({ "name": "ci", "scopes": ["device:read"], "expiresInSeconds": 3600 });
        let made = world.call_as(&token, "POST", "/api/v1/api_keys", Some(body)).await.expect(201).json();
        let key = made["key"].as_str().expect("the key, once").to_owned();
        let path = format!("/api/v1/api_keys/{}", made["id"].as_str().expect("an id"));

        let identity = api_key::verify(&world.server.engine, &key).await.expect("a valid key");
        assert_eq!(identity.subject.to_string(), format!("user:{ada}"));
        assert!(identity.credential.ceiling.allows("device", "can_view"));
        assert!(!identity.credential.ceiling.allows("device", "can_delete"));
        let refused = world.call_as(&key, "GET", "/api/v1/whoami", None).await.expect(401);
        assert_eq!(refused.code(), "credential_type_not_supported");

        let read = world.call_as(&token, "GET", &path, None).await.expect(200);
        assert!(!read.text.contains(&key[8..]), "the key is told twice");
        assert_ne!(read.json()["lastUsedAt"], Value::Null);
        let admins = world.token_of(&bob).await;
        let all = world.call_as(&admins, "GET", "/api/v1/api_keys", None).await.expect(200).json();
        assert_eq!(all["items"].as_array().expect("items").len(), 1);
        let eve = world.user("eve").await;
        let stranger = world.token_of(&eve).await;
        world.call_as(&stranger, "GET", &path, None).await.expect(404);
        world.call_as(&stranger, "DELETE", &path, None).await.expect(404);

        world.clock.advance(Duration::from_secs(3601));
        assert!(api_key::verify(&world.server.engine, &key).await.is_err(), "an expired key");
        let admins = world.token_of(&bob).await;
        world.call_as(&admins, "DELETE", &path, None).await.expect(204);
        world.call_as(&admins, "DELETE", &path, None).await.expect(404);
    }
}

#[tokio::test]
async fn the_summary_of_permissions_and_the_checks_agree() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        let group = world.group(&acme, "qa").await;
        let me = world.token_of(&ada).await;
        for role in ["member", "operator", "auditor", "admin"] {
            world.join(&acme, &ada, role).await;
            let body = json!({ "userId": ada });
            world.call("POST", &format!("/api/v1/groups/{group}/members"), Some(body)).await.expect(201);
            let summary = world.call_as(&me, "GET", "/api/v1/permissions/me", None).await.expect(200).json();
            assert_eq!(summary["subject"]["id"], format!("user:{ada}"));
            assert_eq!(summary["global"], json!({ "admin": false, "permissions": [] }));
            let tenant = &summary["tenants"][0];
            assert_eq!(tenant["groups"], json!([{ "id": group, "name": "qa" }]));
            let listed: Vec<&str> =
                tenant["permissions"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
            let schema = &paddock_model::permissions::schema::SCHEMA;
            let all: Vec<&str> = schema.relations("tenant").filter(|name| name.starts_with("can_")).collect();
            assert!(all.len() > 10);
            for relation in all {
                let may = world.may(&me, relation, &format!("tenant:{acme}")).await;
                assert_eq!(may, listed.contains(&relation), "{role} {relation}");
            }
        }
    }
}

#[tokio::test]
async fn one_may_ask_about_others_where_one_sees_the_members() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let (ada, bob) = (world.user("ada").await, world.user("bob").await);
        world.join(&acme, &ada, "member").await;
        world.join(&acme, &bob, "operator").await;
        let token = world.token_of(&ada).await;
        let ask = async |tenant: &str| {
            let body = json!({
                "relation": "can_create_backup", "object": format!("tenant:{tenant}"),
                "subject": format!("user:{bob}"), "explain": true,
            });
            world.call_as(&token, "POST", "/api/v1/permissions/check", Some(body)).await
        };
        let answer = ask(&acme).await.expect(200).json();
        assert_eq!(
            (answer["allowed"].as_bool(), answer["subject"].as_str()),
            (Some(true), Some(&*format!("user:{bob}")))
        );
        assert_eq!(
            answer["explanation"]["because"],
            json!([
                format!("can_create_backup on tenant:{acme} includes operator"),
                format!("operator on tenant:{acme} was given to user:{bob}"),
            ])
        );
        ask(&other).await.expect(403);
        // What is missing is said of what one sees, and of nothing else.
        for (object, told) in [(&acme, true), (&other, false)] {
            let body =
                json!({ "relation": "can_update", "object": format!("tenant:{object}"), "explain": true });
            let answer = world
                .call_as(&token, "POST", "/api/v1/permissions/check", Some(body))
                .await
                .expect(200)
                .json();
            let missing = answer["explanation"]["missing"].as_array().expect("a list");
            assert_eq!(missing.contains(&json!(format!("admin on tenant:{acme}"))), told, "{missing:?}");
            assert_eq!(missing.is_empty(), !told);
        }
    }
}

#[tokio::test]
async fn costly_requests_have_a_rate_of_their_own() {
    let world = World::with(On::Sqlite, &["--limits-costly-per-minute", "3"], LOOPS).await;
    let mut answers = Vec::new();
    for number in 0..5 {
        let body = json!({ "login": format!("user-{number}") });
        answers.push(world.call("POST", "/api/v1/users", Some(body)).await.status.as_u16());
    }
    assert_eq!(answers, [201, 201, 201, 429, 429]);
    world.call("GET", "/api/v1/tenants", None).await.expect(200);
}

#[tokio::test]
async fn an_account_that_one_tenant_made_is_not_let_into_another() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let (eve, ada) = (world.user("eve").await, world.user("ada").await);
        world.join(&acme, &eve, "admin").await;
        world.join(&other, &ada, "admin").await;
        let (attacker, victim) = (world.token_of(&eve).await, world.token_of(&ada).await);
        // Whoever adds an unknown login gets the link, and with it the password.
        let body = json!({ "login": "chief", "role": "member" });
        let made =
            world.call_as(&attacker, "POST", &members(&acme), Some(body.clone())).await.expect(201).json();
        assert_ne!(made["invitation"], Value::Null);
        let id = made["id"].as_str().expect("an id").to_owned();

        for body in [body.clone(), json!({ "userId": id, "role": "member" })] {
            let refused = world.call_as(&victim, "POST", &members(&other), Some(body)).await.expect(409);
            assert_eq!(refused.code(), "login_taken");
        }
        let chief = world.token_of(&id).await;
        assert!(!world.may(&chief, "can_view", &format!("tenant:{other}")).await);
        // At home they may be given another role, and no other link.
        let body_at_home = json!({ "login": "chief", "role": "operator" });
        let again =
            world.call_as(&attacker, "POST", &members(&acme), Some(body_at_home)).await.expect(201).json();
        assert_eq!(again["invitation"], Value::Null);

        // A platform admin knows who it is, and from then on the account is like any other.
        let third = world.tenant("third").await;
        world.call("POST", &members(&third), Some(body.clone())).await.expect(201);
        world.call_as(&victim, "POST", &members(&other), Some(body)).await.expect(201);
        // Whom a platform admin invites is free from the start.
        let body = json!({ "login": "bob", "role": "member" });
        world.call("POST", &members(&acme), Some(body.clone())).await.expect(201);
        world.call_as(&victim, "POST", &members(&other), Some(body)).await.expect(201);
    }
}

#[tokio::test]
async fn a_machine_has_a_name_that_fits_into_a_path() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let group = world.group(&acme, "qa").await;
        let inside = format!("/api/v1/groups/{group}/members");
        for name in ["c/ci/ü", "c/ci/a b", "runner", "usr_x/ci/runner", "grp_x/ci/runner", "c/ci/a:b", "c/"]
        {
            let body = json!({ "serviceAccount": name, "role": "member" });
            world.call("POST", &members(&acme), Some(body)).await.expect(422);
            world.call("POST", &inside, Some(json!({ "serviceAccount": name }))).await.expect(422);
        }
        for (name, status) in [("c/ci/ü", 422), ("runner", 422), ("c/ci/runner", 201)] {
            let body = json!({ "subject": format!("service_account:{name}") });
            world.call("POST", "/api/v1/admins", Some(body)).await.expect(status);
        }
        let body = json!({ "serviceAccount": "c/ci/runner", "role": "member" });
        let added = world.call("POST", &members(&acme), Some(body)).await.expect(201).json();
        assert_eq!(added["id"], "c/ci/runner");
        world.call("POST", &inside, Some(json!({ "serviceAccount": "c/ci/runner" }))).await.expect(201);
        world.call("GET", &member(&acme, "c%2Fci%2Frunner"), None).await.expect(200);
        world.call("GET", &member(&acme, "c%2Fci%2Frunne"), None).await.expect(404);
    }
}

#[tokio::test]
async fn one_finds_those_with_whom_one_shares_a_tenant() {
    for on in BOTH {
        let world = World::with(on, &["--limits-costly-per-minute", "1000"], LOOPS).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let mut known = Vec::new();
        for number in 0..5 {
            world.clock.advance(Duration::from_millis(1));
            let body =
                json!({ "login": format!("user-{number}"), "email": format!("{number}@acme.example") });
            let id = world.call("POST", "/api/v1/users", Some(body)).await.expect(201).id();
            world.join(&acme, &id, ["admin", "operator", "member", "auditor"][number % 4]).await;
            known.push(id);
        }
        let eve = world.user("eve").await;
        world.join(&other, &eve, "member").await;
        let token = world.token_of(&known[2]).await;
        let list = async |query: &str| {
            let path = format!("/api/v1/users?{query}");
            let page = world.call_as(&token, "GET", &path, None).await.expect(200).json();
            let items = page["items"].as_array().expect("items").iter();
            let ids: Vec<String> = items.map(|user| user["id"].as_str().expect("an id").to_owned()).collect();
            (ids, page["nextCursor"].as_str().map(str::to_owned))
        };
        let newest_first: Vec<String> = known.iter().rev().cloned().collect();
        let (first, next) = list("limit=3").await;
        let (second, end) = list(&format!("limit=3&cursor={}", next.expect("another page"))).await;
        assert_eq!(([first, second].concat(), end), (newest_first, None));
        assert_eq!(list("login=user-4").await.0, [known[4].clone()]);
        assert!(list("login=eve").await.0.is_empty());
        // Whether someone else has an address is not to be found out, only whether one has it oneself.
        assert_eq!(list("email=2@acme.example").await.0, [known[2].clone()]);
        assert!(list("email=4@acme.example").await.0.is_empty());
        assert!(list("email=4@acme.example&login=user-4").await.0.is_empty());
        let read = async |id: &str| world.call_as(&token, "GET", &format!("/api/v1/users/{id}"), None).await;
        read(&known[4]).await.expect(200);
        read(&eve).await.expect(404);
        world.join(&acme, &eve, "member").await;
        read(&eve).await.expect(200);
        world.call("DELETE", &member(&acme, &eve), None).await.expect(204);
        read(&eve).await.expect(404);
    }
}

#[tokio::test]
async fn nobody_is_let_in_again_by_a_change_of_name() {
    for on in BOTH {
        let world = World::new(on).await;
        let ada = world.user("ada").await;
        let path = format!("/api/v1/users/{ada}");
        for (body, disabled) in [
            (json!({ "name": "Ada" }), false),
            (json!({ "name": "Ada", "disabled": true }), true),
            (json!({ "name": "Ada Lovelace" }), true),
            (json!({ "name": "Ada", "disabled": false }), false),
        ] {
            let changed = world.call("PUT", &path, Some(body)).await.expect(200).json();
            assert_eq!(changed["disabled"], disabled);
        }
    }
}

#[tokio::test]
async fn what_is_made_while_its_tenant_goes_is_there_or_not_found() {
    for on in BOTH {
        let world = World::with(on, &["--limits-costly-per-minute", "1000"], LOOPS).await;
        let ada = world.user("ada").await;
        for round in 0..8 {
            let acme = world.tenant(&format!("acme-{round}")).await;
            let tenant = format!("/api/v1/tenants/{acme}");
            let (groups, keys) = (format!("{tenant}/groups"), "/api/v1/api_keys");
            let key = json!({ "name": "ci", "scopes": ["device:read"], "tenantId": acme });
            let member = json!({ "userId": ada, "role": "member" });
            let path = members(&acme);
            let (gone, group, key, member) = tokio::join!(
                world.call("DELETE", &tenant, None),
                world.call("POST", &groups, Some(json!({ "name": "qa" }))),
                world.call("POST", keys, Some(key)),
                world.call("POST", &path, Some(member)),
            );
            for made in [&group, &key, &member] {
                assert!([201, 404].contains(&made.status.as_u16()), "{made:?}");
            }
            assert!([204, 409].contains(&gone.status.as_u16()), "{gone:?}");
            if gone.status == 204 {
                assert_eq!((group.status.as_u16(), key.status.as_u16()), (404, 404));
                let token = world.token_of(&ada).await;
                assert!(!world.may(&token, "member", &format!("tenant:{acme}")).await, "a role in nothing");
            }
        }
    }
}

#[tokio::test]
async fn changes_of_relations_do_not_wait_for_each_other_in_a_circle() {
    let world = World::with(On::Postgres, &["--limits-costly-per-minute", "1000"], LOOPS).await;
    let acme = world.tenant("acme").await;
    let ada = world.user("ada").await;
    world.join(&acme, &ada, "member").await;
    let group = world.group(&acme, "qa").await;
    let path = format!("/api/v1/groups/{group}");
    let (inside, grants) = (format!("{path}/members"), format!("{path}/grants"));
    let grant = json!({ "object": format!("tenant:{acme}"), "relation": "operator" });
    let id = format!("operator@tenant:{acme}");
    let one = format!("{grants}/{id}");
    for _ in 0..10 {
        let calls = (0..12).map(|number| {
            let (method, path, body) = match number % 4 {
                0 => ("POST", &grants, Some(grant.clone())),
                1 => ("DELETE", &one, None),
                2 => ("POST", &inside, Some(json!({ "userId": ada }))),
                _ => ("PUT", &path, Some(json!({ "name": "qa" }))),
            };
            world.call(method, path, body)
        });
        for answer in futures_util::future::join_all(calls).await {
            assert!(answer.status.as_u16() < 500, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_key_opens_nothing_of_its_owners_other_tenants() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "member").await;
        world.join(&other, &ada, "admin").await;
        let token = world.token_of(&ada).await;
        let body = json!({ "name": "ci", "scopes": ["device:read"], "tenantId": acme });
        let made = world.call_as(&token, "POST", "/api/v1/api_keys", Some(body)).await.expect(201).json();
        let key = made["key"].as_str().expect("the key, once");
        let engine = &world.server.engine;
        let identity = api_key::verify(engine, key).await.expect("a valid key");
        assert_eq!(identity.credential.tenant.expect("a tenant").to_string(), acme);
        // As if the key opened everything: its tenant is a limit of its own.
        let credential = Credential { ceiling: Ceiling::Everything, ..(*identity.credential).clone() };
        let caller = Caller {
            subject: identity.subject,
            credential: credential.into(),
            address: None,
            request_id: "r".into(),
            once: None,
        };
        use paddock_engine::permissions::{Decision, decide, scope, summarise};
        let thing = |tenant: &str| paddock_model::permissions::tuples::Thing::new("tenant", tenant);
        assert_eq!(decide(engine, &caller, "can_view", &thing(&acme)), Decision::Allowed);
        assert!(matches!(decide(engine, &caller, "can_view", &thing(&other)), Decision::Limited(_)));
        let mine = TenantId::parse(&acme).expect("an id");
        assert_eq!(scope(engine, &caller), paddock_model::scopes::Scope::Tenants(vec![mine]));
        let tenants: Vec<_> =
            summarise(engine, &caller, None).tenants.into_iter().map(|one| one.id).collect();
        assert_eq!(tenants, [mine]);
    }
}

/// What is a person's own needs no relation; a narrow credential of theirs does not open it all the same.
#[tokio::test]
async fn a_jobs_credential_opens_nothing_of_its_users_own() {
    for on in BOTH {
        let world = World::new(on).await;
        let acme = world.tenant("acme").await;
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "member").await;
        let body = json!({ "name": "ci", "scopes": ["device:read"] });
        let key = world.call_as(&world.token_of(&ada).await, "POST", "/api/v1/api_keys", Some(body)).await;
        let key = ApiKeyId::parse(key.expect(201).json()["id"].as_str().expect("an id")).expect("an id");
        let engine = &world.server.engine;
        let tenant = TenantId::parse(&acme).expect("an id");
        let me = Subject::User(UserId::parse(&ada).expect("an id"));
        let by = |ceiling: Ceiling, tenant: Option<TenantId>| {
            let credential = Credential { ceiling, tenant, ..Credential::new(CredentialKind::CiJob) };
            let (credential, request_id) = (Arc::new(credential), "job".into());
            Caller { subject: me.clone(), credential, address: None, request_id, once: None }
        };
        let all = PageRequest { limit: 10, after: None };

        for narrow in [by(CI_JOB, Some(tenant)), by(CI_JOB, None), by(Ceiling::Everything, Some(tenant))] {
            assert_eq!(api_keys::list(engine, &narrow, None, all).await.expect("a page").items, []);
            assert_eq!(api_keys::get(engine, &narrow, key).await.expect_err("invisible").code, "not_found");
            assert_eq!(api_keys::delete(engine, &narrow, key).await.expect_err("as well").code, "not_found");
        }
        let leave = members::remove(engine, &by(CI_JOB, Some(tenant)), tenant, &me).await;
        assert_eq!(leave.expect_err("a job does not leave").code, "credential_ceiling");

        // Who may read reads, and deletes nothing.
        let reader = by(VCS_READING, None);
        assert_eq!(api_keys::list(engine, &reader, None, all).await.expect("a page").items.len(), 1);
        let refused = api_keys::delete(engine, &reader, key).await.expect_err("a reader");
        assert_eq!(refused.code, "credential_ceiling");
        assert_eq!(
            members::remove(engine, &reader, tenant, &me).await.expect_err("no").code,
            "credential_ceiling"
        );

        let signed_in = by(Ceiling::Everything, None);
        api_keys::delete(engine, &signed_in, key).await.expect("deleted");
        members::remove(engine, &signed_in, tenant, &me).await.expect("left");
    }
}
