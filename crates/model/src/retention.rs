//! Retention: which snapshots a policy keeps and why, which it lets go, and what that really frees. No I/O.

mod forest;
mod scores;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use forest::Standing;
pub use forest::{Candidate, Forest, Layer};
pub use scores::{Factor, Points, Score, Weights, score};

/// What a policy says of one group of snapshots: keeps, any of which suffices, and then caps on what they keep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The newest so many that can be deployed.
    pub keep_last: Option<i64>,
    /// Whatever is no older than this, counted from the group's newest.
    pub keep_within_seconds: Option<i64>,
    /// The newest deployable of each of the last so many hours (days, weeks) that have one, in UTC.
    pub keep_hourly: Option<i64>,
    pub keep_daily: Option<i64>,
    pub keep_weekly: Option<i64>,
    /// The lowest scores go first.
    pub max_count: Option<i64>,
    pub max_total_bytes: Option<i64>,
    pub max_age_seconds: Option<i64>,
}

impl Rules {
    fn keeps(&self) -> [Option<i64>; 5] {
        [self.keep_last, self.keep_within_seconds, self.keep_hourly, self.keep_daily, self.keep_weekly]
    }

    /// Whether any rule says what is kept; without one everything is, up to the caps.
    fn selects(&self) -> bool {
        self.keeps().into_iter().flatten().any(|amount| amount > 0)
    }

    /// A policy that would leave nothing but what no policy can take, or that says nothing at all.
    pub fn keep_nothing(&self) -> bool {
        let caps = [self.max_count, self.max_total_bytes, self.max_age_seconds];
        let asked = self.keeps().into_iter().any(|keep| keep.is_some());
        caps.into_iter().flatten().any(|cap| cap <= 0)
            || !self.selects() && (asked || caps.iter().all(Option::is_none))
    }
}

/// When a policy is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Always,
    /// Only while the pool is short of room, and only as much as it takes.
    Pressure,
}

impl Mode {
    pub const ALL: [Mode; 2] = [Mode::Always, Mode::Pressure];

    pub const fn name(self) -> &'static str {
        match self {
            Mode::Always => "always",
            Mode::Pressure => "pressure",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text)
    }
}

/// Why a snapshot stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    Root,
    SourceOfVolume,
    InOperation,
    NotAnnotated,
    /// Its bytes are not those that were recorded: evidence is not deleted.
    Quarantined,
    FutureDated,
    NewestDeployable,
    KeepLast,
    KeepWithin,
    KeepHourly,
    KeepDaily,
    KeepWeekly,
    /// The policy has caps only, and it is within them.
    WithinLimits,
    /// The policy would let it go, but is for times when the pool is short of room.
    NoPressure,
    NoPolicy,
}

impl Kept {
    pub const ALL: [Kept; 15] = [
        Kept::Root,
        Kept::SourceOfVolume,
        Kept::InOperation,
        Kept::NotAnnotated,
        Kept::Quarantined,
        Kept::FutureDated,
        Kept::NewestDeployable,
        Kept::KeepLast,
        Kept::KeepWithin,
        Kept::KeepHourly,
        Kept::KeepDaily,
        Kept::KeepWeekly,
        Kept::WithinLimits,
        Kept::NoPressure,
        Kept::NoPolicy,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Kept::Root => "root",
            Kept::SourceOfVolume => "source_of_volume",
            Kept::InOperation => "in_operation",
            Kept::NotAnnotated => "not_annotated",
            Kept::Quarantined => "quarantined",
            Kept::FutureDated => "future_dated",
            Kept::NewestDeployable => "newest_deployable",
            Kept::KeepLast => "keep_last",
            Kept::KeepWithin => "keep_within",
            Kept::KeepHourly => "keep_hourly",
            Kept::KeepDaily => "keep_daily",
            Kept::KeepWeekly => "keep_weekly",
            Kept::WithinLimits => "within_limits",
            Kept::NoPressure => "no_pressure",
            Kept::NoPolicy => "no_policy",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Kept::ALL.into_iter().find(|kept| kept.name() == text)
    }
}

/// All reasons why a snapshot stays; a number, because a million of them are weighed at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reasons(u16);

impl Reasons {
    /// What no policy and no shortage overrides.
    const PROTECTIONS: Reasons = Reasons(0b111_1111);

