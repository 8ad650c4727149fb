//! Passwords of local accounts: argon2id, and pauses that grow with every wrong one.

use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::error::{Fault, Kind};
use paddock_model::sign_in_failures::{Guarded, network};
use paddock_model::users::{User, UserId, weakness};
use paddock_model::{Error, Result};
use paddock_store::{Tx, authorizations, device_authorizations, sessions, sign_in_failures, tokens, users};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::audit::Actor;
use crate::secrets::digest_of;
use crate::{Engine, audit};

/// Whether this is the password of the account with this login. Every failure gives the same answer after the same work
/// and the same writes, whether the login exists or not. An attempt is counted before the password is looked at, and
/// taken back if it was right: however many come at once, no more are tried than one after another.
pub async fn verify(engine: &Engine, actor: &Actor, login: &str, password: String) -> Result<User> {
    let place = Place::in_queue()?;
    let counted = Counted::new(engine, actor, login).await?;
    let mut tx = engine.store.read().await?;
    let user = users::find_by_login(&mut tx, login).await?;
    let known = match &user {
        Some(user) => users::password(&mut tx, user.id).await?,
        None => None,
    };
    drop(tx);
    let hash = known.and_then(|known| known.hash);
    let right = matches(place, hash.unwrap_or_else(|| NOBODYS.to_owned()), password).await?;
    match user {
        Some(user) if right && user.disabled_at.is_none() => {
            counted.take_back(engine).await?;
            Ok(user)
        }
        _ => Err(Error::unauthenticated("wrong_password", "The login or the password is wrong.")),
    }
}

/// An attempt that stands as a failure until it is taken back.
struct Counted([(Vec<u8>, Guarded); 2]);

impl Counted {
    /// Counts the attempt, unless there is a pause.
    async fn new(engine: &Engine, actor: &Actor, login: &str) -> Result<Counted> {
        let address = actor.address.as_deref().and_then(|address| address.parse().ok());
        let from = address.map(|address| network(address).to_string()).unwrap_or_default();
        // The network first: who is paused there does not even add to what slows everyone.
        let keys = [
            (digest_of(&format!("from {from} to {login}")), Guarded::FromNetwork),
            (digest_of(&format!("from anywhere to {login}")), Guarded::FromAnywhere),
        ];
        let now = engine.now();
        let mut tx = engine.store.begin().await?;
        for (key, guarded) in &keys {
            let failures = sign_in_failures::find_to_change(&mut tx, key, now).await?;
            if let Some(wait) = failures.pause(now) {
                let detail = "Too many wrong passwords. Wait a little and try again.";
                return Err(Error::new(Kind::TooMany, "account_paused", detail).with_retry_after(wait));
            }
            sign_in_failures::update(&mut tx, key, &failures.counted(*guarded, now)).await?;
        }
        engine.commit(tx).await?;
        Ok(Counted(keys))
    }

    /// It was the right one: that forgets those before it, too.
    async fn take_back(self, engine: &Engine) -> Result<()> {
        let mut tx = engine.store.begin().await?;
        for (key, _) in &self.0 {
            sign_in_failures::delete(&mut tx, key).await?;
        }
        engine.commit(tx).await
    }
}

/// The user replaces their password and stays signed in where they did so, and nowhere else.
pub async fn change(
    engine: &Engine,
    actor: Actor,
    user: &User,
    session: Uuid,
    old: String,
    new: String,
) -> Result<()> {
    let Some(login) = user.login() else {
        let detail = "You sign in at an identity provider and have no password here.";
        return Err(Error::conflict("external_account", detail));
    };
    verify(engine, &actor, login, old).await?;
    let hash = new_hash(engine, user, new).await?;
    let mut tx = engine.store.begin().await?;
    users::find_to_change(&mut tx, user.id).await?;
    users::set_password(&mut tx, user.id, &hash).await?;
    sign_out(&mut tx, user.id, Some(session)).await?;
    audit::record(engine, &mut tx, actor, "passwords.update", None, user.object(), json!({})).await?;
    engine.commit(tx).await
}

/// Gives the user, whom the transaction holds, a new password. Whoever was signed in by the old one is no more.
pub(crate) async fn set(tx: &mut Tx, user: &User, hash: &str) -> Result<()> {
    sign_out(tx, user.id, None).await?;
    Ok(users::set_password(tx, user.id, hash).await?)
}

/// Ends every session, token and code of the user, whom the transaction holds, but for one session.
pub(crate) async fn sign_out(tx: &mut Tx, user: UserId, kept: Option<Uuid>) -> Result<()> {
    sessions::delete_of(tx, user, kept).await?;
    tokens::delete_of(tx, user).await?;
    authorizations::delete_of(tx, user).await?;
    device_authorizations::delete_of(tx, user).await?;
    Ok(())
}

pub(crate) async fn new_hash(engine: &Engine, user: &User, password: String) -> Result<String> {
    if let Some(weakness) = weakness(&password, user.login().unwrap_or_default()) {
        let message = format!("the password {weakness}");
        let fault = Fault { pointer: "/password".to_owned(), code: "weak_password".into(), message };
        return Err(Error::invalid(vec![fault]));
    }
    hash(engine, password).await
}

/// 120 bits, in letters that can be typed.
pub(crate) fn generate(engine: &Engine) -> String {
    let mut bytes = [0; 15];
    engine.random().fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) async fn hash(engine: &Engine, password: String) -> Result<String> {
    let mut salt = [0; 16];
    engine.random().fill(&mut salt);
    Place::in_queue()?
        .work(move || {
            let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
            hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
        })
        .await
}

/// What nobody's password is checked against: with the parameters of a real one, so that it takes as long.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

async fn matches(place: Place, hash: String, password: String) -> Result<bool> {
    place
        .work(move || {
            let hash = PasswordHash::new(&hash).map_err(|error| Error::internal(error.to_string()))?;
            Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await
}

static AT_ONCE: Semaphore = Semaphore::const_new(4);
static IN_QUEUE: Semaphore = Semaphore::const_new(64);

/// A place among those who wait for argon2. It takes tens of milliseconds and 19 MiB by design: requests must not wait
/// behind it, a flood of guesses must not take all memory, and nobody waits where it would be in vain.
struct Place {
    _place: SemaphorePermit<'static>,
}

impl Place {
    fn in_queue() -> Result<Place> {
        let full = |_| {
            let detail = "Too many people sign in at this moment. Try again.";
            Error::unavailable("sign_in_busy", detail).with_retry_after(Duration::from_secs(2))
        };
        Ok(Place { _place: IN_QUEUE.try_acquire().map_err(full)? })
    }

    async fn work<T: Send + 'static>(self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let turn = AT_ONCE.acquire().await.map_err(Error::internal)?;
        let work = move || {
            // Also where nobody waits for the outcome any more, the memory is in use until it is there.
            let _held = (self, turn);
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_in_vain() {
        let waiting: Vec<_> = std::iter::from_fn(|| Place::in_queue().ok()).collect();
        assert_eq!(waiting.len(), 64);
        let refused = Place::in_queue().err().map(|error| (error.kind, error.retry_after));
        assert_eq!(refused, Some((Kind::Unavailable, Some(Duration::from_secs(2)))));
        drop(waiting);
        assert!(Place::in_queue().is_ok());
    }
}
