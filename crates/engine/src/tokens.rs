//! Tokens: a client stays signed in by refresh tokens, each good for one use.

use paddock_model::error::Kind;
use paddock_model::subjects::Subject;
use paddock_model::tokens::{Family, RefreshToken};
use paddock_model::users::UserId;
use paddock_model::{Error, Result, Timestamp, id};
use paddock_store::{Tx, tokens, users};
use serde_json::json;
use uuid::Uuid;

use crate::audit::Actor;
use crate::secrets::digest_of;
use crate::{Engine, Secret, audit, permissions};

/// What a client may have: an access token for this user, and the next refresh token.
#[derive(Debug, Clone)]
pub struct Granted {
    pub user: UserId,
    /// When the person proved to be there.
    pub authenticated_at: Timestamp,
    pub refresh_token: Secret,
}

/// One answer to whatever is wrong with a code or a token: which part it is helps only who guesses.
pub(crate) fn invalid_grant() -> Error {
    Error::new(
        Kind::Malformed,
        "invalid_grant",
        "This has been used, has expired, or never was. Sign in again.",
    )
}

/// Begins a family of tokens for the client, in a transaction that holds the user.
pub(crate) async fn grant(
    engine: &Engine,
    tx: &mut Tx,
    actor: Actor,
    client: &str,
    user: UserId,
    authenticated_at: Timestamp,
) -> Result<(Uuid, Granted)> {
    if !permissions::is_active(engine, &Subject::User(user)) {
        return Err(invalid_grant());
    }
    let now = engine.now();
    let family = Family {
        id: id::uuid_v7(now, engine.random()),
        user,
        client: client.to_owned(),
        authenticated_at,
        created_at: now,
        expires_at: now + engine.lifetimes.refresh_token,
    };
    tokens::insert_family(tx, &family).await?;
    let refresh_token = next(engine, tx, family.id).await?;
    let (actor, details) = (as_holder(actor, &family), json!({ "client": client }));
    audit::record(engine, tx, actor, "tokens.create", None, user.account(), details).await?;
    Ok((family.id, Granted { user, authenticated_at, refresh_token }))
}

/// Exchanges a refresh token for the next one. When one comes a second time, either the client or a thief holds a copy:
/// nobody can tell which, so both lose it.
pub async fn refresh(engine: &Engine, actor: Actor, client: &str, token: &str) -> Result<Granted> {
    let (now, digest) = (engine.now(), digest_of(token));
    let Some((mut tx, family)) = hold(engine, &digest).await? else { return Err(invalid_grant()) };
    // As it is now that nobody else can use it.
    let Some(known) = tokens::find(&mut tx, &digest).await? else { return Err(invalid_grant()) };
    if known.used_at.is_some() {
        end_reused(engine, tx, actor, family.id).await?;
        return Err(invalid_grant());
    }
    let open = permissions::is_active(engine, &Subject::User(family.user));
    if now >= known.expires_at || family.client != client || !open {
        return Err(invalid_grant());
    }
    tokens::mark_used(&mut tx, &digest, now).await?;
    let refresh_token = next(engine, &mut tx, family.id).await?;
    let (actor, details) = (as_holder(actor, &family), json!({ "client": client }));
    let object = family.user.account();
    audit::record(engine, &mut tx, actor, "tokens.refresh", None, object, details).await?;
    engine.commit(tx).await?;
    Ok(Granted { user: family.user, authenticated_at: family.authenticated_at, refresh_token })
}

/// A transaction that holds the user and the family of a token. What nobody knows keeps nobody waiting: it is looked up
/// before anything is held.
async fn hold(engine: &Engine, digest: &[u8]) -> Result<Option<(Tx, Family)>> {
    let mut tx = engine.store.read().await?;
    let Some(known) = tokens::find(&mut tx, digest).await? else { return Ok(None) };
    let Some(family) = tokens::find_family(&mut tx, known.family).await? else { return Ok(None) };
    drop(tx);
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, family.user).await?;
    let family = tokens::find_family_to_change(&mut tx, family.id).await?;
    Ok(family.map(|family| (tx, family)))
}

/// Ends the family of a refresh token; whether there was such a token. One that nobody knows is as good as revoked.
pub async fn revoke(engine: &Engine, actor: Actor, token: &str) -> Result<bool> {
    let Some((mut tx, family)) = hold(engine, &digest_of(token)).await? else { return Ok(false) };
    tokens::delete_family(&mut tx, family.id).await?;
    let (actor, details) = (as_holder(actor, &family), json!({ "client": family.client }));
    let object = family.user.account();
    audit::record(engine, &mut tx, actor, "tokens.revoke", None, object, details).await?;
    engine.commit(tx).await?;
    Ok(true)
}

/// Ends a family because one of its secrets was used twice, and writes that down, in a transaction that holds the user.
pub(crate) async fn end_reused(engine: &Engine, mut tx: Tx, actor: Actor, family: Uuid) -> Result<()> {
    let Some(family) = tokens::find_family_to_change(&mut tx, family).await? else { return Ok(()) };
    tokens::delete_family(&mut tx, family.id).await?;
    // By whom is what nobody knows.
    let actor = Actor { credential_id: Some(family.id.to_string()), ..actor };
    let (object, details) = (family.user.account(), json!({ "client": family.client }));
    audit::record(engine, &mut tx, actor, "tokens.reuse", None, object, details).await?;
    engine.commit(tx).await
}

async fn next(engine: &Engine, tx: &mut Tx, family: Uuid) -> Result<Secret> {
    let secret = Secret::new(engine.random());
    let expires_at = engine.now() + engine.lifetimes.refresh_token;
    tokens::insert(tx, &secret.digest(), &RefreshToken { family, expires_at, used_at: None }).await?;
    Ok(secret)
}

fn as_holder(actor: Actor, family: &Family) -> Actor {
    Actor {
        subject: Some(Subject::User(family.user).to_string()),
        credential: Some("refresh_token".to_owned()),
        credential_id: Some(family.id.to_string()),
        ..actor
    }
}
