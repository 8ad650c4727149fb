//! Tenants: the walls between customers.

use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::tenants::{Tenant, TenantFilter, TenantId};

use crate::memory::Key;
use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, name, display_name, labels, created_at, updated_at, generation FROM tenants";

const FIND: &str = "
    SELECT id, name, display_name, labels, created_at, updated_at, generation FROM tenants WHERE id = $1";

const INSERT: &str = "
    INSERT INTO tenants (id, name, display_name, labels, created_at, updated_at, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE tenants
    SET name = $3, display_name = $4, labels = $5, updated_at = $6, generation = $7
    WHERE id = $1 AND generation = $2";

const DELETE: &str = "
    DELETE FROM tenants WHERE id = $1 AND generation = $2";

pub async fn list(
    tx: &mut Tx,
    scope: &Scope,
    filter: &TenantFilter,
    page: PageRequest,
) -> Result<Page<Tenant>> {
    let mut select = Select::new(LIST);
    select.within(scope, "id");
    if let Some(name) = &filter.name {
        select.and("name = ?", [Value::String(name.clone())]);
    }
    select.labelled(&filter.labels);
    let tenants = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(tenants, &page, |tenant: &Tenant| tenant.id.0))
}

pub async fn find(tx: &mut Tx, scope: &Scope, id: TenantId) -> Result<Option<Tenant>> {
    if !scope.covers(id) {
        return Ok(None);
    }
    tx.remembered(Key("tenants", id.0), FIND, || [id.into()]).await
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, scope: &Scope, id: TenantId) -> Result<Option<Tenant>> {
    if !scope.covers(id) {
        return Ok(None);
    }
    tx.row_to_change(FIND, args![id]).await
}

pub async fn insert(tx: &mut Tx, tenant: &Tenant) -> Result<()> {
    let args = args![
        tenant.id,
        &tenant.name,
        &tenant.display_name,
        &tenant.labels,
        tenant.created_at,
        tenant.updated_at,
        tenant.generation
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &Tenant, after: &Tenant) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        &after.name,
        &after.display_name,
        &after.labels,
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, tenant: &Tenant) -> Result<()> {
    tx.execute_one(DELETE, args![tenant.id, tenant.generation]).await
}

impl FromRow for Tenant {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Tenant {
            id: row.take()?,
            name: row.take_text(Slug::parse)?,
            display_name: row.take()?,
            labels: row.take_json()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
