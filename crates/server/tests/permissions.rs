//! Who one is and what one may do, over HTTP, on both databases.

mod world;

use serde_json::{Value, json};
use world::{BOTH, On, World};

const CHECK: &str = "/api/v1/permissions/check";

#[tokio::test]
async fn a_caller_learns_who_it_is() {
    for on in BOTH {
        let world = World::new(on).await;
        let me = world.call("GET", "/api/v1/whoami", None).await.expect(200).json();
        assert_eq!((me["name"].as_str(), me["type"].as_str()), (Some("admin"), Some("user")));
        assert_eq!(me["expiresAt"], "2026-11-15T04:15:00.000000Z");
        assert_eq!(me["credential"]["type"], "access_token");
        assert_eq!(me["credential"]["ceiling"], json!(["*:*"]));
    }
}

#[tokio::test]
async fn one_permission_is_checked_by_get_and_by_post() {
    for on in BOTH {
        let world = World::new(on).await;
        let tenant =
            world.create_tenant("acme").await.expect(201).json()["id"].as_str().expect("an id").to_owned();
        let absent = "tenant:ten_01jcr8e8v0e9bvqz3tz4d0wq2h";
        for (relation, object, allowed) in [
            ("admin", "system:paddock".to_owned(), true),
            ("can_delete", format!("tenant:{tenant}"), true),
            ("can_delete", absent.to_owned(), false),
            ("can_restart", "emulator:emu_none".to_owned(), false),
        ] {
            let read = world
                .call("GET", &format!("{CHECK}?relation={relation}&object={object}"), None)
                .await
                .expect(200)
                .json();
            assert_eq!(
                (read["allowed"].as_bool(), read["relation"].as_str()),
                (Some(allowed), Some(relation)),
                "{object}"
            );
            let asked = world
                .call("POST", CHECK, Some(json!({ "relation": relation, "object": object })))
                .await
                .expect(200);
            // The revision may have gone on: images are brought in meanwhile.
            let said = |answer: &Value| {
                let mut answer = answer.clone();
                answer.as_object_mut().expect("an object").remove("revision");
                answer
            };
            assert_eq!(said(&asked.json()), said(&read));
        }
    }
}

#[tokio::test]
async fn many_permissions_are_checked_in_their_order() {
    let world = World::new(On::Sqlite).await;
    let body = json!({ "checks": [
        { "id": "a", "relation": "admin", "object": "system:paddock" },
        { "relation": "can_fly", "object": "emulator:e" },
        { "relation": "can_view", "object": "unicorn:u" },
    ]});
    let answer = world.call("POST", CHECK, Some(body)).await.expect(200).json();
    let results = answer["results"].as_array().expect("results");
    assert_eq!(
        results.iter().map(|result| result["id"].as_str().expect("an id")).collect::<Vec<_>>(),
        ["a", "1", "2"]
    );
    assert_eq!(results[0]["allowed"], true);
    assert_eq!(
        results[1]["error"],
        json!({ "code": "unknown_relation", "message": "emulator has no relation can_fly" })
    );
    assert_eq!(results[2]["error"]["code"], "unknown_object_type");
}

#[tokio::test]
async fn a_question_that_cannot_be_asked_is_refused() {
    let world = World::new(On::Sqlite).await;
    for (query, code) in [
        ("relation=can_fly&object=tenant:t", "unknown_relation"),
        ("relation=can_view&object=unicorn:u", "unknown_object_type"),
        ("relation=can_view&object=tenant:*", "invalid_parameter"),
        ("relation=Can&object=tenant:t", "invalid_parameter"),
        ("relation=can_view", "invalid_parameter"),
    ] {
        assert_eq!(
            world.call("GET", &format!("{CHECK}?{query}"), None).await.expect(400).code(),
            code,
            "{query}"
        );
    }
    let one = json!({ "relation": "admin", "object": "system:paddock" });
    for (body, status, code) in [
        (json!({}), 400, "ambiguous_request"),
        (json!({ "checks": [one.clone()], "relation": "admin" }), 400, "ambiguous_request"),
        (json!({ "checks": [] }), 422, "invalid_request"),
        (json!({ "checks": vec![one.clone(); 101] }), 422, "invalid_request"),
        (
            json!({ "checks": [{ "id": "a", "relation": "admin", "object": "x:y" }, { "id": "a", "relation": "admin", "object": "x:y" }] }),
            400,
            "duplicate_id",
        ),
        (
            json!({ "relation": "admin", "object": "system:paddock", "atLeastRevision": "r-999999" }),
            409,
            "revision_not_reached",
        ),
    ] {
        let answer = world.call("POST", CHECK, Some(body.clone())).await.expect(status);
        assert_eq!(answer.code(), code, "{body}");
    }
}

