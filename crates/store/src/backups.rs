//! Backups: what each is of, how far it has come, and where it is kept.

use paddock_model::Timestamp;
use paddock_model::backups::{Backup, BackupFilter, BackupId, BackupPhase, OwnedScope};
use paddock_model::drivers::backup_repositories::KnownContent;
use paddock_model::layers::LayerId;
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args, layers};

const LIST: &str = "
    SELECT id, tenant, owner, source, layer, held_layer, heritage, labels, phase, bytes_done, bytes_total, location, stored, checksum, disk_bytes, added_bytes,
        error, failures, due_at, started_at, completed_at, expires_at, created_at, updated_at, generation FROM backups";

const FIND: &str = "
    SELECT id, tenant, owner, source, layer, held_layer, heritage, labels, phase, bytes_done, bytes_total, location, stored, checksum, disk_bytes, added_bytes,
        error, failures, due_at, started_at, completed_at, expires_at, created_at, updated_at, generation FROM backups WHERE id = $1";

/// Those with which something is to be done by now, the longest overdue first.
const UNDER_WAY: &str = "
    SELECT id, tenant, owner, source, layer, held_layer, heritage, labels, phase, bytes_done, bytes_total, location, stored, checksum, disk_bytes, added_bytes,
        error, failures, due_at, started_at, completed_at, expires_at, created_at, updated_at, generation FROM backups
    WHERE phase IN ('running', 'deleting') AND due_at <= $1 ORDER BY due_at LIMIT $2";

const QUEUED: &str = "
    SELECT id, tenant, owner, source, layer, held_layer, heritage, labels, phase, bytes_done, bytes_total, location, stored, checksum, disk_bytes, added_bytes,
        error, failures, due_at, started_at, completed_at, expires_at, created_at, updated_at, generation FROM backups
    WHERE phase = 'queued' AND due_at <= $1 ORDER BY due_at LIMIT $2";

const NEXT_DUE: &str = "
    SELECT due_at FROM backups WHERE phase IN ('queued', 'running', 'deleting') ORDER BY due_at LIMIT 1";

const EXPIRED: &str = "
    SELECT id FROM backups WHERE expires_at <= $1 AND phase <> 'deleting' ORDER BY expires_at LIMIT $2";

const NEXT_EXPIRY: &str = "
    SELECT expires_at FROM backups WHERE expires_at IS NOT NULL AND phase <> 'deleting' ORDER BY expires_at LIMIT 1";

/// Tenants' roots whose bytes are all there and in no backup, neither one that is done nor one under way, and of which none has failed
/// since this time.
const ROOTS_WITHOUT: &str = "
    SELECT snapshots.name FROM snapshots JOIN layers ON layers.id = snapshots.layer
    WHERE snapshots.rooted_at IS NOT NULL AND snapshots.tenant IS NOT NULL AND snapshots.state <> 'deleting' AND layers.state = 'ready'
        AND NOT EXISTS (SELECT 1 FROM backups WHERE backups.source_snapshot = snapshots.name AND backups.layer = snapshots.layer
            AND (backups.phase IN ('queued', 'running', 'completed') OR backups.phase = 'failed' AND backups.completed_at > $1))
    ORDER BY snapshots.rooted_at, snapshots.name LIMIT $2";

const ATTENDED: &str = "
    SELECT id FROM backups WHERE source_snapshot = $1 AND layer = $2
        AND (phase IN ('queued', 'running', 'completed') OR phase = 'failed' AND completed_at > $3) LIMIT 1";

const PHASES: &str = "
    SELECT id, tenant, phase FROM backups ORDER BY id";

const NAMES: &str = "
    SELECT id FROM backups WHERE tenant = $1 ORDER BY id LIMIT $2";

/// Those that hold the content of layers, the newest first.
const KNOWN: &str = "
    SELECT layer, stored FROM backups";

const INSERT: &str = "
    INSERT INTO backups (id, tenant, owner, source, layer, held_layer, heritage, labels, phase, bytes_done, bytes_total, location, stored, checksum, disk_bytes, added_bytes,
        error, failures, due_at, started_at, completed_at, expires_at, created_at, updated_at, generation, source_snapshot)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE backups SET held_layer = $3, phase = $4, bytes_done = $5, bytes_total = $6, location = $7, stored = $8, checksum = $9,
        disk_bytes = $10, added_bytes = $11, error = $12, failures = $13, due_at = $14, started_at = $15, completed_at = $16,
        expires_at = $17, updated_at = $18, generation = $19, heritage = $20
    WHERE id = $1 AND generation = $2";

const DELETE: &str = "
    DELETE FROM backups WHERE id = $1 AND generation = $2";

const WANT_PRUNE: &str = "
    INSERT INTO backup_prunes (tenant, failures, due_at) VALUES ($1, 0, $2)
    ON CONFLICT (tenant) DO UPDATE SET failures = 0, due_at = excluded.due_at";

