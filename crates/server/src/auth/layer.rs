//! Stands before every operation that needs a credential: verifies it, holds the caller to its rate, and passes it on.

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use paddock_model::{Error, Result};

use crate::http::App;
use crate::http::conventions::peer::Peer;
use crate::http::conventions::problem::Failure;
use crate::http::conventions::request_id::RequestId;

static RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The caller of this request, as the use-cases want it.
pub struct Caller(pub paddock_model::caller::Caller);

pub async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let remaining = match admit(&app, &mut request).await {
        Ok(remaining) => remaining,
        Err(error) => return Failure::from(error).into_response(),
    };
    let mut response = next.run(request).await;
    response.headers_mut().insert(RATE_LIMIT.clone(), remaining);
    response
}

/// Puts the caller into the request; returns what is left of its rate.
async fn admit(app: &App, request: &mut Request) -> Result<HeaderValue> {
    let verified = match bearer(request.headers()) {
        Ok(credential) => app.credentials.verify(credential).await,
        Err(error) => Err(error),
    };
    let identity = match verified {
        Ok(identity) => identity,
        Err(error) => {
            if error.kind == paddock_model::error::Kind::Unauthenticated {
                app.rates.count_failed_authentication(Peer::of(request))?;
            }
            return Err(error);
        }
    };
    let remaining = app.rates.count_request(identity.subject)?;
    let caller = paddock_model::caller::Caller {
        subject: identity.subject,
        request_id: RequestId::of(request.extensions()),
        once: None,
    };
    request.extensions_mut().insert(caller);
    Ok(remaining)
}

fn bearer(headers: &HeaderMap) -> Result<&str> {
    let missing = || {
        Error::unauthenticated(
            "credential_missing",
            "This needs a credential. Send one as `Authorization: Bearer <token>`.",
        )
    };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(Error::unauthenticated("invalid_credential", "Send exactly one Authorization header."));
    }
    let text = value.to_str().map_err(|_| super::invalid())?;
    let (scheme, credential) = text.split_once(' ').ok_or_else(missing)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(credential.trim()) } else { Err(missing()) }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        // Absent only where the layer was forgotten; then nobody gets in.
        let caller = parts.extensions.get::<paddock_model::caller::Caller>().cloned();
        caller.map(Caller).ok_or_else(|| Error::internal("this route has no authentication layer").into())
    }
}
