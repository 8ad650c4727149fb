//! Emulators: what is wanted of each device, and what was last seen of it.

use paddock_model::Timestamp;
use paddock_model::devices::DeviceType;
use paddock_model::emulators::{
    Cause, Emulator, EmulatorFilter, EmulatorId, EmulatorScope, Reason, Seen, Wanted,
};
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::streams::Standing;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use crate::memory::Key;
use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, tenant, owner, name, labels, device_type, android_version, memory_bytes, cpus, snapshot, snapshot_parent,
        image, disk, previous, discarded, capturing, job, identity, slot, wanted, incarnation, cause, phase, phase_incarnation, phase_since, disk_ready_at,
        started_at, boot_duration_ms, failed_at, reason_code, reason_message, unsettled, due_at, failures, expires_at,
        idle_timeout_seconds, active_at, created_at, updated_at, terminated_at, generation, start_from, vehicle FROM emulators";

const FIND: &str = "
    SELECT id, tenant, owner, name, labels, device_type, android_version, memory_bytes, cpus, snapshot, snapshot_parent,
        image, disk, previous, discarded, capturing, job, identity, slot, wanted, incarnation, cause, phase, phase_incarnation, phase_since, disk_ready_at,
        started_at, boot_duration_ms, failed_at, reason_code, reason_message, unsettled, due_at, failures, expires_at,
        idle_timeout_seconds, active_at, created_at, updated_at, terminated_at, generation, start_from, vehicle FROM emulators WHERE id = $1";

/// Those with which something is to be done by now, the longest overdue first.
const DUE: &str = "
    SELECT id FROM emulators WHERE unsettled = 1 AND due_at <= $1 ORDER BY due_at LIMIT $2";

const NEXT_DUE: &str = "
    SELECT due_at FROM emulators WHERE unsettled = 1 ORDER BY due_at LIMIT 1";

/// All that are not gone, a part at a time.
const ALIVE: &str = "
    SELECT id FROM emulators WHERE terminated_at IS NULL AND id > $1 ORDER BY id LIMIT $2";

/// Those that have a car, a part at a time.
const WITH_VEHICLE: &str = "
    SELECT id FROM emulators WHERE vehicle IS NOT NULL AND terminated_at IS NULL AND id > $1 ORDER BY id LIMIT $2";

const EXPIRED: &str = "
    SELECT id FROM emulators WHERE expires_at <= $1 LIMIT $2";

const NEXT_EXPIRY: &str = "
    SELECT expires_at FROM emulators WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

const IDLE: &str = "
    SELECT id FROM emulators WHERE idle_timeout_seconds IS NOT NULL AND wanted = 'running' AND status = 'running'";

const TOMBSTONES: &str = "
    SELECT id FROM emulators WHERE terminated_at < $1 LIMIT $2";

const DELETE: &str = "
    DELETE FROM emulators WHERE id = $1 AND terminated_at IS NOT NULL";

const NAMES: &str = "
    SELECT name FROM emulators WHERE tenant = $1 AND terminated_at IS NULL ORDER BY name LIMIT $2";

const STANDINGS: &str = "
    SELECT id, wanted, incarnation, phase, phase_incarnation, failed_at, terminated_at FROM emulators";

/// Its generation stays: it is no other than it was, somebody only uses it.
const RECORD_USE: &str = "
    UPDATE emulators SET active_at = $2 WHERE id = $1 AND active_at < $2 AND wanted = 'running'";

const INSERT: &str = "
    INSERT INTO emulators (id, tenant, owner, name, labels, device_type, android_version, memory_bytes, cpus, snapshot,
        snapshot_parent, image, disk, previous, discarded, capturing, job, identity, slot, wanted, incarnation, cause, phase, phase_incarnation, phase_since,
        disk_ready_at, started_at, boot_duration_ms, failed_at, reason_code, reason_message, status, unsettled, due_at, failures,
        expires_at, idle_timeout_seconds, active_at, created_at, updated_at, terminated_at, generation, start_from, vehicle)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
        $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE emulators SET slot = $3, wanted = $4, incarnation = $5, cause = $6, phase = $7, phase_incarnation = $8, phase_since = $9,
        disk_ready_at = $10, started_at = $11, boot_duration_ms = $12, failed_at = $13, reason_code = $14, reason_message = $15,
        status = $16, unsettled = $17, due_at = $18, failures = $19, expires_at = $20, active_at = $21, updated_at = $22,
        terminated_at = $23, generation = $24, snapshot = $25, snapshot_parent = $26, image = $27, android_version = $28,
        disk = $29, previous = $30, discarded = $31, capturing = $32, job = $33, start_from = $34, vehicle = $35
    WHERE id = $1 AND generation = $2";

