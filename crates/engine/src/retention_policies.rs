//! Retention policies: what a tenant says of its groups of snapshots, and what would come of it.

use paddock_model::caller::Caller;
use paddock_model::expected::Expected;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::retention::{self, Kept, Released, Verdict};
use paddock_model::retention_policies::{RetentionPolicy, RetentionPolicyId, RetentionPolicySpec};
use paddock_model::slug::Slug;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::{Tx, retention_policies};
use serde_json::{Value, json};

use crate::retention::{Catalogue, Policies};
use crate::{Engine, audit, idempotency_keys, permissions, tenants};

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    tenant: Option<TenantId>,
    page: PageRequest,
) -> Result<Page<RetentionPolicy>> {
    let scope = permissions::scope(engine, caller);
    Ok(retention_policies::list(&mut engine.store.read().await?, &scope, tenant, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: RetentionPolicyId) -> Result<RetentionPolicy> {
    find(engine, &mut engine.store.read().await?, caller, id).await
}

pub async fn create(
    engine: &Engine,
    caller: &Caller,
    tenant: TenantId,
    spec: RetentionPolicySpec,
) -> Result<RetentionPolicy> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    // Held until the policy is there: it must not outlive its tenant.
    let tenant = tenants::find_to_change(engine, &mut tx, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanUpdate, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    spec.check()?;
    let policy = RetentionPolicy::new(RetentionPolicyId::new(now, engine.random()), tenant.id, spec, now);
    retention_policies::insert(&mut tx, &policy).await.map_err(exists)?;
    let details = told(&policy);
    audit::record(
        engine,
        &mut tx,
        caller,
        "retention_policies.create",
        Some(tenant.id),
        policy.object(),
        details,
    )
    .await?;
    idempotency_keys::remember(&mut tx, caller, &policy).await?;
    engine.commit(tx).await?;
    Ok(policy)
}

/// Changes the policy, if it still is what the caller expects.
pub async fn update(
    engine: &Engine,
    caller: &Caller,
    id: RetentionPolicyId,
    spec: RetentionPolicySpec,
    expected: &Expected,
) -> Result<RetentionPolicy> {
    let mut tx = engine.store.begin().await?;
    let policy = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanUpdate, &policy.tenant.object())?;
    expected.require(policy.generation)?;
    spec.check()?;
    let changed = policy.clone().changed(spec, engine.now());
    retention_policies::update(&mut tx, &policy, &changed).await.map_err(exists)?;
    let (tenant, details) = (Some(policy.tenant), told(&changed));
    audit::record(engine, &mut tx, caller, "retention_policies.update", tenant, policy.object(), details)
        .await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// Nothing that it was about is released by it any more.
pub async fn delete(
    engine: &Engine,
    caller: &Caller,
    id: RetentionPolicyId,
    expected: &Expected,
) -> Result<()> {
    let mut tx = engine.store.begin().await?;
    let policy = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanUpdate, &policy.tenant.object())?;
    expected.require(policy.generation)?;
    retention_policies::delete(&mut tx, &policy).await?;
    let (tenant, details) = (Some(policy.tenant), told(&policy));
    audit::record(engine, &mut tx, caller, "retention_policies.delete", tenant, policy.object(), details)
        .await?;
    engine.commit(tx).await
}

/// What a policy would do to the snapshots that it speaks for, as they are now.
pub struct Preview {
    /// Oldest first, and the same for what stays.
    pub released: Vec<(Judged, Released)>,
    pub kept: Vec<(Judged, Vec<Kept>)>,
    /// What the pool has more of once all of them are gone.
    pub frees_bytes: i64,
}

/// A snapshot that was judged.
pub struct Judged {
    pub name: Slug,
    pub group: Option<String>,
    pub score: Option<i64>,
}

pub async fn preview(engine: &Engine, caller: &Caller, id: RetentionPolicyId) -> Result<Preview> {
    let mut tx = engine.store.read().await?;
    let policy = find(engine, &mut tx, caller, id).await?;
    look_ahead(engine, &mut tx, policy).await
}

/// The same for a policy that is not there yet; it would take the place of one for the same group and mode.
pub async fn preview_proposed(
    engine: &Engine,
    caller: &Caller,
    tenant: TenantId,
    spec: RetentionPolicySpec,
) -> Result<Preview> {
    let mut tx = engine.store.read().await?;
    let tenant = tenants::find(engine, &mut tx, caller, tenant).await?;
    spec.check()?;
    let now = engine.now();
    let policy = RetentionPolicy::new(RetentionPolicyId::new(now, engine.random()), tenant.id, spec, now);
    look_ahead(engine, &mut tx, policy).await
}

async fn look_ahead(engine: &Engine, tx: &mut Tx, policy: RetentionPolicy) -> Result<Preview> {
    let replaced = |other: &RetentionPolicy| {
        other.id == policy.id || (&other.group, other.mode) == (&policy.group, policy.mode)
    };
    let mut policies = retention_policies::of_tenant(tx, policy.tenant).await?;
    policies.retain(|other| !replaced(other));
    let (id, mode) = (policy.id, policy.mode);
    policies.push(policy);
    let policies = Policies::of(policies);
    let catalogue = Catalogue::read(tx).await?;
    let speaks = |group: &_| policies.in_force(group, mode).filter(|policy| policy.id == id);
    let rules = catalogue.rules(speaks);
    let judgement = retention::judge(&catalogue.forest, &rules, engine.now());
    let mut preview = Preview { released: Vec::new(), kept: Vec::new(), frees_bytes: judgement.frees_bytes };
    for ((row, candidate), verdict) in
        catalogue.rows.into_iter().zip(&catalogue.forest.snapshots).zip(judgement.verdicts)
    {
        if rules[candidate.group as usize].is_none() {
            continue;
        }
        let judged = Judged { name: row.name, group: row.group, score: row.score };
        match verdict {
            Verdict::Released(reason) => preview.released.push((judged, reason)),
            Verdict::Kept(reasons) => preview.kept.push((judged, reasons.iter().collect())),
        }
    }
    Ok(preview)
}

fn told(policy: &RetentionPolicy) -> Value {
    json!({ "group": policy.group, "mode": policy.mode, "rules": policy.rules })
}

async fn find(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    id: RetentionPolicyId,
) -> Result<RetentionPolicy> {
    let scope = permissions::scope(engine, caller);
    let policy = retention_policies::find(tx, &scope, id).await?;
    policy.ok_or_else(|| Error::not_found("retention policy"))
}

async fn find_to_change(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    id: RetentionPolicyId,
) -> Result<RetentionPolicy> {
    let scope = permissions::scope(engine, caller);
    let policy = retention_policies::find_to_change(tx, &scope, id).await?;
    policy.ok_or_else(|| Error::not_found("retention policy"))
}

fn exists(error: paddock_store::Error) -> Error {
    match error {
        paddock_store::Error::Taken { .. } => {
            let detail = "The tenant has a policy for this group and mode already. Change that one, or delete it first.";
            Error::conflict("policy_exists", detail)
        }
        other => other.into(),
    }
}
