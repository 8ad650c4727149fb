//! What went wrong, as gRPC says it.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use paddock_model::Error;
use paddock_model::error::Kind;
use paddock_model::streams::End;
use tonic::{Code, Status};

/// An error of a use-case.
pub fn of_error(error: &Error) -> Status {
    let code = match (error.kind, error.code) {
        // The device is down, and may come up again.
        (Kind::Conflict, "invalid_state") => Code::Unavailable,
        (Kind::Malformed | Kind::Invalid, _) => Code::InvalidArgument,
        (Kind::Unauthenticated, _) => Code::Unauthenticated,
        (Kind::Forbidden, _) => Code::PermissionDenied,
        (Kind::NotFound, _) => Code::NotFound,
        (Kind::Conflict | Kind::Stale, _) => Code::FailedPrecondition,
        (Kind::TooMany | Kind::TooLarge, _) => Code::ResourceExhausted,
        (Kind::Unavailable, _) => Code::Unavailable,
        (Kind::Internal, _) => Code::Internal,
    };
    Status::new(code, error.detail.to_string())
}

/// Why a stream ends although neither side has ended it.
pub fn of_end(end: End) -> Status {
    match end {
        End::CredentialExpired => Status::unauthenticated("Your credential has expired. Get a new one."),
        End::PermissionLost => Status::permission_denied("You may not read this vehicle any more."),
        End::DeviceGone => Status::unavailable("The device is gone or at rest."),
        End::NewIncarnation => Status::aborted("The device was started anew. Open the stream again."),
        End::ServerGoingAway => Status::aborted("The server is stopping. Open the stream again in a moment."),
    }
}

pub fn too_late() -> Status {
    Status::deadline_exceeded("This took longer than you wanted to wait.")
}

/// An answer that consists of its status alone.
pub fn answer(status: &Status, retry_after: Option<Duration>) -> Response {
    let mut response = status.clone().into_http::<tonic::body::Body>().map(Body::new);
    if let Some(pause) = retry_after
        && let Ok(value) = HeaderValue::try_from(pause.as_millis().to_string())
    {
        // As gRPC clients read it.
        response.headers_mut().insert("grpc-retry-pushback-ms", value);
    }
    response
}
