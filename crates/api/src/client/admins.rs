//! Admins of the installation, as a client asks for them.

use super::{Client, Result, encode};
use crate::admins::{Admin, AdminSpec};
use crate::page::{ListPage, Page};

const ADMINS: &str = "/api/v1/admins";

impl Client {
    pub async fn list_admins(&self, page: &ListPage) -> Result<Page<Admin>> {
        self.list(ADMINS, page).await
    }

    pub async fn create_admin(&self, spec: &AdminSpec) -> Result<Admin> {
        Ok(self.create(ADMINS, Some(spec)).await?.value)
    }

    pub async fn delete_admin(&self, subject: &str) -> Result<()> {
        self.delete(&format!("{ADMINS}/{}", encode(subject)), None).await
    }
}