pub async fn list(
    tx: &mut Tx,
    scope: &EmulatorScope,
    filter: &EmulatorFilter,
    page: PageRequest,
) -> Result<Page<Emulator>> {
    let mut select = Select::new(LIST);
    select.seen_by(scope);
    if let Some(tenant) = filter.tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    match filter.status {
        Some(status) => select.and("status = ?", [Value::String(status.name().to_owned())]),
        // Tombstones answer to their id alone.
        None => select.and("status <> 'terminated'", []),
    }
    if let Some(snapshot) = &filter.snapshot {
        select.and("snapshot = ?", [Value::String(snapshot.clone())]);
    }
    if let Some(name) = &filter.name {
        select.and("name = ?", [Value::String(name.clone())]);
    }
    select.labelled(&filter.labels);
    let emulators = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(emulators, &page, |emulator: &Emulator| emulator.id.0))
}

pub async fn find(tx: &mut Tx, scope: &EmulatorScope, id: EmulatorId) -> Result<Option<Emulator>> {
    Ok(find_any(tx, id).await?.filter(|emulator| scope.covers(emulator)))
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, scope: &EmulatorScope, id: EmulatorId) -> Result<Option<Emulator>> {
    Ok(tx.row_to_change(FIND, args![id]).await?.filter(|emulator: &Emulator| scope.covers(emulator)))
}

/// For loops, which look after everyone's.
pub async fn find_any(tx: &mut Tx, id: EmulatorId) -> Result<Option<Emulator>> {
    tx.remembered(Key("emulators", id.0), FIND, || [id.into()]).await
}

/// The same, for a transaction that goes on to change it.
pub async fn find_any_to_change(tx: &mut Tx, id: EmulatorId) -> Result<Option<Emulator>> {
    tx.row_to_change(FIND, args![id]).await
}

pub async fn due(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<EmulatorId>> {
    Ok(ids(tx.rows(DUE, args![now, most]).await?))
}

pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_DUE, &[]).await?.map(|(at,)| at))
}

pub async fn alive(tx: &mut Tx, after: Option<EmulatorId>, most: i64) -> Result<Vec<EmulatorId>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    Ok(ids(tx.rows(ALIVE, args![after, most]).await?))
}

pub async fn with_vehicle(tx: &mut Tx, after: Option<EmulatorId>, most: i64) -> Result<Vec<EmulatorId>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    Ok(ids(tx.rows(WITH_VEHICLE, args![after, most]).await?))
}

pub async fn expired(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<EmulatorId>> {
    Ok(ids(tx.rows(EXPIRED, args![now, most]).await?))
}

pub async fn next_expiry(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_EXPIRY, &[]).await?.map(|(at,)| at))
}

/// Those that run and are to be parked when nobody uses them.
pub async fn watched_for_idleness(tx: &mut Tx) -> Result<Vec<EmulatorId>> {
    Ok(ids(tx.rows(IDLE, &[]).await?))
}

/// Those that have been gone since before this time.
pub async fn tombstones(tx: &mut Tx, oldest: Timestamp, most: i64) -> Result<Vec<EmulatorId>> {
    Ok(ids(tx.rows(TOMBSTONES, args![oldest, most]).await?))
}

/// Forgets one that is gone.
pub async fn delete(tx: &mut Tx, id: EmulatorId) -> Result<()> {
    tx.execute_one(DELETE, args![id]).await
}

/// How these stand, as far as it concerns their streams; those that are not there any more are left out.
pub async fn standings(tx: &mut Tx, ids: &[EmulatorId]) -> Result<Vec<Standing>> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(AT_ONCE) {
        let mut select = Select::new(STANDINGS);
        select.one_of("id", part.iter().map(|id| Value::Uuid(id.0)));
        found.extend(tx.rows_of::<Standing>(select.all()).await?);
    }
    Ok(found)
}

/// Says that somebody uses it.
pub async fn record_use(tx: &mut Tx, id: EmulatorId, now: Timestamp) -> Result<()> {
    tx.execute(RECORD_USE, args![id, now]).await.map(drop)
}

/// The first few names in a tenant.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

pub async fn insert(tx: &mut Tx, emulator: &Emulator) -> Result<()> {
    let owner = emulator.owner.to_string();
    let args = args![
        emulator.id,
        emulator.tenant,
        owner,
        &emulator.name,
        &emulator.labels,
        emulator.device_type.name(),
        &emulator.android_version,
        emulator.memory_bytes,
        emulator.cpus,
        &emulator.snapshot,
        emulator.snapshot_parent.as_ref(),
        &emulator.image,
        emulator.disk,
        emulator.previous.as_ref().map(|previous| serde_json::json!(previous)),
        emulator.discarded,
        emulator.capturing.as_ref(),
        emulator.job.as_ref().map(|job| serde_json::json!(job)),
        serde_json::json!(emulator.identity),
        emulator.slot,
        emulator.wanted.name(),
        emulator.incarnation,
        emulator.cause.name(),
        emulator.seen.name(),
        emulator.seen_incarnation,
        emulator.seen_since,
        emulator.disk_ready_at,
        emulator.started_at,
        emulator.boot_duration_ms,
        emulator.failed_at,
        emulator.reason.as_ref().map(|reason| reason.code.as_str()),
        emulator.reason.as_ref().map(|reason| reason.message.as_str()),
        emulator.status().name(),
        i64::from(emulator.unsettled),
        emulator.due_at,
        emulator.failures,
        emulator.expires_at,
        emulator.idle_timeout_seconds,
        emulator.active_at,
        emulator.created_at,
        emulator.updated_at,
        emulator.terminated_at,
        emulator.generation,
        serde_json::json!(emulator.start),
        emulator.vehicle
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &Emulator, after: &Emulator) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        after.slot,
        after.wanted.name(),
        after.incarnation,
        after.cause.name(),
        after.seen.name(),
        after.seen_incarnation,
        after.seen_since,
        after.disk_ready_at,
        after.started_at,
        after.boot_duration_ms,
        after.failed_at,
        after.reason.as_ref().map(|reason| reason.code.as_str()),
        after.reason.as_ref().map(|reason| reason.message.as_str()),
        after.status().name(),
        i64::from(after.unsettled),
        after.due_at,
        after.failures,
        after.expires_at,
        after.active_at,
        after.updated_at,
        after.terminated_at,
        after.generation,
        &after.snapshot,
        after.snapshot_parent.as_ref(),
        &after.image,
        &after.android_version,
        after.disk,
        after.previous.as_ref().map(|previous| serde_json::json!(previous)),
        after.discarded,
        after.capturing.as_ref(),
        after.job.as_ref().map(|job| serde_json::json!(job)),
        serde_json::json!(after.start),
        after.vehicle
    ];
    tx.execute_one(UPDATE, args).await
}

