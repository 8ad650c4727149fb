//! The engine against a real SpiceDB: the same model, the same random tuples, and no question answered differently.

mod process;
mod translation;

use std::collections::BTreeSet;

use paddock_model::permissions::check::{check, explain};
use paddock_model::permissions::schema::{Giveable, Rule, SCHEMA};
use paddock_model::permissions::tuples::{Holder, Thing, Tuple, Tuples};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::process::SpiceDb;

/// Each with tuples of its own; asked before and after some of them are taken back.
const WORLDS: usize = 20;
const WORLDS_OF_A_LONG_TEST: usize = 200;
const QUESTIONS: usize = 250;

const TUPLES: usize = 260;
/// Groups within groups, the innermost with a member.
const CHAIN: usize = 8;

#[test]
fn a_real_spicedb_decides_the_same() {
    let worlds = if std::env::var_os("TEST_LONG").is_some() { WORLDS_OF_A_LONG_TEST } else { WORLDS };
    let mut spicedb = SpiceDb::start(&translation::model(&SCHEMA)).expect("a SpiceDB to compare with");
    let (mut asked, mut held, mut deepest) = (0, 0, 0);
    for seed in 0..worlds {
        let mut world = World::new(seed);
        let (given, taken) = (world.given.clone(), world.leavers());
        let mut tuples = Tuples::default();
        // The first time everybody is there, the second time some have left.
        for (given, taken) in [(given, Vec::new()), (Vec::new(), taken)] {
            spicedb.change(&texts(&given), &texts(&taken)).expect("the tuples are taken");
            given.into_iter().for_each(|tuple| assert!(tuples.insert(tuple)));
            taken.iter().for_each(|tuple| assert!(tuples.remove(tuple)));

            let questions: Vec<Tuple> = (0..QUESTIONS).map(|_| world.question()).collect();
            let asked_there: Vec<String> = questions.iter().map(Tuple::to_string).collect();
            let theirs = spicedb.check(&asked_there).expect("answers");

            assert_eq!(theirs.len(), questions.len());
            for (Tuple { object, relation, holder }, theirs) in questions.iter().zip(theirs) {
                let Holder::One(subject) = holder else { panic!("a question is about one") };
                let ours = check(&SCHEMA, &tuples, subject, relation, object);
                let why = explain(&SCHEMA, &tuples, subject, relation, object);
                assert_eq!(
                    ours, theirs,
                    "world {seed}: {subject} {relation} {object}: we say {ours}, SpiceDB {theirs}; {why:?}"
                );
                asked += 1;
                held += usize::from(ours);
                deepest = deepest.max(why.map_or(0, |path| path.len()));
            }
        }
        let left: Vec<Tuple> = world.given.into_iter().filter(|tuple| tuples.remove(tuple)).collect();
        spicedb.change(&[], &texts(&left)).expect("an empty SpiceDB for the next world");
    }
    println!("{asked} questions, of which {held} are held, through up to {deepest} steps; no difference");
    assert!(asked >= 10_000, "{asked} questions are too few");
    assert!((asked / 10..asked * 9 / 10).contains(&held), "{held} of {asked} are held, which proves little");
    assert!(deepest > CHAIN, "no answer went through the chain of groups");
}

fn texts(tuples: &[Tuple]) -> Vec<String> {
    tuples.iter().map(|tuple| translation::tuple(&SCHEMA, tuple)).collect()
}

/// Random tuples that the model allows, without circles: those are harmless to us, and an error to SpiceDB.
struct World {
    chance: TestRng,
    given: Vec<Tuple>,
}

