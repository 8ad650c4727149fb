//! How many children snapshots have, in each tenant and in all: kept with every change, so that nobody has to count.

use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args};

const ADD: &str = "
    INSERT INTO snapshot_children (snapshot, tenant, children) VALUES ($1, $2, $3)
    ON CONFLICT (snapshot, tenant) DO UPDATE SET children = snapshot_children.children + excluded.children";

const COUNTS: &str = "
    SELECT snapshot, children FROM snapshot_children";

const DELETE: &str = "
    DELETE FROM snapshot_children WHERE snapshot = $1";

/// Adds to the children of a tenant, and to those of all.
pub async fn add(tx: &mut Tx, parent: &Slug, tenant: Option<TenantId>, more: i64) -> Result<()> {
    for counted_in in tenant.map(|tenant| tenant.0).into_iter().chain([Uuid::nil()]) {
        tx.execute_one(ADD, args![parent, counted_in, more]).await?;
    }
    Ok(())
}

pub async fn delete(tx: &mut Tx, snapshot: &Slug) -> Result<()> {
    tx.execute(DELETE, args![snapshot]).await.map(drop)
}

/// How many children these have that the scope covers; a snapshot may come more than once, for several tenants.
pub async fn counts(tx: &mut Tx, scope: &Scope, snapshots: &[Slug]) -> Result<Vec<(String, i64)>> {
    let mut found = Vec::new();
    for part in snapshots.chunks(AT_ONCE) {
        let mut select = Select::new(COUNTS);
        select.one_of("snapshot", part.iter().map(|name| Value::String(name.to_string())));
        match scope {
            Scope::Everything => select.and("tenant = ?", [Value::Uuid(Uuid::nil())]),
            Scope::Tenants(tenants) => select.one_of("tenant", tenants.iter().map(|id| Value::Uuid(id.0))),
        }
        found.extend(tx.rows_of(select.all()).await?);
    }
    Ok(found)
}
