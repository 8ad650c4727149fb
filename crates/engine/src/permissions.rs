//! The one place where permissions are decided: the model's rules over the tuples, both in memory.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use paddock_model::api_keys::KeyScope;
use paddock_model::backups::OwnedScope;
use paddock_model::caller::Caller;
use paddock_model::credentials::{Credential, Limit};
use paddock_model::emulators::{EmulatorId, EmulatorScope};
use paddock_model::error::Kind;
use paddock_model::groups::GroupId;
use paddock_model::members::Role;
use paddock_model::permissions::check;
use paddock_model::permissions::schema::SCHEMA;
use paddock_model::permissions::tuples::{Holder, Thing, Tuple, Tuples};
use paddock_model::permissions::{Object, Relation};
use paddock_model::scopes::Scope;
use paddock_model::subjects::Subject;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::relations::Change;
use paddock_store::{Store, Tx, Watch, relations};
use tokio::sync::watch;

use crate::Engine;

/// The tuples as of a revision. They follow the store: at once what this process commits, by its news what others do.
pub(crate) struct Permissions {
    store: Store,
    known: RwLock<Known>,
    /// One reads for all who wait: those who committed together would each read what the others have.
    reading: tokio::sync::Mutex<()>,
    /// Tells of a revision once it decides.
    revisions: watch::Sender<i64>,
}

#[derive(Default)]
struct Known {
    tuples: Tuples,
    revision: i64,
}

impl Permissions {
    pub async fn load(store: &Store) -> paddock_store::Result<Arc<Self>> {
        let news = store.watch(&["relations"]);
        let known = read_all(&mut store.read().await?).await?;
        let permissions = Arc::new(Permissions {
            store: store.clone(),
            revisions: watch::Sender::new(known.revision),
            known: RwLock::new(known),
            reading: tokio::sync::Mutex::default(),
        });
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

    /// Learns what the transaction sees, which holds the relations. It reads by that alone: another connection may
    /// be one that waits for it. False where the newest changes are not on disk yet.
    pub async fn catch_up(&self, tx: &mut Tx) -> paddock_store::Result<bool> {
        let (revision, since) = (relations::revision(tx).await?, self.known().revision);
        if since < revision && self.store.is_shared() {
            let changes = relations::changes_since(tx, since).await?;
            match changes.first() {
                Some(first) if first.revision == since + 1 => self.apply(&changes),
                _ => self.replace(read_all(tx).await?),
            }
        }
        Ok(self.known().revision >= revision)
    }

    fn replace(&self, all: Known) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if all.revision > known.revision {
            *known = all;
        }
        let revision = known.revision;
        drop(known);
        self.tell(revision);
    }

    /// Applies what has changed since.
    async fn refresh(&self) -> paddock_store::Result<()> {
        let since = self.known().revision;
        let changes = relations::changes_since(&mut self.store.read().await?, since).await?;
        if changes.first().is_some_and(|first| first.revision > since + 1) {
            // Away for so long that the account of changes does not reach back: all anew.
            self.replace(read_all(&mut self.store.read().await?).await?);
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
        let revision = known.revision;
        drop(known);
        self.tell(revision);
    }

    fn tell(&self, revision: i64) {
        self.revisions.send_if_modified(|told| {
            let news = revision > *told;
            *told = revision.max(*told);
            news
        });
    }

    /// Wakes when permissions may have changed, and only after they have.
    pub fn revisions(&self) -> watch::Receiver<i64> {
        self.revisions.subscribe()
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
        // Who has been told of a change and cannot read it would decide on what was: until it works.
        loop {
            let Some(permissions) = permissions.upgrade() else { return };
            let reading = permissions.reading.lock().await;
            match permissions.refresh().await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "could not read changed permissions; in a second again"),
            }
            drop(reading);
            drop(permissions);
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }
}

const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Whether the subject holds the relation on the object.
pub fn holds(engine: &Engine, subject: &Thing, relation: &str, object: &Thing) -> bool {
    let known = engine.permissions.known();
    check::check(&SCHEMA, &known.tuples, subject, relation, object)
}

/// How far this replica has followed the changes of permissions.
pub fn revision(engine: &Engine) -> i64 {
    engine.permissions.known().revision
}

/// Whether the caller may, and if only its credential stands in the way, how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Missing,
    Limited(Limit),
}

