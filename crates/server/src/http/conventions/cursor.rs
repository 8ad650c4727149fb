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

    pub fn page(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest> {
        let after = cursor.map(|cursor| self.read(cursor)).transpose()?;
        Ok(PageRequest { limit: limit.unwrap_or(DEFAULT_LIMIT), after })
    }

    pub fn write(&self, next: uuid::Uuid) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.0);
        bytes.extend(next.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn read(&self, cursor: &str) -> Result<uuid::Uuid> {
        let refused = || {
            Error::malformed(
                "invalid_cursor",
                "This cursor does not belong to this list and these filters. Start again without one.",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refused())?;
        let [VERSION, rest @ ..] = &bytes[..] else { return Err(refused()) };
        let key = rest.strip_prefix(&self.0).ok_or_else(refused)?;
        uuid::Uuid::from_slice(key).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_on_only_in_its_own_list() {
        let key = uuid::Uuid::from_u128(7);
        let cursor = Listing::of("tenants", &"name=a").write(key);

        assert_eq!(Listing::of("tenants", &"name=a").read(&cursor).ok(), Some(key));
        for (operation, filters) in [("tenants", "name=b"), ("groups", "name=a")] {
            let error = Listing::of(operation, &filters).read(&cursor).expect_err("another list");
            assert_eq!(error.code, "invalid_cursor");
        }
        assert!(Listing::of("tenants", &"name=a").read("AAAA").is_err());
    }
}
