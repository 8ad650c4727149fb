//! The gRPC surface, on the same listener as everything else: vehicles, health and reflection; also for browsers, as gRPC-Web.

mod cars;
mod ending;
mod status;
mod vehicles;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use paddock_vehicle::DESCRIPTORS;
use paddock_vehicle::proto::vehicle_server_server::SERVICE_NAME as SERVICE;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_web::GrpcWebLayer;

use crate::auth::{RateLimit, Recognised};
use crate::http::App;
use crate::http::conventions::cross_origin;
use crate::http::conventions::request_id::{self, RequestId};
use vehicles::Gateway;

/// Everything that is served by gRPC.
pub async fn routes(app: &App) -> anyhow::Result<Router> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let router = Router::new()
        .route(&format!("/{SERVICE}/{{method}}"), post(vehicles::call))
        .with_state(Gateway { app: app.clone(), cars: Arc::default() });
    let router = serve(router, health);
    let router = serve(router, described().build_v1()?);
    let router = serve(router, described().build_v1alpha()?);
    Ok(router.layer(GrpcWebLayer::new()).layer(from_fn_with_state(app.clone(), keep_conventions)))
}

fn serve<S>(router: Router, service: S) -> Router
where
    S: tower::Service<Request, Error = std::convert::Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Response: axum::response::IntoResponse,
    S::Future: Send + 'static,
{
    router.route_service(&format!("/{}/{{*rest}}", S::NAME), service)
}

/// What all calls have in common, before they are calls: a browser's question, the request's id, a measure.
async fn keep_conventions(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::for_request(&request);
    request.extensions_mut().insert(id.clone());
    request.extensions_mut().insert(RateLimit::default());
    request.extensions_mut().insert(Recognised::default());
    let origin = app.cross_origin.allowed(&request);
    let mut response = match app.cross_origin.preflight(&request) {
        Some(answer) => answer,
        None => next.run(request).await,
    };
    response.headers_mut().insert(request_id::HEADER.clone(), id.header());
    cross_origin::write_headers(response.headers_mut(), origin);
    metrics::histogram!("paddock_grpc_answer_duration_seconds").record(started.elapsed());
    response
}
