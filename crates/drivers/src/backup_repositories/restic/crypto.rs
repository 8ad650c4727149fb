//! Keys of a repository: one that a password opens, and the one behind it that everything is sealed with.

use aes256ctr_poly1305aes::aead::AeadInPlace;
use aes256ctr_poly1305aes::aead::generic_array::GenericArray;
use aes256ctr_poly1305aes::{Aes256CtrPoly1305Aes, Key as CipherKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use ring::rand::{SecureRandom, SystemRandom};
use scrypt::Params;
use serde::{Deserialize, Serialize};

const NONCE: usize = 16;
const TAG: usize = 16;
/// What sealing adds.
pub const OVERHEAD: usize = NONCE + TAG;
/// restic's own least: 2¹⁵, 8, 1. The password is 256 random bits, which no amount of work makes harder to guess.
const LOG_N: u8 = if cfg!(test) { 10 } else { 15 };

/// 32 bytes for AES, 16 and 16 for Poly1305.
#[derive(Clone)]
pub struct Key(CipherKey);

#[derive(Serialize, Deserialize)]
struct MasterKey {
    mac: Mac,
    encrypt: String,
}

#[derive(Serialize, Deserialize)]
struct Mac {
    k: String,
    r: String,
}

/// A file in `keys/`, as restic writes it.
#[derive(Serialize, Deserialize)]
struct KeyFile {
    created: String,
    username: String,
    hostname: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u32,
    r: u32,
    p: u32,
    salt: String,
    data: String,
}

pub fn random<const N: usize>() -> DriverResult<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| DriverError::new(Retry::Soon, "internal", "the system gives no randomness"))?;
    Ok(bytes)
}

pub fn damaged(what: &str) -> DriverError {
    let message = format!("{what} is not what was written: its seal is broken");
    DriverError::new(Retry::Never, "object_damaged", message)
}

fn wrong_key(what: &str) -> DriverError {
    let message = format!("{what}. Put the key back that this tenant's backups were made with.");
    DriverError::new(Retry::Later, "wrong_key", message)
}

impl Key {
    pub fn generate() -> DriverResult<Key> {
        let mut bytes: [u8; 64] = random()?;
        // Bits that Poly1305 has no use for; restic expects them to be gone.
        for at in [3, 7, 11, 15] {
            bytes[48 + at] &= 15;
        }
        for at in [4, 8, 12] {
            bytes[48 + at] &= 252;
        }
        Ok(Key(*CipherKey::from_slice(&bytes)))
    }

    fn derive(password: &str, salt: &[u8], params: &Params) -> DriverResult<Key> {
        let mut bytes = [0; 64];
        scrypt::scrypt(password.as_bytes(), salt, params, &mut bytes)
            .map_err(|error| wrong_key(&format!("a key file cannot be used: {error}")))?;
        Ok(Key(*CipherKey::from_slice(&bytes)))
    }

