//! Signed tokens (JWT, RFC 7519), read so strictly that there is one reading: what has two is refused.
//!
//! Order matters: size, syntax, header, then the key, the signature, and only then what the token claims.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Longer than any honest token.
pub const LONGEST: usize = 8192;
/// Header members that change what the rest means, or bring a key along: nothing honest needs them.
const REFUSED_MEMBERS: &[&str] = &["crit", "b64", "jwk", "jku", "x5u", "x5c", "zip", "cty"];

/// What is wrong with a token; for the log, never for who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flaw(pub &'static str);

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! algorithms {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// How a token may be signed. There is no symmetric one, and no `none`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Algorithm {
            $($variant,)*
        }

        impl Algorithm {
            pub const ALL: &[Algorithm] = &[$(Algorithm::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Algorithm::$variant => $name,)*
                }
            }
        }
    };
}

algorithms! {
    Rs256 = "RS256", Rs384 = "RS384", Rs512 = "RS512",
    Ps256 = "PS256", Ps384 = "PS384", Ps512 = "PS512",
    Es256 = "ES256", Es384 = "ES384",
    EdDsa = "EdDSA",
}

impl Algorithm {
    pub fn parse(name: &str) -> Option<Self> {
        Algorithm::ALL.iter().copied().find(|algorithm| algorithm.name() == name)
    }

    /// The hash that goes with it; `at_hash` is made by the same.
    pub fn hash(self) -> &'static ring::digest::Algorithm {
        match self {
            Algorithm::Rs256 | Algorithm::Ps256 | Algorithm::Es256 => &ring::digest::SHA256,
            Algorithm::Rs384 | Algorithm::Ps384 | Algorithm::Es384 => &ring::digest::SHA384,
            Algorithm::Rs512 | Algorithm::Ps512 | Algorithm::EdDsa => &ring::digest::SHA512,
        }
    }
}

