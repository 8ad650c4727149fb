//! Grants to a group, as a client asks for them.

use super::{Client, Result, encode};
use crate::grants::{Grant, GrantSpec};
use crate::page::{ListPage, Page};

impl Client {
    pub async fn list_grants(&self, group: &str, page: &ListPage) -> Result<Page<Grant>> {
        self.list(&grants(group), page).await
    }

    pub async fn create_grant(&self, group: &str, spec: &GrantSpec) -> Result<Grant> {
        Ok(self.create(&grants(group), Some(spec)).await?.value)
    }

    pub async fn delete_grant(&self, group: &str, id: &str) -> Result<()> {
        self.delete(&format!("{}/{}", grants(group), encode(id)), None).await
    }
}

fn grants(group: &str) -> String {
    format!("/api/v1/groups/{}/grants", encode(group))
}