    pub fn add(&mut self, kept: Kept) {
        self.0 |= 1 << kept as u16;
    }

    pub fn has(self, kept: Kept) -> bool {
        self.0 & 1 << kept as u16 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn protect(self) -> bool {
        self.0 & Reasons::PROTECTIONS.0 != 0
    }

    /// What a policy said, and not what protects whatever it says.
    pub fn beyond_protections(self) -> impl Iterator<Item = Kept> {
        Reasons(self.0 & !Reasons::PROTECTIONS.0).iter()
    }

    pub fn iter(self) -> impl Iterator<Item = Kept> {
        Kept::ALL.into_iter().filter(move |kept| self.has(*kept))
    }
}

impl FromIterator<Kept> for Reasons {
    fn from_iter<I: IntoIterator<Item = Kept>>(reasons: I) -> Self {
        let mut all = Reasons::default();
        reasons.into_iter().for_each(|kept| all.add(kept));
        all
    }
}

/// Why a snapshot goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Released {
    /// No rule of the policy keeps it.
    NotKept,
    MaxAge,
    MaxCount,
    MaxTotalBytes,
}

impl Released {
    pub const ALL: [Released; 4] =
        [Released::NotKept, Released::MaxAge, Released::MaxCount, Released::MaxTotalBytes];

    pub const fn name(self) -> &'static str {
        match self {
            Released::NotKept => "not_kept",
            Released::MaxAge => "max_age",
            Released::MaxCount => "max_count",
            Released::MaxTotalBytes => "max_total_bytes",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Kept(Reasons),
    Released(Released),
}

impl Verdict {
    pub fn released(self) -> Option<Released> {
        match self {
            Verdict::Released(reason) => Some(reason),
            Verdict::Kept(_) => None,
        }
    }
}

/// What becomes of every snapshot of a forest, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub verdicts: Vec<Verdict>,
    /// What the pool has more of once all that is released is gone.
    pub frees_bytes: i64,
}

impl Judgement {
    pub fn released(&self) -> impl Iterator<Item = (usize, Released)> {
        let each = self.verdicts.iter().enumerate();
        each.filter_map(|(at, verdict)| Some((at, verdict.released()?)))
    }
}

/// Judges every snapshot by the rules of its group, where it has any. Linear but for sorting.
pub fn judge(forest: &Forest, rules: &[Option<&Rules>], now: Timestamp) -> Judgement {
    let mut standing = Standing::of(forest);
    let mut verdicts: Vec<Verdict> =
        forest.snapshots.iter().map(|candidate| Verdict::Kept(candidate.protections(now))).collect();
    let by_group = forest.by_group();
    for (group, members) in by_group.iter().enumerate() {
        judge_group(forest, rules[group], members, now, &mut verdicts);
    }
    for (candidate, verdict) in forest.snapshots.iter().zip(&verdicts) {
        if verdict.released().is_some() {
            standing.release(candidate.layer);
        }
    }
    cap_bytes(forest, rules, &by_group, now, &mut verdicts, &mut standing);
    Judgement { verdicts, frees_bytes: standing.freed_bytes }
}

