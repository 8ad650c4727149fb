//! Device authorizations: a machine waits while a person elsewhere decides whether it may act for them.

use paddock_model::device_authorizations::{
    DeviceAuthorization, INTERVAL, LIFETIME, Poll, State, read_user_code, show_user_code, user_code,
};
use paddock_model::error::Kind;
use paddock_model::{Error, Result};
use paddock_store::{device_authorizations, users};
use serde_json::json;

use crate::audit::Actor;
use crate::secrets::digest_of;
use crate::sessions::SignedIn;
use crate::tokens::{self, Granted, invalid_grant};
use crate::{Engine, Secret, audit};

/// What the machine gets: one code for itself, one to show.
#[derive(Debug)]
pub struct Begun {
    pub device_code: Secret,
    pub user_code: String,
}

/// A machine asks to act for somebody.
pub async fn create(engine: &Engine, actor: &Actor, client: &str) -> Result<Begun> {
    let now = engine.now();
    let authorization = DeviceAuthorization {
        client: client.to_owned(),
        address: actor.address.clone(),
        state: State::Pending,
        interval: INTERVAL,
        polled_at: None,
        created_at: now,
        expires_at: now + LIFETIME,
    };
    let (device_code, code) = (Secret::new(engine.random()), user_code(engine.random()));
    let mut tx = engine.store.begin().await?;
    device_authorizations::insert(&mut tx, &authorization, &device_code.digest(), &digest_of(&code))
        .await
        .map_err(|error| match error {
            // One in billions.
            paddock_store::Error::Taken { .. } => {
                Error::unavailable("code_taken", "The code that was drawn is in use. Try again.")
            }
            other => other.into(),
        })?;
    engine.commit(tx).await?;
    Ok(Begun { device_code, user_code: show_user_code(&code) })
}

/// What waits under the code that a person has typed.
pub async fn find(engine: &Engine, typed: &str) -> Result<DeviceAuthorization> {
    let code = read_user_code(typed).ok_or_else(unknown)?;
    let found =
        device_authorizations::find_by_user(&mut engine.store.read().await?, &digest_of(&code)).await?;
    found.filter(|found| found.is_open(engine.now())).ok_or_else(unknown)
}

/// The person decides, once.
pub async fn decide(engine: &Engine, actor: Actor, by: &SignedIn, typed: &str, approve: bool) -> Result<()> {
    let digest = digest_of(&read_user_code(typed).ok_or_else(unknown)?);
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, by.user.id).await?;
    let found = device_authorizations::find_by_user_to_change(&mut tx, &digest).await?;
    let found = found.filter(|found| found.is_open(engine.now())).ok_or_else(unknown)?;
    let (state, action) = if approve {
        let authenticated_at = by.session.authenticated_at;
        (State::Approved { user: by.user.id, authenticated_at }, "device_authorizations.approve")
    } else {
        (State::Denied, "device_authorizations.deny")
    };
    device_authorizations::decide(&mut tx, &digest, state).await?;
    let details = json!({ "client": found.client, "asked_from": found.address });
    audit::record(engine, &mut tx, by.actor(actor), action, None, by.user.object(), details).await?;
    engine.commit(tx).await
}

/// The machine asks whether the person has decided; once they have agreed, it gets tokens, once.
pub async fn redeem(engine: &Engine, actor: Actor, client: &str, device_code: &str) -> Result<Granted> {
    let (now, digest) = (engine.now(), digest_of(device_code));
    let seen = device_authorizations::find_by_device(&mut engine.store.read().await?, &digest).await?;
    let seen = seen.filter(|seen| seen.client == client).ok_or_else(invalid_grant)?;
    // Who asks too often makes us write nothing.
    if seen.poll(now) == Poll::SlowDown {
        return Err(not_yet(Poll::SlowDown));
    }
    let mut tx = engine.store.begin().await?;
    if let State::Approved { user, .. } = seen.state {
        users::find_to_change(&mut tx, user).await?;
    }
    let found = device_authorizations::find_by_device_to_change(&mut tx, &digest).await?;
    let found = found.ok_or_else(invalid_grant)?;
    // Decided at this very moment: the next question finds it so, and holds who has decided.
    let poll = if found.state == seen.state { found.poll(now) } else { Poll::Pending };
    let granted = match poll {
        Poll::Approved { user, authenticated_at } => {
            device_authorizations::delete(&mut tx, &digest).await?;
            Ok(tokens::grant(engine, &mut tx, actor, client, user, authenticated_at).await?.1)
        }
        Poll::Denied | Poll::Expired => {
            device_authorizations::delete(&mut tx, &digest).await?;
            Err(not_yet(poll))
        }
        Poll::SlowDown => return Err(not_yet(poll)),
        Poll::Pending => {
            device_authorizations::mark_polled(&mut tx, &digest, now).await?;
            Err(not_yet(poll))
        }
    };
    engine.commit(tx).await?;
    granted
}

fn not_yet(poll: Poll) -> Error {
    let (code, detail) = match poll {
        Poll::SlowDown => ("slow_down", "You ask too often. Wait five seconds longer between two requests."),
        Poll::Denied => ("access_denied", "The person has declined."),
        Poll::Expired => ("expired_token", "Nobody has entered the code in time. Start again."),
        Poll::Pending | Poll::Approved { .. } => {
            ("authorization_pending", "Nobody has decided yet. Ask again.")
        }
    };
    Error::new(Kind::Malformed, code, detail)
}

fn unknown() -> Error {
    let detail = "There is no such code, or it is over. Look again at what the machine shows.";
    Error::new(Kind::NotFound, "unknown_user_code", detail)
}
