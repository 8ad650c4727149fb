//! Pages of other origins: only those that are configured, and never with cookies.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// The origins whose pages may call.
pub struct CrossOrigin(pub Vec<HeaderValue>);

impl CrossOrigin {
    /// The request's origin, if its page may call.
    pub fn allowed(&self, request: &Request) -> Option<HeaderValue> {
        request.headers().get(ORIGIN).filter(|origin| self.0.contains(origin)).cloned()
    }

    /// The answer to a browser that asks before it calls.
    pub fn preflight(&self, request: &Request) -> Option<Response> {
        let asks = request.method() == Method::OPTIONS
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        self.allowed(request).filter(|_| asks)?;
        let headers = [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, content-type, grpc-timeout, if-match, if-none-match, idempotency-key, last-event-id, x-grpc-web, x-paddock-emulator, x-request-id, x-user-agent",
            ),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ];
        Some((StatusCode::NO_CONTENT, headers).into_response())
    }
}

pub fn write_headers(headers: &mut HeaderMap, allowed: Option<HeaderValue>) {
    let Some(origin) = allowed else { return };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("etag, grpc-message, grpc-status, location, retry-after, x-request-id"),
    );
    headers.append(VARY, HeaderValue::from_static("origin"));
}
