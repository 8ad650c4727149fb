//! Identity providers over HTTP: one guarded conversation a method, and nothing followed that was not asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, header, redirect};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use url::Url;

const CONNECT_TIME: Duration = Duration::from_secs(3);
const WHOLE_TIME: Duration = Duration::from_secs(5);
/// No set of keys, and no answer to a token, is larger.
const LARGEST: usize = 1 << 20;

/// The way to one provider; no proxy, no redirect, no cookie.
pub struct IdentityProvider(Client);

/// What the provider answered, whatever its status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// For how long the provider says that the answer holds.
    pub max_age: Option<Duration>,
    pub body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("the provider does not answer")]
    Unreachable(#[source] reqwest::Error),
    #[error("the provider's answer is larger than a megabyte")]
    TooLarge,
}

/// The certificates by which the provider is to be known cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("the file with the certificate authority cannot be read")]
    File(#[source] rustls::pki_types::pem::Error),
    #[error("the file with the certificate authority holds no certificate")]
    Empty,
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    #[error("no HTTP client can be made")]
    Client(#[source] reqwest::Error),
}

impl IdentityProvider {
    /// Trusts what the machine trusts, or only the authority in this file (PEM).
    pub fn new(authority: Option<&Path>) -> Result<Self, Untrusted> {
        let mut roots = RootCertStore::empty();
        match authority {
            Some(path) => {
                let certificates = CertificateDer::pem_file_iter(path).map_err(Untrusted::File)?;
                for certificate in certificates {
                    roots.add(certificate.map_err(Untrusted::File)?).map_err(Untrusted::Tls)?;
                }
                if roots.is_empty() {
                    return Err(Untrusted::Empty);
                }
            }
            // A machine without any is noticed when a provider is reached by https.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Untrusted::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .timeout(WHOLE_TIME)
            .user_agent(concat!("paddockd/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Untrusted::Client)?;
        Ok(IdentityProvider(client))
    }

    pub async fn get(&self, url: &Url, bearer: Option<&str>) -> Result<Answer, Trouble> {
        let request = self.0.get(url.clone()).header(header::ACCEPT, "application/json");
        send(authorized(request, bearer)).await
    }

    pub async fn post_json(&self, url: &Url, bearer: Option<&str>, body: &Value) -> Result<Answer, Trouble> {
        send(authorized(self.0.post(url.clone()).json(body), bearer)).await
    }

    /// Sends a form; with a secret, in the name of the client (RFC 6749, section 2.3.1).
    pub async fn post_form(
        &self,
        url: &Url,
        client: &str,
        secret: Option<&str>,
        fields: &[(&str, &str)],
    ) -> Result<Answer, Trouble> {
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let request = self.0.post(url.clone()).header(header::ACCEPT, "application/json");
        let (request, named) = match secret {
            Some(secret) => (request.basic_auth(encoded(client), Some(encoded(secret))), None),
            None => (request, Some(("client_id", client))),
        };
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let pairs = fields.iter().copied().chain(named);
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        send(request.body(form)).await
    }
}

fn authorized(request: RequestBuilder, bearer: Option<&str>) -> RequestBuilder {
    match bearer {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
}

async fn send(request: RequestBuilder) -> Result<Answer, Trouble> {
    let mut response = request.send().await.map_err(unreachable)?;
    let status = response.status().as_u16();
    let caching = response.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let max_age = caching.and_then(max_age);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > LARGEST {
            return Err(Trouble::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, max_age, body })
}

/// Without the URL: it may hold what a log must not.
fn unreachable(error: reqwest::Error) -> Trouble {
    Trouble::Unreachable(error.without_url())
}

fn max_age(caching: &str) -> Option<Duration> {
    let mut directives = caching.split(',').map(|directive| directive.trim().to_ascii_lowercase());
    directives.find_map(|directive| {
        let seconds = directive.strip_prefix("max-age=")?.trim_matches('"').parse().ok()?;
        Some(Duration::from_secs(seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_word_on_caching_is_read() {
        for (caching, seconds) in [
            ("max-age=300", Some(300)),
            ("public, Max-Age=60, must-revalidate", Some(60)),
            ("no-store", None),
            ("max-age=soon", None),
        ] {
            assert_eq!(max_age(caching), seconds.map(Duration::from_secs), "{caching}");
        }
    }
}
