//! The revision of permissions: told with every change of them, so that a caller can ask for answers that know of it.

use http::{HeaderName, HeaderValue};
use paddock_engine::permissions;

use crate::http::App;

pub static HEADER: HeaderName = HeaderName::from_static("paddock-revision");

/// How far permissions are known here; at least as far as any change that was answered before.
pub fn revision(app: &App) -> String {
    format!("r-{}", permissions::revision(&app.engine))
}

/// The same as a header, for an answer to a change.
pub fn header(app: &App) -> (HeaderName, HeaderValue) {
    (HEADER.clone(), HeaderValue::try_from(revision(app)).unwrap_or(HeaderValue::from_static("r-0")))
}
