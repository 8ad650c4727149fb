//! An issuer for tests that does what it is told: publishes these keys, answers nonsense, or not at all.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// What tokens for us say in `aud`.
pub const AUDIENCE: &str = "https://paddock.example";

/// The section of the configuration's file that makes a server accept an issuer's tokens.
pub fn section(id: &str, url: &str, more: &str) -> String {
    format!("[[issuers]]\nid = \"{id}\"\nurl = \"{url}\"\naudience = \"{AUDIENCE}\"\n{more}\n")
}

#[derive(Clone)]
pub struct TestIssuer {
    pub url: String,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    url: Mutex<String>,
    keys: Mutex<Value>,
    /// What is answered instead of the keys.
    instead: Mutex<Option<(u16, &'static str)>>,
    fetches: AtomicUsize,
    /// Whether it says where it does what, and how often it was asked.
    is_hidden: AtomicBool,
    discoveries: AtomicUsize,
    /// What the API server says about tokens, and the last question.
    review: Mutex<Value>,
    asked: Mutex<Option<(String, Value)>>,
    reviews: AtomicUsize,
    /// What is given for an authorization code.
    tokens: Mutex<Value>,
}

impl TestIssuer {
    pub async fn start(keys: &[&Key]) -> TestIssuer {
        let told = Arc::new(Told::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        url.clone_into(&mut told.url.lock().expect("a lock"));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(publish))
            .route("/openid/v1/jwks", get(publish))
            .route("/token", post(redeem))
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(told.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let issuer = TestIssuer { url, told };
        issuer.publish(keys);
        issuer
    }

    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        *self.told.keys.lock().expect("a lock") = json!({ "keys": keys });
    }

    pub fn answer_instead(&self, answer: Option<(u16, &'static str)>) {
        *self.told.instead.lock().expect("a lock") = answer;
    }

    pub fn fetches(&self) -> usize {
        self.told.fetches.load(Ordering::SeqCst)
    }

    pub fn hide(&self, is_hidden: bool) {
        self.told.is_hidden.store(is_hidden, Ordering::SeqCst);
    }

    pub fn discoveries(&self) -> usize {
        self.told.discoveries.load(Ordering::SeqCst)
    }

    pub fn say_of_tokens(&self, status: Value) {
        *self.told.review.lock().expect("a lock") = status;
    }

    pub fn give_tokens(&self, tokens: Value) {
        *self.told.tokens.lock().expect("a lock") = tokens;
    }

    pub fn reviews(&self) -> usize {
        self.told.reviews.load(Ordering::SeqCst)
    }

    /// What a good token of a person says at this time, in seconds.
    pub fn claims(&self, now: i64, subject: &str) -> Value {
        json!({
            "iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now - 5, "exp": now + 600,
            "jti": "t-1", "client_id": "console", "scope": "openid api",
        })
    }

    /// What a good token of the service account `runner` in the namespace `ci` says.
    pub fn account_claims(&self, now: i64) -> Value {
        let mut claims = self.claims(now, "system:serviceaccount:ci:runner");
        claims["aud"] = json!([AUDIENCE]);
        claims["nbf"] = claims["iat"].clone();
        claims["kubernetes.io"] = json!({
            "namespace": "ci", "serviceaccount": { "name": "runner", "uid": "u-1" }, "pod": { "name": "p", "uid": "u-2" },
        });
        claims
    }

    /// The credential and the body of the last question.
    pub fn last_question(&self) -> Option<(String, Value)> {
        self.told.asked.lock().expect("a lock").clone()
    }
}

async fn discovery(State(told): State<Arc<Told>>) -> impl IntoResponse {
    told.discoveries.fetch_add(1, Ordering::SeqCst);
    if told.is_hidden.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let url = told.url.lock().expect("a lock").clone();
    let answer = axum::Json(json!({
        "issuer": url, "jwks_uri": format!("{url}/keys"),
        "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
    }));
    answer.into_response()
}

async fn redeem(State(told): State<Arc<Told>>) -> impl IntoResponse {
    axum::Json(told.tokens.lock().expect("a lock").clone())
}

async fn publish(State(told): State<Arc<Told>>) -> impl IntoResponse {
    told.fetches.fetch_add(1, Ordering::SeqCst);
    // Long enough for requests to pile up.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    match *told.instead.lock().expect("a lock") {
        Some((status, text)) => (StatusCode::from_u16(status).expect("a status"), text.to_owned()),
        None => (StatusCode::OK, told.keys.lock().expect("a lock").to_string()),
    }
}

async fn review(State(told): State<Arc<Told>>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    told.reviews.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let credential = headers.get("authorization").map(|value| value.to_str().expect("text").to_owned());
    let question: Value = serde_json::from_slice(&body).expect("JSON");
    *told.asked.lock().expect("a lock") = Some((credential.unwrap_or_default(), question.clone()));
    if let Some((status, text)) = *told.instead.lock().expect("a lock") {
        return (StatusCode::from_u16(status).expect("a status"), text.to_owned());
    }
    let status = told.review.lock().expect("a lock").clone();
    let answer = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": question["spec"], "status": status,
    });
    (StatusCode::CREATED, answer.to_string())
}

/// A key that signs, and its public half.
pub struct Key {
    pub kid: String,
    pub signer: Signer,
}

pub enum Signer {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Key {
    pub fn ed25519(kid: &str) -> Key {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
        Key { kid: kid.to_owned(), signer: Signer::Ed25519(pair) }
    }

    pub fn p256(kid: &str) -> Key {
        let random = SystemRandom::new();
        let rules = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(rules, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(rules, document.as_ref(), &random).expect("a key");
        Key { kid: kid.to_owned(), signer: Signer::P256(pair) }
    }

    pub fn rsa(kid: &str) -> Key {
        let made = std::process::Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"])
            .output()
            .expect("openssl; `make test` installs it");
        let pair = RsaKeyPair::from_pkcs8(&made.stdout).or_else(|_| RsaKeyPair::from_der(&made.stdout));
        Key { kid: kid.to_owned(), signer: Signer::Rsa(Box::new(pair.expect("a key"))) }
    }

    pub fn algorithm(&self) -> &'static str {
        match self.signer {
            Signer::Ed25519(_) => "EdDSA",
            Signer::P256(_) => "ES256",
            Signer::Rsa(_) => "RS256",
        }
    }

    pub fn public(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.signer {
            Signer::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.kid, "use": "sig", "x": encode(pair.public_key().as_ref()) })
            }
            Signer::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "x": encode(&point[1..33]), "y": encode(&point[33..]) })
            }
            Signer::Rsa(pair) => {
                let parts: ring::rsa::PublicKeyComponents<Vec<u8>> = pair.public_key().into();
                json!({ "kty": "RSA", "kid": self.kid, "use": "sig", "n": encode(&parts.n), "e": encode(&parts.e) })
            }
        }
    }

    pub fn sign(&self, header: &Value, claims: &str) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.signature(signed.as_bytes())))
    }

    pub fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Signer::P256(pair) => pair.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Signer::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a signature");
                signature
            }
        }
    }

    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm(), "typ": "at+jwt", "kid": self.kid })
    }

    pub fn token(&self, claims: &Value) -> String {
        self.sign(&self.header(), &claims.to_string())
    }

    /// As Kubernetes projects it into a pod: without a type.
    pub fn projected(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": self.algorithm(), "kid": self.kid }), &claims.to_string())
    }
}