const PRUNES: &str = "
    SELECT tenant, failures, due_at FROM backup_prunes WHERE due_at <= $1 ORDER BY due_at LIMIT $2";

const NEXT_PRUNE: &str = "
    SELECT due_at FROM backup_prunes ORDER BY due_at LIMIT 1";

const PUT_PRUNE_OFF: &str = "
    UPDATE backup_prunes SET failures = $2, due_at = $3 WHERE tenant = $1";

/// Unless something was forgotten again since.
const PRUNED: &str = "
    DELETE FROM backup_prunes WHERE tenant = $1 AND due_at <= $2";

pub async fn list(
    tx: &mut Tx,
    scope: &OwnedScope,
    filter: &BackupFilter,
    page: PageRequest,
) -> Result<Page<Backup>> {
    let mut select = Select::new(LIST);
    select.owned(scope);
    if let Some(tenant) = filter.tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    if let Some(phase) = filter.phase {
        select.and("phase = ?", [Value::String(phase.name().to_owned())]);
    }
    if let Some(snapshot) = &filter.snapshot {
        select.and("source_snapshot = ?", [Value::String(snapshot.clone())]);
    }
    select.labelled(&filter.labels);
    let backups = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(backups, &page, |backup: &Backup| backup.id.0))
}

pub async fn find(tx: &mut Tx, scope: &OwnedScope, id: BackupId) -> Result<Option<Backup>> {
    Ok(find_any(tx, id).await?.filter(|backup| scope.covers(backup.tenant, &backup.owner)))
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, scope: &OwnedScope, id: BackupId) -> Result<Option<Backup>> {
    Ok(find_any_to_change(tx, id).await?.filter(|backup| scope.covers(backup.tenant, &backup.owner)))
}

/// For loops, which look after everyone's.
pub async fn find_any(tx: &mut Tx, id: BackupId) -> Result<Option<Backup>> {
    tx.row(FIND, args![id]).await
}

pub async fn find_any_to_change(tx: &mut Tx, id: BackupId) -> Result<Option<Backup>> {
    tx.row_to_change(FIND, args![id]).await
}

/// Those that wait, or those that have begun or are to go.
pub async fn due(tx: &mut Tx, now: Timestamp, queued: bool, most: i64) -> Result<Vec<Backup>> {
    tx.rows(if queued { QUEUED } else { UNDER_WAY }, args![now, most]).await
}

pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_DUE, &[]).await?.map(|(at,)| at))
}

pub async fn expired(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<BackupId>> {
    let rows: Vec<(BackupId,)> = tx.rows(EXPIRED, args![now, most]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

pub async fn next_expiry(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_EXPIRY, &[]).await?.map(|(at,)| at))
}

/// Roots of tenants that are in no backup, and of which none has failed since this time.
pub async fn roots_without(tx: &mut Tx, failed_since: Timestamp, most: i64) -> Result<Vec<Slug>> {
    let rows: Vec<(String,)> = tx.rows(ROOTS_WITHOUT, args![failed_since, most]).await?;
    Ok(rows.iter().filter_map(|(name,)| Slug::parse(name)).collect())
}

/// Whether a snapshot is in a backup or soon will be, or was to be and has failed since this time.
pub async fn is_attended(
    tx: &mut Tx,
    snapshot: &Slug,
    layer: LayerId,
    failed_since: Timestamp,
) -> Result<bool> {
    Ok(tx.row::<(BackupId,)>(ATTENDED, args![snapshot, layer, failed_since]).await?.is_some())
}

/// Whose they all are, and how they stand.
pub async fn phases(tx: &mut Tx) -> Result<Vec<(BackupId, TenantId, BackupPhase)>> {
    let rows: Vec<(BackupId, TenantId, String)> = tx.rows(PHASES, &[]).await?;
    let phase = |text: String| BackupPhase::parse(&text).unwrap_or(BackupPhase::Failed);
    Ok(rows.into_iter().map(|(id, tenant, text)| (id, tenant, phase(text))).collect())
}

/// Some of a tenant's.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(BackupId,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(id,)| id.to_string()).collect())
}

/// What is kept of these layers in a tenant's repository.
pub async fn known(tx: &mut Tx, tenant: TenantId, layers: &[LayerId]) -> Result<Vec<KnownContent>> {
    let mut known = Vec::new();
    for part in layers.chunks(AT_ONCE) {
        let mut select = Select::new(KNOWN);
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
        select.and("phase = 'completed'", []);
        select.one_of("layer", part.iter().map(|id| Value::Uuid(id.0)));
        let rows: Vec<(LayerId, String)> = tx.rows_of(select.all()).await?;
        known.extend(rows.into_iter().map(|(layer, id)| KnownContent { layer, id }));
    }
    Ok(known)
}

