//! Retention against a naive model on random trees, and its rules as tables.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::*;
use crate::ports::{Random, SeededRandom};
use crate::snapshots::{SnapshotState, Trust};

type Protect = fn(&mut Candidate);
type Change = fn(&mut Candidate, &mut Layer);

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// A Monday, at midnight.
const MONDAY: i64 = 1_704_067_200;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn plain(number: u128, second: i64, layer: u32) -> Candidate {
    Candidate {
        id: Uuid::from_u128(number),
        created_at: at(second),
        group: 0,
        layer,
        state: SnapshotState::Ready,
        deployable: true,
        root: false,
        source_of_volume: false,
        busy: false,
        quarantined: false,
        score: Some(50),
        use_count: 0,
        last_used_at: None,
        trust: Trust::Internal,
        ref_protected: None,
        job_succeeded: None,
        children: 0,
        boot_ms: Some(1000),
        depth: 1,
    }
}

fn lone_layer(bytes: i64) -> Layer {
    Layer { below: None, bytes, disks: 0 }
}

/// Snapshots of one group that share nothing, made at these seconds.
fn group_at(seconds: &[i64]) -> Forest {
    let snapshots = (0u32..).zip(seconds).map(|(number, second)| plain(number.into(), *second, number));
    Forest { layers: vec![lone_layer(10); seconds.len()], snapshots: snapshots.collect(), groups: 1 }
}

fn kept_places(forest: &Forest, rules: &Rules, now: i64) -> Vec<usize> {
    let judgement = judge(forest, &[Some(rules)], at(now));
    (0..forest.snapshots.len()).filter(|at| judgement.verdicts[*at].released().is_none()).collect()
}

#[test]
fn calendar_rules_keep_the_newest_of_each_period_in_utc() {
    let hourly = |amount| Rules { keep_hourly: Some(amount), ..Rules::default() };
    let daily = |amount| Rules { keep_daily: Some(amount), ..Rules::default() };
    let weekly = |amount| Rules { keep_weekly: Some(amount), ..Rules::default() };
    for (name, rules, seconds, kept) in [
        ("two in an hour, one in the next", hourly(5), vec![0, HOUR - 1, HOUR], vec![1, 2]),
        ("hours without any do not count", hourly(2), vec![0, 50 * HOUR, 51 * HOUR], vec![1, 2]),
        ("the last second of a day", daily(5), vec![0, DAY - 1, DAY], vec![1, 2]),
        ("only so many days", daily(1), vec![0, DAY, 2 * DAY], vec![2]),
        // Clocks went forward in Europe on 2024-03-31: its 23 hours are 24 in UTC.
        ("a day on which clocks change", daily(2), vec![90 * DAY, 91 * DAY - 1, 91 * DAY], vec![1, 2]),
        ("a week begins on a Monday", weekly(5), vec![-1, 0, 7 * DAY - 1, 7 * DAY], vec![0, 2, 3]),
        ("before 1970", daily(5), vec![-MONDAY - DAY, -MONDAY - 1, -MONDAY], vec![1, 2]),
        ("equal times: the last by id", daily(1), vec![5, 5, 5], vec![2]),
        ("one snapshot", hourly(1), vec![7], vec![0]),
        ("an empty group", hourly(1), vec![], vec![]),
    ] {
        let seconds: Vec<i64> = seconds.iter().map(|second| MONDAY + second).collect();
        assert_eq!(kept_places(&group_at(&seconds), &rules, MONDAY + 1000 * DAY), kept, "{name}");
    }
}

#[test]
fn ages_count_from_the_newest_of_the_group() {
    let forest = group_at(&[0, 100, 160, 200]);
    let within = Rules { keep_within_seconds: Some(40), ..Rules::default() };
    let capped = Rules { max_age_seconds: Some(99), ..Rules::default() };

    // However long ago all of it was.
    assert_eq!(kept_places(&forest, &within, 1_000_000_000), [2, 3]);
    assert_eq!(kept_places(&forest, &capped, 1_000_000_000), [2, 3]);
}

