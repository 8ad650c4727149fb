//! Members: who belongs to a tenant, and in which role.

use paddock_model::caller::Caller;
use paddock_model::members::{Member, Role};
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::{Holder, Thing, Tuple};
use paddock_model::permissions::{Object, Relation};
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::users::{User, UserId};
use paddock_model::{Error, Result};
use paddock_store::{Tx, api_keys, relations, users as user_rows};
use serde_json::json;

use crate::invitations::Invited;
use crate::permissions::Decision;
use crate::users::NewUser;
use crate::{Engine, audit, idempotency_keys, permissions, tenants, users};

const ROLES: [&str; 4] =
    [Role::Admin.relation(), Role::Operator.relation(), Role::Member.relation(), Role::Auditor.relation()];

/// A member, and the person if it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub member: Member,
    pub user: Option<User>,
}

/// Whom to let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Newcomer {
    Known(Subject),
    /// By their login here; if there is none yet, an account is made and they are invited.
    Login(String),
}

/// What became of it.
pub struct Added {
    pub member: Named,
    /// Whether they were no direct member before.
    pub new: bool,
    pub invited: Option<Invited>,
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    tenant: TenantId,
    page: PageRequest<String>,
) -> Result<Page<Named, String>> {
    let tenant = tenants::get(engine, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanViewMembers, &tenant.object())?;
    let mut tx = engine.store.read().await?;
    let holders = relations::list_holders(&mut tx, &tenant.object().thing(), ROLES, &page).await?;
    let members: Vec<Member> = holders.items.into_iter().filter_map(read).collect();
    Ok(Page { items: name(&mut tx, members).await?, next: holders.next })
}

pub async fn get(engine: &Engine, caller: &Caller, tenant: TenantId, subject: &Subject) -> Result<Named> {
    let tenant = tenants::get(engine, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanViewMembers, &tenant.object())?;
    let mut tx = engine.store.read().await?;
    find(&mut tx, tenant.object(), subject).await
}

/// Gives someone a role in the tenant, in place of the one they had.
pub async fn add(
    engine: &Engine,
    caller: &Caller,
    tenant: TenantId,
    newcomer: Newcomer,
    role: Role,
) -> Result<Added> {
    let now = engine.now();
    let mut tx = engine.begin_relations().await?;
    let tenant = tenants::find(engine, &mut tx, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanManageMembers, &tenant.object())?;
    if let Some((member, new)) = idempotency_keys::recall::<(Member, bool)>(&mut tx, caller, now).await? {
        let member = name(&mut tx, vec![member]).await?.remove(0);
        return Ok(Added { member, new, invited: None });
    }
    let (subject, invited) = settle(engine, &mut tx, caller, tenant.id, newcomer).await?;
    let holder = Holder::One(subject.thing());
    let before = roles(&mut tx, tenant.object(), &holder).await?;
    let wanted = tenant.object().given_to(role.relation(), holder.clone());
    let gone: Vec<Tuple> = before.iter().filter(|tuple| **tuple != wanted).cloned().collect();
    if role != Role::Admin {
        permissions::require_an_admin_left(&mut tx, &tenant.object().thing(), &gone).await?;
    }
    for tuple in &gone {
        relations::take_back(&mut tx, tuple).await?;
    }
    relations::give(&mut tx, &wanted, now).await?;
    let details = json!({ "role": role.relation(), "subject": subject.to_string() });
    audit::record(engine, &mut tx, caller, "members.add", Some(tenant.id), tenant.object(), details).await?;
    let member = Member { holder, role, since: now };
    let outcome = (member, before.is_empty());
    idempotency_keys::remember(&mut tx, caller, &outcome).await?;
    let member = find(&mut tx, tenant.object(), &subject).await?;
    engine.commit(tx).await?;
    Ok(Added { member, new: outcome.1, invited })
}

/// Takes everything from someone that they have in the tenant: roles, groups, grants, keys. One may leave oneself.
pub async fn remove(engine: &Engine, caller: &Caller, tenant: TenantId, subject: &Subject) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    let tenant = tenants::find(engine, &mut tx, caller, tenant).await?;
    if caller.subject == *subject {
        permissions::require_opened(engine, caller, Relation::CanManageMembers, &tenant.object())?;
    } else {
        permissions::require(engine, caller, Relation::CanManageMembers, &tenant.object())?;
    }
    let holder = Holder::One(subject.thing());
    let mut gone = Vec::new();
    for tuple in relations::held_by(&mut tx, &holder).await? {
        // Whose a thing is stays known: the model lets owners do nothing who are no members. Of groups it does not ask that.
        let stays = &*tuple.relation == "owner" && &*tuple.object.kind != "group";
        if !stays && belongs_to(&mut tx, &tuple.object, tenant.id).await? {
            gone.push(tuple);
        }
    }
    if gone.is_empty() {
        return Err(Error::not_found("member"));
    }
    permissions::require_an_admin_left(&mut tx, &tenant.object().thing(), &gone).await?;
    for tuple in &gone {
        relations::take_back(&mut tx, tuple).await?;
    }
    if let Some(owner) = subject.user() {
        api_keys::delete_owned(&mut tx, tenant.id, owner).await?;
    }
    let details = json!({ "subject": subject.to_string() });
    audit::record(engine, &mut tx, caller, "members.remove", Some(tenant.id), tenant.object(), details)
        .await?;
    engine.commit(tx).await
}

