//! Signing in with a browser at an OpenID issuer: authorization code with PKCE, state and nonce (RFC 6749, 7636, 9207).
//!
//! `begin` says where to send the browser; `finish` takes what the browser brings back.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_engine::Engine;
use paddock_model::users::User;
use paddock_model::{Error, Result, Timestamp};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::issuers::{Issuer, describe};
use super::single_sign_on;
use crate::jwt::{Claims, Flaw, Policy, Typ, Unambiguous, Unverified};

/// How long people may take to sign in.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

const FAILED: &str = "sign_in_failed";

/// One browser's way to the issuer and back. All that it holds follows from a secret that only the browser keeps.
#[derive(Clone)]
pub struct Flow {
    pub issuer: String,
    pub redirect_uri: String,
    state: String,
    nonce: String,
    verifier: String,
    started_at: Timestamp,
}

impl Flow {
    pub fn new(issuer: &Issuer, redirect_uri: &str, secret: &str, started_at: Timestamp) -> Self {
        let drawn = |purpose: &str| {
            URL_SAFE_NO_PAD.encode(digest(&SHA256, format!("{purpose} of {secret}").as_bytes()))
        };
        Flow {
            issuer: issuer.settings.id.clone(),
            redirect_uri: redirect_uri.to_owned(),
            state: drawn("state"),
            nonce: drawn("nonce"),
            verifier: drawn("verifier"),
            started_at,
        }
    }
}

/// What the browser brings back.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Returned {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

/// Who has signed in, and when.
#[derive(Debug)]
pub struct SignedIn {
    pub user: User,
    pub authenticated_at: Timestamp,
}

/// Where to send the browser. With `again`, whoever is signed in there has to prove it once more.
pub async fn begin(issuer: &Issuer, flow: &Flow, again: bool) -> Result<Url> {
    let endpoints = issuer.endpoints().await.map_err(|trouble| issuer.unavailable(trouble))?;
    let no_endpoint = || issuer.unavailable("discovery names no authorization endpoint");
    let mut url = endpoints.authorization.clone().ok_or_else(no_endpoint)?;
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, flow.verifier.as_bytes()));
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", client(issuer)?)
        .append_pair("redirect_uri", &flow.redirect_uri)
        .append_pair("scope", "openid profile email")
        .append_pair("state", &flow.state)
        .append_pair("nonce", &flow.nonce)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256");
    if again {
        url.query_pairs_mut().append_pair("prompt", "login").append_pair("max_age", "0");
    }
    Ok(url)
}

/// Who has signed in, by what the browser brings back and what was kept about it.
pub async fn finish(
    engine: &Engine,
    issuer: &Arc<Issuer>,
    returned: &Returned,
    kept: &Flow,
) -> Result<SignedIn> {
    let endpoints = issuer.endpoints().await.map_err(|trouble| issuer.unavailable(trouble))?;
    let refuse = |reason| issuer.refuse(Flaw(reason).into());
    if kept.issuer != issuer.settings.id || returned.state.as_deref() != Some(&kept.state) {
        return Err(failed(refuse("the browser brings another's state")));
    }
    if engine.now() > kept.started_at + PATIENCE {
        return Err(failed(refuse("the browser comes back too late")));
    }
    // An answer of another issuer must not be redeemed at this one (mix-up).
    match &returned.iss {
        Some(named) if *named != issuer.settings.url => {
            return Err(failed(refuse("the answer is of another issuer")));
        }
        None if endpoints.names_itself => return Err(failed(refuse("the answer does not name its issuer"))),
        _ => {}
    }
    match returned.error.as_deref() {
        None => {}
        Some("server_error" | "temporarily_unavailable") => {
            return Err(issuer.unavailable("it tells the browser that it cannot"));
        }
        Some("access_denied") => {
            refuse("the sign-in was declined at the issuer");
            let detail = "The sign-in was declined at the identity provider. If that was a mistake, try again and allow it; \
                          if it was not you, ask who runs the provider whether you may use this server.";
            return Err(Error::unauthenticated(FAILED, detail));
        }
        Some(_) => return Err(failed(refuse("the issuer did not let them in"))),
    }
    let Some(code) = returned.code.as_deref() else {
        return Err(failed(refuse("the browser brings no code")));
    };
    let tokens = redeem(issuer, endpoints.token.as_ref(), code, kept).await?;
    let text = tokens["id_token"].as_str().ok_or_else(|| failed(refuse("there is no identity token")))?;
    let token = Unverified::parse(text).map_err(|flaw| failed(issuer.refuse(flaw.into())))?;
    let policy = Policy { audience: client(issuer)?, typ: Typ::Identity, ..issuer.policy() };
    let (mut claims, _) = issuer.verify(token, &policy).await.map_err(failed)?;
    let access_token = tokens["access_token"].as_str();
    check(&claims, kept, client(issuer)?, access_token).map_err(|flaw| failed(issuer.refuse(flaw.into())))?;
    if let (None, Some(url), Some(token)) = (claims.text("name"), &endpoints.userinfo, access_token) {
        complete(issuer, url, token, &mut claims).await;
    }

    let user = single_sign_on::ensure_user(engine, issuer, &claims).await?;
    let now = engine.now();
    let at = claims.authenticated_at.or(claims.issued_at).and_then(|at| Timestamp::from_second(at).ok());
    Ok(SignedIn { user, authenticated_at: at.unwrap_or(now).min(now) })
}

