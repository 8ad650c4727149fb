//! Admins of the whole installation.

use paddock_model::caller::Caller;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::Holder;
use paddock_model::permissions::{Object, Relation};
use paddock_model::subjects::Subject;
use paddock_model::users::User;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, relations};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Engine, audit, idempotency_keys, permissions, users};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admin {
    pub subject: Subject,
    pub since: Timestamp,
    pub user: Option<User>,
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    page: PageRequest<String>,
) -> Result<Page<Admin, String>> {
    permissions::require(engine, caller, Relation::CanManageAdmins, &Object::system())?;
    let mut tx = engine.store.read().await?;
    let holders = list_holders(&mut tx, &page).await?;
    Ok(Page { items: name(&mut tx, holders.items).await?, next: holders.next })
}

/// Makes someone an admin of everything. Repeated, it changes nothing.
pub async fn create(engine: &Engine, caller: &Caller, subject: Subject) -> Result<Admin> {
    let mut tx = engine.begin_relations().await?;
    permissions::require(engine, caller, Relation::CanManageAdmins, &Object::system())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return Ok(earlier);
    }
    if let Subject::User(id) = subject {
        users::named(&mut tx, id, "/subject").await?;
    }
    let tuple = Object::system().given_to("admin", Holder::One(subject.thing()));
    if relations::give(&mut tx, &tuple, engine.now()).await? {
        let details = json!({ "subject": subject.to_string() });
        audit::record(engine, &mut tx, caller, "admins.create", None, Object::system(), details).await?;
    }
    let admin = find(&mut tx, &subject).await?;
    idempotency_keys::remember(&mut tx, caller, &admin).await?;
    engine.commit(tx).await?;
    Ok(admin)
}

pub async fn delete(engine: &Engine, caller: &Caller, subject: &Subject) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    permissions::require(engine, caller, Relation::CanManageAdmins, &Object::system())?;
    let tuple = Object::system().given_to("admin", Holder::One(subject.thing()));
    let gone = std::slice::from_ref(&tuple);
    permissions::require_an_admin_left(&mut tx, &Object::system().thing(), gone).await?;
    if !relations::take_back(&mut tx, &tuple).await? {
        return Err(Error::not_found("admin"));
    }
    let details = json!({ "subject": subject.to_string() });
    audit::record(engine, &mut tx, caller, "admins.delete", None, Object::system(), details).await?;
    engine.commit(tx).await
}

async fn list_holders(tx: &mut Tx, page: &PageRequest<String>) -> Result<Page<relations::Given, String>> {
    Ok(relations::list_holders(tx, &Object::system().thing(), ["admin"; 4], page).await?)
}

async fn find(tx: &mut Tx, subject: &Subject) -> Result<Admin> {
    let holder = Holder::One(subject.thing());
    let given = relations::find_holder(tx, &Object::system().thing(), ["admin"; 4], &holder).await?;
    name(tx, given.into_iter().collect()).await?.pop().ok_or_else(|| Error::not_found("admin"))
}

async fn name(tx: &mut Tx, holders: Vec<relations::Given>) -> Result<Vec<Admin>> {
    let found: Vec<(Subject, Timestamp)> = holders
        .into_iter()
        .filter_map(|given| Some((Subject::parse(&given.holder.to_string())?, given.since)))
        .collect();
    let subjects: Vec<Subject> = found.iter().map(|(subject, _)| subject.clone()).collect();
    let people = users::names(tx, &subjects).await?;
    let named = found.into_iter().map(|(subject, since)| {
        let user = people.iter().find(|user| Some(user.id) == subject.user()).cloned();
        Admin { subject, since, user }
    });
    Ok(named.collect())
}
