//! API keys: what opens the device API. A key is shown once; only its digest is kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::permissions::Object;
use crate::ports::Random;
use crate::scopes;
use crate::tenants::TenantId;
use crate::users::UserId;

crate::id!(ApiKeyId, "key");

impl ApiKeyId {
    /// No type of the model: rights on a key follow from its tenant and its owner.
    pub fn object(self) -> Object {
        Object::new("api_key", self)
    }
}

pub const PREFIX: &str = "pdk_";
const RANDOM: usize = 32;
const CHECKSUM: usize = 6;
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
pub const LONGEST_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: ApiKeyId,
    pub tenant: TenantId,
    pub owner: UserId,
    pub name: String,
    /// What may be shown of it: its beginning and its end.
    pub hint: String,
    pub scopes: Vec<Scope>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
}

/// Which keys someone may see: a person's own, and all of the tenants that they administer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyScope {
    pub owner: Option<UserId>,
    pub administered: scopes::Scope,
}

impl KeyScope {
    pub fn covers(&self, key: &ApiKey) -> bool {
        self.owner == Some(key.owner) || self.administered.covers(key.tenant)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    DeviceRead,
    DeviceWrite,
}

impl Scope {
    pub const fn name(self) -> &'static str {
        match self {
            Scope::DeviceRead => "device:read",
            Scope::DeviceWrite => "device:write",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Scope::DeviceRead, Scope::DeviceWrite].into_iter().find(|scope| scope.name() == text)
    }

    /// The rights that the scope opens.
    pub const fn opens(self) -> &'static [&'static str] {
        match self {
            Scope::DeviceRead => &["device:can_view"],
            Scope::DeviceWrite => &["device:can_view", "device:can_delete", "tenant:can_create_device"],
        }
    }
}

/// A key itself, as its owner holds it. Never stored, never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    pub fn new(random: &dyn Random) -> Self {
        let mut letters = String::from(PREFIX);
        while letters.len() < PREFIX.len() + RANDOM {
            let mut byte = [0];
            random.fill(&mut byte);
            // A byte above the last whole multiple of 62 would make some letters likelier than others.
            if byte[0] < 248 {
                letters.push(ALPHABET[byte[0] as usize % 62] as char);
            }
        }
        let checksum = checksum(letters.as_bytes());
        Secret(letters + &checksum)
    }

    /// The key, unless it was mistyped or made up: most nonsense ends here, before any database is asked.
    pub fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.split_at_checked(PREFIX.len() + RANDOM)?;
        let fits = body.starts_with(PREFIX)
            && body[PREFIX.len()..].bytes().all(|letter| letter.is_ascii_alphanumeric())
            && sum == checksum(body.as_bytes());
        fits.then(|| Secret(text.to_owned()))
    }

    /// For the one moment in which it is shown, and to be digested.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hint(&self) -> String {
        format!("{}…{}", &self.0[..8], &self.0[self.0.len() - 4..])
    }
}

/// Six letters of base 62 over a CRC-32 (IEEE).
fn checksum(bytes: &[u8]) -> String {
    let mut sum = !bytes.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    });
    let mut letters = [b'0'; CHECKSUM];
    for letter in letters.iter_mut().rev() {
        *letter = ALPHABET[(sum % 62) as usize];
        sum /= 62;
    }
    letters.iter().map(|&letter| letter as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SeededRandom;

    #[test]
    fn a_key_carries_its_own_checksum() {
        let key = "pdk_0123456789ABCDEFGHIJKLMNOPQRSTUV3RkAm4";
        assert_eq!(Secret::parse(key).map(|key| key.hint()).as_deref(), Some("pdk_0123…kAm4"));
        for wrong in [
            "pdk_0123456789ABCDEFGHIJKLMNOPQRSTUV3RkAm5",
            "pdk_",
            "",
            "pdk_0123456789ABCDEFGHIJKLMNOPQRSTUé3RkAm4",
        ] {
            assert_eq!(Secret::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_new_key_is_read_back_and_never_printed() {
        let random = SeededRandom::new(7);
        for _ in 0..1000 {
            let key = Secret::new(&random);
            assert_eq!(key.reveal().len(), 42);
            assert_eq!(Secret::parse(key.reveal()).as_ref(), Some(&key));
            assert!(!format!("{key:?}").contains(&key.reveal()[4..]));
        }
    }
}
