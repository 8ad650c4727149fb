//! OAuth 2: how our command line gets tokens, by a browser on the same machine or by a code that is typed elsewhere.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use paddock_api::meta::Text;
use paddock_api::sign_in::{
    AuthorizationForm, AuthorizationServer, DeviceAuthorizationAnswer, DeviceAuthorizationRequest, KeySet,
    OAuthError, PublicKey, RevocationRequest, ShowAuthorization, Supported, TokenAnswer, TokenRequest,
};
use paddock_engine::audit::{self, Actor, Refusal};
use paddock_engine::authorizations::{self, Asked, Shown};
use paddock_engine::tokens::Granted;
use paddock_engine::{device_authorizations, signing_keys, tokens};
use paddock_model::authorizations::{Client, LONGEST_REDIRECT_URI, is_challenge, loopback_port};
use paddock_model::device_authorizations::{INTERVAL, LIFETIME as DEVICE_LIFETIME};
use paddock_model::error::Kind;
use paddock_model::permissions::Object;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::browser::{Fields, Posted, Visitor, actor, base, encode, read_form, read_query, redirect};
use super::conventions::problem::{Answer, Failure};
use super::pages::{Escaped, Page, PageAnswer};
use crate::auth::access_token;

const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// It has to fit into the path to which a sign-in returns.
const LONGEST_QUERY: usize = 1500;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(metadata))
        .routes(routes!(jwks))
        .routes(routes!(show_authorization, authorize))
        .routes(routes!(token))
        .routes(routes!(device_authorization))
        .routes(routes!(revoke))
}

/// What the authorization server can do (RFC 8414)
#[utoipa::path(get, path = "/.well-known/oauth-authorization-server", tag = "sign_in", responses((status = 200, body = AuthorizationServer, description = "What it can do, and where.")))]
async fn metadata(State(app): State<App>, request: Request) -> Answer<Json<AuthorizationServer>> {
    let issuer = base(&app, &request.into_parts().0)?;
    let supported = |names: &[&str]| names.iter().map(|&name| Supported(name.to_owned())).collect();
    Ok(Json(AuthorizationServer {
        authorization_endpoint: format!("{issuer}/oauth/authorize"),
        token_endpoint: format!("{issuer}/oauth/token"),
        device_authorization_endpoint: format!("{issuer}/oauth/device_authorization"),
        revocation_endpoint: format!("{issuer}/oauth/revoke"),
        jwks_uri: format!("{issuer}/.well-known/jwks.json"),
        response_types_supported: supported(&["code"]),
        grant_types_supported: supported(&["authorization_code", "refresh_token", DEVICE_CODE]),
        code_challenge_methods_supported: supported(&["S256"]),
        token_endpoint_auth_methods_supported: supported(&["none"]),
        revocation_endpoint_auth_methods_supported: supported(&["none"]),
        authorization_response_iss_parameter_supported: true,
        issuer,
    }))
}

/// The keys that verify access tokens (RFC 7517)
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "sign_in", responses((status = 200, body = KeySet, description = "The public keys, newest first.")))]
async fn jwks(State(app): State<App>) -> Answer<Response> {
    let keys = signing_keys::list(&app.engine).await?.into_iter().map(|key| PublicKey {
        kty: "OKP".to_owned(),
        crv: "Ed25519".to_owned(),
        r#use: "sig".to_owned(),
        alg: "EdDSA".to_owned(),
        kid: key.id,
        x: URL_SAFE_NO_PAD.encode(key.public),
    });
    let keys = KeySet { keys: keys.collect() };
    Ok(([(CACHE_CONTROL, "public, max-age=300")], Json(keys)).into_response())
}

/// A request for a code whose client and address are in order: what else is wrong can be told to the client.
struct Wanted<'a> {
    client: Client,
    redirect_uri: &'a str,
    state: Option<&'a str>,
    fields: &'a Fields,
}

