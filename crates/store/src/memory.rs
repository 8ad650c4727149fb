//! Rows that were read and have not changed since: most requests read the same few.
//!
//! Only for a database that this process has to itself (SQLite). A commit raises the version of every table it
//! changed before it is acknowledged, and what was read under an older version counts no more: whoever was told of a
//! change reads it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moka::sync::Cache;
use uuid::Uuid;

/// The tables whose rows are remembered.
const TABLES: &[&str] = &["emulators", "tenants"];
const MOST: u64 = 10_000;

/// The table, and the row's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub &'static str, pub Uuid);

pub(crate) struct Memory {
    versions: HashMap<&'static str, AtomicU64>,
    rows: Cache<Key, Remembered>,
}

#[derive(Clone)]
struct Remembered {
    version: u64,
    value: Arc<dyn Any + Send + Sync>,
}

/// Leave to remember what is read from now on, as long as the table stays as it is.
pub(crate) struct Ticket {
    key: Key,
    version: u64,
}

impl Default for Memory {
    fn default() -> Self {
        let versions = TABLES.iter().map(|table| (*table, AtomicU64::new(0))).collect();
        Memory { versions, rows: Cache::new(MOST) }
    }
}

impl Memory {
    /// What was read before, or a ticket to remember what is read now.
    pub fn recall<T: Clone + Send + Sync + 'static>(&self, key: Key) -> Result<T, Ticket> {
        let version = self.version(key.0);
        let known = self.rows.get(&key).filter(|row| row.version == version);
        known.and_then(|row| row.value.downcast_ref::<T>().cloned()).ok_or(Ticket { key, version })
    }

    pub fn remember<T: Clone + Send + Sync + 'static>(&self, ticket: &Ticket, value: &T) {
        self.rows.insert(ticket.key, Remembered { version: ticket.version, value: Arc::new(value.clone()) });
    }

    /// To be called after the change is visible and before it is acknowledged.
    pub fn forget(&self, table: &str) {
        if let Some(version) = self.versions.get(table) {
            version.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn version(&self, table: &str) -> u64 {
        // A table that is not in the list would never be forgotten: whoever adds a key learns of it in the first test.
        self.versions.get(table).expect("the table of a key is in TABLES").load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key("tenants", Uuid::from_u128(1));

    #[test]
    fn what_was_read_before_a_change_counts_no_more() {
        let memory = Memory::default();
        let early = memory.recall::<i64>(KEY).expect_err("nothing yet");
        let late = memory.recall::<i64>(KEY).expect_err("nothing yet");
        memory.remember(&early, &1i64);
        assert_eq!(memory.recall::<i64>(KEY).ok(), Some(1));

        memory.forget("tenants");
        assert!(memory.recall::<i64>(KEY).is_err());
        // Read before the change, remembered after it: too late.
        memory.remember(&late, &1i64);
        assert!(memory.recall::<i64>(KEY).is_err());

        let fresh = memory.recall::<i64>(KEY).expect_err("forgotten");
        memory.remember(&fresh, &2i64);
        memory.forget("users");
        assert_eq!(memory.recall::<i64>(KEY).ok(), Some(2));
    }
}
