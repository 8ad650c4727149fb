//! Access tokens: short-lived JWTs that Paddock signs itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddock_engine::{Engine, signing_keys};
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::signing_keys::SigningKey;
use paddock_model::subjects::Subject;
use paddock_model::users::UserId;
use paddock_model::{Error, Result, Timestamp};
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};

use super::{Identity, expired, invalid};
use crate::jwt::{self, Algorithm, Material, Policy, Refusal, Typ, Unverified};

pub const ISSUER: &str = "urn:paddock";
const TYPE: &str = "at+jwt";
pub const LIFETIME: Duration = paddock_model::lifetimes::ACCESS_TOKEN;
/// A key that we do not know is looked up again at most this often.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);
/// A key that was deleted verifies nothing after that time.
pub const KEYS_HOLD: Duration = Duration::from_secs(60);

/// A new token for the user, who signed in at that time; signed with the newest key.
pub async fn mint(engine: &Engine, user: UserId, authenticated_at: Timestamp) -> Result<String> {
    mint_for(engine, user, authenticated_at, ISSUER).await
}

/// The same for an audience that may be another than this server.
pub async fn mint_for(
    engine: &Engine,
    user: UserId,
    authenticated_at: Timestamp,
    audience: &str,
) -> Result<String> {
    let keys = signing_keys::list(engine).await?;
    let key = keys.first().ok_or_else(|| Error::internal("there is no signing key"))?;
    let now = engine.now();
    let mut id = [0; 16];
    engine.random().fill(&mut id);
    let claims = json!({
        "iss": ISSUER,
        "aud": audience,
        "sub": user.to_string(),
        "iat": now.as_second(),
        "exp": now.as_second() + LIFETIME.as_secs() as i64,
        "jti": format!("{:032x}", u128::from_be_bytes(id)),
        // When the person proved to be there.
        "auth_time": authenticated_at.as_second(),
    });
    sign(&claims, key)
}

fn sign(claims: &Value, key: &SigningKey) -> Result<String> {
    let pair =
        Ed25519KeyPair::from_pkcs8(&key.private).map_err(|error| Error::internal(error.to_string()))?;
    Ok(jwt::sign(claims, TYPE, &key.id, &pair))
}

/// Verifies tokens by our own keys.
pub struct AccessTokens {
    engine: Engine,
    keys: Mutex<Keys>,
}

struct Keys {
    by_id: HashMap<String, Material>,
    loaded_at: Timestamp,
}

impl AccessTokens {
    pub async fn load(engine: &Engine) -> Result<Self> {
        let keys = load_keys(engine).await?;
        Ok(AccessTokens { engine: engine.clone(), keys: Mutex::new(keys) })
    }

    pub async fn verify(&self, token: Unverified<'_>) -> Result<Identity> {
        let key = self.key(&token.kid).await?;
        let policy = Policy {
            issuer: ISSUER,
            audience: ISSUER,
            algorithms: &[Algorithm::EdDsa],
            typ: Typ::AccessToken,
            clients: &[],
            longest_life: LIFETIME.as_secs() as i64,
            skew: 0,
        };
        let claims =
            token.verify(&key, &policy, self.engine.now().as_second()).map_err(|refusal| match refusal {
                Refusal::Expired => expired(),
                Refusal::Flawed(_) => invalid(),
            })?;
        let user = UserId::parse(&claims.subject).ok_or_else(invalid)?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| invalid());
        let credential = Credential {
            id: claims.id,
            issued_at: claims.issued_at.map(time).transpose()?,
            expires_at: Some(time(claims.expires_at)?),
            authenticated_at: claims.authenticated_at.map(time).transpose()?,
            ..Credential::new(CredentialKind::AccessToken)
        };
        Ok(Identity { subject: Subject::User(user), credential: Arc::new(credential) })
    }

    /// The key of this id; an unknown one may have been made by another replica since, a known one deleted.
    async fn key(&self, id: &str) -> Result<Material> {
        let now = self.engine.now();
        {
            let keys = self.keys();
            if let Some(key) = keys.by_id.get(id).filter(|_| now < keys.loaded_at + KEYS_HOLD) {
                return Ok(key.clone());
            }
            if now < keys.loaded_at + RELOAD_PAUSE {
                return Err(invalid());
            }
        }
        let loaded = load_keys(&self.engine).await?;
        let mut keys = self.keys();
        *keys = loaded;
        keys.by_id.get(id).cloned().ok_or_else(invalid)
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn load_keys(engine: &Engine) -> Result<Keys> {
    let keys = signing_keys::list(engine).await?;
    let by_id = keys.into_iter().map(|key| (key.id, Material::Ed25519(key.public))).collect();
    Ok(Keys { by_id, loaded_at: engine.now() })
}
