//! Access tokens: short-lived JWTs that Paddock signs itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use moka::sync::Cache;
use paddock_engine::{Engine, signing_keys};
use paddock_model::credentials::{Credential, CredentialKind};
use paddock_model::permissions::Subject;
use paddock_model::signing_keys::SigningKey;
use paddock_model::users::UserId;
use paddock_model::{Error, Result, Timestamp};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::{Identity, expired, invalid};

const ISSUER: &str = "urn:paddock";
const TYPE: &str = "at+jwt";
pub const LIFETIME: Duration = paddock_model::lifetimes::ACCESS_TOKEN;
/// Longer than any token of ours.
const LONGEST: usize = 2048;
/// A key that we do not know is looked up again at most this often.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);
const REMEMBERED: u64 = 10_000;

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    iat: i64,
    exp: i64,
    jti: String,
    /// When the person proved to be there.
    auth_time: i64,
}

/// A new token for the user, who signed in at that time; signed with the newest key.
pub async fn mint(engine: &Engine, user: UserId, authenticated_at: Timestamp) -> Result<String> {
    let keys = signing_keys::list(engine).await?;
    let key = keys.first().ok_or_else(|| Error::internal("there is no signing key"))?;
    let now = engine.now();
    let mut id = [0; 16];
    engine.random().fill(&mut id);
    let claims = Claims {
        iss: ISSUER.to_owned(),
        aud: ISSUER.to_owned(),
        sub: user.to_string(),
        iat: now.as_second(),
        exp: now.as_second() + LIFETIME.as_secs() as i64,
        jti: format!("{:032x}", u128::from_be_bytes(id)),
        auth_time: authenticated_at.as_second(),
    };
    sign(&claims, key)
}

fn sign(claims: &Claims, key: &SigningKey) -> Result<String> {
    let header =
        Header { typ: Some(TYPE.to_owned()), kid: Some(key.id.clone()), ..Header::new(Algorithm::EdDSA) };
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ed_der(&key.private)).map_err(Error::internal)
}

/// Verifies tokens, and remembers those it has verified.
pub struct AccessTokens {
    engine: Engine,
    keys: Mutex<Keys>,
    /// By digest, so that no token stands in memory longer than its request.
    verified: Cache<[u8; 32], Identity>,
}

struct Keys {
    by_id: HashMap<String, DecodingKey>,
    loaded_at: Timestamp,
}

impl AccessTokens {
    pub async fn load(engine: &Engine) -> Result<Self> {
        let keys = load_keys(engine).await?;
        let verified = Cache::new(REMEMBERED);
        Ok(AccessTokens { engine: engine.clone(), keys: Mutex::new(keys), verified })
    }

    pub async fn verify(&self, token: &str) -> Result<Identity> {
        if token.len() > LONGEST {
            return Err(invalid());
        }
        let digest: [u8; 32] =
            digest(&SHA256, token.as_bytes()).as_ref().try_into().map_err(Error::internal)?;
        let identity = match self.verified.get(&digest) {
            Some(identity) => identity,
            None => {
                let identity = self.verify_signature(token).await?;
                self.verified.insert(digest, identity.clone());
                identity
            }
        };
        if identity.credential.expires_at.is_some_and(|end| self.engine.now() >= end) {
            return Err(expired());
        }
        Ok(identity)
    }

    async fn verify_signature(&self, token: &str) -> Result<Identity> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        if header.typ.as_deref() != Some(TYPE) {
            return Err(invalid());
        }
        let key = self.key(&header.kid.ok_or_else(invalid)?).await?;
        let mut rules = Validation::new(Algorithm::EdDSA);
        rules.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        rules.set_issuer(&[ISSUER]);
        rules.set_audience(&[ISSUER]);
        // By our own clock, on every use of the token.
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &rules).map_err(|_| invalid())?.claims;
        let user = UserId::parse(&claims.sub).ok_or_else(invalid)?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| invalid());
        let credential = Credential {
            id: Some(claims.jti),
            issued_at: Some(time(claims.iat)?),
            expires_at: Some(time(claims.exp)?),
            authenticated_at: Some(time(claims.auth_time)?),
            ..Credential::new(CredentialKind::AccessToken)
        };
        Ok(Identity { subject: Subject::User(user), credential: Arc::new(credential) })
    }

    /// The key of this id; an unknown one may have been made by another replica since.
    async fn key(&self, id: &str) -> Result<DecodingKey> {
        let now = self.engine.now();
        {
            let keys = self.keys();
            if let Some(key) = keys.by_id.get(id) {
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
    let by_id = keys.into_iter().map(|key| (key.id, DecodingKey::from_ed_der(&key.public))).collect();
    Ok(Keys { by_id, loaded_at: engine.now() })
}
