//! Who asks: the one seam between a request's credential and the caller that use-cases know.
//!
//! The kind of a credential is told by its syntax, never by trying one kind after another.

pub mod access_token;
pub mod api_key;
mod caller;
pub mod issuers;
mod jwks;
pub mod relying_party;
mod service_account;
mod single_sign_on;

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use paddock_engine::Engine;
use paddock_model::credentials::Credential;
use paddock_model::subjects::Subject;
use paddock_model::{Error, Result, Timestamp};
use ring::digest::{SHA256, digest};

pub use caller::{Caller, RateLimit, Recognised};

use crate::config::issuers::Kind as IssuerKind;
use crate::jwt::{self, Unverified};
use access_token::AccessTokens;
use issuers::{Issuer, Issuers, KeysThen};

const REMEMBERED: u64 = 100_000;
/// A token is verified anew after that time at the latest, by the keys as they are then.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// What a valid credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub subject: Subject,
    pub credential: Arc<Credential>,
}

/// The kinds of credentials, by syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Signed by us or by an issuer; which one, the token says.
    Signed,
    /// One of our keys, which open the device API only.
    ApiKey,
    /// Of a kind that exists, but that this server is not set up for.
    NotSupported,
}

/// Prefixes by which version control hosts mark their tokens. Those that stand for a user or a job find their
/// provider here one day; the others never open anything.
const FOREIGN_PREFIXES: &[&str] = &[
    "glpat-",
    "glcbt-",
    "glptt-",
    "gldt-",
    "glrt-",
    "glrtr-",
    "glft-",
    "glimt-",
    "glagent-",
    "glsoat-",
    "glffct-",
    "glwt-",
    "gloas-",
    "ghp_",
    "ghs_",
    "gho_",
    "ghu_",
    "ghr_",
    "github_pat_",
];

impl Kind {
    fn of(credential: &str) -> Option<Kind> {
        if credential.starts_with(paddock_model::api_keys::PREFIX) {
            return Some(Kind::ApiKey);
        }
        if FOREIGN_PREFIXES.iter().any(|prefix| credential.starts_with(prefix)) {
            return Some(Kind::NotSupported);
        }
        (credential.split('.').count() == 3).then_some(Kind::Signed)
    }
}

/// Every way to prove who one is.
pub struct Credentials {
    engine: Engine,
    access_tokens: AccessTokens,
    issuers: Arc<Issuers>,
    /// By digest, so that no token stands in memory longer than its request.
    verified: Cache<[u8; 32], Remembered>,
    /// Tokens that somebody else is asked about, one question at a time each, and until when the answer was no.
    reviews: Cache<[u8; 32], Arc<tokio::sync::Mutex<Option<Timestamp>>>>,
}

/// A token that was found good, and for how long that holds.
#[derive(Clone)]
struct Remembered {
    identity: Identity,
    until: Timestamp,
    keys: Option<KeysThen>,
}

impl Credentials {
    pub fn new(engine: Engine, access_tokens: AccessTokens, issuers: Arc<Issuers>) -> Self {
        let reviews = Cache::builder().max_capacity(REMEMBERED).time_to_idle(REMEMBERED_FOR).build();
        Credentials { engine, access_tokens, issuers, verified: Cache::new(REMEMBERED), reviews }
    }

    pub async fn verify(&self, credential: &str) -> Result<Identity> {
        match Kind::of(credential) {
            Some(Kind::Signed) => self.verify_signed(credential).await,
            Some(Kind::ApiKey) => Err(Error::unauthenticated(
                "credential_type_not_supported",
                "An API key opens the device API (/v1/devices) only. Send an access token.",
            )),
            Some(Kind::NotSupported) => Err(Error::unauthenticated(
                "credential_type_not_supported",
                "This server does not accept this type of credential here. Send an access token.",
            )),
            None => Err(invalid()),
        }
    }

