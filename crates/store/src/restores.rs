//! Restores: which backup becomes which snapshot, and how far that has come.

use paddock_model::Timestamp;
use paddock_model::backups::{BackupId, OwnedScope};
use paddock_model::layers::LayerId;
use paddock_model::page::{Page, PageRequest};
use paddock_model::restores::{Restore, RestoreFilter, RestoreId, RestorePhase};
use paddock_model::slug::Slug;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, tenant, owner, backup, snapshot, layer, phase, bytes_done, bytes_total, error, failures, due_at, started_at, completed_at,
        created_at, updated_at, generation FROM restores";

const FIND: &str = "
    SELECT id, tenant, owner, backup, snapshot, layer, phase, bytes_done, bytes_total, error, failures, due_at, started_at, completed_at,
        created_at, updated_at, generation FROM restores WHERE id = $1";

/// Those with which something is to be done by now, the longest overdue first.
const DUE: &str = "
    SELECT id, tenant, owner, backup, snapshot, layer, phase, bytes_done, bytes_total, error, failures, due_at, started_at, completed_at,
        created_at, updated_at, generation FROM restores
    WHERE phase IN ('queued', 'running') AND due_at <= $1 ORDER BY due_at LIMIT $2";

const NEXT_DUE: &str = "
    SELECT due_at FROM restores WHERE phase IN ('queued', 'running') ORDER BY due_at LIMIT 1";

const OF_BACKUP: &str = "
    SELECT id FROM restores WHERE backup = $1 AND phase IN ('queued', 'running') ORDER BY id LIMIT $2";

const OF_LAYER: &str = "
    SELECT id FROM restores WHERE layer = $1";

const INSERT: &str = "
    INSERT INTO restores (id, tenant, owner, backup, snapshot, layer, phase, bytes_done, bytes_total, error, failures, due_at, started_at, completed_at,
        created_at, updated_at, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE restores SET phase = $3, bytes_done = $4, bytes_total = $5, error = $6, failures = $7, due_at = $8, started_at = $9,
        completed_at = $10, updated_at = $11, generation = $12
    WHERE id = $1 AND generation = $2";

const OF_TENANT: &str = "
    SELECT id FROM restores WHERE tenant = $1 ORDER BY id";

const DELETE: &str = "
    DELETE FROM restores WHERE id = $1";

pub async fn list(
    tx: &mut Tx,
    scope: &OwnedScope,
    filter: &RestoreFilter,
    page: PageRequest,
) -> Result<Page<Restore>> {
    let mut select = Select::new(LIST);
    select.owned(scope);
    if let Some(tenant) = filter.tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    if let Some(phase) = filter.phase {
        select.and("phase = ?", [Value::String(phase.name().to_owned())]);
    }
    if let Some(backup) = filter.backup {
        select.and("backup = ?", [Value::Uuid(backup.0)]);
    }
    let restores = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(restores, &page, |restore: &Restore| restore.id.0))
}

pub async fn find(tx: &mut Tx, scope: &OwnedScope, id: RestoreId) -> Result<Option<Restore>> {
    let restore: Option<Restore> = tx.row(FIND, args![id]).await?;
    Ok(restore.filter(|restore| scope.covers(restore.tenant, &restore.owner)))
}

/// For loops, which look after everyone's.
pub async fn find_any(tx: &mut Tx, id: RestoreId) -> Result<Option<Restore>> {
    tx.row(FIND, args![id]).await
}

pub async fn find_any_to_change(tx: &mut Tx, id: RestoreId) -> Result<Option<Restore>> {
    tx.row_to_change(FIND, args![id]).await
}

pub async fn due(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<Restore>> {
    tx.rows(DUE, args![now, most]).await
}

pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_DUE, &[]).await?.map(|(at,)| at))
}

/// Those that still read a backup, some of them.
pub async fn under_way(tx: &mut Tx, backup: BackupId, most: i64) -> Result<Vec<RestoreId>> {
    let rows: Vec<(RestoreId,)> = tx.rows(OF_BACKUP, args![backup, most]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

pub async fn of_tenant(tx: &mut Tx, tenant: TenantId) -> Result<Vec<RestoreId>> {
    let rows: Vec<(RestoreId,)> = tx.rows(OF_TENANT, args![tenant]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Whether the bytes of a layer come from a backup.
pub async fn has_layer(tx: &mut Tx, layer: LayerId) -> Result<bool> {
    Ok(tx.row::<(RestoreId,)>(OF_LAYER, args![layer]).await?.is_some())
}

pub async fn insert(tx: &mut Tx, restore: &Restore) -> Result<()> {
    let owner = restore.owner.to_string();
    let args = args![
        restore.id,
        restore.tenant,
        owner,
        restore.backup,
        &restore.snapshot,
        restore.layer,
        restore.phase.name(),
        restore.bytes_done,
        restore.bytes_total,
        restore.error.as_ref().map(|error| serde_json::json!(error)),
        restore.failures,
        restore.due_at,
        restore.started_at,
        restore.completed_at,
        restore.created_at,
        restore.updated_at,
        restore.generation
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &Restore, after: &Restore) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        after.phase.name(),
        after.bytes_done,
        after.bytes_total,
        after.error.as_ref().map(|error| serde_json::json!(error)),
        after.failures,
        after.due_at,
        after.started_at,
        after.completed_at,
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, id: RestoreId) -> Result<()> {
    tx.execute_one(DELETE, args![id]).await
}

impl FromRow for Restore {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Restore {
            id: row.take()?,
            tenant: row.take()?,
            owner: row.take_text(Subject::parse)?,
            backup: row.take()?,
            snapshot: row.take_text(Slug::parse)?,
            layer: row.take()?,
            phase: row.take_text(RestorePhase::parse)?,
            bytes_done: row.take()?,
            bytes_total: row.take()?,
            error: row.take_optional_json()?,
            failures: row.take()?,
            due_at: row.take()?,
            started_at: row.take_optional()?,
            completed_at: row.take_optional()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