#[test]
fn one_from_the_future_stays_and_makes_nobody_old() {
    let forest = group_at(&[0, 100, 5000]);
    let rules = Rules { keep_last: Some(1), max_age_seconds: Some(50), ..Rules::default() };

    let judgement = judge(&forest, &[Some(&rules)], at(200));

    assert_eq!(judgement.verdicts[2], Verdict::Kept([Kept::FutureDated].into_iter().collect()));
    assert_eq!(kept_places(&forest, &rules, 200), [1, 2]);
}

#[test]
fn what_keeps_a_snapshot_is_told_in_full() {
    let mut forest = group_at(&[0, 10, 20]);
    forest.snapshots[0].root = true;
    forest.snapshots[0].source_of_volume = true;
    let rules = Rules { keep_last: Some(1), keep_within_seconds: Some(10), ..Rules::default() };

    let told = |at: usize| -> Vec<&str> {
        match judge(&forest, &[Some(&rules)], self::at(100)).verdicts[at] {
            Verdict::Kept(reasons) => reasons.iter().map(Kept::name).collect(),
            Verdict::Released(reason) => vec![reason.name()],
        }
    };
    assert_eq!(told(0), ["root", "source_of_volume"]);
    assert_eq!(told(1), ["keep_within"]);
    assert_eq!(told(2), ["newest_deployable", "keep_last", "keep_within"]);
}

#[test]
fn each_protection_suffices_by_itself() {
    let protections: [(Kept, Protect); 8] = [
        (Kept::Root, |one| one.root = true),
        (Kept::SourceOfVolume, |one| one.source_of_volume = true),
        (Kept::InOperation, |one| one.busy = true),
        (Kept::InOperation, |one| (one.state, one.deployable) = (SnapshotState::Creating, false)),
        (Kept::InOperation, |one| (one.state, one.deployable) = (SnapshotState::Verifying, false)),
        (Kept::InOperation, |one| (one.state, one.deployable) = (SnapshotState::Deleting, false)),
        (Kept::NotAnnotated, |one| one.score = None),
        (Kept::Quarantined, |one| (one.quarantined, one.deployable) = (true, false)),
    ];
    let rules =
        Rules { keep_last: Some(1), max_count: Some(1), max_total_bytes: Some(1), ..Rules::default() };
    for (kept, protect) in protections {
        let mut forest = group_at(&[0, 10]);
        protect(&mut forest.snapshots[0]);
        let Verdict::Kept(reasons) = judge(&forest, &[Some(&rules)], at(100)).verdicts[0] else {
            panic!("{kept:?} does not protect")
        };
        assert!(reasons.has(kept), "{kept:?}");
    }
}

#[test]
fn what_does_not_boot_takes_no_place_from_what_does() {
    let mut forest = group_at(&[0, 10, 20, 30]);
    for broken in [2, 3] {
        (forest.snapshots[broken].state, forest.snapshots[broken].deployable) =
            (SnapshotState::Faulted, false);
    }
    assert_eq!(kept_places(&forest, &Rules { keep_last: Some(2), ..Rules::default() }, 100), [0, 1]);
}

#[test]
fn a_cap_lets_the_lowest_scores_go() {
    let mut forest = group_at(&[0, 10, 20, 30]);
    for (snapshot, score) in forest.snapshots.iter_mut().zip([90, 20, 80, 10]) {
        snapshot.score = Some(score);
    }
    // The last is the newest that can be deployed.
    let count = Rules { max_count: Some(2), ..Rules::default() };
    let bytes = Rules { max_total_bytes: Some(25), ..Rules::default() };
    assert_eq!(kept_places(&forest, &count, 100), [0, 3]);
    assert_eq!(kept_places(&forest, &bytes, 100), [0, 3]);
}

