//! The store's promises, each on both databases.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddock_model::Timestamp;
use paddock_model::ci::{Clue, JobOrigin, Outcome};
use paddock_model::devices::{DeviceType, Image};
use paddock_model::emulators::EmulatorId;
use paddock_model::groups::{Group, GroupId};
use paddock_model::idempotency_keys::IdempotencyKey;
use paddock_model::labels::{LabelSelector, Labels};
use paddock_model::layers::LayerId;
use paddock_model::page::PageRequest;
use paddock_model::permissions::tuples::{Holder, Thing, Tuple};
use paddock_model::ports::{Random, SeededRandom};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Origin, Snapshot, SnapshotState};
use paddock_model::templates::{TemplateId, TemplateState};
use paddock_model::tenants::{Tenant, TenantFilter, TenantId, TenantSpec};
use paddock_model::trust::Trust;
use paddock_model::users::UserId;
use uuid::Uuid;

use crate::changes::changed_table;
use crate::layers::{LayerState, NewLayer};
use crate::leases::Lease;
use crate::relations::Change;
use crate::restore_points::{self, Fit};
use crate::templates::{self, Template};
use crate::value::Value;
use crate::{
    Error, Location, Store, args, audit, groups, idempotency_keys, layers, leases, relations, snapshots,
    tenants, verifications,
};

/// A new database of each kind; the folder lives as long as the SQLite file is needed.
struct Databases {
    folder: tempfile::TempDir,
    locations: Vec<Location>,
}

impl Databases {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let locations =
            vec![Location::Sqlite(folder.path().join("paddock.db")), new_postgres_database().await];
        Databases { folder, locations }
    }

    async fn open(&self) -> Vec<Store> {
        let mut stores = Vec::new();
        for location in &self.locations {
            stores.push(Store::open(location).await.expect("an open store"));
        }
        stores
    }
}

async fn new_postgres_database() -> Location {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var("TEST_POSTGRES_URL")
        .expect("TEST_POSTGRES_URL; `make test` starts a server and sets it");
    let name = format!("store_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (client, connection) =
        tokio_postgres::connect(&server, tokio_postgres::NoTls).await.expect("a server");
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a new database");
    let (address, _) = server.rsplit_once('/').expect("a URL with a database");
    Location::Postgres { url: format!("{address}/{name}"), connections: 8 }
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(1_700_000_000_000_000 + micros).expect("a time")
}

fn tenant(number: i64, labels: &[(&str, &str)]) -> Tenant {
    let labels: Labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let name = Slug::parse(&format!("tenant-{number}")).expect("a name");
    let id = TenantId::new(time(number * 1000), &SeededRandom::new(number as u64));
    Tenant::new(id, TenantSpec { name, display_name: None, labels }, time(number))
}

async fn insert(store: &Store, tenant: &Tenant) -> crate::Result<()> {
    let mut tx = store.begin().await?;
    tenants::insert(&mut tx, tenant).await?;
    tx.commit().await
}

async fn names(store: &Store, scope: &Scope, filter: &TenantFilter) -> Vec<String> {
    let page = PageRequest { limit: 200, after: None };
    let found =
        tenants::list(&mut store.read().await.expect("a reader"), scope, filter, page).await.expect("a list");
    found.items.iter().map(|tenant| tenant.name.to_string()).collect()
}

async fn all_names(store: &Store) -> Vec<String> {
    names(store, &Scope::Everything, &TenantFilter::default()).await
}

#[tokio::test]
async fn every_statement_can_be_prepared_on_both_databases() {
    let databases = Databases::new().await;
    let mut found = 0;
    let tables = concat!(
        include_str!("../migrations/0001_house.sql"),
        include_str!("../migrations/0002_relations.sql"),
        include_str!("../migrations/0003_identity.sql"),
        include_str!("../migrations/0004_sign_in.sql"),
        include_str!("../migrations/0005_devices.sql"),
        include_str!("../migrations/0006_sign_in_failures.sql"),
        include_str!("../migrations/0007_user_home.sql"),
        include_str!("../migrations/0008_snapshots.sql"),
        include_str!("../migrations/0009_tickets.sql"),
        include_str!("../migrations/0010_disk_usage.sql"),
        include_str!("../migrations/0011_logs.sql"),
        include_str!("../migrations/0012_imports.sql"),
        include_str!("../migrations/0013_retention.sql"),
        include_str!("../migrations/0014_ci.sql"),
        include_str!("../migrations/0015_consolidations.sql"),
        include_str!("../migrations/0016_templates.sql"),
        include_str!("../migrations/0017_backups.sql"),
        include_str!("../migrations/0018_vehicles.sql")
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let source = std::fs::read_to_string(entry.expect("a source").path()).expect("text");
        for statement in statements(&source) {
            found += 1;
            for store in databases.open().await {
                let mut tx = store.begin().await.expect("a transaction");
                // Advisory locks are PostgreSQL's alone.
                if statement.contains("pg_advisory") && !tx.is_shared() {
                    continue;
                }
                tx.prepare(&statement).await.unwrap_or_else(|error| panic!("{error:?}: {statement}"));
            }
            let reads = statement.starts_with("SELECT");
            let table = changed_table(&statement)
                .is_some_and(|table| tables.contains(&format!("CREATE TABLE {table} (")));
            assert!(
                reads || table || statement.contains("INTO migrations"),
                "a change that nobody would be told of: {statement}"
            );
        }
    }
    assert!(found > 15, "only {found} statements were found; does the search still fit the sources?");
}

/// Every text constant that begins like SQL.
fn statements(source: &str) -> Vec<String> {
    let constants = source.split(": &str =").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let texts = constants.filter_map(|rest| rest.split('"').next()).map(|text| text.trim().to_owned());
    texts
        .filter(|text| {
            ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].iter().any(|verb| text.starts_with(verb))
        })
        .collect()
}

