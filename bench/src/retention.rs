//! What one look of retention at all snapshots costs: scores, verdicts, and the choice under pressure.

use std::time::Instant;

use anyhow::{Result, ensure};
use paddock_model::Timestamp;
use paddock_model::retention::{Candidate, Forest, Layer, Rules, Weights, judge, relieve, score};
use paddock_model::snapshots::SnapshotState;
use paddock_model::trust::Trust;
use uuid::Uuid;

use crate::Bench;
use crate::figures::{Figures, Goal, Pairs, Row};

const MANY: u32 = 1_000_000;
const FEW: u32 = MANY / 10;
/// How many snapshots a group has, however many there are in all.
const A_GROUP: u32 = 1000;
const DAY: u64 = 24 * 3600;
const BEGIN: i64 = 1_790_000_000;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let (few, many) = (forest(FEW)?, forest(MANY)?);
    let (mut seconds, mut growth) = (Vec::new(), Pairs::default());
    for _ in 0..bench.rounds {
        let tenth = look(&few)?;
        let whole = look(&many)?;
        seconds.push(whole);
        growth.push(whole, 10.0 * tenth);
    }
    Ok(vec![
        Row {
            name: "retention, a look at 1,000,000 snapshots, seconds".to_owned(),
            figures: Figures::of(seconds),
            goal: Some(Goal::AtMost(10.0)),
            note: "scores, verdicts, choice under pressure".to_owned(),
        },
        Row {
            name: "retention, 1,000,000 snapshots ÷ ten times 100,000".to_owned(),
            figures: growth.ratios(),
            goal: Some(Goal::AtMost(1.5)),
            note: growth.note("s"),
        },
    ])
}

/// In seconds.
fn look(forest: &Forest) -> Result<f64> {
    let rules = Rules {
        keep_last: Some(100),
        keep_daily: Some(30),
        keep_weekly: Some(8),
        max_count: Some(90),
        max_total_bytes: Some(20 << 30),
        ..Rules::default()
    };
    let now = Timestamp::from_second(BEGIN + 37 * DAY as i64)?;
    let begun = Instant::now();
    let scores = score(forest, &Weights::default(), now);
    let judgement = judge(forest, &vec![Some(&rules); forest.groups], now);
    let chosen = relieve(forest, &judgement, i64::MAX);
    let took = begun.elapsed();
    let released = judgement.released().count();
    ensure!(scores.len() == forest.snapshots.len() && released > 0 && !chosen.is_empty(), "no verdicts");
    Ok(took.as_secs_f64())
}

/// Lineages of eight, spread over the groups at random.
fn forest(count: u32) -> Result<Forest> {
    let mut lot = Lot(1);
    let groups = count / A_GROUP;
    let layers = (0..count).map(|number| Layer {
        below: (number % 8 != 0).then(|| number - 1),
        bytes: lot.below(1 << 30) as i64,
        disks: u32::from(lot.below(100) == 0),
    });
    let layers: Vec<Layer> = layers.collect();
    let snapshots: Result<Vec<Candidate>> = (0..count)
        .map(|number| {
            let created = BEGIN + lot.below(40 * DAY) as i64;
            Ok(Candidate {
                id: Uuid::from_u128(number.into()),
                created_at: Timestamp::from_second(created)?,
                group: lot.below(groups.into()) as u32,
                layer: number,
                state: SnapshotState::Ready,
                deployable: lot.below(10) > 0,
                root: lot.below(50) == 0,
                source_of_volume: layers[number as usize].disks > 0,
                busy: lot.below(100) == 0,
                quarantined: false,
                score: Some(lot.below(101) as i64),
                use_count: lot.below(100) as i64,
                last_used_at: None,
                trust: Trust::Internal,
                ref_protected: None,
                job_succeeded: None,
                children: i64::from(number % 8 != 7),
                boot_ms: Some(lot.below(10_000) as i64),
                depth: i64::from(number % 8),
            })
        })
        .collect();
    Ok(Forest { layers, snapshots: snapshots?, groups: groups as usize })
}

/// The same numbers in every run.
struct Lot(u64);

impl Lot {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}