#[test]
fn a_layer_is_freed_only_when_nothing_stands_on_it() {
    // A chain of three, and a branch from the first.
    let layer = |below, bytes| Layer { below, bytes, disks: 0 };
    let layers = vec![layer(None, 1), layer(Some(0), 10), layer(Some(1), 100), layer(Some(0), 1000)];
    let snapshots = (0..4).map(|number| plain(u128::from(number), i64::from(number), number)).collect();
    let mut forest = Forest { layers, snapshots, groups: 1 };
    for (set, freed) in [
        (vec![], 0),
        (vec![0], 0),
        (vec![1], 0),
        (vec![2], 100),
        (vec![1, 2], 110),
        (vec![2, 1, 0], 110),
        (vec![0, 1, 2, 3], 1111),
    ] {
        assert_eq!(freed_bytes(&forest, set.clone()), freed, "{set:?}");
    }
    // A live clone of the middle one holds it and the first.
    forest.layers[1].disks = 1;
    assert_eq!(freed_bytes(&forest, [0, 1, 2, 3]), 1100);
    // What leaves already is not freed again.
    forest.snapshots[2].state = SnapshotState::Deleting;
    assert_eq!(freed_bytes(&forest, [0, 1, 2, 3]), 1000);
}

#[test]
fn pressure_takes_the_lowest_scores_that_free_something_and_no_more_than_it_needs() {
    // Two chains; the lower ends score least but carry the others.
    let layer = |below, bytes| Layer { below, bytes, disks: 0 };
    let layers =
        vec![layer(None, 10), layer(Some(0), 10), layer(None, 10), layer(Some(2), 10), layer(None, 10)];
    let mut snapshots: Vec<Candidate> =
        (0..5).map(|number| plain(u128::from(number), i64::from(number), number)).collect();
    for (snapshot, score) in snapshots.iter_mut().zip([1, 40, 2, 30, 99]) {
        snapshot.score = Some(score);
    }
    let forest = Forest { layers, snapshots, groups: 1 };
    let judgement = judge(&forest, &[Some(&Rules { keep_last: Some(1), ..Rules::default() })], at(100));

    for (need, chosen) in
        [(0, vec![]), (1, vec![3]), (20, vec![3, 2]), (30, vec![3, 2, 1]), (99, vec![3, 2, 1, 0])]
    {
        assert_eq!(relieve(&forest, &judgement, need), chosen, "{need}");
    }
}

#[test]
fn a_policy_that_keeps_nothing_is_told_apart() {
    let none = Rules::default();
    for (rules, refused) in [
        (none.clone(), true),
        (Rules { keep_last: Some(0), ..none.clone() }, true),
        (Rules { keep_last: Some(0), max_count: Some(3), ..none.clone() }, true),
        (Rules { keep_last: Some(1), max_count: Some(0), ..none.clone() }, true),
        (Rules { keep_last: Some(1), keep_daily: Some(0), ..none.clone() }, false),
        (Rules { keep_last: Some(1), ..none.clone() }, false),
        (Rules { max_count: Some(1), ..none.clone() }, false),
        (Rules { max_age_seconds: Some(1), ..none.clone() }, false),
    ] {
        assert_eq!(rules.keep_nothing(), refused, "{rules:?}");
    }
}

#[test]
fn weights_make_a_hundred_points_together() {
    for (proportions, valid) in [
        ([1; 10], true),
        ([25, 15, 10, 10, 10, 10, 5, 10, 5, 10], true),
        ([0, 0, 0, 0, 0, 0, 0, 0, 7, 1_000_000], true),
        ([3, 1_000_000, 0, 0, 0, 0, 0, 0, 1, 0], true),
        ([0; 10], false),
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, -1], false),
    ] {
        let weights = Weights::of(proportions);
        assert_eq!(weights.is_some(), valid, "{proportions:?}");
        let Some(weights) = weights else { continue };
        let mut forest = group_at(&[0]);
        let perfect = &mut forest.snapshots[0];
        (perfect.ref_protected, perfect.job_succeeded) = (Some(true), Some(true));
        (perfect.trust, perfect.use_count, perfect.last_used_at) = (Trust::Protected, 1000, Some(at(9)));
        (perfect.children, perfect.boot_ms, perfect.depth) = (50, Some(900_000), 90);
        forest.layers[0].bytes = 0;
        assert_eq!(score(&forest, &weights, at(10))[0].total, 100, "{proportions:?}");
    }
}

/// A world that was drawn by lot.
struct Lot(SeededRandom);

impl Lot {
    fn below(&self, most: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % most
    }

