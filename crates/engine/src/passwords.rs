//! Passwords of local accounts: argon2id, and a pause that grows with every wrong one.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::error::{Fault, Kind};
use paddock_model::users::{User, UserId, pause_after, weakness};
use paddock_model::{Error, Result};
use paddock_store::{Tx, authorizations, device_authorizations, sessions, tokens, users};
use serde_json::json;
use uuid::Uuid;

use crate::audit::Actor;
use crate::{Engine, audit};

/// Whether this is the password of the account with this login. Every failure takes the same time and gives the same
/// answer, whether the login exists or not.
pub async fn verify(engine: &Engine, login: &str, password: String) -> Result<User> {
    let mut tx = engine.store.read().await?;
    let user = users::find_by_login(&mut tx, login).await?;
    let known = match &user {
        Some(user) => users::password(&mut tx, user.id).await?,
        None => None,
    };
    drop(tx);
    if let Some(until) = known.as_ref().and_then(|known| known.paused_until)
        && engine.now() < until
    {
        let wait = until.duration_since(engine.now()).try_into().unwrap_or_default();
        let detail = "Too many wrong passwords. Wait a little and try again.";
        return Err(Error::new(Kind::TooMany, "account_paused", detail).with_retry_after(wait));
    }
    let hash = known.and_then(|known| known.hash);
    let right = matches(hash.unwrap_or_else(|| NOBODYS.to_owned()), password).await?;
    match user {
        Some(user) if right && user.disabled_at.is_none() => {
            let mut tx = engine.store.begin().await?;
            users::forget_failures(&mut tx, user.id).await?;
            engine.commit(tx).await?;
            Ok(user)
        }
        Some(user) => {
            count_failure(engine, user.id).await?;
            Err(wrong())
        }
        None => Err(wrong()),
    }
}

fn wrong() -> Error {
    Error::unauthenticated("wrong_password", "The login or the password is wrong.")
}

async fn count_failure(engine: &Engine, user: UserId) -> Result<()> {
    let mut tx = engine.store.begin().await?;
    let Some(known) = users::password_to_change(&mut tx, user).await? else { return Ok(()) };
    let pause = pause_after(known.failures + 1);
    let until = (!pause.is_zero()).then(|| engine.now() + pause);
    users::record_failure(&mut tx, user, until).await?;
    engine.commit(tx).await
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
    verify(engine, login, old).await?;
    let hash = new_hash(engine, user, new).await?;
    let mut tx = engine.store.begin().await?;
    users::set_password(&mut tx, user.id, &hash).await?;
    sign_out(&mut tx, user.id, Some(session)).await?;
    audit::record(engine, &mut tx, actor, "passwords.update", None, user.object(), json!({})).await?;
    engine.commit(tx).await
}

/// Gives the user a new password. Whoever was signed in by the old one is no more.
pub(crate) async fn set(tx: &mut Tx, user: &User, hash: &str) -> Result<()> {
    sign_out(tx, user.id, None).await?;
    Ok(users::set_password(tx, user.id, hash).await?)
}

/// Ends every session, token and code of the user, but for one session.
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
    on_own_thread(move || {
        let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
        hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
    })
    .await
}

/// What nobody's password is checked against: with the parameters of a real one, so that it takes as long.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

async fn matches(hash: String, password: String) -> Result<bool> {
    on_own_thread(move || {
        let hash = PasswordHash::new(&hash).map_err(|error| Error::internal(error.to_string()))?;
        Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    })
    .await
}

/// Argon2 takes tens of milliseconds and 19 MiB by design: requests must not wait behind it, and a flood of guesses
/// must not take all memory.
async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    static AT_ONCE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(4);
    let _permit = AT_ONCE.acquire().await.map_err(Error::internal)?;
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
