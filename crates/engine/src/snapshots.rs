//! Snapshots: what emulators boot from, and which of them a newcomer gets.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use paddock_model::backups::{BackupFilter, BackupId, BackupPhase};
use paddock_model::caller::Caller;
use paddock_model::devices::{DeviceType, Image};
use paddock_model::drivers::disk_pools::PoolCapacity;
use paddock_model::emulators::EmulatorId;
use paddock_model::error::{Fault, Kind, Problem};
use paddock_model::expected::Expected;
use paddock_model::id::uuid_v7;
use paddock_model::labels::Labels;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::page::{Page, PageRequest};
use paddock_model::permissions::tuples::Holder;
use paddock_model::permissions::{Object, Relation};
use paddock_model::retention::Kept;
use paddock_model::scopes::Scope;
use paddock_model::slug::Slug;
use paddock_model::snapshots::{
    CAPTURE_FAILED, Origin, PromotionProblem, RESERVED, Snapshot, SnapshotFilter, SnapshotState, Trust,
};
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result, Timestamp};
use paddock_store::layers::{Layer, LayerState};
use paddock_store::retention::{self as judged, Annotation};
use paddock_store::templates::Template;
use paddock_store::{
    Tx, backups, disks, emulators as emulator_rows, layers, relations, snapshot_children, snapshots,
    templates, verifications,
};
use serde_json::json;

use crate::audit::Actor;
use crate::permissions::Decision;
use crate::templates::prove_again;
use crate::trees::Key;
use crate::{Engine, audit, idempotency_keys, permissions, retention};

/// A snapshot, and what it takes.
pub struct Described {
    pub snapshot: Snapshot,
    pub layer: Option<Layer>,
    /// Of those that the caller may see.
    pub child_count: i64,
    /// What would be freed if it were deleted.
    pub exclusive_bytes: i64,
    /// What others stand on as well.
    pub shared_bytes: i64,
    /// The clones of it that the caller may see; only of a snapshot that was asked for by name.
    pub source_volumes: Option<Vec<SourceVolume>>,
    /// What was wanted of its memory, and what has become of that.
    pub memory: Option<Template>,
    /// How relevant it is; none until retention has looked at it.
    pub annotation: Option<Annotation>,
    /// Why retention leaves it; only of a snapshot that was asked for by name.
    pub kept_because: Option<Vec<Kept>>,
    /// Its backups that the caller may see, the newest first; only of a snapshot that was asked for by name.
    pub backups: Option<Vec<BackupId>>,
}

impl Described {
    /// Whether clones of it resume.
    pub fn has_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(Template::is_usable)
    }
}

/// A disk that is a clone of a snapshot.
pub struct SourceVolume {
    pub volume: DiskId,
    pub emulator: EmulatorId,
    pub since: Timestamp,
}

/// More are not named; that there are some is what matters.
const VOLUMES_NAMED: i64 = 100;
const BACKUPS_NAMED: u32 = 100;

pub async fn list(
    engine: &Engine,
    caller: &Caller,
    filter: &SnapshotFilter,
    page: PageRequest,
) -> Result<Page<Described>> {
    let mut tx = engine.store.read().await?;
    let scope = permissions::scope(engine, caller);
    let first = if is_picker(filter) { default_root(engine, &mut tx, caller, filter).await? } else { None };
    let filter = SnapshotFilter { but: first.as_ref().map(|root| root.name.clone()), ..filter.clone() };
    let mut found = snapshots::list(&mut tx, &scope, &filter, page).await?;
    if page.after.is_none() {
        found.items.splice(0..0, first);
    }
    let items = describe(&mut tx, &scope, found.items).await?;
    Ok(Page { items, next: found.next })
}

/// Whether somebody looks for something to deploy.
fn is_picker(filter: &SnapshotFilter) -> bool {
    let SnapshotFilter { deployable, root, state, parent, group, labels, .. } = filter;
    let narrowed = state.is_some() || parent.is_some() || group.is_some() || !labels.0.is_empty();
    *deployable == Some(true) && *root != Some(false) && !narrowed
}

