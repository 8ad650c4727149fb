//! API keys: they open the device API, and nothing else.

use std::borrow::Cow;
use std::sync::Arc;

use paddock_engine::{Engine, api_keys};
use paddock_model::Result;
use paddock_model::api_keys::Secret;
use paddock_model::credentials::{Ceiling, Credential, CredentialKind};
use paddock_model::subjects::Subject;

use super::{Identity, invalid};

/// Who the key stands for: its owner, within its scopes. One with a wrong checksum is refused before the database is asked.
pub async fn verify(engine: &Engine, credential: &str) -> Result<Identity> {
    let secret = Secret::parse(credential).ok_or_else(invalid)?;
    let key = api_keys::verify(engine, &secret).await?.ok_or_else(invalid)?;
    let opened: Vec<&'static str> = key.scopes.iter().flat_map(|scope| scope.opens()).copied().collect();
    let credential = Credential {
        id: Some(key.id.to_string()),
        scopes: key.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        issued_at: Some(key.created_at),
        expires_at: Some(key.expires_at),
        ceiling: Ceiling::Only(Cow::Owned(opened)),
        tenant: Some(key.tenant),
        ..Credential::new(CredentialKind::ApiKey)
    };
    Ok(Identity { subject: Subject::User(key.owner), credential: Arc::new(credential) })
}
