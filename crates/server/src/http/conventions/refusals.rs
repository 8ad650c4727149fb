//! Refusals: what was refused to whom is told to the audit.

use axum::http::Method;
use paddock_engine::Engine;
use paddock_engine::audit::{self, Actor, Refusal};
use paddock_engine::permissions;
use paddock_model::Error;
use paddock_model::error::Kind;
use paddock_model::permissions::tuples::Thing;

use super::super::App;
use super::request_id::RequestId;
use crate::auth::Recognised;

/// What is known of a request whose answer may be a refusal.
pub struct Request<'a> {
    pub method: &'a Method,
    pub route: &'a str,
    pub path: &'a str,
    pub id: &'a RequestId,
    pub address: std::net::IpAddr,
    pub recognised: &'a Recognised,
}

/// Records a refusal before it is answered.
pub async fn record(app: &App, request: &Request<'_>, error: &Error) {
    match error.kind {
        Kind::Forbidden => write(app.engine.clone(), refusal(app, request, error)).await,
        // Who sends nothing, or what was valid until a moment ago, is no news.
        Kind::Unauthenticated if !matches!(error.code, "credential_missing" | "credential_expired") => {
            write(app.engine.clone(), refusal(app, request, error)).await;
        }
        // It is there, but not for this caller. The answer must not take longer than one for what is not there.
        Kind::NotFound if error.object.is_some() => {
            tokio::spawn(write(app.engine.clone(), refusal(app, request, error)));
        }
        _ => {}
    }
}

async fn write(engine: Engine, refusal: Refusal) {
    if let Err(error) = audit::refuse(&engine, vec![refusal]).await {
        tracing::error!(%error, "a refusal could not be recorded");
    }
}

fn refusal(app: &App, request: &Request<'_>, error: &Error) -> Refusal {
    let actor = request.recognised.get().map_or_else(
        || Actor {
            request_id: request.id.to_string(),
            address: Some(request.address.to_string()),
            ..Actor::default()
        },
        Actor::from,
    );
    let thing = error.object.as_deref().and_then(Thing::parse);
    Refusal {
        actor,
        action: app.document.operation(request.method, request.route).to_owned(),
        tenant: thing.and_then(|thing| permissions::tenant_of(&app.engine, &thing)),
        object: error.object.clone().unwrap_or_else(|| request.path.chars().take(300).collect()),
        code: error.code.to_owned(),
    }
}