/// The root that a newcomer would get, of those that the filter names.
async fn default_root(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    filter: &SnapshotFilter,
) -> Result<Option<Snapshot>> {
    let scope = filter.tenant.map_or_else(|| permissions::scope(engine, caller), Scope::one);
    let fits = |snapshot: &Snapshot| {
        filter.tenant.is_none_or(|tenant| snapshot.tenant == Some(tenant))
            && may_be_default(engine, caller, filter.device_type, snapshot)
    };
    Ok(snapshots::newest_roots(tx, &scope, filter.device_type).await?.into_iter().find(fits))
}

fn may_be_default(
    engine: &Engine,
    caller: &Caller,
    device_type: Option<DeviceType>,
    snapshot: &Snapshot,
) -> bool {
    snapshot.is_deployable()
        && device_type.is_none_or(|kind| snapshot.image.device_type == kind)
        && permissions::decide(engine, caller, Relation::CanDeploy.name(), &snapshot.object().thing())
            == Decision::Allowed
}

pub async fn get(engine: &Engine, caller: &Caller, name: &str) -> Result<Described> {
    let mut tx = engine.store.read().await?;
    let snapshot = find(engine, &mut tx, caller, name).await?;
    describe_one(engine, &mut tx, caller, snapshot).await
}

pub(crate) async fn describe_one(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    snapshot: Snapshot,
) -> Result<Described> {
    let volumes = source_volumes(engine, tx, caller, &snapshot.name).await?;
    let scope = permissions::scope(engine, caller);
    let described = describe(tx, &scope, vec![snapshot]).await?.pop();
    let described = described.ok_or_else(|| Error::internal("one snapshot is described by one"))?;
    let judged = judged::find(tx, &described.snapshot.name).await?;
    let kept_because = match &judged {
        Some(judged) => Some(retention::kept_because(tx, judged, engine.now()).await?),
        None => None,
    };
    let backups = Some(backups_of(engine, tx, caller, &described.snapshot).await?);
    Ok(Described { source_volumes: Some(volumes), kept_because, backups, ..described })
}

/// The same few reads for any number of snapshots, and one more for each layer of a lineage that is one's alone.
async fn describe(tx: &mut Tx, scope: &Scope, found: Vec<Snapshot>) -> Result<Vec<Described>> {
    let names: Vec<Slug> = found.iter().map(|snapshot| snapshot.name.clone()).collect();
    let mut children: HashMap<String, i64> = HashMap::new();
    for (name, count) in snapshot_children::counts(tx, scope, &names).await? {
        *children.entry(name).or_default() += count;
    }
    let mut annotations: HashMap<Slug, Annotation> = HashMap::new();
    for annotation in judged::annotations(tx, &names).await? {
        annotations.insert(annotation.name.clone(), annotation);
    }
    let mut memories: HashMap<Slug, Template> = HashMap::new();
    for template in templates::of_snapshots(tx, &names).await? {
        memories.insert(template.snapshot.clone(), template);
    }
    let mut known: HashMap<LayerId, Layer> = HashMap::new();
    let mut wanted: Vec<LayerId> = found.iter().map(|snapshot| snapshot.layer).collect();
    while !wanted.is_empty() {
        let below = layers::find_all(tx, &wanted).await?;
        // What several stand on is nobody's alone, nor is anything below it.
        let alone = below.iter().filter(|layer| layer.refs == 1).filter_map(|layer| layer.parent);
        wanted = alone.filter(|id| !known.contains_key(id)).collect();
        known.extend(below.into_iter().map(|layer| (layer.id, layer)));
    }
    // What is shared begins where the walk ends, so that the two are always the whole, also of a layer that never came to be.
    let taken = |layer: LayerId| {
        let mut exclusive = 0;
        let mut next = known.get(&layer);
        while let Some(layer) = next.filter(|layer| layer.refs == 1) {
            exclusive += layer.allocated_bytes;
            next = layer.parent.and_then(|id| known.get(&id));
        }
        (exclusive, next.map_or(0, |layer| layer.reach_bytes))
    };
    let mut describe_one = |snapshot: Snapshot| {
        let (exclusive_bytes, shared_bytes) = taken(snapshot.layer);
        Described {
            layer: known.get(&snapshot.layer).cloned(),
            child_count: children.get(snapshot.name.as_str()).copied().unwrap_or(0),
            exclusive_bytes,
            shared_bytes,
            source_volumes: None,
            memory: memories.remove(&snapshot.name),
            annotation: annotations.remove(&snapshot.name),
            kept_because: None,
            backups: None,
            snapshot,
        }
    };
    Ok(found.into_iter().map(&mut describe_one).collect())
}

