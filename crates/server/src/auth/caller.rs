//! The caller of a request: an operation that takes one is closed to who has no valid credential.

use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use paddock_engine::{permissions, tickets};
use paddock_model::drivers::emulator_hosts::Channel;
use paddock_model::emulators::EmulatorId;
use paddock_model::error::Kind;
use paddock_model::{Error, Result};

use super::Identity;
use crate::http::App;
use crate::http::conventions::problem::Failure;
use crate::http::conventions::request_id::RequestId;

/// The caller, as the use-cases want it.
pub struct Caller(pub paddock_model::caller::Caller);

/// What is left of the caller's rate; found by the extractor, written where all headers are.
pub type RateLimit = Arc<OnceLock<HeaderValue>>;

/// Who was recognised; known to the extractor, told to the audit if the request is refused.
pub type Recognised = Arc<OnceLock<paddock_model::caller::Caller>>;

impl FromRequestParts<App> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        Caller::of_request(app, parts).await
    }
}

impl Caller {
    /// By the credential in its header.
    pub async fn of_request(app: &App, parts: &Parts) -> Result<Self, Failure> {
        let verified = match bearer(&parts.headers) {
            Ok(credential) => app.credentials.verify(credential).await,
            Err(error) => Err(error),
        };
        Caller::admit(app, parts, verified)
    }

    /// By a ticket for one stream, which is used up by that.
    pub async fn by_ticket(
        app: &App,
        parts: &Parts,
        ticket: &str,
        emulator: &str,
        channel: Channel,
    ) -> Result<Self, Failure> {
        if parts.headers.contains_key(AUTHORIZATION) {
            let detail = "Send a credential or a ticket, but not both.";
            return Err(Error::malformed("two_credentials", detail).into());
        }
        let redeemed = match EmulatorId::parse(emulator) {
            Some(id) => tickets::redeem(&app.engine, ticket, id, channel).await?,
            None => None,
        };
        let verified = redeemed.map(|ticket| Identity {
            subject: ticket.subject.clone(),
            credential: Arc::new(ticket.credential()),
        });
        Caller::admit(app, parts, verified.ok_or_else(invalid_ticket))
    }

    fn admit(app: &App, parts: &Parts, verified: Result<Identity>) -> Result<Self, Failure> {
        let identity = judge(app, parts, verified.and_then(|identity| active(app, identity)))?;
        let remaining = app.rates.count_request(&identity.subject)?;
        if let Some(rate_limit) = parts.extensions.get::<RateLimit>() {
            let _ = rate_limit.set(remaining);
        }
        let caller = paddock_model::caller::Caller {
            subject: identity.subject,
            credential: identity.credential,
            address: Some(app.proxies.client_of(&parts.extensions, &parts.headers)),
            request_id: RequestId::of(&parts.extensions),
            once: None,
        };
        if let Some(recognised) = parts.extensions.get::<Recognised>() {
            let _ = recognised.set(caller.clone());
        }
        Ok(Caller(caller))
    }
}

/// Counts what may be a guess.
fn judge(app: &App, parts: &Parts, verified: Result<Identity>) -> Result<Identity> {
    // Who sends nothing, or what was valid until a moment ago, does not guess.
    let guesses = |error: &Error| {
        error.kind == Kind::Unauthenticated
            && !matches!(error.code, "credential_missing" | "credential_expired")
    };
    if verified.as_ref().is_err_and(guesses) {
        app.rates.count_failed_authentication(app.proxies.client_of(&parts.extensions, &parts.headers))?;
    }
    verified
}

/// A valid credential of a closed account is worth nothing, from the moment the account is closed.
fn active(app: &App, identity: Identity) -> Result<Identity> {
    if permissions::is_active(&app.engine, &identity.subject) { Ok(identity) } else { Err(super::invalid()) }
}

/// One answer to everything that may be wrong with it.
fn invalid_ticket() -> Error {
    let detail = "The ticket is not valid: a ticket opens the one stream it was made for, once, within 30 s. Get a new one.";
    Error::unauthenticated("invalid_ticket", detail)
}

fn bearer(headers: &HeaderMap) -> Result<&str> {
    let missing = || {
        Error::unauthenticated(
            "credential_missing",
            "This needs a credential, and only `Authorization: Bearer <token>` is accepted.",
        )
    };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(super::invalid());
    }
    let text = value.to_str().map_err(|_| super::invalid())?;
    let (scheme, credential) = text.split_once(' ').ok_or_else(missing)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(credential.trim()) } else { Err(missing()) }
}