/// A public key, of a kind that fits some algorithms and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Material {
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Material::Rsa { .. } => {
                !matches!(algorithm, Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa)
            }
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Result<(), Flaw> {
        let checked = match (self, algorithm) {
            (Material::Rsa { n, e }, _) => {
                let parameters = match algorithm {
                    Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return Err(Flaw("the key does not fit the algorithm")),
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (Material::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Material::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            (Material::Ed25519(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
            _ => return Err(Flaw("the key does not fit the algorithm")),
        };
        checked.map_err(|_| Flaw("the signature is wrong"))
    }
}

/// A token that is well-formed, and of which nothing is believed yet.
pub struct Unverified<'a> {
    pub algorithm: Algorithm,
    /// Which key is to verify it.
    pub kid: String,
    typ: Option<String>,
    claims: Map<String, Value>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> Unverified<'a> {
    pub fn parse(token: &'a str) -> Result<Self, Flaw> {
        if token.len() > LONGEST {
            return Err(Flaw("it is too long"));
        }
        let mut segments = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (segments.next(), segments.next(), segments.next(), segments.next())
        else {
            return Err(Flaw("it has not three segments"));
        };
        let signed = &token.as_bytes()[..header.len() + 1 + payload.len()];
        let header = object(header)?;
        if REFUSED_MEMBERS.iter().any(|member| header.contains_key(*member)) {
            return Err(Flaw("its header has a member that is not accepted"));
        }
        let text = |member: &str| match header.get(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Flaw("a member of its header is no text")),
        };
        let algorithm = text("alg")?
            .as_deref()
            .and_then(Algorithm::parse)
            .ok_or(Flaw("its algorithm is not accepted"))?;
        let kid = text("kid")?.filter(|kid| !kid.is_empty()).ok_or(Flaw("it names no key"))?;
        let typ = text("typ")?;
        let signature = decode(signature)?;
        Ok(Unverified { algorithm, kid, typ, claims: object(payload)?, signed, signature })
    }

    /// Who says to have issued it; good for picking a key, for nothing else.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// Whether it says to be for this audience alone.
    pub fn is_for(&self, audience: &str) -> bool {
        match self.claims.get("aud") {
            Some(Value::Array(many)) => matches!(&many[..], [one] if one == audience),
            one => one.is_some_and(|one| one == audience),
        }
    }

    /// What it claims, once the key has vouched for it and the policy allows it.
    pub fn verify(self, key: &Material, policy: &Policy<'_>, now: i64) -> Result<Claims, Refusal> {
        if !policy.algorithms.contains(&self.algorithm) {
            return Err(Flaw("its algorithm is not accepted of this issuer").into());
        }
        if !key.fits(self.algorithm) {
            return Err(Flaw("the key does not fit the algorithm").into());
        }
        key.verify(self.algorithm, self.signed, &self.signature)?;
        self.accept(policy, now)
    }

    /// The claims by the policy, whoever vouches for the signature.
    pub fn accept(self, policy: &Policy<'_>, now: i64) -> Result<Claims, Refusal> {
        let Claimed(claims) = Claimed::new(self.claims)?;
        if !policy.typ.allows(self.typ.as_deref(), claims.purpose()) {
            return Err(Flaw("it is of another type").into());
        }
        if claims.issuer != policy.issuer {
            return Err(Flaw("it is of another issuer").into());
        }
        claims.check_audience(policy)?;
        claims.check_times(policy, now)?;
        Ok(Claims { algorithm: self.algorithm, ..claims })
    }
}

/// Why a token is refused: it was good until a moment ago, or it never was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Expired,
    Flawed(Flaw),
}

impl From<Flaw> for Refusal {
    fn from(flaw: Flaw) -> Self {
        Refusal::Flawed(flaw)
    }
}

/// What is accepted of one issuer.
#[derive(Debug, Clone, Copy)]
pub struct Policy<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    pub algorithms: &'a [Algorithm],
    pub typ: Typ,
    /// For whom a token may have been issued that names other audiences, too.
    pub clients: &'a [String],
    /// All in seconds.
    pub longest_life: i64,
    /// By how much clocks may differ.
    pub skew: i64,
}

/// Which types of tokens are accepted, by their header and by what they claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typ {
    /// Access tokens that say so (RFC 9068).
    AccessToken,
    /// Access tokens that say `JWT` or nothing.
    Plain,
    /// Access tokens of either sort.
    Any,
    /// Identity tokens only.
    Identity,
    /// Access tokens of either sort, and identity tokens.
    AnyOrIdentity,
}

impl Typ {
    fn allows(self, typ: Option<&str>, purpose: Purpose) -> bool {
        let is = |name: &str| typ.is_some_and(|typ| typ.eq_ignore_ascii_case(name));
        let access = is("at+jwt") || is("application/at+jwt");
        let plain = typ.is_none() || is("JWT");
        match (purpose, self) {
            (Purpose::Other, _) => false,
            (Purpose::Access, Typ::AccessToken) => access,
            (Purpose::Access, Typ::Plain | Typ::Identity) => plain,
            (Purpose::Access, Typ::Any | Typ::AnyOrIdentity) => access || plain,
            (Purpose::Identity, Typ::Identity | Typ::AnyOrIdentity) => plain,
            (Purpose::Identity, _) => false,
        }
    }
}

/// What a token is for, as far as its claims give it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Access,
    /// Tells a client about a sign-in, and is no key to anything.
    Identity,
    /// Refresh, logout, events.
    Other,
}

/// What a verified token claims.
#[derive(Debug, Clone)]
pub struct Claims {
    pub algorithm: Algorithm,
    pub issuer: String,
    pub subject: String,
    pub audiences: Vec<String>,
    pub expires_at: i64,
    pub not_before: Option<i64>,
    pub issued_at: Option<i64>,
    pub authenticated_at: Option<i64>,
    pub id: Option<String>,
    /// The client for whom it was issued.
    pub client: Option<String>,
    pub others: Map<String, Value>,
}

