//! The tuples in memory: who was given which relation on what, found from both ends.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::schema::Schema;

/// A thing of a type: `tenant:ten_…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thing {
    pub kind: Arc<str>,
    pub id: Arc<str>,
}

/// Who a relation is given to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    One(Thing),
    /// Whoever holds the relation on the thing: `group:grp_…#member`.
    Set(Thing, Arc<str>),
    /// Everyone of the type: `user:*`.
    Everyone(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    pub object: Thing,
    pub relation: Arc<str>,
    pub holder: Holder,
}

impl Thing {
    pub fn new(kind: &str, id: &str) -> Self {
        Thing { kind: kind.into(), id: id.into() }
    }

    /// `type:id`; an id may hold anything but white space, `#` and `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, id) = text.split_once(':')?;
        let fits = !kind.is_empty()
            && !id.is_empty()
            && !id.contains(|letter: char| letter.is_whitespace() || "#*".contains(letter));
        fits.then(|| Thing::new(kind, id))
    }
}

impl Holder {
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(kind) = text.strip_suffix(":*") {
            return Some(Holder::Everyone(kind.into()));
        }
        match text.split_once('#') {
            Some((thing, relation)) if !relation.is_empty() => {
                Some(Holder::Set(Thing::parse(thing)?, relation.into()))
            }
            Some(_) => None,
            None => Thing::parse(text).map(Holder::One),
        }
    }
}

/// Written as it is said: `tenant:ten_…`.
impl serde::Serialize for Thing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Thing {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Thing::parse(&text).ok_or_else(|| serde::de::Error::custom("not of the form type:id"))
    }
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::One(thing) => write!(f, "{thing}"),
            Holder::Set(thing, relation) => write!(f, "{thing}#{relation}"),
            Holder::Everyone(kind) => write!(f, "{kind}:*"),
        }
    }
}

impl std::fmt::Display for Tuple {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}@{}", self.object, self.relation, self.holder)
    }
}

/// All tuples, so that a check asks only for those it needs: its cost does not grow with the others.
#[derive(Debug, Clone, Default)]
pub struct Tuples {
    given: HashMap<Thing, OnThing>,
    held: HashMap<Holder, Few<(Thing, Arc<str>)>>,
    /// Types and relations stand in every tuple; each text is kept once.
    words: HashSet<Arc<str>>,
    count: usize,
}

/// What was given on one thing, by relation; there are no more of them than its type has.
#[derive(Debug, Clone, Default)]
pub(super) struct OnThing(Vec<(Arc<str>, Given)>);

/// What was given of one relation on one thing.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    pub ones: Few<Thing>,
    pub sets: Few<(Thing, Arc<str>)>,
    pub everyone: Few<Arc<str>>,
}

impl OnThing {
    pub fn of(&self, relation: &str) -> Option<&Given> {
        self.0.iter().find(|(name, _)| **name == *relation).map(|(_, given)| given)
    }

