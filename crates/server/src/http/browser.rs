//! The browser at the other end: its cookies, whom they name, and the proof that a form is one of ours.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use paddock_engine::Secret;
use paddock_engine::audit::Actor;
use paddock_engine::sessions::{self, SignedIn};
use paddock_model::{Error, Result};
use ring::digest::{SHA256, digest};

use super::App;
use super::conventions::body;
use super::conventions::problem::Failure;
use super::conventions::request_id::RequestId;
use super::pages::{Escaped, Page, PageFailure};

/// `__Host-` has browsers refuse a cookie that was set without TLS, for another path, or by a neighbouring host name.
/// They make an exception for this very machine.
const SESSION_COOKIE: &str = "__Host-paddock-session";
const FORM_COOKIE: &str = "__Host-paddock-form";
const LONGEST_PATH: usize = 2048;

/// Who calls a page, before anything is known of them but where they are.
pub struct Visitor {
    pub address: IpAddr,
    actor: Actor,
    /// What the session's cookie holds, whether it is good or not.
    pub session_secret: Option<String>,
    pub signed_in: Option<SignedIn>,
    form_secret: Option<String>,
    /// A form's secret that the browser does not have yet.
    new_form_secret: Option<Secret>,
    /// The address by which the browser knows this server.
    pub base: String,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = PageFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, PageFailure> {
        let (actor, address) = actor(app, parts);
        let session_secret = cookie(&parts.headers, SESSION_COOKIE);
        let signed_in = match &session_secret {
            Some(secret) => sessions::find(&app.engine, secret).await?,
            None => None,
        };
        let form_secret = cookie(&parts.headers, FORM_COOKIE).filter(|_| signed_in.is_none());
        let needs_one = signed_in.is_none() && form_secret.is_none();
        let new_form_secret = needs_one.then(|| Secret::new(app.engine.random()));
        let base = base(app, parts)?;
        Ok(Visitor { address, actor, session_secret, signed_in, form_secret, new_form_secret, base })
    }
}

/// Who acts, as far as the connection says it.
pub fn actor(app: &App, parts: &Parts) -> (Actor, IpAddr) {
    let address = app.proxies.client_of(&parts.extensions, &parts.headers);
    let actor = Actor {
        request_id: RequestId::of(&parts.extensions).to_string(),
        address: Some(address.to_string()),
        ..Actor::default()
    };
    (actor, address)
}

/// The address by which the caller knows this server: as it is configured, or else as the caller has written it.
pub fn base(app: &App, parts: &Parts) -> Result<String> {
    if let Some(url) = app.sign_in.public_url() {
        return Ok(url.to_owned());
    }
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = host.or_else(|| parts.headers.get(HOST).and_then(|host| host.to_str().ok()));
    let plain = |host: &&str| {
        (1..=255).contains(&host.len())
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
    };
    let host = host.filter(plain).ok_or_else(|| {
        Error::malformed("invalid_host", "The request does not say in its Host header whom it calls.")
    })?;
    let scheme = if app.limits.tls { "https" } else { "http" };
    Ok(format!("{scheme}://{host}"))
}

pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    found
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.to_owned())
        .filter(|value| !value.is_empty())
}

/// Bound to the cookie that the form's page was shown with: who cannot read that cannot make this.
fn form_token(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, format!("form of {secret}").as_bytes()))
}

pub(super) fn set_cookie(name: &str, value: &str, lifetime: Duration) -> Option<HeaderValue> {
    let seconds = lifetime.as_secs();
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    HeaderValue::try_from(text).ok()
}

impl Visitor {
    pub fn actor(&self) -> Actor {
        match &self.signed_in {
            Some(signed_in) => signed_in.actor(self.actor.clone()),
            None => self.actor.clone(),
        }
    }

    /// The secret that this browser's forms are bound to.
    fn secret(&self) -> Option<&str> {
        match &self.signed_in {
            Some(_) => self.session_secret.as_deref(),
            None => self.form_secret.as_deref(),
        }
    }

    /// The hidden field that every form of ours has.
    pub fn form_field(&self) -> String {
        let secret = self.secret().or(self.new_form_secret.as_ref().map(Secret::reveal));
        let token = secret.map(form_token).unwrap_or_default();
        format!("<input type=\"hidden\" name=\"form_token\" value=\"{}\">", Escaped(&token))
    }