/// The relation and the credential's ceiling, both.
pub fn decide(engine: &Engine, caller: &Caller, relation: &str, object: &Thing) -> Decision {
    if !holds(engine, &caller.subject.thing(), relation, object) {
        return Decision::Missing;
    }
    let known = engine.permissions.known();
    match limit(&known.tuples, &caller.credential, relation, object, engine.now()) {
        Some(limit) => Decision::Limited(limit),
        None => Decision::Allowed,
    }
}

/// What the credential does not open, by its ceiling or because it is tied to another tenant.
fn limit(
    tuples: &Tuples,
    credential: &Credential,
    relation: &str,
    object: &Thing,
    now: Timestamp,
) -> Option<Limit> {
    // The platform's own snapshots are in no tenant, and everyone's.
    let public = |owner: Option<TenantId>| owner.is_none() && &*object.kind == "snapshot";
    let elsewhere = credential.tenant.is_some_and(|tenant| {
        let owner = owner_of(tuples, object);
        owner != Some(tenant) && !public(owner)
    });
    if elsewhere { Some(Limit::Ceiling) } else { credential.limit(&object.kind, relation, now) }
}

/// Lets the caller pass, or says what is missing.
pub fn require(engine: &Engine, caller: &Caller, relation: Relation, object: &Object) -> Result<()> {
    require_on(engine, caller, relation.name(), &object.thing())
}

/// The same for a thing whose type is known only at run time.
pub(crate) fn require_on(engine: &Engine, caller: &Caller, relation: &str, object: &Thing) -> Result<()> {
    let refused = match decide(engine, caller, relation, object) {
        Decision::Allowed => return Ok(()),
        Decision::Missing => {
            Error::forbidden(format!("You need {relation} on {object}. Ask an admin for it."))
        }
        Decision::Limited(limit) => limited(limit, relation, object),
    };
    Err(refused.about(object.to_string()))
}

/// For what people may do without any relation, because it is about themselves: not by every credential.
pub(crate) fn require_opened(
    engine: &Engine,
    caller: &Caller,
    relation: Relation,
    object: &Object,
) -> Result<()> {
    let (known, thing) = (engine.permissions.known(), object.thing());
    match limit(&known.tuples, &caller.credential, relation.name(), &thing, engine.now()) {
        Some(limit) => Err(limited(limit, relation.name(), &thing).about(thing.to_string())),
        None => Ok(()),
    }
}

fn limited(limit: Limit, relation: &str, object: &Thing) -> Error {
    match limit {
        Limit::Ceiling => Error::new(
            Kind::Forbidden,
            "credential_ceiling",
            format!(
                "You may, but not by this type of credential: it does not open {relation} on {object}. Sign in instead."
            ),
        ),
        Limit::Presence => Error::new(
            Kind::Forbidden,
            "reauthentication_required",
            "Your sign-in is too long ago for this. Sign in again and repeat it within 15 minutes.",
        ),
    }
}

/// Whether the subject's account is open. It is asked on every request, and answered from memory.
pub fn is_active(engine: &Engine, subject: &Subject) -> bool {
    match subject {
        Subject::User(id) => holds(engine, &subject.thing(), Relation::Holder.name(), &id.account().thing()),
        // A machine's account is its issuer's affair.
        Subject::ServiceAccount(_) => true,
    }
}

/// What the caller may see.
pub fn scope(engine: &Engine, caller: &Caller) -> Scope {
    scope_of(engine, caller, Relation::CanView)
}

/// Whether the caller holds a relation on one tenant, as the scope of a read that is about nothing else.
pub(crate) fn scope_at(engine: &Engine, caller: &Caller, relation: Relation, tenant: TenantId) -> Scope {
    let held = decide(engine, caller, relation.name(), &tenant.object().thing()) == Decision::Allowed;
    Scope::Tenants(if held { vec![tenant] } else { Vec::new() })
}

/// Where the caller holds a relation. Its cost grows with what was given to the caller, and with nothing else.
pub fn scope_of(engine: &Engine, caller: &Caller, relation: Relation) -> Scope {
    if let Some(tenant) = caller.credential.tenant {
        return scope_at(engine, caller, relation, tenant);
    }
    if caller.credential.limit("tenant", relation.name(), engine.now()).is_some() {
        return Scope::Tenants(Vec::new());
    }
    let subject = caller.subject.thing();
    let known = engine.permissions.known();
    let holds =
        |relation: &str, object: &Thing| check::check(&SCHEMA, &known.tuples, &subject, relation, object);
    if holds(Relation::Admin.name(), &Object::system().thing()) {
        return Scope::Everything;
    }
    let reached = known.tuples.within_reach(&subject);
    let tenants = reached.iter().filter(|thing| &*thing.kind == "tenant" && holds(relation.name(), thing));
    Scope::Tenants(tenants.filter_map(|thing| TenantId::parse(&thing.id)).collect())
}