/// Keeps, then the caps on age and count; members come newest first.
fn judge_group(
    forest: &Forest,
    rules: Option<&Rules>,
    members: &[usize],
    now: Timestamp,
    verdicts: &mut [Verdict],
) {
    let counted: Vec<usize> =
        members.iter().copied().filter(|at| forest.snapshots[*at].counts(now)).collect();
    let mut reasons: Vec<Reasons> = counted.iter().map(|at| kept(verdicts[*at])).collect();
    let deployable = |place: &usize| forest.snapshots[counted[*place]].deployable;
    if let Some(newest) = (0..counted.len()).find(deployable) {
        reasons[newest].add(Kept::NewestDeployable);
    }
    let Some(rules) = rules else {
        for (at, mut reasons) in counted.into_iter().zip(reasons) {
            reasons.add(Kept::NoPolicy);
            verdicts[at] = Verdict::Kept(reasons);
        }
        return;
    };
    add_keeps(forest, rules, &counted, &mut reasons);

    let newest = counted.first().map(|at| forest.snapshots[*at].created_at);
    let mut left = counted.len() as i64;
    let mut open = Vec::new();
    for (at, mut reasons) in counted.into_iter().zip(reasons) {
        let released = if reasons.protect() {
            None
        } else if reasons.is_empty() && rules.selects() {
            Some(Released::NotKept)
        } else {
            let age = newest.map_or(0, |newest| age_micros(newest, forest.snapshots[at].created_at));
            rules.max_age_seconds.filter(|most| age > micros(*most)).map(|_| Released::MaxAge)
        };
        if !rules.selects() {
            reasons.add(Kept::WithinLimits);
        }
        verdicts[at] = match released {
            Some(reason) => {
                left -= 1;
                Verdict::Released(reason)
            }
            None => {
                if !reasons.protect() {
                    open.push(at);
                }
                Verdict::Kept(reasons)
            }
        };
    }
    if let Some(excess) = rules.max_count.map(|most| left - most).filter(|excess| *excess > 0) {
        open.sort_unstable_by_key(|at| forest.snapshots[*at].relevance());
        for at in open.into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            verdicts[at] = Verdict::Released(Released::MaxCount);
        }
    }
}

fn kept(verdict: Verdict) -> Reasons {
    match verdict {
        Verdict::Kept(reasons) => reasons,
        Verdict::Released(_) => Reasons::default(),
    }
}

fn add_keeps(forest: &Forest, rules: &Rules, counted: &[usize], reasons: &mut [Reasons]) {
    let Some(newest) = counted.first().map(|at| forest.snapshots[*at].created_at) else { return };
    let mut last = rules.keep_last.unwrap_or(0);
    let mut calendars = [
        Calendar::new(Kept::KeepHourly, rules.keep_hourly, |hour| hour),
        Calendar::new(Kept::KeepDaily, rules.keep_daily, |hour| hour.div_euclid(24)),
        // The first day of 1970 was a Thursday; weeks begin on Mondays.
        Calendar::new(Kept::KeepWeekly, rules.keep_weekly, |hour| (hour.div_euclid(24) + 3).div_euclid(7)),
    ];
    for (at, reasons) in counted.iter().zip(reasons) {
        let candidate = &forest.snapshots[*at];
        let age = age_micros(newest, candidate.created_at);
        if rules.keep_within_seconds.is_some_and(|within| within > 0 && age <= micros(within)) {
            reasons.add(Kept::KeepWithin);
        }
        // What does not boot takes no place from what does.
        if !candidate.deployable {
            continue;
        }
        if last > 0 {
            last -= 1;
            reasons.add(Kept::KeepLast);
        }
        let hour = candidate.created_at.as_second().div_euclid(3600);
        for calendar in &mut calendars {
            if calendar.keeps(hour) {
                reasons.add(calendar.reason);
            }
        }
    }
}

/// The newest of each of the last so many periods; it is shown them newest first.
struct Calendar {
    reason: Kept,
    left: i64,
    period: fn(i64) -> i64,
    last: Option<i64>,
}

impl Calendar {
    fn new(reason: Kept, amount: Option<i64>, period: fn(i64) -> i64) -> Self {
        Calendar { reason, left: amount.unwrap_or(0), period, last: None }
    }

    fn keeps(&mut self, hour: i64) -> bool {
        let period = Some((self.period)(hour));
        if self.left <= 0 || self.last == period {
            return false;
        }
        self.last = period;
        self.left -= 1;
        true
    }
}

