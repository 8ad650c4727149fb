//! Members of a tenant, as a client asks for them.

use super::{Client, Result, encode};
use crate::members::{Member, MemberSpec};
use crate::page::{ListPage, Page};

impl Client {
    pub async fn list_members(&self, tenant: &str, page: &ListPage) -> Result<Page<Member>> {
        self.list(&members(tenant), page).await
    }

    pub async fn get_member(&self, tenant: &str, id: &str) -> Result<Member> {
        Ok(self.get(&member(tenant, id)).await?.value)
    }

    pub async fn add_member(&self, tenant: &str, spec: &MemberSpec) -> Result<Member> {
        Ok(self.create(&members(tenant), Some(spec)).await?.value)
    }

    pub async fn remove_member(&self, tenant: &str, id: &str) -> Result<()> {
        self.delete(&member(tenant, id), None).await
    }
}

fn members(tenant: &str) -> String {
    format!("/api/v1/tenants/{}/members", encode(tenant))
}

fn member(tenant: &str, id: &str) -> String {
    format!("{}/{}", members(tenant), encode(id))
}
