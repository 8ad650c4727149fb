//! Who may do what, as relations between subjects and objects; and the part of the world a caller may see.

pub mod check;
pub mod schema;
pub mod tuples;

use std::fmt;

use self::tuples::{Holder, Thing, Tuple};
use crate::tenants::TenantId;
use crate::users::UserId;

/// What a relation is held on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// The installation itself.
    System,
    Tenant(TenantId),
}

/// Who holds a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    User(UserId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    Admin,
    CanCreateTenant,
    CanView,
    CanUpdate,
    CanDelete,
}

impl Relation {
    pub const fn name(self) -> &'static str {
        match self {
            Relation::Admin => "admin",
            Relation::CanCreateTenant => "can_create_tenant",
            Relation::CanView => "can_view",
            Relation::CanUpdate => "can_update",
            Relation::CanDelete => "can_delete",
        }
    }
}

impl Object {
    pub fn thing(self) -> Thing {
        match self {
            Object::System => Thing::new("system", "paddock"),
            Object::Tenant(id) => Thing::new("tenant", &id.to_string()),
        }
    }

    /// The tuple that gives the subject a relation on this.
    pub fn given_to(self, relation: &str, holder: Holder) -> Tuple {
        Tuple { object: self.thing(), relation: relation.into(), holder }
    }
}

impl Subject {
    pub fn thing(self) -> Thing {
        match self {
            Subject::User(id) => Thing::new("user", &id.to_string()),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.thing())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.thing())
    }
}

/// What a caller may see. Every read of the store takes one: that is what makes the 404.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Tenants(Vec<TenantId>),
}

impl Scope {
    /// Whether what belongs to this tenant may be seen.
    pub fn covers(&self, tenant: TenantId) -> bool {
        match self {
            Scope::Everything => true,
            Scope::Tenants(tenants) => tenants.contains(&tenant),
        }
    }
}
