//! The audit, as a client asks for it.

use super::{Client, Result};
use crate::audit::{Event, ListEvents};
use crate::page::Page;

impl Client {
    pub async fn list_events(&self, query: &ListEvents) -> Result<Page<Event>> {
        self.list("/api/v1/audit", query).await
    }
}
