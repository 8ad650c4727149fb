//! The variable part of a path.

use axum::extract::FromRequestParts;
use http::request::Parts;
use paddock_model::Error;
use serde::de::DeserializeOwned;

use super::problem::Failure;

/// What stands in the path's place holders: one text, or as many as there are.
pub struct Path<T = String>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let text = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        text.map(|axum::extract::Path(text)| Path(text))
            .map_err(|_| Error::malformed("invalid_path", "The path is not valid UTF-8.").into())
    }
}
