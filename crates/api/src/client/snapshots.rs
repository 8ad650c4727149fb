//! Snapshots, as a client asks for them.

use super::{Client, Result, Versioned, encode};
use crate::page::Page;
use crate::snapshots::{ListSnapshots, Snapshot};

const SNAPSHOTS: &str = "/api/v1/snapshots";

impl Client {
    pub async fn list_snapshots(&self, query: &ListSnapshots) -> Result<Page<Snapshot>> {
        self.list(SNAPSHOTS, query).await
    }

    pub async fn get_snapshot(&self, name: &str) -> Result<Versioned<Snapshot>> {
        self.get(&format!("{SNAPSHOTS}/{}", encode(name))).await
    }
}
