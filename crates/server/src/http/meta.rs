//! What the server says about itself, under `/-/` and without a credential.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY};
use http::{HeaderMap, StatusCode};
use paddock_api::meta::{ApiVersion, ReadSchema, Readiness, SchemaFormat, Text, Version};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::problem::Answer;
use super::conventions::query::Query;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Which build this is.
#[derive(Debug, Clone)]
pub struct Build {
    pub commit: &'static str,
    pub built_at: &'static str,
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(alivez))
        .routes(routes!(readyz))
        .routes(routes!(version))
        .routes(routes!(schema))
        .routes(routes!(metrics))
}

/// Is the process alive?
#[utoipa::path(get, path = "/-/alivez", tag = "meta", security(()), responses((status = 200, body = Text, content_type = "text/plain", description = "It is.", example = "ok")))]
async fn alivez() -> Response {
    ([(CONTENT_TYPE, PLAIN)], "ok").into_response()
}

/// Is the server ready for requests?
///
/// Not while it shuts down, without its database, or when a loop is stuck.
#[utoipa::path(get, path = "/-/readyz", tag = "meta", security(()), params(Readiness), responses(
    (status = 200, body = Text, content_type = "text/plain", description = "It is.", example = "ok"),
    (status = 503, body = Text, content_type = "text/plain", description = "It is not; `?verbose` says why.", example = "not ready")))]
async fn readyz(State(app): State<App>, Query(query): Query<Readiness>) -> Response {
    let (ready, report) = app.health.report().await;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let short = if ready { "ok" } else { "not ready" };
    let body = if query.verbose.is_some() { report } else { short.to_owned() };
    (status, [(CONTENT_TYPE, PLAIN)], body).into_response()
}

/// Which build answers?
#[utoipa::path(get, path = "/-/version", tag = "meta", security(()), responses((status = 200, body = Version, description = "The build.")))]
async fn version(State(app): State<App>) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: app.build.commit.to_owned(),
        built_at: app.build.built_at.to_owned(),
        api_versions: vec![ApiVersion::V1],
    })
}

/// The contract
///
/// This document, made from the running code: JSON, or YAML by `Accept: application/yaml` or `?format=yaml`.
#[utoipa::path(get, path = "/-/openapi/schema", tag = "meta", security(()), params(ReadSchema), responses(
    (status = 200, description = "The OpenAPI document.", content(
        (serde_json::Value = "application/json"),
        (Text = "application/yaml")))))]
async fn schema(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<ReadSchema>,
) -> Answer<Response> {
    let wants_yaml = || {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        prefers_yaml(accept)
    };
    let yaml = query.format.map_or_else(wants_yaml, |format| format == SchemaFormat::Yaml);
    let (kind, text) = if yaml {
        ("application/yaml", &app.document.yaml)
    } else {
        ("application/json", &app.document.json)
    };
    let headers = [
        (CONTENT_TYPE, kind),
        (ETAG, if yaml { &app.document.yaml_etag } else { &app.document.json_etag }),
        (VARY, "accept"),
        (CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, text.clone()).into_response())
}

/// Whether YAML is asked for more than anything that JSON would do for.
fn prefers_yaml(accept: &str) -> bool {
    let mut best = (0.0, false);
    for part in accept.split(',') {
        let mut words = part.split(';').map(str::trim);
        let yaml = match words.next().unwrap_or_default() {
            "application/yaml" | "application/x-yaml" | "text/yaml" => true,
            "application/json" | "application/*" | "*/*" => false,
            _ => continue,
        };
        let weight = words.find_map(|word| word.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        if weight > best.0 {
            best = (weight, yaml);
        }
    }
    best.1
}

/// Figures for Prometheus
#[utoipa::path(get, path = "/-/metrics", tag = "meta", security(()), responses((status = 200, body = Text, content_type = "text/plain", description = "The figures in Prometheus' text format.")))]
async fn metrics(State(app): State<App>) -> Response {
    app.health.write_metrics();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.metrics.render()).into_response()
}

#[cfg(test)]
mod tests {
    use super::prefers_yaml;

    #[test]
    fn yaml_is_for_who_prefers_it() {
        for (accept, yaml) in [
            ("", false),
            ("*/*", false),
            ("application/yaml", true),
            ("application/json, application/yaml;q=0.1", false),
            ("application/json;q=0.1, application/yaml", true),
            ("text/html, application/x-yaml;q=0.5, */*;q=0.1", true),
        ] {
            assert_eq!(prefers_yaml(accept), yaml, "{accept}");
        }
    }
}