impl<'a> Wanted<'a> {
    /// Whoever is sent elsewhere by a request that is not in order would be sent by a stranger.
    fn read(fields: &'a Fields) -> Result<Wanted<'a>> {
        let refused = |detail: &'static str| Error::malformed("invalid_request", detail);
        let client = fields.get("client_id").and_then(Client::find);
        let client = client.ok_or_else(|| refused("No such program is known here."))?;
        let redirect_uri = fields
            .get("redirect_uri")
            .filter(|uri| uri.len() <= LONGEST_REDIRECT_URI && loopback_port(uri).is_some());
        let redirect_uri = redirect_uri
            .ok_or_else(|| refused("The program wants to be answered at a place that it may not use."))?;
        Ok(Wanted { client, redirect_uri, state: fields.get("state"), fields })
    }

    /// What is wrong, as OAuth names it.
    fn fault(&self) -> Option<&'static str> {
        if self.fields.get("response_type") != Some("code") {
            return Some("unsupported_response_type");
        }
        let s256 = self.fields.get("code_challenge_method") == Some("S256");
        let challenge = self.fields.get("code_challenge").is_some_and(is_challenge);
        let state = self.state.is_none_or(|state| state.len() <= 500);
        (!s256 || !challenge || !state).then_some("invalid_request")
    }

    /// Back to the client, with this news.
    fn answer(&self, issuer: &str, name: &str, value: &str) -> Response {
        let state = self.state.map(|state| format!("&state={}", encode(state))).unwrap_or_default();
        redirect(&format!("{}?{name}={}{state}&iss={}", self.redirect_uri, encode(value), encode(issuer)))
    }
}

/// The page to let a program act for one
#[utoipa::path(get, path = "/oauth/authorize", tag = "sign_in", params(ShowAuthorization), responses(
    (status = 200, body = Text, content_type = "text/html", description = "The page."),
    (status = 303, description = "Nobody is signed in; or back to the program, with what is wrong.")))]
async fn show_authorization(
    State(app): State<App>,
    visitor: Visitor,
    uri: http::Uri,
) -> PageAnswer<Response> {
    let fields = read_query(&uri)?;
    let wanted = Wanted::read(&fields)?;
    if let Some(fault) = wanted.fault() {
        return Ok(wanted.answer(&visitor.base, "error", fault));
    }
    let query = uri.query().unwrap_or_default();
    if query.len() > LONGEST_QUERY {
        return Ok(wanted.answer(&visitor.base, "error", "invalid_request"));
    }
    let return_to = format!("/oauth/authorize?{query}");
    let Some(signed_in) = &visitor.signed_in else { return Ok(visitor.to_sign_in(&return_to, false)) };
    let max_age = fields.get("max_age").and_then(|text| text.parse::<u32>().ok());
    let age = app.engine.now().duration_since(signed_in.session.authenticated_at).as_secs();
    if max_age.is_some_and(|max_age| age > i64::from(max_age)) {
        return Ok(visitor.to_sign_in(&return_to, true));
    }
    let mut hidden = visitor.form_field();
    for name in
        ["response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method"]
    {
        if let Some(value) = fields.get(name) {
            hidden += &format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", Escaped(value));
        }
    }
    let body = format!(
        "<p>{} on this machine wants to act for you. It may do everything that you may.</p>\n\
         <dl><dt>You are</dt><dd>{}</dd><dt>It listens at</dt><dd>{}</dd></dl>\n\
         <p>Allow it only if you have started it yourself just now.</p>\n\
         <form method=\"post\" action=\"/oauth/authorize\">\n{hidden}\n\
         <button name=\"decision\" value=\"allow\">Allow</button>\n<button class=\"quiet\" name=\"decision\" value=\"deny\">Decline</button>\n</form>",
        Escaped(wanted.client.name),
        Escaped(&signed_in.user.name),
        Escaped(wanted.redirect_uri),
    );
    let mut page = Page::new("Let a program act for you", body);
    page.leads_to = Some(policy_source(wanted.redirect_uri));
    Ok(visitor.show(page))
}

