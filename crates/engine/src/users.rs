//! Users: the people that Paddock knows, from the first admin on.

use paddock_model::caller::Caller;
use paddock_model::error::{Fault, Kind};
use paddock_model::expected::Expected;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::{Holder, Tuple};
use paddock_model::permissions::{Object, Relation};
use paddock_model::scopes::Scope;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::users::{Account, FIRST_ADMIN, User, UserFilter, UserId, UserSpec};
use paddock_model::{Error, Result};
use paddock_store::{Tx, relations, users};
use serde_json::json;

use crate::audit::Actor;
use crate::invitations::Invited;
use crate::{Engine, audit, idempotency_keys, invitations, passwords, permissions};

/// Makes the first admin if there is none. `keep` must store the password durably before the account exists,
/// so that no crash leaves an account whose password nobody knows.
pub async fn ensure_first_admin(
    engine: &Engine,
    keep: impl FnOnce(&str) -> std::io::Result<()>,
) -> Result<Option<String>> {
    if let Some(admin) = users::find_by_login(&mut engine.store.read().await?, FIRST_ADMIN).await? {
        if !permissions::is_active(engine, &Subject::from(&admin)) && admin.disabled_at.is_none() {
            // Made before accounts were relations.
            let mut tx = engine.store.begin().await?;
            open_account(engine, &mut tx, &admin).await?;
            engine.commit(tx).await?;
        }
        return Ok(None);
    }
    let password = passwords::generate(engine);
    let hash = passwords::hash(engine, password.clone()).await?;
    let now = engine.now();
    let account = Account::Local { login: FIRST_ADMIN.to_owned() };
    let user = User::new(UserId::new(now, engine.random()), FIRST_ADMIN.to_owned(), None, account, now);
    let mut tx = engine.store.begin().await?;
    relations::hold(&mut tx).await?;
    match users::insert(&mut tx, &user, Some(&hash)).await {
        // Another replica had its first start at the same moment; its password counts.
        Err(paddock_store::Error::Taken { .. }) => return Ok(None),
        outcome => outcome?,
    }
    open_account(engine, &mut tx, &user).await?;
    let admin = Holder::One(Subject::from(&user).thing());
    relations::give(&mut tx, &Object::system().given_to("admin", admin), now).await?;
    let actor = Actor { request_id: "first-start".to_owned(), ..Actor::default() };
    audit::record(
        engine,
        &mut tx,
        actor,
        "users.create",
        None,
        user.object(),
        json!({ "login": FIRST_ADMIN }),
    )
    .await?;
    keep(&password).map_err(|error| Error::internal(error).context("keep the first admin's password"))?;
    engine.commit(tx).await?;
    Ok(Some(password))
}

/// The account that the first start made.
pub async fn first_admin(engine: &Engine) -> Result<User> {
    users::find_by_login(&mut engine.store.read().await?, FIRST_ADMIN).await?.ok_or_else(|| {
        let detail = "There is no first admin yet. Start paddockd once with this data folder.";
        Error::new(Kind::NotFound, "no_first_admin", detail)
    })
}

/// The user that the caller is; none for a machine.
pub async fn whoami(engine: &Engine, caller: &Caller) -> Result<Option<User>> {
    let Some(id) = caller.subject.user() else { return Ok(None) };
    let user = users::find(&mut engine.store.read().await?, id).await?;
    let gone = || Error::unauthenticated("unknown_user", "The account of this credential is gone.");
    user.map(Some).ok_or_else(gone)
}

/// Someone else as the caller may see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub user: User,
    /// Whether the caller may see more than the name.
    pub in_full: bool,
}

/// Everyone for global admins; for others those with whom they share a tenant whose members they may see, and themselves.
pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &UserFilter,
    page: PageRequest,
) -> Result<Page<Seen>> {
    let everyone =
        permissions::decide(engine, caller, Relation::CanListUsers.name(), &Object::system().thing())
            == permissions::Decision::Allowed;
    let found = match everyone {
        true => users::list(&mut engine.store.read().await?, None, filter, page).await?,
        false => list_acquaintances(engine, caller, filter, page).await?,
    };
    let me = caller.subject.user();
    let items = found.items.into_iter().map(|user| Seen { in_full: everyone || Some(user.id) == me, user });
    Ok(Page { items: items.collect(), next: found.next })
}

