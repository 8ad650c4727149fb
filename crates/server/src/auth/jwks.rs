//! Sets of public keys (JWK Set, RFC 7517), as issuers publish them: what is unfit stays out, what is dubious spoils the set.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::jwt::{Algorithm, Flaw, Material, Unambiguous, Unverified};

const MOST_KEYS: usize = 100;

/// The keys of one issuer that can verify a token, by id.
#[derive(Debug, PartialEq, Eq)]
pub struct KeySet(HashMap<String, Key>);

#[derive(Debug, PartialEq, Eq)]
struct Key {
    material: Material,
    /// The only algorithm it is for, if the issuer says so.
    algorithm: Option<Algorithm>,
}

impl KeySet {
    pub fn parse(text: &[u8]) -> Result<Self, Flaw> {
        let Ok(Unambiguous(Value::Object(mut set))) = serde_json::from_slice(text) else {
            return Err(Flaw("the keys are no plain JSON object"));
        };
        let Some(Value::Array(listed)) = set.remove("keys") else {
            return Err(Flaw("there is no list of keys"));
        };
        if listed.len() > MOST_KEYS {
            return Err(Flaw("there are too many keys"));
        }
        let mut keys = HashMap::new();
        let mut names = std::collections::HashSet::new();
        for each in &listed {
            let Value::Object(jwk) = each else { return Err(Flaw("a key is no object")) };
            let text = |member: &str| jwk.get(member).and_then(Value::as_str);
            // Whoever knows a shared secret can sign; whoever publishes a private key lets everybody.
            if text("kty") == Some("oct") || jwk.contains_key("d") {
                return Err(Flaw("there is a secret among the public keys"));
            }
            let Some(kid) = text("kid") else { continue };
            if !names.insert(kid) {
                return Err(Flaw("two keys have the same id"));
            }
            match fit(jwk) {
                Ok(key) => {
                    keys.insert(kid.to_owned(), key);
                }
                Err(Flaw(reason)) => tracing::debug!(kid, reason, "a published key is not used"),
            }
        }
        Ok(KeySet(keys))
    }

