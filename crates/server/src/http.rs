//! The REST surface: one file a noun, and the conventions that all of them share.

pub mod admins;
pub mod api_keys;
pub mod audit;
pub mod backups;
mod browser;
mod ci;
pub mod conventions;
mod device;
pub mod emulators;
mod external_sign_in;
pub mod grants;
pub mod groups;
pub mod health;
pub mod invitations;
pub mod logs;
pub mod members;
pub mod meta;
mod oauth;
pub mod openapi;
mod pages;
pub mod permissions;
pub mod restores;
pub mod retention_policies;
pub mod sign_in;
pub mod snapshots;
pub mod streams;
pub mod tenants;
pub mod tickets;
pub mod users;
pub mod vehicles;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use metrics_exporter_prometheus::PrometheusHandle;
use paddock_engine::Engine;
use paddock_vehicle::Garage;
use tower::Layer;
use tower_http::compression::predicate::{And, NotForContentType, Predicate, SizeAbove};
use tower_http::compression::{Compression, CompressionLayer};
use utoipa_axum::router::OpenApiRouter;

use crate::auth::Credentials;
use crate::config::Config;
use conventions::cross_origin::CrossOrigin;
use conventions::peer::Proxies;
use conventions::rates::Rates;
use conventions::schemas::Schemas;
use conventions::{Limits, keep_conventions, method_not_allowed, no_such_path};
use health::Health;
use logs::Logs;
use openapi::Document;
use sign_in::SignIn;

/// What every handler may reach.
#[derive(Clone)]
pub struct App(Arc<Parts>);

pub struct Parts {
    pub engine: Engine,
    pub credentials: Credentials,
    pub limits: Limits,
    pub logs: Logs,
    pub cross_origin: CrossOrigin,
    pub rates: Rates,
    pub proxies: Proxies,
    pub schemas: Schemas,
    pub document: Document,
    pub health: Health,
    pub metrics: PrometheusHandle,
    pub sign_in: SignIn,
    pub build: meta::Build,
    /// Where vehicles stand that are held in this process.
    pub garage: Arc<Garage>,
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

/// Every operation that needs a credential: each takes a `Caller`, and a test tries each without one.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(admins::routes())
        .merge(api_keys::routes())
        .merge(audit::routes())
        .merge(backups::routes())
        .merge(emulators::routes())
        .merge(grants::routes())
        .merge(groups::routes())
        .merge(invitations::routes())
        .merge(logs::routes())
        .merge(members::routes())
        .merge(permissions::routes())
        .merge(restores::routes())
        .merge(retention_policies::routes())
        .merge(snapshots::routes())
        .merge(streams::routes())
        .merge(tenants::routes())
        .merge(tickets::routes())
        .merge(users::routes())
        .merge(vehicles::routes())
}

/// How people and their programs get a credential: pages and OAuth, open to all.
fn sign_in() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(sign_in::routes())
        .merge(external_sign_in::routes())
        .merge(device::routes())
        .merge(oauth::routes())
}

/// Everything there is, with what it says of itself.
fn described() -> OpenApiRouter<App> {
    OpenApiRouter::new().nest("/api/v1", api()).merge(sign_in()).merge(meta::routes())
}

/// The contract as the code says it, with the limits that are in force.
pub fn document(config: &Config) -> Document {
    let (_, described) = described().split_for_parts();
    Document::complete(&described, config)
}

/// Everything there is, beside what others serve.
pub fn everything(app: &App, beside: Router) -> Surface {
    let (routes, _) = described().split_for_parts();
    surface(routes, app, beside)
}

/// Only what operators need.
pub fn operations(app: &App) -> Surface {
    surface(meta::routes().split_for_parts().0, app, Router::new())
}

/// A router with what stands around it and needs to know nothing of its routes.
pub type Surface = Compression<Router, Worthwhile>;
type Worthwhile = And<And<SizeAbove, NotForContentType>, NotForContentType>;

fn surface(routes: Router<App>, app: &App, beside: Router) -> Surface {
    let router = routes
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), keep_conventions))
        .with_state(app.clone())
        .merge(beside);
    // Below a kilobyte, compressing costs more than it saves; streams must not wait for a full block.
    let worthwhile =
        SizeAbove::new(1024).and(NotForContentType::new("text/event-stream")).and(NotForContentType::GRPC);
    CompressionLayer::new().compress_when(worthwhile).layer(router)
}
