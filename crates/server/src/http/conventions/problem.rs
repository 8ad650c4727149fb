//! Turns every error into a problem document (RFC 9457).

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use paddock_api::problem::{CONTENT_TYPE as PROBLEM, Fault, Obstacle, Problem};
use paddock_model::Error;
use paddock_model::error::Kind;

use super::request_id::RequestId;

/// An error on its way out. The document is written where the request's id and path are known.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    error: Error,
}

impl Failure {
    /// An error of the transport, which has a status that no use-case knows.
    pub fn of_transport(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Failure { status, error: Error::malformed(code, detail) }
    }

    /// For those who tell it in other words than HTTP's.
    pub fn into_error(self) -> Error {
        self.error
    }
}

pub type Answer<T> = Result<T, Failure>;

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        Failure { status: status(error.kind), error }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if matches!(self.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            // There may be more of the body under way: the connection is of no further use.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(Arc::new(self.error));
        response
    }
}

const fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Malformed => StatusCode::BAD_REQUEST,
        Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Stale => StatusCode::PRECONDITION_FAILED,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Gives an error response its body; returns the error for the log.
pub fn write_document(response: &mut Response, path: &str, id: &RequestId) -> Option<Arc<Error>> {
    let error = response.extensions_mut().remove::<Arc<Error>>()?;
    let status = response.status();
    let document = Problem {
        r#type: format!("urn:paddock:problem:{}", error.code),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        status: status.as_u16(),
        detail: error.detail.to_string(),
        instance: path.to_owned(),
        code: error.code.to_owned(),
        request_id: id.to_string(),
        errors: error.faults.iter().map(fault).collect(),
        problems: error.problems.iter().map(obstacle).collect(),
        link: error.link.clone(),
    };
    let body = serde_json::to_vec(&document).unwrap_or_default();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    headers.remove(http::header::CONTENT_LENGTH);
    if let Some(after) = error.retry_after {
        // Whole seconds, and never a moment too early.
        headers.insert(RETRY_AFTER, (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1).into());
    }
    if status == StatusCode::UNAUTHORIZED {
        // RFC 6750: no error is named to who has sent nothing.
        let challenge = match error.code {
            "credential_missing" => "Bearer realm=\"paddock\"",
            _ => "Bearer realm=\"paddock\", error=\"invalid_token\"",
        };
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    *response.body_mut() = Body::from(body);
    Some(error)
}

fn fault(fault: &paddock_model::error::Fault) -> Fault {
    Fault { pointer: fault.pointer.clone(), code: fault.code.to_string(), message: fault.message.clone() }
}

fn obstacle(problem: &paddock_model::error::Problem) -> Obstacle {
    Obstacle { code: problem.code.to_string(), message: problem.message.clone() }
}