/// A tree shows them all at once, and no statement takes as many values.
#[tokio::test]
async fn what_is_asked_of_a_hundred_thousand_snapshots_is_answered() {
    let name = |number: u32| Slug::parse(&format!("row-{number}")).expect("a name");
    let many: Vec<Slug> = (0..100_000).map(name).collect();
    for store in Databases::new().await.open().await {
        let mut tx = store.read().await.expect("a look");
        assert!(crate::retention::annotations(&mut tx, &many).await.expect("annotations").is_empty());
        assert!(templates::of_snapshots(&mut tx, &many).await.expect("memories").is_empty());
        let counts = crate::snapshot_children::counts(&mut tx, &Scope::Everything, &many).await;
        assert!(counts.expect("children").is_empty());
        assert!(snapshots::parents(&mut tx, &many).await.expect("parents").is_empty());
        let children = snapshots::list_children(&mut tx, &Scope::Everything, &many).await;
        assert!(children.expect("children").is_empty());
    }
}

/// A group or a server's streams may name as many, and no statement takes as many values.
#[tokio::test]
async fn what_is_asked_of_a_hundred_thousand_ids_is_answered() {
    let now = Timestamp::UNIX_EPOCH;
    let known: Vec<Uuid> = [7_u128, 99_998].map(Uuid::from_u128).to_vec();
    let many: Vec<Uuid> = (0..100_000).rev().map(Uuid::from_u128).collect();
    for store in Databases::new().await.open().await {
        let tenant = tenant(1, &[]);
        insert(&store, &tenant).await.expect("a tenant");
        let mut tx = store.begin().await.expect("a change");
        for id in &known {
            let group = Group {
                id: GroupId(*id),
                tenant: tenant.id,
                name: Slug::parse(&format!("group-{}", id.as_u128())).expect("a name"),
                display_name: String::new(),
                created_at: now,
                updated_at: now,
                generation: 1,
            };
            groups::insert(&mut tx, &group).await.expect("a group");
        }
        tx.commit().await.expect("on disk");

        let mut tx = store.read().await.expect("a look");
        let ids: Vec<GroupId> = many.iter().copied().map(GroupId).collect();
        let found = groups::list_by_ids(&mut tx, &Scope::Everything, &ids).await.expect("groups");
        let mut found: Vec<Uuid> = found.iter().map(|group| group.id.0).collect();
        found.sort();
        assert_eq!(found, known);
        let ids: Vec<UserId> = many.iter().copied().map(UserId).collect();
        assert!(crate::users::list_by_ids(&mut tx, &ids).await.expect("users").is_empty());
        let ids: Vec<EmulatorId> = many.iter().copied().map(EmulatorId).collect();
        assert!(crate::emulators::standings(&mut tx, &ids).await.expect("standings").is_empty());
    }
}

#[tokio::test]
async fn what_is_read_is_what_was_written() {
    for store in Databases::new().await.open().await {
        let written = tenant(1, &[("team", "maps"), ("odd", "ä \"quoted\" \\ 漢")]);
        insert(&store, &written).await.expect("stored");

        let read =
            tenants::find(&mut store.read().await.expect("a reader"), &Scope::Everything, written.id).await;

        assert_eq!(read.expect("an answer"), Some(written));
    }
}

#[tokio::test]
async fn a_scope_hides_what_it_does_not_cover() {
    for store in Databases::new().await.open().await {
        let (mine, other) = (tenant(1, &[]), tenant(2, &[]));
        insert(&store, &mine).await.expect("stored");
        insert(&store, &other).await.expect("stored");
        let scope = Scope::Tenants(vec![mine.id]);

        assert_eq!(names(&store, &scope, &TenantFilter::default()).await, ["tenant-1"]);
        assert!(names(&store, &Scope::Tenants(vec![]), &TenantFilter::default()).await.is_empty());
        let mut tx = store.read().await.expect("a reader");
        assert_eq!(tenants::find(&mut tx, &scope, other.id).await.expect("an answer"), None);
        assert!(tenants::find(&mut tx, &scope, mine.id).await.expect("an answer").is_some());
    }
}

#[tokio::test]
async fn labels_select() {
    for store in Databases::new().await.open().await {
        insert(&store, &tenant(1, &[("team", "maps"), ("a.b/c", "x")])).await.expect("stored");
        insert(&store, &tenant(2, &[("team", "audio")])).await.expect("stored");
        insert(&store, &tenant(3, &[])).await.expect("stored");
        for (selector, expected) in [
            ("team=maps", vec!["tenant-1"]),
            ("team!=maps", vec!["tenant-3", "tenant-2"]),
            ("team", vec!["tenant-2", "tenant-1"]),
            ("a.b/c=x,team=maps", vec!["tenant-1"]),
            ("team=maps,team=audio", vec![]),
        ] {
            let filter =
                TenantFilter { name: None, labels: LabelSelector::parse(selector).expect("a selector") };
            assert_eq!(names(&store, &Scope::Everything, &filter).await, expected, "{selector}");
        }
    }
}

