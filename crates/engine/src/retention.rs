//! Retention: the snapshots and layers as they stand, ready to be judged, and what is judged of one of them.

use std::collections::{HashMap, HashSet};

use paddock_model::ci::Outcome;
use paddock_model::layers::LayerId;
use paddock_model::retention::{Candidate, Forest, Kept, Layer, Mode, Reasons, Rules};
use paddock_model::retention_policies::{RetentionPolicy, in_force};
use paddock_model::snapshots::{INTEGRITY_MISMATCH, SnapshotState};
use paddock_model::tenants::TenantId;
use paddock_model::{Result, Timestamp};
use paddock_store::retention::Judged;
use paddock_store::{Tx, captures, disks, retention, verifications};

/// Everything that is judged at once; snapshots, groups and rows go by the same places.
pub(crate) struct Catalogue {
    pub forest: Forest,
    pub rows: Vec<Judged>,
    pub groups: Vec<Group>,
}

/// Snapshots of one tenant that belong together; those without a group belong together too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub tenant: Option<TenantId>,
    pub name: Option<String>,
}

/// Policies by their tenant.
pub(crate) struct Policies(HashMap<TenantId, Vec<RetentionPolicy>>);

impl Policies {
    pub fn of(policies: Vec<RetentionPolicy>) -> Self {
        let mut by_tenant: HashMap<TenantId, Vec<RetentionPolicy>> = HashMap::new();
        for policy in policies {
            by_tenant.entry(policy.tenant).or_default().push(policy);
        }
        Policies(by_tenant)
    }

    /// The platform's own snapshots are nobody's, and no policy is about them.
    pub fn in_force(&self, group: &Group, mode: Mode) -> Option<&RetentionPolicy> {
        in_force(self.0.get(&group.tenant?)?, group.name.as_deref(), mode)
    }
}

impl Catalogue {
    pub async fn read(tx: &mut Tx) -> Result<Catalogue> {
        let sources: HashSet<String> = retention::sources(tx).await?.into_iter().collect();
        let busy: HashSet<String> = retention::busy(tx).await?.into_iter().collect();
        let children: HashMap<String, i64> = retention::children(tx).await?.into_iter().collect();
        let disks: HashMap<LayerId, i64> = retention::disks(tx).await?.into_iter().collect();
        let bytes = retention::layers(tx).await?;
        let places: HashMap<LayerId, u32> = bytes.iter().map(|row| row.layer).zip(0..).collect();
        let layers: Vec<Layer> = bytes
            .iter()
            .map(|row| Layer {
                below: row.below.and_then(|below| places.get(&below).copied()),
                bytes: row.allocated_bytes,
                disks: disks.get(&row.layer).map_or(0, |count| u32::try_from(*count).unwrap_or(u32::MAX)),
            })
            .collect();
        let mut catalogue = Catalogue {
            forest: Forest { layers, ..Forest::default() },
            rows: Vec::new(),
            groups: Vec::new(),
        };
        let mut groups: HashMap<Group, u32> = HashMap::new();
        for row in retention::snapshots(tx).await? {
            // A snapshot without a layer came while we looked: the next look finds both.
            let Some(layer) = places.get(&row.layer).copied() else { continue };
            let key = Group { tenant: row.tenant, name: row.group.clone() };
            let group = *groups.entry(key).or_insert_with_key(|key| {
                catalogue.groups.push(key.clone());
                catalogue.groups.len() as u32 - 1
            });
            let name = row.name.as_str();
            let known = Known { source: sources.contains(name), busy: busy.contains(name) };
            let snapshot = Candidate {
                group,
                layer,
                children: children.get(name).copied().unwrap_or(0),
                depth: bytes[layer as usize].depth,
                ..candidate(&row, known)
            };
            catalogue.forest.snapshots.push(snapshot);
            catalogue.rows.push(row);
        }
        catalogue.forest.groups = catalogue.groups.len();
        Ok(catalogue)
    }

    /// The rules by which each group is judged.
    pub fn rules<'a>(
        &self,
        choose: impl Fn(&Group) -> Option<&'a RetentionPolicy>,
    ) -> Vec<Option<&'a Rules>> {
        self.groups.iter().map(|group| choose(group).map(|policy| &policy.rules)).collect()
    }
}

/// What a snapshot's own row does not say.
#[derive(Clone, Copy)]
struct Known {
    source: bool,
    busy: bool,
}

fn candidate(row: &Judged, known: Known) -> Candidate {
    Candidate {
        id: row.id,
        created_at: row.created_at,
        group: 0,
        layer: 0,
        state: row.state,
        deployable: row.state == SnapshotState::Ready && row.problems.is_empty(),
        root: row.rooted_at.is_some(),
        source_of_volume: known.source,
        busy: known.busy,
        quarantined: row.problems.iter().any(|problem| problem == INTEGRITY_MISMATCH),
        score: row.score,
        use_count: row.use_count,
        last_used_at: row.last_used_at,
        trust: row.trust,
        ref_protected: row.origin.job().and_then(|job| job.ref_protected),
        job_succeeded: row.origin.job().map(|job| job.outcome == Outcome::Success),
        children: 0,
        boot_ms: row.verified.as_ref().map(|boot| boot.duration_ms),
        depth: 0,
    }
}

/// What protects a snapshot at this moment, whatever was judged before.
pub(crate) async fn protections(tx: &mut Tx, row: &Judged, now: Timestamp) -> Result<Reasons> {
    let source = !disks::of_snapshot(tx, &row.name, 1).await?.is_empty();
    let busy =
        captures::find(tx, &row.name).await?.is_some() || verifications::find(tx, &row.name).await?.is_some();
    let candidate = candidate(row, Known { source, busy });
    let mut reasons = candidate.protections(now);
    // The platform's own are in no group of a tenant.
    let grouped = row.tenant.is_some();
    if candidate.deployable && grouped && !retention::has_newer_deployable(tx, row, now).await? {
        reasons.add(Kept::NewestDeployable);
    }
    Ok(reasons)
}

/// Everything that keeps a snapshot: what protects it now, and what its policy said when it was last judged.
pub(crate) async fn kept_because(tx: &mut Tx, row: &Judged, now: Timestamp) -> Result<Vec<Kept>> {
    let mut reasons = protections(tx, row, now).await?;
    let judged: Reasons = row.kept_because.iter().copied().collect();
    for kept in judged.beyond_protections() {
        reasons.add(kept);
    }
    Ok(reasons.iter().collect())
}
