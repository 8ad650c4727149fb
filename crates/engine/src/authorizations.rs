//! Authorizations: a person at a browser lets a client act for them; the client exchanges a code for tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::Result;
use paddock_model::authorizations::{Authorization, LIFETIME, is_verifier};
use paddock_store::{authorizations, users};
use serde_json::json;

use crate::audit::Actor;
use crate::secrets::digest_of;
use crate::sessions::SignedIn;
use crate::tokens::{self, Granted, invalid_grant};
use crate::{Engine, Secret, audit};

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    pub client: &'a str,
    pub redirect_uri: &'a str,
    /// S256; nothing else is accepted.
    pub challenge: &'a str,
}

/// The person has agreed: a code that the client can exchange once, within a minute.
pub async fn create(engine: &Engine, actor: Actor, by: &SignedIn, asked: Asked<'_>) -> Result<Secret> {
    let code = Secret::new(engine.random());
    let authorization = Authorization {
        user: by.user.id,
        client: asked.client.to_owned(),
        redirect_uri: asked.redirect_uri.to_owned(),
        challenge: asked.challenge.to_owned(),
        authenticated_at: by.session.authenticated_at,
        expires_at: engine.now() + LIFETIME,
        family: None,
    };
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, by.user.id).await?;
    authorizations::insert(&mut tx, &authorization, &code.digest()).await?;
    let (actor, details) = (by.actor(actor), json!({ "client": asked.client }));
    audit::record(engine, &mut tx, actor, "authorizations.create", None, by.user.object(), details).await?;
    engine.commit(tx).await?;
    Ok(code)
}

/// What a client shows for its tokens.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub client: &'a str,
    pub code: &'a str,
    pub redirect_uri: &'a str,
    pub verifier: &'a str,
}

/// Exchanges a code for tokens. A code that comes again ends what it was exchanged for; one that comes with the wrong
/// verifier is not worth a second try.
pub async fn redeem(engine: &Engine, actor: Actor, shown: Shown<'_>) -> Result<Granted> {
    let (now, digest) = (engine.now(), digest_of(shown.code));
    let known = authorizations::find(&mut engine.store.read().await?, &digest).await?;
    let Some(known) = known else { return Err(invalid_grant()) };
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, known.user).await?;
    // As it is now that nobody else can use it.
    let known = authorizations::find_to_change(&mut tx, &digest).await?;
    let Some(known) = known else { return Err(invalid_grant()) };
    if let Some(family) = known.family {
        authorizations::delete(&mut tx, &digest).await?;
        tokens::end_reused(engine, tx, actor, family).await?;
        return Err(invalid_grant());
    }
    let fits = now < known.expires_at
        && known.client == shown.client
        && known.redirect_uri == shown.redirect_uri
        && is_verifier(shown.verifier)
        && known.challenge == URL_SAFE_NO_PAD.encode(digest_of(shown.verifier));
    if !fits {
        authorizations::delete(&mut tx, &digest).await?;
        engine.commit(tx).await?;
        return Err(invalid_grant());
    }
    let (family, granted) =
        tokens::grant(engine, &mut tx, actor, shown.client, known.user, known.authenticated_at).await?;
    authorizations::mark_used(&mut tx, &digest, family).await?;
    engine.commit(tx).await?;
    Ok(granted)
}