#[tokio::test]
async fn a_change_is_seen_by_the_other_replica_within_a_second() {
    let database = world::new_postgres_database().await;
    let folder = || std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let here = World::on_database(folder(), &database, &[], paddock_engine::reconcile::LOOPS).await;
    let there = World::on_database(folder(), &database, &[], paddock_engine::reconcile::LOOPS).await;
    let tenant =
        here.create_tenant("acme").await.expect(201).json()["id"].as_str().expect("an id").to_owned();
    let question = json!({ "relation": "can_delete", "object": format!("tenant:{tenant}") });

    let asked = here.call("POST", CHECK, Some(question.clone())).await.expect(200).json();
    assert_eq!(asked["allowed"], true, "read your own writes");
    // The other one is told which revision it must have reached.
    let mut later = question;
    later["atLeastRevision"] = asked["revision"].clone();
    let answer = there.call("POST", CHECK, Some(later)).await.expect(200).json();
    assert_eq!(answer["allowed"], true);
}

#[tokio::test]
async fn who_asks_about_others_cannot_tell_a_foreign_thing_from_an_absent_one() {
    for on in BOTH {
        let world = World::new(on).await;
        let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
        let theirs = world.group(&other, "theirs").await;
        let ada = world.user("ada").await;
        world.join(&acme, &ada, "admin").await;
        let token = world.token_of(&ada).await;
        let subject = "service_account:cluster/ci/runner";
        let question = |relation: &str, object: &str| json!({ "relation": relation, "object": object, "subject": subject });
        let mut answers = Vec::new();
        for (relation, object) in [
            ("can_view", format!("group:{theirs}")),
            ("can_view", "group:grp_01jcr8e8v0e9bvqz3tz4d0wq2h".to_owned()),
            ("can_view", "emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h".to_owned()),
            ("can_view", format!("tenant:{other}")),
            ("can_view", "tenant:ten_01jcr8e8v0e9bvqz3tz4d0wq2h".to_owned()),
            ("admin", "system:paddock".to_owned()),
        ] {
            let refused =
                world.call_as(&token, "POST", CHECK, Some(question(relation, &object))).await.expect(403);
            assert!(!refused.text.contains(&other) && !refused.text.contains(&object), "{}", refused.text);
            answers.push(refused.text.replace(refused.header("x-request-id"), ""));
            // A global admin sees everything, and that nothing is there.
            let answer = world.call("POST", CHECK, Some(question(relation, &object))).await.expect(200);
            assert_eq!(answer.json()["allowed"], false, "{object}");
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
        let mine = question("can_view", &format!("tenant:{acme}"));
        world.call_as(&token, "POST", CHECK, Some(mine)).await.expect(200);
    }
}

#[tokio::test]
async fn a_question_is_no_larger_than_64_kib() {
    let world = World::new(On::Sqlite).await;
    let check = |padding: usize| {
        let body = json!({ "relation": "admin", "object": "system:paddock" }).to_string();
        body + &" ".repeat(padding)
    };
    let send = async |body: String| {
        let request =
            world.request("POST", CHECK, None).header("content-type", "application/json").body(body);
        world.send(request).await
    };
    let length = check(0).len();
    send(check((64 << 10) - length)).await.expect(200);
    assert_eq!(send(check((64 << 10) - length + 1)).await.expect(413).code(), "body_too_large");
}

#[tokio::test]
async fn a_replica_that_could_not_read_a_change_tries_again_by_itself() {
    let database = world::new_postgres_database().await;
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let world = World::on_database(folder, &database, &[], paddock_engine::reconcile::LOOPS).await;
    let tenant = world.tenant("acme").await;
    let ada = world.user("ada").await;
    let token = world.token_of(&ada).await;
    let object = format!("tenant:{tenant}");
    assert!(!world.may(&token, "member", &object).await);
    let (client, connection) =
        tokio_postgres::connect(&database, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    // Another replica gives a role at a moment in which this one cannot read of it, and nobody says so again.
    let change = format!(
        "BEGIN;
        UPDATE relation_revision SET revision = revision + 1;
        INSERT INTO relations (object, relation, subject, created_at) VALUES ('{object}', 'member', 'user:{ada}', now());
        INSERT INTO relation_changes (revision, given, object, relation, subject)
            SELECT revision, 1, '{object}', 'member', 'user:{ada}' FROM relation_revision;
        ALTER TABLE relation_changes RENAME TO hidden;
        NOTIFY paddock_changes, 'relations';
        COMMIT"
    );
    client.batch_execute(&change).await.expect("changed");
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!world.may(&token, "member", &object).await, "it could read all the same");
    client.batch_execute("ALTER TABLE hidden RENAME TO relation_changes").await.expect("there again");
    for _ in 0..100 {
        if world.may(&token, "member", &object).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("it still decides on what was");
}
