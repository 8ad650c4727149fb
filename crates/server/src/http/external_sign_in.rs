//! Sign-in at an identity provider: the browser is sent there, and comes back with proof of who sits at it.
//!
//! Nothing is kept here meanwhile: all that must be known again follows from a cookie that only this browser has, so the
//! answer to one browser's question is worth nothing in another.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::SET_COOKIE;
use http::{HeaderMap, Uri};
use paddock_api::sign_in::SignInReturn;
use paddock_engine::Secret;
use paddock_engine::sessions::{self, Tried};
use paddock_model::error::Kind;
use paddock_model::{Error, Timestamp};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::browser::{
    Visitor, cookie, encode, read_query, redirect, redirect_with_session, safe_path, set_cookie,
};
use super::pages::{Escaped, Page, PageAnswer};
use crate::auth::issuers::Issuer;
use crate::auth::relying_party::{self, Flow, Returned};

const COOKIE: &str = "__Host-paddock-external";
const CALLBACK: &str = "/sign-in/callback";
/// How long people may take at the provider.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(finish_sign_in))
}

/// Sends the browser to the provider; it is to come back to `return_to`.
pub async fn begin(
    app: &App,
    visitor: &Visitor,
    issuer: &Arc<Issuer>,
    return_to: &str,
    again: bool,
) -> PageAnswer<Response> {
    let (secret, now) = (Secret::new(app.engine.random()), app.engine.now());
    let flow = Flow::new(issuer, &callback(visitor), secret.reveal(), now);
    let url = match relying_party::begin(issuer, &flow, again).await {
        Ok(url) => url,
        Err(error) => return refused(visitor, error, return_to),
    };
    let kept = format!("{}.{}.{}", secret.reveal(), now.as_second(), URL_SAFE_NO_PAD.encode(return_to));
    let mut response = redirect(url.as_str());
    response.headers_mut().extend(set_cookie(COOKIE, &kept, PATIENCE).map(|cookie| (SET_COOKIE, cookie)));
    Ok(response)
}

/// Come back from the identity provider
#[utoipa::path(get, path = "/sign-in/callback", tag = "sign_in", params(SignInReturn), responses(
    (status = 303, description = "Signed in; the session is in a cookie.")))]
async fn finish_sign_in(
    State(app): State<App>,
    visitor: Visitor,
    headers: HeaderMap,
    uri: Uri,
) -> PageAnswer<Response> {
    let Some(issuer) = app.sign_in.issuer() else {
        return Err(Error::not_found("identity provider").into());
    };
    let query = read_query(&uri)?;
    let text = |name: &str| query.get(name).map(str::to_owned);
    let returned =
        Returned { code: text("code"), state: text("state"), iss: text("iss"), error: text("error") };
    let Some((secret, started_at, return_to)) = cookie(&headers, COOKIE).and_then(|kept| read(&kept)) else {
        let detail = "This browser did not start a sign-in, or took too long for it. Start again.";
        return refused(&visitor, Error::malformed("no_sign_in", detail), "/");
    };
    let flow = Flow::new(issuer, &callback(&visitor), &secret, started_at);
    let signed_in = match relying_party::finish(&app.engine, issuer, &returned, &flow).await {
        Ok(signed_in) => signed_in,
        Err(error) => {
            if error.kind == Kind::Unauthenticated {
                app.rates.count_failed_authentication(visitor.address)?;
                let tried = Tried::Issuer(&issuer.settings.id);
                sessions::refuse(&app.engine, visitor.actor(), tried, error.code).await?;
            }
            return refused(&visitor, error, &return_to);
        }
    };
    let before = visitor.session_secret.as_deref();
    let (user, at) = (signed_in.user.id, signed_in.authenticated_at);
    let session = match sessions::open(&app.engine, visitor.actor(), user, at, before).await {
        Ok((_, session)) => session,
        Err(error) => {
            if error.kind == Kind::Forbidden {
                app.rates.count_failed_authentication(visitor.address)?;
                sessions::refuse(&app.engine, visitor.actor(), Tried::Account(user), error.code).await?;
            }
            return refused(&visitor, error, &return_to);
        }
    };
    Ok(ended(redirect_with_session(&return_to, Some((&session, app.sign_in.session)))))
}

/// The browser forgets the sign-in: what it has brought back is worth nothing a second time.
fn ended(mut response: Response) -> Response {
    let gone = set_cookie(COOKIE, "", Duration::ZERO);
    response.headers_mut().extend(gone.map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// Says why nobody is signed in, and where a person can go from here. They are never sent back to the provider unasked: it would
/// send them here again at once.
fn refused(visitor: &Visitor, error: Error, return_to: &str) -> PageAnswer<Response> {
    let to = encode(return_to);
    let (title, other) = match error.kind {
        Kind::Unavailable => {
            tracing::error!(%error, "nobody can sign in at the identity provider");
            let other = format!("/sign-in?local=1&return_to={to}");
            ("The identity provider does not answer", (other, "Sign in with an account of this server"))
        }
        Kind::Unauthenticated | Kind::Forbidden | Kind::Malformed => {
            let other = format!("/sign-in?again=1&return_to={to}");
            let title =
                if visitor.signed_in.is_some() { "This did not work" } else { "You are not signed in" };
            (title, (other, "Sign in as someone else"))
        }
        _ => return Err(error.into()),
    };
    let body = format!(
        "<a class=\"button\" href=\"/sign-in?return_to={}\">Try again</a>\n<a class=\"button quiet\" href=\"{}\">{}</a>",
        Escaped(&to),
        Escaped(&other.0),
        other.1,
    );
    let mut page = Page::new(title, body).refused(&error);
    if error.kind == Kind::Unavailable {
        let words = "Nobody can sign in there until it does. Try again in a moment; if that does not help, tell who runs this server.";
        page.error = Some(words.to_owned());
    }
    Ok(ended(visitor.show(page)))
}

/// Where to go after a sign-out. Never to the provider: it would sign them in again at once.
pub async fn signed_out(visitor: &Visitor, issuer: &Issuer) -> Response {
    let there = match relying_party::sign_out_page(issuer).await {
        Some(url) => {
            format!("\n<a class=\"button quiet\" href=\"{}\">Sign out there, too</a>", Escaped(url.as_str()))
        }
        None => String::new(),
    };
    let body = format!(
        "<p>The identity provider may still know you: until you sign out there, too, whoever uses this browser can come back as you.</p>\n\
         <a class=\"button\" href=\"/sign-in\">Sign in</a>\n<a class=\"button quiet\" href=\"/sign-in?again=1\">Sign in as someone else</a>{there}"
    );
    visitor.show(Page::new("You are signed out", body))
}

fn callback(visitor: &Visitor) -> String {
    format!("{}{CALLBACK}", visitor.base)
}

/// The secret, when it began, and where to go on.
fn read(kept: &str) -> Option<(String, Timestamp, String)> {
    let mut parts = kept.splitn(3, '.');
    let secret = parts.next()?.to_owned();
    let started_at = Timestamp::from_second(parts.next()?.parse().ok()?).ok()?;
    let return_to = String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
    Some((secret, started_at, safe_path(&return_to).unwrap_or("/").to_owned()))
}