/// Those that are done. An earlier snapshot of the same name may have left some, which are not this one's.
async fn backups_of(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    snapshot: &Snapshot,
) -> Result<Vec<BackupId>> {
    let scope = permissions::owned_scope(engine, caller, "backup");
    let filter = BackupFilter {
        phase: Some(BackupPhase::Completed),
        snapshot: Some(snapshot.name.to_string()),
        ..BackupFilter::default()
    };
    let found = backups::list(tx, &scope, &filter, PageRequest { limit: BACKUPS_NAMED, after: None }).await?;
    let own = found.items.into_iter().filter(|backup| backup.layer == snapshot.layer);
    Ok(own.map(|backup| backup.id).collect())
}

async fn source_volumes(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    name: &Slug,
) -> Result<Vec<SourceVolume>> {
    let scope = permissions::emulator_scope(engine, caller);
    let mut volumes = Vec::new();
    for disk in disks::of_snapshot(tx, name, VOLUMES_NAMED).await? {
        if emulator_rows::find(tx, &scope, disk.emulator).await?.is_some() {
            volumes.push(SourceVolume { volume: disk.id, emulator: disk.emulator, since: disk.created_at });
        }
    }
    Ok(volumes)
}

pub(crate) async fn find(engine: &Engine, tx: &mut Tx, caller: &Caller, name: &str) -> Result<Snapshot> {
    find_within(engine, tx, &permissions::scope(engine, caller), name).await
}

async fn find_within(engine: &Engine, tx: &mut Tx, scope: &Scope, name: &str) -> Result<Snapshot> {
    let name = Slug::parse(name).ok_or_else(|| Error::not_found("snapshot"))?;
    let snapshot = snapshots::find(tx, scope, &name).await?;
    snapshot
        .ok_or_else(|| permissions::invisible(engine, "snapshot", &paddock_model::snapshots::object(&name)))
}

pub(crate) async fn find_to_change(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    name: &str,
) -> Result<Snapshot> {
    let name = Slug::parse(name).ok_or_else(|| Error::not_found("snapshot"))?;
    let scope = permissions::scope(engine, caller);
    let snapshot = snapshots::find_to_change(tx, &scope, &name).await?;
    snapshot
        .ok_or_else(|| permissions::invisible(engine, "snapshot", &paddock_model::snapshots::object(&name)))
}

/// A tenant's snapshot that is wanted, and whose layer is known.
pub(crate) struct Draft {
    pub name: Slug,
    pub tenant: TenantId,
    pub parent: Option<Slug>,
    pub layer: LayerId,
    pub image: Image,
    pub origin: Origin,
    pub group: Option<String>,
    pub trust: Trust,
    pub labels: Labels,
}

/// Records that it is wanted, and whose it is.
pub(crate) async fn begin(engine: &Engine, tx: &mut Tx, caller: &Caller, draft: Draft) -> Result<Snapshot> {
    let now = engine.now();
    let snapshot = Snapshot {
        name: draft.name,
        id: uuid_v7(now, engine.random()),
        tenant: Some(draft.tenant),
        parent: draft.parent,
        layer: draft.layer,
        state: SnapshotState::Creating,
        problems: Vec::new(),
        fault: None,
        image: draft.image,
        rooted_at: None,
        rooted_by: None,
        origin: draft.origin,
        group: draft.group,
        trust: draft.trust,
        consistency: None,
        verified: None,
        labels: draft.labels,
        created_by: Some(caller.subject.to_string()),
        created_at: now,
        updated_at: now,
        last_used_at: None,
        use_count: 0,
        generation: 1,
    };
    if !snapshots::insert(tx, &snapshot).await? {
        // Names are everyone's: that one is taken is all that is told.
        let detail = format!("The name {} is taken. Choose another one.", snapshot.name);
        return Err(Error::conflict("name_taken", detail));
    }
    let (object, holders) =
        (snapshot.object(), [("tenant", draft.tenant.object().thing()), ("owner", caller.subject.thing())]);
    for (relation, holder) in holders {
        relations::give(tx, &object.given_to(relation, Holder::One(holder)), now).await?;
    }
    Ok(snapshot)
}

