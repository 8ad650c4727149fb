//! Does the relation hold? Decided from the model and the tuples, in memory, with the path that grants it.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;

use super::schema::{Rule, Schema};
use super::tuples::{Given, OnThing, Thing, Tuples};

/// The relation, why it holds, one step a line from the object to the subject.
pub type Path = Vec<String>;

/// Whether the subject holds the relation on the object.
pub fn check(schema: &Schema, tuples: &Tuples, subject: &Thing, relation: &str, object: &Thing) -> bool {
    let mut walk = Walk { schema, tuples, subject, explains: false, asked: HashMap::new() };
    walk.decide(relation, object).is_some()
}

/// The path that grants it, or nothing.
pub fn explain(
    schema: &Schema,
    tuples: &Tuples,
    subject: &Thing,
    relation: &str,
    object: &Thing,
) -> Option<Path> {
    let mut walk = Walk { schema, tuples, subject, explains: true, asked: HashMap::new() };
    walk.decide(relation, object).map(|mut path| {
        path.reverse();
        path
    })
}

/// What could be given to make the relation hold, nearest first: each is a relation on an object.
pub fn ways(schema: &Schema, tuples: &Tuples, relation: &str, object: &Thing) -> Vec<String> {
    let mut open = std::collections::VecDeque::from([(object.clone(), relation.to_owned())]);
    let (mut seen, mut found) = (std::collections::HashSet::new(), Vec::new());
    while let Some((object, relation)) = open.pop_front() {
        if !seen.insert((object.clone(), relation.clone())) {
            continue;
        }
        let mut rules: Vec<&Rule> = schema.rule(&object.kind, &relation).into_iter().collect();
        while let Some(rule) = rules.pop() {
            match rule {
                Rule::Given(_) => found.push(format!("{relation} on {object}")),
                Rule::Also(other) => open.push_back((object.clone(), other.clone())),
                Rule::From { relation, pointer } => {
                    let targets = tuples.pointed_to(&object, pointer);
                    open.extend(targets.map(|target| (target.clone(), relation.clone())));
                }
                Rule::Any(inner) | Rule::All(inner) => rules.extend(inner),
            }
        }
    }
    found
}

struct Walk<'a> {
    schema: &'a Schema,
    tuples: &'a Tuples,
    subject: &'a Thing,
    /// Whether anybody wants to know the path.
    explains: bool,
    asked: HashMap<Question, Asked>,
}

/// A relation on a thing, by where the two are kept: each is kept once, and an address is compared at once.
type Question = (*const Thing, *const String);

enum Asked {
    /// It is being decided further up; meeting it again is a circle, which grants nothing by itself.
    Open,
    Known(Option<Path>),
}

/// A thing on which something was given, with the rules of its type.
#[derive(Clone, Copy)]
struct Place<'a> {
    object: &'a Thing,
    given: &'a OnThing,
    rules: &'a BTreeMap<String, Rule>,
}

/// A decision, innermost step first; one that met a circle holds only where it was made.
struct Decision {
    granted: Option<Path>,
    circle: bool,
}

const NO: Decision = Decision { granted: None, circle: false };

impl<'a> Walk<'a> {
    fn decide(&mut self, relation: &str, object: &Thing) -> Option<Path> {
        let place = self.place(object)?;
        self.relation(place, relation).granted
    }