    fn one_in(&self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn amount(&self, chances: u64, most: u64) -> Option<i64> {
        self.one_in(chances).then(|| self.below(most) as i64 + 1)
    }

    fn forest(&self) -> Forest {
        let groups = self.below(4) as usize + 1;
        let count = self.below(24) as u32;
        let layers = (0..count).map(|number| Layer {
            below: (number > 0 && !self.one_in(5)).then(|| self.below(number.into()) as u32),
            bytes: self.below(50) as i64,
            disks: if self.one_in(8) { 1 + self.below(2) as u32 } else { 0 },
        });
        let layers: Vec<Layer> = layers.collect();
        let mut snapshots = Vec::new();
        for layer in 0..count {
            // Some layers carry none (theirs was deleted), few carry two.
            let standing = [1, 1, 1, 1, 1, 0, 0, 2][self.below(8) as usize];
            for _ in 0..standing {
                snapshots.push(self.snapshot(snapshots.len() as u128, layer, groups as u64, &layers));
            }
        }
        Forest { layers, snapshots, groups }
    }

    fn snapshot(&self, number: u128, layer: u32, groups: u64, layers: &[Layer]) -> Candidate {
        use SnapshotState::{Creating, Deleting, Faulted, Ready, Verifying};
        let state = [Creating, Verifying, Faulted, Faulted, Deleting]
            .get(self.below(25) as usize)
            .copied()
            .unwrap_or(Ready);
        let drawn = self.below(40 * DAY as u64 / 600) as i64 * 600;
        let source_of_volume = layers[layer as usize].disks > 0;
        Candidate {
            group: self.below(groups) as u32,
            state,
            deployable: state == Ready && !self.one_in(10),
            root: state != Deleting && self.one_in(8),
            source_of_volume,
            busy: self.one_in(20),
            quarantined: self.one_in(30),
            score: (!self.one_in(20)).then(|| self.below(101) as i64),
            use_count: self.below(100) as i64,
            last_used_at: self.one_in(2).then(|| at(MONDAY + self.below(40 * DAY as u64) as i64)),
            trust: Trust::ALL[self.below(3) as usize],
            ref_protected: [None, Some(true), Some(false)][self.below(3) as usize],
            job_succeeded: [None, Some(true), Some(false)][self.below(3) as usize],
            children: self.below(4) as i64,
            boot_ms: self.one_in(2).then(|| self.below(200_000) as i64),
            depth: self.below(12) as i64,
            ..plain(number, MONDAY + drawn, layer)
        }
    }

    fn rules(&self) -> Option<Rules> {
        let rules = Rules {
            keep_last: self.amount(2, 4),
            keep_within_seconds: self.amount(4, 10 * DAY as u64),
            keep_hourly: self.amount(4, 5),
            keep_daily: self.amount(4, 5),
            keep_weekly: self.amount(4, 3),
            max_count: self.amount(3, 6),
            max_total_bytes: self.amount(3, 200),
            max_age_seconds: self.amount(4, 20 * DAY as u64),
        };
        (!self.one_in(5) && !rules.keep_nothing()).then_some(rules)
    }
}

/// The layers that are left when these snapshots stand, found by looking again and again.
fn naive_layers(forest: &Forest, stand: impl Fn(usize) -> bool) -> HashSet<usize> {
    let mut left: HashSet<usize> = (0..forest.layers.len()).collect();
    loop {
        let carries = |layer: usize| {
            forest.layers[layer].disks > 0
                || (0..forest.snapshots.len())
                    .any(|at| stand(at) && forest.snapshots[at].layer as usize == layer)
                || left.iter().any(|above| forest.layers[*above].below == Some(layer as u32))
        };
        let loose: Vec<usize> = left.iter().copied().filter(|layer| !carries(*layer)).collect();
        if loose.is_empty() {
            return left;
        }
        left.retain(|layer| !loose.contains(layer));
    }
}

fn naive_bytes(forest: &Forest, layers: &HashSet<usize>) -> i64 {
    layers.iter().map(|layer| forest.layers[*layer].bytes).sum()
}

fn leaving(one: &Candidate) -> bool {
    one.state == SnapshotState::Deleting
}

fn settled(one: &Candidate, now: Timestamp) -> bool {
    !one.busy && [SnapshotState::Ready, SnapshotState::Faulted].contains(&one.state) && one.created_at <= now
}

fn later(one: &Candidate, other: &Candidate) -> bool {
    (one.created_at, one.id) > (other.created_at, other.id)
}

/// Whether a rule keeps it, said as the contract says it.
fn naive_keep(peers: &[&Candidate], one: &Candidate, rules: &Rules) -> bool {
    let newest = peers.iter().map(|peer| peer.created_at).max().expect("itself");
    let age = newest.as_second() - one.created_at.as_second();
    let bootable: Vec<&&Candidate> = peers.iter().filter(|peer| peer.deployable).collect();
    let newer = bootable.iter().filter(|peer| later(peer, one)).count() as i64;
    let first_of = |amount: Option<i64>, period: fn(i64) -> i64| {
        let period_of = |one: &Candidate| period(one.created_at.as_second());
        let later_periods: HashSet<i64> =
            bootable.iter().map(|peer| period_of(peer)).filter(|other| *other > period_of(one)).collect();
        let newest_in_period =
            bootable.iter().all(|peer| period_of(peer) != period_of(one) || !later(peer, one));
        newest_in_period && (later_periods.len() as i64) < amount.unwrap_or(0)
    };
    rules.keep_within_seconds.is_some_and(|within| age <= within)
        || one.deployable
            && (newer < rules.keep_last.unwrap_or(0)
                || first_of(rules.keep_hourly, |second| second / HOUR)
                || first_of(rules.keep_daily, |second| second / DAY)
                || first_of(rules.keep_weekly, |second| (second - MONDAY).div_euclid(7 * DAY)))
}

/// The world after everything that was released has gone, with its layers.
fn apply(forest: &Forest, gone: impl Fn(usize) -> bool) -> Forest {
    let stands = |at: usize| !gone(at);
    let left = naive_layers(forest, stands);
    let mut places: HashMap<usize, u32> = HashMap::new();
    let mut order: Vec<usize> = left.into_iter().collect();
    order.sort_unstable();
    for (place, layer) in (0u32..).zip(&order) {
        places.insert(*layer, place);
    }
    let moved = |layer: u32| places[&(layer as usize)];
    let layers = order
        .iter()
        .map(|layer| Layer { below: forest.layers[*layer].below.map(moved), ..forest.layers[*layer] });
    let snapshots = forest.snapshots.iter().enumerate().filter(|(at, _)| stands(*at));
    let snapshots = snapshots.map(|(_, one)| Candidate { layer: moved(one.layer), ..one.clone() });
    Forest { layers: layers.collect(), snapshots: snapshots.collect(), groups: forest.groups }
}

#[test]
fn ten_thousand_trees_are_judged_as_a_naive_model_would() {
    let trees: u64 = std::env::var("TREES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let now = at(MONDAY + 37 * DAY);
    let (mut released, mut by_reason) = (0, HashMap::new());
    for seed in 0..trees {
        let lot = Lot(SeededRandom::new(seed));
        let forest = lot.forest();
        let rules: Vec<Option<Rules>> = (0..forest.groups).map(|_| lot.rules()).collect();
        let rules: Vec<Option<&Rules>> = rules.iter().map(Option::as_ref).collect();

        let judgement = judge(&forest, &rules, now);

        let gone: HashSet<usize> = judgement.released().map(|(at, _)| at).collect();
        for (at, reason) in judgement.released() {
            released += 1;
            *by_reason.entry(reason).or_insert(0) += 1;
            let one = &forest.snapshots[at];
            let peers = peers(&forest, one.group, now);
            let newest_deployable =
                peers.iter().all(|peer| !peer.deployable || !later(peer, one)) && one.deployable;
            assert!(
                !one.root
                    && !one.source_of_volume
                    && settled(one, now)
                    && one.score.is_some()
                    && !one.quarantined
                    && !newest_deployable,
                "seed {seed}: {one:?} was released"
            );
            let rules = rules[one.group as usize].expect("nothing goes without a policy");
            let selects = rules.selects();
            assert_eq!(
                reason == Released::NotKept,
                selects && !naive_keep(&peers, one, rules),
                "seed {seed}"
            );
        }
        check_bytes(&forest, &judgement, &gone, seed);
        check_caps(&forest, &rules, &gone, now, seed);
        check_kept(&forest, &rules, &judgement, now, seed);

        let after = apply(&forest, |at| gone.contains(&at));
        let again = judge(&after, &rules, now);
        assert_eq!(again.released().count(), 0, "seed {seed}: judged again, more is released");
        check_relief(&forest, &judgement, &lot, seed);
    }
    assert!(released > trees, "only {released} were released in all");
    assert_eq!(by_reason.len(), Released::ALL.len(), "every reason comes up: {by_reason:?}");
}

fn peers(forest: &Forest, group: u32, now: Timestamp) -> Vec<&Candidate> {
    forest.snapshots.iter().filter(|one| one.group == group && settled(one, now)).collect()
}

fn check_bytes(forest: &Forest, judgement: &Judgement, gone: &HashSet<usize>, seed: u64) {
    let before = naive_layers(forest, |at| !leaving(&forest.snapshots[at]));
    let after = naive_layers(forest, |at| !leaving(&forest.snapshots[at]) && !gone.contains(&at));
    let freed = naive_bytes(forest, &before) - naive_bytes(forest, &after);
    assert_eq!(judgement.frees_bytes, freed, "seed {seed}");
    assert_eq!(freed_bytes(forest, gone.iter().copied()), freed, "seed {seed}");
    // Whatever a live clone or a remaining snapshot stands on is still there, down to the ground.
    let stands = |layer: usize| {
        let carried = |(at, one): (usize, &Candidate)| {
            one.layer as usize == layer && !gone.contains(&at) && !leaving(one)
        };
        forest.layers[layer].disks > 0 || forest.snapshots.iter().enumerate().any(carried)
    };
    for layer in (0..forest.layers.len()).filter(|layer| stands(*layer)) {
        let mut next = Some(layer as u32);
        while let Some(at) = next {
            assert!(after.contains(&(at as usize)), "seed {seed}: layer {at} is needed");
            next = forest.layers[at as usize].below;
        }
    }
}

fn check_caps(forest: &Forest, rules: &[Option<&Rules>], gone: &HashSet<usize>, now: Timestamp, seed: u64) {
    let left = apply(forest, |at| gone.contains(&at) || leaving(&forest.snapshots[at]));
    for (group, rules) in (0u32..).zip(rules) {
        let Some(rules) = rules else { continue };
        let peers = peers(&left, group, now);
        let newest = peers.iter().map(|peer| peer.created_at).max();
        let first = peers.iter().filter(|peer| peer.deployable).max_by_key(|peer| (peer.created_at, peer.id));
        let movable: Vec<&&Candidate> = peers
            .iter()
            .filter(|peer| {
                let newest = first.is_some_and(|first| first.id == peer.id);
                !(peer.root || peer.source_of_volume || peer.score.is_none() || peer.quarantined || newest)
            })
            .collect();
        if rules.max_count.is_some_and(|most| peers.len() as i64 > most) {
            assert!(movable.is_empty(), "seed {seed}: the count could have been held");
        }
        if let (Some(most), Some(newest)) = (rules.max_age_seconds, newest) {
            let old = |peer: &&&&Candidate| newest.as_second() - peer.created_at.as_second() > most;
            assert_eq!(movable.iter().filter(old).count(), 0, "seed {seed}: the age could have been held");
        }
        let layers: HashSet<usize> = peers.iter().map(|peer| peer.layer as usize).collect();
        if rules.max_total_bytes.is_some_and(|most| naive_bytes(&left, &layers) > most) {
            let before = naive_layers(&left, |_| true).len();
            for one in movable {
                let without = naive_layers(&left, |at| left.snapshots[at].id != one.id).len();
                assert_eq!(without, before, "seed {seed}: {one:?} would have helped to hold the bytes");
            }
        }
    }
}

/// Nobody goes for nothing: what a rule keeps and no cap cuts is still there.
fn check_kept(forest: &Forest, rules: &[Option<&Rules>], judgement: &Judgement, now: Timestamp, seed: u64) {
    for (one, verdict) in forest.snapshots.iter().zip(&judgement.verdicts) {
        let Some(rules) = rules[one.group as usize] else {
            assert!(verdict.released().is_none(), "seed {seed}");
            continue;
        };
        match verdict {
            Verdict::Kept(reasons) => {
                assert!(!reasons.is_empty(), "seed {seed}: {one:?} is kept for nothing");
            }
            Verdict::Released(Released::MaxCount) => {
                let left = peers(forest, one.group, now).len() as i64;
                assert!(left > rules.max_count.expect("a cap"), "seed {seed}");
            }
            Verdict::Released(Released::MaxTotalBytes) => assert!(rules.max_total_bytes.is_some()),
            Verdict::Released(Released::MaxAge) => assert!(rules.max_age_seconds.is_some()),
            Verdict::Released(Released::NotKept) => {}
        }
    }
}

fn check_relief(forest: &Forest, judgement: &Judgement, lot: &Lot, seed: u64) {
    let need = lot.below(150) as i64;
    let chosen = relieve(forest, judgement, need);
    assert!(chosen.iter().all(|at| judgement.verdicts[*at].released().is_some()), "seed {seed}");
    let freed = |count: usize| freed_bytes(forest, chosen[..count].iter().copied());
    let steps: Vec<i64> = (0..=chosen.len()).map(freed).collect();
    if let Some(before_last) = chosen.len().checked_sub(1) {
        assert!(steps[before_last] < need, "seed {seed}: one too many");
    }
    // Where it does not suffice, no other of them would free anything by itself.
    if steps[chosen.len()] < need {
        for (at, _) in judgement.released().filter(|(at, _)| !chosen.contains(at)) {
            let more = freed_bytes(forest, chosen.iter().copied().chain([at]));
            let layer = forest.snapshots[at].layer as usize;
            let nothing = more == steps[chosen.len()];
            assert!(nothing || forest.layers[layer].bytes == 0, "seed {seed}: {at} was left out");
        }
    }
}

#[test]
fn points_add_up_to_the_score_on_every_tree() {
    let now = at(MONDAY + 37 * DAY);
    let mut seen = HashSet::new();
    for seed in 0..2000 {
        let lot = Lot(SeededRandom::new(seed));
        let forest = lot.forest();
        let weights = Weights::of(std::array::from_fn(|_| lot.below(30) as i64 + 1)).expect("weights");
        for (one, score) in forest.snapshots.iter().zip(score(&forest, &weights, now)) {
            assert_eq!(score.breakdown.iter().map(|part| part.points).sum::<i64>(), score.total, "{one:?}");
            assert!((0..=100).contains(&score.total), "{score:?}");
            for part in score.breakdown {
                assert!((0..=1000).contains(&part.value), "{part:?}");
                assert!(part.points.abs() <= part.weight.abs() && part.points * part.weight >= 0, "{part:?}");
            }
            seen.insert(score.total);
        }
    }
    assert!(seen.len() > 50, "scores tell snapshots apart");
}

#[test]
fn each_factor_moves_the_score_its_way() {
    let total = |change: Change| {
        let mut forest = group_at(&[0, 100 * DAY]);
        change(&mut forest.snapshots[0], &mut forest.layers[0]);
        score(&forest, &Weights::default(), at(200 * DAY))[0].total
    };
    let as_it_is = total(|_, _| {});
    let better: [(&str, Change); 8] = [
        ("recency", |one, _| one.created_at = at(99 * DAY)),
        ("use count", |one, _| one.use_count = 20),
        ("last use", |one, _| one.last_used_at = Some(at(99 * DAY))),
        ("ref class", |one, _| one.ref_protected = Some(true)),
        ("trust", |one, _| one.trust = Trust::Protected),
        ("job result", |one, _| one.job_succeeded = Some(true)),
        ("children", |one, _| one.children = 3),
        ("rebuild cost", |one, _| one.boot_ms = Some(60_000)),
    ];
    for (name, change) in better {
        assert!(total(change) > as_it_is, "{name}");
    }
    let worse: [(&str, Change); 4] = [
        ("bytes of its own", |_, layer| layer.bytes = 8 << 30),
        ("no verified boot", |one, _| one.boot_ms = None),
        ("a job that failed", |one, _| one.job_succeeded = Some(false)),
        ("an untrusted origin", |one, _| one.trust = Trust::Untrusted),
    ];
    for (name, change) in worse {
        assert!(total(change) < as_it_is, "{name}");
    }
}
