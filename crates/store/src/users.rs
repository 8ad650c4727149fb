//! Users: the people that Paddock knows, and what their passwords are checked against.

use paddock_model::Timestamp;
use paddock_model::members::Role;
use paddock_model::page::{Page, PageRequest};
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::users::{Account, User, UserFilter, UserId};

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Error, Result, Tx, args};

const LIST: &str = "
    SELECT id, name, email, login, issuer, subject, disabled_at, created_at, updated_at, generation, home FROM users";

const FIND: &str = "
    SELECT id, name, email, login, issuer, subject, disabled_at, created_at, updated_at, generation, home FROM users
    WHERE id = $1";

const FIND_BY_LOGIN: &str = "
    SELECT id, name, email, login, issuer, subject, disabled_at, created_at, updated_at, generation, home FROM users
    WHERE login = $1";

const FIND_EXTERNAL: &str = "
    SELECT id, name, email, login, issuer, subject, disabled_at, created_at, updated_at, generation, home FROM users
    WHERE issuer = $1 AND subject = $2";

const INSERT: &str = "
    INSERT INTO users (id, name, email, login, issuer, subject, password_hash, failures, disabled_at, created_at, updated_at, generation, home)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $10, $11, $12)";

/// Only where nobody has changed it since it was read.
const UPDATE: &str = "
    UPDATE users SET name = $3, email = $4, disabled_at = $5, updated_at = $6, generation = $7
    WHERE id = $1 AND generation = $2";

const SET_FREE: &str = "
    UPDATE users SET home = NULL WHERE id = $1";

/// Who has a role in a tenant, and oneself.
const ACQUAINTANCES: &str = "
    SELECT DISTINCT subject FROM relations";

const PASSWORD: &str = "
    SELECT password_hash, failures, paused_until FROM users WHERE id = $1";

const SET_PASSWORD: &str = "
    UPDATE users SET password_hash = $2, failures = 0, paused_until = NULL WHERE id = $1";

/// What a password is checked against, and how often that went wrong in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Password {
    /// None for an account that has not been given one yet.
    pub hash: Option<String>,
    pub failures: i64,
    pub paused_until: Option<Timestamp>,
}

/// All users, or only those of these ids.
pub async fn list(
    tx: &mut Tx,
    only: Option<&[UserId]>,
    filter: &UserFilter,
    page: PageRequest,
) -> Result<Page<User>> {
    let mut select = Select::new(LIST);
    if let Some(ids) = only {
        select.one_of("id", ids.iter().map(|id| Value::Uuid(id.0)));
    }
    if let Some(login) = &filter.login {
        select.and("login = ?", [Value::String(login.clone())]);
    }
    if let Some(email) = &filter.email {
        select.and("email = ?", [Value::String(email.clone())]);
    }
    let users = tx.rows_of(select.page(page, "id")).await?;
    Ok(Page::of(users, &page, |user: &User| user.id.0))
}

/// The people who were given a role in one of these tenants, and `me`, newest first.
pub async fn list_acquaintances(
    tx: &mut Tx,
    me: Option<UserId>,
    tenants: &[TenantId],
    page: PageRequest,
) -> Result<Page<User>> {
    let holder = |id: UserId| Value::String(Subject::User(id).to_string());
    let mut select = Select::new(ACQUAINTANCES);
    let roles = Role::ALL.map(|role| format!("'{}'", role.relation())).join(", ");
    let (mut places, mut values) = (Vec::new(), Vec::new());
    if let Some(me) = me {
        places.push("(relation = 'holder' AND subject = ?)".to_owned());
        values.push(holder(me));
    }
    if !tenants.is_empty() {
        let objects = vec!["?"; tenants.len()].join(", ");
        places
            .push(format!("(object IN ({objects}) AND relation IN ({roles}) AND subject LIKE 'user:usr%')"));
        values.extend(tenants.iter().map(|tenant| Value::String(tenant.object().to_string())));
    }
    if places.is_empty() {
        return Ok(Page { items: Vec::new(), next: None });
    }
    select.and(&format!("({})", places.join(" OR ")), values);
    // An id's letters keep the order of its bytes.
    let after = page.after.map(|after| Subject::User(UserId(after)).to_string());
    let request = PageRequest { limit: page.limit, after };
    let subjects: Vec<(String,)> = tx.rows_of(select.page(request, "subject")).await?;
    let ids = subjects.iter().filter_map(|(subject,)| Subject::parse(subject)?.user()).collect::<Vec<_>>();
    let ids = Page::of(ids, &page, |id: &UserId| id.0);
    let items = if ids.items.is_empty() { Vec::new() } else { list_by_ids(tx, &ids.items).await? };
    Ok(Page { items, next: ids.next })
}

