//! Trees of snapshots as they were last written out, for as long as nothing in them has changed.
//!
//! A tree of a hundred thousand takes seconds to read and to write, and a console asks for it again and again. What is kept is
//! what one scope sees: two callers share a tree only if they may see the same tenants.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::sync::Cache;
use paddock_model::Result;
use paddock_model::scopes::Scope;
use paddock_model::tenants::TenantId;
use paddock_store::Store;
use tokio::sync::Mutex;

/// What a tree is made of.
const TABLES: &[&str] = &["snapshots", "layers", "snapshot_children", "templates"];
/// All of them together.
const MOST_BYTES: u64 = 256 << 20;
/// News of what another process has committed may be lost on its way; for longer than this nobody relies on it.
const LONGEST_UNTOLD: Duration = Duration::from_secs(1);
/// As many trees are written at once; more of one are never.
const WRITERS: usize = 16;

/// Whose tree, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// None for everything.
    tenants: Option<Vec<TenantId>>,
    root: Option<String>,
    depth: usize,
}

impl Key {
    pub fn new(scope: &Scope, root: Option<&str>, depth: usize) -> Key {
        let tenants = match scope {
            Scope::Everything => None,
            Scope::Tenants(tenants) => {
                let mut tenants = tenants.clone();
                tenants.sort_unstable();
                tenants.dedup();
                Some(tenants)
            }
        };
        Key { tenants, root: root.map(str::to_owned), depth }
    }
}

#[derive(Clone)]
struct Written {
    revision: u64,
    begun: Instant,
    text: Bytes,
}

pub(crate) struct Trees {
    kept: Cache<Key, Written>,
    writers: [Mutex<()>; WRITERS],
    hasher: RandomState,
}

impl Default for Trees {
    fn default() -> Self {
        let weight = |key: &Key, written: &Written| {
            let tenants = key.tenants.as_ref().map_or(0, |tenants| size_of_val(tenants.as_slice()));
            u32::try_from(size_of::<(Key, Written)>() + tenants + written.text.len()).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder().max_capacity(MOST_BYTES).weigher(weight).build();
        Trees { kept, writers: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

impl Trees {
    /// What was written before if it still holds, or else what `write` writes now.
    pub async fn recall(
        &self,
        store: &Store,
        key: Key,
        write: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        if let Some(text) = self.kept(store, &key) {
            return Ok(text);
        }
        // Whoever asks for the same meanwhile gets what the first has written.
        let _writing = self.writers[self.hasher.hash_one(&key) as usize % WRITERS].lock().await;
        if let Some(text) = self.kept(store, &key) {
            return Ok(text);
        }
        // Before anything is read: what changes while it is read makes it count no more.
        let (revision, begun) = (store.revision(TABLES), Instant::now());
        let text = write.await?;
        self.kept.insert(key, Written { revision, begun, text: text.clone() });
        Ok(text)
    }

    fn kept(&self, store: &Store, key: &Key) -> Option<Bytes> {
        let written = self.kept.get(key)?;
        let holds = written.revision == store.revision(TABLES)
            && (!store.is_shared() || written.begun.elapsed() < LONGEST_UNTOLD);
        holds.then_some(written.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_shared_by_those_who_see_the_same_and_by_nobody_else() {
        let [one, two] = [1, 2].map(|number| TenantId(uuid::Uuid::from_u128(number)));
        let key = |tenants: &[TenantId]| Key::new(&Scope::Tenants(tenants.to_vec()), None, 9);
        assert_eq!(key(&[one, two]), key(&[two, one, two]));
        for other in [
            key(&[one]),
            key(&[]),
            Key::new(&Scope::Everything, None, 9),
            Key::new(&Scope::Tenants(vec![one, two]), Some("base"), 9),
            Key::new(&Scope::Tenants(vec![one, two]), None, 8),
        ] {
            assert_ne!(key(&[one, two]), other);
        }
    }
}
