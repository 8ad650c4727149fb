//! The relation model, read from its text: which types there are, and what makes each of their relations hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

/// The model that Paddock decides by.
pub static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("model.fga")).expect("the model that we ship can be read; a test reads it")
});

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    types: BTreeMap<String, BTreeMap<String, Rule>>,
}

/// When a relation holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It was given to the subject itself, or to a set that the subject is in.
    Given(Vec<Giveable>),
    /// Another relation on the same object holds.
    Also(String),
    /// A relation holds on an object that this one points to.
    From {
        relation: String,
        pointer: String,
    },
    Any(Vec<Rule>),
    All(Vec<Rule>),
}

/// To whom a relation may be given: `user`, `group#member`, `user:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Giveable {
    pub kind: String,
    pub relation: Option<String>,
    pub everyone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CannotRead {
    pub line: usize,
    pub problem: String,
}

impl fmt::Display for CannotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl Schema {
    pub fn parse(text: &str) -> Result<Schema, CannotRead> {
        let mut types: BTreeMap<String, BTreeMap<String, Rule>> = BTreeMap::new();
        let mut current = None;
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem: String| CannotRead { line: index + 1, problem };
            let line =
                line.split('#').next().filter(|_| line.trim_start().starts_with('#')).map_or(line, |_| "");
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix("type ") {
                if types.insert(name.trim().to_owned(), BTreeMap::new()).is_some() {
                    return Err(wrong(format!("type {name} stands twice")));
                }
                current = Some(name.trim().to_owned());
            } else if let Some(definition) = line.strip_prefix("define ") {
                let (name, rule) = definition
                    .split_once(':')
                    .ok_or_else(|| wrong("a definition without a colon".to_owned()))?;
                let rule = Reader::new(rule).whole().map_err(wrong)?;
                let relations = current.as_ref().and_then(|name| types.get_mut(name));
                let relations = relations.ok_or_else(|| wrong("a definition outside a type".to_owned()))?;
                if relations.insert(name.trim().to_owned(), rule).is_some() {
                    return Err(wrong(format!("{} is defined twice", name.trim())));
                }
            } else {
                return Err(wrong(format!("neither a type nor a definition: {line}")));
            }
        }
        let schema = Schema { types };
        schema.check().map_err(|problem| CannotRead { line: 0, problem })?;
        Ok(schema)
    }

    pub fn rule(&self, kind: &str, relation: &str) -> Option<&Rule> {
        self.types.get(kind)?.get(relation)
    }

    /// All rules of a type, by relation.
    pub(super) fn rules(&self, kind: &str) -> Option<&BTreeMap<String, Rule>> {
        self.types.get(kind)
    }

    pub fn has_type(&self, kind: &str) -> bool {
        self.types.contains_key(kind)
    }

    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(String::as_str)
    }

    pub fn relations(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.types.get(kind).into_iter().flat_map(|relations| relations.keys().map(String::as_str))
    }

    /// Whether the relation may be given to such a subject.
    pub fn may_be_given(&self, kind: &str, relation: &str, to: &Giveable) -> bool {
        fn given<'a>(rule: &'a Rule, found: &mut Vec<&'a Giveable>) {
            match rule {
                Rule::Given(to) => found.extend(to),
                Rule::Any(rules) | Rule::All(rules) => rules.iter().for_each(|rule| given(rule, found)),
                Rule::Also(_) | Rule::From { .. } => {}
            }
        }
        let mut found = Vec::new();
        self.rule(kind, relation).into_iter().for_each(|rule| given(rule, &mut found));
        found.contains(&to)
    }

    /// Every name that a rule uses must exist.
    fn check(&self) -> Result<(), String> {
        for (kind, relations) in &self.types {
            for (relation, rule) in relations {
                self.check_rule(kind, rule).map_err(|problem| format!("{kind}.{relation}: {problem}"))?;
            }
        }
        Ok(())
    }

    fn check_rule(&self, kind: &str, rule: &Rule) -> Result<(), String> {
        let exists = |kind: &str, relation: &str| {
            if self.rule(kind, relation).is_some() {
                Ok(())
            } else {
                Err(format!("{kind} has no relation {relation}"))
            }
        };
        match rule {
            Rule::Given(to) => to.iter().try_for_each(|to| match &to.relation {
                Some(relation) => exists(&to.kind, relation),
                None if self.has_type(&to.kind) => Ok(()),
                None => Err(format!("there is no type {}", to.kind)),
            }),
            Rule::Also(relation) => exists(kind, relation),
            Rule::From { relation, pointer } => {
                exists(kind, pointer)?;
                let Some(Rule::Given(to)) = self.rule(kind, pointer) else {
                    return Err(format!("{pointer} points nowhere: it is not simply given"));
                };
                to.iter().try_for_each(|to| exists(&to.kind, relation))
            }
            Rule::Any(rules) | Rule::All(rules) => {
                rules.iter().try_for_each(|rule| self.check_rule(kind, rule))
            }
        }
    }
}

