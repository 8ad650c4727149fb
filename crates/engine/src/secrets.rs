//! Secrets that are handed out: shown once, kept as a digest, never printed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::ports::Random;
use ring::digest::{SHA256, digest};

/// 256 bits that nobody can guess, so that a plain digest of them gives nothing away.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(random: &dyn Random) -> Self {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        Secret(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// For where it goes out; for nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn digest(&self) -> Vec<u8> {
        digest_of(&self.0)
    }
}

pub(crate) fn digest_of(text: &str) -> Vec<u8> {
    digest(&SHA256, text.as_bytes()).as_ref().to_vec()
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}
