//! Tenants: the walls between customers. Everything but the platform's own belongs to one.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::labels::{LabelSelector, Labels};
use crate::permissions::Object;
use crate::slug::Slug;

crate::id!(TenantId, "ten");

impl TenantId {
    pub fn object(self) -> Object {
        Object::new("tenant", self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    /// Unique among all tenants.
    pub name: Slug,
    pub display_name: String,
    pub labels: Labels,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

/// What a caller may say about a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSpec {
    pub name: Slug,
    /// The name itself where none is given.
    pub display_name: Option<String>,
    pub labels: Labels,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFilter {
    pub name: Option<String>,
    pub labels: LabelSelector,
}

impl Tenant {
    pub fn new(id: TenantId, spec: TenantSpec, now: Timestamp) -> Self {
        let tenant = Tenant {
            id,
            name: spec.name.clone(),
            display_name: String::new(),
            labels: Labels::new(),
            created_at: now,
            updated_at: now,
            generation: 1,
        };
        tenant.described(spec)
    }

    /// The tenant as it stands after the change.
    #[must_use]
    pub fn changed(self, spec: TenantSpec, now: Timestamp) -> Self {
        Tenant { updated_at: now, generation: self.generation + 1, ..self.described(spec) }
    }

    fn described(self, spec: TenantSpec) -> Self {
        let display_name = spec.display_name.unwrap_or_else(|| spec.name.to_string());
        Tenant { name: spec.name, display_name, labels: spec.labels, ..self }
    }

    pub fn object(&self) -> Object {
        self.id.object()
    }
}