    /// Nothing where nothing was given: every rule rests on something given, so that nothing follows there either.
    fn place(&self, object: &Thing) -> Option<Place<'a>> {
        let (object, given) = self.tuples.given_on(object)?;
        Some(Place { object, given, rules: self.schema.rules(&object.kind)? })
    }

    fn relation(&mut self, place: Place<'a>, relation: &str) -> Decision {
        let Some((relation, rule)) = place.rules.get_key_value(relation) else { return NO };
        if let Rule::Given(_) = rule {
            let Some(given) = place.given.of(relation) else { return NO };
            if given.sets.is_empty() {
                // It leads nowhere, and looking is as quick as remembering.
                return self.at_once(place, relation, given).unwrap_or(NO);
            }
        }
        let question: Question = (place.object, relation);
        match self.asked.entry(question) {
            Entry::Occupied(asked) => {
                return match asked.get() {
                    Asked::Open => Decision { granted: None, circle: true },
                    Asked::Known(granted) => Decision { granted: granted.clone(), circle: false },
                };
            }
            Entry::Vacant(asked) => asked.insert(Asked::Open),
        };
        let decision = self.rule(place, relation, rule);
        if decision.granted.is_some() || !decision.circle {
            self.asked.insert(question, Asked::Known(decision.granted.clone()));
        } else {
            self.asked.remove(&question);
        }
        decision
    }

    fn rule(&mut self, place: Place<'a>, relation: &str, rule: &'a Rule) -> Decision {
        let object = place.object;
        match rule {
            Rule::Given(_) => self.given(place, relation),
            Rule::Also(other) => {
                self.step(Some(place), other, || format!("{relation} on {object} includes {other}"))
            }
            Rule::From { relation: wanted, pointer } => {
                let mut circle = false;
                let pointed = place.given.of(pointer);
                for target in pointed.into_iter().flat_map(|given| given.ones.iter()) {
                    let why =
                        || format!("{relation} on {object} follows from {wanted} on its {pointer} {target}");
                    let decision = self.step(self.place(target), wanted, why);
                    if decision.granted.is_some() {
                        return decision;
                    }
                    circle |= decision.circle;
                }
                Decision { granted: None, circle }
            }
            Rule::Any(rules) => {
                let mut circle = false;
                for rule in rules {
                    let decision = self.rule(place, relation, rule);
                    if decision.granted.is_some() {
                        return decision;
                    }
                    circle |= decision.circle;
                }
                Decision { granted: None, circle }
            }
            Rule::All(rules) => {
                let mut path = Path::new();
                for rule in rules {
                    let decision = self.rule(place, relation, rule);
                    match decision.granted {
                        Some(steps) => path.extend(steps),
                        None => return decision,
                    }
                }
                Decision { granted: Some(path), circle: false }
            }
        }
    }

    fn given(&mut self, place: Place<'a>, relation: &str) -> Decision {
        let Some(given) = place.given.of(relation) else { return NO };
        if let Some(decision) = self.at_once(place, relation, given) {
            return decision;
        }
        let object = place.object;
        let mut circle = false;
        for (set, member) in given.sets.iter() {
            let why = || format!("{relation} on {object} was given to every {member} of {set}");
            let decision = self.step(self.place(set), member, why);
            if decision.granted.is_some() {
                return decision;
            }
            circle |= decision.circle;
        }
        Decision { granted: None, circle }
    }

    /// Granted where it was given to the subject itself or to everyone, else nothing.
    fn at_once(&self, place: Place<'a>, relation: &str, given: &Given) -> Option<Decision> {
        let object = place.object;
        let granted = |to: &dyn fmt::Display| {
            let step = || format!("{relation} on {object} was given to {to}");
            Decision { granted: Some(if self.explains { vec![step()] } else { Path::new() }), circle: false }
        };
        if given.ones.contains(self.subject) {
            return Some(granted(self.subject));
        }
        let everyone = given.everyone.contains(&self.subject.kind);
        everyone.then(|| granted(&format_args!("every {}", self.subject.kind)))
    }

    /// Goes on to another relation; if that is granted, this step is part of the path.
    fn step(&mut self, place: Option<Place<'a>>, relation: &str, why: impl FnOnce() -> String) -> Decision {
        let Some(place) = place else { return NO };
        let mut decision = self.relation(place, relation);
        if let Some(path) = &mut decision.granted
            && self.explains
        {
            path.push(why());
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::schema::SCHEMA;
    use super::super::tuples::{Holder, Tuple};
    use super::*;

    fn thing(text: &str) -> Thing {
        Thing::parse(text).expect("a thing")
    }

    fn tuple(text: &str) -> Tuple {
        let (object, rest) = text.split_once('#').expect("a relation");
        let (relation, holder) = rest.split_once('@').expect("a holder");
        Tuple {
            object: thing(object),
            relation: relation.into(),
            holder: Holder::parse(holder).expect("a holder"),
        }
    }

    fn tuples(texts: &[&str]) -> Tuples {
        let mut tuples = Tuples::default();
        for text in texts {
            let tuple = tuple(text);
            assert!(Tuples::is_allowed(&SCHEMA, &tuple), "{text} is not allowed by the model");
            tuples.insert(tuple);
        }
        tuples
    }

    #[test]
    fn rights_are_as_the_model_says() {
        let tuples = tuples(&[
            "tenant:acme#system@system:paddock",
            "system:paddock#admin@user:root",
            "tenant:acme#admin@user:ada",
            "tenant:acme#operator@group:ops#member",
            "tenant:acme#member@user:eve",
            "tenant:acme#auditor@user:max",
            "group:ops#tenant@tenant:acme",
            "group:ops#member@group:night#member",
            "group:night#member@user:bob",
            "emulator:e1#tenant@tenant:acme",
            "emulator:e1#owner@user:eve",
            "emulator:e1#granted_viewer@user:gone",
            "snapshot:base#public@user:*",
        ]);
        for (subject, relation, object, holds) in [
            ("user:root", "can_delete", "tenant:acme", true),
            ("user:ada", "can_delete", "tenant:acme", false),
            ("user:ada", "can_update", "tenant:acme", true),
            ("user:bob", "operator", "tenant:acme", true),
            ("user:bob", "can_restart", "emulator:e1", true),
            ("user:bob", "can_update", "tenant:acme", false),
            ("user:eve", "can_restart", "emulator:e1", true),
            ("user:eve", "can_create_backup", "tenant:acme", false),
            ("user:max", "can_view_logs", "emulator:e1", true),
            ("user:max", "can_restart", "emulator:e1", false),
            // Granted, but no member of the tenant any more.
            ("user:gone", "can_view", "emulator:e1", false),
            ("user:gone", "can_deploy", "snapshot:base", true),
            ("service_account:x", "can_deploy", "snapshot:base", false),
            ("user:eve", "can_fly", "emulator:e1", false),
            ("user:eve", "can_view", "emulator:none", false),
        ] {
            assert_eq!(
                check(&SCHEMA, &tuples, &thing(subject), relation, &thing(object)),
                holds,
                "{subject} {relation} {object}"
            );
        }
    }

    #[test]
    fn the_path_that_grants_is_told_from_the_object_to_the_subject() {
        let tuples = tuples(&[
            "tenant:acme#operator@group:ops#member",
            "group:ops#member@user:bob",
            "emulator:e1#tenant@tenant:acme",
        ]);
        let path = explain(&SCHEMA, &tuples, &thing("user:bob"), "can_restart", &thing("emulator:e1"));
        assert_eq!(
            path.expect("granted"),
            [
                "can_restart on emulator:e1 includes operator",
                "operator on emulator:e1 follows from operator on its tenant tenant:acme",
                "operator on tenant:acme was given to every member of group:ops",
                "member on group:ops was given to user:bob",
            ]
        );
    }

    #[test]
    fn a_circle_of_groups_is_noticed_and_does_no_harm() {
        let mut tuples = tuples(&["group:a#member@group:b#member", "group:b#member@group:c#member"]);
        let closing = tuple("group:c#member@group:a#member");
        assert!(tuples.closes_a_circle(&closing));
        assert!(!tuples.closes_a_circle(&tuple("group:d#member@group:a#member")));
        assert!(tuples.closes_a_circle(&tuple("group:d#member@group:d#member")));

        tuples.insert(closing);
        assert!(!check(&SCHEMA, &tuples, &thing("user:bob"), "member", &thing("group:a")));
        tuples.insert(tuple("group:b#member@user:bob"));
        for group in ["group:a", "group:b", "group:c"] {
            assert!(check(&SCHEMA, &tuples, &thing("user:bob"), "member", &thing(group)), "{group}");
        }
    }

    #[test]
    fn what_was_removed_is_gone_from_both_ends() {
        let mut all = tuples(&["tenant:acme#member@user:eve", "tenant:acme#admin@user:eve"]);
        assert!(all.remove(&tuple("tenant:acme#admin@user:eve")));
        assert!(!all.remove(&tuple("tenant:acme#admin@user:eve")));
        assert!(check(&SCHEMA, &all, &thing("user:eve"), "member", &thing("tenant:acme")));
        assert!(!check(&SCHEMA, &all, &thing("user:eve"), "admin", &thing("tenant:acme")));
        assert_eq!(all.held_by(&Holder::One(thing("user:eve"))).count(), 1);
        assert!(all.remove(&tuple("tenant:acme#member@user:eve")));
        assert!(all.is_empty());
    }

    /// Everything that holds, by applying every rule until nothing new follows: slow, and too simple to be wrong.
    fn naive(tuples: &[Tuple], subject: &Thing) -> HashSet<(Thing, String)> {
        fn follows(
            rule: &Rule,
            object: &Thing,
            relation: &str,
            tuples: &[Tuple],
            subject: &Thing,
            known: &HashSet<(Thing, String)>,
        ) -> bool {
            match rule {
                Rule::Given(_) => tuples.iter().filter(|tuple| tuple.object == *object && *tuple.relation == *relation).any(|tuple| match &tuple.holder {
                    Holder::One(one) => one == subject,
                    Holder::Set(set, member) => known.contains(&(set.clone(), member.to_string())),
                    Holder::Everyone(kind) => *kind == subject.kind,
                }),
                Rule::Also(other) => known.contains(&(object.clone(), other.clone())),
                Rule::From { relation: wanted, pointer } => tuples.iter().any(|tuple| {
                    tuple.object == *object
                        && *tuple.relation == **pointer
                        && matches!(&tuple.holder, Holder::One(target) if known.contains(&(target.clone(), wanted.clone())))
                }),
                Rule::Any(rules) => rules.iter().any(|rule| follows(rule, object, relation, tuples, subject, known)),
                Rule::All(rules) => rules.iter().all(|rule| follows(rule, object, relation, tuples, subject, known)),
            }
        }
        let objects: HashSet<Thing> = tuples
            .iter()
            .flat_map(|tuple| {
                let holder = match &tuple.holder {
                    Holder::One(thing) | Holder::Set(thing, _) => Some(thing.clone()),
                    Holder::Everyone(_) => None,
                };
                std::iter::once(tuple.object.clone()).chain(holder)
            })
            .collect();
        let mut known = HashSet::new();
        loop {
            let mut new = Vec::new();
            for object in &objects {
                for relation in SCHEMA.relations(&object.kind) {
                    let key = (object.clone(), relation.to_owned());
                    let rule = SCHEMA.rule(&object.kind, relation).expect("a rule");
                    if !known.contains(&key) && follows(rule, object, relation, tuples, subject, &known) {
                        new.push(key);
                    }
                }
            }
            if new.is_empty() {
                return known;
            }
            known.extend(new);
        }
    }

    /// Tuples of a small world, circles of groups included.
    fn a_tuple() -> impl Strategy<Value = Tuple> {
        let user = prop::sample::select(vec!["user:a", "user:b", "service_account:s"]);
        let group = prop::sample::select(vec!["group:1", "group:2", "group:3"]);
        let tenant = prop::sample::select(vec!["tenant:x", "tenant:y"]);
        let holder = prop_oneof![3 => user.clone().prop_map(str::to_owned), 2 => group.clone().prop_map(|group| format!("{group}#member"))];
        prop_oneof![
            1 => user.prop_map(|user| format!("system:paddock#admin@{user}")),
            1 => tenant.clone().prop_map(|tenant| format!("{tenant}#system@system:paddock")),
            4 => (tenant.clone(), prop::sample::select(vec!["admin", "operator", "member", "auditor"]), holder.clone())
                .prop_map(|(tenant, relation, holder)| format!("{tenant}#{relation}@{holder}")),
            4 => (group.clone(), holder.clone()).prop_map(|(group, holder)| format!("{group}#member@{holder}")),
            1 => (group, tenant.clone()).prop_map(|(group, tenant)| format!("{group}#tenant@{tenant}")),
            2 => tenant.clone().prop_map(|tenant| format!("emulator:e#tenant@{tenant}")),
            2 => (prop::sample::select(vec!["granted_operator", "granted_viewer"]), holder)
                .prop_map(|(relation, holder)| format!("emulator:e#{relation}@{holder}")),
            1 => tenant.prop_map(|tenant| format!("snapshot:s#tenant@{tenant}")),
            1 => Just("snapshot:s#public@user:*".to_owned()),
        ]
        .prop_map(|text| tuple(&text))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_engine_agrees_with_a_naive_one(given in prop::collection::vec(a_tuple(), 0..25), removed in 0usize..5) {
            let mut tuples = Tuples::default();
            given.iter().cloned().for_each(|tuple| { tuples.insert(tuple); });
            let gone: HashSet<Tuple> = given.iter().take(removed).cloned().collect();
            gone.iter().for_each(|tuple| { tuples.remove(tuple); });
            let left: Vec<Tuple> = given.into_iter().filter(|tuple| !gone.contains(tuple)).collect();
            for subject in ["user:a", "user:b", "service_account:s"].map(thing) {
                let expected = naive(&left, &subject);
                for object in ["system:paddock", "tenant:x", "tenant:y", "group:1", "group:2", "group:3", "emulator:e", "snapshot:s"].map(thing) {
                    for relation in SCHEMA.relations(&object.kind) {
                        let holds = check(&SCHEMA, &tuples, &subject, relation, &object);
                        prop_assert_eq!(holds, expected.contains(&(object.clone(), relation.to_owned())), "{} {} {}", subject, relation, object);
                    }
                }
            }
        }
    }
}
