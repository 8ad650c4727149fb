//! Snapshots: what emulators boot from.

use paddock_model::Timestamp;
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Snapshot, SnapshotFilter, SnapshotState};
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, image, rooted_at, rooted_by, origin, labels,
        created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots";

const FIND: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, image, rooted_at, rooted_by, origin, labels,
        created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots WHERE name = $1";

const OF_LAYER: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, image, rooted_at, rooted_by, origin, labels,
        created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots WHERE layer = $1";

/// Promoted roots, the newest first; of those that came in together, the last by name.
const ROOTS: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, image, rooted_at, rooted_by, origin, labels,
        created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots
    WHERE rooted_at IS NOT NULL AND state = 'ready' ORDER BY rooted_at DESC, name DESC LIMIT 200";

const INSERT: &str = "
    INSERT INTO snapshots (name, id, tenant, parent, layer, state, problems, image, device_type, android_version, rooted_at,
        rooted_by, origin, labels, created_by, created_at, updated_at, last_used_at, use_count, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE snapshots SET state = $3, problems = $4, rooted_at = $5, rooted_by = $6, labels = $7, updated_at = $8, generation = $9
    WHERE name = $1 AND generation = $2";

const RECORD_USE: &str = "
    UPDATE snapshots SET last_used_at = $2, use_count = use_count + 1 WHERE name = $1";

const PER_LAYER: &str = "
    SELECT layer, COUNT(*) FROM snapshots GROUP BY layer";

const NAMES: &str = "
    SELECT name FROM snapshots WHERE tenant = $1 ORDER BY name LIMIT $2";

/// What the caller may see: its tenants', and the platform's own, which are for everyone.
pub async fn list(
    tx: &mut Tx,
    scope: &Scope,
    filter: &SnapshotFilter,
    page: PageRequest,
) -> Result<Page<Snapshot>> {
    let mut select = Select::new(LIST);
    select.within_or_nobodys(scope, "tenant");
    if let Some(tenant) = filter.tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    match filter.deployable {
        Some(true) => select.and("state = 'ready' AND CAST(problems AS TEXT) = '[]'", []),
        Some(false) => select.and("NOT (state = 'ready' AND CAST(problems AS TEXT) = '[]')", []),
        None => {}
    }
    match filter.root {
        Some(true) => select.and("rooted_at IS NOT NULL", []),
        Some(false) => select.and("rooted_at IS NULL", []),
        None => {}
    }
    if let Some(kind) = filter.device_type {
        select.and("device_type = ?", [Value::String(kind.name().to_owned())]);
    }
    select.labelled(&filter.labels);
    let snapshots = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(snapshots, &page, |snapshot: &Snapshot| snapshot.id))
}

pub async fn find(tx: &mut Tx, scope: &Scope, name: &Slug) -> Result<Option<Snapshot>> {
    let found: Option<Snapshot> = tx.row(FIND, args![name]).await?;
    Ok(found.filter(|snapshot| snapshot.tenant.is_none_or(|tenant| scope.covers(tenant))))
}

/// The snapshots that stand on a layer itself.
pub async fn of_layer(tx: &mut Tx, layer: paddock_model::layers::LayerId) -> Result<Vec<Snapshot>> {
    tx.rows(OF_LAYER, args![layer]).await
}

/// The newest promoted roots of everyone, newest first.
pub async fn newest_roots(tx: &mut Tx) -> Result<Vec<Snapshot>> {
    tx.rows(ROOTS, &[]).await
}

/// How many snapshots stand on each layer itself.
pub async fn count_per_layer(tx: &mut Tx) -> Result<Vec<(paddock_model::layers::LayerId, i64)>> {
    tx.rows(PER_LAYER, &[]).await
}

/// The first few names in a tenant.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

pub async fn insert(tx: &mut Tx, snapshot: &Snapshot) -> Result<()> {
    let args = args![
        &snapshot.name,
        snapshot.id,
        snapshot.tenant,
        snapshot.parent.as_ref(),
        snapshot.layer,
        snapshot.state.name(),
        serde_json::json!(snapshot.problems),
        serde_json::json!(snapshot.image),
        snapshot.image.device_type.name(),
        &snapshot.image.android_version,
        snapshot.rooted_at,
        snapshot.rooted_by.as_deref(),
        serde_json::json!(snapshot.origin),
        &snapshot.labels,
        snapshot.created_by.as_deref(),
        snapshot.created_at,
        snapshot.updated_at,
        snapshot.last_used_at,
        snapshot.use_count,
        snapshot.generation
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &Snapshot, after: &Snapshot) -> Result<()> {
    let args = args![
        &before.name,
        before.generation,
        after.state.name(),
        serde_json::json!(after.problems),
        after.rooted_at,
        after.rooted_by.as_deref(),
        &after.labels,
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn record_use(tx: &mut Tx, name: &Slug, now: Timestamp) -> Result<()> {
    tx.execute_one(RECORD_USE, args![name, now]).await
}

impl FromRow for Snapshot {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Snapshot {
            name: row.take_text(Slug::parse)?,
            id: row.take()?,
            tenant: row.take_optional()?,
            parent: row.take_optional_text(Slug::parse)?,
            layer: row.take()?,
            state: row.take_text(SnapshotState::parse)?,
            problems: row.take_json()?,
            image: row.take_json()?,
            rooted_at: row.take_optional()?,
            rooted_by: row.take_optional()?,
            origin: row.take_json()?,
            labels: row.take_json()?,
            created_by: row.take_optional()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            last_used_at: row.take_optional()?,
            use_count: row.take()?,
            generation: row.take()?,
        })
    }
}
