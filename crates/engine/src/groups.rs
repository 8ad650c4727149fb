//! Groups: people and machines of one tenant that are given rights together; groups may hold groups.

use paddock_model::caller::Caller;
use paddock_model::error::Fault;
use paddock_model::expected::Expected;
use paddock_model::groups::{Group, GroupId, GroupSpec};
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::permissions::tuples::{Holder, Tuple};
use paddock_model::scopes::Scope;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::users::{User, UserId};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::{Tx, groups, relations};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Engine, audit, idempotency_keys, permissions, tenants, users};

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    tenant: TenantId,
    page: PageRequest,
) -> Result<Page<Group>> {
    let tenant = tenants::get(engine, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanViewMembers, &tenant.object())?;
    Ok(groups::list(&mut engine.store.read().await?, tenant.id, page).await?)
}

pub async fn create(engine: &Engine, caller: &Caller, tenant: TenantId, spec: GroupSpec) -> Result<Group> {
    let now = engine.now();
    let mut tx = engine.begin_relations().await?;
    let tenant = tenants::find(engine, &mut tx, caller, tenant).await?;
    permissions::require(engine, caller, Relation::CanManageGroups, &tenant.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let group = Group::new(GroupId::new(now, engine.random()), tenant.id, spec, now);
    groups::insert(&mut tx, &group).await.map_err(|error| name_taken(error, &group))?;
    let tenant_of = group.object().given_to("tenant", Holder::One(tenant.object().thing()));
    relations::give(&mut tx, &tenant_of, now).await?;
    let details = json!({ "name": group.name });
    audit::record(engine, &mut tx, caller, "groups.create", Some(tenant.id), group.object(), details).await?;
    idempotency_keys::remember(&mut tx, caller, &group).await?;
    engine.commit(tx).await?;
    Ok(group)
}

pub async fn get(engine: &Engine, caller: &Caller, id: GroupId) -> Result<Group> {
    let scope = scope_at(engine, caller, id);
    let group = groups::find(&mut engine.store.read().await?, &scope, id).await?;
    group.ok_or_else(|| permissions::invisible(engine, "group", &id.object()))
}

/// The groups of these ids in a tenant, for someone who is in them.
pub async fn names(engine: &Engine, tenant: TenantId, ids: &[GroupId]) -> Result<Vec<Group>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = engine.store.read().await?;
    Ok(groups::list_by_ids(&mut tx, &Scope::one(tenant), ids).await?)
}

/// Changes the group, if it still is what the caller expects.
pub async fn update(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    spec: GroupSpec,
    expected: &Expected,
) -> Result<Group> {
    let mut tx = engine.store.begin().await?;
    let group = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanUpdate, &group.object())?;
    expected.require(group.generation)?;
    let changed = group.clone().changed(spec, engine.now());
    groups::update(&mut tx, &group, &changed).await.map_err(|error| name_taken(error, &changed))?;
    let details = json!({ "name": changed.name });
    audit::record(engine, &mut tx, caller, "groups.update", Some(group.tenant), group.object(), details)
        .await?;
    engine.commit(tx).await?;
    Ok(changed)
}

/// The group goes, and with it all that was given to it.
pub async fn delete(engine: &Engine, caller: &Caller, id: GroupId, expected: &Expected) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    let group = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanDelete, &group.object())?;
    expected.require(group.generation)?;
    let given = relations::held_by(&mut tx, &group.everyone()).await?;
    permissions::require_an_admin_left(&mut tx, &group.tenant.object().thing(), &given).await?;
    for tuple in &given {
        relations::take_back(&mut tx, tuple).await?;
    }
    relations::take_back_all(&mut tx, &group.object().thing()).await?;
    groups::delete(&mut tx, &group).await?;
    let details = json!({ "name": group.name });
    audit::record(engine, &mut tx, caller, "groups.delete", Some(group.tenant), group.object(), details)
        .await?;
    engine.commit(tx).await
}

/// Who is in a group: a person, a machine, or another group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupMember {
    Subject(Subject),
    Group(GroupId),
}

impl GroupMember {
    fn holder(&self) -> Holder {
        match self {
            GroupMember::Subject(subject) => Holder::One(subject.thing()),
            GroupMember::Group(id) => Holder::Set(id.object().thing(), "member".into()),
        }
    }

    pub fn of(holder: &Holder) -> Option<Self> {
        match holder {
            Holder::One(one) => Subject::parse(&one.to_string()).map(GroupMember::Subject),
            Holder::Set(set, _) => GroupId::parse(&set.id).map(GroupMember::Group),
            Holder::Everyone(_) => None,
        }
    }
}

/// With the names that people know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMember {
    pub member: GroupMember,
    pub since: Timestamp,
    pub user: Option<User>,
    pub group: Option<Group>,
}

pub async fn list_members(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    page: PageRequest<String>,
) -> Result<Page<NamedMember, String>> {
    let group = get(engine, caller, id).await?;
    let mut tx = engine.store.read().await?;
    let holders = list_holders(&mut tx, &group, &page).await?;
    Ok(Page { items: name(&mut tx, &group, holders.items).await?, next: holders.next })
}

/// Puts someone of the same tenant into the group. Repeated, it changes nothing.
pub async fn add_member(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    member: GroupMember,
) -> Result<NamedMember> {
    let now = engine.now();
    let mut tx = engine.begin_relations().await?;
    let group = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanManageMembers, &group.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    require_same_tenant(engine, &mut tx, &group, &member).await?;
    let tuple = group.object().given_to("member", member.holder());
    require_no_circle(&mut tx, &group, &tuple).await?;
    if relations::give(&mut tx, &tuple, now).await? {
        let details = json!({ "member": tuple.holder.to_string() });
        audit::record(
            engine,
            &mut tx,
            caller,
            "groups.add_member",
            Some(group.tenant),
            group.object(),
            details,
        )
        .await?;
    }
    let named = find_member(&mut tx, &group, &member).await?;
    idempotency_keys::remember(&mut tx, caller, &named).await?;
    engine.commit(tx).await?;
    Ok(named)
}