impl World {
    fn new(seed: usize) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut world = World { chance, given: Vec::new() };
        let mut known = Tuples::default();
        let mut give = |tuple: Tuple, given: &mut Vec<Tuple>| {
            assert!(Tuples::is_allowed(&SCHEMA, &tuple), "{tuple} is not allowed by the model");
            if !known.closes_a_circle(&tuple) && known.insert(tuple.clone()) {
                given.push(tuple);
            }
        };
        for tuple in world.pointers().into_iter().chain(chain()) {
            give(tuple, &mut world.given);
        }
        while world.given.len() < TUPLES {
            let tuple = world.tuple();
            give(tuple, &mut world.given);
        }
        world
    }

    /// Nearly everything belongs to something: an emulator to a tenant, a tenant to a system.
    fn pointers(&mut self) -> Vec<Tuple> {
        let mut found = Vec::new();
        for kind in SCHEMA.types() {
            let pointers: BTreeSet<&str> = SCHEMA
                .relations(kind)
                .filter_map(|relation| SCHEMA.rule(kind, relation))
                .flat_map(pointers_of)
                .collect();
            for number in 0..population(kind) {
                for &pointer in &pointers {
                    if self.below(10) > 0 {
                        found.push(self.tuple_on(thing(kind, number), pointer));
                    }
                }
            }
        }
        found
    }

    /// Anything that the model allows; tenants and groups are given more often, since most follows from them.
    fn tuple(&mut self) -> Tuple {
        let given: Vec<(&str, &str)> = SCHEMA
            .types()
            .flat_map(|kind| SCHEMA.relations(kind).map(move |relation| (kind, relation)))
            .filter(|(kind, relation)| !translation::giveables(&SCHEMA, kind, relation).is_empty())
            .flat_map(|pair| {
                std::iter::repeat_n(pair, if matches!(pair.0, "tenant" | "group") { 4 } else { 1 })
            })
            .collect();
        let (kind, relation) = given[self.below(given.len())];
        let object = self.thing(kind);
        self.tuple_on(object, relation)
    }

    fn tuple_on(&mut self, object: Thing, relation: &str) -> Tuple {
        let to = translation::giveables(&SCHEMA, &object.kind, relation);
        let Giveable { kind, relation: set, everyone } = &to[self.below(to.len())];
        let holder = match set {
            Some(member) => Holder::Set(self.thing(kind), member.as_str().into()),
            None if *everyone => Holder::Everyone(kind.as_str().into()),
            None => Holder::One(self.thing(kind)),
        };
        Tuple { object, relation: relation.into(), holder }
    }

    /// A third of what was given on tenants and in groups, and a few others.
    fn leavers(&mut self) -> Vec<Tuple> {
        let mut leaves = |tuple: &Tuple| match &*tuple.object.kind {
            "tenant" | "group" => self.chance.next_u32().is_multiple_of(3),
            _ => self.chance.next_u32().is_multiple_of(10),
        };
        self.given.iter().filter(|tuple| leaves(tuple)).cloned().collect()
    }

    /// Written like a tuple: whether this subject holds this relation on this object.
    fn question(&mut self) -> Tuple {
        let kinds: Vec<&str> =
            SCHEMA.types().filter(|kind| SCHEMA.relations(kind).next().is_some()).collect();
        let kind = kinds[self.below(kinds.len())];
        let relations: Vec<&str> = SCHEMA.relations(kind).collect();
        let relation = relations[self.below(relations.len())].into();
        let subject = if self.below(5) == 0 { "service_account" } else { "user" };
        Tuple { object: self.thing(kind), relation, holder: Holder::One(self.thing(subject)) }
    }

    fn thing(&mut self, kind: &str) -> Thing {
        thing(kind, self.below(population(kind)))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.chance.next_u32() as usize % limit
    }
}

/// Few enough that tuples meet.
fn population(kind: &str) -> usize {
    match kind {
        "user" => 12,
        "group" => CHAIN + 6,
        "system" => 2,
        _ => 4,
    }
}

fn thing(kind: &str, number: usize) -> Thing {
    Thing::new(kind, &format!("{kind}-{number}"))
}

/// Every world has one long way: a tenant's operators are the members of the first group, and so on inwards.
fn chain() -> Vec<Tuple> {
    let within = |outer: Thing, relation: &str, group: usize| Tuple {
        object: outer,
        relation: relation.into(),
        holder: Holder::Set(thing("group", group), "member".into()),
    };
    let mut chain = vec![within(thing("tenant", 0), "operator", 0)];
    chain.extend((1..CHAIN).map(|group| within(thing("group", group - 1), "member", group)));
    let innermost = Holder::One(thing("user", 0));
    chain.push(Tuple { object: thing("group", CHAIN - 1), relation: "member".into(), holder: innermost });
    chain
}

fn pointers_of(rule: &Rule) -> Vec<&str> {
    match rule {
        Rule::From { pointer, .. } => vec![pointer],
        Rule::Any(rules) | Rule::All(rules) => rules.iter().flat_map(pointers_of).collect(),
        Rule::Given(_) | Rule::Also(_) => Vec::new(),
    }
}