/// The client's address as a content security policy can say it: it knows no addresses of IPv6.
fn policy_source(redirect_uri: &str) -> String {
    let origin = redirect_uri.trim_end_matches("/callback");
    if origin.contains('[') { "http:".to_owned() } else { origin.to_owned() }
}

/// Let a program act for one, or not
#[utoipa::path(post, path = "/oauth/authorize", tag = "sign_in", request_body(content = AuthorizationForm, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 303, description = "Back to the program, with a code or the refusal.")))]
async fn authorize(State(app): State<App>, posted: Posted) -> PageAnswer<Response> {
    let Posted { visitor, fields } = posted;
    let wanted = Wanted::read(&fields)?;
    let issuer = &visitor.base;
    if let Some(fault) = wanted.fault() {
        return Ok(wanted.answer(issuer, "error", fault));
    }
    let Some(signed_in) = &visitor.signed_in else { return Ok(visitor.to_sign_in("/", false)) };
    if fields.text("decision") != "allow" {
        return Ok(wanted.answer(issuer, "error", "access_denied"));
    }
    let asked = Asked {
        client: wanted.client.id,
        redirect_uri: wanted.redirect_uri,
        challenge: fields.text("code_challenge"),
    };
    let code = authorizations::create(&app.engine, visitor.actor(), signed_in, asked).await?;
    Ok(wanted.answer(issuer, "code", code.reveal()))
}

/// A form from a client that knows OAuth.
struct Call {
    actor: Actor,
    address: IpAddr,
    base: String,
    fields: Fields,
}

impl FromRequest<App> for Call {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let (actor, address) = actor(app, &parts);
        let base = base(app, &parts).map_err(said)?;
        let form = read_form(Request::from_parts(parts, body), app).await;
        let fields = form.map_err(IntoResponse::into_response)?;
        Ok(Call { actor, address, base, fields })
    }
}

impl Call {
    fn client(&self) -> Result<Client> {
        let unknown = || Error::malformed("invalid_client", "No such client is known here.");
        self.fields.get("client_id").and_then(Client::find).ok_or_else(unknown)
    }

    fn need(&self, name: &'static str) -> Result<&str> {
        let missing = || Error::malformed("invalid_request", format!("{name} is missing."));
        self.fields.get(name).ok_or_else(missing)
    }
}

/// What is wrong, as OAuth says it; what is no fault of the client's, as everywhere else.
fn said(error: Error) -> Response {
    if error.kind != Kind::Malformed {
        return Failure::from(error).into_response();
    }
    tracing::info!(code = error.code, "refused a client");
    let answer = OAuthError { error: error.code.to_owned(), error_description: error.detail.to_string() };
    (StatusCode::BAD_REQUEST, Json(answer)).into_response()
}

/// The same, for what may have been a guess: that is limited, and told to the audit.
async fn refused(app: &App, address: IpAddr, actor: Actor, error: Error) -> Response {
    if error.code == "invalid_grant" {
        let refusal = Refusal {
            actor,
            action: "tokens.create".to_owned(),
            tenant: None,
            object: Object::system().to_string(),
            code: error.code.to_owned(),
        };
        let counted = app.rates.count_failed_authentication(address);
        let told = match counted {
            Ok(()) => audit::refuse(&app.engine, vec![refusal]).await,
            too_many => too_many,
        };
        if let Err(error) = told {
            return Failure::from(error).into_response();
        }
    }
    said(error)
}

/// Get tokens
///
/// For an authorization code, a refresh token, or a device code that somebody has approved.
#[utoipa::path(post, path = "/oauth/token", tag = "sign_in", request_body(content = TokenRequest, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 200, body = TokenAnswer, description = "The tokens."),
    (status = 400, content((OAuthError = "application/json"), (paddock_api::problem::Problem = "application/problem+json")), description = "What is wrong.")))]
