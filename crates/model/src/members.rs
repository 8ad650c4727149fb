//! Members: who belongs to a tenant, and in which role.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::permissions::tuples::Holder;

/// Each role is a relation on the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    Admin,
    Operator,
    Member,
    Auditor,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Admin, Role::Operator, Role::Member, Role::Auditor];

    pub const fn relation(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Member => "member",
            Role::Auditor => "auditor",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Role::ALL.into_iter().find(|role| role.relation() == text)
    }
}

/// Someone or some group with a role that was given to them directly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(with = "holder_text")]
    pub holder: Holder,
    pub role: Role,
    pub since: Timestamp,
}

mod holder_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::permissions::tuples::Holder;

    pub fn serialize<S: Serializer>(holder: &Holder, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(holder)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Holder, D::Error> {
        let text = String::deserialize(deserializer)?;
        Holder::parse(&text).ok_or_else(|| Error::custom("not a holder"))
    }
}