/// Which API keys the caller may see: their own, unless the credential is too narrow for that, and those of the tenants whose
/// members they manage.
pub(crate) fn key_scope(engine: &Engine, caller: &Caller) -> KeyScope {
    let narrow = caller.credential.tenant.is_some()
        || caller.credential.limit("api_key", Relation::CanView.name(), engine.now()).is_some();
    let owner = caller.subject.user().filter(|_| !narrow);
    KeyScope { owner, administered: scope_of(engine, caller, Relation::CanManageMembers) }
}

/// Which backups or restores the caller may see.
pub(crate) fn owned_scope(engine: &Engine, caller: &Caller, kind: &str) -> OwnedScope {
    let EmulatorScope { all_of, owner, own_in, .. } = scope_by_owner(engine, caller, kind);
    OwnedScope { all_of, owner, own_in }
}

/// Which emulators the caller may see.
pub(crate) fn emulator_scope(engine: &Engine, caller: &Caller) -> EmulatorScope {
    scope_by_owner(engine, caller, "emulator")
}

/// What operators and auditors see all of, and others of their own.
fn scope_by_owner(engine: &Engine, caller: &Caller, kind: &str) -> EmulatorScope {
    let owner = caller.subject.clone();
    let nothing = || Scope::Tenants(Vec::new());
    if caller.credential.limit(kind, Relation::CanView.name(), engine.now()).is_some() {
        return EmulatorScope { all_of: nothing(), owner, own_in: nothing(), granted: Vec::new() };
    }
    let (subject, known) = (owner.thing(), engine.permissions.known());
    let holds =
        |relation: &str, object: &Thing| check::check(&SCHEMA, &known.tuples, &subject, relation, object);
    if holds(Relation::Admin.name(), &Object::system().thing()) {
        let all_of = caller.credential.tenant.map_or(Scope::Everything, Scope::one);
        return EmulatorScope { all_of, owner, own_in: nothing(), granted: Vec::new() };
    }
    let reached = known.tuples.reach(&subject);
    let (mut all_of, mut own_in, mut granted) = (Vec::new(), Vec::new(), Vec::new());
    for (thing, ways) in &reached {
        match &*thing.kind {
            "tenant" => {
                let Some(id) = TenantId::parse(&thing.id) else { continue };
                if caller.credential.tenant.is_some_and(|only| only != id) {
                    continue;
                }
                if holds(Relation::Operator.name(), thing) || holds(Relation::Auditor.name(), thing) {
                    all_of.push(id);
                } else if holds(Relation::Member.name(), thing) {
                    own_in.push(id);
                }
            }
            "emulator" if ways.iter().any(|(relation, _)| relation.starts_with("granted_")) => {
                granted.extend(EmulatorId::parse(&thing.id));
            }
            _ => {}
        }
    }
    EmulatorScope { all_of: Scope::Tenants(all_of), owner, own_in: Scope::Tenants(own_in), granted }
}

/// Whether the other has a role in a tenant whose members the caller may see.
pub(crate) fn shares_a_tenant(engine: &Engine, caller: &Caller, other: &Subject) -> bool {
    let holder = Holder::One(other.thing());
    let tenants: Vec<Thing> = {
        let known = engine.permissions.known();
        let held = known.tuples.held_by(&holder);
        held.filter(|(object, relation)| &*object.kind == "tenant" && Role::parse(relation).is_some())
            .map(|(object, _)| object.clone())
            .collect()
    };
    let sees =
        |tenant: &Thing| decide(engine, caller, Relation::CanViewMembers.name(), tenant) == Decision::Allowed;
    tenants.iter().any(sees)
}

/// What the caller may not see is answered like what is not there; only the audit is told the difference.
pub(crate) fn invisible(engine: &Engine, noun: &'static str, object: &Object) -> Error {
    let thing = object.thing();
    let absent = Error::not_found(noun);
    let there = engine.permissions.known().tuples.knows(&thing, &["system", "tenant"]);
    if there { absent.about(thing.to_string()) } else { absent }
}

