//! API keys: what opens the device API.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::api_keys::{ApiKey, ApiKeyPage, ApiKeyPath, ApiKeyScope, ApiKeySpec, ListApiKeys};
use paddock_engine::{api_keys, tenants};
use paddock_model::api_keys::{self as model, ApiKeyId, Scope, Secret};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::subject;
use super::conventions::tenant::TenantHint;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, delete))
}

/// List API keys
///
/// Yours, and those of the tenants whose members you manage.
#[utoipa::path(get, path = "/api_keys", tag = "api_keys", params(ListApiKeys), responses((status = 200, body = ApiKeyPage, description = "A page of keys.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListApiKeys>,
) -> Answer<Json<ApiKeyPage>> {
    let listing = Listing::of("api_keys", &(&query.tenant_id, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let tenant = query.tenant_id.as_deref().and_then(TenantId::parse).or(hint);
    let page = api_keys::list(&app.engine, &caller, tenant, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    let items = page.items.into_iter().map(|key| wire(key, None)).collect();
    Ok(Json(ApiKeyPage { items, next_cursor }))
}

/// Create an API key
///
/// The answer holds the key; it is never told again.
#[utoipa::path(post, path = "/api_keys", tag = "api_keys", request_body = ApiKeySpec, responses((status = 201, body = ApiKey, description = "The key.")))]
async fn create(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Submission { caller, body }: Submission<ApiKeySpec>,
) -> Answer<Response> {
    app.rates.count_costly(&caller.subject)?;
    let named = match &body.tenant_id {
        Some(id) => Some(TenantId::parse(id).ok_or_else(|| subject::not_an_id("/tenantId"))?),
        None => hint,
    };
    let tenant = tenants::meant(&app.engine, &caller, named).await?;
    let mut scopes: Vec<Scope> = body.scopes.into_iter().map(scope).collect();
    scopes.dedup();
    let spec = api_keys::ApiKeySpec {
        tenant: tenant.id,
        name: body.name,
        scopes,
        lifetime: body.expires_in_seconds.map(Duration::from_secs),
    };
    let (key, secret) = api_keys::create(&app.engine, &caller, spec).await?;
    let location = format!("/api/v1/api_keys/{}", key.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(wire(key, secret.as_ref()))).into_response())
}

/// Read what may be known of an API key
#[utoipa::path(get, path = "/api_keys/{id}", tag = "api_keys", params(ApiKeyPath), responses((status = 200, body = ApiKey, description = "The key, without itself.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Json<ApiKey>> {
    Ok(Json(wire(api_keys::get(&app.engine, &caller, read_id(&id)?).await?, None)))
}

/// Revoke an API key
///
/// It opens nothing from now on.
#[utoipa::path(delete, path = "/api_keys/{id}", tag = "api_keys", params(ApiKeyPath), responses((status = 204, description = "The key is worthless.")))]
async fn delete(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<StatusCode> {
    api_keys::delete(&app.engine, &caller, read_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn read_id(text: &str) -> Result<ApiKeyId> {
    ApiKeyId::parse(text).ok_or_else(|| Error::not_found("API key"))
}

const fn scope(scope: ApiKeyScope) -> Scope {
    match scope {
        ApiKeyScope::DeviceRead => Scope::DeviceRead,
        ApiKeyScope::DeviceWrite => Scope::DeviceWrite,
    }
}

fn wire(key: model::ApiKey, secret: Option<&Secret>) -> ApiKey {
    let scopes = key.scopes.iter().map(|scope| match scope {
        Scope::DeviceRead => ApiKeyScope::DeviceRead,
        Scope::DeviceWrite => ApiKeyScope::DeviceWrite,
    });
    ApiKey {
        id: key.id.to_string(),
        tenant_id: key.tenant.to_string(),
        owner_id: key.owner.to_string(),
        name: key.name,
        hint: key.hint,
        scopes: scopes.collect(),
        created_at: time(key.created_at),
        expires_at: time(key.expires_at),
        last_used_at: key.last_used_at.map(time),
        key: secret.map(|secret| secret.reveal().to_owned()),
    }
}
