//! A backup of a disk against restic on the same bytes: all of it, a hundredth changed, nothing changed, and back again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use paddock_drivers::backup_repositories::{RepositoryPlace, RepositorySettings, ResticRepositories};
use paddock_drivers::clock::SystemClock;
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::random::OsRandom;
use paddock_model::drivers::backup_repositories::{
    BackupOrder, BackupRepositories, KnownContent, Progress, StoredBackup,
};
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::ports::{Clock, Random};
use paddock_model::tenants::TenantId;
use tokio::runtime::Runtime;

use crate::Bench;
use crate::figures::{Goal, Pairs, Row};

const DISK_BYTES: u64 = 1 << 30;
const CHANGE_BYTES: u64 = 64 << 10;
/// Of 64 KiB each: a hundredth of the disk.
const CHANGES: u64 = DISK_BYTES / 100 / CHANGE_BYTES;
/// A round takes most of a minute.
const MOST_ROUNDS: usize = 3;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.folder("backup")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut yard = Yard::new(&folder, &runtime, DISK_BYTES, CHANGES)?;
    let (mut full, mut changed, mut unchanged, mut back, mut size) =
        (Pairs::default(), Pairs::default(), Pairs::default(), Pairs::default(), Pairs::default());
    for round in 0..bench.rounds.min(MOST_ROUNDS) {
        let (ours, theirs) = (yard.ours(round)?, yard.restic(round)?);
        // Times a second, so that more is better.
        full.push(1.0 / ours.full, 1.0 / theirs.full);
        changed.push(1.0 / ours.changed, 1.0 / theirs.changed);
        unchanged.push(1.0 / ours.unchanged, 1.0 / theirs.unchanged);
        back.push(1.0 / ours.restore, 1.0 / theirs.restore);
        size.push(ours.bytes, theirs.bytes);
    }
    let row = |name: &str, pairs: &Pairs, goal: Goal, unit: &str| Row {
        name: name.to_owned(),
        figures: pairs.ratios(),
        goal: Some(goal),
        note: pairs.note(unit),
    };
    Ok(vec![
        row("backup of 1 GiB ÷ restic", &full, Goal::AtLeast(3.0), "/s"),
        row("backup, 1 % changed ÷ restic", &changed, Goal::AtLeast(25.0), "/s"),
        row("backup, unchanged ÷ restic", &unchanged, Goal::AtLeast(10.0), "/s"),
        row("restore of 1 GiB ÷ restic", &back, Goal::AtLeast(3.0), "/s"),
        row("repository ÷ restic's", &size, Goal::AtMost(1.05), " bytes"),
    ])
}

/// In seconds, and what the repository takes.
struct Measured {
    full: f64,
    changed: f64,
    unchanged: f64,
    restore: f64,
    bytes: f64,
}

struct Yard<'a> {
    folder: PathBuf,
    runtime: &'a Runtime,
    pool: Qcow2Pool,
    base: LayerId,
    top: LayerId,
    /// As restic is to see them.
    before: PathBuf,
    after: PathBuf,
}

fn now() -> paddock_model::Timestamp {
    SystemClock::default().now()
}

fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begun = Instant::now();
    let done = act()?;
    Ok((begun.elapsed().as_secs_f64(), done))
}

