//! API keys: their digests, and what may be known of them besides.

use paddock_model::Timestamp;
use paddock_model::api_keys::{ApiKey, ApiKeyId, KeyScope};
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::tenants::TenantId;
use paddock_model::users::UserId;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, tenant, owner, name, hint, scopes, created_at, expires_at, last_used_at FROM api_keys";

const FIND: &str = "
    SELECT id, tenant, owner, name, hint, scopes, created_at, expires_at, last_used_at FROM api_keys WHERE id = $1";

const FIND_BY_DIGEST: &str = "
    SELECT id, tenant, owner, name, hint, scopes, created_at, expires_at, last_used_at FROM api_keys
    WHERE digest = $1";

const NAMES: &str = "
    SELECT name FROM api_keys WHERE tenant = $1 ORDER BY name LIMIT $2";

const INSERT: &str = "
    INSERT INTO api_keys (id, tenant, owner, name, hint, digest, scopes, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const RECORD_USE: &str = "
    UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $3)";

const DELETE: &str = "
    DELETE FROM api_keys WHERE id = $1";

const DELETE_OWNED: &str = "
    DELETE FROM api_keys WHERE tenant = $1 AND owner = $2";

pub async fn list(
    tx: &mut Tx,
    scope: &KeyScope,
    tenant: Option<TenantId>,
    page: PageRequest,
) -> Result<Page<ApiKey>> {
    let mut select = Select::new(LIST);
    match (&scope.administered, scope.owner) {
        (Scope::Everything, _) => {}
        (Scope::Tenants(tenants), owner) => {
            let mut places = vec!["owner = ?".to_owned()];
            let mut values = vec![owner.map_or(Value::Null, |owner| Value::Uuid(owner.0))];
            for tenant in tenants {
                places.push("tenant = ?".to_owned());
                values.push(Value::Uuid(tenant.0));
            }
            select.and(&format!("({})", places.join(" OR ")), values);
        }
    }
    if let Some(tenant) = tenant {
        select.and("tenant = ?", [Value::Uuid(tenant.0)]);
    }
    let keys = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(keys, &page, |key: &ApiKey| key.id.0))
}

pub async fn find(tx: &mut Tx, id: ApiKeyId) -> Result<Option<ApiKey>> {
    tx.row(FIND, args![id]).await
}

pub async fn find_by_digest(tx: &mut Tx, digest: &[u8]) -> Result<Option<ApiKey>> {
    tx.row(FIND_BY_DIGEST, args![digest]).await
}

/// The first few names in a tenant.
pub async fn names(tx: &mut Tx, tenant: TenantId, most: i64) -> Result<Vec<String>> {
    let rows: Vec<(String,)> = tx.rows(NAMES, args![tenant, most]).await?;
    Ok(rows.into_iter().map(|(name,)| name).collect())
}

pub async fn insert(tx: &mut Tx, key: &ApiKey, digest: &[u8]) -> Result<()> {
    let scopes = serde_json::json!(key.scopes);
    let args = args![
        key.id,
        key.tenant,
        key.owner,
        &key.name,
        &key.hint,
        digest,
        scopes,
        key.created_at,
        key.expires_at
    ];
    tx.execute_one(INSERT, args).await
}

/// Notes a use, unless one was noted since `before`.
pub async fn record_use(tx: &mut Tx, id: ApiKeyId, now: Timestamp, before: Timestamp) -> Result<()> {
    tx.execute(RECORD_USE, args![id, now, before]).await.map(drop)
}

/// False when it was gone already.
pub async fn delete(tx: &mut Tx, id: ApiKeyId) -> Result<bool> {
    Ok(tx.execute(DELETE, args![id]).await? > 0)
}

/// Deletes what someone who leaves a tenant has there.
pub async fn delete_owned(tx: &mut Tx, tenant: TenantId, owner: UserId) -> Result<u64> {
    tx.execute(DELETE_OWNED, args![tenant, owner]).await
}

impl FromRow for ApiKey {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(ApiKey {
            id: row.take()?,
            tenant: row.take()?,
            owner: row.take()?,
            name: row.take()?,
            hint: row.take()?,
            scopes: row.take_json()?,
            created_at: row.take()?,
            expires_at: row.take()?,
            last_used_at: row.take_optional()?,
        })
    }
}
