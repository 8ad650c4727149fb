//! Snapshots: what emulators boot from.

use paddock_model::Timestamp;
use paddock_model::devices::DeviceType;
use paddock_model::drivers::emulator_hosts::Consistency;
use paddock_model::layers::LayerId;
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Snapshot, SnapshotFilter, SnapshotState, Trust, VerifiedBoot};
use paddock_model::tenants::TenantId;

use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args, restore_points, snapshot_children};

const LIST: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, fault, image, rooted_at, rooted_by, origin, of_group, trust, consistency,
        verified, labels, created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots";

const FIND: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, fault, image, rooted_at, rooted_by, origin, of_group, trust, consistency,
        verified, labels, created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots WHERE name = $1";

const OF_LAYER: &str = "
    SELECT name, id, tenant, parent, layer, state, problems, fault, image, rooted_at, rooted_by, origin, of_group, trust, consistency,
        verified, labels, created_by, created_at, updated_at, last_used_at, use_count, generation FROM snapshots WHERE layer = $1";

/// Promoted roots, the newest first; of those that came in together, the last by name.
const INSERT: &str = "
    INSERT INTO snapshots (name, id, tenant, parent, layer, state, problems, fault, image, device_type, android_version, rooted_at,
        rooted_by, origin, of_group, trust, consistency, verified, labels, created_by, created_at, updated_at, last_used_at,
        use_count, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
    ON CONFLICT (name) DO NOTHING";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE snapshots SET state = $3, problems = $4, rooted_at = $5, rooted_by = $6, labels = $7, updated_at = $8, generation = $9,
        fault = $10, consistency = $11, verified = $12, parent = $13
    WHERE name = $1 AND generation = $2";

/// Holds up whoever would delete it, until the commit; nothing where somebody has.
const RECORD_USE: &str = "
    UPDATE snapshots SET last_used_at = $2, use_count = use_count + 1 WHERE name = $1 AND state = 'ready'";

/// A first boot proves a snapshot that nobody has seen boot.
const PROVE: &str = "
    UPDATE snapshots SET verified = $2 WHERE name = $1 AND verified IS NULL";

const PARENTS: &str = "
    SELECT name, COALESCE(parent, '') FROM snapshots";

const CHILDREN_OF: &str = "
    SELECT name FROM snapshots WHERE parent = $1 ORDER BY id LIMIT $2";

const DELETING: &str = "
    SELECT name FROM snapshots WHERE state = 'deleting' ORDER BY id LIMIT $1";

const DELETE: &str = "
    DELETE FROM snapshots WHERE name = $1 AND state = 'deleting'";

/// Those that were too deep and are not any more.
const SHALLOW: &str = "
    SELECT snapshots.name FROM snapshots JOIN layers ON layers.id = snapshots.layer
    WHERE CAST(snapshots.problems AS TEXT) LIKE '%chain_too_deep%' AND layers.depth <= $1 ORDER BY snapshots.id LIMIT $2";

const OWNERS: &str = "
    SELECT id, layer, tenant FROM snapshots WHERE id > $1 ORDER BY id LIMIT $2";

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
    if let Some(state) = filter.state {
        select.and("state = ?", [Value::String(state.name().to_owned())]);
    }
    if let Some(parent) = &filter.parent {
        select.and("parent = ?", [Value::String(parent.clone())]);
    }
    if let Some(group) = &filter.group {
        select.and("of_group = ?", [Value::String(group.clone())]);
    }
    if let Some(but) = &filter.but {
        select.and("name <> ?", [Value::String(but.to_string())]);
    }
    select.labelled(&filter.labels);
    let snapshots = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(snapshots, &page, |snapshot: &Snapshot| snapshot.id))
}

pub async fn find(tx: &mut Tx, scope: &Scope, name: &Slug) -> Result<Option<Snapshot>> {
    Ok(find_any(tx, name).await?.filter(|snapshot| covers(scope, snapshot)))
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, scope: &Scope, name: &Slug) -> Result<Option<Snapshot>> {
    Ok(find_any_to_change(tx, name).await?.filter(|snapshot| covers(scope, snapshot)))
}