impl<'a> Yard<'a> {
    /// A quarter zero, a quarter random, the rest like text.
    fn new(folder: &Path, runtime: &'a Runtime, bytes: u64, changes: u64) -> Result<Yard<'a>> {
        let (before, after) = (folder.join("before.raw"), folder.join("after.raw"));
        let file = File::create(&before)?;
        file.set_len(bytes)?;
        let mut piece = vec![0; 1 << 20];
        for at in (0..bytes).step_by(piece.len()) {
            match at * 4 / bytes {
                0 => continue,
                1 => OsRandom::default().fill(&mut piece),
                _ => {
                    let mut seed = [0; 512];
                    OsRandom::default().fill(&mut seed);
                    // Words of a few letters, over and over in another order.
                    for (number, word) in piece.chunks_mut(16).enumerate() {
                        let pick = usize::from(seed[number % 509]) % 32 * 16;
                        word.copy_from_slice(&seed[pick..pick + word.len()]);
                        word[0] = (number >> 4) as u8;
                    }
                }
            }
            file.write_all_at(&piece, at)?;
        }
        file.sync_all()?;
        fs::copy(&before, &after)?;
        let pool = Qcow2Pool::open("bench", &folder.join("pool"))?;
        let layer = || LayerId::new(now(), &OsRandom::default());
        let disk = || DiskId::new(now(), &OsRandom::default());
        let (base, top, from, to) = (layer(), layer(), disk(), disk());
        let changed = File::options().write(true).open(&after)?;
        let mut commands = Command::new("qemu-io");
        for number in 0..changes {
            let at = bytes / changes * number / CHANGE_BYTES * CHANGE_BYTES;
            let pattern = u8::try_from(number % 250)? + 1;
            commands.arg("-c").arg(format!("write -P {pattern} {at} {CHANGE_BYTES}"));
            changed.write_all_at(&vec![pattern; usize::try_from(CHANGE_BYTES)?], at)?;
        }
        runtime.block_on(async {
            pool.ensure_layer(base, &LayerSource::File(before.clone())).await?;
            let volume = pool.ensure_disk(from, base).await?;
            let written =
                commands.arg(&volume.0).output().context("run qemu-io; is qemu-utils installed?")?;
            ensure!(written.status.success(), "qemu-io: {written:?}");
            pool.ensure_successor(from, top, to).await?;
            pool.seal_layer(top, from).await?;
            Ok(())
        })?;
        Ok(Yard { folder: folder.to_owned(), runtime, pool, base, top, before, after })
    }

    fn store(
        &self,
        repositories: &ResticRepositories,
        tenant: TenantId,
        layer: LayerId,
        known: Vec<KnownContent>,
    ) -> Result<(f64, StoredBackup)> {
        let mut name = [0; 8];
        OsRandom::default().fill(&mut name);
        let order = BackupOrder {
            tenant,
            name: format!("backup-{:x}", u64::from_be_bytes(name)),
            about: serde_json::json!({}),
            known,
            at: now(),
        };
        timed(|| {
            let stored = self.runtime.block_on(async {
                let content = self.pool.content(layer).await?;
                repositories.store(&order, content, Arc::new(Progress::default())).await
            });
            Ok(stored?)
        })
    }

    fn ours(&mut self, round: usize) -> Result<Measured> {
        let folder = self.folder.join(format!("ours-{round}"));
        let settings =
            RepositorySettings { place: RepositoryPlace::Folder(folder.clone()), keys: folder.join("keys") };
        let repositories = ResticRepositories::new(settings)?;
        let tenant = TenantId::new(now(), &OsRandom::default());
        let (full, first) = self.store(&repositories, tenant, self.base, Vec::new())?;
        let known = |layer, stored: &StoredBackup| KnownContent { layer, id: stored.id.clone() };
        let first = known(self.base, &first);
        let (changed, second) = self.store(&repositories, tenant, self.top, vec![first.clone()])?;
        let third = known(self.top, &second);
        let (unchanged, _) = self.store(&repositories, tenant, self.top, vec![first, third])?;
        let bytes = size(&folder)? as f64;
        let layer = LayerId::new(now(), &OsRandom::default());
        let (restore, ()) = timed(|| {
            self.runtime.block_on(async {
                let progress = Arc::new(Progress::default());
                let mut fetched = repositories.fetch(tenant, &second.id, &second.checksum, progress).await?;
                self.pool.receive(layer, &mut *fetched.content, fetched.bytes, None).await?;
                Ok(())
            })
        })?;
        let restored = self.folder.join("pool/layers").join(format!("{layer}.received"));
        let same = Command::new("cmp").arg("-s").arg(&restored).arg(&self.after).status()?;
        ensure!(same.success(), "what came back is not what was stored");
        self.runtime.block_on(self.pool.discard(layer))?;
        fs::remove_dir_all(folder)?;
        Ok(Measured { full, changed, unchanged, restore, bytes })
    }

    fn restic(&mut self, round: usize) -> Result<Measured> {
        let folder = self.folder.join(format!("restic-{round}"));
        fs::create_dir_all(&folder)?;
        let (repository, disk) = (folder.join("repository"), folder.join("disk.raw"));
        let restic = |arguments: &[&str]| {
            let done = Command::new("restic")
                .arg("-r")
                .arg(&repository)
                .args(["-q", "--cache-dir"])
                .arg(folder.join("cache"))
                .args(arguments)
                .env("RESTIC_PASSWORD", "measured")
                .output()
                .context("run restic; is it installed?")?;
            ensure!(done.status.success(), "restic {arguments:?}: {done:?}");
            Ok(())
        };
        // Made before the clock runs; ours is made with the first backup.
        restic(&["init"])?;
        fs::copy(&self.before, &disk)?;
        let path = disk.to_str().context("a path")?;
        let (full, ()) = timed(|| restic(&["backup", path]))?;
        fs::copy(&self.after, &disk)?;
        let (changed, ()) = timed(|| restic(&["backup", path]))?;
        let (unchanged, ()) = timed(|| restic(&["backup", path]))?;
        let bytes = size(&repository)? as f64;
        let target = folder.join("restored");
        let (restore, ()) =
            timed(|| restic(&["restore", "latest", "--target", target.to_str().context("a path")?]))?;
        fs::remove_dir_all(folder)?;
        Ok(Measured { full, changed, unchanged, restore, bytes })
    }
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { size(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parties_store_the_disk_and_bring_it_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut yard = Yard::new(folder.path(), &runtime, 16 << 20, 4).expect("a yard");

        let (ours, theirs) = (yard.ours(0).expect("ours"), yard.restic(0).expect("theirs"));

        assert!(ours.bytes > 4e6 && theirs.bytes > 4e6, "the random quarter is in both");
        assert!(ours.full > 0.0 && ours.restore > 0.0 && theirs.full > 0.0);
    }
}
