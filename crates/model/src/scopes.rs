//! Scopes: the part of the world that a caller may see.

use crate::tenants::TenantId;

/// What a caller may see. Every read of the store takes one: that is what makes the 404.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Tenants(Vec<TenantId>),
}

impl Scope {
    pub fn one(tenant: TenantId) -> Scope {
        Scope::Tenants(vec![tenant])
    }

    /// Whether what belongs to this tenant may be seen.
    pub fn covers(&self, tenant: TenantId) -> bool {
        match self {
            Scope::Everything => true,
            Scope::Tenants(tenants) => tenants.contains(&tenant),
        }
    }
}
