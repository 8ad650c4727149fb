//! Snapshots: what emulators boot from.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::ETAG;
use paddock_api::labels::Labels;
use paddock_api::snapshots::{
    AndroidFacts, ListSnapshots, OriginKind, Snapshot, SnapshotOrigin, SnapshotPage, SnapshotPath,
    SnapshotState,
};
use paddock_engine::snapshots::{self, Described};
use paddock_model::snapshots::{self as model, SnapshotFilter};
use paddock_model::tenants::TenantId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::conditional::etag;
use super::conventions::cursor::Listing;
use super::conventions::labels::label_selector;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::time;
use super::emulators::{read_device_type, wire_device_type};
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// List snapshots
///
/// Those of your tenants and the platform's own, newest first.
#[utoipa::path(get, path = "/snapshots", tag = "snapshots", params(ListSnapshots), responses((status = 200, body = SnapshotPage, description = "A page of snapshots.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ListSnapshots>,
) -> Answer<Json<SnapshotPage>> {
    let listing = Listing::of("snapshots", &ListSnapshots { limit: None, cursor: None, ..query.clone() });
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = SnapshotFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse),
        deployable: query.deployable,
        root: query.root,
        device_type: query.device_type.map(read_device_type),
        labels: label_selector(query.label_selector.as_deref())?,
    };
    let page = snapshots::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(SnapshotPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Read a snapshot
#[utoipa::path(get, path = "/snapshots/{name}", tag = "snapshots", params(SnapshotPath), responses((status = 200, body = Snapshot, description = "The snapshot.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(name): Path) -> Answer<Response> {
    let described = snapshots::get(&app.engine, &caller, &name).await?;
    Ok(([(ETAG, etag(described.snapshot.generation))], Json(wire(described))).into_response())
}

fn wire(Described { snapshot, layer }: Described) -> Snapshot {
    Snapshot {
        deployable: snapshot.is_deployable(),
        root: snapshot.is_root(),
        name: snapshot.name.to_string(),
        tenant_id: snapshot.tenant.map(|tenant| tenant.to_string()),
        parent: snapshot.parent.map(|parent| parent.to_string()),
        state: match snapshot.state {
            model::SnapshotState::Creating => SnapshotState::Creating,
            model::SnapshotState::Verifying => SnapshotState::Verifying,
            model::SnapshotState::Ready => SnapshotState::Ready,
            model::SnapshotState::Faulted => SnapshotState::Faulted,
            model::SnapshotState::Deleting => SnapshotState::Deleting,
        },
        deployable_problems: snapshot.problems,
        rooted_at: snapshot.rooted_at.map(time),
        rooted_by: snapshot.rooted_by,
        size_bytes: layer.as_ref().map_or(0, |layer| layer.virtual_bytes),
        allocated_bytes: layer.as_ref().map_or(0, |layer| layer.allocated_bytes),
        checksum: layer.and_then(|layer| layer.digest).map(|digest| format!("sha256:{digest}")),
        android: AndroidFacts {
            version: snapshot.image.android_version,
            abi: snapshot.image.abi,
            device_type: wire_device_type(snapshot.image.device_type),
        },
        origin: SnapshotOrigin {
            kind: match snapshot.origin {
                model::Origin::Import { .. } => OriginKind::Import,
            },
        },
        labels: Labels(snapshot.labels),
        created_at: time(snapshot.created_at),
        created_by: snapshot.created_by,
        last_used_at: snapshot.last_used_at.map(time),
        use_count: snapshot.use_count,
    }
}
