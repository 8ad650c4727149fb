//! Subjects: who can hold a right, a person or a machine.

use std::fmt;
use std::sync::Arc;

use crate::permissions::tuples::Thing;
use crate::users::{User, UserId};

/// Who holds a relation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    User(UserId),
    /// A machine, named by its issuer and by the name it has there: `cluster/ci/runner`.
    ServiceAccount(Arc<str>),
}

impl Subject {
    /// Paddock itself. No machine has this name: theirs begin with their issuer's and a slash.
    pub fn system() -> Subject {
        Subject::ServiceAccount("system".into())
    }

    pub fn thing(&self) -> Thing {
        match self {
            Subject::User(id) => Thing::new("user", &id.to_string()),
            Subject::ServiceAccount(name) => Thing { kind: "service_account".into(), id: name.clone() },
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let thing = Thing::parse(text)?;
        match &*thing.kind {
            "user" => UserId::parse(&thing.id).map(Subject::User),
            "service_account" => Some(Subject::ServiceAccount(thing.id)),
            _ => None,
        }
    }

    pub fn user(&self) -> Option<UserId> {
        match self {
            Subject::User(id) => Some(*id),
            Subject::ServiceAccount(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.thing())
    }
}

impl serde::Serialize for Subject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Subject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        Subject::parse(&text).ok_or_else(|| serde::de::Error::custom("not a subject"))
    }
}

impl From<&User> for Subject {
    fn from(user: &User) -> Self {
        Subject::User(user.id)
    }
}