async fn token(State(app): State<App>, call: Call) -> Response {
    match grant(&app, &call).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => refused(&app, call.address, call.actor, error).await,
    }
}

async fn grant(app: &App, call: &Call) -> Result<TokenAnswer> {
    let (engine, client, actor) = (&app.engine, call.client()?, call.actor.clone());
    let granted = match call.need("grant_type")? {
        "authorization_code" => {
            let shown = Shown {
                client: client.id,
                code: call.need("code")?,
                redirect_uri: call.need("redirect_uri")?,
                verifier: call.need("code_verifier")?,
            };
            authorizations::redeem(engine, actor, shown).await?
        }
        "refresh_token" => tokens::refresh(engine, actor, client.id, call.need("refresh_token")?).await?,
        DEVICE_CODE => {
            app.rates.count_poll(call.address)?;
            device_authorizations::redeem(engine, actor, client.id, call.need("device_code")?).await?
        }
        _ => {
            let detail = "This kind of grant is not known here.";
            return Err(Error::malformed("unsupported_grant_type", detail));
        }
    };
    let Granted { user, authenticated_at, refresh_token } = granted;
    Ok(TokenAnswer {
        access_token: access_token::mint(engine, user, authenticated_at).await?,
        token_type: "Bearer".to_owned(),
        expires_in: access_token::LIFETIME.as_secs() as u32,
        refresh_token: refresh_token.reveal().to_owned(),
    })
}

/// Begin the sign-in of a machine without a browser (RFC 8628)
#[utoipa::path(post, path = "/oauth/device_authorization", tag = "sign_in", request_body(content = DeviceAuthorizationRequest, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 200, body = DeviceAuthorizationAnswer, description = "The codes."),
    (status = 400, content((OAuthError = "application/json"), (paddock_api::problem::Problem = "application/problem+json")), description = "What is wrong.")))]
async fn device_authorization(State(app): State<App>, call: Call) -> Response {
    match begin(&app, &call).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => said(error),
    }
}

async fn begin(app: &App, call: &Call) -> Result<DeviceAuthorizationAnswer> {
    let client = call.client()?;
    // Each leaves a row behind, and nobody has proved anything yet: as limited as a failure.
    app.rates.count_failed_authentication(call.address)?;
    let begun = device_authorizations::create(&app.engine, &call.actor, client.id).await?;
    let verification_uri = format!("{}/device", call.base);
    Ok(DeviceAuthorizationAnswer {
        device_code: begun.device_code.reveal().to_owned(),
        verification_uri_complete: format!("{verification_uri}?user_code={}", begun.user_code),
        verification_uri,
        user_code: begun.user_code,
        expires_in: DEVICE_LIFETIME.as_secs() as u32,
        interval: INTERVAL.as_secs() as u32,
    })
}

/// End a sign-in (RFC 7009)
///
/// A refresh token ends with all that came from the same sign-in. An access token cannot be taken back; it ends by itself.
#[utoipa::path(post, path = "/oauth/revoke", tag = "sign_in", request_body(content = RevocationRequest, content_type = "application/x-www-form-urlencoded"), responses(
    (status = 200, description = "The token is good for nothing any more, if it ever was."),
    (status = 400, content((OAuthError = "application/json"), (paddock_api::problem::Problem = "application/problem+json")), description = "What is wrong.")))]
async fn revoke(State(app): State<App>, call: Call) -> Response {
    let outcome = async {
        call.client()?;
        let known = tokens::revoke(&app.engine, call.actor.clone(), call.need("token")?).await?;
        // The answer is the same, but who sends anything may be looking for something.
        if known { Ok(()) } else { app.rates.count_failed_authentication(call.address) }
    };
    match outcome.await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => said(error),
    }
}
