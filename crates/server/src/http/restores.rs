//! Restores: a backup becomes a snapshot again.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::backups::TransferProgress;
use paddock_api::restores::{ListRestores, Restore, RestorePage, RestorePath, RestorePhase, RestoreSpec};
use paddock_engine::restores;
use paddock_model::backups::BackupId;
use paddock_model::restores::{self as model, RestoreFilter, RestoreId};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::backups::wire_error;
use super::conventions::body::Submission;
use super::conventions::conditional::etag;
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::tenant::TenantHint;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get))
}

/// List restores
///
/// All of the tenants that you operate or audit, and your own in others.
#[utoipa::path(get, path = "/restores", tag = "restores", params(ListRestores), responses((status = 200, body = RestorePage, description = "A page of restores.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListRestores>,
) -> Answer<Json<RestorePage>> {
    let filters = ListRestores { limit: None, cursor: None, ..query.clone() };
    let listing = Listing::of("restores", &(filters, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = RestoreFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse).or(hint),
        phase: query.phase.map(read_phase),
        backup: query.backup.as_deref().and_then(BackupId::parse),
    };
    let page = restores::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(RestorePage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Restore a backup
///
/// It becomes a new snapshot, byte for byte or not at all, whether or not what it was of is still there.
#[utoipa::path(post, path = "/restores", tag = "restores", request_body = RestoreSpec, responses((status = 202, body = Restore, description = "The restore, which is wanted from now on.")))]
async fn create(
    State(app): State<App>,
    Submission { caller, body }: Submission<RestoreSpec>,
) -> Answer<Response> {
    let backup = BackupId::parse(&body.backup).ok_or_else(|| Error::not_found("backup"))?;
    let restore = restores::create(&app.engine, &caller, backup, body.name.as_deref()).await?;
    let location = format!("/api/v1/restores/{}", restore.id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], versioned(restore)).into_response())
}

/// Read a restore
#[utoipa::path(get, path = "/restores/{podName}", tag = "restores", params(RestorePath), responses((status = 200, body = Restore, description = "The restore.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(name): Path) -> Answer<Response> {
    Ok(versioned(restores::get(&app.engine, &caller, read_id(&name)?).await?).into_response())
}

/// A text that is no name of a restore names one that does not exist.
fn read_id(text: &str) -> Result<RestoreId> {
    RestoreId::parse(text).ok_or_else(|| Error::not_found("restore"))
}

fn read_phase(phase: RestorePhase) -> model::RestorePhase {
    match phase {
        RestorePhase::Queued => model::RestorePhase::Queued,
        RestorePhase::Running => model::RestorePhase::Running,
        RestorePhase::Completed => model::RestorePhase::Completed,
        RestorePhase::Failed => model::RestorePhase::Failed,
    }
}

fn versioned(restore: model::Restore) -> impl IntoResponse {
    ([(ETAG, etag(restore.generation))], Json(wire(restore)))
}

fn wire(restore: model::Restore) -> Restore {
    Restore {
        pod_name: restore.id.to_string(),
        tenant_id: restore.tenant.to_string(),
        owner_id: restore.owner.thing().id.to_string(),
        backup: restore.backup.to_string(),
        snapshot: restore.snapshot.to_string(),
        phase: match restore.phase {
            model::RestorePhase::Queued => RestorePhase::Queued,
            model::RestorePhase::Running => RestorePhase::Running,
            model::RestorePhase::Completed => RestorePhase::Completed,
            model::RestorePhase::Failed => RestorePhase::Failed,
        },
        progress: TransferProgress { bytes_done: restore.bytes_done, bytes_total: restore.bytes_total },
        error: restore.error.map(wire_error),
        created_at: time(restore.created_at),
        started_at: restore.started_at.map(time),
        completed_at: restore.completed_at.map(time),
    }
}
