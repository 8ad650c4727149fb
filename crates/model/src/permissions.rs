//! Who may do what, as relations between subjects and objects; and the part of the world a caller may see.

pub mod check;
pub mod schema;
pub mod tuples;

use std::fmt;

use std::sync::Arc;

use self::tuples::{Holder, Thing, Tuple};
use crate::api_keys::ApiKeyId;
use crate::emulators::EmulatorId;
use crate::groups::GroupId;
use crate::slug::Slug;
use crate::tenants::TenantId;
use crate::users::UserId;

/// What a relation is held on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Object {
    /// The installation itself.
    System,
    Tenant(TenantId),
    Group(GroupId),
    UserAccount(UserId),
    Emulator(EmulatorId),
    Snapshot(Slug),
    /// No type of the model: rights on a key follow from its tenant and its owner.
    ApiKey(ApiKeyId),
}

/// Who holds a relation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    User(UserId),
    /// A machine, named by its issuer and by the name it has there: `cluster/ci/runner`.
    ServiceAccount(Arc<str>),
}

macro_rules! relations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The relations that use-cases ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Relation {
            $($variant,)*
        }

        impl Relation {
            pub const fn name(self) -> &'static str {
                match self {
                    $(Relation::$variant => $name,)*
                }
            }
        }
    };
}

relations! {
    Admin = "admin",
    Auditor = "auditor",
    CanCreateDevice = "can_create_device",
    CanCreateEmulator = "can_create_emulator",
    CanCreateTenant = "can_create_tenant",
    CanDelete = "can_delete",
    CanDeploy = "can_deploy",
    CanEdit = "can_edit",
    CanListUsers = "can_list_users",
    CanManageAdmins = "can_manage_admins",
    CanManageGrants = "can_manage_grants",
    CanManageGroups = "can_manage_groups",
    CanManageMembers = "can_manage_members",
    CanRestart = "can_restart",
    CanUpdate = "can_update",
    CanView = "can_view",
    CanViewAudit = "can_view_audit",
    CanViewMembers = "can_view_members",
    Holder = "holder",
    Member = "member",
    Operator = "operator",
}

impl Object {
    pub fn thing(&self) -> Thing {
        match self {
            Object::System => Thing::new("system", "paddock"),
            Object::Tenant(id) => Thing::new("tenant", &id.to_string()),
            Object::Group(id) => Thing::new("group", &id.to_string()),
            Object::UserAccount(id) => Thing::new("user_account", &id.to_string()),
            Object::Emulator(id) => Thing::new("emulator", &id.to_string()),
            Object::Snapshot(name) => Thing::new("snapshot", name.as_str()),
            Object::ApiKey(id) => Thing::new("api_key", &id.to_string()),
        }
    }

    /// The tuple that gives the holder a relation on this.
    pub fn given_to(&self, relation: &str, holder: Holder) -> Tuple {
        Tuple { object: self.thing(), relation: relation.into(), holder }
    }
}

impl Subject {
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
