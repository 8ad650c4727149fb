//! Tenants over HTTP, on both databases.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use world::{BOTH, On, World};

#[tokio::test]
async fn a_tenant_is_created_read_changed_and_deleted() {
    for on in BOTH {
        let world = World::new(on).await;
        let body = json!({ "name": "acme", "displayName": "Acme Motors", "labels": { "team": "maps" } });

        let created = world.call("POST", "/api/v1/tenants", Some(body)).await.expect(201);
        let path = created.header("location").to_owned();
        assert_eq!(created.header("etag"), "\"1\"");
        let read = world.call("GET", &path, None).await.expect(200);
        assert_eq!(read.json(), created.json());

        let changed = world.call("PUT", &path, Some(json!({ "name": "acme-2" }))).await.expect(200);
        assert_eq!(changed.header("etag"), "\"2\"");
        assert_eq!(changed.json()["displayName"], "acme-2");
        assert_eq!(changed.json()["labels"], json!({}));

        world.call("DELETE", &path, None).await.expect(204);
        world.call("GET", &path, None).await.expect(404);
        world.call("DELETE", &path, None).await.expect(404);
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_and_nothing_is_lost() {
    for on in BOTH {
        let world = World::new(on).await;
        let first = world.create_tenant("acme").await.expect(201);
        let other = world.create_tenant("other").await.expect(201);

        assert_eq!(world.create_tenant("acme").await.expect(409).code(), "name_taken");
        let renamed =
            world.call("PUT", other.header("location"), Some(json!({ "name": "acme" }))).await.expect(409);
        assert_eq!(renamed.code(), "name_taken");

        let still = world.call("GET", first.header("location"), None).await.expect(200);
        assert_eq!(still.json(), first.json());
    }
}

#[tokio::test]
async fn a_change_of_an_old_version_is_refused() {
    for on in BOTH {
        let world = World::new(on).await;
        let path = world.create_tenant("acme").await.expect(201).header("location").to_owned();
        let put = |tag: &'static str| {
            world.request("PUT", &path, Some(json!({ "name": "acme" }))).header("if-match", tag)
        };

        world.send(put("\"1\"")).await.expect(200);
        assert_eq!(world.send(put("\"1\"")).await.expect(412).code(), "precondition_failed");
        assert_eq!(world.send(put("W/\"2\"")).await.expect(412).code(), "precondition_failed");
        assert_eq!(world.send(put("nonsense")).await.expect(400).code(), "invalid_if_match");
        world.send(put("\"7\", \"2\"")).await.expect(200);
        world.send(put("*")).await.expect(200);
        world.send(world.request("DELETE", &path, None).header("if-match", "\"1\"")).await.expect(412);
        world.send(world.request("DELETE", &path, None).header("if-match", "\"4\"")).await.expect(204);
    }
}

#[tokio::test]
async fn changes_without_a_precondition_never_fail_for_one() {
    for on in BOTH {
        let world = World::new(on).await;
        let path = world.create_tenant("acme").await.expect(201).header("location").to_owned();
        let put = |number: u32| {
            let body = json!({ "name": "acme", "displayName": format!("Acme {number}") });
            world.call("PUT", &path, Some(body))
        };
        for answer in futures_util::future::join_all((0..40).map(put)).await {
            answer.expect(200);
        }
        assert_eq!(world.call("GET", &path, None).await.expect(200).header("etag"), "\"41\"");
    }
}

#[tokio::test]
async fn what_the_caller_has_is_not_sent_again() {
    let world = World::new(On::Sqlite).await;
    let path = world.create_tenant("acme").await.header("location").to_owned();
    let get = |tag: &'static str| world.request("GET", &path, None).header("if-none-match", tag);

    world.send(get("\"1\"")).await.expect(304);
    world.send(get("W/\"1\"")).await.expect(304);
    world.send(get("\"2\"")).await.expect(200);
}

#[tokio::test]
async fn a_request_that_is_sent_twice_is_carried_out_once() {
    for on in BOTH {
        let world = World::new(on).await;
        let post = |name: &str, key: &'static str| {
            world
                .request("POST", "/api/v1/tenants", Some(json!({ "name": name })))
                .header("idempotency-key", key)
        };

        let first = world.send(post("acme", "k1")).await.expect(201);
        let again = world.send(post("acme", "k1")).await.expect(201);
        assert_eq!(
            (again.text.as_str(), again.header("etag"), again.header("location")),
            (first.text.as_str(), first.header("etag"), first.header("location"))
        );
        assert_eq!(world.send(post("another", "k1")).await.expect(409).code(), "idempotency_mismatch");
        assert_eq!(world.send(post("acme", "k2")).await.expect(409).code(), "name_taken");
        assert_eq!(world.send(post("acme", "")).await.expect(400).code(), "invalid_idempotency_key");

        world.clock.advance(Duration::from_secs(10 * 60));
        world.send(post("acme", "k1")).await.expect(201);
    }
}

