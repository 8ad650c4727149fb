//! A client for programs in Rust; the command line is one.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::meta::Version;
use crate::page::Page;
use crate::problem::Problem;
use crate::sign_in::OAuthError;

mod admins;
mod api_keys;
mod audit;
mod backups;
mod content;
mod emulators;
mod grants;
mod groups;
pub mod logs;
mod members;
mod permissions;
mod restores;
mod retention_policies;
mod sign_in;
mod snapshots;
pub mod streams;
mod tenants;
mod users;
mod vehicles;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<HeaderValue>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server said no, and why.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// The server gave an answer that is none of its contract: a proxy in between, or the wrong address.
    #[error("the server answered {0}, but not as Paddock does; is the address right?")]
    Foreign(StatusCode),
    /// The server gave no tokens, and why.
    #[error("{}", .0.error_description)]
    NoTokens(Box<OAuthError>),
    #[error("cannot reach the server: {}", innermost(.0))]
    Unreachable(reqwest::Error),
    #[error("{0}")]
    Setup(String),
}

/// An answer, and the version by which it can be changed safely.
#[derive(Debug, Clone)]
pub struct Versioned<T> {
    pub value: T,
    pub etag: Option<String>,
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub type Result<T> = std::result::Result<T, Error>;

impl Client {
    pub fn new(base: &str, token: Option<&str>) -> Result<Client> {
        Client::trusting(base, token, None)
    }

    /// A client that trusts `roots`, certificates in PEM, besides those of the system.
    pub fn trusting(base: &str, token: Option<&str>, roots: Option<&[u8]>) -> Result<Client> {
        let token = match token {
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| Error::Setup("the token holds characters that no token has".to_owned()))?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(base, roots)?)
            // Followed, a redirect loses the token and turns a POST into a GET; the address is to be put right.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("paddock/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(60))
            .build()
            .map_err(|error| Error::Setup(error.to_string()))?;
        Ok(Client { http, base: base.trim_end_matches('/').to_owned(), token })
    }

    pub async fn version(&self) -> Result<Version> {
        Ok(self.get("/-/version").await?.value)
    }

    /// Where a path of the server is to be found.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Any request of the contract, with the body as it is; returns the body of the answer.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Option<Vec<u8>>,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        headers.extend(self.token.clone().map(|token| (header::AUTHORIZATION, token)));
        let mut request = self.http.request(method, self.url(path));
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        answer(request.headers(headers)).await
    }

    /// Sends a body of any length, for as long as that takes.
    async fn stream<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: reqwest::Body,
    ) -> Result<Versioned<T>> {
        const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
        let token = self.token.clone().map(|token| (header::AUTHORIZATION, token));
        let request = self.http.request(method, self.url(path)).headers(token.into_iter().collect());
        let request = request.header(header::CONTENT_TYPE, "application/octet-stream").timeout(WEEK);
        versioned(answer(request.body(body)).await?)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Versioned<T>> {
        self.send(Method::GET, path, HeaderMap::new(), None::<&()>).await
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<Page<T>> {
        let query = serde_json::to_value(query).unwrap_or_default();
        Ok(self.get(&format!("{path}{}", query_string(&query))).await?.value)
    }

    /// Makes something once, even where the connection breaks before the answer and the request is sent again.
    async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Versioned<T>> {
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, idempotency_key()?)]);
        match self.send(Method::POST, path, headers.clone(), body).await {
            Err(Error::Unreachable(error)) if !error.is_connect() && !error.is_timeout() => {
                self.send(Method::POST, path, headers, body).await
            }
            outcome => outcome,
        }
    }

    /// Replaces what was said of something; with `etag`, only while nobody else has.
    async fn replace<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        etag: Option<&str>,
    ) -> Result<Versioned<T>> {
        self.send(Method::PUT, path, if_match(etag)?, Some(body)).await
    }

    async fn delete(&self, path: &str, etag: Option<&str>) -> Result<()> {
        self.request(Method::DELETE, path, if_match(etag)?, None).await.map(drop)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<&impl Serialize>,
    ) -> Result<Versioned<T>> {
        let body =
            body.map(serde_json::to_vec).transpose().map_err(|error| Error::Setup(error.to_string()))?;
        versioned(self.request(method, path, headers, body).await?)
    }
}

/// What the server says, or why it says no.
async fn answer(request: reqwest::RequestBuilder) -> Result<(HeaderMap, Vec<u8>)> {
    let answer = request.send().await.map_err(Error::Unreachable)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.bytes().await.map_err(Error::Unreachable)?;
    if status.is_success() {
        return Ok((headers, body.to_vec()));
    }
    Err(serde_json::from_slice(&body)
        .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))))
}

fn versioned<T: DeserializeOwned>((headers, body): (HeaderMap, Vec<u8>)) -> Result<Versioned<T>> {
    let value = serde_json::from_slice(&body).map_err(|_| Error::Foreign(StatusCode::OK))?;
    let etag = headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    Ok(Versioned { value, etag })
}

fn idempotency_key() -> Result<HeaderValue> {
    let mut bytes = [0; 16];
    let failed = || Error::Setup("the system gives no random numbers".to_owned());
    SystemRandom::new().fill(&mut bytes).map_err(|_| failed())?;
    HeaderValue::try_from(format!("{:032x}", u128::from_be_bytes(bytes))).map_err(|_| failed())
}

fn if_match(etag: Option<&str>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(etag) = etag {
        let value =
            HeaderValue::try_from(etag).map_err(|_| Error::Setup(format!("{etag:?} is not an ETag")))?;
        headers.insert(header::IF_MATCH, value);
    }
    Ok(headers)
}

fn query_string(query: &serde_json::Value) -> String {
    let given = query.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let pairs = given.map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={}", encode(name), encode(&text))
    });
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn encode(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn tls(base: &str, extra: Option<&[u8]>) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    // Reading the system's certificates takes longer than the rest of a short program.
    if !base.starts_with("http://") {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if let Some(pem) = extra {
        add_roots(&mut roots, pem)?;
    }
    let config = rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("ring knows the default protocol versions")
    .with_root_certificates(roots)
    .with_no_client_auth();
    Ok(config)
}

fn add_roots(roots: &mut rustls::RootCertStore, pem: &[u8]) -> Result<()> {
    let unusable = |why: String| Error::Setup(format!("the root certificates cannot be used: {why}"));
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        found += 1;
    }
    if found == 0 {
        return Err(unusable("there is none, in PEM".to_owned()));
    }
    Ok(())
}

fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