struct Claimed(Claims);

impl Claimed {
    fn new(mut all: Map<String, Value>) -> Result<Self, Flaw> {
        let mut text = |name: &str| match all.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Flaw("a claim is no text")),
        };
        let issuer = text("iss")?.ok_or(Flaw("it names no issuer"))?;
        let subject = text("sub")?.ok_or(Flaw("it names no subject"))?;
        let fits =
            (1..=255).contains(&subject.len()) && subject.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !fits {
            return Err(Flaw("its subject is not 1 to 255 characters of ASCII"));
        }
        let id = text("jti")?;
        let (authorized, client) = (text("azp")?, text("client_id")?);
        if authorized.is_some() && client.is_some() && authorized != client {
            return Err(Flaw("it names two clients"));
        }
        // Whole seconds only: a fraction, or a number as a text, has more than one reading.
        let mut time = |name: &str| match all.remove(name) {
            None => Ok(None),
            Some(Value::Number(number)) => match number.as_i64() {
                Some(seconds) if seconds >= 0 => Ok(Some(seconds)),
                _ => Err(Flaw("a time is no whole number of seconds")),
            },
            Some(_) => Err(Flaw("a time is no number")),
        };
        let expires_at = time("exp")?.ok_or(Flaw("it does not say when it ends"))?;
        let (not_before, issued_at, authenticated_at) = (time("nbf")?, time("iat")?, time("auth_time")?);
        let audiences = match all.remove("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) if !many.is_empty() => {
                let texts = many.into_iter().map(|each| match each {
                    Value::String(text) => Ok(text),
                    _ => Err(Flaw("an audience is no text")),
                });
                texts.collect::<Result<_, _>>()?
            }
            _ => return Err(Flaw("it names no audience")),
        };
        Ok(Claimed(Claims {
            algorithm: Algorithm::EdDsa,
            issuer,
            subject,
            audiences,
            expires_at,
            not_before,
            issued_at,
            authenticated_at,
            id,
            client: authorized.or(client),
            others: all,
        }))
    }
}

impl Claims {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.others.get(name).and_then(Value::as_str)
    }

    fn purpose(&self) -> Purpose {
        let has = |claims: &[&str]| claims.iter().any(|claim| self.others.contains_key(*claim));
        match self.others.get("typ") {
            _ if has(&["events"]) => Purpose::Other,
            // Keycloak says it in a claim.
            Some(typ) if typ == "Bearer" => Purpose::Access,
            Some(typ) if typ == "ID" => Purpose::Identity,
            Some(_) => Purpose::Other,
            None if has(&["nonce", "at_hash", "c_hash"]) => Purpose::Identity,
            None => Purpose::Access,
        }
    }

    fn check_audience(&self, policy: &Policy<'_>) -> Result<(), Flaw> {
        if !self.audiences.iter().any(|audience| audience == policy.audience) {
            return Err(Flaw("it is for another audience"));
        }
        // A token for several could be passed on by any of them.
        let known = |client: &String| policy.clients.contains(client);
        if self.audiences.len() > 1 && !self.client.as_ref().is_some_and(known) {
            return Err(Flaw("it is for several audiences, and its client is not known"));
        }
        Ok(())
    }

    /// Whether it is good by time: the end comes last, so that only what was good is called expired.
    fn check_times(&self, policy: &Policy<'_>, now: i64) -> Result<(), Refusal> {
        let future = |time: Option<i64>| time.is_some_and(|time| time > now + policy.skew);
        if future(self.not_before) || future(self.issued_at) || future(self.authenticated_at) {
            return Err(Flaw("it is not valid yet").into());
        }
        let begin = self.issued_at.unwrap_or(now - policy.skew);
        if self.expires_at < begin || self.expires_at - begin > policy.longest_life {
            return Err(Flaw("it lives too long").into());
        }
        if now >= self.expires_at + policy.skew { Err(Refusal::Expired) } else { Ok(()) }
    }
}

