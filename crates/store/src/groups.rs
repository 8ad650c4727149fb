//! Groups: people and machines of one tenant that are given rights together.

use paddock_model::groups::{Group, GroupId};
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, tenant, name, display_name, created_at, updated_at, generation FROM groups";

const FIND: &str = "
    SELECT id, tenant, name, display_name, created_at, updated_at, generation FROM groups WHERE id = $1";

const NAMES: &str = "
    SELECT name FROM groups WHERE tenant = $1 ORDER BY name LIMIT $2";

const INSERT: &str = "
    INSERT INTO groups (id, tenant, name, display_name, created_at, updated_at, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE groups SET name = $3, display_name = $4, updated_at = $5, generation = $6
    WHERE id = $1 AND generation = $2";

const DELETE: &str = "
    DELETE FROM groups WHERE id = $1 AND generation = $2";

/// The groups of a tenant, which the caller may see.
pub async fn list(tx: &mut Tx, tenant: TenantId, page: PageRequest) -> Result<Page<Group>> {
    let mut select = Select::new(LIST);
    select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    let groups = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(groups, &page, |group: &Group| group.id.0))
}

/// Those of these ids that there are, in no order.
pub async fn list_by_ids(tx: &mut Tx, scope: &Scope, ids: &[GroupId]) -> Result<Vec<Group>> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(AT_ONCE) {
        let mut select = Select::new(LIST);
        select.within(scope, "tenant");
        select.one_of("id", part.iter().map(|id| Value::Uuid(id.0)));
        found.extend(tx.rows_of(select.all()).await?);
    }
    Ok(found)
}

/// The first few names in a tenant.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

pub async fn find(tx: &mut Tx, scope: &Scope, id: GroupId) -> Result<Option<Group>> {
    Ok(tx.row(FIND, args![id]).await?.filter(|group: &Group| scope.covers(group.tenant)))
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, scope: &Scope, id: GroupId) -> Result<Option<Group>> {
    Ok(tx.row_to_change(FIND, args![id]).await?.filter(|group: &Group| scope.covers(group.tenant)))
}

pub async fn insert(tx: &mut Tx, group: &Group) -> Result<()> {
    let args = args![
        group.id,
        group.tenant,
        &group.name,
        &group.display_name,
        group.created_at,
        group.updated_at,
        group.generation
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &Group, after: &Group) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        &after.name,
        &after.display_name,
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, group: &Group) -> Result<()> {
    tx.execute_one(DELETE, args![group.id, group.generation]).await
}

impl FromRow for Group {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Group {
            id: row.take()?,
            tenant: row.take()?,
            name: row.take_text(Slug::parse)?,
            display_name: row.take()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