/// For loops, which look after everyone's.
pub async fn find_any(tx: &mut Tx, name: &Slug) -> Result<Option<Snapshot>> {
    tx.row(FIND, args![name]).await
}

pub async fn find_any_to_change(tx: &mut Tx, name: &Slug) -> Result<Option<Snapshot>> {
    tx.row_to_change(FIND, args![name]).await
}

fn covers(scope: &Scope, snapshot: &Snapshot) -> bool {
    snapshot.tenant.is_none_or(|tenant| scope.covers(tenant))
}

/// Some of those that are said to stand on too long a lineage, and stand on no more layers than this.
pub async fn wrongly_too_deep(tx: &mut Tx, depth: i64, most: i64) -> Result<Vec<Slug>> {
    let rows: Vec<(String,)> = tx.rows(SHALLOW, args![depth, most]).await?;
    Ok(rows.iter().filter_map(|(name,)| Slug::parse(name)).collect())
}

/// Everything that the caller may see, newest first.
pub async fn list_all(tx: &mut Tx, scope: &Scope) -> Result<Vec<Snapshot>> {
    let mut select = Select::new(LIST);
    select.within_or_nobodys(scope, "tenant");
    select.may_scan();
    tx.rows_of(select.newest_first("id")).await
}

/// Those that were derived from these, newest first.
pub async fn list_children(tx: &mut Tx, scope: &Scope, parents: &[Slug]) -> Result<Vec<Snapshot>> {
    let mut found: Vec<Snapshot> = Vec::new();
    for part in parents.chunks(AT_ONCE) {
        let mut select = Select::new(LIST);
        select.within_or_nobodys(scope, "tenant");
        select.one_of("parent", part.iter().map(|name| Value::String(name.to_string())));
        found.extend(tx.rows_of(select.newest_first("id")).await?);
    }
    found.sort_unstable_by_key(|snapshot| std::cmp::Reverse(snapshot.id));
    Ok(found)
}

/// The parents of those of these that have one.
pub async fn parents(tx: &mut Tx, names: &[Slug]) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for part in names.chunks(AT_ONCE) {
        let mut select = Select::new(PARENTS);
        select.one_of("name", part.iter().map(|name| Value::String(name.to_string())));
        found.extend(tx.rows_of(select.all()).await?);
    }
    Ok(found)
}

/// The snapshots that stand on a layer itself.
pub async fn of_layer(tx: &mut Tx, layer: LayerId) -> Result<Vec<Snapshot>> {
    tx.rows(OF_LAYER, args![layer]).await
}

/// How many roots of the platform, and of those in a scope, are looked at for one that fits.
const ROOTS_AT_ONCE: i64 = 200;

/// The deployable promoted roots of the platform and of a scope, the last promoted first.
pub async fn newest_roots(
    tx: &mut Tx,
    scope: &Scope,
    device_type: Option<DeviceType>,
) -> Result<Vec<Snapshot>> {
    // One after the other: what others have promoted is neither looked through nor counted.
    let mut found = Vec::new();
    for platform in [true, false] {
        let mut select = Select::new(LIST);
        if platform {
            select.and("tenant IS NULL", []);
        } else {
            select.and("tenant IS NOT NULL", []);
            select.within(scope, "tenant");
        }
        select.and("rooted_at IS NOT NULL AND state = 'ready' AND CAST(problems AS TEXT) = '[]'", []);
        if let Some(kind) = device_type {
            select.and("device_type = ?", [Value::String(kind.name().to_owned())]);
        }
        found.extend(tx.rows_of(select.first("rooted_at DESC, name DESC", ROOTS_AT_ONCE)).await?);
    }
    found.sort_by(|one: &Snapshot, other: &Snapshot| {
        (other.rooted_at, &other.name).cmp(&(one.rooted_at, &one.name))
    });
    Ok(found)
}

/// The layer that a snapshot stands on, and whose it is.
pub struct Owned {
    pub id: Uuid,
    pub layer: LayerId,
    /// Nobody's if it is the platform's.
    pub tenant: Option<TenantId>,
}

impl FromRow for Owned {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Owned { id: row.take()?, layer: row.take()?, tenant: row.take_optional()? })
    }
}

