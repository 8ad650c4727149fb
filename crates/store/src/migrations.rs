//! Brings a database to the tables that this program knows, one numbered text after another, each in one commit.

use ring::digest;

use crate::{Database, Error, Result, Store, Tx, args};

struct Migration {
    name: &'static str,
    script: &'static str,
}

/// In order; the first is version 1. A text that was released is never changed.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "house", script: include_str!("../migrations/0001_house.sql") },
    Migration { name: "relations", script: include_str!("../migrations/0002_relations.sql") },
    Migration { name: "identity", script: include_str!("../migrations/0003_identity.sql") },
    Migration { name: "sign_in", script: include_str!("../migrations/0004_sign_in.sql") },
    Migration { name: "devices", script: include_str!("../migrations/0005_devices.sql") },
    Migration { name: "sign_in_failures", script: include_str!("../migrations/0006_sign_in_failures.sql") },
    Migration { name: "user_home", script: include_str!("../migrations/0007_user_home.sql") },
    Migration { name: "snapshots", script: include_str!("../migrations/0008_snapshots.sql") },
    Migration { name: "tickets", script: include_str!("../migrations/0009_tickets.sql") },
    Migration { name: "disk_usage", script: include_str!("../migrations/0010_disk_usage.sql") },
    Migration { name: "logs", script: include_str!("../migrations/0011_logs.sql") },
    Migration { name: "imports", script: include_str!("../migrations/0012_imports.sql") },
    Migration { name: "retention", script: include_str!("../migrations/0013_retention.sql") },
    Migration { name: "ci", script: include_str!("../migrations/0014_ci.sql") },
    Migration { name: "consolidations", script: include_str!("../migrations/0015_consolidations.sql") },
    Migration { name: "templates", script: include_str!("../migrations/0016_templates.sql") },
    Migration { name: "backups", script: include_str!("../migrations/0017_backups.sql") },
    Migration { name: "vehicles", script: include_str!("../migrations/0018_vehicles.sql") },
    Migration { name: "scopes", script: include_str!("../migrations/0019_scopes.sql") },
];

const JOURNAL: &str = "
    CREATE TABLE IF NOT EXISTS migrations (
        version    BIGINT PRIMARY KEY,
        name       TEXT   NOT NULL,
        checksum   TEXT   NOT NULL
    )";

const APPLIED: &str = "
    SELECT version, checksum FROM migrations ORDER BY version";

const RECORD: &str = "
    INSERT INTO migrations (version, name, checksum) VALUES ($1, $2, $3)";

/// Any number, but the same in every replica: only one of them migrates at a time.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7239401)";

/// Brings the tables up to date; writes nothing where they are.
pub(crate) async fn apply(store: &Store) -> Result<()> {
    if is_current(store).await? {
        return Ok(());
    }
    let mut tx = store.begin().await?;
    if matches!(store.database, Database::Postgres(_)) {
        tx.run_script(LOCK).await?;
    }
    tx.run_script(JOURNAL).await?;
    let applied: Vec<(i64, String)> = tx.rows(APPLIED, &[]).await?;
    check(&applied)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(applied.len()) {
        let version = index as i64 + 1;
        run(&mut tx, version, migration).await?;
        tracing::info!(version, name = migration.name, "brought the database up to date");
    }
    tx.commit().await
}

/// Whether the tables are those that this program knows; an error if they are of no use to it.
pub(crate) async fn is_current(store: &Store) -> Result<bool> {
    let applied: Vec<(i64, String)> = match store.read().await?.rows(APPLIED, &[]).await {
        Ok(applied) => applied,
        // The journal itself is not there yet.
        Err(Error::Unexpected(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    check(&applied)?;
    Ok(applied.len() == MIGRATIONS.len())
}

async fn run(tx: &mut Tx, version: i64, migration: &Migration) -> Result<()> {
    tx.run_script(migration.script).await?;
    tx.execute(RECORD, args![version, migration.name, checksum(migration.script)]).await?;
    Ok(())
}

fn check(applied: &[(i64, String)]) -> Result<()> {
    let known = MIGRATIONS.len() as i64;
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > known) {
        return Err(Error::Newer { found: *found, known });
    }
    for (at, (version, sum)) in applied.iter().enumerate() {
        if *version != at as i64 + 1 || *sum != checksum(MIGRATIONS[at].script) {
            return Err(Error::Altered { version: *version });
        }
    }
    Ok(())
}

fn checksum(script: &str) -> String {
    let sum = digest::digest(&digest::SHA256, script.as_bytes());
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
