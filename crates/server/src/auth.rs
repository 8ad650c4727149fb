//! Who asks: the one seam between a request's credential and the caller that use-cases know.
//!
//! The kind of a credential is told by its syntax, never by trying one kind after another.

pub mod access_token;
pub mod api_key;
mod caller;
mod jwt_crypto;

use std::sync::Arc;

use paddock_model::credentials::Credential;
use paddock_model::permissions::Subject;
use paddock_model::{Error, Result};

pub use caller::{Caller, RateLimit, Recognised};
pub use jwt_crypto::install as install_crypto;

use access_token::AccessTokens;

/// What a valid credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub subject: Subject,
    pub credential: Arc<Credential>,
}

/// The kinds of credentials, by syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Signed by us.
    AccessToken,
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
        (credential.starts_with("eyJ") && credential.split('.').count() == 3).then_some(Kind::AccessToken)
    }
}

/// Every way to prove who one is.
pub struct Credentials {
    access_tokens: AccessTokens,
}

impl Credentials {
    pub fn new(access_tokens: AccessTokens) -> Self {
        Credentials { access_tokens }
    }

    pub async fn verify(&self, credential: &str) -> Result<Identity> {
        match Kind::of(credential) {
            Some(Kind::AccessToken) => self.access_tokens.verify(credential).await,
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
            ("eyJhbGciOi.eyJzdWIi.c2ln", Some(Kind::AccessToken)),
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