    async fn verify_signed(&self, text: &str) -> Result<Identity> {
        if text.len() > jwt::LONGEST {
            return Err(invalid());
        }
        let digest: [u8; 32] =
            digest(&SHA256, text.as_bytes()).as_ref().try_into().map_err(Error::internal)?;
        let now = self.engine.now();
        if let Some(known) = self.verified.get(&digest)
            && now < known.until
            && known.keys.as_ref().is_none_or(KeysThen::still_hold)
        {
            return Ok(known.identity);
        }
        let token = Unverified::parse(text).map_err(|jwt::Flaw(reason)| {
            tracing::info!(reason, "a token is refused");
            invalid()
        })?;
        let issuer = token.issuer().ok_or_else(invalid)?;
        let (identity, keys, holds) = if issuer == access_token::ISSUER {
            (self.access_tokens.verify(token).await?, None, access_token::KEYS_HOLD)
        } else {
            // Nobody is asked about a token whose issuer is not one of ours.
            let issuer = self.issuers.find(issuer).ok_or_else(invalid)?;
            match issuer.settings.kind {
                IssuerKind::Sso => {
                    let (identity, keys) = single_sign_on::verify(&self.engine, issuer, token).await?;
                    (identity, Some(keys), REMEMBERED_FOR)
                }
                IssuerKind::ServiceAccount => {
                    let (identity, keys) = service_account::verify(&self.engine, issuer, token).await?;
                    (identity, Some(keys), REMEMBERED_FOR)
                }
                IssuerKind::ReviewedServiceAccount => {
                    let identity = self.review(issuer, text, token, digest).await?;
                    (identity, None, service_account::REVIEW_HOLDS)
                }
            }
        };
        self.remember(digest, &identity, keys, holds);
        Ok(identity)
    }

    fn remember(&self, digest: [u8; 32], identity: &Identity, keys: Option<KeysThen>, holds: Duration) {
        let now = self.engine.now();
        let end = identity.credential.expires_at.unwrap_or(now);
        let known = Remembered { identity: identity.clone(), until: end.min(now + holds), keys };
        self.verified.insert(digest, known);
    }

    /// Asks about a token once, however often it comes at the same time, and not again for a while if it is bad.
    async fn review(
        &self,
        issuer: &Arc<Issuer>,
        text: &str,
        token: Unverified<'_>,
        digest: [u8; 32],
    ) -> Result<Identity> {
        let turn = self.reviews.get_with(digest, Arc::default);
        let mut refused_until = turn.lock().await;
        let now = self.engine.now();
        if let Some(known) = self.verified.get(&digest)
            && now < known.until
        {
            return Ok(known.identity);
        }
        if refused_until.is_some_and(|until| now < until) {
            return Err(invalid());
        }
        let outcome = service_account::review(&self.engine, issuer, text, token).await;
        match &outcome {
            Ok(identity) => self.remember(digest, identity, None, service_account::REVIEW_HOLDS),
            Err(error) if error.code == invalid().code => {
                *refused_until = Some(self.engine.now() + service_account::REFUSAL_HOLDS);
            }
            Err(_) => {}
        }
        outcome
    }
}

fn expired() -> Error {
    Error::unauthenticated("credential_expired", "The credential has expired. Get a new one.")
}

/// One answer to everything that is wrong with a credential: which part it is helps only who forges one.
fn invalid() -> Error {
    Error::unauthenticated("invalid_credential", "The credential is not valid. Get a new one and try again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syntax_alone_tells_the_kind() {
        for (credential, kind) in [
            ("eyJhbGciOi.eyJzdWIi.c2ln", Some(Kind::Signed)),
            ("eyJhbGciOi.eyJzdWIi", None),
            ("glpat-1234", Some(Kind::NotSupported)),
            ("glcbt-eyJhbGciOi.eyJzdWIi.c2ln", Some(Kind::NotSupported)),
            ("pdk_1234", Some(Kind::ApiKey)),
            ("hello", None),
            ("", None),
        ] {
            assert_eq!(Kind::of(credential), kind, "{credential}");
        }
    }
}