impl Select {
    fn seen_by(&mut self, scope: &EmulatorScope) {
        let Scope::Tenants(all_of) = &scope.all_of else { return };
        let (mut places, mut values) = (Vec::new(), Vec::new());
        let mut one_of = |column: &str, ids: &mut dyn Iterator<Item = Uuid>| {
            let before = values.len();
            values.extend(ids.map(Value::Uuid));
            let marks = vec!["?"; values.len() - before].join(", ");
            (values.len() > before).then(|| format!("{column} IN ({marks})"))
        };
        places.extend(one_of("tenant", &mut all_of.iter().map(|id| id.0)));
        let (own_in, everywhere) = match &scope.own_in {
            Scope::Everything => (None, true),
            Scope::Tenants(tenants) => (one_of("tenant", &mut tenants.iter().map(|id| id.0)), false),
        };
        if own_in.is_some() || everywhere {
            let granted = one_of("id", &mut scope.granted.iter().map(|id| id.0));
            let mine = granted.map_or("owner = ?".to_owned(), |granted| format!("({granted} OR owner = ?)"));
            values.push(Value::String(scope.owner.to_string()));
            places.push(match own_in {
                Some(own_in) => format!("({own_in} AND {mine})"),
                None => mine,
            });
        }
        if places.is_empty() {
            self.and("1 = 0", []);
        } else {
            self.and(&format!("({})", places.join(" OR ")), values);
        }
    }
}

fn ids(rows: Vec<(EmulatorId,)>) -> Vec<EmulatorId> {
    rows.into_iter().map(|(id,)| id).collect()
}

impl FromRow for Standing {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Standing {
            id: row.take()?,
            wanted: row.take_text(Wanted::parse)?,
            incarnation: row.take()?,
            seen: row.take_text(Seen::parse)?,
            seen_incarnation: row.take()?,
            failed: row.take_optional::<Timestamp>()?.is_some(),
            terminated: row.take_optional::<Timestamp>()?.is_some(),
        })
    }
}

impl FromRow for Emulator {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Emulator {
            id: row.take()?,
            tenant: row.take()?,
            owner: row.take_text(Subject::parse)?,
            name: row.take()?,
            labels: row.take_json()?,
            device_type: row.take_text(DeviceType::parse)?,
            android_version: row.take()?,
            memory_bytes: row.take()?,
            cpus: row.take()?,
            snapshot: row.take_text(Slug::parse)?,
            snapshot_parent: row.take_optional_text(Slug::parse)?,
            image: row.take()?,
            disk: row.take()?,
            previous: row.take_optional_json()?,
            discarded: row.take_optional()?,
            capturing: row.take_optional_text(Slug::parse)?,
            job: row.take_optional_json()?,
            identity: row.take_json()?,
            slot: row.take_optional()?,
            wanted: row.take_text(Wanted::parse)?,
            incarnation: row.take()?,
            cause: row.take_text(Cause::parse)?,
            seen: row.take_text(Seen::parse)?,
            seen_incarnation: row.take()?,
            seen_since: row.take()?,
            disk_ready_at: row.take_optional()?,
            started_at: row.take_optional()?,
            boot_duration_ms: row.take_optional()?,
            failed_at: row.take_optional()?,
            reason: match (row.take_optional()?, row.take_optional()?) {
                (Some(code), Some(message)) => Some(Reason { code, message }),
                _ => None,
            },
            unsettled: row.take::<i64>()? == 1,
            due_at: row.take()?,
            failures: row.take()?,
            expires_at: row.take_optional()?,
            idle_timeout_seconds: row.take_optional()?,
            active_at: row.take()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            terminated_at: row.take_optional()?,
            generation: row.take()?,
            start: row.take_optional_json()?.unwrap_or_default(),
            vehicle: row.take_optional()?,
        })
    }
}
