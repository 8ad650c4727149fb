//! Single sign-on: access tokens of OpenID issuers, and the people behind them.

use std::sync::Arc;

use paddock_engine::Engine;
use paddock_engine::users::{self, External};
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::subjects::Subject;
use paddock_model::users::User;
use paddock_model::{Result, Timestamp};

use super::issuers::{Issuer, KeysThen};
use super::{Identity, invalid};
use crate::jwt::{Claims, Policy, Typ, Unverified};

const LONGEST_NAME: usize = 100;
const LONGEST_EMAIL: usize = 254;
const LONGEST_WORD: usize = 255;
const MOST_SCOPES: usize = 100;

pub async fn verify(
    engine: &Engine,
    issuer: &Arc<Issuer>,
    token: Unverified<'_>,
) -> Result<(Identity, KeysThen)> {
    let policy = issuer.policy();
    // An identity token is for the client that asked for it.
    let client = issuer.settings.client_id.as_deref();
    let for_client = match client.filter(|client| policy.typ == Typ::AnyOrIdentity && token.is_for(client)) {
        Some(client) => Policy { audience: client, ..policy },
        None => policy,
    };
    let (claims, keys) = issuer.verify(token, &for_client).await?;
    let user = ensure_user(engine, issuer, &claims).await?;
    let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|_| invalid());
    let scopes = claims.text("scope").into_iter().flat_map(str::split_whitespace);
    let scopes = scopes.filter(|scope| scope.len() <= LONGEST_WORD).take(MOST_SCOPES).map(str::to_owned);
    let credential = Credential {
        scopes: scopes.collect(),
        issuer: Some(issuer.settings.id.clone()),
        issued_at: claims.issued_at.map(time).transpose()?,
        expires_at: Some(time(claims.expires_at)?),
        authenticated_at: claims.authenticated_at.map(time).transpose()?,
        id: claims.id.filter(|id| id.len() <= LONGEST_WORD),
        ..Credential::new(CredentialKind::Sso)
    };
    Ok((Identity { subject: Subject::from(&user), credential: Arc::new(credential) }, keys))
}

/// The account of whom the token speaks; known by issuer and subject, never by name or e-mail.
pub async fn ensure_user(engine: &Engine, issuer: &Issuer, claims: &Claims) -> Result<User> {
    let name = ["name", "preferred_username"]
        .into_iter()
        .find_map(|claim| claims.text(claim))
        .and_then(|name| clean(name, LONGEST_NAME));
    let verified = claims.others.get("email_verified").is_some_and(|verified| *verified == true);
    let email = claims
        .text("email")
        .filter(|email| verified && email.len() <= LONGEST_EMAIL)
        .and_then(|email| clean(email, LONGEST_EMAIL));
    let external = External {
        issuer: &issuer.settings.id,
        subject: &claims.subject,
        name: name.as_deref(),
        email: email.as_deref(),
        admin: issuer.settings.admins.contains(&claims.subject),
    };
    users::ensure_external(engine, external).await
}

/// As it can be shown on one line.
fn clean(text: &str, most: usize) -> Option<String> {
    let visible = text.chars().filter(|letter| !letter.is_control()).collect::<String>();
    let short: String = visible.trim().chars().take(most).collect();
    (!short.is_empty()).then_some(short)
}
