//! Restores, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::page::Page;
use crate::restores::{ListRestores, Restore, RestoreSpec};

const RESTORES: &str = "/api/v1/restores";

impl Client {
    pub async fn list_restores(&self, query: &ListRestores) -> Result<Page<Restore>> {
        self.list(RESTORES, query).await
    }

    /// Returns as soon as it is wanted; its phase tells when it is done.
    pub async fn create_restore(&self, spec: &RestoreSpec) -> Result<Versioned<Restore>> {
        self.create(RESTORES, Some(spec)).await
    }

    pub async fn get_restore(&self, name: &str) -> Result<Versioned<Restore>> {
        self.get(&format!("{RESTORES}/{}", encode(name))).await
    }
}