/// Reads one rule, word by word.
struct Reader<'a> {
    words: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let end = if rest.starts_with(['(', ')', '[', ']', ',']) {
                1
            } else {
                rest.find(|letter: char| letter.is_whitespace() || "()[],".contains(letter))
                    .unwrap_or(rest.len())
            };
            words.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        Reader { words: words.into_iter().peekable() }
    }

    fn whole(mut self) -> Result<Rule, String> {
        let rule = self.rule()?;
        match self.words.next() {
            None => Ok(rule),
            Some(word) => Err(format!("{word} is too much")),
        }
    }

    /// As in OpenFGA, `and` and `or` are not mixed without parentheses.
    fn rule(&mut self) -> Result<Rule, String> {
        let mut rules = vec![self.part()?];
        let word = self.words.peek().copied().filter(|word| matches!(*word, "or" | "and"));
        while word.is_some() && self.words.peek().copied() == word {
            self.words.next();
            rules.push(self.part()?);
        }
        match (word, self.words.peek()) {
            (Some(_), Some(&("or" | "and"))) => Err("and beside or needs parentheses".to_owned()),
            (Some("and"), _) => Ok(Rule::All(rules)),
            (Some(_), _) => Ok(Rule::Any(rules)),
            (None, _) => rules.pop().ok_or_else(|| "nothing".to_owned()),
        }
    }

    fn part(&mut self) -> Result<Rule, String> {
        match self.words.next() {
            Some("(") => {
                let rule = self.rule()?;
                self.expect(")")?;
                Ok(rule)
            }
            Some("[") => self.given(),
            Some(word) if is_name(word) => {
                if self.words.next_if_eq(&"from").is_none() {
                    return Ok(Rule::Also(word.to_owned()));
                }
                let pointer = self.words.next().filter(|word| is_name(word)).ok_or("from what?")?;
                Ok(Rule::From { relation: word.to_owned(), pointer: pointer.to_owned() })
            }
            other => Err(format!("a relation is missing before {}", other.unwrap_or("the end"))),
        }
    }

    fn given(&mut self) -> Result<Rule, String> {
        let mut to = Vec::new();
        loop {
            let word = self.words.next().ok_or("a bracket that does not end")?;
            let (kind, relation, everyone) = match (word.split_once('#'), word.strip_suffix(":*")) {
                (Some((kind, relation)), _) => (kind, Some(relation.to_owned()), false),
                (None, Some(kind)) => (kind, None, true),
                (None, None) => (word, None, false),
            };
            if !is_name(kind) {
                return Err(format!("{word} is no type"));
            }
            to.push(Giveable { kind: kind.to_owned(), relation, everyone });
            if self.words.next_if_eq(&",").is_none() {
                self.expect("]")?;
                return Ok(Rule::Given(to));
            }
        }
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        match self.words.next() {
            Some(word) if word == wanted => Ok(()),
            other => Err(format!("{wanted} is missing before {}", other.unwrap_or("the end"))),
        }
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_that_we_ship_can_be_read() {
        assert_eq!(SCHEMA.types().count(), 16);
        assert!(SCHEMA.rule("emulator", "can_restart").is_some());
        let group =
            Giveable { kind: "group".to_owned(), relation: Some("member".to_owned()), everyone: false };
        assert!(SCHEMA.may_be_given("tenant", "admin", &group));
        assert!(!SCHEMA.may_be_given("system", "admin", &group));
        assert!(!SCHEMA.may_be_given("tenant", "can_view", &group));
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        let also = |name: &str| Rule::Also(name.to_owned());
        let from =
            |relation: &str| Rule::From { relation: relation.to_owned(), pointer: "tenant".to_owned() };
        for (text, rule) in [
            ("owner", Some(also("owner"))),
            ("a or b or c", Some(Rule::Any(vec![also("a"), also("b"), also("c")]))),
            (
                "(a or b) and x from tenant",
                Some(Rule::All(vec![Rule::Any(vec![also("a"), also("b")]), from("x")])),
            ),
            ("a or b and c", None),
            ("a or", None),
            ("(a", None),
            ("a b", None),
            ("[user", None),
            ("", None),
            ("x from", None),
        ] {
            assert_eq!(Reader::new(text).whole().ok(), rule, "{text}");
        }
    }

    #[test]
    fn a_model_that_names_what_does_not_exist_is_refused() {
        for (text, problem) in [
            ("type a\n define b: c", "a has no relation c"),
            ("type a\n define b: [nobody]", "there is no type nobody"),
            ("type a\n define b: x from c", "a has no relation c"),
            ("type a\n define p: [a]\n define b: x from p", "a has no relation x"),
            ("define b: c", "outside a type"),
            ("type a\ntype a", "stands twice"),
            ("nonsense", "neither"),
        ] {
            let refused = Schema::parse(text).expect_err(text);
            assert!(refused.problem.contains(problem), "{text}: {refused}");
        }
    }
}