async fn list_acquaintances(
    engine: &Engine,
    caller: &Caller,
    filter: &UserFilter,
    page: PageRequest,
) -> Result<Page<User>> {
    let mut tx = engine.store.read().await?;
    let me = caller.subject.user();
    let nobody = Page { items: Vec::new(), next: None };
    if let Some(login) = &filter.login {
        let user = users::find_by_login(&mut tx, login).await?;
        let user = user.filter(|user| page.after.is_none_or(|after| user.id.0 < after));
        let user = user.filter(|user| is_acquainted(engine, caller, user.id));
        // To others an address is not told, and so not confirmed either.
        let told = |user: &User| filter.email.is_none() || Some(user.id) == me && user.email == filter.email;
        return Ok(Page { items: user.filter(told).into_iter().collect(), ..nobody });
    }
    if filter.email.is_some() {
        let Some(me) = me else { return Ok(nobody) };
        return Ok(users::list(&mut tx, Some(&[me]), filter, page).await?);
    }
    let tenants = match permissions::scope_of(engine, caller, Relation::CanViewMembers) {
        Scope::Tenants(tenants) => tenants,
        Scope::Everything => Vec::new(),
    };
    Ok(users::list_acquaintances(&mut tx, me, &tenants, page).await?)
}

pub async fn get(engine: &Engine, caller: &Caller, id: UserId) -> Result<Seen> {
    let mut tx = engine.store.read().await?;
    let absent = || Error::not_found("user");
    let in_full = permissions::decide(engine, caller, "can_view", &id.account().thing())
        == permissions::Decision::Allowed;
    if !in_full && !is_acquainted(engine, caller, id) {
        return Err(absent());
    }
    let user = users::find(&mut tx, id).await?.ok_or_else(absent)?;
    Ok(Seen { user, in_full })
}

/// Whether it is the caller, or a direct member of a tenant whose members the caller may see.
fn is_acquainted(engine: &Engine, caller: &Caller, id: UserId) -> bool {
    caller.subject.user() == Some(id) || permissions::shares_a_tenant(engine, caller, &Subject::User(id))
}

/// What is needed to make an account here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    pub login: String,
    pub name: String,
    pub email: Option<String>,
}

/// Makes an account whose password its owner chooses by the invitation. The invitation is told once, and not again
/// to a request that is repeated.
pub async fn create(engine: &Engine, caller: &Caller, new: NewUser) -> Result<(User, Option<Invited>)> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    relations::hold(&mut tx).await?;
    permissions::require(engine, caller, Relation::CanManageUsers, &Object::system())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok((earlier, None));
    }
    let (user, invited) = insert_invited(engine, &mut tx, new, None).await?;
    let details = json!({ "login": user.login() });
    audit::record(engine, &mut tx, caller, "users.create", None, user.object(), details).await?;
    idempotency_keys::remember(&mut tx, caller, &user).await?;
    engine.commit(tx).await?;
    Ok((user, Some(invited)))
}

/// With a home, the account belongs to that tenant alone.
pub(crate) async fn insert_invited(
    engine: &Engine,
    tx: &mut Tx,
    new: NewUser,
    home: Option<TenantId>,
) -> Result<(User, Invited)> {
    let now = engine.now();
    let login = new.login.clone();
    let account = Account::Local { login: new.login };
    let user = User::new(UserId::new(now, engine.random()), new.name, new.email, account, now);
    let user = User { home, ..user };
    users::insert(tx, &user, None).await.map_err(|error| match error {
        paddock_store::Error::Taken { .. } => {
            Error::conflict("login_taken", format!("The login {login} is taken. Choose another."))
        }
        other => other.into(),
    })?;
    open_account(engine, tx, &user).await?;
    let invited = invitations::invite(engine, tx, &user).await?;
    Ok((user, invited))
}

/// What an identity provider says of someone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External<'a> {
    pub issuer: &'a str,
    pub subject: &'a str,
    pub name: Option<&'a str>,
    /// Only if the provider has verified it.
    pub email: Option<&'a str>,
    /// Whether they are to be a global admin from the first moment on.
    pub admin: bool,
}

