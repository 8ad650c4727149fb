//! Snapshots and the layers below them, as retention sees them: by position, so that a million fit in a moment.

use uuid::Uuid;

use super::{Kept, Reasons, Relevance};
use crate::Timestamp;
use crate::snapshots::{SnapshotState, Trust};

/// Snapshots and all layers that any of them, or a disk, stands on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forest {
    pub layers: Vec<Layer>,
    pub snapshots: Vec<Candidate>,
    /// How many groups there are; snapshots name theirs by position.
    pub groups: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    pub below: Option<u32>,
    pub bytes: i64,
    /// How many disks stand on it itself.
    pub disks: u32,
}

/// A snapshot, and all that retention wants to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: Uuid,
    pub created_at: Timestamp,
    pub group: u32,
    pub layer: u32,
    pub state: SnapshotState,
    pub deployable: bool,
    pub root: bool,
    pub source_of_volume: bool,
    /// A capture or a verification of it is under way.
    pub busy: bool,
    pub quarantined: bool,
    /// None until it was annotated.
    pub score: Option<i64>,
    pub use_count: i64,
    pub last_used_at: Option<Timestamp>,
    pub trust: Trust,
    /// Whether it comes from a protected branch; none where it comes from no branch.
    pub ref_protected: Option<bool>,
    pub job_succeeded: Option<bool>,
    pub children: i64,
    /// How long the boot took that proved it.
    pub boot_ms: Option<i64>,
    /// How many layers its lineage has.
    pub depth: i64,
}

impl Candidate {
    /// It goes already; what it holds is as good as gone.
    pub fn is_leaving(&self) -> bool {
        self.state == SnapshotState::Deleting && !self.root
    }

    fn in_operation(&self) -> bool {
        self.busy || !matches!(self.state, SnapshotState::Ready | SnapshotState::Faulted)
    }

    /// Whether it takes a place in its group: what is not done yet, or comes from the future, pushes nothing out.
    pub(super) fn counts(&self, now: Timestamp) -> bool {
        !self.in_operation() && self.created_at <= now
    }

    /// What keeps it whatever a policy says, as far as it shows on itself.
    pub fn protections(&self, now: Timestamp) -> Reasons {
        [
            (self.root, Kept::Root),
            (self.source_of_volume, Kept::SourceOfVolume),
            (self.in_operation(), Kept::InOperation),
            (self.score.is_none(), Kept::NotAnnotated),
            (self.quarantined, Kept::Quarantined),
            (self.created_at > now, Kept::FutureDated),
        ]
        .into_iter()
        .filter_map(|(holds, kept)| holds.then_some(kept))
        .collect()
    }

    pub(super) fn relevance(&self) -> Relevance {
        (self.score.unwrap_or(i64::MAX), self.created_at, self.id)
    }
}

impl Forest {
    /// The snapshots of each group, newest first; of those of one moment, the last by id.
    pub fn by_group(&self) -> Vec<Vec<usize>> {
        let mut groups = vec![Vec::new(); self.groups];
        for (at, candidate) in self.snapshots.iter().enumerate() {
            groups[candidate.group as usize].push(at);
        }
        for members in &mut groups {
            let newest_first = |at: &usize| {
                let candidate = &self.snapshots[*at];
                std::cmp::Reverse((candidate.created_at, candidate.id))
            };
            members.sort_unstable_by_key(newest_first);
        }
        groups
    }
}

/// How much stands on each layer. What stands on nothing goes, and with it its hold on the one below.
pub(super) struct Standing<'a> {
    layers: &'a [Layer],
    refs: Vec<u32>,
    pub freed_bytes: i64,
}

impl<'a> Standing<'a> {
    /// As it is once everything that is on its way out has gone.
    pub fn of(forest: &'a Forest) -> Self {
        let layers = &forest.layers;
        let mut refs: Vec<u32> = layers.iter().map(|layer| layer.disks).collect();
        for below in layers.iter().filter_map(|layer| layer.below) {
            refs[below as usize] += 1;
        }
        for candidate in &forest.snapshots {
            refs[candidate.layer as usize] += 1;
        }
        // Layers that nothing stands on are being removed: they hold nothing any more.
        let loose: Vec<usize> = (0..layers.len()).filter(|at| refs[*at] == 0).collect();
        let mut standing = Standing { layers, refs, freed_bytes: 0 };
        for layer in loose {
            if let Some(below) = layers[layer].below {
                standing.release(below);
            }
        }
        for candidate in forest.snapshots.iter().filter(|candidate| candidate.is_leaving()) {
            standing.release(candidate.layer);
        }
        standing.freed_bytes = 0;
        standing
    }

    /// Whether whatever stands on it is the only one.
    pub fn alone_on(&self, layer: u32) -> bool {
        self.refs[layer as usize] == 1
    }

    /// One less stands on a layer; returns the first that stays, if something went.
    pub fn release(&mut self, layer: u32) -> Option<u32> {
        let mut at = layer;
        loop {
            let refs = &mut self.refs[at as usize];
            *refs -= 1;
            if *refs > 0 {
                return Some(at);
            }
            self.freed_bytes += self.layers[at as usize].bytes;
            at = self.layers[at as usize].below?;
        }
    }

    /// What would be freed if this one thing on the layer went.
    pub fn exclusive_bytes(&self, layer: u32) -> i64 {
        let mut bytes = 0;
        let mut next = Some(layer);
        while let Some(at) = next.filter(|at| self.alone_on(*at)) {
            bytes += self.layers[at as usize].bytes;
            next = self.layers[at as usize].below;
        }
        bytes
    }
}
