//! A client for programs in Rust; the command line is one.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::meta::Version;
use crate::permissions::Whoami;
use crate::problem::Problem;
use crate::sign_in::{
    AuthorizationServer, DeviceAuthorizationAnswer, DeviceAuthorizationRequest, OAuthError,
    RevocationRequest, TokenAnswer, TokenRequest,
};
use crate::tenants::{ListTenants, Tenant, TenantPage, TenantSpec};

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

pub type Result<T> = std::result::Result<T, Error>;

impl Client {
    pub fn new(base: &str, token: Option<&str>) -> Result<Client> {
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
            .tls_backend_preconfigured(tls(base))
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
        Ok(self.send(Method::GET, "/-/version", HeaderMap::new(), None::<&()>).await?.value)
    }

    pub async fn whoami(&self) -> Result<Whoami> {
        Ok(self.send(Method::GET, "/api/v1/whoami", HeaderMap::new(), None::<&()>).await?.value)
    }

    /// Where programs get tokens.
    pub async fn authorization_server(&self) -> Result<AuthorizationServer> {
        let path = "/.well-known/oauth-authorization-server";
        Ok(self.send(Method::GET, path, HeaderMap::new(), None::<&()>).await?.value)
    }

    pub async fn token(&self, request: &TokenRequest) -> Result<TokenAnswer> {
        read(&self.form("/oauth/token", request).await?)
    }

    pub async fn device_authorization(&self, client: &str) -> Result<DeviceAuthorizationAnswer> {
        let request = DeviceAuthorizationRequest { client_id: client.to_owned() };
        read(&self.form("/oauth/device_authorization", &request).await?)
    }

    /// Ends the sign-in that a refresh token came from.
    pub async fn revoke(&self, request: &RevocationRequest) -> Result<()> {
        self.form("/oauth/revoke", request).await.map(drop)
    }

    /// A form, as OAuth has it; no credential goes with it.
    async fn form(&self, path: &str, fields: &impl Serialize) -> Result<Vec<u8>> {
        let fields = serde_json::to_value(fields).map_err(|error| Error::Setup(error.to_string()))?;
        let form = query_string(&fields).trim_start_matches('?').to_owned();
        let request = self.http.post(format!("{}{path}", self.base));
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let answer = request.send().await.map_err(Error::Unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(Error::Unreachable)?;
        if status.is_success() {
            return Ok(body.to_vec());
        }
        if let Ok(refused) = serde_json::from_slice(&body) {
            return Err(Error::NoTokens(Box::new(refused)));
        }
        Err(serde_json::from_slice(&body)
            .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))))
    }

    pub async fn list_tenants(&self, query: &ListTenants) -> Result<TenantPage> {
        let query = serde_json::to_value(query).unwrap_or_default();
        let path = format!("/api/v1/tenants{}", query_string(&query));
        Ok(self.send(Method::GET, &path, HeaderMap::new(), None::<&()>).await?.value)
    }

    pub async fn get_tenant(&self, id: &str) -> Result<Versioned<Tenant>> {
        self.send(Method::GET, &tenant(id), HeaderMap::new(), None::<&()>).await
    }

    pub async fn create_tenant(&self, spec: &TenantSpec) -> Result<Versioned<Tenant>> {
        self.send(Method::POST, "/api/v1/tenants", HeaderMap::new(), Some(spec)).await
    }

    /// Replaces what was said of the tenant; with `etag`, only while nobody else has.
    pub async fn update_tenant(
        &self,
        id: &str,
        spec: &TenantSpec,
        etag: Option<&str>,
    ) -> Result<Versioned<Tenant>> {
        self.send(Method::PUT, &tenant(id), if_match(etag)?, Some(spec)).await
    }

    pub async fn delete_tenant(&self, id: &str, etag: Option<&str>) -> Result<()> {
        self.request(Method::DELETE, &tenant(id), if_match(etag)?, None).await.map(drop)
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
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        let answer = request.headers(headers).send().await.map_err(Error::Unreachable)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.map_err(Error::Unreachable)?;
        if status.is_success() {
            return Ok((headers, body.to_vec()));
        }
        Err(serde_json::from_slice(&body)
            .map_or(Error::Foreign(status), |problem| Error::Refused(Box::new(problem))))
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
        let (headers, body) = self.request(method, path, headers, body).await?;
        let value = serde_json::from_slice(&body).map_err(|_| Error::Foreign(StatusCode::OK))?;
        let etag = headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Versioned { value, etag })
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|_| Error::Foreign(StatusCode::OK))
}

fn tenant(id: &str) -> String {
    format!("/api/v1/tenants/{}", encode(id))
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
    let pairs = query.as_object().into_iter().flatten().map(|(name, value)| {
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

fn tls(base: &str) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    // Reading the system's certificates takes longer than the rest of a short program.
    if !base.starts_with("http://") {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
