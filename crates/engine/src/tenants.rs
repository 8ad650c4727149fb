//! Tenants: the walls between customers.

use paddock_model::caller::Caller;
use paddock_model::error::{Kind, Problem};
use paddock_model::expected::Expected;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::Holder;
use paddock_model::permissions::{Object, Relation};
use paddock_model::scopes::Scope;
use paddock_model::tenants::{Tenant, TenantFilter, TenantId, TenantSpec};
use paddock_model::{Error, Result};
use paddock_store::{
    Tx, api_keys, backups, emulators, groups, relations, restores, retention_policies, snapshots,
    tenant_usage, tenants,
};
use serde_json::json;

use crate::{Engine, audit, idempotency_keys, permissions};

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &TenantFilter,
    page: PageRequest,
) -> Result<Page<Tenant>> {
    let mut tx = engine.store.read().await?;
    let scope = permissions::scope(engine, caller);
    Ok(tenants::list(&mut tx, &scope, filter, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: TenantId) -> Result<Tenant> {
    find(engine, &mut engine.store.read().await?, caller, id).await
}

/// The tenants of these ids, which the caller is known to see.
pub async fn names(engine: &Engine, ids: Vec<TenantId>) -> Result<Vec<Tenant>> {
    let page = PageRequest { limit: u32::try_from(ids.len()).unwrap_or(u32::MAX - 1), after: None };
    let mut tx = engine.store.read().await?;
    Ok(tenants::list(&mut tx, &Scope::Tenants(ids), &TenantFilter::default(), page).await?.items)
}

/// The tenant that a request is about: the one it names, or the only one that the caller has.
pub async fn meant(engine: &Engine, caller: &Caller, named: Option<TenantId>) -> Result<Tenant> {
    if let Some(id) = named {
        return get(engine, caller, id).await;
    }
    if let Scope::Tenants(tenants) = permissions::scope(engine, caller)
        && let [only] = tenants[..]
    {
        return get(engine, caller, only).await;
    }
    let detail = "Say which tenant: send its id as tenantId, or in the X-Paddock-Tenant header.";
    Err(Error::new(Kind::Invalid, "tenant_required", detail))
}

pub async fn create(engine: &Engine, caller: &Caller, spec: TenantSpec) -> Result<Tenant> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    relations::hold(&mut tx).await?;
    permissions::require(engine, caller, Relation::CanCreateTenant, &Object::system())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let tenant = Tenant::new(TenantId::new(now, engine.random()), spec, now);
    tenants::insert(&mut tx, &tenant).await.map_err(|error| name_taken(error, &tenant))?;
    let system = Holder::One(Object::system().thing());
    relations::give(&mut tx, &tenant.object().given_to("system", system), now).await?;
    let details = json!({ "name": tenant.name });
    audit::record(engine, &mut tx, caller, "tenants.create", Some(tenant.id), tenant.object(), details)
        .await?;
    idempotency_keys::remember(&mut tx, caller, &tenant).await?;
    engine.commit(tx).await?;
    Ok(tenant)
}

/// Changes the tenant, if it still is what the caller expects.
pub async fn update(
    engine: &Engine,
    caller: &Caller,
    id: TenantId,
    spec: TenantSpec,
    expected: &Expected,
) -> Result<Tenant> {
    let mut tx = engine.store.begin().await?;
    let tenant = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanUpdate, &tenant.object())?;
    expected.require(tenant.generation)?;
    let changed = tenant.clone().changed(spec, engine.now());
    tenants::update(&mut tx, &tenant, &changed).await.map_err(|error| name_taken(error, &changed))?;
    let details = json!({ "name": changed.name });
    audit::record(engine, &mut tx, caller, "tenants.update", Some(tenant.id), tenant.object(), details)
        .await?;
    engine.commit(tx).await?;
    Ok(changed)
}

pub async fn delete(engine: &Engine, caller: &Caller, id: TenantId, expected: &Expected) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    let tenant = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanDelete, &tenant.object())?;
    expected.require(tenant.generation)?;
    require_empty(&mut tx, &tenant).await?;
    tenant_usage::delete(&mut tx, tenant.id).await?;
    retention_policies::delete_of_tenant(&mut tx, tenant.id).await?;
    for restore in restores::of_tenant(&mut tx, tenant.id).await? {
        restores::delete(&mut tx, restore).await?;
        relations::take_back_all(&mut tx, &restore.object().thing()).await?;
    }
    tenants::delete(&mut tx, &tenant).await?;
    relations::take_back_all(&mut tx, &tenant.object().thing()).await?;
    let details = json!({ "name": tenant.name });
    audit::record(engine, &mut tx, caller, "tenants.delete", Some(tenant.id), tenant.object(), details)
        .await?;
    engine.commit(tx).await
}

/// Refuses while something of the tenant's is left, and says what.
async fn require_empty(tx: &mut Tx, tenant: &Tenant) -> Result<()> {
    /// So many are named; whoever has more has enough to do.
    const NAMED: i64 = 10;
    let left = [
        ("has_emulators", "emulators", emulators::names(tx, tenant.id, NAMED).await?),
        ("has_snapshots", "snapshots", snapshots::names(tx, tenant.id, NAMED).await?),
        ("has_backups", "backups", backups::names(tx, tenant.id, NAMED).await?),
        ("has_groups", "groups", groups::names(tx, tenant.id, NAMED).await?),
        ("has_api_keys", "API keys", api_keys::names(tx, tenant.id, NAMED).await?),
    ];
    let problems: Vec<Problem> = left
        .into_iter()
        .filter(|(_, _, names)| !names.is_empty())
        .map(|(code, things, names)| Problem {
            code: code.into(),
            message: format!("It still has {things}: {}.", names.join(", ")),
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    let detail = "The tenant still has things. Remove what the problems name, then delete it.";
    Err(Error::conflict("tenant_not_empty", detail).with_problems(problems))
}

pub(crate) async fn find(engine: &Engine, tx: &mut Tx, caller: &Caller, id: TenantId) -> Result<Tenant> {
    let scope = permissions::scope_at(engine, caller, Relation::CanView, id);
    let tenant = tenants::find(tx, &scope, id).await?;
    tenant.ok_or_else(|| permissions::invisible(engine, "tenant", &id.object()))
}

pub(crate) async fn find_to_change(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    id: TenantId,
) -> Result<Tenant> {
    let scope = permissions::scope_at(engine, caller, Relation::CanView, id);
    let tenant = tenants::find_to_change(tx, &scope, id).await?;
    tenant.ok_or_else(|| permissions::invisible(engine, "tenant", &id.object()))
}

fn name_taken(error: paddock_store::Error, tenant: &Tenant) -> Error {
    match error {
        paddock_store::Error::Taken { .. } => Error::conflict(
            "name_taken",
            format!("A tenant named {} exists already. Choose another name.", tenant.name),
        ),
        other => other.into(),
    }
}
