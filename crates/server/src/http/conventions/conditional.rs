//! ETag, If-Match and If-None-Match: changes only on the version that was read, reads only of what is new.

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use paddock_model::Error;
use paddock_model::expected::Expected;

use super::problem::Failure;

/// The ETag of a resource: its generation.
pub fn etag(generation: i64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{generation}\"")).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// What the caller expects to change.
pub struct IfMatch(pub Expected);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        if !parts.headers.contains_key(IF_MATCH) {
            return Ok(IfMatch(Expected::Any));
        }
        let tags: Vec<&str> = tags(&parts.headers, &IF_MATCH).collect();
        if tags.contains(&"*") {
            return Ok(IfMatch(Expected::Any));
        }
        let is_tag = |tag: &&str| {
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"')
        };
        if !tags.iter().all(is_tag) {
            let detail = "If-Match wants the ETag as it was given, quotes included, such as \"3\".";
            return Err(Error::malformed("invalid_if_match", detail).into());
        }
        // A tag that we never gave out, a weak one included, matches nothing.
        let generation = |tag: &str| tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok();
        Ok(IfMatch(Expected::OneOf(tags.into_iter().filter_map(generation).collect())))
    }
}

/// What the caller of a read has already.
pub struct IfNoneMatch(Vec<String>);

impl IfNoneMatch {
    pub fn of(request: &Request) -> Self {
        if !matches!(*request.method(), Method::GET | Method::HEAD)
            || !request.headers().contains_key(IF_NONE_MATCH)
        {
            return IfNoneMatch(Vec::new());
        }
        IfNoneMatch(tags(request.headers(), &IF_NONE_MATCH).map(str::to_owned).collect())
    }

    /// Spares the body that the caller has.
    pub fn apply(&self, response: &mut Response) {
        if self.0.is_empty() || response.status() != StatusCode::OK {
            return;
        }
        let Some(current) = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()) else { return };
        if self.0.iter().any(|tag| tag == "*" || tag.trim_start_matches("W/") == current) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_TYPE);
            response.headers_mut().remove(CONTENT_LENGTH);
        }
    }
}

fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