/// Commits what was begun.
pub(crate) async fn announce(
    engine: &Engine,
    mut tx: Tx,
    caller: &Caller,
    snapshot: Snapshot,
    details: serde_json::Value,
) -> Result<Described> {
    let (tenant, object) = (snapshot.tenant, snapshot.object());
    audit::record(engine, &mut tx, caller, "snapshots.create", tenant, object, details).await?;
    idempotency_keys::remember(&mut tx, caller, &snapshot).await?;
    let described = describe_one(engine, &mut tx, caller, snapshot).await?;
    engine.commit(tx).await?;
    Ok(described)
}

/// What it is to be called, or something like `like` with an end that nobody else has.
pub(crate) fn name(wanted: Option<&str>, like: &str, layer: LayerId) -> Result<Slug> {
    if let Some(name) = wanted {
        return read_name(name);
    }
    let mut stem: String = like
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .take(48)
        .collect();
    stem = stem.trim_matches('-').to_owned();
    let id = layer.to_string();
    let end = &id[id.len() - 10..];
    let slug = Slug::parse(&format!("{stem}-{end}")).or_else(|| Slug::parse(&format!("snapshot-{end}")));
    slug.ok_or_else(|| Error::internal("letters and digits make no name"))
}

fn read_name(text: &str) -> Result<Slug> {
    let invalid = |message: &str| {
        let fault =
            Fault { pointer: "/name".into(), code: "invalid_name".into(), message: message.to_owned() };
        Error::invalid(vec![fault])
    };
    if RESERVED.contains(&text) {
        return Err(invalid("this name stands for something else; choose another one"));
    }
    Slug::parse(text)
        .ok_or_else(|| invalid("up to 63 lower-case letters, digits and hyphens; no hyphen at the ends"))
}

/// A snapshot and what was derived from it.
pub struct Node {
    pub described: Described,
    pub children: Vec<Node>,
}

/// The deepest tree that is drawn.
const GENERATIONS: usize = 100;

/// Snapshots as they were derived from each other: all, or those from one on. Whose parent the caller may not see is
/// drawn below the nearest ancestor that it may. It is written out once for all who see the same, until something in it changes.
pub async fn tree(
    engine: &Engine,
    caller: &Caller,
    root: Option<&str>,
    depth: Option<usize>,
    write: fn(Vec<Node>) -> Result<Vec<u8>>,
) -> Result<Bytes> {
    let depth = depth.unwrap_or(GENERATIONS).min(GENERATIONS);
    // Asked for once: what is kept for this scope must be what this scope shows, whatever is given or taken meanwhile.
    let scope = permissions::scope(engine, caller);
    let write = async {
        let (described, parents) = read_tree(engine, &scope, root, depth).await?;
        // A large one takes long, and this thread has connections to serve.
        let written = tokio::task::spawn_blocking(move || write(grow(described, &parents, depth)));
        Ok(written.await.map_err(Error::internal)??.into())
    };
    engine.trees.recall(&engine.store, Key::new(&scope, root, depth), write).await
}