fn decode(segment: &str) -> Result<Vec<u8>, Flaw> {
    URL_SAFE_NO_PAD.decode(segment).map_err(|_| Flaw("it is not base64url"))
}

fn object(segment: &str) -> Result<Map<String, Value>, Flaw> {
    let bytes = decode(segment)?;
    match serde_json::from_slice(&bytes) {
        Ok(Unambiguous(Value::Object(object))) => Ok(object),
        _ => Err(Flaw("a segment is no plain JSON object")),
    }
}

/// JSON in which no member stands twice, at any depth.
pub struct Unambiguous(pub Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Once).map(Unambiguous)
    }
}

struct Once;

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated members")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Unambiguous(value))) = members.next_entry::<String, Unambiguous>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

/// A token of ours, signed with Ed25519.
pub fn sign(claims: &Value, typ: &str, kid: &str, key: &signature::Ed25519KeyPair) -> String {
    let header = serde_json::json!({ "alg": Algorithm::EdDsa.name(), "typ": typ, "kid": kid });
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::KeyPair as _;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;

    fn key() -> signature::Ed25519KeyPair {
        signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key")
    }

    fn policy(clients: &[String]) -> Policy<'_> {
        Policy {
            issuer: "https://id.example",
            audience: "paddock",
            algorithms: &[Algorithm::EdDsa],
            typ: Typ::AccessToken,
            clients,
            longest_life: 86_400,
            skew: 60,
        }
    }

    fn claims() -> Value {
        json!({ "iss": "https://id.example", "aud": "paddock", "sub": "ada", "iat": NOW - 10, "exp": NOW + 600 })
    }

    fn judge(typ: &str, claims: &Value) -> Result<Claims, Refusal> {
        let key = key();
        let token = sign(claims, typ, "k", &key);
        let material = Material::Ed25519(key.public_key().as_ref().to_vec());
        Unverified::parse(&token)?.verify(&material, &policy(&["console".to_owned()]), NOW)
    }

    #[test]
    fn a_good_token_is_accepted() {
        assert_eq!(judge("at+jwt", &claims()).expect("good").subject, "ada");
        assert!(judge("application/AT+JWT", &claims()).is_ok());
    }

    #[test]
    fn a_claim_that_is_not_as_it_must_be_is_refused() {
        for (claim, value) in [
            ("iss", json!(null)),
            ("iss", json!("https://id.example/")),
            ("iss", json!("HTTPS://id.example")),
            ("aud", json!(null)),
            ("aud", json!([])),
            ("aud", json!({ "paddock": true })),
            ("aud", json!("Paddock")),
            ("aud", json!("paddock2")),
            ("aud", json!("pad")),
            ("aud", json!(["paddock", 7])),
            ("aud", json!(["paddock", "other"])),
            ("sub", json!("")),
            ("sub", json!(7)),
            ("sub", json!("a\u{0}b")),
            ("sub", json!("x".repeat(256))),
            ("exp", json!((NOW + 600).to_string())),
            ("exp", json!(NOW as f64 + 600.5)),
            ("exp", json!(-1)),
            ("exp", json!(null)),
            ("exp", json!([NOW + 600])),
            ("exp", json!(NOW + 86_400)),
            ("nbf", json!(NOW + 61)),
            ("nbf", json!("0")),
            ("iat", json!(NOW + 61)),
            ("iat", json!(1.5)),
            ("auth_time", json!(NOW + 61)),
            ("nonce", json!("n")),
            ("at_hash", json!("h")),
            ("events", json!({})),
            ("typ", json!("ID")),
            ("typ", json!("Refresh")),
        ] {
            let mut claims = claims();
            claims[claim] = value.clone();
            assert!(matches!(judge("at+jwt", &claims), Err(Refusal::Flawed(_))), "{claim}: {value}");
        }
        for claim in ["iss", "aud", "sub", "exp"] {
            let mut claims = claims();
            claims.as_object_mut().expect("claims").remove(claim);
            assert!(matches!(judge("at+jwt", &claims), Err(Refusal::Flawed(_))), "without {claim}");
        }
    }

    #[test]
    fn only_what_was_good_is_called_expired() {
        let mut old = claims();
        (old["iat"], old["exp"]) = (json!(NOW - 1000), json!(NOW - 60));
        assert_eq!(judge("at+jwt", &old).err(), Some(Refusal::Expired));
        old["exp"] = json!(NOW - 59);
        assert!(judge("at+jwt", &old).is_ok());
        (old["exp"], old["aud"]) = (json!(NOW - 600), json!("other"));
        assert!(matches!(judge("at+jwt", &old), Err(Refusal::Flawed(_))));
    }

    #[test]
    fn several_audiences_need_a_known_client() {
        let mut shared = claims();
        shared["aud"] = json!(["paddock", "other"]);
        for (client, fits) in [("console", true), ("other", false)] {
            shared["azp"] = json!(client);
            assert_eq!(judge("at+jwt", &shared).is_ok(), fits, "{client}");
        }
    }

    #[test]
    fn types_keep_tokens_of_other_purposes_out() {
        use Purpose::{Access, Identity, Other};
        for (rule, typ, purpose, fits) in [
            (Typ::AccessToken, Some("at+jwt"), Access, true),
            (Typ::AccessToken, Some("at+jwt"), Identity, false),
            (Typ::AccessToken, Some("JWT"), Access, false),
            (Typ::AccessToken, None, Access, false),
            (Typ::Plain, Some("JWT"), Access, true),
            (Typ::Plain, None, Access, true),
            (Typ::Plain, Some("JWT"), Identity, false),
            (Typ::Any, Some("at+jwt"), Access, true),
            (Typ::Any, Some("logout+jwt"), Access, false),
            (Typ::Any, Some("dpop+jwt"), Access, false),
            (Typ::Identity, Some("at+jwt"), Access, false),
            (Typ::Identity, Some("JWT"), Other, false),
            (Typ::AnyOrIdentity, Some("JWT"), Identity, true),
            (Typ::AnyOrIdentity, Some("JWT"), Other, false),
        ] {
            assert_eq!(rule.allows(typ, purpose), fits, "{rule:?} {typ:?} {purpose:?}");
        }
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        let good = sign(&claims(), "at+jwt", "k", &key());
        let (header, rest) = good.split_once('.').expect("segments");
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for header in [
            r#"{"alg":"EdDSA","alg":"EdDSA","kid":"k"}"#,
            r#"{"alg":"EdDSA","kid":"k","crit":["exp"]}"#,
            r#"{"alg":"EdDSA","kid":"k","cty":"JWT"}"#,
            r#"{"alg":"EdDSA","kid":"k","x":{"a":1,"a":2}}"#,
            r#"{"alg":"EdDSA"}"#,
            r#"{"alg":"EdDSA","kid":7}"#,
            r#"{"alg":"none","kid":"k"}"#,
            r#"{"alg":"eddsa","kid":"k"}"#,
            r#"{"alg":["EdDSA"],"kid":"k"}"#,
            r#"{"kid":"k"}"#,
            "\u{feff}{\"alg\":\"EdDSA\",\"kid\":\"k\"}",
            "[]",
            "",
        ] {
            let token = format!("{}.{rest}", encode(header));
            assert!(Unverified::parse(&token).is_err(), "{header}");
        }
        for token in [
            format!("{header}=.{rest}"),
            format!("{header}\n.{rest}"),
            format!(" {good}"),
            format!("{good}.a.b"),
            format!("{good}="),
            format!("{header}.{}", rest.replace('.', "..")),
            header.to_owned(),
        ] {
            assert!(Unverified::parse(&token).is_err(), "{token}");
        }
    }
}
