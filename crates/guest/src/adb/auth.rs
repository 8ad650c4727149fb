//! Who may use ADB: the public keys of hosts, and whether a signature was made by one of them.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};

const WORDS: usize = 64;
const BYTES: usize = WORDS * 4;
/// Android's key: a word count, a Montgomery constant, modulus, Montgomery's R², exponent; all little-endian.
const ENCODED: usize = 4 + 4 + BYTES + BYTES + 4;
pub const TOKEN: usize = 20;
/// DigestInfo of SHA-1 in DER; the token stands for the digest.
const SHA1_PREFIX: [u8; 15] =
    [0x30, 0x21, 0x30, 0x09, 0x06, 0x05, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 0x05, 0x00, 0x04, 0x14];

/// Who gets in. The default is nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "access", rename_all = "camelCase")]
pub enum Access {
    /// Whoever can reach the port.
    Open,
    /// Holders of these keys, each a line of `adbkey.pub`.
    Keys { keys: Vec<String> },
}

impl Default for Access {
    fn default() -> Access {
        Access::Keys { keys: Vec::new() }
    }
}

impl Access {
    pub fn parsed(&self) -> Result<Gate> {
        match self {
            Access::Open => Ok(Gate::Open),
            Access::Keys { keys } => {
                Ok(Gate::Keys(keys.iter().map(|line| Key::parse(line)).collect::<Result<_>>()?))
            }
        }
    }
}

pub enum Gate {
    Open,
    Keys(Vec<Key>),
}

impl Gate {
    pub fn admits(&self, token: &[u8; TOKEN], signature: &[u8]) -> bool {
        match self {
            Gate::Open => true,
            Gate::Keys(keys) => keys.iter().any(|key| key.made(token, signature)),
        }
    }
}

/// The public half of a host's RSA key.
pub struct Key {
    modulus: BigUint,
    exponent: BigUint,
}

impl Key {
    /// Takes a line of `adbkey.pub`: base64, then perhaps a name.
    pub fn parse(line: &str) -> Result<Key> {
        let encoded = line.split_whitespace().next().context("the ADB key is empty")?;
        let bytes = STANDARD.decode(encoded).context("the ADB key is not base64")?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes.len() != ENCODED || word(0) as usize != WORDS {
            bail!("the ADB key is not an RSA key of 2048 bits as in adbkey.pub");
        }
        let (modulus, exponent) = (BigUint::from_bytes_le(&bytes[8..8 + BYTES]), word(ENCODED - 4));
        if modulus.bits() != (BYTES * 8) as u64 || !matches!(exponent, 3 | 65537) {
            bail!("the ADB key's modulus or exponent is out of range");
        }
        Ok(Key { modulus, exponent: exponent.into() })
    }

    /// Whether this key's owner signed the token (PKCS #1 v1.5, the token in place of a SHA-1 digest).
    fn made(&self, token: &[u8; TOKEN], signature: &[u8]) -> bool {
        let number = BigUint::from_bytes_be(signature);
        if signature.len() != BYTES || number >= self.modulus {
            return false;
        }
        let opened = number.modpow(&self.exponent, &self.modulus).to_bytes_be();
        let padding = BYTES - 3 - SHA1_PREFIX.len() - TOKEN;
        // The leading zero byte is not part of the number.
        let expected = [&[1], vec![0xff; padding].as_slice(), &[0], &SHA1_PREFIX, token].concat();
        opened == expected
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, BYTES, Key, STANDARD, TOKEN};
    use base64::Engine;

    #[test]
    fn what_is_no_key_is_refused_with_a_reason() {
        for (line, reason) in [
            (String::new(), "the ADB key is empty"),
            ("!!!".to_owned(), "the ADB key is not base64"),
            (STANDARD.encode("short"), "the ADB key is not an RSA key of 2048 bits as in adbkey.pub"),
            (
                STANDARD.encode([vec![64, 0, 0, 0], vec![0; 520]].concat()),
                "the ADB key's modulus or exponent is out of range",
            ),
        ] {
            let error = Key::parse(&line).err().expect("no key");
            assert_eq!(error.to_string(), reason);
        }
    }

    #[test]
    fn nobody_gets_in_by_default() {
        let gate = Access::default().parsed().expect("no keys");

        assert!(!gate.admits(&[0; TOKEN], &[0; BYTES]));
    }
}
