//! Cursors: opaque, versioned, and bound to the filters they were made with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::page::PageRequest;
use paddock_model::{Error, Result};
use ring::digest::{SHA256, digest};
use serde::Serialize;

const VERSION: u8 = 1;
const DEFAULT_LIMIT: u32 = 50;
const FINGERPRINT: usize = 8;

/// One way through one list; only its own cursors lead on.
pub struct Listing([u8; FINGERPRINT]);

impl Listing {
    /// `filters` is all that decides which things are in the list.
    pub fn of(operation: &str, filters: &impl Serialize) -> Self {
        let text = format!("{operation}\n{}", serde_json::to_string(filters).unwrap_or_default());
        let mut fingerprint = [0; FINGERPRINT];
        fingerprint.copy_from_slice(&digest(&SHA256, text.as_bytes()).as_ref()[..FINGERPRINT]);
        Listing(fingerprint)
    }

    pub fn page<K: Key>(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest<K>> {
        let after = cursor.map(|cursor| self.read(cursor)).transpose()?;
        Ok(PageRequest { limit: limit.unwrap_or(DEFAULT_LIMIT), after })
    }

    pub fn write<K: Key>(&self, next: &K) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.0);
        bytes.extend(next.write());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn read<K: Key>(&self, cursor: &str) -> Result<K> {
        let refused = || {
            Error::malformed(
                "invalid_cursor",
                "This cursor does not belong to this list and these filters. Start again without one.",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refused())?;
        let [VERSION, rest @ ..] = &bytes[..] else { return Err(refused()) };
        let key = rest.strip_prefix(&self.0).ok_or_else(refused)?;
        K::read(key).ok_or_else(refused)
    }
}

/// What a list goes on after.
pub trait Key: Sized {
    fn write(&self) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl Key for uuid::Uuid {
    fn write(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        uuid::Uuid::from_slice(bytes).ok()
    }
}

impl Key for String {
    fn write(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

/// Neither text holds a line break.
impl Key for (String, String) {
    fn write(&self) -> Vec<u8> {
        format!("{}\n{}", self.0, self.1).into_bytes()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (first, second) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
        Some((first.to_owned(), second.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_on_only_in_its_own_list() {
        let key = uuid::Uuid::from_u128(7);
        let cursor = Listing::of("tenants", &"name=a").write(&key);

        assert_eq!(Listing::of("tenants", &"name=a").read(&cursor).ok(), Some(key));
        for (operation, filters) in [("tenants", "name=b"), ("groups", "name=a")] {
            let error =
                Listing::of(operation, &filters).read::<uuid::Uuid>(&cursor).expect_err("another list");
            assert_eq!(error.code, "invalid_cursor");
        }
        assert!(Listing::of("tenants", &"name=a").read::<uuid::Uuid>("AAAA").is_err());
        let pair = ("tenant:a".to_owned(), "member".to_owned());
        let listing = Listing::of("grants", &());
        assert_eq!(listing.read(&listing.write(&pair)).ok(), Some(pair));
    }
}
