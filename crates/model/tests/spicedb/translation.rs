//! Our model and our tuples in SpiceDB's words, made from the very schema that the engine decides by.

use std::fmt::Write;

use paddock_model::permissions::schema::{Giveable, Rule, Schema};
use paddock_model::permissions::tuples::Tuple;

/// The whole model as a SpiceDB schema.
pub fn model(schema: &Schema) -> String {
    let mut text = String::new();
    for kind in schema.types() {
        let lines: String =
            schema.relations(kind).map(|relation| definition(schema, kind, relation)).collect();
        write!(text, "definition {kind} {{\n{lines}}}\n\n").expect("text takes text");
    }
    text
}

/// A tuple, under the name that its relation has there.
pub fn tuple(schema: &Schema, tuple: &Tuple) -> String {
    let Tuple { object, relation, holder } = tuple;
    format!("{object}#{}@{holder}", name_of_given(schema, &object.kind, relation))
}

/// To whom a relation may be given.
pub fn giveables(schema: &Schema, kind: &str, relation: &str) -> Vec<Giveable> {
    fn collect(rule: &Rule, found: &mut Vec<Giveable>) {
        match rule {
            Rule::Given(to) => found.extend(to.iter().cloned()),
            Rule::Any(rules) | Rule::All(rules) => rules.iter().for_each(|rule| collect(rule, found)),
            Rule::Also(_) | Rule::From { .. } => {}
        }
    }
    let mut found = Vec::new();
    schema.rule(kind, relation).into_iter().for_each(|rule| collect(rule, &mut found));
    found
}

fn definition(schema: &Schema, kind: &str, relation: &str) -> String {
    let mut lines = String::new();
    let given = name_of_given(schema, kind, relation);
    let to: Vec<String> = giveables(schema, kind, relation).iter().map(giveable).collect();
    if !to.is_empty() {
        writeln!(lines, "  relation {given}: {}", to.join(" | ")).expect("text takes text");
    }
    match schema.rule(kind, relation) {
        None | Some(Rule::Given(_)) => {}
        Some(rule) => {
            writeln!(lines, "  permission {relation} = {}", expression(rule, &given))
                .expect("text takes text");
        }
    }
    lines
}

/// SpiceDB keeps what is given apart from what follows; where we mix both, the given part needs a name of its own.
fn name_of_given(schema: &Schema, kind: &str, relation: &str) -> String {
    match schema.rule(kind, relation) {
        Some(Rule::Given(_)) | None => relation.to_owned(),
        Some(_) => format!("{relation}_given"),
    }
}

fn giveable(to: &Giveable) -> String {
    match (&to.relation, to.everyone) {
        (Some(relation), _) => format!("{}#{relation}", to.kind),
        (None, true) => format!("{}:*", to.kind),
        (None, false) => to.kind.clone(),
    }
}

fn expression(rule: &Rule, given: &str) -> String {
    let joined = |rules: &[Rule], sign: &str| {
        let parts: Vec<String> = rules.iter().map(|rule| expression(rule, given)).collect();
        format!("({})", parts.join(sign))
    };
    match rule {
        Rule::Given(_) => given.to_owned(),
        Rule::Also(other) => other.clone(),
        Rule::From { relation, pointer } => format!("{pointer}->{relation}"),
        Rule::Any(rules) => joined(rules, " + "),
        Rule::All(rules) => joined(rules, " & "),
    }
}