    pub fn seal(&self, plain: &[u8]) -> DriverResult<Vec<u8>> {
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD);
        self.seal_onto(&mut sealed, plain)?;
        Ok(sealed)
    }

    /// Adds nonce, sealed bytes, tag.
    pub fn seal_onto(&self, others: &mut Vec<u8>, plain: &[u8]) -> DriverResult<()> {
        let nonce: [u8; NONCE] = random()?;
        others.extend_from_slice(&nonce);
        let at = others.len();
        others.extend_from_slice(plain);
        let tag = Aes256CtrPoly1305Aes::new(&self.0).encrypt_in_place_detached(
            GenericArray::from_slice(&nonce),
            &[],
            &mut others[at..],
        );
        let tag = tag.map_err(|_| DriverError::new(Retry::Never, "internal", "nothing can be sealed"))?;
        others.extend_from_slice(&tag);
        Ok(())
    }

    /// None if it was not sealed with this key, or is not what was sealed.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        self.open_into(&mut plain, sealed).then_some(plain)
    }

    /// Puts what was sealed in the place of what is there; false if it was not sealed with this key, or is not what was sealed.
    #[must_use]
    pub fn open_into(&self, plain: &mut Vec<u8>, sealed: &[u8]) -> bool {
        plain.clear();
        let Some((nonce, rest)) = sealed.split_at_checked(NONCE) else { return false };
        let Some((sealed, tag)) = rest.len().checked_sub(TAG).and_then(|at| rest.split_at_checked(at)) else {
            return false;
        };
        plain.extend_from_slice(sealed);
        let (nonce, tag) = (GenericArray::from_slice(nonce), GenericArray::from_slice(tag));
        Aes256CtrPoly1305Aes::new(&self.0).decrypt_in_place_detached(nonce, &[], plain, tag).is_ok()
    }

    /// A file that gives this key to whoever has the password.
    pub fn locked_with(&self, password: &str, created: &str) -> DriverResult<Vec<u8>> {
        let salt: [u8; 64] = random()?;
        let params = params(u32::from(LOG_N), 8, 1).ok_or_else(|| wrong_key("no key can be made"))?;
        let bytes = self.0.as_slice();
        let master = MasterKey {
            mac: Mac { k: STANDARD.encode(&bytes[32..48]), r: STANDARD.encode(&bytes[48..]) },
            encrypt: STANDARD.encode(&bytes[..32]),
        };
        let master = serde_json::to_vec(&master).unwrap_or_default();
        let file = KeyFile {
            created: created.to_owned(),
            username: "paddock".to_owned(),
            hostname: "paddock".to_owned(),
            kdf: "scrypt".to_owned(),
            n: 1 << LOG_N,
            r: 8,
            p: 1,
            salt: STANDARD.encode(salt),
            data: STANDARD.encode(Key::derive(password, &salt, &params)?.seal(&master)?),
        };
        Ok(serde_json::to_vec(&file).unwrap_or_default())
    }

    /// None if the password does not open it.
    pub fn unlock(file: &[u8], password: &str) -> Option<Key> {
        let file: KeyFile =
            serde_json::from_slice(file).ok().filter(|file: &KeyFile| file.kdf == "scrypt")?;
        let log_n = file.n.is_power_of_two().then(|| file.n.trailing_zeros())?;
        let params = params(log_n, file.r, file.p)?;
        let salt = STANDARD.decode(&file.salt).ok()?;
        let key = Key::derive(password, &salt, &params).ok()?;
        let master: MasterKey =
            serde_json::from_slice(&key.open(&STANDARD.decode(&file.data).ok()?)?).ok()?;
        let mut bytes = STANDARD.decode(&master.encrypt).ok()?;
        bytes.extend(STANDARD.decode(&master.mac.k).ok()?);
        bytes.extend(STANDARD.decode(&master.mac.r).ok()?);
        (bytes.len() == 64).then(|| Key(*CipherKey::from_slice(&bytes)))
    }
}

/// What nobody would ask for, and would take all memory, is refused.
fn params(log_n: u32, r: u32, p: u32) -> Option<Params> {
    let bearable = log_n <= 22 && r <= 64 && p <= 16;
    let log_n = u8::try_from(log_n).ok().filter(|_| bearable)?;
    Params::new(log_n, r, p, 64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_opened_by_its_key_alone_and_only_as_it_was() {
        let (key, other) = (Key::generate().expect("key"), Key::generate().expect("key"));
        let sealed = key.seal(b"words").expect("sealed");

        assert_eq!(key.open(&sealed).as_deref(), Some(&b"words"[..]));
        assert_eq!(other.open(&sealed), None);
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert_eq!(key.open(&altered), None, "byte {at}");
            assert_eq!(key.open(&sealed[..at]), None, "cut off at {at}");
        }
    }

    #[test]
    fn a_key_is_given_to_whoever_has_the_password() {
        let key = Key::generate().expect("key");
        let file = key.locked_with("secret", "2026-01-01T00:00:00Z").expect("locked");

        let sealed = key.seal(b"words").expect("sealed");
        let unlocked = Key::unlock(&file, "secret").expect("unlocked");
        assert_eq!(unlocked.open(&sealed).as_deref(), Some(&b"words"[..]));
        assert!(Key::unlock(&file, "another").is_none());
        assert!(Key::unlock(b"{}", "secret").is_none());
    }
}