    /// Shows a page; the browser keeps what its form is bound to.
    pub fn show(&self, page: Page) -> Response {
        let mut response = page.into_response();
        if let Some(secret) = &self.new_form_secret
            && let Some(cookie) = set_cookie(FORM_COOKIE, secret.reveal(), Duration::from_secs(24 * 3600))
        {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        response
    }

    /// Sends the browser to sign in and back here.
    pub fn to_sign_in(&self, return_to: &str, again: bool) -> Response {
        let again = if again { "&again=1" } else { "" };
        redirect(&format!("/sign-in?return_to={}{again}", encode(return_to)))
    }
}

/// A redirect that lets the browser hold a new session, or none.
pub fn redirect_with_session(to: &str, session: Option<(&Secret, Duration)>) -> Response {
    let mut response = redirect(to);
    let (value, lifetime) = session.map_or(("", Duration::ZERO), |(secret, life)| (secret.reveal(), life));
    let cookies = [(SESSION_COOKIE, value, lifetime), (FORM_COOKIE, "", Duration::ZERO)];
    for (name, value, lifetime) in cookies {
        response.headers_mut().extend(set_cookie(name, value, lifetime).map(|cookie| (SET_COOKIE, cookie)));
    }
    response
}

pub fn redirect(to: &str) -> Response {
    match HeaderValue::try_from(to) {
        Ok(to) => (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response(),
        Err(error) => PageFailure::from(Error::internal(error)).into_response(),
    }
}

/// Where to go on: a path on this server, and nothing that a browser could take for another one.
pub fn safe_path(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('/')?;
    let lower = rest.to_ascii_lowercase();
    let leads_away =
        ["/", "\\", "%5c", "%2f", "%09", "%0a", "%0d"].iter().any(|start| lower.starts_with(start));
    let plain = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\');
    (!leads_away && plain && text.len() <= LONGEST_PATH).then_some(text)
}

/// What a form or a query says: each name once.
#[derive(Default)]
pub struct Fields(HashMap<String, String>);

impl Fields {
    /// Nothing if a name stands twice: two readers could take it for two different things.
    pub fn read(text: &[u8]) -> Option<Fields> {
        let mut fields = HashMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            if fields.insert(name.into_owned(), value.into_owned()).is_some() {
                return None;
            }
        }
        Some(Fields(fields))
    }

    /// As OAuth has it: an empty parameter is none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn take(&mut self, name: &str) -> String {
        self.0.remove(name).unwrap_or_default()
    }
}

/// A form that was sent in from a page of ours.
pub struct Posted {
    pub visitor: Visitor,
    pub fields: Fields,
}

impl FromRequest<App> for Posted {
    type Rejection = PageFailure;

    async fn from_request(request: Request, app: &App) -> Result<Self, PageFailure> {
        let (mut parts, body) = request.into_parts();
        let visitor = Visitor::from_request_parts(&mut parts, app).await?;
        require_same_origin(&parts.headers, &visitor.base)?;
        let request = Request::from_parts(parts, body);
        let fields = read_form(request, app).await.map_err(PageFailure::Transport)?;
        let Some(secret) = visitor.secret() else {
            if visitor.session_secret.is_some() {
                return Err(foreign_form(
                    "Your session is over, so nothing was done. Go to the start and sign in again.",
                ));
            }
            return Err(foreign_form(
                "Your browser has not sent our cookie. Allow cookies, and use HTTPS unless the server runs on this machine.",
            ));
        };
        // Digests of both: how long the comparison takes says nothing about the right one.
        let sum = |text: &str| digest(&SHA256, text.as_bytes());
        if sum(fields.text("form_token")).as_ref() != sum(&form_token(secret)).as_ref() {
            return Err(foreign_form(
                "This form is too old, or not ours. Go back, reload the page, and try again.",
            ));
        }
        Ok(Posted { visitor, fields })
    }
}

/// The fields of a form, whoever has sent it.
pub async fn read_form(request: Request, app: &App) -> Result<Fields, Failure> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let detail = "Send a form, with Content-Type: application/x-www-form-urlencoded.";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Failure::of_transport(status, "unsupported_media_type", detail));
    }
    let bytes = body::read(request, app).await?;
    Fields::read(&bytes).ok_or_else(|| Error::malformed("repeated_field", "A field stands twice.").into())
}

/// What the address says after its question mark.
pub fn read_query(uri: &http::Uri) -> Result<Fields> {
    let repeated = || Error::malformed("invalid_parameter", "A parameter of the address stands twice.");
    Fields::read(uri.query().unwrap_or_default().as_bytes()).ok_or_else(repeated)
}

/// Browsers say where a form comes from; what they say must be this server.
fn require_same_origin(headers: &HeaderMap, base: &str) -> Result<(), PageFailure> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // What a browser says of the site it says of itself alone; the origin also depends on a proxy's idea of our address.
    let ours = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => origin.eq_ignore_ascii_case(base),
        (None, None) => true,
    };
    if ours {
        return Ok(());
    }
    Err(foreign_form("This form was sent from another site. Open the page itself and try again."))
}

fn foreign_form(detail: &'static str) -> PageFailure {
    Error::new(paddock_model::error::Kind::Forbidden, "foreign_form", detail).into()
}

/// Percent-encodes a text for a query.
pub fn encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_else() {
        for (text, safe) in [
            ("/", true),
            ("/device?user_code=WDJB-MJHT", true),
            ("/oauth/authorize?redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcallback", true),
            ("", false),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("/%5Cevil.example", false),
            ("/%2Fevil.example", false),
            ("https:evil.example", false),
            ("https://good@evil.example", false),
            ("javascript:alert(1)", false),
            ("/a\r\nLocation: x", false),
            ("/\t/evil.example", false),
            ("/%09/evil.example", false),
            ("/a\\b", false),
            ("/ä", false),
        ] {
            assert_eq!(safe_path(text).is_some(), safe, "{text:?}");
        }
        assert!(safe_path(&format!("/{}", "a".repeat(2048))).is_none());
    }

    #[test]
    fn a_form_comes_from_this_server() {
        for (origin, site, fits) in [
            (None, None, true),
            (Some("http://127.0.0.1:8080"), Some("same-origin"), true),
            (Some("http://127.0.0.1:8081"), None, false),
            (Some("https://evil.example"), Some("cross-site"), false),
            (Some("null"), None, false),
            (Some("null"), Some("same-origin"), true),
            (None, Some("same-site"), false),
            (Some("http://127.0.0.1:8080"), Some("cross-site"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))));
            if let Some(site) = site {
                headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            }
            assert_eq!(
                require_same_origin(&headers, "http://127.0.0.1:8080").is_ok(),
                fits,
                "{origin:?} {site:?}"
            );
        }
    }
}
