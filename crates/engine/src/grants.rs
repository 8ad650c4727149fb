//! Grants: rights on one tenant's things, given to one of its groups.

use paddock_model::caller::Caller;
use paddock_model::error::Fault;
use paddock_model::groups::{Group, GroupId};
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::permissions::schema::SCHEMA;
use paddock_model::permissions::tuples::{Thing, Tuple, Tuples};
use paddock_model::{Error, Result, Timestamp};
use paddock_store::relations;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Engine, audit, groups, idempotency_keys, permissions};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub object: Thing,
    pub relation: String,
    pub since: Timestamp,
}

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    page: PageRequest<(String, String)>,
) -> Result<Page<Grant, (String, String)>> {
    let group = groups::get(engine, caller, id).await?;
    let mut tx = engine.store.read().await?;
    let held = relations::list_holdings(&mut tx, &group.everyone(), &page).await?;
    let items = held.items.into_iter().map(|held| Grant {
        object: held.object,
        relation: held.relation,
        since: held.since,
    });
    Ok(Page { items: items.collect(), next: held.next })
}

/// Gives the group a right on a thing of its own tenant. Repeated, it changes nothing.
pub async fn create(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    object: &str,
    relation: &str,
) -> Result<Grant> {
    let now = engine.now();
    let mut tx = engine.begin_relations().await?;
    let group = groups::find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanManageGrants, &group.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return Ok(earlier);
    }
    let tuple = grantable(engine, caller, &group, object, relation)?;
    if relations::give(&mut tx, &tuple, now).await? {
        let details = json!({ "object": tuple.object.to_string(), "relation": relation });
        audit::record(engine, &mut tx, caller, "grants.create", Some(group.tenant), group.object(), details)
            .await?;
    }
    let held = relations::find_holder(&mut tx, &tuple.object, [relation; 4], &tuple.holder).await?;
    let since = held.map_or(now, |held| held.since);
    let grant = Grant { object: tuple.object, relation: relation.to_owned(), since };
    idempotency_keys::remember(&mut tx, caller, &grant).await?;
    engine.commit(tx).await?;
    Ok(grant)
}

pub async fn delete(
    engine: &Engine,
    caller: &Caller,
    id: GroupId,
    object: &str,
    relation: &str,
) -> Result<()> {
    let mut tx = engine.begin_relations().await?;
    let group = groups::find_to_change(engine, &mut tx, caller, id).await?;
    permissions::require(engine, caller, Relation::CanManageGrants, &group.object())?;
    let absent = || Error::not_found("grant");
    let object = Thing::parse(object).ok_or_else(absent)?;
    let tuple = Tuple { object, relation: relation.into(), holder: group.everyone() };
    // Membership of another group is not a grant, and is taken back there.
    if relation == "member" && &*tuple.object.kind == "group" {
        return Err(absent());
    }
    let gone = std::slice::from_ref(&tuple);
    permissions::require_an_admin_left(&mut tx, &group.tenant.object().thing(), gone).await?;
    if !relations::take_back(&mut tx, &tuple).await? {
        return Err(absent());
    }
    let details = json!({ "object": tuple.object.to_string(), "relation": relation });
    audit::record(engine, &mut tx, caller, "grants.delete", Some(group.tenant), group.object(), details)
        .await?;
    engine.commit(tx).await
}

/// The tuple, if the model allows it, the thing is of the group's tenant, and the caller administers that.
fn grantable(engine: &Engine, caller: &Caller, group: &Group, object: &str, relation: &str) -> Result<Tuple> {
    let fault = |pointer: &str, code: &'static str, message: &str| {
        Error::invalid(vec![Fault {
            pointer: pointer.to_owned(),
            code: code.into(),
            message: message.to_owned(),
        }])
    };
    // Another tenant's thing is answered like one that does not exist.
    let unknown = || fault("/object", "unknown_object", "there is no such thing in the group's tenant");
    let thing = Thing::parse(object).ok_or_else(unknown)?;
    if permissions::tenant_of(engine, &thing) != Some(group.tenant) {
        return Err(unknown());
    }
    permissions::require(engine, caller, Relation::Admin, &group.tenant.object())?;
    let tuple = Tuple { object: thing, relation: relation.into(), holder: group.everyone() };
    if &*tuple.object.kind == "group" || !Tuples::is_allowed(&SCHEMA, &tuple) {
        let message = "this cannot be given to a group; a thing takes granted_…, a tenant a role";
        return Err(fault("/relation", "not_grantable", message));
    }
    Ok(tuple)
}