/// The tenant that a thing belongs to, if it belongs to one.
pub fn tenant_of(engine: &Engine, object: &Thing) -> Option<TenantId> {
    owner_of(&engine.permissions.known().tuples, object)
}

fn owner_of(tuples: &Tuples, object: &Thing) -> Option<TenantId> {
    if &*object.kind == "tenant" {
        return TenantId::parse(&object.id);
    }
    tuples.pointed_to(object, "tenant").find_map(|tenant| TenantId::parse(&tenant.id))
}

/// Whether a person would still be admin of this once the tuples are gone. The caller holds the relations.
pub(crate) async fn keeps_an_admin(tx: &mut Tx, object: &Thing, gone: &[Tuple]) -> Result<bool> {
    let mut open = vec![(object.clone(), "admin".to_owned())];
    let mut seen = HashSet::new();
    while let Some((object, relation)) = open.pop() {
        if !seen.insert((object.clone(), relation.clone())) {
            continue;
        }
        for tuple in relations::given(tx, &object, &relation).await? {
            if gone.contains(&tuple) {
                continue;
            }
            match tuple.holder {
                Holder::One(one) if &*one.kind == "user" => {
                    let account = Thing::new("user_account", &one.id);
                    let held = relations::given(tx, &account, Relation::Holder.name()).await?;
                    if held.iter().any(|tuple| !gone.contains(tuple)) {
                        return Ok(true);
                    }
                }
                Holder::Set(set, relation) => open.push((set, relation.to_string())),
                Holder::One(_) | Holder::Everyone(_) => {}
            }
        }
    }
    Ok(false)
}

/// Refuses a change by which the last person who administers this would be gone.
pub(crate) async fn require_an_admin_left(tx: &mut Tx, object: &Thing, gone: &[Tuple]) -> Result<()> {
    if !keeps_an_admin(tx, object, &[]).await? || keeps_an_admin(tx, object, gone).await? {
        return Ok(());
    }
    let detail = format!("This would leave {object} without an admin. Make someone else an admin first.");
    Err(Error::conflict("last_admin", detail))
}

/// A question that cannot be asked of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub code: &'static str,
    pub message: String,
}

/// Whether a subject holds a relation that the caller names itself. What is absent or invisible is simply not held.
pub fn ask(
    engine: &Engine,
    caller: &Caller,
    subject: Option<&Subject>,
    relation: &str,
    object: &str,
) -> Result<Decision, Unknown> {
    let thing = askable(relation, object)?;
    match subject {
        Some(other) if *other != caller.subject => {
            let held = holds(engine, &other.thing(), relation, &thing);
            Ok(if held { Decision::Allowed } else { Decision::Missing })
        }
        _ => Ok(decide(engine, caller, relation, &thing)),
    }
}

/// The object, if the question can be asked of the model.
fn askable(relation: &str, object: &str) -> Result<Thing, Unknown> {
    let unknown = |code, message| Unknown { code, message };
    let thing = Thing::parse(object)
        .ok_or_else(|| unknown("invalid_object", "an object is written as type:id".to_owned()))?;
    if !SCHEMA.has_type(&thing.kind) {
        return Err(unknown("unknown_object_type", format!("there is no type {}", thing.kind)));
    }
    if SCHEMA.rule(&thing.kind, relation).is_none() {
        return Err(unknown("unknown_relation", format!("{} has no relation {relation}", thing.kind)));
    }
    Ok(thing)
}

/// Lets the caller ask about someone else: on things of tenants whose members it may see, and on nothing else.
/// What is foreign is answered like what is absent; only the audit is told which it was.
pub fn require_insight<'a>(
    engine: &Engine,
    caller: &Caller,
    objects: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let may = |relation: Relation, object: &Object| {
        decide(engine, caller, relation.name(), &object.thing()) == Decision::Allowed
    };
    if may(Relation::Admin, &Object::system()) {
        return Ok(());
    }
    for object in objects {
        let thing = Thing::parse(object);
        let tenant = thing.as_ref().and_then(|thing| tenant_of(engine, thing));
        if !tenant.is_some_and(|tenant| may(Relation::CanViewMembers, &tenant.object())) {
            let detail = "You may ask about others only on things of tenants whose members you see.";
            let refused = Error::forbidden(detail);
            return Err(match thing {
                Some(thing) => refused.about(thing.to_string()),
                None => refused,
            });
        }
    }
    Ok(())
}

/// Why a relation holds, one step a line; or what would make it hold, as far as the caller may see the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Explanation {
    Because(Vec<String>),
    Missing(Vec<String>),
}