/// The intent to have it; its layer is kept from now on.
pub async fn insert(tx: &mut Tx, backup: &Backup) -> Result<()> {
    if backup.holds_layer {
        layers::hold(tx, backup.layer).await?;
    }
    let owner = backup.owner.to_string();
    let args = args![
        backup.id,
        backup.tenant,
        owner,
        serde_json::json!(backup.source),
        backup.layer,
        backup.holds_layer.then_some(backup.layer),
        serde_json::json!(backup.heritage),
        &backup.labels,
        backup.phase.name(),
        backup.bytes_done,
        backup.bytes_total,
        backup.location.as_deref(),
        backup.stored.as_deref(),
        backup.checksum.as_deref(),
        backup.disk_bytes,
        backup.added_bytes,
        backup.error.as_ref().map(|error| serde_json::json!(error)),
        backup.failures,
        backup.due_at,
        backup.started_at,
        backup.completed_at,
        backup.expires_at,
        backup.created_at,
        backup.updated_at,
        backup.generation,
        backup.source.snapshot()
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`. A layer that is not needed any more is let go.
pub async fn update(tx: &mut Tx, before: &Backup, after: &Backup) -> Result<()> {
    if before.holds_layer && !after.holds_layer {
        layers::release(tx, before.layer).await?;
    }
    let args = args![
        before.id,
        before.generation,
        after.holds_layer.then_some(after.layer),
        after.phase.name(),
        after.bytes_done,
        after.bytes_total,
        after.location.as_deref(),
        after.stored.as_deref(),
        after.checksum.as_deref(),
        after.disk_bytes,
        after.added_bytes,
        after.error.as_ref().map(|error| serde_json::json!(error)),
        after.failures,
        after.due_at,
        after.started_at,
        after.completed_at,
        after.expires_at,
        after.updated_at,
        after.generation,
        serde_json::json!(after.heritage)
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, backup: &Backup) -> Result<()> {
    if backup.holds_layer {
        layers::release(tx, backup.layer).await?;
    }
    tx.execute_one(DELETE, args![backup.id, backup.generation]).await
}

/// A repository from which something is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune {
    pub tenant: TenantId,
    pub failures: i64,
    pub due_at: Timestamp,
}

pub async fn want_prune(tx: &mut Tx, tenant: TenantId, now: Timestamp) -> Result<()> {
    tx.execute_one(WANT_PRUNE, args![tenant, now]).await
}

pub async fn prunes(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<Prune>> {
    tx.rows(PRUNES, args![now, most]).await
}

pub async fn next_prune(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_PRUNE, &[]).await?.map(|(at,)| at))
}

pub async fn put_prune_off(tx: &mut Tx, prune: &Prune) -> Result<()> {
    tx.execute(PUT_PRUNE_OFF, args![prune.tenant, prune.failures, prune.due_at]).await.map(drop)
}

/// It was pruned, as it was wanted at that time.
pub async fn pruned(tx: &mut Tx, prune: &Prune) -> Result<()> {
    tx.execute(PRUNED, args![prune.tenant, prune.due_at]).await.map(drop)
}

impl Select {
    /// Only what the scope covers.
    pub(crate) fn owned(&mut self, scope: &OwnedScope) {
        let Scope::Tenants(all) = &scope.all_of else { return };
        let Scope::Tenants(own) = &scope.own_in else { return };
        let places = |count: usize| vec!["?"; count].join(", ");
        let (mut ways, mut values) = (Vec::new(), Vec::new());
        if !all.is_empty() {
            ways.push(format!("tenant IN ({})", places(all.len())));
            values.extend(all.iter().map(|id| Value::Uuid(id.0)));
        }
        if !own.is_empty() {
            ways.push(format!("(tenant IN ({}) AND owner = ?)", places(own.len())));
            values.extend(own.iter().map(|id| Value::Uuid(id.0)));
            values.push(Value::String(scope.owner.to_string()));
        }
        if ways.is_empty() {
            self.and("1 = 0", []);
        } else {
            self.and(&format!("({})", ways.join(" OR ")), values);
        }
    }
}

impl FromRow for Prune {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Prune { tenant: row.take()?, failures: row.take()?, due_at: row.take()? })
    }
}

impl FromRow for Backup {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Backup {
            id: row.take()?,
            tenant: row.take()?,
            owner: row.take_text(Subject::parse)?,
            source: row.take_json()?,
            layer: row.take()?,
            holds_layer: row.take_optional::<LayerId>()?.is_some(),
            heritage: row.take_json()?,
            labels: row.take_json()?,
            phase: row.take_text(BackupPhase::parse)?,
            bytes_done: row.take()?,
            bytes_total: row.take()?,
            location: row.take_optional()?,
            stored: row.take_optional()?,
            checksum: row.take_optional()?,
            disk_bytes: row.take_optional()?,
            added_bytes: row.take_optional()?,
            error: row.take_optional_json()?,
            failures: row.take()?,
            due_at: row.take()?,
            started_at: row.take_optional()?,
            completed_at: row.take_optional()?,
            expires_at: row.take_optional()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
