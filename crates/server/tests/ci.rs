//! CI over HTTP, on simulated devices and both databases: what a job's device starts from, what is captured of it, and whom that reaches.

mod world;

use std::sync::Arc;
use std::time::Duration;

use paddock_engine::doctor::{self, Finding};
use paddock_engine::emulators::{self, EmulatorSpec};
use paddock_engine::{ci, reconcile};
use paddock_model::caller::Caller;
use paddock_model::ci::{CapturePolicy, Hit, JobContext, JobProof, JobStatement, Outcome, RestoreSpec, When};
use paddock_model::credentials::{CI_JOB, Credential, CredentialKind};
use paddock_model::devices::Phase;
use paddock_model::drivers::disk_pools::DiskPool;
use paddock_model::emulators::EmulatorId;
use paddock_model::expected::Expected;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::trust::Trust;
use paddock_model::users::UserId;
use serde_json::{Value, json};
use world::{BOTH, On, World};

const EMULATORS: &str = "/api/v1/emulators";
const SNAPSHOTS: &str = "/api/v1/snapshots";

/// One tenant's jobs, by the admin's credential.
struct Jobs {
    world: World,
    tenant: String,
    root: String,
}

impl Jobs {
    async fn new(on: On) -> Jobs {
        Jobs::with(on, &[]).await
    }

    async fn with(on: On, flags: &[&str]) -> Jobs {
        let world = World::with(on, flags, reconcile::LOOPS).await;
        let tenant = world.tenant("acme").await;
        let root = world.snapshot().await;
        Jobs { world, tenant, root }
    }

    fn body(&self, extra: Value) -> Value {
        let Value::Object(mut body) = extra else { panic!("{extra} is no body") };
        body.entry("tenantId").or_insert(json!(self.tenant));
        body.entry("deviceType").or_insert(json!("phone"));
        Value::Object(body)
    }

    /// A job's device, up.
    async fn start(&self, extra: Value) -> Value {
        let made = self.world.call("POST", EMULATORS, Some(self.body(extra))).await.expect(201).json();
        self.world.until(made["id"].as_str().expect("an id"), "running").await;
        made
    }

    async fn read(&self, id: &str) -> Value {
        self.world.call("GET", &format!("{EMULATORS}/{id}"), None).await.expect(200).json()
    }

