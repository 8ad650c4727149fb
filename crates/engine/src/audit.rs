//! The audit: an act is recorded in the commit that carries it out, a refusal in one of its own.

use std::fmt::Display;

use paddock_model::audit::{Event, EventFilter, Outcome, Verified};
use paddock_model::caller::Caller;
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::Relation;
use paddock_model::tenants::TenantId;
use paddock_model::{Result, id};
use paddock_store::{Tx, audit};
use serde_json::Value;

use crate::{Engine, permissions};

/// Who acts, as the audit names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    pub subject: Option<String>,
    pub credential: Option<String>,
    pub credential_id: Option<String>,
    pub request_id: String,
    pub address: Option<String>,
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        Actor {
            subject: Some(caller.subject.to_string()),
            credential: Some(caller.credential.kind.name().to_owned()),
            credential_id: caller.credential.id.clone(),
            request_id: caller.request_id.to_string(),
            address: caller.address.map(|address| address.to_string()),
        }
    }
}

/// Records an act with the change it makes. `details` must hold no secret.
pub(crate) async fn record(
    engine: &Engine,
    tx: &mut Tx,
    actor: impl Into<Actor>,
    action: &str,
    tenant: Option<TenantId>,
    object: impl Display,
    details: Value,
) -> Result<()> {
    let event =
        event(engine, actor.into(), action, tenant, object.to_string(), Outcome::Done, None, &details);
    Ok(audit::append(tx, event).await?)
}

/// What was refused to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub actor: Actor,
    pub action: String,
    pub tenant: Option<TenantId>,
    pub object: String,
    pub code: String,
}

/// Records refusals; they wait for nobody's change.
pub async fn refuse(engine: &Engine, refusals: Vec<Refusal>) -> Result<()> {
    let mut tx = engine.store.begin().await?;
    for Refusal { actor, action, tenant, object, code } in refusals {
        let event = event(engine, actor, &action, tenant, object, Outcome::Refused, Some(code), &Value::Null);
        audit::append(&mut tx, event).await?;
    }
    engine.commit(tx).await
}

/// The events that the caller may see, newest first.
pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &EventFilter,
    page: PageRequest,
) -> Result<Page<Event>> {
    let scope = permissions::scope_of(engine, caller, Relation::CanViewAudit);
    Ok(audit::list(&mut engine.store.read().await?, &scope, filter, page).await?)
}

/// Follows every chain from its beginning to its end.
pub async fn verify(engine: &Engine) -> Result<Vec<Verified>> {
    Ok(audit::verify(&mut engine.store.read().await?).await?)
}

#[expect(clippy::too_many_arguments, reason = "an event has as many parts")]
fn event(
    engine: &Engine,
    actor: Actor,
    action: &str,
    tenant: Option<TenantId>,
    object: String,
    outcome: Outcome,
    code: Option<String>,
    details: &Value,
) -> Event {
    let at = engine.now();
    Event {
        id: id::uuid_v7(at, engine.random()),
        tenant,
        // Given where the chain is known.
        number: 0,
        at,
        actor: actor.subject,
        credential: actor.credential,
        credential_id: actor.credential_id,
        action: action.to_owned(),
        object,
        outcome,
        code,
        request_id: actor.request_id,
        address: actor.address,
        details: if details.is_null() { "{}".to_owned() } else { details.to_string() },
    }
}
