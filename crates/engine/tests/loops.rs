//! The frame of the loops: woken by commits and by time, silent over a settled world.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use paddock_engine::audit::Actor;
use paddock_engine::reconcile::{self, Loop, Outcome, Report, Runner, Settings};
use paddock_engine::{DatabaseLocation, Engine, passwords, tenants, users};
use paddock_model::caller::Caller;
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::idempotency_keys::Once;
use paddock_model::labels::Labels;
use paddock_model::ports::{ManualClock, SeededRandom};
use paddock_model::slug::Slug;
use paddock_model::subjects::Subject;
use paddock_model::tenants::{TenantFilter, TenantSpec};
use paddock_model::users::UserId;

struct World {
    engine: Engine,
    clock: Arc<ManualClock>,
    admin: Caller,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse().expect("a time")));
        let location = DatabaseLocation::Sqlite(folder.path().join("paddock.db"));
        let engine = Engine::open(&location, clock.clone(), Arc::new(SeededRandom::new(1)), None)
            .await
            .expect("an engine");
        users::ensure_first_admin(&engine, |_| Ok(())).await.expect("an admin");
        let user = users::first_admin(&engine).await.expect("the admin");
        let admin = Caller {
            subject: Subject::User(user.id),
            credential: Arc::new(Credential::new(CredentialKind::AccessToken)),
            address: None,
            request_id: "test".into(),
            once: None,
        };
        World { engine, clock, admin, folder }
    }

    async fn create(&self, name: &str, key: Option<&str>) {
        let once = key.map(|key| Once { key: key.to_owned(), fingerprint: [0; 32] });
        let caller = Caller { once, ..self.admin.clone() };
        let name = Slug::parse(name).expect("a name");
        let spec = TenantSpec { name, display_name: None, labels: Labels::new() };
        tenants::create(&self.engine, &caller, spec).await.expect("created");
    }

    async fn run(&self, each: Loop) -> Report {
        (each.run)(&self.engine).await.expect("a run without trouble")
    }
}

const SETTINGS: Settings = Settings { lease: Duration::from_secs(15), stuck_after: Duration::from_secs(300) };

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn every_loop_leaves_a_settled_world_alone() {
    let world = World::new().await;
    world.create("acme", Some("k")).await;
    world.clock.advance(Duration::from_secs(48 * 60 * 60));
    for each in reconcile::LOOPS {
        world.run(*each).await;
        let written = || std::fs::read(world.folder.path().join("paddock.db-wal")).expect("the log");
        let before = written();
        assert_eq!(world.run(*each).await, Report::default(), "{}", each.name);
        assert!(written() == before, "{} has written", each.name);
    }
}

#[tokio::test]
async fn idempotency_keys_are_forgotten_after_a_day_and_not_before() {
    let world = World::new().await;
    world.create("acme", Some("k")).await;

    world.clock.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(world.run(reconcile::idempotency_keys::LOOP).await.changed, 0);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.run(reconcile::idempotency_keys::LOOP).await.changed, 1);
}

#[tokio::test]
async fn a_loop_runs_at_start_by_time_and_when_its_table_changes() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    const COUNTING: &[Loop] = &[Loop {
        name: "counting",
        watches: &["tenants"],
        every: Duration::from_secs(60),
        run: |_| {
            Box::pin(async {
                RUNS.fetch_add(1, Ordering::SeqCst);
                Ok(Report { changed: 1, ..Report::default() })
            })
        },
    }];
    let world = World::new().await;
    let runner = Runner::start(&world.engine, COUNTING, SETTINGS);
    let runs = |count| move || RUNS.load(Ordering::SeqCst) == count;

    eventually("a run at start", runs(1)).await;
    world.create("acme", None).await;
    eventually("a run after a commit", runs(2)).await;
    // Wait until the loop sleeps again: only then does time passing mean anything to it.
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.clock.advance(Duration::from_secs(60));
    eventually("a run after a minute", runs(3)).await;

    let status = runner.status();
    assert!(status.is_leading());
    assert_eq!(status.loops()["counting"].outcome, Some(Outcome::Changed(1)));
    runner.stop(Duration::from_secs(5)).await;
    world.create("later", None).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(runs(3)(), "a stopped loop runs");
}

#[tokio::test]
async fn a_stranger_sees_nothing_and_may_do_nothing() {
    let world = World::new().await;
    world.create("acme", None).await;
    let stranger = UserId::new("2026-11-15T04:00:00Z".parse().expect("a time"), &SeededRandom::new(7));
    let caller = Caller {
        subject: Subject::User(stranger),
        credential: Arc::new(Credential::new(CredentialKind::AccessToken)),
        address: None,
        request_id: "test".into(),
        once: None,
    };
    let page = paddock_model::page::PageRequest { limit: 10, after: None };

    let seen =
        tenants::list(&world.engine, &caller, &TenantFilter::default(), page).await.expect("an empty list");
    assert!(seen.items.is_empty());
    let all =
        tenants::list(&world.engine, &world.admin, &TenantFilter::default(), page).await.expect("a list");
    let hidden = tenants::get(&world.engine, &caller, all.items[0].id).await.expect_err("hidden");
    assert_eq!(hidden.code, "not_found");
    let spec =
        TenantSpec { name: Slug::parse("mine").expect("a name"), display_name: None, labels: Labels::new() };
    let refused = tenants::create(&world.engine, &caller, spec).await.expect_err("refused");
    assert_eq!(refused.code, "forbidden");
    assert!(refused.detail.contains("can_create_tenant"));
}

#[tokio::test]
async fn the_first_admin_has_a_password_that_verifies() {
    let folder = tempfile::tempdir().expect("a folder");
    let location = DatabaseLocation::Sqlite(folder.path().join("paddock.db"));
    let clock = Arc::new(ManualClock::at("2026-11-15T04:00:00Z".parse().expect("a time")));
    let engine =
        Engine::open(&location, clock, Arc::new(SeededRandom::new(1)), None).await.expect("an engine");

    // A disk that cannot keep the password leaves no account behind.
    let failed = users::ensure_first_admin(&engine, |_| Err(std::io::Error::other("full"))).await;
    assert!(failed.is_err());
    assert!(users::first_admin(&engine).await.is_err());

    let mut kept = String::new();
    let shown = users::ensure_first_admin(&engine, |password| {
        password.clone_into(&mut kept);
        Ok(())
    });
    let shown = shown.await.expect("made").expect("the first time");
    assert_eq!(shown, kept);
    assert!(passwords::verify(&engine, &Actor::default(), "admin", shown).await.is_ok());
    assert!(passwords::verify(&engine, &Actor::default(), "admin", "wrong".to_owned()).await.is_err());
    assert_eq!(users::ensure_first_admin(&engine, |_| Ok(())).await.expect("nothing to do"), None);
}
