//! The one place where permissions are decided: the model's rules over the tuples, both in memory.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use paddock_model::caller::Caller;
use paddock_model::permissions::check;
use paddock_model::permissions::schema::SCHEMA;
use paddock_model::permissions::tuples::{Thing, Tuples};
use paddock_model::permissions::{Object, Relation, Scope};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use paddock_store::relations::Change;
use paddock_store::{Store, Tx, Watch, relations};

use crate::Engine;

/// The tuples as of a revision. They follow the store: at once what this process commits, by its news what others do.
pub(crate) struct Permissions {
    store: Store,
    known: RwLock<Known>,
    /// One reads for all who wait: those who committed together would each read what the others have.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    tuples: Tuples,
    revision: i64,
}

impl Permissions {
    pub async fn load(store: &Store) -> paddock_store::Result<Arc<Self>> {
        let news = store.watch(&["relations"]);
        let known = RwLock::new(read_all(&mut store.read().await?).await?);
        let permissions =
            Arc::new(Permissions { store: store.clone(), known, reading: tokio::sync::Mutex::default() });
        let told = Arc::downgrade(&permissions);
        store.tell_relations(move |changes| {
            if let Some(permissions) = told.upgrade() {
                permissions.apply(changes);
            }
        });
        if store.is_shared() {
            tokio::spawn(follow(Arc::downgrade(&permissions), news));
        }
        Ok(permissions)
    }

    /// Returns when everything up to this revision is known.
    pub async fn reach(&self, revision: i64) -> paddock_store::Result<()> {
        if self.known().revision >= revision {
            return Ok(());
        }
        let _reading = self.reading.lock().await;
        if self.known().revision >= revision { Ok(()) } else { self.refresh().await }
    }

    /// Applies what has changed since.
    async fn refresh(&self) -> paddock_store::Result<()> {
        let since = self.known().revision;
        let changes = relations::changes_since(&mut self.store.read().await?, since).await?;
        if changes.first().is_some_and(|first| first.revision > since + 1) {
            // Away for so long that the account of changes does not reach back: all anew.
            let all = read_all(&mut self.store.read().await?).await?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if all.revision > known.revision {
                *known = all;
            }
            return Ok(());
        }
        self.apply(&changes);
        Ok(())
    }

    fn apply(&self, changes: &[Change]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            // Another may have been faster; a change that is known must not undo a later one.
            if change.revision <= known.revision {
                continue;
            }
            if change.given {
                known.tuples.insert(change.tuple.clone());
            } else {
                known.tuples.remove(&change.tuple);
            }
            known.revision = change.revision;
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_all(tx: &mut Tx) -> paddock_store::Result<Known> {
    // The number first: what changes while the tuples are read is applied once more, which does no harm.
    let revision = relations::revision(tx).await?;
    let mut tuples = Tuples::default();
    for tuple in relations::list(tx).await? {
        tuples.insert(tuple);
    }
    Ok(Known { tuples, revision })
}

/// Hears of what other replicas change, for as long as the engine lives.
async fn follow(permissions: Weak<Permissions>, mut news: Watch) {
    loop {
        news.changed().await;
        let Some(permissions) = permissions.upgrade() else { return };
        let _reading = permissions.reading.lock().await;
        if let Err(error) = permissions.refresh().await {
            tracing::warn!(%error, "could not read changed permissions; the next change or request tries again");
        }
    }
}

/// Whether the subject holds the relation on the object.
pub fn holds(engine: &Engine, subject: &Thing, relation: &str, object: &Thing) -> bool {
    let known = engine.permissions.known();
    check::check(&SCHEMA, &known.tuples, subject, relation, object)
}

/// How far this replica has followed the changes of permissions.
pub fn revision(engine: &Engine) -> i64 {
    engine.permissions.known().revision
}

/// Lets the caller pass, or says what is missing.
pub fn require(engine: &Engine, caller: &Caller, relation: Relation, object: Object) -> Result<()> {
    if holds(engine, &caller.subject.thing(), relation.name(), &object.thing()) {
        return Ok(());
    }
    Err(Error::forbidden(format!("You need {} on {object}. Ask an admin for it.", relation.name())))
}

/// What the caller may see. Its cost grows with what was given to the caller, and with nothing else.
pub fn scope(engine: &Engine, caller: &Caller) -> Scope {
    let subject = caller.subject.thing();
    let known = engine.permissions.known();
    let holds = |relation: Relation, object: &Thing| {
        check::check(&SCHEMA, &known.tuples, &subject, relation.name(), object)
    };
    if holds(Relation::Admin, &Object::System.thing()) {
        return Scope::Everything;
    }
    let reached = known.tuples.within_reach(&subject);
    let tenants = reached.iter().filter(|thing| &*thing.kind == "tenant" && holds(Relation::CanView, thing));
    Scope::Tenants(tenants.filter_map(|thing| TenantId::parse(&thing.id)).collect())
}

/// A question that cannot be asked of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub code: &'static str,
    pub message: String,
}

/// Whether the caller holds a relation that it names itself. What is absent or invisible is simply not held.
pub fn ask(engine: &Engine, caller: &Caller, relation: &str, object: &str) -> Result<bool, Unknown> {
    let unknown = |code, message| Unknown { code, message };
    let thing = Thing::parse(object)
        .ok_or_else(|| unknown("invalid_object", "an object is written as type:id".to_owned()))?;
    if !SCHEMA.has_type(&thing.kind) {
        return Err(unknown("unknown_object_type", format!("there is no type {}", thing.kind)));
    }
    if SCHEMA.rule(&thing.kind, relation).is_none() {
        return Err(unknown("unknown_relation", format!("{} has no relation {relation}", thing.kind)));
    }
    Ok(holds(engine, &caller.subject.thing(), relation, &thing))
}

/// Waits a moment until this replica has followed the changes up to a revision.
pub async fn reach(engine: &Engine, wanted: i64) -> Result<()> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let reached = async {
        while revision(engine) < wanted {
            engine.permissions.reach(wanted).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<(), Error>(())
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| {
        Err(Error::conflict(
            "revision_not_reached",
            "Permissions have not reached this revision yet. Try again.",
        ))
    })
}
