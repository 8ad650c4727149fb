//! Groups: people and machines of one tenant that are given rights together.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::permissions::Object;
use crate::permissions::tuples::Holder;
use crate::slug::Slug;
use crate::tenants::TenantId;

crate::id!(GroupId, "grp");

impl GroupId {
    pub fn object(self) -> Object {
        Object::new("group", self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: GroupId,
    pub tenant: TenantId,
    /// Unique within the tenant.
    pub name: Slug,
    pub display_name: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

/// What a caller may say about a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    pub name: Slug,
    /// The name itself where none is given.
    pub display_name: Option<String>,
}

impl Group {
    pub fn new(id: GroupId, tenant: TenantId, spec: GroupSpec, now: Timestamp) -> Self {
        let display_name = spec.display_name.unwrap_or_else(|| spec.name.to_string());
        Group { id, tenant, name: spec.name, display_name, created_at: now, updated_at: now, generation: 1 }
    }

    /// The group as it stands after the change.
    #[must_use]
    pub fn changed(self, spec: GroupSpec, now: Timestamp) -> Self {
        let display_name = spec.display_name.unwrap_or_else(|| spec.name.to_string());
        Group { name: spec.name, display_name, updated_at: now, generation: self.generation + 1, ..self }
    }

    pub fn object(&self) -> Object {
        self.id.object()
    }

    /// Everyone in the group.
    pub fn everyone(&self) -> Holder {
        Holder::Set(self.object().thing(), "member".into())
    }
}
