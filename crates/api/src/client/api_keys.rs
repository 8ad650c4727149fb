//! API keys, as a client asks for them.

use super::{Client, Result, encode};
use crate::api_keys::{ApiKey, ApiKeySpec, ListApiKeys};
use crate::page::Page;

const API_KEYS: &str = "/api/v1/api_keys";

impl Client {
    pub async fn list_api_keys(&self, query: &ListApiKeys) -> Result<Page<ApiKey>> {
        self.list(API_KEYS, query).await
    }

    pub async fn get_api_key(&self, id: &str) -> Result<ApiKey> {
        Ok(self.get(&api_key(id)).await?.value)
    }

    pub async fn create_api_key(&self, spec: &ApiKeySpec) -> Result<ApiKey> {
        Ok(self.create(API_KEYS, Some(spec)).await?.value)
    }

    pub async fn delete_api_key(&self, id: &str) -> Result<()> {
        self.delete(&api_key(id), None).await
    }
}

fn api_key(id: &str) -> String {
    format!("{API_KEYS}/{}", encode(id))
}
