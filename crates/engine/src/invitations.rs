//! Invitations: a link that lets someone choose the password of an account that was made for them, once.

use paddock_model::caller::Caller;
use paddock_model::error::Kind;
use paddock_model::invitations::{Invitation, LIFETIME};
use paddock_model::permissions::{Object, Relation};
use paddock_model::subjects::Subject;
use paddock_model::users::{Account, User, UserId};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, invitations, users};
use serde_json::{Value, json};

use crate::audit::Actor;
use crate::secrets::{Secret, digest_of};
use crate::{Engine, audit, idempotency_keys, passwords, permissions};

/// What is given to the invited: shown once, never kept.
pub struct Invited {
    pub token: Secret,
    pub expires_at: Timestamp,
}

/// A new link for an account here; an earlier one, and nothing else, stops working. It is told once.
pub async fn create(engine: &Engine, caller: &Caller, id: UserId) -> Result<Option<Invited>> {
    let mut tx = engine.store.begin().await?;
    permissions::require(engine, caller, Relation::CanManageUsers, &Object::system())?;
    if idempotency_keys::recall::<Value>(&mut tx, caller, engine.now()).await?.is_some() {
        // It was told once.
        return Ok(None);
    }
    let user = users::find(&mut tx, id).await?.ok_or_else(|| Error::not_found("user"))?;
    if !matches!(user.account, Account::Local { .. }) {
        let detail = "This user signs in at an identity provider and has no password here.";
        return Err(Error::conflict("external_account", detail));
    }
    let invited = invite(engine, &mut tx, &user).await?;
    audit::record(engine, &mut tx, caller, "invitations.create", None, user.object(), json!({})).await?;
    idempotency_keys::remember(&mut tx, caller, &json!({})).await?;
    engine.commit(tx).await?;
    Ok(Some(invited))
}

pub(crate) async fn invite(engine: &Engine, tx: &mut Tx, user: &User) -> Result<Invited> {
    let token = Secret::new(engine.random());
    let now = engine.now();
    let expires_at = now + LIFETIME;
    let invitation = Invitation { user: user.id, digest: token.digest(), created_at: now, expires_at };
    invitations::replace(tx, &invitation).await?;
    Ok(Invited { token, expires_at })
}

/// Whom the link invites, if it still works.
pub async fn find(engine: &Engine, token: &str) -> Result<User> {
    let mut tx = engine.store.read().await?;
    let invitation = invitations::find(&mut tx, &digest_of(token)).await?;
    open(engine, &mut tx, invitation).await
}

/// Chooses the password; the link works no more.
pub async fn accept(engine: &Engine, actor: Actor, token: &str, password: String) -> Result<User> {
    // Before the change begins: hashing takes long, and everyone else who changes something would wait for it.
    let invited = find(engine, token).await?;
    let hash = passwords::new_hash(engine, &invited, password).await?;
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, invited.id).await?;
    let invitation = invitations::find_to_change(&mut tx, &digest_of(token)).await?;
    let user = open(engine, &mut tx, invitation).await?;
    passwords::set(&mut tx, &user, &hash).await?;
    invitations::delete(&mut tx, user.id).await?;
    let actor = Actor { subject: Some(Subject::from(&user).to_string()), ..actor };
    audit::record(engine, &mut tx, actor, "invitations.accept", None, user.object(), json!({})).await?;
    engine.commit(tx).await?;
    Ok(user)
}

async fn open(engine: &Engine, tx: &mut Tx, invitation: Option<Invitation>) -> Result<User> {
    let over = || {
        let detail = "This invitation has been used, has expired, or never was. Ask for a new one.";
        Error::new(Kind::NotFound, "invitation_over", detail)
    };
    let invitation = invitation.filter(|invitation| engine.now() < invitation.expires_at).ok_or_else(over)?;
    let user = users::find(tx, invitation.user).await?;
    user.filter(|user| user.disabled_at.is_none()).ok_or_else(over)
}
