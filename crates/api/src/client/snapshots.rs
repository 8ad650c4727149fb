//! Snapshots, as a client asks for them.

use http::Method;
use tokio::io::AsyncRead;

use super::content::Content;
use super::{Client, Result, Versioned, encode, if_match, query_string};
use crate::page::Page;
use crate::snapshots::{
    DiskPools, ListSnapshots, PromoteRoot, ReadTree, Snapshot, SnapshotSpec, SnapshotTree,
};

const SNAPSHOTS: &str = "/api/v1/snapshots";

impl Client {
    pub async fn list_snapshots(&self, query: &ListSnapshots) -> Result<Page<Snapshot>> {
        self.list(SNAPSHOTS, query).await
    }

    /// Returns as soon as it is accepted; the snapshot's state tells when it can be deployed.
    pub async fn create_snapshot(&self, spec: &SnapshotSpec) -> Result<Versioned<Snapshot>> {
        self.create(SNAPSHOTS, Some(spec)).await
    }

    /// Sends the bytes of a snapshot that was announced as an import without a path: `length` of them. If it fails nothing was kept,
    /// and it can be done again.
    pub async fn upload_snapshot(
        &self,
        name: &str,
        content: impl AsyncRead + Send + Sync + Unpin + 'static,
        length: u64,
    ) -> Result<Versioned<Snapshot>> {
        let body = reqwest::Body::wrap(Content::new(content, length));
        self.stream(Method::PUT, &format!("{}/content", snapshot(name)), body).await
    }

    pub async fn get_snapshot(&self, name: &str) -> Result<Versioned<Snapshot>> {
        self.get(&snapshot(name)).await
    }

    pub async fn get_snapshot_tree(&self, query: &ReadTree) -> Result<SnapshotTree> {
        let query = query_string(&serde_json::to_value(query).unwrap_or_default());
        Ok(self.get(&format!("{SNAPSHOTS}/tree{query}")).await?.value)
    }

    pub async fn get_diskpool(&self) -> Result<DiskPools> {
        Ok(self.get(&format!("{SNAPSHOTS}/diskpool")).await?.value)
    }

    /// Returns as soon as it is marked; it is purged when nothing needs it.
    pub async fn delete_snapshot(&self, name: &str, etag: Option<&str>) -> Result<Versioned<Snapshot>> {
        self.send(Method::DELETE, &snapshot(name), if_match(etag)?, None::<&()>).await
    }

    pub async fn promote_root(&self, name: &str, body: &PromoteRoot) -> Result<Versioned<Snapshot>> {
        self.create(&format!("{}/promote-root", snapshot(name)), Some(body)).await
    }

    pub async fn demote_root(&self, name: &str) -> Result<Versioned<Snapshot>> {
        self.create(&format!("{}/demote-root", snapshot(name)), None::<&()>).await
    }

    /// Returns as soon as it waits for its turn.
    pub async fn verify_snapshot(&self, name: &str) -> Result<Versioned<Snapshot>> {
        self.create(&format!("{}/verify", snapshot(name)), None::<&()>).await
    }
}

fn snapshot(name: &str) -> String {
    format!("{SNAPSHOTS}/{}", encode(name))
}
