//! Retention policies: which snapshots of a group are kept.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::retention_policies::{
    JudgedSnapshot, ListRetentionPolicies, RetentionMode, RetentionPolicy, RetentionPolicyChange,
    RetentionPolicyPage, RetentionPolicyPath, RetentionPolicySpec, RetentionPreview, RetentionRules,
};
use paddock_engine::retention_policies::{self, Judged, Preview};
use paddock_engine::tenants;
use paddock_model::retention::{Kept, Mode, Released, Rules};
use paddock_model::retention_policies::{self as model, RetentionPolicyId};
use paddock_model::tenants::{Tenant, TenantId};
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::{Bare, Body, Submission};
use super::conventions::conditional::{IfMatch, etag};
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::subject;
use super::conventions::tenant::TenantHint;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, update, delete))
        .routes(routes!(preview))
        .routes(routes!(preview_proposed))
}

/// List retention policies
#[utoipa::path(get, path = "/retention_policies", tag = "retention_policies", params(ListRetentionPolicies), responses((status = 200, body = RetentionPolicyPage, description = "A page of policies.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListRetentionPolicies>,
) -> Answer<Json<RetentionPolicyPage>> {
    let listing = Listing::of("retention_policies", &(&query.tenant_id, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let tenant = query.tenant_id.as_deref().and_then(TenantId::parse).or(hint);
    let page = retention_policies::list(&app.engine, &caller, tenant, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(RetentionPolicyPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Create a retention policy
///
/// One for each group and mode of a tenant. It is carried out within a minute; try it with a preview first.
#[utoipa::path(post, path = "/retention_policies", tag = "retention_policies", request_body = RetentionPolicySpec, responses((status = 201, body = RetentionPolicy, description = "The policy was created.")))]
async fn create(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Submission { caller, body }: Submission<RetentionPolicySpec>,
) -> Answer<Response> {
    let tenant = meant(&app, &caller, body.tenant_id.as_deref(), hint).await?;
    let spec = spec(body.group, body.mode, &body.rules);
    let policy = retention_policies::create(&app.engine, &caller, tenant.id, spec).await?;
    let location = format!("/api/v1/retention_policies/{}", policy.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], versioned(policy)).into_response())
}

/// Read a retention policy
#[utoipa::path(get, path = "/retention_policies/{id}", tag = "retention_policies", params(RetentionPolicyPath), responses((status = 200, body = RetentionPolicy, description = "The policy.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Response> {
    Ok(versioned(retention_policies::get(&app.engine, &caller, read_id(&id)?).await?).into_response())
}

/// Replace what a retention policy says
#[utoipa::path(put, path = "/retention_policies/{id}", tag = "retention_policies", params(RetentionPolicyPath), request_body = RetentionPolicyChange, responses((status = 200, body = RetentionPolicy, description = "The policy as it stands now.")))]
async fn update(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
    Body(body): Body<RetentionPolicyChange>,
) -> Answer<Response> {
    let spec = spec(body.group, body.mode, &body.rules);
    let policy = retention_policies::update(&app.engine, &caller, read_id(&id)?, spec, &expected).await?;
    Ok(versioned(policy).into_response())
}

/// Delete a retention policy
///
/// Nothing is released by it any more.
#[utoipa::path(delete, path = "/retention_policies/{id}", tag = "retention_policies", params(RetentionPolicyPath), responses((status = 204, description = "The policy is gone.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
) -> Answer<StatusCode> {
    retention_policies::delete(&app.engine, &caller, read_id(&id)?, &expected).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// See what a retention policy would do now
#[utoipa::path(post, path = "/retention_policies/{id}/preview", tag = "retention_policies", params(RetentionPolicyPath), responses((status = 200, body = RetentionPreview, description = "What would go, what that would free, and what keeps the rest.")))]
async fn preview(
    State(app): State<App>,
    Path(id): Path,
    Bare(caller): Bare,
) -> Answer<Json<RetentionPreview>> {
    app.rates.count_costly(&caller.subject)?;
    Ok(Json(wire_preview(retention_policies::preview(&app.engine, &caller, read_id(&id)?).await?)))
}

/// See what a retention policy would do if it were there
///
/// It would take the place of one for the same group and mode.
#[utoipa::path(post, path = "/retention_policies/preview", tag = "retention_policies", request_body = RetentionPolicySpec, responses((status = 200, body = RetentionPreview, description = "What would go, what that would free, and what keeps the rest.")))]
async fn preview_proposed(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Submission { caller, body }: Submission<RetentionPolicySpec>,
) -> Answer<Json<RetentionPreview>> {
    app.rates.count_costly(&caller.subject)?;
    let tenant = meant(&app, &caller, body.tenant_id.as_deref(), hint).await?;
    let spec = spec(body.group, body.mode, &body.rules);
    let preview = retention_policies::preview_proposed(&app.engine, &caller, tenant.id, spec).await?;
    Ok(Json(wire_preview(preview)))
}

async fn meant(
    app: &App,
    caller: &paddock_model::caller::Caller,
    named: Option<&str>,
    hint: Option<TenantId>,
) -> Result<Tenant> {
    let named = match named {
        Some(id) => Some(TenantId::parse(id).ok_or_else(|| subject::not_an_id("/tenantId"))?),
        None => hint,
    };
    tenants::meant(&app.engine, caller, named).await
}

/// A text that is no id names a policy that does not exist.
fn read_id(text: &str) -> Result<RetentionPolicyId> {
    RetentionPolicyId::parse(text).ok_or_else(|| Error::not_found("retention policy"))
}

fn spec(group: Option<String>, mode: RetentionMode, rules: &RetentionRules) -> model::RetentionPolicySpec {
    let mode = match mode {
        RetentionMode::Always => Mode::Always,
        RetentionMode::Pressure => Mode::Pressure,
    };
    let rules = Rules {
        keep_last: rules.keep_last,
        keep_within_seconds: rules.keep_within_seconds,
        keep_hourly: rules.keep_hourly,
        keep_daily: rules.keep_daily,
        keep_weekly: rules.keep_weekly,
        max_count: rules.max_count,
        max_total_bytes: rules.max_total_bytes,
        max_age_seconds: rules.max_age_seconds,
    };
    model::RetentionPolicySpec { group, mode, rules }
}

fn versioned(policy: model::RetentionPolicy) -> impl IntoResponse {
    ([(ETAG, etag(policy.generation))], Json(wire(policy)))
}

fn wire(policy: model::RetentionPolicy) -> RetentionPolicy {
    let rules = policy.rules;
    RetentionPolicy {
        id: policy.id.to_string(),
        tenant_id: policy.tenant.to_string(),
        group: policy.group,
        mode: match policy.mode {
            Mode::Always => RetentionMode::Always,
            Mode::Pressure => RetentionMode::Pressure,
        },
        rules: RetentionRules {
            keep_last: rules.keep_last,
            keep_within_seconds: rules.keep_within_seconds,
            keep_hourly: rules.keep_hourly,
            keep_daily: rules.keep_daily,
            keep_weekly: rules.keep_weekly,
            max_count: rules.max_count,
            max_total_bytes: rules.max_total_bytes,
            max_age_seconds: rules.max_age_seconds,
        },
        created_at: time(policy.created_at),
        updated_at: time(policy.updated_at),
    }
}

/// Whoever has more has read enough.
const NAMED: usize = 1000;

fn wire_preview(preview: Preview) -> RetentionPreview {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let (released_count, kept_count) = (count(preview.released.len()), count(preview.kept.len()));
    let released = |(judged, reason): (Judged, Released)| JudgedSnapshot {
        reason: Some(reason.name().to_owned()),
        ..wire_judged(judged)
    };
    let kept = |(judged, reasons): (Judged, Vec<Kept>)| JudgedSnapshot {
        kept_because: Some(reasons.iter().map(|kept| kept.name().to_owned()).collect()),
        ..wire_judged(judged)
    };
    RetentionPreview {
        released: preview.released.into_iter().take(NAMED).map(released).collect(),
        released_count,
        frees_bytes: preview.frees_bytes,
        kept: preview.kept.into_iter().take(NAMED).map(kept).collect(),
        kept_count,
    }
}

fn wire_judged(judged: Judged) -> JudgedSnapshot {
    JudgedSnapshot {
        name: judged.name.to_string(),
        group: judged.group,
        score: judged.score,
        reason: None,
        kept_because: None,
    }
}
