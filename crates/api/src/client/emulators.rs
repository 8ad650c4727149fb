//! Emulators, as a client asks for them.

use http::Method;

use super::{Client, Result, Versioned, encode, if_match, query_string};
use crate::ci::{DeleteEmulator, EmulatorBatch};
use crate::emulators::{Emulator, EmulatorSpec, EmulatorStatusReport, ListEmulators, SnapshotSwap, Wait};
use crate::page::Page;

const EMULATORS: &str = "/api/v1/emulators";

impl Client {
    pub async fn list_emulators(&self, query: &ListEmulators) -> Result<Page<Emulator>> {
        self.list(EMULATORS, query).await
    }

    pub async fn get_emulator(&self, id: &str) -> Result<Versioned<Emulator>> {
        self.get(&emulator(id)).await
    }

    /// Returns as soon as it is accepted; the status tells when it is up.
    pub async fn create_emulator(&self, spec: &EmulatorSpec) -> Result<Versioned<Emulator>> {
        self.create(EMULATORS, Some(spec)).await
    }

    /// Several at once: the spec has a `count`.
    pub async fn create_emulators(&self, spec: &EmulatorSpec) -> Result<EmulatorBatch> {
        Ok(self.create(EMULATORS, Some(spec)).await?.value)
    }

    /// Where it is in its life; with `wait`, once that has settled or so many seconds have passed.
    pub async fn get_emulator_status(&self, id: &str, wait: &Wait) -> Result<EmulatorStatusReport> {
        let query = query_string(&serde_json::to_value(wait).unwrap_or_default());
        Ok(self.get(&format!("{}/status{query}", emulator(id))).await?.value)
    }

    pub async fn restart_emulator(&self, id: &str) -> Result<Versioned<Emulator>> {
        self.create(&format!("{}/restart", emulator(id)), None::<&()>).await
    }

    /// Returns as soon as it is accepted; the status tells whether it came up.
    pub async fn swap_snapshot(&self, id: &str, swap: &SnapshotSwap) -> Result<Versioned<Emulator>> {
        let path = format!("{}/snapshot", emulator(id));
        self.send(Method::PUT, &path, if_match(None)?, Some(swap)).await
    }

    pub async fn park_emulator(&self, id: &str) -> Result<Versioned<Emulator>> {
        self.create(&format!("{}/park", emulator(id)), None::<&()>).await
    }

    /// Returns as soon as it is accepted; the status tells when it is gone.
    pub async fn delete_emulator(
        &self,
        id: &str,
        query: &DeleteEmulator,
        etag: Option<&str>,
    ) -> Result<Versioned<Emulator>> {
        let query = query_string(&serde_json::to_value(query).unwrap_or_default());
        let path = format!("{}{query}", emulator(id));
        self.send(Method::DELETE, &path, if_match(etag)?, None::<&()>).await
    }
}

fn emulator(id: &str) -> String {
    format!("{EMULATORS}/{}", encode(id))
}
