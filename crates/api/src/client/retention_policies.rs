//! Retention policies, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::page::Page;
use crate::retention_policies::{
    ListRetentionPolicies, RetentionPolicy, RetentionPolicyChange, RetentionPolicySpec, RetentionPreview,
};

const RETENTION_POLICIES: &str = "/api/v1/retention_policies";

impl Client {
    pub async fn list_retention_policies(
        &self,
        query: &ListRetentionPolicies,
    ) -> Result<Page<RetentionPolicy>> {
        self.list(RETENTION_POLICIES, query).await
    }

    pub async fn get_retention_policy(&self, id: &str) -> Result<Versioned<RetentionPolicy>> {
        self.get(&retention_policy(id)).await
    }

    pub async fn create_retention_policy(
        &self,
        spec: &RetentionPolicySpec,
    ) -> Result<Versioned<RetentionPolicy>> {
        self.create(RETENTION_POLICIES, Some(spec)).await
    }

    pub async fn update_retention_policy(
        &self,
        id: &str,
        change: &RetentionPolicyChange,
        etag: Option<&str>,
    ) -> Result<Versioned<RetentionPolicy>> {
        self.replace(&retention_policy(id), change, etag).await
    }

    pub async fn delete_retention_policy(&self, id: &str, etag: Option<&str>) -> Result<()> {
        self.delete(&retention_policy(id), etag).await
    }

    pub async fn preview_retention_policy(&self, id: &str) -> Result<RetentionPreview> {
        Ok(self.create(&format!("{}/preview", retention_policy(id)), None::<&()>).await?.value)
    }

    pub async fn preview_proposed_retention_policy(
        &self,
        spec: &RetentionPolicySpec,
    ) -> Result<RetentionPreview> {
        Ok(self.create(&format!("{RETENTION_POLICIES}/preview"), Some(spec)).await?.value)
    }
}

fn retention_policy(id: &str) -> String {
    format!("{RETENTION_POLICIES}/{}", encode(id))
}
