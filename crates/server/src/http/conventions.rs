//! What every answer has in common, in one place: request id, problem document, time limit, headers, metrics, log line.

pub mod body;
pub mod conditional;
pub mod cross_origin;
pub mod cursor;
pub mod labels;
mod measures;
pub mod path;
pub mod patience;
pub mod peer;
pub mod problem;
pub mod query;
pub mod rates;
pub mod refusals;
pub mod request_id;
pub mod revision;
pub mod schemas;
pub mod stream;
pub mod subject;
pub mod tenant;
pub mod time;

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use paddock_model::Error;
use tracing::Instrument;

use super::App;
use crate::auth::{RateLimit, Recognised};
use patience::Patience;
use problem::Failure;
use request_id::RequestId;

/// Answers with a stream, and not with a document.
const STREAM: &str = "/api/v1/emulators/{id}/logs";

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Limits of a request that hold for every operation.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub body_bytes: usize,
    pub body_time: Duration,
    pub request_time: Duration,
    /// How long a client may give no sign of life.
    pub stall_time: Duration,
    /// Whether answers go over TLS, and clients may be told to insist on it.
    pub tls: bool,
}

pub async fn keep_conventions(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::for_request(&request);
    let rate_limit = RateLimit::default();
    let recognised = Recognised::default();
    let patience = Patience::default();
    let address = app.proxies.client(&request);
    request.extensions_mut().insert(id.clone());
    request.extensions_mut().insert(rate_limit.clone());
    request.extensions_mut().insert(recognised.clone());
    request.extensions_mut().insert(patience.clone());
    let method = request.method().clone();
    let uri = request.uri().clone();
    let path = uri.path();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let if_none_match = conditional::IfNoneMatch::of(&request);
    let streams = route.as_ref().is_some_and(|route| route.as_str() == STREAM);
    let acceptable = !path.starts_with("/api/") || accepts_answer(request.headers(), streams);
    let span = tracing::info_span!("request", request_id = %id, trace_id = tracing::field::Empty);
    if let Some(trace) = request_id::trace_id(&request) {
        span.record("trace_id", trace);
    }

    let origin = app.cross_origin.allowed(&request);

    let mut response = if let Some(answer) = app.cross_origin.preflight(&request) {
        answer
    } else if acceptable {
        let answer = AssertUnwindSafe(next.run(request)).catch_unwind();
        match patience.limit(app.limits.request_time, answer.instrument(span.clone())).await {
            Some(Ok(response)) => response,
            Some(Err(panic)) => {
                Failure::from(Error::internal(panic_message(&*panic)).context("panicked")).into_response()
            }
            None => Failure::from(Error::unavailable(
                "timeout",
                "This took too long and was given up. Try again.",
            ))
            .into_response(),
        }
    } else {
        let detail = "This endpoint answers in application/json; accept that.";
        Failure::of_transport(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail).into_response()
    };

    // A path that nobody serves has no template; its text must not become a label.
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let cause = problem::write_document(&mut response, path, &id);
    if let Some(error) = &cause {
        let refused =
            refusals::Request { method: &method, route, path, id: &id, address, recognised: &recognised };
        refusals::record(&app, &refused, error).await;
    }
    if_none_match.apply(&mut response);
    write_headers(response.headers_mut(), &id, app.limits.tls);
    if let Some(remaining) = rate_limit.get() {
        response.headers_mut().insert(RATE_LIMIT.clone(), remaining.clone());
    }
    cross_origin::write_headers(response.headers_mut(), origin);

    let status = response.status();
    let took = started.elapsed();
    measures::record(method_label(&method), route, status.as_u16(), took);
    span.in_scope(|| log(&method, path, status, took, cause.as_deref()));
    response
}

/// Reads that went well are the many; they are told only to who asks for detail.
fn log(method: &Method, path: &str, status: StatusCode, took: Duration, cause: Option<&Error>) {
    let (status, millis) = (status.as_u16(), (took.as_secs_f64() * 1e6).round() / 1e3);
    match cause {
        // Nothing is broken that somebody must mend: room, a peer or patience is short.
        Some(error) if status == 503 => {
            tracing::warn!(%method, path, status, millis, code = error.code, %error, "unavailable");
        }
        Some(error) if status >= 500 => tracing::error!(%method, path, status, millis, %error, "failed"),
        Some(error) => tracing::info!(%method, path, status, millis, code = error.code, "refused"),
        None if method.is_safe() => tracing::debug!(%method, path, status, millis, "answered"),
        None => tracing::info!(%method, path, status, millis, "answered"),
    }
}

fn write_headers(headers: &mut HeaderMap, id: &RequestId, tls: bool) {
    const FIXED: [(HeaderName, &str); 5] = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in FIXED {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if tls {
        headers.insert("strict-transport-security", HeaderValue::from_static("max-age=31536000"));
    }
    headers.insert(request_id::HEADER.clone(), id.header());
}

/// Errors are JSON also where the answer is a stream; who wants only the stream takes them as they come.
fn accepts_answer(headers: &HeaderMap, streams: bool) -> bool {
    let mut kinds = headers.get_all(ACCEPT).iter().peekable();
    kinds.peek().is_none()
        || kinds.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            !refused
                && (matches!(kind, "*/*" | "application/*" | "application/json" | "application/problem+json")
                    || streams && matches!(kind, "text/*" | "text/event-stream"))
        })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words").to_owned()
}

fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

pub async fn no_such_path() -> Response {
    let error = Error::new(
        paddock_model::error::Kind::NotFound,
        "no_such_path",
        "Nothing is served at this path. The contract is at /-/openapi/schema.",
    );
    Failure::from(error).into_response()
}

pub async fn method_not_allowed(method: Method) -> Response {
    let detail = format!("{method} is not served at this path; the Allow header says what is.");
    Failure::of_transport(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_refused_only_to_who_does_not_want_it() {
        for (accept, wanted, streamed) in [
            (None, true, true),
            (Some("*/*"), true, true),
            (Some("text/html, application/json;q=0.5"), true, true),
            (Some("application/*"), true, true),
            (Some("text/html"), false, false),
            (Some("text/event-stream"), false, true),
            (Some("application/json;q=0"), false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|kinds| (ACCEPT, HeaderValue::from_static(kinds))));
            assert_eq!(accepts_answer(&headers, false), wanted, "{accept:?}");
            assert_eq!(accepts_answer(&headers, true), streamed, "{accept:?}");
        }
    }
}
