//! API keys: what opens the device API. A key is shown once; only its digest is kept.

use std::time::Duration;

use paddock_model::api_keys::{ApiKey, ApiKeyId, DEFAULT_LIFETIME, Scope as KeyScope, Secret};
use paddock_model::caller::Caller;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::api_keys;
use serde_json::json;

use crate::secrets::digest_of;
use crate::{Engine, audit, idempotency_keys, permissions, tenants};

/// What a caller may say about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeySpec {
    pub tenant: TenantId,
    pub name: String,
    pub scopes: Vec<KeyScope>,
    pub lifetime: Option<Duration>,
}

/// One's own keys, and those of the tenants whose members one manages.
pub async fn list(
    engine: &Engine,
    caller: &Caller,
    tenant: Option<TenantId>,
    page: PageRequest,
) -> Result<Page<ApiKey>> {
    let mut tx = engine.store.read().await?;
    Ok(api_keys::list(&mut tx, &permissions::key_scope(engine, caller), tenant, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: ApiKeyId) -> Result<ApiKey> {
    let mut tx = engine.store.read().await?;
    let key = api_keys::find(&mut tx, id).await?;
    let scope = permissions::key_scope(engine, caller);
    key.filter(|key| scope.covers(key)).ok_or_else(|| Error::not_found("API key"))
}

/// Makes a key. It is told once, and not again to a request that is repeated.
pub async fn create(engine: &Engine, caller: &Caller, spec: ApiKeySpec) -> Result<(ApiKey, Option<Secret>)> {
    tenants::get(engine, caller, spec.tenant).await?;
    let now = engine.now();
    let Some(owner) = caller.subject.user() else {
        return Err(Error::forbidden(
            "Only a person can own an API key: it ends when they leave the tenant.",
        ));
    };
    let mut tx = engine.store.begin().await?;
    // Held until the key is there: the tenant may have gone since, but does not go now.
    let tenant = tenants::find_to_change(engine, &mut tx, caller, spec.tenant).await?;
    permissions::require(engine, caller, Relation::CanCreateDevice, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok((earlier, None));
    }
    let secret = Secret::new(engine.random());
    let key = ApiKey {
        id: ApiKeyId::new(now, engine.random()),
        tenant: tenant.id,
        owner,
        name: spec.name,
        hint: secret.hint(),
        scopes: spec.scopes,
        created_at: now,
        expires_at: now + spec.lifetime.unwrap_or(DEFAULT_LIFETIME),
        last_used_at: None,
    };
    api_keys::insert(&mut tx, &key, &digest_of(secret.reveal())).await?;
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    let details = json!({ "name": key.name, "scopes": scopes });
    audit::record(engine, &mut tx, caller, "api_keys.create", Some(tenant.id), key.id.object(), details)
        .await?;
    idempotency_keys::remember(&mut tx, caller, &key).await?;
    engine.commit(tx).await?;
    Ok((key, Some(secret)))
}

/// The key opens nothing any more.
pub async fn delete(engine: &Engine, caller: &Caller, id: ApiKeyId) -> Result<()> {
    let key = get(engine, caller, id).await?;
    permissions::require_opened(engine, caller, Relation::CanDelete, &key.id.object())?;
    let mut tx = engine.store.begin().await?;
    if !api_keys::delete(&mut tx, key.id).await? {
        return Err(Error::not_found("API key"));
    }
    let details = json!({ "name": key.name });
    audit::record(engine, &mut tx, caller, "api_keys.delete", Some(key.tenant), key.id.object(), details)
        .await?;
    engine.commit(tx).await
}

/// The key, if it is valid now: known, not expired, and its owner still belongs to the tenant.
pub async fn verify(engine: &Engine, secret: &Secret) -> Result<Option<ApiKey>> {
    let now = engine.now();
    let known =
        api_keys::find_by_digest(&mut engine.store.read().await?, &digest_of(secret.reveal())).await?;
    let Some(key) = known.filter(|key| now < key.expires_at) else { return Ok(None) };
    let owner = Subject::User(key.owner);
    let belongs = permissions::is_active(engine, &owner)
        && permissions::holds(engine, &owner.thing(), Relation::Member.name(), &key.tenant.object().thing());
    if !belongs {
        return Ok(None);
    }
    // Once a minute is enough to tell a key that is used from one that is not.
    const NOTED_EVERY: Duration = Duration::from_secs(60);
    let before = now - NOTED_EVERY;
    if key.last_used_at.is_none_or(|at| at < before) {
        let mut tx = engine.store.begin().await?;
        api_keys::record_use(&mut tx, key.id, now, before).await?;
        engine.commit(tx).await?;
    }
    Ok(Some(key))
}