    fn place_of(&mut self, relation: &Arc<str>) -> &mut Given {
        let at = self.0.iter().position(|(name, _)| name == relation).unwrap_or_else(|| {
            self.0.push((relation.clone(), Given::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl Given {
    fn is_empty(&self) -> bool {
        self.ones.is_empty() && self.sets.is_empty() && self.everyone.is_empty()
    }
}

/// A set that is small nearly always, and quick when it is not.
#[derive(Debug, Clone)]
pub(super) enum Few<T> {
    Listed(Vec<T>),
    Hashed(HashSet<T>),
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Few::Listed(Vec::new())
    }
}

impl<T: Eq + Hash> Few<T> {
    /// Above this, looking through a list takes longer than hashing.
    const LISTED: usize = 8;

    pub fn contains(&self, item: &T) -> bool {
        match self {
            Few::Listed(list) => list.contains(item),
            Few::Hashed(set) => set.contains(item),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (list, set) = match self {
            Few::Listed(list) => (Some(list), None),
            Few::Hashed(set) => (None, Some(set)),
        };
        list.into_iter().flatten().chain(set.into_iter().flatten())
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Few::Listed(list) => list.is_empty(),
            Few::Hashed(set) => set.is_empty(),
        }
    }

    fn insert(&mut self, item: T) -> bool {
        match self {
            Few::Listed(list) if list.contains(&item) => false,
            Few::Listed(list) if list.len() < Self::LISTED => {
                list.push(item);
                true
            }
            Few::Listed(list) => {
                *self = Few::Hashed(list.drain(..).chain([item]).collect());
                true
            }
            Few::Hashed(set) => set.insert(item),
        }
    }

    fn remove(&mut self, item: &T) -> bool {
        match self {
            Few::Listed(list) => match list.iter().position(|known| known == item) {
                Some(at) => {
                    list.swap_remove(at);
                    true
                }
                None => false,
            },
            Few::Hashed(set) => set.remove(item),
        }
    }
}

impl Tuples {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// False when it was there already.
    pub fn insert(&mut self, tuple: Tuple) -> bool {
        let tuple = self.with_kept_words(tuple);
        let key = (tuple.object, tuple.relation);
        if !self.held.entry(tuple.holder.clone()).or_default().insert(key.clone()) {
            return false;
        }
        self.count += 1;
        let given = self.given.entry(key.0).or_default().place_of(&key.1);
        match tuple.holder {
            Holder::One(thing) => given.ones.insert(thing),
            Holder::Set(thing, relation) => given.sets.insert((thing, relation)),
            Holder::Everyone(kind) => given.everyone.insert(kind),
        }
    }

    /// False when it was not there.
    pub fn remove(&mut self, tuple: &Tuple) -> bool {
        let key = (tuple.object.clone(), tuple.relation.clone());
        let Some(held) = self.held.get_mut(&tuple.holder) else { return false };
        if !held.remove(&key) {
            return false;
        }
        if held.is_empty() {
            self.held.remove(&tuple.holder);
        }
        self.count -= 1;
        if let Some(on_thing) = self.given.get_mut(&tuple.object) {
            let given = on_thing.place_of(&tuple.relation);
            match &tuple.holder {
                Holder::One(thing) => given.ones.remove(thing),
                Holder::Set(thing, relation) => given.sets.remove(&(thing.clone(), relation.clone())),
                Holder::Everyone(kind) => given.everyone.remove(kind),
            };
            on_thing.0.retain(|(_, given)| !given.is_empty());
            if on_thing.0.is_empty() {
                self.given.remove(&tuple.object);
            }
        }
        true
    }

    fn with_kept_words(&mut self, tuple: Tuple) -> Tuple {
        let mut kept = |word: Arc<str>| match self.words.get(&word) {
            Some(known) => known.clone(),
            None => {
                self.words.insert(word.clone());
                word
            }
        };
        let mut thing = |thing: Thing| Thing { kind: kept(thing.kind), id: thing.id };
        let object = thing(tuple.object);
        let holder = match tuple.holder {
            Holder::One(one) => Holder::One(thing(one)),
            Holder::Set(set, relation) => Holder::Set(thing(set), kept(relation)),
            Holder::Everyone(kind) => Holder::Everyone(kept(kind)),
        };
        Tuple { object, relation: kept(tuple.relation), holder }
    }

    /// Whether anything was given on a thing: nothing is there without belonging to someone.
    pub fn knows(&self, object: &Thing, relations: &[&str]) -> bool {
        relations.iter().any(|relation| self.given(object, &(*relation).into()).is_some())
    }

    pub(super) fn given(&self, object: &Thing, relation: &Arc<str>) -> Option<&Given> {
        self.given.get(object)?.of(relation)
    }

    /// Nothing where nothing was given; else the thing as it is kept here, once.
    pub(super) fn given_on(&self, object: &Thing) -> Option<(&Thing, &OnThing)> {
        self.given.get_key_value(object)
    }

    /// What was given to exactly this holder.
    pub fn held_by(&self, holder: &Holder) -> impl Iterator<Item = &(Thing, Arc<str>)> {
        self.held.get(holder).into_iter().flat_map(Few::iter)
    }

    /// What one relation on a thing points to, such as the tenant that it belongs to.
    pub fn pointed_to(&self, object: &Thing, relation: &str) -> impl Iterator<Item = &Thing> {
        self.given(object, &relation.into()).into_iter().flat_map(|given| given.ones.iter())
    }

    /// Every thing on which the subject was given something, itself or through the sets that it is in.
    pub fn within_reach(&self, subject: &Thing) -> HashSet<Thing> {
        self.reach(subject).into_keys().collect()
    }

    /// The same, with what was given on each thing and to whom.
    pub fn reach(&self, subject: &Thing) -> HashMap<Thing, Vec<(Arc<str>, Holder)>> {
        let mut open = vec![Holder::One(subject.clone()), Holder::Everyone(subject.kind.clone())];
        let (mut seen, mut reached) = (HashSet::new(), HashMap::<Thing, Vec<_>>::new());
        while let Some(holder) = open.pop() {
            for (object, relation) in self.held_by(&holder) {
                reached.entry(object.clone()).or_default().push((relation.clone(), holder.clone()));
                let set = Holder::Set(object.clone(), relation.clone());
                if seen.insert(set.clone()) {
                    open.push(set);
                }
            }
        }
        reached
    }

    /// Whether the tuple would close a circle of sets, such as a group that is a member of itself by way of others.
    pub fn closes_a_circle(&self, tuple: &Tuple) -> bool {
        let Holder::Set(inner, inner_relation) = &tuple.holder else { return false };
        let outer = (tuple.object.clone(), tuple.relation.clone());
        let (mut open, mut seen) = (vec![(inner.clone(), inner_relation.clone())], HashSet::new());
        while let Some(set) = open.pop() {
            if set == outer {
                return true;
            }
            if seen.insert(set.clone())
                && let Some(given) = self.given(&set.0, &set.1)
            {
                open.extend(given.sets.iter().cloned());
            }
        }
        false
    }

    /// Whether the model allows this tuple.
    pub fn is_allowed(schema: &Schema, tuple: &Tuple) -> bool {
        use super::schema::Giveable;
        let to = match &tuple.holder {
            Holder::One(thing) => Giveable { kind: thing.kind.to_string(), relation: None, everyone: false },
            Holder::Set(thing, relation) => Giveable {
                kind: thing.kind.to_string(),
                relation: Some(relation.to_string()),
                everyone: false,
            },
            Holder::Everyone(kind) => Giveable { kind: kind.to_string(), relation: None, everyone: true },
        };
        schema.may_be_given(&tuple.object.kind, &tuple.relation, &to)
    }
}