pub fn explain(
    engine: &Engine,
    caller: &Caller,
    subject: &Subject,
    relation: &str,
    object: &Thing,
) -> Explanation {
    let known = engine.permissions.known();
    if let Some(path) = check::explain(&SCHEMA, &known.tuples, &subject.thing(), relation, object) {
        return Explanation::Because(path);
    }
    let me = caller.subject.thing();
    let visible = SCHEMA.rule(&object.kind, "can_view").is_none()
        || check::check(&SCHEMA, &known.tuples, &me, "can_view", object);
    // To say what is missing on something invisible would say that it is there.
    Explanation::Missing(if visible {
        check::ways(&SCHEMA, &known.tuples, relation, object)
    } else {
        Vec::new()
    })
}

/// Everything that was given to the caller, as it may use it with this credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub admin: bool,
    pub global: Vec<String>,
    pub tenants: Vec<TenantSummary>,
    /// Sorted; one page of them.
    pub grants: Vec<Grant>,
    pub next: Option<String>,
    pub revision: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSummary {
    pub id: TenantId,
    pub relations: Vec<String>,
    pub permissions: Vec<String>,
    pub groups: Vec<GroupId>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub object: String,
    pub relation: String,
    /// The subject itself, or the set through which it holds.
    pub via: String,
}

/// How many grants a page of the summary holds.
const GRANTS: usize = 1000;

pub fn summarise(engine: &Engine, caller: &Caller, after: Option<&str>) -> Summary {
    let now = engine.now();
    let subject = caller.subject.thing();
    let known = engine.permissions.known();
    let holds =
        |relation: &str, object: &Thing| check::check(&SCHEMA, &known.tuples, &subject, relation, object);
    let open = |relation: &str, object: &Thing| {
        limit(&known.tuples, &caller.credential, relation, object, now).is_none() && holds(relation, object)
    };
    let permissions = |object: &Thing| -> Vec<String> {
        let rights = SCHEMA.relations(&object.kind).filter(|relation| relation.starts_with("can_"));
        rights.filter(|relation| open(relation, object)).map(str::to_owned).collect()
    };
    let system = Object::system().thing();
    let reached = known.tuples.reach(&subject);
    let mut tenants: Vec<&Thing> =
        reached.keys().filter(|thing| &*thing.kind == "tenant" && open("can_view", thing)).collect();
    tenants.sort_unstable();
    let groups_of = |tenant: &Thing| -> Vec<GroupId> {
        let groups = reached.keys().filter(|thing| &*thing.kind == "group" && holds("member", thing));
        let groups = groups.filter(|group| known.tuples.pointed_to(group, "tenant").any(|of| of == tenant));
        let mut ids: Vec<GroupId> = groups.filter_map(|group| GroupId::parse(&group.id)).collect();
        ids.sort_unstable();
        ids
    };
    let summaries = tenants.into_iter().filter_map(|tenant| {
        let roles = Role::ALL.into_iter().map(Role::relation).filter(|role| holds(role, tenant));
        let mut relations: Vec<String> = roles.map(str::to_owned).collect();
        relations.sort_unstable();
        Some(TenantSummary {
            id: TenantId::parse(&tenant.id)?,
            relations,
            permissions: permissions(tenant),
            groups: groups_of(tenant),
        })
    });
    let summaries = summaries.collect();
    let is_grant = |relation: &str| relation.starts_with("granted_");
    let mut grants: Vec<Grant> = reached
        .iter()
        .flat_map(|(object, ways)| ways.iter().map(move |(relation, via)| (object, relation, via)))
        .filter(|(_, relation, _)| is_grant(relation))
        .map(|(object, relation, via)| Grant {
            object: object.to_string(),
            relation: relation.to_string(),
            via: via.to_string(),
        })
        .filter(|grant| after.is_none_or(|after| grant.key().as_str() > after))
        .collect();
    grants.sort_unstable_by_key(Grant::key);
    let next = (grants.len() > GRANTS).then(|| grants[GRANTS - 1].key());
    grants.truncate(GRANTS);
    Summary {
        admin: holds(Relation::Admin.name(), &system),
        global: permissions(&system),
        tenants: summaries,
        grants,
        next,
        revision: known.revision,
    }
}

impl Grant {
    fn key(&self) -> String {
        format!("{} {} {}", self.object, self.relation, self.via)
    }
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