/// What is in a tree, and whose parent is which.
async fn read_tree(
    engine: &Engine,
    scope: &Scope,
    root: Option<&str>,
    depth: usize,
) -> Result<(Vec<Described>, HashMap<Slug, Slug>)> {
    let mut tx = engine.store.read().await?;
    let found = match root {
        None => snapshots::list_all(&mut tx, scope).await?,
        Some(name) => {
            let mut found = vec![find_within(engine, &mut tx, scope, name).await?];
            let mut parents = vec![found[0].name.clone()];
            for _ in 1..depth {
                let children = snapshots::list_children(&mut tx, scope, &parents).await?;
                if children.is_empty() {
                    break;
                }
                parents = children.iter().map(|child| child.name.clone()).collect();
                found.extend(children);
            }
            found
        }
    };
    let top = root.and_then(Slug::parse);
    let parents = visible_parents(&mut tx, &found, top.as_ref()).await?;
    let described = describe(&mut tx, scope, found).await?;
    Ok((described, parents))
}

/// For each snapshot the nearest ancestor that is among them; none for the first of a tree.
async fn visible_parents(tx: &mut Tx, found: &[Snapshot], top: Option<&Slug>) -> Result<HashMap<Slug, Slug>> {
    let visible: HashSet<&Slug> = found.iter().map(|snapshot| &snapshot.name).collect();
    let mut parents = HashMap::new();
    let mut hidden: HashMap<Slug, Vec<Slug>> = HashMap::new();
    for snapshot in found.iter().filter(|snapshot| Some(&snapshot.name) != top) {
        match &snapshot.parent {
            Some(parent) if visible.contains(parent) => {
                parents.insert(snapshot.name.clone(), parent.clone());
            }
            Some(parent) => hidden.entry(parent.clone()).or_default().push(snapshot.name.clone()),
            None => {}
        }
    }
    // Each round looks one generation further up.
    while !hidden.is_empty() {
        let names: Vec<Slug> = hidden.keys().cloned().collect();
        let mut further: HashMap<Slug, Vec<Slug>> = HashMap::new();
        for (name, above) in snapshots::parents(tx, &names).await? {
            let (Some(name), Some(above)) = (Slug::parse(&name), Slug::parse(&above)) else { continue };
            let waiting = hidden.remove(&name).unwrap_or_default();
            if visible.contains(&above) {
                parents.extend(waiting.into_iter().map(|child| (child, above.clone())));
            } else {
                further.entry(above).or_default().extend(waiting);
            }
        }
        hidden = further;
    }
    Ok(parents)
}

/// Puts everything below its parent, in the order in which it came.
fn grow(described: Vec<Described>, parents: &HashMap<Slug, Slug>, depth: usize) -> Vec<Node> {
    let mut below: HashMap<Option<Slug>, Vec<Described>> = HashMap::new();
    for one in described {
        below.entry(parents.get(&one.snapshot.name).cloned()).or_default().push(one);
    }
    fn branch(
        below: &mut HashMap<Option<Slug>, Vec<Described>>,
        parent: &Option<Slug>,
        depth: usize,
    ) -> Vec<Node> {
        if depth == 0 {
            return Vec::new();
        }
        let children = below.remove(parent).unwrap_or_default();
        let node = |described: Described| {
            let children = branch(below, &Some(described.snapshot.name.clone()), depth - 1);
            Node { described, children }
        };
        children.into_iter().map(node).collect()
    }
    branch(&mut below, &None, depth)
}

/// Marks a snapshot for deletion; a loop purges it. What was derived from it keeps its bytes.
pub async fn delete(engine: &Engine, caller: &Caller, name: &str, expected: &Expected) -> Result<Described> {
    let mut tx = engine.store.begin().await?;
    let snapshot = find_to_change(engine, &mut tx, caller, name).await?;
    permissions::require(engine, caller, Relation::CanDelete, &snapshot.object())?;
    expected.require(snapshot.generation)?;
    if snapshot.state == SnapshotState::Deleting {
        return describe_one(engine, &mut tx, caller, snapshot).await;
    }
    if snapshot.is_root() {
        let detail = "It is a retention root. Demote it first, if it is really to go.";
        return Err(Error::conflict("is_root", detail));
    }
    let clones = disks::of_snapshot(&mut tx, &snapshot.name, VOLUMES_NAMED).await?;
    if !clones.is_empty() {
        let visible = source_volumes(engine, &mut tx, caller, &snapshot.name).await?;
        let problem = |volume: &SourceVolume| Problem {
            code: "volume".into(),
            message: format!("{} of {}", volume.volume, volume.emulator),
        };
        let detail = "Emulators run on clones of it. Delete them or swap their snapshot first.";
        return Err(Error::conflict("in_use", detail).with_problems(visible.iter().map(problem).collect()));
    }
    let changed = change(engine, &mut tx, &snapshot, |after| after.state = SnapshotState::Deleting).await?;
    let (tenant, object) = (changed.tenant, changed.object());
    audit::record(engine, &mut tx, caller, "snapshots.delete", tenant, object, json!({})).await?;
    let described = describe_one(engine, &mut tx, caller, changed).await?;
    engine.commit(tx).await?;
    Ok(described)
}

