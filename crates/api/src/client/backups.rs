//! Backups, as a client asks for them.

use http::Method;

use super::{Client, Result, Versioned, encode, if_match};
use crate::backups::{Backup, BackupSpec, ListBackups};
use crate::page::Page;

const BACKUPS: &str = "/api/v1/backups";

impl Client {
    pub async fn list_backups(&self, query: &ListBackups) -> Result<Page<Backup>> {
        self.list(BACKUPS, query).await
    }

    /// Returns as soon as it is wanted; its phase tells when it is done.
    pub async fn create_backup(&self, spec: &BackupSpec) -> Result<Versioned<Backup>> {
        self.create(BACKUPS, Some(spec)).await
    }

    pub async fn get_backup(&self, name: &str) -> Result<Versioned<Backup>> {
        self.get(&backup(name)).await
    }

    /// Returns as soon as it is marked; one that runs is given up.
    pub async fn delete_backup(&self, name: &str, etag: Option<&str>) -> Result<Versioned<Backup>> {
        self.send(Method::DELETE, &backup(name), if_match(etag)?, None::<&()>).await
    }
}

fn backup(name: &str) -> String {
    format!("{BACKUPS}/{}", encode(name))
}
