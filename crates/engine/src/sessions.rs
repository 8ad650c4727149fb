//! Sessions: a browser signs in, is recognised, and signs out.

use paddock_model::error::Kind;
use paddock_model::permissions::Object;
use paddock_model::sessions::Session;
use paddock_model::subjects::Subject;
use paddock_model::users::{User, UserId};
use paddock_model::{Error, Result, Timestamp, id};
use paddock_store::{sessions, users};
use serde_json::json;

use crate::audit::{Actor, Refusal};
use crate::secrets::digest_of;
use crate::{Engine, Secret, audit, passwords, permissions};

/// Who sits at a browser, and how that is known.
#[derive(Debug, Clone)]
pub struct SignedIn {
    pub session: Session,
    pub user: User,
}

impl SignedIn {
    /// The actor that this person is, where the request came as `actor` says.
    pub fn actor(&self, actor: Actor) -> Actor {
        Actor {
            subject: Some(Subject::from(&self.user).to_string()),
            credential: Some("session".to_owned()),
            credential_id: Some(self.session.id.to_string()),
            ..actor
        }
    }
}

/// Signs in with a password. Whatever session the browser had before ends: nobody can have planted the new one.
pub async fn create(
    engine: &Engine,
    actor: Actor,
    login: &str,
    password: String,
    before: Option<&str>,
) -> Result<(SignedIn, Secret)> {
    let user = passwords::verify(engine, &actor, login, password).await?;
    open(engine, actor, user.id, engine.now(), before).await
}

/// Signs in somebody who has proved at that time who they are, be it here or at an identity provider; `account_closed`
/// if that helps them no more.
pub async fn open(
    engine: &Engine,
    actor: Actor,
    user: UserId,
    authenticated_at: Timestamp,
    before: Option<&str>,
) -> Result<(SignedIn, Secret)> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let user = users::find_to_change(&mut tx, user).await?;
    let user = user.filter(|user| user.disabled_at.is_none()).ok_or_else(|| {
        let detail = "Your account here is closed. Ask an admin of this server to open it.";
        Error::new(Kind::Forbidden, "account_closed", detail)
    })?;
    let secret = Secret::new(engine.random());
    let session =
        Session::new(id::uuid_v7(now, engine.random()), user.id, authenticated_at, &engine.lifetimes, now);
    let signed_in = SignedIn { session, user };
    if let Some(before) = before
        && let Some(earlier) = sessions::find(&mut tx, &digest_of(before)).await?
    {
        sessions::delete(&mut tx, earlier.id).await?;
    }
    sessions::insert(&mut tx, &signed_in.session, &secret.digest()).await?;
    let actor = signed_in.actor(actor);
    audit::record(engine, &mut tx, actor, "sessions.create", None, signed_in.user.object(), json!({}))
        .await?;
    engine.commit(tx).await?;
    Ok((signed_in, secret))
}

/// Who the holder of this secret is; nobody once the session is over or the account closed.
pub async fn find(engine: &Engine, secret: &str) -> Result<Option<SignedIn>> {
    let now = engine.now();
    let mut tx = engine.store.read().await?;
    let session = sessions::find(&mut tx, &digest_of(secret)).await?;
    let Some(session) = session.filter(|session| !session.is_over(now)) else { return Ok(None) };
    let user = users::find(&mut tx, session.user).await?;
    let Some(user) = user.filter(|user| permissions::is_active(engine, &Subject::from(user))) else {
        return Ok(None);
    };
    drop(tx);
    if let Some(expires_at) = session.prolonged(&engine.lifetimes, now) {
        let mut tx = engine.store.begin().await?;
        sessions::prolong(&mut tx, session.id, expires_at).await?;
        engine.commit(tx).await?;
    }
    Ok(Some(SignedIn { session, user }))
}

/// Signs out: what the cookie holds opens nothing any more, wherever it may have been copied to.
pub async fn delete(engine: &Engine, actor: Actor, signed_in: &SignedIn) -> Result<()> {
    let mut tx = engine.store.begin().await?;
    if sessions::delete(&mut tx, signed_in.session.id).await? {
        let actor = signed_in.actor(actor);
        audit::record(engine, &mut tx, actor, "sessions.delete", None, signed_in.user.object(), json!({}))
            .await?;
    }
    engine.commit(tx).await
}

/// Whom somebody wanted to sign in as, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub enum Tried<'a> {
    /// What was typed. If nobody has that login it is not written down: it may be a password in the wrong field.
    Login(&'a str),
    Account(UserId),
    /// Somebody whom this identity provider did not vouch for.
    Issuer(&'a str),
}

/// Records that a sign-in was refused.
pub async fn refuse(engine: &Engine, actor: Actor, tried: Tried<'_>, code: &str) -> Result<()> {
    let object = match tried {
        Tried::Login(login) => {
            let user = users::find_by_login(&mut engine.store.read().await?, login).await?;
            user.map_or(Object::system(), |user| user.object())
        }
        Tried::Account(user) => user.account(),
        Tried::Issuer(id) => Object::new("issuer", id),
    };
    let refusal = Refusal {
        actor,
        action: "sessions.create".to_owned(),
        tenant: None,
        object: object.to_string(),
        code: code.to_owned(),
    };
    audit::refuse(engine, vec![refusal]).await
}
