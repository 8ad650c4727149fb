//! The REST surface: one file a noun, and the conventions that all of them share.

pub mod conventions;
pub mod health;
pub mod meta;
pub mod openapi;
pub mod tenants;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use metrics_exporter_prometheus::PrometheusHandle;
use paddock_engine::Engine;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use utoipa_axum::router::OpenApiRouter;

use crate::auth::{Credentials, authenticate};
use conventions::rates::Rates;
use conventions::schemas::Schemas;
use conventions::{Limits, keep_conventions, method_not_allowed, no_such_path};
use health::Health;
use openapi::Document;

/// What every handler may reach.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    pub engine: Engine,
    pub credentials: Credentials,
    pub limits: Limits,
    pub rates: Rates,
    pub schemas: Schemas,
    pub document: Document,
    pub health: Health,
    pub metrics: PrometheusHandle,
    pub build: meta::Build,
}

impl App {
    pub fn new(parts: Parts) -> Self {
        App(Arc::new(parts))
    }
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Every operation that needs a credential.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::new().merge(tenants::routes())
}

/// The contract as the code says it.
pub fn document() -> Document {
    let (_, described) = OpenApiRouter::new().nest("/api/v1", api()).merge(meta::routes()).split_for_parts();
    Document::complete(described)
}

/// Everything there is.
pub fn router(app: &App) -> Router {
    let guarded = api().route_layer(from_fn_with_state(app.clone(), authenticate));
    let (routes, _) = OpenApiRouter::new().nest("/api/v1", guarded).merge(meta::routes()).split_for_parts();
    with_conventions(routes, app)
}

/// Only what operators need.
pub fn operations_router(app: &App) -> Router {
    with_conventions(meta::routes().split_for_parts().0, app)
}

fn with_conventions(routes: Router<App>, app: &App) -> Router {
    // Below a kilobyte, compressing costs more than it saves; streams must not wait for a full block.
    let worthwhile =
        SizeAbove::new(1024).and(NotForContentType::new("text/event-stream")).and(NotForContentType::GRPC);
    routes
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), keep_conventions))
        .layer(CompressionLayer::new().compress_when(worthwhile))
        .with_state(app.clone())
}
