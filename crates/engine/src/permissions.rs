//! The one place where permissions are decided.

use paddock_model::caller::Caller;
use paddock_model::permissions::{Object, Relation, Scope, Subject};
use paddock_model::{Error, Result};
use paddock_store::{Tx, relations};

/// Lets the caller pass, or says what is missing.
pub async fn require(tx: &mut Tx, caller: &Caller, relation: Relation, object: Object) -> Result<()> {
    if holds(tx, caller.subject, relation, object).await? {
        return Ok(());
    }
    Err(Error::forbidden(format!("You need {} on {object}. Ask an admin for it.", relation.name())))
}

/// What the caller may see.
pub async fn scope(tx: &mut Tx, caller: &Caller) -> Result<Scope> {
    if is_admin(tx, caller.subject).await? { Ok(Scope::Everything) } else { Ok(Scope::Tenants(Vec::new())) }
}

async fn holds(tx: &mut Tx, subject: Subject, relation: Relation, object: Object) -> Result<bool> {
    // An admin of the system holds every relation that exists so far.
    Ok(is_admin(tx, subject).await? || relations::holds(tx, subject, relation, object).await?)
}

async fn is_admin(tx: &mut Tx, subject: Subject) -> Result<bool> {
    Ok(relations::holds(tx, subject, Relation::Admin, Object::System).await?)
}