#[tokio::test]
async fn pages_hold_everything_once() {
    for store in Databases::new().await.open().await {
        for number in 0..25 {
            insert(&store, &tenant(number, &[])).await.expect("stored");
        }
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let mut tx = store.read().await.expect("a reader");
            let request = PageRequest { limit: 10, after };
            let page = tenants::list(&mut tx, &Scope::Everything, &TenantFilter::default(), request)
                .await
                .expect("a page");
            seen.extend(page.items.into_iter().map(|tenant| tenant.name.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }

        let expected: Vec<String> = (0..25).rev().map(|number| format!("tenant-{number}")).collect();
        assert_eq!(seen, expected, "newest first");
    }
}

#[tokio::test]
async fn a_name_is_taken_once() {
    for store in Databases::new().await.open().await {
        insert(&store, &tenant(1, &[])).await.expect("stored");
        let mut twin = tenant(2, &[]);
        twin.name = tenant(1, &[]).name;

        let outcome = insert(&store, &twin).await;

        assert!(matches!(outcome, Err(Error::Taken { .. })), "{outcome:?}");
        assert_eq!(all_names(&store).await, ["tenant-1"]);
    }
}

#[tokio::test]
async fn of_two_writers_the_second_is_told_that_it_is_late() {
    for store in Databases::new().await.open().await {
        let before = tenant(1, &[]);
        insert(&store, &before).await.expect("stored");
        let spec = || TenantSpec {
            name: before.name.clone(),
            display_name: Some("New".to_owned()),
            labels: Labels::new(),
        };
        let after = before.clone().changed(spec(), time(9));

        let mut tx = store.begin().await.expect("a transaction");
        tenants::update(&mut tx, &before, &after).await.expect("the first");
        tx.commit().await.expect("committed");
        let mut tx = store.begin().await.expect("a transaction");
        let late = tenants::update(&mut tx, &before, &after).await;
        assert!(matches!(late, Err(Error::Stale)), "{late:?}");
        let late = tenants::delete(&mut tx, &before).await;
        assert!(matches!(late, Err(Error::Stale)), "{late:?}");
    }
}

#[tokio::test]
async fn nothing_stays_of_a_transaction_that_was_dropped() {
    for store in Databases::new().await.open().await {
        let mut tx = store.begin().await.expect("a transaction");
        tenants::insert(&mut tx, &tenant(1, &[])).await.expect("inserted");
        drop(tx);
        insert(&store, &tenant(2, &[])).await.expect("stored");

        assert_eq!(all_names(&store).await, ["tenant-2"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_that_share_a_commit_do_not_share_a_fate() {
    for store in Databases::new().await.open().await {
        let writers = (0..200).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut tx = store.begin().await.expect("a transaction");
                tenants::insert(&mut tx, &tenant(number, &[])).await.expect("inserted");
                match number % 4 {
                    0 => drop(tx),
                    // The same name again fails, and takes only this transaction with it.
                    1 => assert!(tenants::insert(&mut tx, &tenant(number, &[])).await.is_err()),
                    _ => tx.commit().await.expect("committed"),
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer");
        }

        let mut expected: Vec<String> =
            (0..200).filter(|number| number % 4 > 1).map(|number| format!("tenant-{number}")).collect();
        let mut found = all_names(&store).await;
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let databases = Databases::new().await;
    let stores = databases.open().await;
    let store = &stores[0];
    {
        let mut tx = store.begin().await.expect("a transaction");
        // A few hundred KiB beyond the tables themselves, however many there are.
        let pages: Option<(i64,)> = tx.row("PRAGMA page_count", &[]).await.expect("an answer");
        let most = pages.expect("a number").0 + 60;
        tx.run_script(&format!("PRAGMA max_page_count = {most}")).await.expect("a small disk");
    }
    let writers = (0..600).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            (number, insert(&store, &tenant(number, &[("filler", &"x".repeat(900))])).await)
        })
    });
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for writer in writers.collect::<Vec<_>>() {
        match writer.await.expect("a writer") {
            (number, Ok(())) => acknowledged.push(format!("tenant-{number}")),
            (_, Err(Error::Unavailable(_))) => refused += 1,
            (number, other) => panic!("{number}: {other:?}"),
        }
    }
    assert!(
        refused > 0 && !acknowledged.is_empty(),
        "{refused} refused, {} acknowledged",
        acknowledged.len()
    );

    drop(stores);
    let reopened = Store::open(&databases.locations[0]).await.expect("an open store");
    let found = all_names(&reopened).await;
    acknowledged.sort();
    let missing: Vec<_> = acknowledged.iter().filter(|name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "acknowledged, but lost: {missing:?}");
    assert_eq!(found.len(), acknowledged.len(), "refused, but stored");
    drop(databases.folder);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_whose_writer_has_gone_is_told_all_the_same() {
    for store in Databases::new().await.open().await {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut watch = store.watch(&["tenants"]);
        let mut tx = store.begin().await.expect("a transaction");
        tenants::insert(&mut tx, &tenant(1, &[])).await.expect("inserted");
        // Polled once, then dropped, as when a client hangs up while its commit waits for the disk.
        {
            let mut commit = std::pin::pin!(tx.commit());
            let _ = futures_util::poll!(commit.as_mut());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let committed = !all_names(&store).await.is_empty();
        // PostgreSQL may have been told nothing yet when the writer went; our own committer has it in hand.
        assert!(committed || store.is_shared(), "SQLite's committer has dropped it");
        if committed {
            tokio::time::timeout(Duration::from_secs(5), watch.changed()).await.expect("awake");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_of_one_row_take_turns() {
    for store in Databases::new().await.open().await {
        let first = tenant(1, &[]);
        insert(&store, &first).await.expect("stored");
        let writers = (0..20).map(|_| {
            let (store, id) = (store.clone(), first.id);
            tokio::spawn(async move {
                let mut tx = store.begin().await.expect("a transaction");
                let before = tenants::find_to_change(&mut tx, &Scope::Everything, id)
                    .await
                    .expect("found")
                    .expect("a tenant");
                let spec =
                    TenantSpec { name: before.name.clone(), display_name: None, labels: Labels::new() };
                let after = before.clone().changed(spec, time(5));
                tenants::update(&mut tx, &before, &after).await.expect("its turn");
                tx.commit().await.expect("committed");
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("a writer");
        }
        let mut tx = store.read().await.expect("a reader");
        let last =
            tenants::find(&mut tx, &Scope::Everything, first.id).await.expect("found").expect("a tenant");
        assert_eq!(last.generation, 21);
    }
}

#[tokio::test]
async fn a_reading_transaction_changes_nothing() {
    for store in Databases::new().await.open().await {
        let mut tx = store.read().await.expect("a reader");
        let refused = tenants::insert(&mut tx, &tenant(1, &[])).await;
        assert!(matches!(refused, Err(Error::Unexpected(_))), "{refused:?}");
        assert!(all_names(&store).await.is_empty());
    }
}

#[tokio::test]
async fn sqlite_waits_for_the_disk_at_every_commit() {
    let databases = Databases::new().await;
    let stores = databases.open().await;
    let mut tx = stores[0].begin().await.expect("a transaction");
    let full: Option<(i64,)> = tx.row("PRAGMA synchronous", &[]).await.expect("an answer");
    assert_eq!(full, Some((2,)), "2 is FULL");
    let mode: Option<(String,)> = tx.row("PRAGMA journal_mode", &[]).await.expect("an answer");
    assert_eq!(mode, Some(("wal".to_owned(),)));
}

#[tokio::test]
async fn a_database_that_was_never_opened_cannot_be_joined() {
    let databases = Databases::new().await;
    for location in &databases.locations {
        assert!(matches!(Store::join(location).await, Err(Error::Older)));
        drop(Store::open(location).await.expect("made"));
        Store::join(location).await.expect("joined");
    }
}

#[tokio::test]
async fn a_commit_wakes_who_watches_its_table_and_nobody_else() {
    for store in Databases::new().await.open().await {
        // PostgreSQL's listener announces itself once; let that pass.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (mut watched, mut other) = (store.watch(&["tenants"]), store.watch(&["users"]));

        insert(&store, &tenant(1, &[])).await.expect("stored");

        tokio::time::timeout(Duration::from_secs(5), watched.changed()).await.expect("awake");
        assert!(
            tokio::time::timeout(Duration::from_millis(100), other.changed()).await.is_err(),
            "woken for nothing"
        );
    }
}

#[tokio::test]
async fn a_commit_wakes_the_other_replicas_too() {
    let location = new_postgres_database().await;
    let (here, there) =
        (Store::open(&location).await.expect("one"), Store::open(&location).await.expect("two"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut watch = there.watch(&["tenants"]);

    insert(&here, &tenant(1, &[])).await.expect("stored");

    tokio::time::timeout(Duration::from_secs(5), watch.changed()).await.expect("awake");
    assert_eq!(all_names(&there).await, ["tenant-1"]);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let databases = Databases::new().await;
    for store in databases.open().await {
        let mut tx = store.begin().await.expect("a transaction");
        let sql = "INSERT INTO migrations (version, name, checksum) VALUES ($1, $2, $3)";
        tx.execute(sql, args![999i64, "future", "?"]).await.expect("a newer version");
        tx.commit().await.expect("committed");
    }
    for location in &databases.locations {
        let refusal = Store::open(location).await.err().expect("a refusal");
        assert!(matches!(refusal, Error::Newer { found: 999, .. }), "{refusal:?}");
        assert!(refusal.to_string().contains("newer Paddock"));
    }
}

#[tokio::test]
async fn a_database_with_altered_migrations_is_refused() {
    let databases = Databases::new().await;
    for store in databases.open().await {
        let mut tx = store.begin().await.expect("a transaction");
        tx.execute("UPDATE migrations SET checksum = $1 WHERE version = 1", args!["another"])
            .await
            .expect("altered");
        tx.commit().await.expect("committed");
    }
    for location in &databases.locations {
        let refusal = Store::open(location).await.err().expect("a refusal");
        assert!(matches!(refusal, Error::Altered { version: 1 }), "{refusal:?}");
    }
}

#[tokio::test]
async fn relations_are_numbered_in_the_order_in_which_they_changed() {
    for store in Databases::new().await.open().await {
        let tuple = |object: &str, holder: &str| Tuple {
            object: Thing::parse(object).expect("a thing"),
            relation: "admin".into(),
            holder: Holder::parse(holder).expect("a holder"),
        };
        let (one, two) = (tuple("system:paddock", "user:a"), tuple("tenant:t", "group:g#member"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        store.tell_relations(move |changes| hears.lock().expect("a lock").extend_from_slice(changes));
        let mut tx = store.begin().await.expect("a transaction");
        assert!(relations::give(&mut tx, &one, time(1)).await.expect("given"));
        assert!(!relations::give(&mut tx, &one, time(2)).await.expect("an answer"), "given already");
        assert!(relations::give(&mut tx, &two, time(3)).await.expect("given"));
        relations::take_back_all(&mut tx, &one.object).await.expect("taken back");
        assert!(!relations::take_back(&mut tx, &one).await.expect("an answer"), "taken back already");
        assert_eq!(tx.relation_revision(), Some(3));
        tx.commit().await.expect("committed");

        let mut tx = store.read().await.expect("a reader");
        assert_eq!(relations::revision(&mut tx).await.expect("a revision"), 3);
        assert_eq!(relations::list(&mut tx).await.expect("a list"), std::slice::from_ref(&two));
        let expected = [(2, true, two), (3, false, one)].map(|(revision, given, tuple)| Change {
            revision,
            given,
            tuple,
        });
        if store.is_shared() {
            // Other replicas read what this one has changed.
            assert_eq!(relations::changes_since(&mut tx, 1).await.expect("changes"), expected);
        } else {
            assert_eq!(heard.lock().expect("a lock")[1..], expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_change_of_a_relation_is_missed_by_who_reads_along() {
    let store = Store::open(&new_postgres_database().await).await.expect("a store");
    {
        let writers = (0..40).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let object = Thing::new("tenant", &format!("t{number}"));
                let holder = Holder::One(Thing::new("user", "a"));
                let mut tx = store.begin().await.expect("a transaction");
                let tuple = Tuple { object, relation: "member".into(), holder };
                relations::give(&mut tx, &tuple, time(1)).await.expect("given");
                tx.commit().await.expect("committed");
            })
        });
        let writers: Vec<_> = writers.collect();
        let (mut seen, mut revision) = (0, 0);
        while seen < 40 {
            let mut tx = store.read().await.expect("a reader");
            for change in relations::changes_since(&mut tx, revision).await.expect("changes") {
                assert_eq!(change.revision, revision + 1, "a gap");
                revision = change.revision;
                seen += 1;
            }
        }
        for writer in writers {
            writer.await.expect("a writer");
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_is_forgotten_after_its_day() {
    for store in Databases::new().await.open().await {
        let key = |at| IdempotencyKey {
            subject: "user:usr_1".to_owned(),
            key: "k".to_owned(),
            fingerprint: vec![1],
            outcome: serde_json::json!({"a": 1}),
            created_at: time(at),
        };
        let mut tx = store.begin().await.expect("a transaction");
        assert!(idempotency_keys::claim(&mut tx, &key(10), time(0)).await.expect("an answer"));
        assert!(
            !idempotency_keys::claim(&mut tx, &key(20), time(0)).await.expect("an answer"),
            "it is taken"
        );
        let outcome = serde_json::json!({"b": 2});
        idempotency_keys::complete(&mut tx, "user:usr_1", "k", outcome.clone()).await.expect("kept");
        let found = idempotency_keys::find(&mut tx, "user:usr_1", "k", time(10)).await.expect("found");
        assert_eq!(found, Some(IdempotencyKey { outcome, ..key(10) }));
        assert_eq!(
            idempotency_keys::find(&mut tx, "user:usr_1", "k", time(11)).await.expect("expired"),
            None
        );
        assert!(
            idempotency_keys::claim(&mut tx, &key(30), time(11)).await.expect("an expired key gives way")
        );
        assert!(!idempotency_keys::any_expired(&mut tx, time(30)).await.expect("an answer"));
        assert!(idempotency_keys::any_expired(&mut tx, time(31)).await.expect("an answer"));
        assert_eq!(idempotency_keys::delete_expired(&mut tx, time(31)).await.expect("removed"), 1);
        tx.commit().await.expect("committed");
    }
}

#[tokio::test]
async fn a_verification_that_was_put_off_keeps_no_other_waiting() {
    for store in Databases::new().await.open().await {
        let mut tx = store.begin().await.expect("a transaction");
        for (name, queued) in [("first", 1), ("second", 2)] {
            let name = Slug::parse(name).expect("a name");
            verifications::insert(&mut tx, &name, time(queued)).await.expect("queued");
        }
        let first = verifications::next(&mut tx, 1).await.expect("a list").remove(0);
        assert_eq!(first.snapshot.as_str(), "first");
        let later = verifications::Verification { due_at: time(60), failures: 1, ..first };
        verifications::update(&mut tx, &later).await.expect("put off");
        let next = verifications::next(&mut tx, 1).await.expect("a list");
        assert_eq!(next[0].snapshot.as_str(), "second");
        // What is under way comes first, however late it is due: something of it may run.
        let booting = verifications::VerificationState::Booting;
        let begun = verifications::Verification { state: booting, ..later };
        verifications::update(&mut tx, &begun).await.expect("begun");
        let next = verifications::next(&mut tx, 1).await.expect("a list");
        assert_eq!(next[0].snapshot.as_str(), "first");
    }
}

#[tokio::test]
async fn a_lease_is_taken_only_as_it_was_seen() {
    for store in Databases::new().await.open().await {
        let mut tx = store.begin().await.expect("a transaction");
        assert!(leases::insert(&mut tx, "loops", "a", time(1)).await.expect("taken"));
        assert!(!leases::insert(&mut tx, "loops", "b", time(1)).await.expect("an answer"));
        let seen = leases::find(&mut tx, "loops").await.expect("found").expect("a lease");
        assert!(leases::take(&mut tx, "loops", "a", &seen, time(2)).await.expect("renewed"));
        assert!(
            !leases::take(&mut tx, "loops", "b", &seen, time(3)).await.expect("an answer"),
            "it has moved on"
        );
        leases::release(&mut tx, "loops", "b").await.expect("nothing of b's");
        let now = leases::find(&mut tx, "loops").await.expect("found");
        assert_eq!(now, Some(Lease { holder: "a".to_owned(), generation: 2 }));
        leases::release(&mut tx, "loops", "a").await.expect("given back");
        assert_eq!(leases::find(&mut tx, "loops").await.expect("an answer"), None);
    }
}

fn event(number: u8, tenant: Option<TenantId>) -> paddock_model::audit::Event {
    paddock_model::audit::Event {
        id: Uuid::from_u128(number.into()),
        tenant,
        number: 0,
        at: time(number.into()),
        actor: Some("user:ada".to_owned()),
        credential: None,
        credential_id: None,
        action: format!("tenants.act_{number}"),
        object: "tenant:a".to_owned(),
        outcome: paddock_model::audit::Outcome::Done,
        code: None,
        request_id: "r".to_owned(),
        address: None,
        details: r#"{"b":1,"a":"ä"}"#.to_owned(),
    }
}

/// An audit with two chains: three events of a tenant, one of the installation.
async fn with_events(store: &Store) -> TenantId {
    let tenant = TenantId(Uuid::from_u128(77));
    for (number, of) in [(1, Some(tenant)), (2, None), (3, Some(tenant)), (4, Some(tenant))] {
        let mut tx = store.begin().await.expect("a transaction");
        audit::append(&mut tx, event(number, of)).await.expect("appended");
        tx.commit().await.expect("committed");
    }
    tenant
}

#[tokio::test]
async fn any_change_of_the_audit_is_noticed() {
    for (change, broken_at) in [
        ("UPDATE audit_events SET action = 'tenants.read' WHERE number = 2", Some(2)),
        ("UPDATE audit_events SET actor = NULL WHERE number = 1", Some(1)),
        ("DELETE FROM audit_events WHERE number = 2", Some(2)),
        ("DELETE FROM audit_events WHERE number = 3", Some(3)),
        ("UPDATE audit_chains SET number = 2 WHERE number = 3", Some(3)),
        ("DELETE FROM audit_chains WHERE number = 3", Some(1)),
        ("UPDATE audit_chains SET number = 3 WHERE chain = 'none'", None),
    ] {
        for store in Databases::new().await.open().await {
            let tenant = with_events(&store).await;
            let mut tx = store.read().await.expect("a reader");
            let whole = audit::verify(&mut tx).await.expect("verified");
            assert_eq!(whole.iter().map(|chain| chain.events).collect::<Vec<_>>(), [1, 3]);
            assert!(whole.iter().all(|chain| chain.broken_at.is_none()), "{whole:?}");
            drop(tx);

            let mut tx = store.begin().await.expect("a transaction");
            tx.execute(change, &[]).await.expect("changed");
            tx.commit().await.expect("committed");

            let mut tx = store.read().await.expect("a reader");
            let verified = audit::verify(&mut tx).await.expect("verified");
            let chain = verified.iter().find(|chain| chain.tenant == Some(tenant)).expect("the chain");
            assert_eq!(chain.broken_at, broken_at, "{change}");
        }
    }
}

#[tokio::test]
async fn events_written_at_once_make_one_chain() {
    for store in Databases::new().await.open().await {
        let tenant = TenantId(Uuid::from_u128(77));
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..40 {
            let store = store.clone();
            writers.spawn(async move {
                let mut tx = store.begin().await.expect("a transaction");
                audit::append(&mut tx, event(number, Some(tenant))).await.expect("appended");
                tx.commit().await.expect("committed");
            });
        }
        while let Some(done) = writers.join_next().await {
            done.expect("written");
        }
        let mut tx = store.read().await.expect("a reader");
        let verified = audit::verify(&mut tx).await.expect("verified");
        assert_eq!(
            verified,
            [paddock_model::audit::Verified { tenant: Some(tenant), events: 40, broken_at: None }]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_audit_that_is_written_to_is_whole() {
    for store in Databases::new().await.open().await {
        let tenant = TenantId(Uuid::from_u128(77));
        let writer = tokio::spawn({
            let store = store.clone();
            async move {
                for number in 0..=u8::MAX {
                    let mut tx = store.begin().await.expect("a transaction");
                    let of = (number % 2 == 0).then_some(tenant);
                    audit::append(&mut tx, event(number, of)).await.expect("appended");
                    tx.commit().await.expect("committed");
                }
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() {
            let mut tx = store.read().await.expect("a reader");
            let verified = audit::verify(&mut tx).await.expect("verified");
            assert!(verified.iter().all(|chain| chain.broken_at.is_none()), "{verified:?}");
            rounds += 1;
        }
        assert!(rounds > 1, "nothing was written meanwhile");
        writer.await.expect("written");
    }
}

#[tokio::test]
async fn what_goes_away_takes_back_all_that_was_given_on_it_in_one_block() {
    for store in Databases::new().await.open().await {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        store.tell_relations(move |changes| hears.lock().expect("a lock").extend_from_slice(changes));
        let object = Thing::new("tenant", "t");
        let mut tx = store.begin().await.expect("a transaction");
        for number in 0..300 {
            let holder = Holder::One(Thing::new("user", &format!("u{number}")));
            let relation = ["admin", "member"][number % 2].into();
            let tuple = Tuple { object: object.clone(), relation, holder };
            relations::give(&mut tx, &tuple, time(1)).await.expect("given");
        }
        let other = Tuple {
            object: Thing::new("tenant", "other"),
            relation: "member".into(),
            holder: Holder::One(Thing::new("user", "u1")),
        };
        relations::give(&mut tx, &other, time(1)).await.expect("given");
        tx.commit().await.expect("committed");

        let mut tx = store.begin().await.expect("a transaction");
        relations::take_back_all(&mut tx, &object).await.expect("taken back");
        assert_eq!(tx.relation_revision(), Some(601));
        tx.commit().await.expect("committed");

        let mut tx = store.read().await.expect("a reader");
        assert_eq!(relations::revision(&mut tx).await.expect("a revision"), 601);
        assert_eq!(relations::list(&mut tx).await.expect("a list"), [other]);
        let changes = if store.is_shared() {
            relations::changes_since(&mut tx, 301).await.expect("changes")
        } else {
            heard.lock().expect("a lock")[301..].to_vec()
        };
        assert_eq!(changes.len(), 300);
        let mut gone = std::collections::HashSet::new();
        for (change, revision) in changes.into_iter().zip(302..) {
            assert_eq!((change.revision, change.given), (revision, false));
            assert!(gone.insert(change.tuple), "twice");
        }
    }
}

#[tokio::test]
async fn a_holder_is_found_by_its_name_alone() {
    for store in Databases::new().await.open().await {
        let object = Thing::new("tenant", "t");
        let holder = |name: &str| Holder::One(Thing::new("service_account", name));
        let mut tx = store.begin().await.expect("a transaction");
        for name in ["c/ci/\u{fc}", "c/ci/a", "c/ci/ab"] {
            let tuple = Tuple { object: object.clone(), relation: "member".into(), holder: holder(name) };
            relations::give(&mut tx, &tuple, time(1)).await.expect("given");
        }
        for (name, relation, there) in [
            ("c/ci/\u{fc}", "member", true),
            ("c/ci/a", "member", true),
            ("c/ci/a", "admin", false),
            ("c/ci/b", "member", false),
        ] {
            let found = relations::find_holder(&mut tx, &object, [relation; 4], &holder(name)).await;
            assert_eq!(found.expect("an answer").is_some(), there, "{name} {relation}");
        }
    }
}

#[tokio::test]
async fn events_are_found_by_the_time_of_their_ids() {
    for store in Databases::new().await.open().await {
        let tenant = TenantId(Uuid::from_u128(77));
        let mut tx = store.begin().await.expect("a transaction");
        // A microsecond apart, across the border of a millisecond.
        for number in 0..4 {
            let at = time(998 + i64::from(number));
            let id = paddock_model::id::uuid_v7(at, &SeededRandom::new(number.into()));
            let event = paddock_model::audit::Event { id, at, ..event(number, Some(tenant)) };
            audit::append(&mut tx, event).await.expect("appended");
        }
        tx.commit().await.expect("committed");
        for (since, until, expected) in [
            (Some(999), None, vec![3, 2, 1]),
            (Some(1001), None, vec![3]),
            (None, Some(1000), vec![1, 0]),
            (Some(999), Some(1001), vec![2, 1]),
            (Some(5000), None, vec![]),
        ] {
            let filter = paddock_model::audit::EventFilter {
                since: since.map(time),
                until: until.map(time),
                ..Default::default()
            };
            let page = PageRequest { limit: 10, after: None };
            let mut tx = store.read().await.expect("a reader");
            let found = audit::list(&mut tx, &Scope::Everything, &filter, page).await.expect("a list");
            let actions: Vec<String> = found.items.into_iter().map(|event| event.action).collect();
            let expected: Vec<String> =
                expected.iter().map(|number| format!("tenants.act_{number}")).collect();
            assert_eq!(actions, expected, "{since:?} {until:?}");
        }
    }
}

fn roll(random: &SeededRandom, sides: usize) -> usize {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_be_bytes(bytes) as usize % sides
}

fn one_of<T: Clone>(random: &SeededRandom, things: &[T]) -> T {
    things[roll(random, things.len())].clone()
}

/// What a job has left, drawn at random; most of it fits each other.
fn left_behind(
    random: &SeededRandom,
    number: i64,
    tenants: &[TenantId],
    layer: LayerId,
) -> (Snapshot, JobOrigin) {
    let rarely = || roll(random, 8) == 0;
    let keys = ["a", "ab", "abc", "ab*", "b", "ä", "äb", "A", "a\u{ff}", "\u{10ffff}", "b/c d"];
    let key = if rarely() { None } else { Some(one_of(random, &keys).to_owned()) };
    let job = JobOrigin {
        project: one_of(random, &[None, Some("p"), Some("q")]).map(str::to_owned),
        reference: one_of(random, &[None, Some("main"), Some("dev")]).map(str::to_owned),
        ref_protected: None,
        commit: None,
        job_id: None,
        outcome: Outcome::Success,
        key,
    };
    let image = Image {
        name: "phone".to_owned(),
        device_type: if rarely() { DeviceType::Tv } else { DeviceType::Phone },
        android_version: "14".to_owned(),
        abi: if rarely() { "arm64" } else { "x86_64" }.to_owned(),
        memory_bytes: 1,
        cpus: 1,
        capabilities: Vec::new(),
        disk: "none".into(),
    };
    let snapshot = Snapshot {
        name: Slug::parse(&format!("left-{number}")).expect("a name"),
        // Not in the order in which they are inserted.
        id: paddock_model::id::uuid_v7(time(roll(random, 1 << 30) as i64), random),
        tenant: Some(if rarely() { tenants[1] } else { tenants[0] }),
        parent: None,
        layer,
        state: if rarely() { one_of(random, &SnapshotState::ALL) } else { SnapshotState::Ready },
        problems: if rarely() { vec!["chain_too_deep".to_owned()] } else { Vec::new() },
        fault: None,
        image,
        rooted_at: None,
        rooted_by: None,
        origin: Origin::Ci { emulator: EmulatorId(Uuid::nil()), job: job.clone() },
        group: None,
        trust: one_of(random, &Trust::ALL),
        consistency: None,
        verified: None,
        labels: Labels::new(),
        created_by: None,
        created_at: time(0),
        updated_at: time(0),
        last_used_at: None,
        use_count: 0,
        generation: 1,
    };
    (snapshot, job)
}

/// The rule in plain words, over everything there is.
fn naively(all: &[(Snapshot, JobOrigin)], fit: Fit<'_>, clue: &Clue) -> Option<Slug> {
    let fits = |(snapshot, job): &&(Snapshot, JobOrigin)| {
        let matches = match clue {
            Clue::Key(key) => job.key.as_ref() == Some(key),
            Clue::Prefix(prefix) => {
                job.key.as_ref().is_some_and(|key| key.as_bytes().starts_with(prefix.as_bytes()))
            }
            Clue::Branch { project, reference } => {
                job.project.as_ref() == Some(project) && job.reference.as_ref() == Some(reference)
            }
        };
        matches
            && snapshot.tenant == Some(fit.tenant)
            && snapshot.image.device_type == fit.device_type
            && snapshot.image.abi == fit.abi
            && snapshot.trust >= fit.trust
            && snapshot.is_deployable()
    };
    let newest = all.iter().filter(fits).max_by_key(|(snapshot, _)| snapshot.id);
    newest.map(|(snapshot, _)| snapshot.name.clone())
}

#[tokio::test]
async fn what_jobs_left_is_found_as_a_naive_search_finds_it() {
    let random = SeededRandom::new(16);
    let (ours, theirs) = (tenant(1, &[]), tenant(2, &[]));
    let layer = LayerId::new(time(0), &random);
    let mut all: Vec<(Snapshot, JobOrigin)> =
        (0..1500).map(|number| left_behind(&random, number, &[ours.id, theirs.id], layer)).collect();
    let stores = Databases::new().await.open().await;
    for store in &stores {
        for tenant in [&ours, &theirs] {
            insert(store, tenant).await.expect("stored");
        }
        let mut tx = store.begin().await.expect("a transaction");
        layers::insert(&mut tx, &NewLayer::new(layer, None, LayerState::Ready), time(0))
            .await
            .expect("a layer");
        for (snapshot, job) in &all {
            assert!(snapshots::insert(&mut tx, snapshot).await.expect("stored"));
            restore_points::insert(&mut tx, snapshot, job).await.expect("stored");
        }
        tx.commit().await.expect("kept");
    }
    let mut hits = 0;
    for round in 0..600 {
        if round == 300 {
            // Some go, and with them what they are found by.
            let (gone, left) =
                all.into_iter().partition(|(snapshot, _)| snapshot.state == SnapshotState::Deleting);
            all = left;
            let gone: Vec<(Snapshot, JobOrigin)> = gone;
            assert!(!gone.is_empty());
            for store in &stores {
                let mut tx = store.begin().await.expect("a transaction");
                for (snapshot, _) in &gone {
                    snapshots::delete(&mut tx, snapshot).await.expect("gone");
                }
                tx.commit().await.expect("kept");
            }
        }
        let text = one_of(
            &random,
            &["", "a", "ab", "ab*", "abc", "ä", "A", "b", "b/", "a\u{ff}", "zz", "\u{10ffff}"],
        );
        let clue = match roll(&random, 3) {
            0 => Clue::Key(text.to_owned()),
            1 => Clue::Prefix(text.to_owned()),
            _ => Clue::Branch {
                project: one_of(&random, &["p", "q", "r"]).to_owned(),
                reference: one_of(&random, &["main", "dev"]).to_owned(),
            },
        };
        let fit = Fit {
            tenant: one_of(&random, &[ours.id, ours.id, theirs.id]),
            device_type: one_of(&random, &[DeviceType::Phone, DeviceType::Phone, DeviceType::Tv]),
            abi: one_of(&random, &["x86_64", "x86_64", "arm64"]),
            trust: one_of(&random, &Trust::ALL),
        };
        let expected = naively(&all, fit, &clue);
        hits += usize::from(expected.is_some());
        for store in &stores {
            let mut tx = store.read().await.expect("a reader");
            let found = restore_points::newest(&mut tx, fit, &clue).await.expect("a look");
            assert_eq!(found, expected, "{fit:?} {clue:?}");
        }
    }
    assert!(hits > 100, "only {hits} were found");
}

/// Every look goes straight to what it is about, by an index, and never through all that there is.
#[tokio::test]
async fn a_look_for_what_a_job_left_is_indexed() {
    let databases = Databases::new().await;
    let stores = databases.open().await;
    let mut tx = stores[0].begin().await.expect("a transaction");
    let source = include_str!("restore_points.rs");
    let looks: Vec<String> =
        statements(source).into_iter().filter(|text| text.starts_with("SELECT")).collect();
    assert_eq!(looks.len(), 4);
    for (look, index) in looks.iter().zip(["by_key", "by_ref", "by_age", "by_key"]) {
        let values = vec![Value::Null; (1..9).filter(|number| look.contains(&format!("${number}"))).count()];
        let plan: Vec<(i64, i64, i64, String)> =
            tx.rows(&format!("EXPLAIN QUERY PLAN {look}"), &values).await.expect("a plan");
        let steps: Vec<String> = plan.into_iter().map(|(_, _, _, step)| step).collect();
        let by =
            format!("USING INDEX restore_points_{index} (tenant=? AND device_type=? AND abi=? AND trust=?");
        let by_covering = by.replace("INDEX", "COVERING INDEX");
        let indexed = steps.iter().any(|step| step.contains(&by) || step.contains(&by_covering));
        assert!(indexed, "{look}: {steps:#?}");
    }
}

/// Whoever works on memory that is to go meanwhile does not bring it back under its name, which somebody else may use by then.
#[tokio::test]
async fn memory_that_is_to_go_stays_so() {
    for store in Databases::new().await.open().await {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let name = Slug::parse("warm").expect("a name");
        let template = Template {
            id: TemplateId(Uuid::from_u128(1)),
            snapshot: name.clone(),
            state: TemplateState::Made,
            fingerprint: None,
            allocated_bytes: 0,
            proved_at: None,
            resume_ms: None,
            reason: None,
            trial: None,
            deadline_at: now,
            due_at: None,
            failures: 0,
            created_at: now,
        };
        let mut tx = store.begin().await.expect("a transaction");
        templates::insert(&mut tx, &template).await.expect("wanted");
        assert!(templates::update(&mut tx, &template).await.expect("made"));
        templates::let_go(&mut tx, &name, now).await.expect("let go");
        let ready = Template { state: TemplateState::Ready, ..template };

        assert!(!templates::update(&mut tx, &ready).await.expect("too late"));

        assert_eq!(templates::of_snapshot(&mut tx, &name).await.expect("looked"), None);
        let due = templates::due(&mut tx, now, 10).await.expect("looked");
        assert_eq!(due.iter().map(|found| found.state).collect::<Vec<_>>(), [TemplateState::Removing]);
    }
}