#[tokio::test]
async fn twins_that_arrive_together_make_one_tenant() {
    for on in BOTH {
        let world = World::new(on).await;
        let send = || async {
            let request = world.request("POST", "/api/v1/tenants", Some(json!({ "name": "acme" })));
            world.send(request.header("idempotency-key", "k")).await
        };
        let answers = futures_util::future::join_all((0..16).map(|_| send())).await;

        let ids: BTreeSet<String> =
            answers.into_iter().map(|answer| answer.expect(201).json()["id"].to_string()).collect();
        assert_eq!(ids.len(), 1);
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_that_hold_everything_once() {
    for on in BOTH {
        let world = World::new(on).await;
        for number in 0..7 {
            world.create_tenant(&format!("tenant-{number}")).await.expect(201);
            world.clock.advance(Duration::from_millis(1));
        }
        let (mut names, mut path) = (Vec::new(), "/api/v1/tenants?limit=3".to_owned());
        loop {
            let page = world.call("GET", &path, None).await.expect(200).json();
            names.extend(
                page["items"]
                    .as_array()
                    .expect("items")
                    .iter()
                    .map(|item| item["name"].as_str().expect("a name").to_owned()),
            );
            match page["nextCursor"].as_str() {
                Some(cursor) => path = format!("/api/v1/tenants?limit=3&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(
            names,
            ["tenant-6", "tenant-5", "tenant-4", "tenant-3", "tenant-2", "tenant-1", "tenant-0"]
        );
    }
}

#[tokio::test]
async fn a_list_is_filtered_by_name_and_labels() {
    for on in BOTH {
        let world = World::new(on).await;
        for (name, team) in [("one", "maps"), ("two", "audio")] {
            let body = json!({ "name": name, "labels": { "team": team } });
            world.call("POST", "/api/v1/tenants", Some(body)).await.expect(201);
        }
        for (query, expected) in
            [("name=two", "two"), ("labelSelector=team%3Dmaps", "one"), ("labelSelector=team!%3Dmaps", "two")]
        {
            let page = world.call("GET", &format!("/api/v1/tenants?{query}"), None).await.expect(200).json();
            assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{query}: {page}");
            assert_eq!(page["items"][0]["name"], expected, "{query}");
        }
        let refused = world.call("GET", "/api/v1/tenants?labelSelector=%3D", None).await.expect(400);
        assert_eq!(refused.json()["errors"][0]["pointer"], "/labelSelector");
    }
}

#[tokio::test]
async fn a_cursor_belongs_to_its_filters() {
    let world = World::new(On::Sqlite).await;
    world.create_tenant("one").await.expect(201);
    world.create_tenant("two").await.expect(201);
    let cursor = world.call("GET", "/api/v1/tenants?limit=1", None).await.json()["nextCursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();

    world.call("GET", &format!("/api/v1/tenants?limit=2&cursor={cursor}"), None).await.expect(200);
    for path in
        [format!("/api/v1/tenants?name=one&cursor={cursor}"), "/api/v1/tenants?cursor=AAAA".to_owned()]
    {
        assert_eq!(world.call("GET", &path, None).await.expect(400).code(), "invalid_cursor");
    }
}

#[tokio::test]
async fn an_id_that_is_none_is_as_absent_as_any() {
    let world = World::new(On::Sqlite).await;
    let absent = world.call("GET", "/api/v1/tenants/ten_01jcr8e8v0e9bvqz3tz4d0wq2h", None).await.expect(404);
    for id in [
        "nonsense",
        "usr_01jcr8e8v0e9bvqz3tz4d0wq2h",
        "ten_%00",
        "TEN_01jcr8e8v0e9bvqz3tz4d0wq2h",
        "ten_01JCR8E8V0E9BVQZ3TZ4D0WQ2H",
    ] {
        let answer = world.call("GET", &format!("/api/v1/tenants/{id}"), None).await.expect(404);
        assert_eq!(
            (answer.code(), answer.json()["detail"].clone()),
            (absent.code(), absent.json()["detail"].clone()),
            "{id}"
        );
    }
    world.call("GET", "/api/v1/tenants/%ff", None).await.expect(400);
}
