//! Removes what no backup needs. Packs of which a part is needed are written anew once that is worth it.

use std::collections::{HashMap, HashSet};

use paddock_model::drivers::DriverResult;

use super::pack::{Id, IndexedPack, Kind, Packer};
use super::{Repository, Tree, unreadable};

/// A pack is left alone while this much of it is needed.
const NEEDED_PERCENT: u64 = 70;

impl Repository {
    /// For whoever is alone in the repository. Returns how many bytes are given back.
    ///
    /// What is kept is written before the index that names it, and that before anything is removed.
    pub fn prune(&self) -> DriverResult<u64> {
        let _lock = self.lock(true)?;
        self.load_index()?;
        let needed = self.needed()?;
        let there = self.packs()?;
        let (old_indexes, packs) = self.indexed()?;
        let mut kept: Vec<IndexedPack> = Vec::new();
        let mut named: HashSet<(bool, Id)> = HashSet::new();
        let mut going: Vec<Id> = Vec::new();
        let mut to_copy: Vec<&IndexedPack> = Vec::new();
        // The fullest first: of what is there twice, the better packed one stays.
        let share = |pack: &IndexedPack| {
            let of = |wanted: bool| -> u64 {
                let blobs = pack
                    .blobs
                    .iter()
                    .filter(|blob| !wanted || needed.contains(&(blob.kind == Kind::Tree, blob.id)));
                blobs.map(|blob| u64::from(blob.length)).sum()
            };
            of(true) * 100 / of(false).max(1)
        };
        let mut shares: Vec<(u64, &IndexedPack)> = packs.iter().map(|pack| (share(pack), pack)).collect();
        shares.sort_by_key(|(share, pack)| (std::cmp::Reverse(*share), pack.id));
        for (share, pack) in shares {
            if there.get(&pack.id) != Some(&pack.length()) {
                // Lost or cut off; a restore that needs it says so, and the next backup stores its blobs again.
                going.push(pack.id);
                continue;
            }
            let news = pack.blobs.iter().any(|blob| {
                let key = (blob.kind == Kind::Tree, blob.id);
                needed.contains(&key) && !named.contains(&key)
            });
            if !news {
                going.push(pack.id);
            } else if share >= NEEDED_PERCENT {
                named.extend(pack.blobs.iter().map(|blob| (blob.kind == Kind::Tree, blob.id)));
                kept.push(pack.clone());
            } else {
                to_copy.push(pack);
            }
        }
        // Packs that no index names are of somebody who did not come to his end.
        let indexed: HashSet<Id> = packs.iter().map(|pack| pack.id).collect();
        let strays: Vec<Id> = there.keys().filter(|id| !indexed.contains(id)).copied().collect();
        if going.is_empty() && strays.is_empty() && to_copy.is_empty() && old_indexes.len() <= 1 {
            return Ok(0);
        }
        let mut written = 0;
        for kind in [Kind::Data, Kind::Tree] {
            written += self.copy(kind, &to_copy, &needed, &mut named, &mut kept)?;
        }
        going.extend(to_copy.iter().map(|pack| pack.id));
        going.extend(strays);
        let index = (!kept.is_empty()).then(|| self.write_index(kept)).transpose()?;
        for name in old_indexes.iter().filter(|name| Some(*name) != index.as_ref()) {
            self.objects.remove(name)?;
        }
        let mut freed = 0;
        for pack in going {
            self.objects.remove(&super::pack::object(pack))?;
            freed += there.get(&pack).copied().unwrap_or_default();
        }
        self.load_index()?;
        Ok(u64::saturating_sub(freed, written))
    }

    /// The blobs of all backups.
    fn needed(&self) -> DriverResult<HashSet<(bool, Id)>> {
        let mut needed = HashSet::new();
        let mut trees: Vec<Id> = self.snapshots()?.into_iter().map(|(_, snapshot)| snapshot.tree).collect();
        while let Some(tree) = trees.pop() {
            if !needed.insert((true, tree)) {
                continue;
            }
            // Where nobody can say what a backup needs, nothing is removed.
            let bytes = self.blob(Kind::Tree, tree)?;
            let tree: Tree = serde_json::from_slice(&bytes).map_err(|error| unreadable("a tree", error))?;
            for node in tree.nodes {
                trees.extend(node.subtree);
                needed.extend(node.content.unwrap_or_default().into_iter().map(|id| (false, id)));
            }
        }
        Ok(needed)
    }

    /// Writes what is needed of some packs into new ones, as it is sealed.
    fn copy(
        &self,
        kind: Kind,
        packs: &[&IndexedPack],
        needed: &HashSet<(bool, Id)>,
        named: &mut HashSet<(bool, Id)>,
        kept: &mut Vec<IndexedPack>,
    ) -> DriverResult<u64> {
        let mut packer = Packer::new(kind);
        let mut written = 0;
        let mut finish = |packer: &mut Packer| -> DriverResult<()> {
            if let Some((bytes, pack)) = packer.finish(&self.key)? {
                written += bytes.len() as u64;
                self.objects.put(&super::pack::object(pack.id), bytes)?;
                kept.push(pack);
            }
            Ok(())
        };
        let mut cache: HashMap<Id, Vec<u8>> = HashMap::new();
        let mut opener = self.opener()?;
        for pack in packs {
            for blob in pack.blobs.iter().filter(|blob| blob.kind == kind) {
                let key = (kind == Kind::Tree, blob.id);
                if !needed.contains(&key) || !named.insert(key) {
                    continue;
                }
                if !cache.contains_key(&pack.id) {
                    cache.clear();
                    cache.insert(pack.id, self.objects.get(&super::pack::object(pack.id))?);
                }
                let (from, to) = (blob.offset as usize, blob.offset as usize + blob.length as usize);
                let bytes = cache.get(&pack.id).and_then(|bytes| bytes.get(from..to)).unwrap_or_default();
                // What is damaged is not carried on as if it were whole.
                if let Err(error) = opener.open(blob.id, blob.uncompressed, bytes) {
                    tracing::error!(blob = %blob.id, %error, repository = self.objects.location(), "a piece of a backup is damaged");
                    continue;
                }
                packer.add(blob.id, bytes, blob.uncompressed);
                if packer.is_full() {
                    finish(&mut packer)?;
                }
            }
        }
        finish(&mut packer)?;
        Ok(written)
    }
}
