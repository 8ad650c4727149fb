//! The variable part of a path.

use axum::extract::FromRequestParts;
use http::request::Parts;
use paddock_model::Error;

use super::problem::Failure;

/// What stands in the path's one place holder.
pub struct Path(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Path {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let text = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        text.map(|axum::extract::Path(text)| Path(text))
            .map_err(|_| Error::malformed("invalid_path", "The path is not valid UTF-8.").into())
    }
}