/// Holds each group to its cap on bytes. Only what really frees some is released, the lowest score first, whatever its
/// group: what goes from one may be what another's stood under.
fn cap_bytes(
    forest: &Forest,
    rules: &[Option<&Rules>],
    by_group: &[Vec<usize>],
    now: Timestamp,
    verdicts: &mut [Verdict],
    standing: &mut Standing,
) {
    let mut over: Vec<Option<Excess>> = vec![None; by_group.len()];
    let mut open = vec![false; forest.snapshots.len()];
    for (group, members) in by_group.iter().enumerate() {
        let Some(most) = rules[group].and_then(|rules| rules.max_total_bytes) else { continue };
        let stays = |at: &usize| forest.snapshots[*at].counts(now) && verdicts[*at].released().is_none();
        let staying: Vec<usize> = members.iter().copied().filter(stays).collect();
        let mut layers: Vec<u32> = staying.iter().map(|at| forest.snapshots[*at].layer).collect();
        layers.sort_unstable();
        layers.dedup();
        let total: i64 = layers.iter().map(|layer| forest.layers[*layer as usize].bytes).sum();
        over[group] = Some(Excess { bytes: total - most });
        if total > most {
            for at in staying.into_iter().filter(|at| !kept(verdicts[*at]).protect()) {
                open[at] = true;
            }
        }
    }
    let mut choice = Choice::new(forest, standing, open);
    while let Some(at) = choice.next(standing) {
        let candidate = &forest.snapshots[at];
        let Some(excess) = over[candidate.group as usize].as_mut().filter(|excess| excess.bytes > 0) else {
            continue;
        };
        excess.bytes -= forest.layers[candidate.layer as usize].bytes;
        verdicts[at] = Verdict::Released(Released::MaxTotalBytes);
        choice.release(at, standing);
    }
}

#[derive(Clone)]
struct Excess {
    bytes: i64,
}

/// Of what a policy would let go, as much as frees so many bytes, in the order in which it should go: the lowest score
/// first, and nothing that would free none.
pub fn relieve(forest: &Forest, judgement: &Judgement, bytes: i64) -> Vec<usize> {
    let mut standing = Standing::of(forest);
    let open = judgement.verdicts.iter().map(|verdict| verdict.released().is_some()).collect();
    let mut choice = Choice::new(forest, &standing, open);
    let mut chosen = Vec::new();
    while standing.freed_bytes < bytes {
        let Some(at) = choice.next(&standing) else { break };
        choice.release(at, &mut standing);
        chosen.push(at);
    }
    chosen
}

/// What deleting these frees, together.
pub fn freed_bytes(forest: &Forest, snapshots: impl IntoIterator<Item = usize>) -> i64 {
    let mut standing = Standing::of(forest);
    for at in snapshots {
        if !forest.snapshots[at].is_leaving() {
            standing.release(forest.snapshots[at].layer);
        }
    }
    standing.freed_bytes
}

/// Picks snapshots whose deletion frees bytes at once, the least relevant first.
struct Choice<'a> {
    forest: &'a Forest,
    /// What may be picked.
    open: Vec<bool>,
    /// The open snapshots on each layer.
    on_layer: Vec<Vec<u32>>,
    ready: BinaryHeap<Reverse<(Relevance, usize)>>,
}

/// The lowest goes first.
pub type Relevance = (i64, Timestamp, uuid::Uuid);

impl<'a> Choice<'a> {
    fn new(forest: &'a Forest, standing: &Standing, open: Vec<bool>) -> Self {
        let mut on_layer = vec![Vec::new(); forest.layers.len()];
        let mut ready = Vec::new();
        for (at, candidate) in forest.snapshots.iter().enumerate().filter(|(at, _)| open[*at]) {
            on_layer[candidate.layer as usize].push(at as u32);
            if standing.alone_on(candidate.layer) {
                ready.push(Reverse((candidate.relevance(), at)));
            }
        }
        Choice { forest, open, on_layer, ready: ready.into() }
    }

    fn next(&mut self, standing: &Standing) -> Option<usize> {
        while let Some(Reverse((_, at))) = self.ready.pop() {
            if self.open[at] && standing.alone_on(self.forest.snapshots[at].layer) {
                return Some(at);
            }
        }
        None
    }

    fn release(&mut self, at: usize, standing: &mut Standing) {
        self.open[at] = false;
        let Some(below) = standing.release(self.forest.snapshots[at].layer) else { return };
        // What it stood on may carry nothing but one snapshot now.
        if standing.alone_on(below) {
            let on_layer = &self.on_layer[below as usize];
            let waiting = on_layer.iter().map(|at| *at as usize).filter(|at| self.open[*at]);
            let ready = waiting.map(|at| Reverse((self.forest.snapshots[at].relevance(), at)));
            self.ready.extend(ready);
        }
    }
}

fn age_micros(newest: Timestamp, at: Timestamp) -> i128 {
    i128::from(newest.as_microsecond()) - i128::from(at.as_microsecond())
}

fn micros(seconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000
}
