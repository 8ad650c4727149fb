//! Groups and who is in them, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::groups::{Group, GroupMember, GroupMemberSpec, GroupSpec};
use crate::page::{ListPage, Page};

impl Client {
    pub async fn list_groups(&self, tenant: &str, page: &ListPage) -> Result<Page<Group>> {
        self.list(&groups(tenant), page).await
    }

    pub async fn get_group(&self, id: &str) -> Result<Versioned<Group>> {
        self.get(&group(id)).await
    }

    pub async fn create_group(&self, tenant: &str, spec: &GroupSpec) -> Result<Versioned<Group>> {
        self.create(&groups(tenant), Some(spec)).await
    }

    pub async fn update_group(
        &self,
        id: &str,
        spec: &GroupSpec,
        etag: Option<&str>,
    ) -> Result<Versioned<Group>> {
        self.replace(&group(id), spec, etag).await
    }

    pub async fn delete_group(&self, id: &str, etag: Option<&str>) -> Result<()> {
        self.delete(&group(id), etag).await
    }

    pub async fn list_group_members(&self, id: &str, page: &ListPage) -> Result<Page<GroupMember>> {
        self.list(&members(id), page).await
    }

    pub async fn add_group_member(&self, id: &str, spec: &GroupMemberSpec) -> Result<GroupMember> {
        Ok(self.create(&members(id), Some(spec)).await?.value)
    }

    pub async fn remove_group_member(&self, id: &str, member: &str) -> Result<()> {
        self.delete(&format!("{}/{}", members(id), encode(member)), None).await
    }
}

fn groups(tenant: &str) -> String {
    format!("/api/v1/tenants/{}/groups", encode(tenant))
}

fn group(id: &str) -> String {
    format!("/api/v1/groups/{}", encode(id))
}

fn members(id: &str) -> String {
    format!("{}/members", group(id))
}