/// Where people can sign out at the issuer, if it says so.
pub async fn sign_out_page(issuer: &Issuer) -> Option<Url> {
    let endpoints = issuer.endpoints().await.ok()?;
    let mut url = endpoints.sign_out.clone()?;
    url.query_pairs_mut().append_pair("client_id", client(issuer).ok()?);
    Some(url)
}

/// What an identity token says of the flow it ends.
fn check(claims: &Claims, kept: &Flow, client: &str, access_token: Option<&str>) -> Result<(), Flaw> {
    if claims.text("nonce") != Some(&kept.nonce) {
        return Err(Flaw("it has another nonce"));
    }
    if claims.client.as_deref().is_some_and(|other| other != client) {
        return Err(Flaw("it was issued for another client"));
    }
    if let (Some(said), Some(token)) = (claims.others.get("at_hash"), access_token) {
        let hash = digest(claims.algorithm.hash(), token.as_bytes());
        let half = &hash.as_ref()[..hash.as_ref().len() / 2];
        if *said != Value::String(URL_SAFE_NO_PAD.encode(half)) {
            return Err(Flaw("it belongs to another access token"));
        }
    }
    Ok(())
}

/// Asks the issuer what else it says of the person: many keep names and addresses out of their tokens. Who they are is settled, so
/// that an issuer which does not say more keeps nobody out.
async fn complete(issuer: &Issuer, url: &Url, access_token: &str, claims: &mut Claims) {
    let said = match issuer.provider.get(url, Some(access_token)).await {
        Ok(answer) if answer.status == 200 => serde_json::from_slice(&answer.body),
        Ok(answer) => {
            return tracing::warn!(issuer = issuer.settings.id, answer.status, "it tells no name");
        }
        Err(trouble) => {
            return tracing::warn!(
                issuer = issuer.settings.id,
                trouble = describe(&trouble),
                "it tells no name"
            );
        }
    };
    // A signed answer, or another's, says nothing here.
    let Ok(Unambiguous(Value::Object(said))) = said else { return };
    if said.get("sub").and_then(Value::as_str) != Some(&claims.subject) {
        return;
    }
    for (name, value) in said {
        if ["name", "preferred_username", "email", "email_verified"].contains(&name.as_str()) {
            claims.others.entry(name).or_insert(value);
        }
    }
}

async fn redeem(issuer: &Issuer, endpoint: Option<&Url>, code: &str, kept: &Flow) -> Result<Value> {
    let endpoint = endpoint.ok_or_else(|| issuer.unavailable("discovery names no token endpoint"))?;
    let secret = match &issuer.settings.client_secret_file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| issuer.unavailable(format!("{}: {error}", path.display())))?;
            Some(text.trim().to_owned())
        }
        None => None,
    };
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", &kept.redirect_uri),
        ("code_verifier", &kept.verifier),
    ];
    let answer = issuer.provider.post_form(endpoint, client(issuer)?, secret.as_deref(), &fields).await;
    let answer = answer.map_err(|trouble| issuer.unavailable(describe(&trouble)))?;
    match (answer.status, serde_json::from_slice(&answer.body)) {
        (200, Ok(Unambiguous(tokens))) => Ok(tokens),
        (400..=499, _) => Err(failed(issuer.refuse(Flaw("the issuer does not take the code").into()))),
        (status, _) => Err(issuer.unavailable(format!("its token endpoint answers {status}"))),
    }
}

fn client(issuer: &Issuer) -> Result<&str> {
    issuer
        .settings
        .client_id
        .as_deref()
        .ok_or_else(|| Error::internal("the issuer has no client for browsers"))
}

/// One answer to every sign-in that goes wrong; an issuer that is down is told apart.
fn failed(error: Error) -> Error {
    if error.kind == paddock_model::error::Kind::Unavailable {
        return error;
    }
    Error::unauthenticated(FAILED, "The sign-in did not succeed. Start again.")
}