    /// The key that the token names, if it may verify tokens of that algorithm.
    pub fn key_for(&self, token: &Unverified<'_>) -> Option<Result<&Material, Flaw>> {
        let key = self.0.get(&token.kid)?;
        let fits =
            key.algorithm.is_none_or(|only| only == token.algorithm) && key.material.fits(token.algorithm);
        Some(if fits { Ok(&key.material) } else { Err(Flaw("the key is for another algorithm")) })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The key, if it is for verifying and strong enough.
fn fit(jwk: &Map<String, Value>) -> Result<Key, Flaw> {
    let text = |member: &str| jwk.get(member).and_then(Value::as_str);
    if jwk.get("use").is_some_and(|purpose| purpose != "sig") {
        return Err(Flaw("it is not for signatures"));
    }
    if let Some(purposes) = jwk.get("key_ops") {
        let verifies = purposes.as_array().is_some_and(|all| all.iter().any(|each| each == "verify"));
        if !verifies {
            return Err(Flaw("it is not for verifying"));
        }
    }
    let algorithm = match jwk.get("alg") {
        None => None,
        Some(name) => {
            let known = name.as_str().and_then(Algorithm::parse);
            Some(known.ok_or(Flaw("it is for an algorithm that is not accepted"))?)
        }
    };
    let bytes = |member: &str| {
        let decoded = text(member).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        decoded.ok_or(Flaw("a part of it is missing"))
    };
    let material = match (text("kty"), text("crv")) {
        (Some("RSA"), _) => rsa(bytes("n")?, bytes("e")?)?,
        (Some("EC"), Some("P-256")) => Material::P256(point(bytes("x")?, bytes("y")?, 32)?),
        (Some("EC"), Some("P-384")) => Material::P384(point(bytes("x")?, bytes("y")?, 48)?),
        (Some("OKP"), Some("Ed25519")) => {
            let key = bytes("x")?;
            if key.len() != 32 {
                return Err(Flaw("it has the wrong length"));
            }
            Material::Ed25519(key)
        }
        _ => return Err(Flaw("it is of an unknown kind")),
    };
    if algorithm.is_some_and(|algorithm| !material.fits(algorithm)) {
        return Err(Flaw("its kind and its algorithm do not fit"));
    }
    Ok(Key { material, algorithm })
}

fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<Material, Flaw> {
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !(2048..=8192).contains(&bits) || n.first() == Some(&0) {
        return Err(Flaw("its modulus is not of 2048 to 8192 bits"));
    }
    if e != [1, 0, 1] {
        return Err(Flaw("its exponent is not 65537"));
    }
    if has_roca_fingerprint(&n) {
        return Err(Flaw("it was made by a generator whose keys can be factored (ROCA)"));
    }
    Ok(Material::Rsa { n, e })
}

/// The uncompressed point; that it lies on the curve is checked at every use.
fn point(x: Vec<u8>, y: Vec<u8>, length: usize) -> Result<Vec<u8>, Flaw> {
    if x.len() != length || y.len() != length {
        return Err(Flaw("it has the wrong length"));
    }
    Ok([vec![4], x, y].concat())
}

/// CVE-2017-15361: those moduli are powers of 65537 modulo every small prime; of honest ones not one in 10^26 is.
fn has_roca_fingerprint(modulus: &[u8]) -> bool {
    const PRIMES: [u64; 38] = [
        3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101,
        103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
    ];
    PRIMES.iter().all(|prime| {
        let rest = modulus.iter().fold(0, |rest, byte| (rest * 256 + u64::from(*byte)) % prime);
        let mut power = 1;
        (0..*prime).any(|_| {
            power = power * 65537 % prime;
            power == rest
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn encoded(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn set(keys: &Value) -> Result<KeySet, Flaw> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    fn ed25519(kid: &str) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": encoded(&[1; 32]) })
    }

    fn rsa_key(n: &[u8], e: &[u8]) -> Value {
        json!({ "kty": "RSA", "kid": "r", "n": encoded(n), "e": encoded(e) })
    }

    #[test]
    fn a_dubious_set_is_refused_whole() {
        for keys in [
            json!([ed25519("a"), ed25519("a")]),
            json!([ed25519("a"), { "kty": "oct", "kid": "b", "k": "c2VjcmV0" }]),
            json!([{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": encoded(&[1; 32]), "d": encoded(&[1; 32]) }]),
            json!([7]),
            json!({}),
            Value::Array((0..101).map(|number| ed25519(&number.to_string())).collect()),
        ] {
            assert!(set(&keys).is_err(), "{keys}");
        }
        assert!(KeySet::parse(b"<html>").is_err());
        assert!(KeySet::parse(br#"{"keys":[],"keys":[]}"#).is_err());
        assert_eq!(set(&json!([ed25519("a"), ed25519("b")])).expect("good").len(), 2);
    }

    #[test]
    fn a_key_that_must_not_verify_is_left_out() {
        let with = |member: &str, value: Value| {
            let mut key = ed25519("a");
            key[member] = value;
            key
        };
        let odd = [&[0xd3_u8; 255][..], &[0xd5]].concat();
        for (key, used) in [
            (ed25519("a"), 1),
            (with("use", json!("sig")), 1),
            (with("use", json!("enc")), 0),
            (with("key_ops", json!(["verify"])), 1),
            (with("key_ops", json!(["sign"])), 0),
            (with("alg", json!("EdDSA")), 1),
            (with("alg", json!("RS256")), 0),
            (with("alg", json!("HS256")), 0),
            (with("x", json!(encoded(&[1; 31]))), 0),
            (with("crv", json!("X25519")), 0),
            (rsa_key(&odd, &[1, 0, 1]), 1),
            (rsa_key(&odd, &[1]), 0),
            (rsa_key(&odd, &[3]), 0),
            (rsa_key(&odd[..128], &[1, 0, 1]), 0),
            (rsa_key(&[0xff; 1025], &[1, 0, 1]), 0),
            (
                json!({ "kty": "EC", "crv": "P-256", "kid": "e", "x": encoded(&[1; 32]), "y": encoded(&[1; 32]) }),
                1,
            ),
            (
                json!({ "kty": "EC", "crv": "P-256", "kid": "e", "x": encoded(&[1; 48]), "y": encoded(&[1; 48]) }),
                0,
            ),
            (
                json!({ "kty": "EC", "crv": "P-521", "kid": "e", "x": encoded(&[1; 66]), "y": encoded(&[1; 66]) }),
                0,
            ),
        ] {
            assert_eq!(set(&json!([key])).expect("a set").len(), used, "{key}");
        }
    }

    #[test]
    fn keys_of_a_broken_generator_are_known_by_their_modulus() {
        // 65537^k for a k that makes 2048 bits is such a modulus, though a useless one.
        let mut number = vec![1_u8];
        while number.len() < 256 {
            let mut carry = 0_u32;
            for byte in number.iter_mut().rev() {
                let product = u32::from(*byte) * 65537 + carry;
                *byte = product as u8;
                carry = product >> 8;
            }
            while carry > 0 {
                number.insert(0, carry as u8);
                carry >>= 8;
            }
        }
        assert!(has_roca_fingerprint(&number));
        let last = number.len() - 1;
        number[last] ^= 2;
        assert!(!has_roca_fingerprint(&number));
    }
}
