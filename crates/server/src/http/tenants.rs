//! Tenants: the walls between customers.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::labels::Labels;
use paddock_api::tenants::{ListTenants, Tenant, TenantPage, TenantPath, TenantSpec};
use paddock_engine::tenants;
use paddock_model::error::Fault;
use paddock_model::slug::Slug;
use paddock_model::tenants::{self as model, TenantFilter, TenantId};
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::{Body, Submission};
use super::conventions::conditional::{IfMatch, etag};
use super::conventions::cursor::Listing;
use super::conventions::labels::label_selector;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, update, delete))
}

/// List tenants
///
/// The tenants that you may see, newest first.
#[utoipa::path(get, path = "/tenants", tag = "tenants", params(ListTenants), responses((status = 200, body = TenantPage, description = "A page of tenants.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ListTenants>,
) -> Answer<Json<TenantPage>> {
    let listing = Listing::of("tenants", &(&query.name, &query.label_selector));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = TenantFilter { name: query.name, labels: label_selector(query.label_selector.as_deref())? };
    let page = tenants::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(TenantPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Create a tenant
#[utoipa::path(post, path = "/tenants", tag = "tenants", request_body = TenantSpec, responses((status = 201, body = Tenant, description = "The tenant was created.")))]
async fn create(
    State(app): State<App>,
    Submission { caller, body }: Submission<TenantSpec>,
) -> Answer<Response> {
    let tenant = tenants::create(&app.engine, &caller, spec(body)?).await?;
    let location = format!("/api/v1/tenants/{}", tenant.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], versioned(tenant)).into_response())
}

/// Read a tenant
#[utoipa::path(get, path = "/tenants/{id}", tag = "tenants", params(TenantPath), responses((status = 200, body = Tenant, description = "The tenant.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Response> {
    Ok(versioned(tenants::get(&app.engine, &caller, read_id(&id)?).await?).into_response())
}

/// Replace what is said of a tenant
///
/// Everything that may be said is replaced; send `If-Match` to change only what you have read.
#[utoipa::path(put, path = "/tenants/{id}", tag = "tenants", params(TenantPath), request_body = TenantSpec, responses((status = 200, body = Tenant, description = "The tenant as it stands now.")))]
async fn update(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
    Body(body): Body<TenantSpec>,
) -> Answer<Response> {
    let tenant = tenants::update(&app.engine, &caller, read_id(&id)?, spec(body)?, &expected).await?;
    Ok(versioned(tenant).into_response())
}

/// Delete a tenant
#[utoipa::path(delete, path = "/tenants/{id}", tag = "tenants", params(TenantPath), responses((status = 204, description = "The tenant is gone.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
) -> Answer<StatusCode> {
    tenants::delete(&app.engine, &caller, read_id(&id)?, &expected).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A text that is no id names a tenant that does not exist.
pub(super) fn read_id(text: &str) -> Result<TenantId> {
    TenantId::parse(text).ok_or_else(|| Error::not_found("tenant"))
}

fn spec(body: TenantSpec) -> Result<model::TenantSpec> {
    let name =
        Slug::parse(&body.name).ok_or_else(|| fault("/name", "wrong_pattern", "it is no valid name"))?;
    Ok(model::TenantSpec { name, display_name: body.display_name, labels: body.labels.0 })
}

fn fault(pointer: &str, code: &'static str, message: &str) -> Error {
    Error::invalid(vec![Fault {
        pointer: pointer.to_owned(),
        code: code.into(),
        message: message.to_owned(),
    }])
}

fn versioned(tenant: model::Tenant) -> impl IntoResponse {
    ([(ETAG, etag(tenant.generation))], Json(wire(tenant)))
}

fn wire(tenant: model::Tenant) -> Tenant {
    Tenant {
        id: tenant.id.to_string(),
        name: tenant.name.to_string(),
        display_name: tenant.display_name,
        labels: Labels(tenant.labels),
        created_at: time(tenant.created_at),
        updated_at: time(tenant.updated_at),
    }
}
