//! Scores: how relevant a snapshot is, from 0 to 100, and what each factor contributed to that, point by point.

use serde::{Deserialize, Serialize};

use super::forest::{Candidate, Forest, Standing};
use crate::Timestamp;
use crate::snapshots::Trust;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    Recency,
    UseCount,
    LastUse,
    RefClass,
    Trust,
    VerifiedBoot,
    JobResult,
    Children,
    RebuildCost,
    /// Speaks against a snapshot, unlike all others.
    ExclusiveBytes,
}

impl Factor {
    pub const ALL: [Factor; 10] = [
        Factor::Recency,
        Factor::UseCount,
        Factor::LastUse,
        Factor::RefClass,
        Factor::Trust,
        Factor::VerifiedBoot,
        Factor::JobResult,
        Factor::Children,
        Factor::RebuildCost,
        Factor::ExclusiveBytes,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Factor::Recency => "recency",
            Factor::UseCount => "use_count",
            Factor::LastUse => "last_use",
            Factor::RefClass => "ref_class",
            Factor::Trust => "trust",
            Factor::VerifiedBoot => "verified_boot",
            Factor::JobResult => "job_result",
            Factor::Children => "children",
            Factor::RebuildCost => "rebuild_cost",
            Factor::ExclusiveBytes => "exclusive_bytes",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Factor::ALL.into_iter().find(|factor| factor.name() == text)
    }
}

const FACTORS: usize = Factor::ALL.len();
/// All but the last add to a score.
const POSITIVE: usize = FACTORS - 1;

/// How much each factor counts, in its order: at most so many points. Those that add make 100 together, the last takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights([i64; FACTORS]);

impl Default for Weights {
    fn default() -> Self {
        Weights([25, 15, 10, 10, 10, 10, 5, 10, 5, 10])
    }
}

impl Weights {
    /// Any proportions; they are brought to 100 points together. None if nothing would count, or something less than nothing.
    pub fn of(proportions: [i64; FACTORS]) -> Option<Self> {
        /// More would say nothing, and could not be multiplied.
        const MOST: i64 = 1_000_000;
        let sum: i64 = proportions[..POSITIVE].iter().copied().map(|weight| weight.min(MOST)).sum();
        if sum <= 0 || proportions.iter().any(|weight| !(0..=MOST).contains(weight)) {
            return None;
        }
        let mut weights = proportions.map(|weight| weight * 100 / sum);
        weights[POSITIVE] = weights[POSITIVE].min(100);
        // What rounding took goes to those that lost most by it.
        let mut order: Vec<usize> = (0..POSITIVE).collect();
        order.sort_by_key(|at| std::cmp::Reverse(proportions[*at] * 100 % sum));
        let missing = 100 - weights[..POSITIVE].iter().sum::<i64>();
        for at in order.into_iter().take(usize::try_from(missing).unwrap_or(0)) {
            weights[at] += 1;
        }
        Some(Weights(weights))
    }
}

/// What one factor contributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    pub factor: Factor,
    /// How far the factor applies, in thousandths.
    pub value: i64,
    /// The most that it can contribute.
    pub weight: i64,
    pub points: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Score {
    /// 0 to 100, the sum of the points.
    pub total: i64,
    pub breakdown: [Points; FACTORS],
}

const NEUTRAL: i64 = 500;
const WEEK: f64 = 7.0 * 24.0 * 3600.0;
const A_GIB: i64 = 1 << 30;
/// A boot that takes longer is as dear as one that takes this long.
const LONG_BOOT_MS: i64 = 120_000;
const DEEP: i64 = 8;

/// The score of every snapshot, in the forest's order.
pub fn score(forest: &Forest, weights: &Weights, now: Timestamp) -> Vec<Score> {
    let standing = Standing::of(forest);
    let mut newest: Vec<Option<Timestamp>> = vec![None; forest.groups];
    for candidate in forest.snapshots.iter().filter(|candidate| candidate.counts(now)) {
        let newest = &mut newest[candidate.group as usize];
        *newest = (*newest).max(Some(candidate.created_at));
    }
    let one = |candidate: &Candidate| {
        let newest = newest[candidate.group as usize].unwrap_or(candidate.created_at);
        let exclusive = if candidate.is_leaving() { 0 } else { standing.exclusive_bytes(candidate.layer) };
        weigh(candidate, newest, exclusive, weights)
    };
    forest.snapshots.iter().map(one).collect()
}

fn weigh(candidate: &Candidate, newest: Timestamp, exclusive_bytes: i64, weights: &Weights) -> Score {
    let values = Factor::ALL.map(|factor| value(factor, candidate, newest, exclusive_bytes));
    let mut points: [i64; FACTORS] = std::array::from_fn(|at| (values[at] * weights.0[at] + 500) / 1000);
    let gained: i64 = points[..POSITIVE].iter().sum();
    // No more can be taken away than there is: the score is the sum, and never less than nothing.
    points[POSITIVE] = -points[POSITIVE].min(gained);
    let sign = |at: usize| if at == POSITIVE { -1 } else { 1 };
    Score {
        total: points.iter().sum(),
        breakdown: std::array::from_fn(|at| Points {
            factor: Factor::ALL[at],
            value: values[at],
            weight: sign(at) * weights.0[at],
            points: points[at],
        }),
    }
}

/// How far a factor applies, in thousandths.
fn value(factor: Factor, candidate: &Candidate, newest: Timestamp, exclusive_bytes: i64) -> i64 {
    let yes_or_no = |known: Option<bool>| known.map_or(NEUTRAL, |yes| if yes { 1000 } else { 0 });
    match factor {
        Factor::Recency => halved_weekly(newest, candidate.created_at),
        Factor::UseCount => {
            // 63 uses and more are as good as it gets.
            let doublings = i64::from((candidate.use_count.max(0) as u64 + 1).ilog2());
            (doublings * 1000 / 6).min(1000)
        }
        Factor::LastUse => candidate.last_used_at.map_or(0, |used| halved_weekly(newest, used)),
        Factor::RefClass => yes_or_no(candidate.ref_protected),
        Factor::Trust => match candidate.trust {
            Trust::Untrusted => 0,
            Trust::Internal => 500,
            Trust::Protected => 1000,
        },
        Factor::VerifiedBoot => yes_or_no(Some(candidate.boot_ms.is_some())),
        Factor::JobResult => yes_or_no(candidate.job_succeeded),
        Factor::Children => 1000 - (1000 >> candidate.children.clamp(0, 10)),
        Factor::RebuildCost => {
            let boot = candidate.boot_ms.unwrap_or(0).clamp(0, LONG_BOOT_MS) * 500 / LONG_BOOT_MS;
            boot + candidate.depth.clamp(0, DEEP) * 500 / DEEP
        }
        Factor::ExclusiveBytes => {
            let bytes = exclusive_bytes.clamp(0, 1 << 50);
            (bytes / 1024 * 1000) / ((bytes + A_GIB) / 1024)
        }
    }
}

/// 1000 for now, half of it a week ago, a quarter two weeks ago.
fn halved_weekly(newest: Timestamp, at: Timestamp) -> i64 {
    let age = (newest.as_second() - at.as_second()).max(0) as f64;
    (1000.0 * (-age / WEEK).exp2()).round() as i64
}
