//! Authorizations: a person lets a client act for them, and the client gets a code for it, once.

use std::time::Duration;

use uuid::Uuid;

use crate::Timestamp;
use crate::users::UserId;

/// A client has the code at once; whoever comes later has found it somewhere.
pub const LIFETIME: Duration = Duration::from_secs(60);

/// Where a client may be answered, as it says itself; long enough for any honest one.
pub const LONGEST_REDIRECT_URI: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    pub user: UserId,
    pub client: String,
    pub redirect_uri: String,
    /// What the client's secret must hash to (PKCE, S256).
    pub challenge: String,
    /// When the person proved to be there.
    pub authenticated_at: Timestamp,
    pub expires_at: Timestamp,
    /// What it was exchanged for.
    pub family: Option<Uuid>,
}

/// A program that people may let act for them. None of them can keep a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
}

pub const CLIENTS: &[Client] = &[Client { id: "paddock-cli", name: "The paddock command line" }];

impl Client {
    pub fn find(id: &str) -> Option<Client> {
        CLIENTS.iter().copied().find(|client| client.id == id)
    }
}

/// The port of a redirect URI that is allowed: on this very machine, by address and not by name, at any port (RFC 8252).
pub fn loopback_port(redirect_uri: &str) -> Option<u16> {
    let rest = redirect_uri
        .strip_prefix("http://127.0.0.1:")
        .or_else(|| redirect_uri.strip_prefix("http://[::1]:"))?;
    let digits = rest.strip_suffix("/callback")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

/// Whether this is what S256 makes of a verifier.
pub fn is_challenge(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Whether a client may have chosen this as its secret (RFC 7636).
pub fn is_verifier(text: &str) -> bool {
    (43..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_this_machine_and_nowhere_else() {
        for (uri, port) in [
            ("http://127.0.0.1:1234/callback", Some(1234)),
            ("http://[::1]:1234/callback", Some(1234)),
            ("http://127.0.0.1/callback", None),
            ("http://127.0.0.1:1234/callback?x", None),
            ("http://127.0.0.1:1234/callback/../x", None),
            ("http://127.0.0.1:1234@evil.example/callback", None),
            ("http://127.0.0.1:99999/callback", None),
            ("http://127.0.0.1:+80/callback", None),
            ("http://127.0.0.1:080/callback", None),
            ("http://localhost:1234/callback", None),
            ("https://127.0.0.1:1234/callback", None),
            ("http://127.0.0.1.evil.example:1234/callback", None),
        ] {
            assert_eq!(loopback_port(uri), port, "{uri}");
        }
    }
}
