//! Signing keys: what Paddock signs its own access tokens with. All replicas share them through the store.

use crate::Timestamp;

#[derive(Clone)]
pub struct SigningKey {
    /// Names the key in a token's header.
    pub id: String,
    /// The private key, PKCS#8.
    pub private: Vec<u8>,
    pub public: Vec<u8>,
    pub created_at: Timestamp,
}

// By hand, so that no log line can ever hold the private half.
impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}