pub async fn remove_member(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    member: &GroupMember,
) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    let group = find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanManageMembers, &group.object())?;
    let tuple = group.object().given_to("member", member.holder());
    let gone = std::slice::from_ref(&tuple);
    permissions::require_an_admin_left(&mut tx, &group.tenant.object().thing(), gone).await?;
    if !relations::take_back(&mut tx, &tuple).await? {
        return Err(Error::not_found("member"));
    }
    let details = json!({ "member": tuple.holder.to_string() });
    audit::record(
        engine,
        &mut tx,
        caller,
        "groups.remove_member",
        Some(group.tenant),
        group.object(),
        details,
    )
    .await?;
    engine.commit(tx).await
}

/// A group may only hold who belongs to its tenant: anything else would be sharing between tenants.
async fn require_same_tenant(
    engine: &Engine,
    tx: &mut Tx,
    group: &Group,
    member: &GroupMember,
) -> Result<()> {
    let (pointer, fits) = match member {
        GroupMember::Subject(subject) => {
            let tenant = group.tenant.object().thing();
            let belongs = permissions::holds(engine, &subject.thing(), "member", &tenant)
                || permissions::holds(engine, &subject.thing(), "auditor", &tenant);
            ("/userId", belongs)
        }
        GroupMember::Group(id) => {
            let other = groups::find(tx, &Scope::one(group.tenant), *id).await?;
            ("/groupId", other.is_some())
        }
    };
    if fits {
        return Ok(());
    }
    let message = "it does not belong to the group's tenant; make it a member there first".to_owned();
    Err(Error::invalid(vec![Fault { pointer: pointer.to_owned(), code: "not_a_member".into(), message }]))
}

/// Walks from the new member through what it holds: meeting the group again would close a circle.
async fn require_no_circle(tx: &mut Tx, group: &Group, tuple: &Tuple) -> Result<()> {
    let mut open: Vec<Holder> = vec![tuple.holder.clone()];
    let mut seen = std::collections::HashSet::new();
    while let Some(holder) = open.pop() {
        if holder == group.everyone() {
            let detail = "This would make the group a member of itself. Take the other group out first.";
            return Err(Error::conflict("circular_membership", detail));
        }
        if let Holder::Set(set, relation) = &holder
            && seen.insert(holder.clone())
        {
            open.extend(relations::given(tx, set, relation).await?.into_iter().map(|tuple| tuple.holder));
        }
    }
    Ok(())
}

async fn list_holders(
    tx: &mut Tx,
    group: &Group,
    page: &PageRequest<String>,
) -> Result<Page<relations::Given, String>> {
    Ok(relations::list_holders(tx, &group.object().thing(), ["member"; 4], page).await?)
}

async fn find_member(tx: &mut Tx, group: &Group, member: &GroupMember) -> Result<NamedMember> {
    let found = relations::find_holder(tx, &group.object().thing(), ["member"; 4], &member.holder()).await?;
    name(tx, group, found.into_iter().collect()).await?.pop().ok_or_else(|| Error::not_found("member"))
}

async fn name(tx: &mut Tx, group: &Group, holders: Vec<relations::Given>) -> Result<Vec<NamedMember>> {
    let members: Vec<(GroupMember, Timestamp)> = holders
        .into_iter()
        .filter_map(|given| Some((GroupMember::of(&given.holder)?, given.since)))
        .collect();
    let (mut subjects, mut ids) = (Vec::new(), Vec::new());
    for (member, _) in &members {
        match member {
            GroupMember::Subject(subject) => subjects.push(subject.clone()),
            GroupMember::Group(id) => ids.push(*id),
        }
    }
    let people = users::names(tx, &subjects).await?;
    let inner = if ids.is_empty() {
        Vec::new()
    } else {
        groups::list_by_ids(tx, &Scope::one(group.tenant), &ids).await?
    };
    let person = |id: UserId| people.iter().find(|user| user.id == id).cloned();
    let named = members.into_iter().map(|(member, since)| match &member {
        GroupMember::Subject(subject) => {
            let user = subject.user().and_then(person);
            NamedMember { member, since, user, group: None }
        }
        GroupMember::Group(id) => {
            let group = inner.iter().find(|group| group.id == *id).cloned();
            NamedMember { member, since, user: None, group }
        }
    });
    Ok(named.collect())
}

/// The group's tenant, if the caller sees who is in it.
fn scope_at(engine: &Engine, caller: &Caller, id: GroupId) -> Scope {
    match permissions::tenant_of(engine, &id.object().thing()) {
        Some(tenant) => permissions::scope_at(engine, caller, Relation::CanViewMembers, tenant),
        None => Scope::Tenants(Vec::new()),
    }
}

pub(crate) async fn find_to_change(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    id: GroupId,
) -> Result<Group> {
    let scope = scope_at(engine, caller, id);
    let group = groups::find_to_change(tx, &scope, id).await?;
    group.ok_or_else(|| permissions::invisible(engine, "group", &id.object()))
}

fn name_taken(error: paddock_store::Error, group: &Group) -> Error {
    match error {
        paddock_store::Error::Taken { .. } => Error::conflict(
            "name_taken",
            format!("A group named {} exists already in this tenant. Choose another name.", group.name),
        ),
        other => other.into(),
    }
}