    /// The job ends; how its emulator looks when it is gone and the capture is settled.
    async fn finish(&self, emulator: &Value, outcome: &str) -> Value {
        let id = emulator["id"].as_str().expect("an id");
        let path = format!("{EMULATORS}/{id}?outcome={outcome}");
        let going = self.world.call("DELETE", &path, None).await.expect(202).json();
        assert_eq!(going["status"], "terminating", "{going}");
        self.world.until(id, "terminated").await;
        let mut seen = self.read(id).await;
        for _ in 0..500 {
            if seen["capture"]["state"] != "capturing" {
                return seen;
            }
            self.world.clock.advance(Duration::from_millis(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen = self.read(id).await;
        }
        panic!("{seen}");
    }

    /// What a job leaves under a key; it can be deployed.
    async fn leave(&self, key: &str, ci: Value) -> String {
        let device = self.start(json!({ "capture": { "when": "always", "key": key }, "ci": ci })).await;
        let gone = self.finish(&device, "success").await;
        let name = gone["capture"]["snapshot"].as_str().unwrap_or_else(|| panic!("{gone}")).to_owned();
        self.world.until_snapshot(&name, "ready").await;
        name
    }

    /// What would be restored, and why; the device goes again.
    async fn restore(&self, restore: Value, ci: Value) -> Result<(String, Value), String> {
        let body = self.body(json!({ "restore": restore, "ci": ci }));
        let answer = self.world.call("POST", EMULATORS, Some(body)).await;
        if answer.status != 201 {
            return Err(answer.code());
        }
        let made = answer.json();
        self.world.call("DELETE", &format!("{EMULATORS}/{}", answer.id()), None).await.expect(202);
        assert_eq!(made["snapshot"]["name"], made["restore"]["snapshot"], "{made}");
        let hit = made["restore"]["hit"].as_str().expect("a hit");
        Ok((hit.to_owned(), made["restore"]["snapshot"].clone()))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside codes of refusals")]
fn found(hit: &str, name: &str) -> Result<(String, Value), String> {
    Ok((hit.to_owned(), json!(name)))
}

#[tokio::test]
async fn a_job_starts_from_what_the_one_before_it_left_and_says_so() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let ci = json!({ "project": "acme/app", "ref": "main", "commit": "c0ffee", "jobId": "41" });
        let spec = json!({
            "restore": { "key": "app main" },
            "capture": { "when": "success", "labels": { "team": "maps" } },
            "ci": ci,
        });
        let first = jobs.start(spec.clone()).await;
        assert_eq!(first["restore"], json!({ "hit": "root", "snapshot": jobs.root, "key": null }));
        let capture = json!({
            "when": "success", "key": "app main", "labels": { "team": "maps" }, "state": "pending",
            "outcome": null, "snapshot": null, "problem": null,
        });
        assert_eq!(first["capture"], capture);
        assert_eq!((&first["ci"]["trust"], &first["ci"]["proved"]), (&json!("internal"), &json!(false)));

        let gone = jobs.finish(&first, "success").await;
        assert_eq!(
            (&gone["capture"]["state"], &gone["capture"]["outcome"]),
            (&json!("captured"), &json!("success"))
        );
        let name = gone["capture"]["snapshot"].as_str().expect("a name");
        let left = jobs.world.until_snapshot(name, "ready").await;
        assert_eq!(
            left["origin"],
            json!({
                "kind": "ci", "emulatorId": first["id"], "project": "acme/app", "ref": "main", "commit": "c0ffee",
                "jobId": "41", "jobStatus": "success", "key": "app main",
            })
        );
        assert_eq!((&left["trust"], &left["group"]), (&json!("internal"), &json!("app main")));
        assert_eq!((&left["labels"], &left["parent"]), (&json!({ "team": "maps" }), &json!(jobs.root)));

        let second = jobs.start(spec).await;
        assert_eq!(second["restore"], json!({ "hit": "exact", "snapshot": name, "key": "app main" }));
        assert_eq!(second["snapshot"]["name"], name);
        // An outcome that does not ask for it leaves nothing, and neither does a deletion without one.
        let gone = jobs.finish(&second, "failure").await;
        assert_eq!(
            (&gone["capture"]["state"], &gone["capture"]["outcome"]),
            (&json!("not_asked"), &json!("failure"))
        );
        let third =
            jobs.start(json!({ "restore": { "key": "app main" }, "capture": { "when": "always" } })).await;
        let path = format!("{EMULATORS}/{}", third["id"].as_str().expect("an id"));
        jobs.world.call("DELETE", &path, None).await.expect(202);
        let left = jobs.world.call("GET", &format!("{SNAPSHOTS}?tenantId={}", jobs.tenant), None).await;
        assert_eq!(left.expect(200).json()["items"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn keys_come_before_fallbacks_before_branches_before_the_root() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let branch = |name: &str| json!({ "project": "acme/app", "ref": name });
        let old = jobs.leave("app/main", branch("main")).await;
        let next = jobs.leave("app/next", branch("next")).await;
        let main = jobs.leave("app/main", branch("main")).await;
        let other = jobs.leave("App/main", json!({ "project": "acme/other", "ref": "main" })).await;
        let star = jobs.leave("app/*", json!({})).await;
        let none = json!({});
        let job = json!({ "project": "acme/app", "targetBranch": "next", "defaultBranch": "main" });
        for (what, restore, ci, expected) in [
            ("the newest of a key", json!({ "key": "app/main" }), &none, found("exact", &main)),
            ("keys are bytes", json!({ "key": "App/main" }), &none, found("exact", &other)),
            ("no part of a key", json!({ "key": "app/mai" }), &none, found("root", &jobs.root)),
            ("a star in a key is a star", json!({ "key": "app/*" }), &none, found("exact", &star)),
            (
                "fallbacks in their order",
                json!({ "key": "x", "fallbackKeys": ["y", "app/next", "app/main"] }),
                &none,
                found("fallback", &next),
            ),
            (
                "the newest of a prefix",
                json!({ "key": "x", "fallbackKeys": ["app/m*"] }),
                &none,
                found("fallback", &main),
            ),
            ("any key", json!({ "key": "x", "fallbackKeys": ["*"] }), &none, found("fallback", &star)),
            (
                "a prefix is bytes",
                json!({ "key": "x", "fallbackKeys": ["APP*", "App*"] }),
                &none,
                found("fallback", &other),
            ),
            (
                "the target branch",
                json!({ "key": "x", "fallbackKeys": ["y*"] }),
                &job,
                found("fallback", &next),
            ),
            (
                "the default branch",
                json!({ "key": "x" }),
                &json!({ "project": "acme/app", "targetBranch": "gone", "defaultBranch": "main" }),
                found("fallback", &main),
            ),
            (
                "another project's branch is none of ours",
                json!({ "key": "x" }),
                &json!({ "project": "acme/third", "defaultBranch": "main" }),
                found("root", &jobs.root),
            ),
            ("nothing at all", json!({ "key": "x" }), &none, found("root", &jobs.root)),
            (
                "nothing, and that is not enough",
                json!({ "key": "x", "fallbackKeys": ["y*"], "required": true }),
                &none,
                Err("restore_miss".to_owned()),
            ),
            (
                "required and there",
                json!({ "key": "app/main", "required": true }),
                &none,
                found("exact", &main),
            ),
        ] {
            assert_eq!(jobs.restore(restore, ci.clone()).await, expected, "{what}");
        }
        // The newest goes: then the one before it is the newest.
        for name in [&main, &star] {
            for _ in 0..500 {
                if jobs.world.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await.status == 202 {
                    break;
                }
                jobs.world.clock.advance(Duration::from_millis(20));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            jobs.world.until_snapshot(name, "gone").await;
        }
        assert_eq!(jobs.restore(json!({ "key": "app/main" }), none.clone()).await, found("exact", &old));
        // Another kind of device finds nothing of a phone's.
        let body =
            json!({ "tenantId": jobs.tenant, "deviceType": "automotive", "restore": { "key": "app/main" } });
        let car = jobs.world.call("POST", EMULATORS, Some(body)).await.expect(201).json();
        assert_eq!((&car["restore"]["hit"], &car["deviceType"]), (&json!("root"), &json!("automotive")));
    }
}

#[tokio::test]
async fn nobody_finds_what_another_tenant_left() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let name = jobs.leave("shared", json!({ "project": "p", "ref": "main" })).await;
        let other = jobs.world.tenant("other").await;
        let body = json!({
            "tenantId": other, "deviceType": "phone", "ci": { "project": "p", "defaultBranch": "main" },
            "restore": { "key": "shared", "fallbackKeys": ["*"] },
        });
        // Even the installation's admin, who may see both.
        let made = jobs.world.call("POST", EMULATORS, Some(body.clone())).await.expect(201).json();
        assert_eq!((&made["restore"]["hit"], &made["snapshot"]["name"]), (&json!("root"), &json!(jobs.root)));
        let ada = jobs.world.user("ada").await;
        jobs.world.join(&other, &ada, "member").await;
        let token = jobs.world.token_of(&ada).await;
        let made = jobs.world.call_as(&token, "POST", EMULATORS, Some(body)).await.expect(201).json();
        assert_eq!(made["restore"]["hit"], "root");
        let body = json!({ "tenantId": jobs.tenant, "restore": { "key": "shared" } });
        let refused = jobs.world.call_as(&token, "POST", EMULATORS, Some(body)).await.expect(404);
        assert!(!refused.text.contains(&name), "{refused:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let jobs = Jobs::new(On::Sqlite).await;
    let many: Vec<String> = (0..6).map(|number| format!("k{number}")).collect();
    for (extra, status, code) in [
        (json!({ "snapshot": jobs.root, "restore": { "key": "k" } }), 422, "invalid_request"),
        (json!({ "restore": { "key": "" } }), 422, "invalid_request"),
        (json!({ "restore": { "key": "a\u{0}b" } }), 422, "invalid_request"),
        (json!({ "restore": { "key": "k", "fallbackKeys": many } }), 422, "invalid_request"),
        (json!({ "capture": { "when": "sometimes" } }), 422, "invalid_request"),
        (json!({ "ci": { "trust": "protected" } }), 400, "unknown_member"),
        (json!({ "count": 0 }), 422, "invalid_request"),
        (json!({ "count": 101 }), 422, "invalid_request"),
        (json!({ "count": 2, "identity": { "mode": "keep", "seed": "s" } }), 422, "invalid_request"),
    ] {
        let answer = jobs.world.call("POST", EMULATORS, Some(jobs.body(extra.clone()))).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code), "{extra}");
    }
    let device = jobs.start(json!({})).await;
    let path = format!("{EMULATORS}/{}?outcome=maybe", device["id"].as_str().expect("an id"));
    jobs.world.call("DELETE", &path, None).await.expect(400);
}

#[tokio::test]
async fn a_statement_lowers_trust_over_http_and_never_raises_it() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let claimed = jobs.leave("k", json!({ "ref": "main", "refProtected": true })).await;
        let seen = jobs.world.until_snapshot(&claimed, "ready").await;
        assert_eq!((&seen["trust"], &seen["origin"]["refProtected"]), (&json!("internal"), &Value::Null));
        for lowered in [json!({ "refProtected": false }), json!({ "fork": true, "refProtected": true })] {
            let name = jobs.leave("k", lowered.clone()).await;
            let seen = jobs.world.until_snapshot(&name, "ready").await;
            assert_eq!(seen["trust"], "untrusted", "{lowered}");
            // Who is trusted with more does not get it, by no key; who says the same of itself does.
            for restore in [json!({ "key": "k" }), json!({ "key": "x", "fallbackKeys": ["*"] })] {
                let (_, got) = jobs.restore(restore.clone(), json!({})).await.expect("a device");
                assert_eq!(got, json!(claimed), "{restore}");
                let (_, got) = jobs.restore(restore, lowered.clone()).await.expect("a device");
                assert_eq!(got, json!(name));
            }
        }
        // Nor is it washed by a capture by hand, or by a device that was made of it.
        let device = jobs.start(json!({ "ci": { "refProtected": false } })).await;
        let by_hand = jobs.world.captured(&jobs.world.token, device["id"].as_str().expect("an id")).await;
        let seen = jobs.world.until_snapshot(&by_hand, "ready").await;
        assert_eq!(seen["trust"], "untrusted", "{seen}");
        let device = jobs
            .start(json!({ "snapshot": by_hand, "deviceType": "phone", "capture": { "when": "always" } }));
        let gone = jobs.finish(&device.await, "success").await;
        let name = gone["capture"]["snapshot"].as_str().expect("a name");
        assert_eq!(jobs.world.until_snapshot(name, "ready").await["trust"], "untrusted");
    }
}

/// A job's own credential, as an issuer would vouch for it.
fn job_of(user: &str, tenant: &str, ref_protected: bool, fork: bool) -> Caller {
    let proof = JobProof {
        project: "acme/app".to_owned(),
        reference: "main".to_owned(),
        ref_protected,
        fork,
        commit: None,
        job_id: Some("7".to_owned()),
        target_branch: None,
        default_branch: Some("main".to_owned()),
    };
    let credential = Credential {
        ceiling: CI_JOB,
        tenant: TenantId::parse(tenant),
        job: Some(Box::new(JobContext::proved(proof))),
        ..Credential::new(CredentialKind::CiJob)
    };
    Caller {
        subject: Subject::User(UserId::parse(user).expect("an id")),
        credential: Arc::new(credential),
        address: None,
        request_id: "job".into(),
        once: None,
    }
}

#[tokio::test]
async fn nothing_less_trusted_gets_into_a_job_by_any_key_name_or_swap() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let ada = jobs.world.user("ada").await;
        jobs.world.join(&jobs.tenant, &ada, "member").await;
        let engine = &jobs.world.server.engine;
        let capture = || {
            Some(CapturePolicy { when: When::Always, key: Some("k".to_owned()), labels: Default::default() })
        };
        let callers = [
            ("protected", Trust::Protected, job_of(&ada, &jobs.tenant, true, false)),
            ("unprotected", Trust::Untrusted, job_of(&ada, &jobs.tenant, false, false)),
            ("fork", Trust::Untrusted, job_of(&ada, &jobs.tenant, true, true)),
        ];
        // Each leaves something under the same key, as a member does; the least trusted last, so that it is the newest.
        let mut left: Vec<(Trust, String)> = Vec::new();
        for (what, trust, caller) in &callers {
            let spec = EmulatorSpec {
                tenant: TenantId::parse(&jobs.tenant),
                capture: capture(),
                ..EmulatorSpec::default()
            };
            let made = emulators::create(engine, caller, spec)
                .await
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            jobs.world.until(&made.id.to_string(), "running").await;
            ci::finish(engine, caller, made.id, Outcome::Success, &Expected::Any).await.expect("an end");
            jobs.world.until(&made.id.to_string(), "terminated").await;
            let name = jobs.read(&made.id.to_string()).await["capture"]["snapshot"]
                .as_str()
                .expect("a name")
                .to_owned();
            let seen = jobs.world.until_snapshot(&name, "ready").await;
            assert_eq!(seen["trust"], trust.name(), "{what}");
            assert_eq!(seen["origin"]["refProtected"], json!(*what != "unprotected"), "{what}");
            left.push((*trust, name));
            if *what == "protected" {
                left.push((
                    Trust::Internal,
                    jobs.leave("k", json!({ "project": "acme/app", "ref": "main" })).await,
                ));
            }
        }
        let trusts = left.iter().map(|(trust, _)| *trust).collect::<Vec<_>>();
        assert_eq!(trusts, [Trust::Protected, Trust::Internal, Trust::Untrusted, Trust::Untrusted]);

