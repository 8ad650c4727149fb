//! Tenants, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::page::Page;
use crate::tenants::{ListTenants, Tenant, TenantSpec};

impl Client {
    pub async fn list_tenants(&self, query: &ListTenants) -> Result<Page<Tenant>> {
        self.list("/api/v1/tenants", query).await
    }

    pub async fn get_tenant(&self, id: &str) -> Result<Versioned<Tenant>> {
        self.get(&tenant(id)).await
    }

    pub async fn create_tenant(&self, spec: &TenantSpec) -> Result<Versioned<Tenant>> {
        self.create("/api/v1/tenants", Some(spec)).await
    }

    pub async fn update_tenant(
        &self,
        id: &str,
        spec: &TenantSpec,
        etag: Option<&str>,
    ) -> Result<Versioned<Tenant>> {
        self.replace(&tenant(id), spec, etag).await
    }

    pub async fn delete_tenant(&self, id: &str, etag: Option<&str>) -> Result<()> {
        self.delete(&tenant(id), etag).await
    }
}

fn tenant(id: &str) -> String {
    format!("/api/v1/tenants/{}", encode(id))
}
