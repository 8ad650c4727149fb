//! Signing keys: the first is made when it is needed, the next by a loop; all replicas share them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::signing_keys::SigningKey;
use paddock_model::{Error, Result};
use paddock_store::signing_keys;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use crate::Engine;

/// All keys, newest first; the newest signs, each of them verifies. The first call makes the first key.
pub async fn list(engine: &Engine) -> Result<Vec<SigningKey>> {
    let known = signing_keys::list(&mut engine.store.read().await?).await?;
    if !known.is_empty() {
        return Ok(known);
    }
    let mut tx = engine.store.begin().await?;
    let known = signing_keys::list(&mut tx).await?;
    if !known.is_empty() {
        return Ok(known);
    }
    let key = generate(engine)?;
    signing_keys::insert(&mut tx, &key).await?;
    tx.commit().await?;
    Ok(vec![key])
}

pub(crate) fn generate(engine: &Engine) -> Result<SigningKey> {
    let failed = |_| Error::internal("no signing key could be made");
    let private = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(failed)?;
    let pair = Ed25519KeyPair::from_pkcs8(private.as_ref())
        .map_err(|_| Error::internal("a new signing key is broken"))?;
    let public = pair.public_key().as_ref().to_vec();
    let digest = ring::digest::digest(&ring::digest::SHA256, &public);
    Ok(SigningKey {
        id: URL_SAFE_NO_PAD.encode(&digest.as_ref()[..12]),
        private: private.as_ref().to_vec(),
        public,
        created_at: engine.now(),
    })
}
