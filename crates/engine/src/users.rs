//! Users: so far the one who comes first, the admin that the first start makes.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_model::caller::Caller;
use paddock_model::error::Kind;
use paddock_model::permissions::tuples::Holder;
use paddock_model::permissions::{Object, Subject};
use paddock_model::users::{FIRST_ADMIN, User, UserId};
use paddock_model::{Error, Result};
use paddock_store::{relations, users};

use crate::Engine;

/// Makes the first admin if there is none. `keep` must store the password durably before the account exists,
/// so that no crash leaves an account whose password nobody knows.
pub async fn ensure_first_admin(
    engine: &Engine,
    keep: impl FnOnce(&str) -> std::io::Result<()>,
) -> Result<Option<String>> {
    if users::find_by_name(&mut engine.store.read().await?, FIRST_ADMIN).await?.is_some() {
        return Ok(None);
    }
    let password = generate_password(engine);
    let hash = hash(engine, password.clone()).await?;
    let now = engine.now();
    let user = User {
        id: UserId::new(now, engine.random()),
        name: FIRST_ADMIN.to_owned(),
        created_at: now,
        updated_at: now,
        generation: 1,
    };
    let mut tx = engine.store.begin().await?;
    match users::insert(&mut tx, &user, Some(&hash)).await {
        // Another replica had its first start at the same moment; its password counts.
        Err(paddock_store::Error::Taken { .. }) => return Ok(None),
        outcome => outcome?,
    }
    let admin = Holder::One(Subject::User(user.id).thing());
    relations::give(&mut tx, &Object::System.given_to("admin", admin), now).await?;
    keep(&password).map_err(|error| Error::internal(error).context("keep the first admin's password"))?;
    engine.commit(tx).await?;
    Ok(Some(password))
}

/// The account that the first start made.
pub async fn first_admin(engine: &Engine) -> Result<User> {
    users::find_by_name(&mut engine.store.read().await?, FIRST_ADMIN).await?.ok_or_else(|| {
        let detail = "There is no first admin yet. Start paddockd once with this data folder.";
        Error::new(Kind::NotFound, "no_first_admin", detail)
    })
}

/// The user that the caller is.
pub async fn whoami(engine: &Engine, caller: &Caller) -> Result<User> {
    let Subject::User(id) = caller.subject;
    let user = users::find(&mut engine.store.read().await?, id).await?;
    user.ok_or_else(|| Error::unauthenticated("unknown_user", "The account of this credential is gone."))
}

/// Whether this is the user's password.
pub async fn verify_password(engine: &Engine, user: &User, password: String) -> Result<bool> {
    let Some(hash) = users::password_hash(&mut engine.store.read().await?, user).await? else {
        return Ok(false);
    };
    on_own_thread(move || {
        let hash = PasswordHash::new(&hash).map_err(|error| Error::internal(error.to_string()))?;
        Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
    })
    .await
}

/// 120 bits, in letters that can be typed.
fn generate_password(engine: &Engine) -> String {
    let mut bytes = [0; 15];
    engine.random().fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

async fn hash(engine: &Engine, password: String) -> Result<String> {
    let mut salt = [0; 16];
    engine.random().fill(&mut salt);
    on_own_thread(move || {
        let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
        hash.map(|hash| hash.to_string()).map_err(|error| Error::internal(error.to_string()))
    })
    .await
}

/// Argon2 takes tens of milliseconds by design; requests must not wait behind it.
async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}