/// Marks a snapshot for deletion as retention does: only where nothing protects it at this very moment.
pub(crate) async fn release(engine: &Engine, name: &Slug, why: serde_json::Value) -> Result<bool> {
    let mut tx = engine.store.begin().await?;
    let Some(snapshot) = snapshots::find_any_to_change(&mut tx, name).await? else { return Ok(false) };
    let Some(judged) = judged::find(&mut tx, name).await? else { return Ok(false) };
    if retention::protections(&mut tx, &judged, engine.now()).await?.protect() {
        return Ok(false);
    }
    let changed = change(engine, &mut tx, &snapshot, |after| after.state = SnapshotState::Deleting).await?;
    let actor = Actor { request_id: "retention".to_owned(), ..Actor::default() };
    let (tenant, object) = (changed.tenant, changed.object());
    audit::record(engine, &mut tx, actor, "snapshots.release", tenant, object, why).await?;
    engine.commit(tx).await?;
    Ok(true)
}

/// Protects a snapshot from retention. Refused with everything that speaks against it, unless it is forced.
pub async fn promote_root(engine: &Engine, caller: &Caller, name: &str, force: bool) -> Result<Described> {
    let mut tx = engine.store.begin().await?;
    let snapshot = find_to_change(engine, &mut tx, caller, name).await?;
    permissions::require(engine, caller, Relation::CanPromoteRoot, &snapshot.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    let layer = layers::find(&mut tx, snapshot.layer).await?;
    let (below, bytes) = layer.map_or((None, LayerState::Void), |layer| (layer.parent, layer.state));
    let problems = if snapshot.is_root() {
        // It was weighed before; what is a root stays one, however often it is said.
        Vec::new()
    } else {
        snapshot.promotion_problems(stands_on_all(&mut tx, below).await?)
    };
    if !problems.is_empty() && !force {
        let detail = format!(
            "{} is not safe as a root, for what the problems say. Mend them, or say `force` to override them.",
            snapshot.name
        );
        let problems = problems
            .iter()
            .map(|problem| Problem { code: problem.code().into(), message: problem.message().to_owned() });
        return Err(Error::conflict("promote_unsafe", detail).with_problems(problems.collect()));
    }
    let revived = problems.contains(&PromotionProblem::Deleting);
    let by = caller.subject.to_string();
    let changed = change(engine, &mut tx, &snapshot, |after| {
        if !after.is_root() {
            (after.rooted_at, after.rooted_by) = (Some(after.updated_at), Some(by));
        }
        if revived {
            let proved = after.verified.is_some() || after.tenant.is_none();
            after.state = match bytes {
                // Whoever brings them goes on from there.
                LayerState::Importing | LayerState::Capturing => SnapshotState::Creating,
                LayerState::Ready if proved && after.problems.is_empty() => SnapshotState::Ready,
                _ => SnapshotState::Faulted,
            };
            if after.state == SnapshotState::Faulted && after.problems.is_empty() {
                let missing = bytes == LayerState::Void;
                let pending = PromotionProblem::VerificationPending.code();
                after.problems = vec![if missing { CAPTURE_FAILED } else { pending }.to_owned()];
            }
        }
    });
    let changed = changed.await?;
    let overridden: Vec<&str> = problems.iter().map(|problem| problem.code()).collect();
    let details = if force { json!({ "force": true, "overridden": overridden }) } else { json!({}) };
    let (tenant, object) = (changed.tenant, changed.object());
    audit::record(engine, &mut tx, caller, "snapshots.promote_root", tenant, object, details).await?;
    idempotency_keys::remember(&mut tx, caller, &changed).await?;
    let described = describe_one(engine, &mut tx, caller, changed).await?;
    engine.commit(tx).await?;
    Ok(described)
}

/// Retention may judge it again like any other.
pub async fn demote_root(engine: &Engine, caller: &Caller, name: &str) -> Result<Described> {
    let mut tx = engine.store.begin().await?;
    let snapshot = find_to_change(engine, &mut tx, caller, name).await?;
    permissions::require(engine, caller, Relation::CanDemoteRoot, &snapshot.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, engine.now()).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    let changed = change(engine, &mut tx, &snapshot, |after| {
        (after.rooted_at, after.rooted_by) = (None, None);
    });
    let changed = changed.await?;
    let (tenant, object) = (changed.tenant, changed.object());
    audit::record(engine, &mut tx, caller, "snapshots.demote_root", tenant, object, json!({})).await?;
    idempotency_keys::remember(&mut tx, caller, &changed).await?;
    let described = describe_one(engine, &mut tx, caller, changed).await?;
    engine.commit(tx).await?;
    Ok(described)
}

/// Has a throw-away clone booted again. Until that is done it stays as deployable as it was.
pub async fn verify(engine: &Engine, caller: &Caller, name: &str) -> Result<Described> {
    let now = engine.now();
    let mut tx = engine.store.begin().await?;
    let snapshot = find_to_change(engine, &mut tx, caller, name).await?;
    permissions::require(engine, caller, Relation::CanVerify, &snapshot.object())?;
    if let Some(earlier) = idempotency_keys::recall(&mut tx, caller, now).await? {
        return describe_one(engine, &mut tx, caller, earlier).await;
    }
    let bytes = layers::find(&mut tx, snapshot.layer).await?;
    let whole = bytes.is_some_and(|layer| matches!(layer.state, LayerState::Ready | LayerState::Quarantined));
    if !whole || matches!(snapshot.state, SnapshotState::Creating | SnapshotState::Deleting) {
        let detail = format!("There is nothing to boot: the snapshot is {}.", snapshot.state.name());
        return Err(Error::conflict("invalid_state", detail));
    }
    verifications::insert(&mut tx, &snapshot.name, now).await?;
    prove_again(engine, &mut tx, engine.devices()?, &snapshot.name).await?;
    let (tenant, object) = (snapshot.tenant, snapshot.object());
    audit::record(engine, &mut tx, caller, "snapshots.verify", tenant, object, json!({})).await?;
    idempotency_keys::remember(&mut tx, caller, &snapshot).await?;
    let described = describe_one(engine, &mut tx, caller, snapshot).await?;
    engine.commit(tx).await?;
    Ok(described)
}

/// Whether every layer of a lineage is there and believed.
pub(crate) async fn stands_on_all(tx: &mut Tx, below: Option<LayerId>) -> Result<bool> {
    let mut next = below;
    while let Some(id) = next {
        match layers::find(tx, id).await? {
            Some(layer) if layer.state == LayerState::Ready => next = layer.parent,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The pool, as it was when it was last looked at.
pub struct DiskPool {
    pub name: String,
    pub capacity: PoolCapacity,
    /// As large as everything in it may still grow.
    pub committed_bytes: i64,
    /// On its way out.
    pub reclaimable_bytes: i64,
    pub warn_percent: i64,
    pub critical_percent: i64,
    /// How long until it is full at the present rate, and when that is; none while it does not fill up.
    pub full_in: Option<(Duration, Timestamp)>,
}

pub async fn diskpool(engine: &Engine, caller: &Caller) -> Result<Vec<DiskPool>> {
    permissions::require(engine, caller, Relation::CanViewDiskpool, &Object::system())?;
    let devices = engine.devices()?;
    let Some(capacity) = devices.capacity() else { return Ok(Vec::new()) };
    let reserved_bytes = devices.merges().reserved_bytes;
    let mut tx = engine.store.read().await?;
    Ok(vec![DiskPool {
        name: devices.pool.name().to_owned(),
        capacity,
        committed_bytes: disks::committed_bytes(&mut tx).await? + reserved_bytes,
        reclaimable_bytes: layers::removing_bytes(&mut tx).await?,
        warn_percent: devices.settings.warn_percent,
        critical_percent: devices.settings.critical_percent,
        full_in: devices.full_in().map(|left| (left, engine.now() + left)),
    }])
}

/// Records a change of a snapshot that was read to be changed.
async fn change(
    engine: &Engine,
    tx: &mut Tx,
    before: &Snapshot,
    change: impl FnOnce(&mut Snapshot),
) -> Result<Snapshot> {
    let mut after =
        Snapshot { updated_at: engine.now(), generation: before.generation + 1, ..before.clone() };
    change(&mut after);
    snapshots::update(tx, before, &after).await?;
    Ok(after)
}

/// The bytes are there: now a clone has to boot.
pub(crate) async fn await_verification(engine: &Engine, tx: &mut Tx, snapshot: &Snapshot) -> Result<()> {
    verifications::insert(tx, &snapshot.name, engine.now()).await?;
    let pending = |after: &mut Snapshot| {
        after.state = SnapshotState::Verifying;
        after.problems = vec![PromotionProblem::VerificationPending.code().to_owned()];
    };
    change(engine, tx, snapshot, pending).await.map(drop)
}

/// What a snapshot is from now on: its state, and what is wrong with it by code and for people.
pub(crate) async fn settle(
    engine: &Engine,
    tx: &mut Tx,
    snapshot: &Snapshot,
    state: SnapshotState,
    fault: Option<(&str, &str)>,
) -> Result<()> {
    let settled = |after: &mut Snapshot| {
        after.state = state;
        after.problems = fault.map(|(code, _)| code.to_owned()).into_iter().collect();
        after.fault = fault.map(|(_, message)| message.to_owned());
    };
    change(engine, tx, snapshot, settled).await.map(drop)
}

/// The snapshot that a new emulator is to boot from: the one that is named, or the newest deployable promoted root that
/// the caller may deploy in this tenant.
pub(crate) async fn choose(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    named: Option<&str>,
    device_type: Option<DeviceType>,
) -> Result<Snapshot> {
    if let Some(name) = named {
        let snapshot = find(engine, tx, caller, name).await?;
        permissions::require(engine, caller, Relation::CanDeploy, &snapshot.object())?;
        if snapshot.tenant.is_some_and(|owner| owner != tenant) {
            let detail =
                "The snapshot belongs to another tenant than the emulator would. Use the snapshot's tenant.";
            return Err(Error::conflict("other_tenant", detail));
        }
        return if snapshot.is_deployable() { Ok(snapshot) } else { Err(not_deployable(&snapshot)) };
    }
    let root = roots(engine, tx, caller, tenant, device_type).await?.into_iter().next();
    root.ok_or_else(no_deployable_root)
}

/// The deployable promoted roots that the caller may deploy in this tenant, newest first.
pub(crate) async fn roots(
    engine: &Engine,
    tx: &mut Tx,
    caller: &Caller,
    tenant: TenantId,
    device_type: Option<DeviceType>,
) -> Result<Vec<Snapshot>> {
    let fits = |snapshot: &Snapshot| may_be_default(engine, caller, device_type, snapshot);
    let newest = snapshots::newest_roots(tx, &Scope::one(tenant), device_type).await?;
    Ok(newest.into_iter().filter(fits).collect())
}

pub(crate) fn no_deployable_root() -> Error {
    let detail = "There is no promoted root to deploy. Name a snapshot, or promote one.";
    Error::new(Kind::Conflict, "no_deployable_root", detail)
}

fn not_deployable(snapshot: &Snapshot) -> Error {
    let problems = snapshot.problems.iter().map(|code| Problem {
        code: code.clone().into(),
        message: format!("The snapshot is {}: {code}.", snapshot.state.name()),
    });
    Error::conflict("not_deployable", format!("The snapshot {} cannot be deployed yet.", snapshot.name))
        .with_problems(problems.collect())
}