        for (what, trust, caller) in &callers {
            // The newest that is trusted as far, by whatever way it is looked for.
            let expected = &left.iter().rev().find(|(of, _)| of >= trust).expect("one").1;
            for (key, fallbacks, hit) in [
                ("k", vec![], Hit::Exact),
                ("x", vec!["k"], Hit::Fallback),
                ("x", vec!["*"], Hit::Fallback),
                ("x", vec![], Hit::Fallback),
            ] {
                let restore = RestoreSpec {
                    key: key.to_owned(),
                    fallback_keys: fallbacks.iter().map(|key| (*key).to_owned()).collect(),
                    required: true,
                };
                let spec = EmulatorSpec {
                    tenant: TenantId::parse(&jobs.tenant),
                    restore: Some(restore),
                    ..EmulatorSpec::default()
                };
                let made = emulators::create(engine, caller, spec).await.expect("a device");
                let restored = made.job.as_ref().and_then(|job| job.restored.clone()).expect("a hit");
                assert_eq!(
                    (restored.hit, restored.snapshot.as_str()),
                    (hit, expected.as_str()),
                    "{what} {key} {fallbacks:?}"
                );
                emulators::delete(engine, caller, made.id, &Expected::Any).await.expect("an end");
            }
            // By its name, too, and by a swap.
            let spec = EmulatorSpec { tenant: TenantId::parse(&jobs.tenant), ..EmulatorSpec::default() };
            let device = emulators::create(engine, caller, spec.clone()).await.expect("a device");
            jobs.world.until(&device.id.to_string(), "running").await;
            for (of, name) in &left {
                let named = EmulatorSpec { snapshot: Some(name.clone()), ..spec.clone() };
                let made = emulators::create(engine, caller, named).await;
                let refused = |code: &str| code == "untrusted_snapshot";
                assert_eq!(
                    made.as_ref().is_err_and(|error| refused(error.code)),
                    of < trust,
                    "{what} {name}"
                );
                if let Ok(made) = made {
                    emulators::delete(engine, caller, made.id, &Expected::Any).await.expect("an end");
                }
                if of < trust {
                    let swapped =
                        emulators::swap_snapshot(engine, caller, device.id, name, &Expected::Any).await;
                    assert!(swapped.is_err_and(|error| refused(error.code)), "{what} {name}");
                }
            }
            emulators::delete(engine, caller, device.id, &Expected::Any).await.expect("an end");
        }
        // What a protected job started and somebody else ends is trusted no further than they are.
        let admin = paddock_engine::users::first_admin(engine).await.expect("the admin").id.to_string();
        let member = Caller {
            credential: Arc::new(Credential::new(CredentialKind::AccessToken)),
            ..job_of(&admin, &jobs.tenant, true, false)
        };
        for (caller, trust) in [(&callers[1].2, "untrusted"), (&member, "internal")] {
            let spec = EmulatorSpec {
                tenant: TenantId::parse(&jobs.tenant),
                capture: capture(),
                ..EmulatorSpec::default()
            };
            let made = emulators::create(engine, &callers[0].2, spec).await.expect("a device");
            jobs.world.until(&made.id.to_string(), "running").await;
            ci::finish(engine, caller, made.id, Outcome::Success, &Expected::Any).await.expect("an end");
            let name = jobs.read(&made.id.to_string()).await["capture"]["snapshot"]
                .as_str()
                .expect("a name")
                .to_owned();
            let seen = jobs.world.until_snapshot(&name, "ready").await;
            assert_eq!(seen["trust"], trust);
        }
        // What a token proves is not talked away.
        let spec = EmulatorSpec {
            tenant: TenantId::parse(&jobs.tenant),
            ci: Some(JobStatement { ref_protected: Some(true), ..JobStatement::default() }),
            ..EmulatorSpec::default()
        };
        let refused = emulators::create(engine, &callers[1].2, spec).await.expect_err("a contradiction");
        assert_eq!(refused.faults[0].pointer, "/ci/refProtected");
    }
}

