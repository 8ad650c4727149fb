//! Grants: rights on one tenant's things, given to one of its groups.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::grants::{Grant, GrantPage, GrantPath, GrantSpec};
use paddock_api::groups::GroupPath;
use paddock_api::page::ListPage;
use paddock_engine::grants;
use paddock_model::Error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::revision;
use super::conventions::time::time;
use super::groups::read_id;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(delete))
}

/// List a group's grants
#[utoipa::path(get, path = "/groups/{id}/grants", tag = "grants", params(GroupPath, ListPage), responses((status = 200, body = GrantPage, description = "A page of grants.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<ListPage>,
) -> Answer<Json<GrantPage>> {
    let listing = Listing::of("grants", &id);
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let page = grants::list(&app.engine, &caller, read_id(&id)?, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(GrantPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Grant a right to a group
///
/// On a thing of the group's own tenant, or a role in that tenant, if you administer it.
#[utoipa::path(post, path = "/groups/{id}/grants", tag = "grants", params(GroupPath), request_body = GrantSpec, responses((status = 201, body = Grant, description = "The grant.")))]
async fn create(
    State(app): State<App>,
    Path(id): Path,
    Submission { caller, body }: Submission<GrantSpec>,
) -> Answer<Response> {
    let group = read_id(&id)?;
    let grant = wire(grants::create(&app.engine, &caller, group, &body.object, &body.relation).await?);
    let location = format!("/api/v1/groups/{group}/grants/{}", grant.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], [revision::header(&app)], Json(grant)).into_response())
}

/// Take a right back from a group
#[utoipa::path(delete, path = "/groups/{id}/grants/{grantId}", tag = "grants", params(GrantPath), responses((status = 204, description = "The group has it no more.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, grant)): Path<(String, String)>,
) -> Answer<Response> {
    let (relation, object) = grant.split_once('@').ok_or_else(|| Error::not_found("grant"))?;
    grants::delete(&app.engine, &caller, read_id(&id)?, object, relation).await?;
    Ok((StatusCode::NO_CONTENT, [revision::header(&app)]).into_response())
}

fn wire(grant: grants::Grant) -> Grant {
    Grant {
        id: format!("{}@{}", grant.relation, grant.object),
        object: grant.object.to_string(),
        relation: grant.relation,
        granted_at: time(grant.since),
    }
}
