//! Permissions, as a client asks for them.

use http::{HeaderMap, Method};

use super::{Client, Result, query_string};
use crate::permissions::{CheckRequest, CheckResult, MyPermissions, PermissionSummary, Whoami};

impl Client {
    pub async fn whoami(&self) -> Result<Whoami> {
        Ok(self.get("/api/v1/whoami").await?.value)
    }

    /// What the caller may; the grants come in pages.
    pub async fn my_permissions(&self, query: &MyPermissions) -> Result<PermissionSummary> {
        let query = query_string(&serde_json::to_value(query).unwrap_or_default());
        Ok(self.get(&format!("/api/v1/permissions/me{query}")).await?.value)
    }

    /// Answers the one question of the request.
    pub async fn check(&self, question: &CheckRequest) -> Result<CheckResult> {
        let path = "/api/v1/permissions/check";
        Ok(self.send(Method::POST, path, HeaderMap::new(), Some(question)).await?.value)
    }
}