/// In the order of ids, from one on.
pub async fn owners(tx: &mut Tx, after: Option<Uuid>, most: i64) -> Result<Vec<Owned>> {
    tx.rows(OWNERS, args![after.unwrap_or(Uuid::nil()), most]).await
}

/// The first few names in a tenant.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

/// False where the name is taken.
pub async fn insert(tx: &mut Tx, snapshot: &Snapshot) -> Result<bool> {
    let args = args![
        &snapshot.name,
        snapshot.id,
        snapshot.tenant,
        snapshot.parent.as_ref(),
        snapshot.layer,
        snapshot.state.name(),
        serde_json::json!(snapshot.problems),
        snapshot.fault.as_deref(),
        serde_json::json!(snapshot.image),
        snapshot.image.device_type.name(),
        &snapshot.image.android_version,
        snapshot.rooted_at,
        snapshot.rooted_by.as_deref(),
        serde_json::json!(snapshot.origin),
        snapshot.group.as_deref(),
        snapshot.trust.name(),
        snapshot.consistency.map(Consistency::name),
        snapshot.verified.as_ref().map(|boot| serde_json::json!(boot)),
        &snapshot.labels,
        snapshot.created_by.as_deref(),
        snapshot.created_at,
        snapshot.updated_at,
        snapshot.last_used_at,
        snapshot.use_count,
        snapshot.generation
    ];
    let inserted = tx.execute(INSERT, args).await? > 0;
    if let (true, Some(parent)) = (inserted, &snapshot.parent) {
        snapshot_children::add(tx, parent, snapshot.tenant, 1).await?;
    }
    Ok(inserted)
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
        after.generation,
        after.fault.as_deref(),
        after.consistency.map(Consistency::name),
        after.verified.as_ref().map(|boot| serde_json::json!(boot)),
        after.parent.as_ref()
    ];
    tx.execute_one(UPDATE, args).await?;
    if before.parent != after.parent {
        for (parent, more) in [(&before.parent, -1), (&after.parent, 1)] {
            if let Some(parent) = parent {
                snapshot_children::add(tx, parent, before.tenant, more).await?;
            }
        }
    }
    Ok(())
}

/// Another clone of it; false where it is not there to be cloned any more.
pub async fn record_use(tx: &mut Tx, name: &Slug, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(RECORD_USE, args![name, now]).await? > 0)
}

/// A clone has booted; that is news only of a snapshot that nobody had seen boot.
pub async fn prove(tx: &mut Tx, name: &Slug, boot: &VerifiedBoot) -> Result<()> {
    tx.execute(PROVE, args![name, serde_json::json!(boot)]).await.map(drop)
}

/// The first few that were derived from it.
pub async fn children_of(tx: &mut Tx, name: &Slug, most: i64) -> Result<Vec<Slug>> {
    slugs(tx.rows(CHILDREN_OF, args![name, most]).await?)
}

/// Those that are to go, a few at a time.
pub async fn deleting(tx: &mut Tx, most: i64) -> Result<Vec<Slug>> {
    slugs(tx.rows(DELETING, args![most]).await?)
}

/// Forgets one that is to go and has no children; the caller lets its layer go.
pub async fn delete(tx: &mut Tx, snapshot: &Snapshot) -> Result<()> {
    tx.execute_one(DELETE, args![&snapshot.name]).await?;
    snapshot_children::delete(tx, &snapshot.name).await?;
    restore_points::delete(tx, &snapshot.name).await?;
    match &snapshot.parent {
        Some(parent) => snapshot_children::add(tx, parent, snapshot.tenant, -1).await,
        None => Ok(()),
    }
}

fn slugs(rows: Vec<(String,)>) -> Result<Vec<Slug>> {
    let broken = || crate::Error::unexpected("a snapshot's name breaks its rule");
    rows.into_iter().map(|(name,)| Slug::parse(&name).ok_or_else(broken)).collect()
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
            fault: row.take_optional()?,
            image: row.take_json()?,
            rooted_at: row.take_optional()?,
            rooted_by: row.take_optional()?,
            origin: row.take_json()?,
            group: row.take_optional()?,
            trust: row.take_text(Trust::parse)?,
            consistency: row.take_optional_text(Consistency::parse)?,
            verified: row.take_optional_json()?,
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