/// The user whom an identity provider has recognised; the first time, an account is made. It starts without
/// any right, unless they are to be an admin.
pub async fn ensure_external(engine: &Engine, external: External<'_>) -> Result<User> {
    let External { issuer, subject, name, email, admin } = external;
    if let Some(user) = users::find_external(&mut engine.store.read().await?, issuer, subject).await? {
        return match name.filter(|name| user.name == subject && *name != subject) {
            Some(name) => learn(engine, user, name, email).await,
            None => Ok(user),
        };
    }
    let now = engine.now();
    let account = Account::External { issuer: issuer.to_owned(), subject: subject.to_owned() };
    let name = name.unwrap_or(subject).to_owned();
    let user = User::new(UserId::new(now, engine.random()), name, email.map(str::to_owned), account, now);
    let mut tx = engine.store.begin().await?;
    relations::hold(&mut tx).await?;
    match users::insert(&mut tx, &user, None).await {
        // Their first two requests came at once.
        Err(paddock_store::Error::Taken { .. }) => {
            drop(tx);
            let user = users::find_external(&mut engine.store.read().await?, issuer, subject).await?;
            return user.ok_or_else(|| Error::internal("an account is taken but not there"));
        }
        outcome => outcome?,
    }
    open_account(engine, &mut tx, &user).await?;
    if admin {
        let holder = Holder::One(Subject::from(&user).thing());
        relations::give(&mut tx, &Object::system().given_to("admin", holder), now).await?;
    }
    let actor = Actor {
        subject: Some(Subject::from(&user).to_string()),
        request_id: "sign-in".to_owned(),
        ..Actor::default()
    };
    audit::record(
        engine,
        &mut tx,
        actor,
        "users.create",
        None,
        user.object(),
        json!({ "issuer": issuer, "admin": admin }),
    )
    .await?;
    engine.commit(tx).await?;
    Ok(user)
}

/// Gives an account the name that its issuer did not tell when it was made, as tokens for programs often name nobody. What
/// people have changed themselves stays.
async fn learn(engine: &Engine, user: User, name: &str, email: Option<&str>) -> Result<User> {
    let mut tx = engine.store.begin().await?;
    let Some(before) = users::find_to_change(&mut tx, user.id).await? else { return Ok(user) };
    if before.generation != user.generation {
        return Ok(before);
    }
    let spec = UserSpec {
        name: name.to_owned(),
        email: before.email.clone().or(email.map(str::to_owned)),
        disabled: None,
    };
    let changed = before.clone().changed(spec, engine.now());
    users::update(&mut tx, &before, &changed).await?;
    let actor = Actor {
        subject: Some(Subject::from(&user).to_string()),
        request_id: "sign-in".to_owned(),
        ..Actor::default()
    };
    let details = json!({ "disabled": changed.disabled_at.is_some() });
    audit::record(engine, &mut tx, actor, "users.update", None, user.object(), details).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// Changes the user, if they still are what the caller expects. To close or open an account is for global admins.
pub async fn update(
    engine: &Engine,
    caller: &Caller,
    id: UserId,
    spec: UserSpec,
    expected: &Expected,
) -> Result<User> {
    get(engine, caller, id).await?;
    let mut tx = engine.begin_relations().await?;
    let user = users::find_to_change(&mut tx, id).await?.ok_or_else(|| Error::not_found("user"))?;
    permissions::require(engine, caller, Relation::CanEdit, &user.object())?;
    expected.require(user.generation)?;
    let changed = user.clone().changed(spec, engine.now());
    if user.disabled_at.is_some() != changed.disabled_at.is_some() {
        permissions::require(engine, caller, Relation::CanManageUsers, &Object::system())?;
        if changed.disabled_at.is_some() {
            let closed = [user.holds_account()];
            permissions::require_an_admin_left(&mut tx, &Object::system().thing(), &closed).await?;
            relations::take_back(&mut tx, &closed[0]).await?;
            passwords::sign_out(&mut tx, user.id, None).await?;
        } else {
            relations::give(&mut tx, &user.holds_account(), engine.now()).await?;
        }
    }
    users::update(&mut tx, &user, &changed).await?;
    let details = json!({ "disabled": changed.disabled_at.is_some() });
    audit::record(engine, &mut tx, caller, "users.update", None, user.object(), details).await?;
    engine.commit(tx).await?;
    Ok(changed)
}

async fn open_account(engine: &Engine, tx: &mut Tx, user: &User) -> Result<()> {
    let tuples: [Tuple; 2] = [user.account_belongs_to_system(), user.holds_account()];
    for tuple in tuples {
        relations::give(tx, &tuple, engine.now()).await?;
    }
    Ok(())
}

/// The user that a request names, or the fault at that place of its body.
pub(crate) async fn named(tx: &mut Tx, id: UserId, pointer: &str) -> Result<User> {
    let user = users::find(tx, id).await?.filter(|user| user.disabled_at.is_none());
    user.ok_or_else(|| unknown(pointer))
}

pub(crate) fn unknown(pointer: &str) -> Error {
    let message = "there is no such user".to_owned();
    Error::invalid(vec![Fault { pointer: pointer.to_owned(), code: "unknown_user".into(), message }])
}

/// Names for subjects, as far as they are people.
pub(crate) async fn names(tx: &mut Tx, subjects: &[Subject]) -> Result<Vec<User>> {
    let ids: Vec<UserId> = subjects.iter().filter_map(Subject::user).collect();
    if ids.is_empty() { Ok(Vec::new()) } else { Ok(users::list_by_ids(tx, &ids).await?) }
}