#[tokio::test]
async fn a_capture_that_takes_too_long_is_given_up_loudly_and_the_device_goes_all_the_same() {
    for on in BOTH {
        let jobs = Jobs::with(on, &["--snapshots-capture-seconds", "30"]).await;
        let device = jobs.start(json!({ "capture": { "when": "always", "key": "k" } })).await;
        let id = device["id"].as_str().expect("an id");
        jobs.world.simulation.host.set_stubborn(true);
        let path = format!("{EMULATORS}/{id}?outcome=failure");
        let going = jobs.world.call("DELETE", &path, None).await.expect(202).json();
        assert_eq!(
            (&going["capture"]["state"], &going["statusReason"]["code"]),
            (&json!("capturing"), &json!("capturing"))
        );
        let name = going["capture"]["snapshot"].as_str().expect("a name");
        // To be asked again changes nothing.
        let again = jobs
            .world
            .call("DELETE", &format!("{EMULATORS}/{id}?outcome=success"), None)
            .await
            .expect(202)
            .json();
        assert_eq!(
            (&again["capture"]["outcome"], &again["capture"]["snapshot"]),
            (&json!("failure"), &json!(name))
        );
        jobs.world.clock.advance(Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(jobs.read(id).await["status"], "terminating", "its time is not over");
        jobs.world.clock.advance(Duration::from_secs(11));
        jobs.world.until(id, "terminated").await;
        let gone = jobs.read(id).await;
        assert_eq!(
            (&gone["capture"]["state"], &gone["statusReason"]["code"]),
            (&json!("failed"), &json!("capture_failed"))
        );
        assert!(gone["capture"]["problem"].as_str().expect("words").contains("did not hold still"), "{gone}");
        jobs.world.until_snapshot(name, "gone").await;
        let told = format!("/api/v1/audit?tenantId={}&action=emulators.capture_failed", jobs.tenant);
        let told = jobs.world.call("GET", &told, None).await.expect(200).json();
        assert_eq!(told["items"][0]["object"], format!("emulator:{id}"), "{told}");
        // Nothing is left: no layer but those of the images, no disk.
        for _ in 0..500 {
            if jobs.world.simulation.pool.list().await.expect("a look").layers.len() == 2 {
                break;
            }
            jobs.world.clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let left = jobs.world.simulation.pool.list().await.expect("a look");
        assert_eq!((left.layers.len(), left.disks.len()), (2, 0), "{left:?}");
        assert_eq!(jobs.restore(json!({ "key": "k" }), json!({})).await, found("root", &jobs.root));
    }
}

#[tokio::test]
async fn a_device_that_cannot_be_captured_goes_and_says_why() {
    let jobs = Jobs::new(On::Sqlite).await;
    let spec = json!({ "capture": { "when": "always", "key": "k" } });
    // One that does not answer.
    let device = jobs.start(spec.clone()).await;
    let id = device["id"].as_str().expect("an id");
    jobs.world.simulation.host.set(EmulatorId::parse(id).expect("an id"), Phase::Silent);
    jobs.world.until(id, "unreachable").await;
    let gone = jobs.finish(&device, "success").await;
    assert_eq!(gone["capture"]["state"], "failed");
    assert!(gone["capture"]["problem"].as_str().expect("words").contains("unreachable"), "{gone}");
    // One that has ended is captured as it lies.
    let device = jobs.start(spec.clone()).await;
    let id = device["id"].as_str().expect("an id");
    jobs.world.simulation.host.crash(EmulatorId::parse(id).expect("an id"));
    jobs.world.until(id, "failed").await;
    let gone = jobs.finish(&device, "failure").await;
    assert_eq!(gone["capture"]["state"], "captured", "{gone}");
    // One whose capture somebody deletes before it is there: it goes, too.
    let device = jobs.start(spec).await;
    jobs.world.simulation.host.set_stubborn(true);
    let path = format!("{EMULATORS}/{}?outcome=success", device["id"].as_str().expect("an id"));
    let going = jobs.world.call("DELETE", &path, None).await.expect(202).json();
    let name = going["capture"]["snapshot"].as_str().expect("a name");
    jobs.world.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await.expect(202);
    jobs.world.simulation.host.set_stubborn(false);
    let gone = jobs.finish(&going, "success").await;
    assert_eq!(gone["capture"]["state"], "failed", "{gone}");
    jobs.world.until_snapshot(name, "gone").await;
}

#[tokio::test]
async fn a_snapshot_is_fanned_out_as_far_as_the_quota_goes_and_only_once_for_a_key() {
    for on in BOTH {
        let jobs = Jobs::with(on, &["--quotas-emulators", "5"]).await;
        let body = jobs.body(json!({ "name": "shard", "count": 4, "labels": { "team": "maps" } }));
        let send = || {
            let request = jobs.world.request("POST", EMULATORS, Some(body.clone()));
            jobs.world.send(request.header("idempotency-key", "fan"))
        };
        let (first, again) = (send().await.expect(207).json(), send().await.expect(207).json());
        assert_eq!(first, again);
        let items = first["items"].as_array().expect("a list");
        let names: Vec<&str> =
            items.iter().map(|item| item["emulator"]["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["shard-1", "shard-2", "shard-3", "shard-4"]);
        let mut serials: Vec<&str> =
            items.iter().map(|item| item["emulator"]["serial"].as_str().expect("one")).collect();
        serials.sort_unstable();
        serials.dedup();
        assert_eq!(serials.len(), 4);
        for item in items {
            assert_eq!(
                (&item["emulator"]["snapshot"]["name"], &item["problem"]),
                (&json!(jobs.root), &Value::Null)
            );
            jobs.world.until(item["emulator"]["id"].as_str().expect("an id"), "running").await;
        }
        // One more has room, the others are told why not.
        let more = jobs
            .world
            .call("POST", EMULATORS, Some(jobs.body(json!({ "count": 3 }))))
            .await
            .expect(207)
            .json();
        let codes: Vec<&Value> =
            more["items"].as_array().expect("a list").iter().map(|item| &item["problem"]["code"]).collect();
        assert_eq!(codes, [&Value::Null, &json!("quota_exceeded"), &json!("quota_exceeded")]);
        let full = jobs.world.call("POST", EMULATORS, Some(jobs.body(json!({ "count": 3 })))).await;
        assert_eq!(full.expect(409).code(), "quota_exceeded");
        // What was refused holds nothing: as many as went can come.
        for item in items {
            let id = item["emulator"]["id"].as_str().expect("an id");
            jobs.world.call("DELETE", &format!("{EMULATORS}/{id}"), None).await.expect(202);
            jobs.world.until(id, "terminated").await;
        }
        let anew = jobs
            .world
            .call("POST", EMULATORS, Some(jobs.body(json!({ "count": 4 }))))
            .await
            .expect(207)
            .json();
        assert!(
            anew["items"].as_array().expect("a list").iter().all(|item| item["problem"].is_null()),
            "{anew}"
        );
        let engine = &jobs.world.server.engine;
        let found = doctor::examine(engine, &*jobs.world.simulation.pool, &[]).await.expect("a look");
        // A disk that is about to be made may show for a moment; nothing else may be wrong.
        let wrong = |finding: &Finding| matches!(finding, Finding::WrongUsage(_) | Finding::AddressTwice(_));
        assert!(!found.iter().any(wrong), "{found:?}");
    }
}

#[tokio::test]
async fn a_restore_that_races_with_deletions_finds_something_else() {
    for on in BOTH {
        let jobs = Jobs::new(on).await;
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(jobs.leave("k", json!({})).await);
        }
        let create = || {
            let body = jobs.body(json!({ "restore": { "key": "k", "fallbackKeys": ["*"] } }));
            jobs.world.call("POST", EMULATORS, Some(body))
        };
        let delete = async |name: &str| {
            let answer = jobs.world.call("DELETE", &format!("{SNAPSHOTS}/{name}"), None).await;
            assert!(matches!(answer.status.as_u16(), 202 | 404 | 409), "{answer:?}");
        };
        // From the newest on, so that each deletion takes what is about to be found.
        let deletions = async {
            for name in names.iter().rev() {
                delete(name).await;
            }
        };
        let creations = async {
            let mut found = Vec::new();
            for _ in 0..4 {
                let (a, b) = tokio::join!(create(), create());
                found.extend([a.expect(201).json(), b.expect(201).json()]);
            }
            found
        };
        let ((), found) = tokio::join!(deletions, creations);
        for made in found {
            assert!(["exact", "root"].contains(&made["restore"]["hit"].as_str().expect("a hit")), "{made}");
            jobs.world.until(made["id"].as_str().expect("an id"), "running").await;
        }
    }
}

#[tokio::test]
async fn a_jobs_result_and_its_branch_weigh_in_retention() {
    let jobs = Jobs::new(On::Sqlite).await;
    let lowered = json!({ "ref": "dev", "refProtected": false });
    let spec = json!({ "capture": { "when": "always", "key": "k" }, "ci": lowered });
    let mut points = Vec::new();
    for outcome in ["success", "failure"] {
        let device = jobs.start(spec.clone()).await;
        let gone = jobs.finish(&device, outcome).await;
        let name = gone["capture"]["snapshot"].as_str().expect("a name").to_owned();
        let mut seen = jobs.world.until_snapshot(&name, "ready").await;
        for _ in 0..500 {
            if seen["scoreBreakdown"].is_array() {
                break;
            }
            jobs.world.clock.advance(Duration::from_secs(5));
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen = jobs.world.until_snapshot(&name, "ready").await;
        }
        let factors = seen["scoreBreakdown"].as_array().unwrap_or_else(|| panic!("{seen}")).clone();
        let value = |name: &str| {
            factors
                .iter()
                .find(|factor| factor["factor"] == name)
                .map(|factor| factor["value"].clone())
                .expect("it")
        };
        points.push((value("job_result"), value("ref_class")));
    }
    assert_eq!(points, [(json!(1.0), json!(0.0)), (json!(0.0), json!(0.0))]);
}
