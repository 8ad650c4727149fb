//! Retention policies: what tenants say of their groups of snapshots.

use paddock_model::page::{Page, PageRequest};
use paddock_model::retention::Mode;
use paddock_model::retention_policies::{RetentionPolicy, RetentionPolicyId};
use paddock_model::scopes::Scope;
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, tenant, of_group, mode, rules, created_at, updated_at, generation FROM retention_policies";

const ALL: &str = "
    SELECT id, tenant, of_group, mode, rules, created_at, updated_at, generation FROM retention_policies ORDER BY id";

const OF_TENANT: &str = "
    SELECT id, tenant, of_group, mode, rules, created_at, updated_at, generation FROM retention_policies
    WHERE tenant = $1 ORDER BY id";

const FIND: &str = "
    SELECT id, tenant, of_group, mode, rules, created_at, updated_at, generation FROM retention_policies WHERE id = $1";

const INSERT: &str = "
    INSERT INTO retention_policies (id, tenant, of_group, mode, rules, created_at, updated_at, generation)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE retention_policies SET of_group = $3, mode = $4, rules = $5, updated_at = $6, generation = $7
    WHERE id = $1 AND generation = $2";

const DELETE: &str = "
    DELETE FROM retention_policies WHERE id = $1 AND generation = $2";

const DELETE_OF_TENANT: &str = "
    DELETE FROM retention_policies WHERE tenant = $1";

pub async fn list(
    tx: &mut Tx,
    scope: &Scope,
    tenant: Option<TenantId>,
    page: PageRequest,
) -> Result<Page<RetentionPolicy>> {
    let mut select = Select::new(LIST);
    select.within(scope, "tenant");
    if let Some(tenant) = tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    let policies = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(policies, &page, |policy: &RetentionPolicy| policy.id.0))
}

/// For the loop, which looks after everyone's.
pub async fn all(tx: &mut Tx) -> Result<Vec<RetentionPolicy>> {
    tx.rows(ALL, &[]).await
}

pub async fn of_tenant(tx: &mut Tx, tenant: TenantId) -> Result<Vec<RetentionPolicy>> {
    tx.rows(OF_TENANT, args![tenant]).await
}

pub async fn find(tx: &mut Tx, scope: &Scope, id: RetentionPolicyId) -> Result<Option<RetentionPolicy>> {
    Ok(tx.row(FIND, args![id]).await?.filter(|policy: &RetentionPolicy| scope.covers(policy.tenant)))
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(
    tx: &mut Tx,
    scope: &Scope,
    id: RetentionPolicyId,
) -> Result<Option<RetentionPolicy>> {
    Ok(tx
        .row_to_change(FIND, args![id])
        .await?
        .filter(|policy: &RetentionPolicy| scope.covers(policy.tenant)))
}

pub async fn insert(tx: &mut Tx, policy: &RetentionPolicy) -> Result<()> {
    let args = args![
        policy.id,
        policy.tenant,
        policy.group.as_deref(),
        policy.mode.name(),
        serde_json::json!(policy.rules),
        policy.created_at,
        policy.updated_at,
        policy.generation
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &RetentionPolicy, after: &RetentionPolicy) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        after.group.as_deref(),
        after.mode.name(),
        serde_json::json!(after.rules),
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, policy: &RetentionPolicy) -> Result<()> {
    tx.execute_one(DELETE, args![policy.id, policy.generation]).await
}

/// They go with their tenant.
pub async fn delete_of_tenant(tx: &mut Tx, tenant: TenantId) -> Result<()> {
    tx.execute(DELETE_OF_TENANT, args![tenant]).await.map(drop)
}

impl FromRow for RetentionPolicy {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(RetentionPolicy {
            id: row.take()?,
            tenant: row.take()?,
            group: row.take_optional()?,
            mode: row.take_text(Mode::parse)?,
            rules: row.take_json()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
        })
    }
}
