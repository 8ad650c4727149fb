//! Who holds what in the companies that permissions are measured with, and what is asked about one person there.

use paddock_model::permissions::tuples::{Holder, Thing, Tuple};

/// Those in which the person has some part; in all others there is nothing about it.
const RELATED_TENANTS: usize = 10;
const TUPLES_A_TENANT: usize = 100;
/// What the questions depend on; every tuple behind these is unrelated.
pub const RELATED: usize = RELATED_TENANTS * TUPLES_A_TENANT;

const EMULATORS: usize = 10;
const SNAPSHOTS: usize = 8;
const BACKUPS: usize = 6;
const TARGETS: usize = 3;
const PEOPLE: usize = 10;

/// Does the person hold this relation on this object?
pub struct Question {
    pub relation: &'static str,
    pub object: Thing,
}

/// What the person is in a tenant.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// In a squad, which is in a team, which is in a department, which is in the staff, which are the members.
    Member,
    Operator,
    Auditor,
    /// Still owner of emulators, but no member any more.
    Gone,
    Stranger,
}

impl Part {
    fn in_tenant(tenant: usize) -> Part {
        match tenant {
            0..=4 => Part::Member,
            5 => Part::Operator,
            6 => Part::Auditor,
            7 => Part::Gone,
            _ => Part::Stranger,
        }
    }
}

/// The related tuples first, then as many others as anybody takes.
pub fn tuples(person: &Thing) -> impl Iterator<Item = Tuple> {
    (0..).flat_map(move |tenant| of_tenant(tenant, person))
}

/// Some are held by way of nested groups, some at once, and some not at all.
pub fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    for tenant in 0..RELATED_TENANTS {
        let mut ask = |relation, object| questions.push(Question { relation, object });
        let on_emulators = ["can_view", "can_restart", "can_connect_adb", "can_read_vehicle", "can_delete"];
        for number in 0..EMULATORS {
            ask(on_emulators[number % on_emulators.len()], thing("emulator", tenant, number));
        }
        for (number, relation) in
            ["can_view", "can_deploy", "can_delete", "can_promote_root"].into_iter().enumerate()
        {
            ask(relation, thing("snapshot", tenant, number));
        }
        ask("can_view", thing("backup", tenant, 0));
        ask("can_view", thing("backup", tenant, 1));
        ask("can_edit", thing("target", tenant, 0));
        ask("can_view", thing("tenant", tenant, 0));
        ask("can_create_backup", thing("tenant", tenant, 0));
        ask("can_view", group(tenant, "team"));
    }
    questions
}

fn of_tenant(number: usize, person: &Thing) -> Vec<Tuple> {
    let part = Part::in_tenant(number);
    let tenant = thing("tenant", number, 0);
    let one = |thing: &Thing| Holder::One(thing.clone());
    let members = |name: &str| Holder::Set(group(number, name), "member".into());
    let mut tuples = Vec::new();
    let mut give = |object: &Thing, relation: &str, holder: Holder| {
        tuples.push(Tuple { object: object.clone(), relation: relation.into(), holder });
    };

    give(&tenant, "system", one(&Thing::new("system", "bench")));
    give(&tenant, "admin", one(&thing("user", number, 0)));
    give(&tenant, "operator", members("operators"));
    give(&tenant, "member", members("staff"));
    give(&tenant, "auditor", members("auditors"));
    for name in ["staff", "department", "team", "squad", "operators", "auditors"] {
        give(&group(number, name), "tenant", one(&tenant));
    }
    for (outer, inner) in [("staff", "department"), ("department", "team"), ("team", "squad")] {
        give(&group(number, outer), "member", members(inner));
    }
    // Where the person has no part, somebody else takes the place, so that all tenants are of one size.
    let (place, holder) = match part {
        Part::Member => ("squad", person.clone()),
        Part::Operator => ("operators", person.clone()),
        Part::Auditor => ("auditors", person.clone()),
        Part::Gone | Part::Stranger => ("squad", thing("user", number, PEOPLE)),
    };
    give(&group(number, place), "member", Holder::One(holder));
    for somebody in 0..PEOPLE {
        let place = ["squad", "team", "department", "operators", "auditors"][somebody % 5];
        give(&group(number, place), "member", one(&thing("user", number, somebody)));
    }

    let has_some = matches!(part, Part::Member | Part::Gone);
    let owner = |item: usize| {
        if has_some && item % 3 == 1 { person.clone() } else { thing("user", number, item % PEOPLE) }
    };
    for item in 0..EMULATORS {
        let emulator = thing("emulator", number, item);
        give(&emulator, "tenant", one(&tenant));
        give(&emulator, "owner", Holder::One(owner(item)));
        give(&emulator, "granted_operator", members(if item % 2 == 0 { "team" } else { "operators" }));
        give(&emulator, "granted_viewer", members("department"));
    }
    for item in 0..SNAPSHOTS {
        let snapshot = thing("snapshot", number, item);
        give(&snapshot, "tenant", one(&tenant));
        give(&snapshot, "owner", Holder::One(owner(item)));
    }
    give(&thing("snapshot", number, 0), "public", Holder::Everyone("user".into()));
    for item in 0..BACKUPS {
        let backup = thing("backup", number, item);
        give(&backup, "tenant", one(&tenant));
        give(&backup, "owner", Holder::One(owner(item)));
    }
    for item in 0..TARGETS {
        let target = thing("target", number, item);
        give(&target, "tenant", one(&tenant));
        give(&target, "granted_editor", members("squad"));
    }
    tuples
}

/// With an id as long as a real one.
fn thing(kind: &str, tenant: usize, number: usize) -> Thing {
    Thing::new(kind, &format!("{}_{tenant:020}x{number:05}", &kind[..3]))
}

fn group(tenant: usize, name: &str) -> Thing {
    Thing::new("group", &format!("grp_{tenant:020}x{name}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use paddock_model::permissions::check::check;
    use paddock_model::permissions::schema::SCHEMA;
    use paddock_model::permissions::tuples::Tuples;

    use super::*;

    #[test]
    fn tenants_are_of_one_size_and_only_the_first_know_the_person() {
        let person = Thing::new("user", "usr_1");
        let all: Vec<Tuple> = tuples(&person).take(3 * RELATED).collect();

        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "no tuple stands twice");
        for tuple in &all {
            assert!(Tuples::is_allowed(&SCHEMA, tuple), "{tuple}");
        }
        for number in 0..RELATED_TENANTS + 2 {
            assert_eq!(of_tenant(number, &person).len(), TUPLES_A_TENANT);
        }
        let of_person = all.iter().rposition(|tuple| tuple.holder == Holder::One(person.clone()));
        assert!(of_person.expect("the person has a part") < RELATED);
    }

    #[test]
    fn some_questions_are_held_and_some_are_not() {
        let person = Thing::new("user", "usr_1");
        let mut known = Tuples::default();
        tuples(&person).take(RELATED).for_each(|tuple| assert!(known.insert(tuple)));

        let questions = questions();
        let held = questions
            .iter()
            .filter(|question| check(&SCHEMA, &known, &person, question.relation, &question.object));

        assert_eq!((held.count(), questions.len()), (105, 200));
    }
}