async fn settle(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    newcomer: Newcomer,
) -> Result<(Subject, Option<Invited>)> {
    match newcomer {
        Newcomer::Known(Subject::User(id)) => {
            let user = users::named(tx, id, "/userId").await?;
            require_at_home(engine, tx, caller, tenant, &user).await?;
            Ok((Subject::from(&user), None))
        }
        Newcomer::Known(machine) => Ok((machine, None)),
        Newcomer::Login(login) => match user_rows::find_by_login(tx, &login).await? {
            Some(user) if user.disabled_at.is_none() => {
                require_at_home(engine, tx, caller, tenant, &user).await?;
                Ok((Subject::from(&user), None))
            }
            Some(_) => Err(users::unknown("/login")),
            None => {
                let new = NewUser { name: login.clone(), login, email: None };
                // Whoever invites gets the link, and with it the password: of an account that others may take for
                // someone else's only who may give out any.
                let home = (manages_users(engine, caller) != Decision::Allowed).then_some(tenant);
                let (user, invited) = users::insert_invited(engine, tx, new, home).await?;
                Ok((Subject::from(&user), Some(invited)))
            }
        },
    }
}

fn manages_users(engine: &Engine, caller: &Caller) -> Decision {
    permissions::decide(engine, caller, Relation::CanManageUsers.name(), &Object::system().thing())
}

/// An account that another tenant's admin has made is let in by a platform admin only, and then is free.
async fn require_at_home(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    user: &User,
) -> Result<()> {
    if user.home.is_none_or(|home| home == tenant) {
        return Ok(());
    }
    if manages_users(engine, caller) == Decision::Missing {
        return Err(Error::conflict("login_taken", "The login is taken; ask a platform admin."));
    }
    permissions::require(engine, caller, Relation::CanManageUsers, &Object::system())?;
    Ok(user_rows::set_free(tx, user.id).await?)
}

/// Whether a thing is the tenant, or one of its things.
async fn belongs_to(tx: &mut Tx, thing: &Thing, tenant: TenantId) -> Result<bool> {
    let tenant = tenant.object().thing();
    if *thing == tenant {
        return Ok(true);
    }
    let pointers = relations::given(tx, thing, "tenant").await?;
    Ok(pointers.into_iter().any(|tuple| tuple.holder == Holder::One(tenant.clone())))
}

async fn roles(tx: &mut Tx, tenant: Object, holder: &Holder) -> Result<Vec<Tuple>> {
    let held = relations::held_by(tx, holder).await?;
    let tenant = tenant.thing();
    Ok(held
        .into_iter()
        .filter(|tuple| tuple.object == tenant && Role::parse(&tuple.relation).is_some())
        .collect())
}

async fn find(tx: &mut Tx, tenant: Object, subject: &Subject) -> Result<Named> {
    let holder = Holder::One(subject.thing());
    let given = relations::find_holder(tx, &tenant.thing(), ROLES, &holder).await?;
    let member = given.and_then(read).ok_or_else(|| Error::not_found("member"))?;
    Ok(name(tx, vec![member]).await?.remove(0))
}

fn read(given: relations::Given) -> Option<Member> {
    Some(Member { holder: given.holder, role: Role::parse(&given.relation)?, since: given.since })
}

async fn name(tx: &mut Tx, members: Vec<Member>) -> Result<Vec<Named>> {
    let subjects: Vec<Subject> =
        members.iter().filter_map(|member| Subject::parse(&member.holder.to_string())).collect();
    let people = users::names(tx, &subjects).await?;
    let named = members.into_iter().map(|member| {
        let id = match &member.holder {
            Holder::One(one) => UserId::parse(&one.id),
            _ => None,
        };
        let user = id.and_then(|id| people.iter().find(|user| user.id == id)).cloned();
        Named { member, user }
    });
    Ok(named.collect())
}