/// Those of these ids that there are; newest first if the ids are.
pub async fn list_by_ids(tx: &mut Tx, ids: &[UserId]) -> Result<Vec<User>> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(AT_ONCE) {
        let mut select = Select::new(LIST);
        select.one_of("id", part.iter().map(|id| Value::Uuid(id.0)));
        found.extend(tx.rows_of(select.newest_first("id")).await?);
    }
    Ok(found)
}

pub async fn find(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    tx.row(FIND, args![id]).await
}

/// The same, for a transaction that goes on to change it.
pub async fn find_to_change(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    tx.row_to_change(FIND, args![id]).await
}

pub async fn find_by_login(tx: &mut Tx, login: &str) -> Result<Option<User>> {
    tx.row(FIND_BY_LOGIN, args![login]).await
}

pub async fn find_external(tx: &mut Tx, issuer: &str, subject: &str) -> Result<Option<User>> {
    tx.row(FIND_EXTERNAL, args![issuer, subject]).await
}

pub async fn insert(tx: &mut Tx, user: &User, password_hash: Option<&str>) -> Result<()> {
    let (login, issuer, subject) = match &user.account {
        Account::Local { login } => (Some(login.as_str()), None, None),
        Account::External { issuer, subject } => (None, Some(issuer.as_str()), Some(subject.as_str())),
    };
    let args = args![
        user.id,
        &user.name,
        user.email.as_deref(),
        login,
        issuer,
        subject,
        password_hash,
        user.disabled_at,
        user.created_at,
        user.updated_at,
        user.generation,
        user.home
    ];
    tx.execute_one(INSERT, args).await
}

/// Replaces `before`, as it was read, by `after`.
pub async fn update(tx: &mut Tx, before: &User, after: &User) -> Result<()> {
    let args = args![
        before.id,
        before.generation,
        &after.name,
        after.email.as_deref(),
        after.disabled_at,
        after.updated_at,
        after.generation
    ];
    tx.execute_one(UPDATE, args).await
}

/// The account belongs to no tenant alone any more.
pub async fn set_free(tx: &mut Tx, id: UserId) -> Result<()> {
    tx.execute_one(SET_FREE, args![id]).await
}

pub async fn password(tx: &mut Tx, id: UserId) -> Result<Option<Password>> {
    tx.row(PASSWORD, args![id]).await
}

pub async fn set_password(tx: &mut Tx, id: UserId, hash: &str) -> Result<()> {
    tx.execute_one(SET_PASSWORD, args![id, hash]).await
}

impl FromRow for User {
    fn from_row(row: &mut Row) -> Result<Self> {
        let (id, name, email) = (row.take()?, row.take()?, row.take_optional()?);
        let account = match (row.take_optional()?, row.take_optional()?, row.take_optional()?) {
            (Some(login), ..) => Account::Local { login },
            (None, Some(issuer), Some(subject)) => Account::External { issuer, subject },
            _ => return Err(Error::unexpected("a user without an account")),
        };
        Ok(User {
            id,
            name,
            email,
            account,
            disabled_at: row.take_optional()?,
            created_at: row.take()?,
            updated_at: row.take()?,
            generation: row.take()?,
            home: row.take_optional()?,
        })
    }
}

impl FromRow for Password {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Password { hash: row.take_optional()?, failures: row.take()?, paused_until: row.take_optional()? })
    }
}
