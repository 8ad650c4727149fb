//! A repository under faults: whatever is cut off, altered, lost or killed, a restore gives the same bytes or refuses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use paddock_model::drivers::backup_repositories::{BackupOrder, KnownContent, Progress, StoredBackup};
use paddock_model::drivers::disk_pools::DiskContent;
use paddock_model::layers::LayerId;
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use super::*;

type Stored = BTreeMap<String, Vec<u8>>;

/// Objects in memory, of which somebody takes away the writer after some steps.
#[derive(Default)]
struct Memory {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Writes that are still allowed; negative for all.
    left: AtomicI64,
}

impl Memory {
    fn new() -> Arc<Memory> {
        Arc::new(Memory { left: AtomicI64::new(-1), ..Memory::default() })
    }

    fn with(objects: BTreeMap<String, Vec<u8>>) -> Arc<Memory> {
        Arc::new(Memory { objects: Mutex::new(objects), left: AtomicI64::new(-1) })
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) -> DriverResult<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            Some(if left > 0 { left - 1 } else { left })
        });
        match left {
            Ok(0) => Err(DriverError::new(Retry::Soon, "killed", "the writer is no more")),
            _ => Ok(()),
        }
    }
}

impl Objects for Memory {
    fn list(&self, folder: &str) -> DriverResult<Vec<(String, u64)>> {
        let within = format!("{folder}/");
        let objects = self.objects();
        let found = objects.iter().filter(|(name, _)| name.starts_with(&within));
        Ok(found.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect())
    }

    fn get(&self, name: &str) -> DriverResult<Vec<u8>> {
        self.objects().get(name).cloned().ok_or_else(|| crate::backup_repositories::objects::missing(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> DriverResult<Vec<u8>> {
        let bytes = self.get(name)?;
        let part = bytes.get(range.start as usize..range.end as usize);
        part.map(<[u8]>::to_vec).ok_or_else(|| damaged(name))
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> DriverResult<()> {
        self.step()?;
        self.objects().insert(name.to_owned(), bytes);
        Ok(())
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> DriverResult<bool> {
        self.step()?;
        let mut objects = self.objects();
        let is_new = !objects.contains_key(name);
        objects.entry(name.to_owned()).or_insert(bytes);
        Ok(is_new)
    }

    fn remove(&self, name: &str) -> DriverResult<()> {
        // A lock that nobody takes away shows what it does to others.
        self.step()?;
        self.objects().remove(name);
        Ok(())
    }

    fn location(&self) -> String {
        "memory".to_owned()
    }
}

/// A disk in memory that knows which pieces its uppermost layer holds.
struct Disk {
    bytes: Vec<u8>,
    lineage: Vec<LayerId>,
    written: Vec<Range<u64>>,
}

impl DiskContent for Disk {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn lineage(&self) -> &[LayerId] {
        &self.lineage
    }

    fn written(&mut self, since: Option<LayerId>) -> DriverResult<Vec<Range<u64>>> {
        Ok(if since.is_some() { self.written.clone() } else { std::iter::once(0..self.bytes()).collect() })
    }

    fn is_zero(&mut self, _: Range<u64>) -> DriverResult<bool> {
        Ok(false)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> DriverResult<()> {
        into.copy_from_slice(&self.bytes[at as usize..at as usize + into.len()]);
        Ok(())
    }
}

fn layer(number: u128) -> LayerId {
    LayerId(Uuid::from_u128(number))
}

/// Some of it random, some of it zero, some of it text.
fn disk(seed: u64, pieces: usize) -> Vec<u8> {
    let mut bytes = vec![0; pieces * PIECE + 4096];
    let mut state = seed | 1;
    for (number, piece) in bytes.chunks_mut(PIECE).enumerate() {
        match number % 3 {
            0 => {}
            1 => piece.fill(number as u8),
            _ => piece.chunks_mut(8).for_each(|word| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                word.copy_from_slice(&(state ^ state >> 29).to_le_bytes()[..word.len()]);
            }),
        }
    }
    bytes
}

fn order(name: &str, known: Vec<KnownContent>) -> BackupOrder {
    BackupOrder {
        tenant: TenantId(Uuid::from_u128(1)),
        name: name.to_owned(),
        about: serde_json::json!({ "name": name }),
        known,
        at: Timestamp::UNIX_EPOCH,
    }
}

fn open(objects: &Arc<Memory>) -> DriverResult<Repository> {
    Repository::open(objects.clone(), "secret")
}

fn store(repository: &Repository, name: &str, bytes: &[u8]) -> DriverResult<StoredBackup> {
    let content = Disk { bytes: bytes.to_vec(), lineage: vec![layer(1)], written: Vec::new() };
    Writing::new(repository).store(&order(name, Vec::new()), Box::new(content), &Progress::default())
}

fn restore(repository: &Repository, stored: &StoredBackup) -> DriverResult<Vec<u8>> {
    let mut bytes = Vec::new();
    Reading::open(repository, &stored.id, &stored.checksum)?.read(&Progress::default(), |piece| {
        bytes.extend_from_slice(&piece);
        true
    })?;
    Ok(bytes)
}

#[test]
fn a_disk_comes_back_as_it_was_and_is_stored_once() {
    let objects = Memory::new();
    let repository = open(&objects).expect("opened");
    let bytes = disk(1, 40);
    let first = store(&repository, "backup-a", &bytes).expect("stored");
    assert_eq!(restore(&repository, &first).expect("restored"), bytes);

    let again = store(&repository, "backup-b", &bytes).expect("stored");
    assert!(again.added_bytes < 64 << 10, "{} bytes for nothing new", again.added_bytes);
    assert_eq!(again.checksum, first.checksum);
    // Asked for again, what was stored under a name is found.
    assert_eq!(store(&repository, "backup-a", &disk(2, 1)).expect("found").id, first.id);
}

#[test]
fn of_a_known_layer_only_what_was_written_since_is_read() {
    let objects = Memory::new();
    let repository = open(&objects).expect("opened");
    let mut bytes = disk(1, 40);
    let base = store(&repository, "backup-a", &bytes).expect("stored");
    let known = vec![KnownContent { layer: layer(1), id: base.id.clone() }];
    bytes[5 * PIECE..6 * PIECE].fill(7);
    let written = std::iter::once(5 * PIECE as u64 + 9..5 * PIECE as u64 + 10).collect();
    let content = Disk { bytes: bytes.clone(), lineage: vec![layer(2), layer(1)], written };
    let progress = Progress::default();

    let stored =
        Writing::new(&repository).store(&order("backup-b", known.clone()), Box::new(content), &progress);
    let stored = stored.expect("stored");

    assert_eq!(progress.total(), PIECE as u64, "one piece was read");
    assert_eq!(progress.done(), PIECE as u64);
    assert_eq!(restore(&repository, &stored).expect("restored"), bytes);

    // What the repository has lost meanwhile is read all the same.
    let lost: Vec<String> =
        objects.objects().keys().filter(|name| name.starts_with("data/")).cloned().collect();
    lost.iter().for_each(|name| drop(objects.objects().remove(name)));
    let repository = open(&objects).expect("opened");
    let content = Disk { bytes: bytes.clone(), lineage: vec![layer(3), layer(1)], written: Vec::new() };
    let stored =
        Writing::new(&repository).store(&order("backup-c", known), Box::new(content), &Progress::default());
    assert_eq!(restore(&repository, &stored.expect("stored")).expect("restored"), bytes);
}

#[test]
fn whatever_is_cut_off_altered_lost_or_mixed_up_a_restore_is_the_same_or_refused() {
    let objects = Memory::new();
    let bytes = disk(3, 30);
    let stored = store(&open(&objects).expect("opened"), "backup-a", &bytes).expect("stored");
    let whole = objects.objects().clone();
    let names: Vec<String> = whole.keys().cloned().collect();
    let (mut refused, mut same) = (0, 0);
    let mut attempt = |what: &str, damage: &dyn Fn(&mut Stored)| {
        let mut altered = whole.clone();
        damage(&mut altered);
        match open(&Memory::with(altered)).and_then(|repository| restore(&repository, &stored)) {
            Ok(restored) => {
                assert!(restored == bytes, "{what}: other bytes came back");
                same += 1;
            }
            Err(_) => refused += 1,
        }
    };
    for (number, name) in names.iter().enumerate() {
        let length = whole[name].len();
        for at in [0, 1, length / 3, length / 2, length - 1] {
            attempt(&format!("{name} cut off at {at}"), &|objects| {
                objects.get_mut(name).expect("it").truncate(at);
            });
            for bit in [0, 7] {
                attempt(&format!("{name} altered at {at}"), &|objects| {
                    objects.get_mut(name).expect("it")[at] ^= 1 << bit;
                });
            }
        }
        attempt(&format!("{name} lost"), &|objects| drop(objects.remove(name)));
        attempt(&format!("{name} appended to"), &|objects| objects.get_mut(name).expect("it").push(0));
        let other = &names[(number + 1) % names.len()];
        attempt(&format!("{name} replaced by {other}"), &|objects| {
            let bytes = objects[other].clone();
            objects.insert(name.clone(), bytes);
        });
        attempt(&format!("{name} twice"), &|objects| {
            let bytes = objects[name].clone();
            objects.insert(format!("{name}0"), bytes);
        });
    }
    assert!(refused > 50, "{refused} of {} were refused", refused + same);
}

#[test]
fn killed_after_any_write_a_backup_can_be_made_and_everything_else_is_whole() {
    let (old, new) = (disk(4, 200), disk(5, 230));
    let before = Memory::new();
    let kept = store(&open(&before).expect("opened"), "backup-a", &old).expect("stored");
    let before = before.objects().clone();
    for steps in 0.. {
        let objects = Memory::with(before.clone());
        objects.left.store(steps, Ordering::SeqCst);
        let killed = open(&objects).and_then(|repository| store(&repository, "backup-b", &new));
        objects.left.store(-1, Ordering::SeqCst);
        let repository = open(&objects).expect("opened after a kill");
        assert!(restore(&repository, &kept).expect("the old one") == old, "{steps}");
        let stored = store(&repository, "backup-b", &new).expect("stored after a kill");
        assert!(restore(&repository, &stored).expect("the new one") == new, "{steps}");
        assert_eq!(repository.named("backup-b").expect("named").len(), 1, "{steps}");
        repository.prune().expect("pruned");
        assert!(restore(&repository, &kept).expect("the old one") == old, "{steps}");
        assert!(restore(&repository, &stored).expect("the new one") == new, "{steps}");
        if killed.is_ok() {
            assert!(
                steps >= 5,
                "it was killed {steps} times, and takes a lock, two packs, an index and a backup"
            );
            return;
        }
    }
}

#[test]
fn a_prune_gives_back_what_nobody_needs_and_may_be_killed_at_any_point() {
    let (old, kept_bytes) = (disk(6, 200), {
        let mut bytes = disk(6, 200);
        bytes[..150 * PIECE].reverse();
        bytes
    });
    let before = Memory::new();
    let repository = open(&before).expect("opened");
    store(&repository, "backup-a", &old).expect("stored");
    let kept = store(&repository, "backup-b", &kept_bytes).expect("stored");
    repository.forget("backup-a").expect("forgotten");
    let before = before.objects().clone();
    let size = |objects: &BTreeMap<String, Vec<u8>>| objects.values().map(Vec::len).sum::<usize>();
    for steps in 0.. {
        let objects = Memory::with(before.clone());
        objects.left.store(steps, Ordering::SeqCst);
        let killed = open(&objects).and_then(|repository| repository.prune());
        objects.left.store(-1, Ordering::SeqCst);
        let repository = open(&objects).expect("opened after a kill");
        assert!(restore(&repository, &kept).expect("whole") == kept_bytes, "{steps}");
        repository.prune().expect("pruned after a kill");
        assert!(restore(&repository, &kept).expect("whole") == kept_bytes, "{steps}");
        assert_eq!(repository.prune().expect("settled"), 0, "{steps}");
        assert!(size(&objects.objects()) < size(&before) * 8 / 10, "{steps}");
        if killed.is_ok() {
            assert!(
                steps >= 5,
                "it was killed {steps} times, and takes a lock, two packs, an index and a backup"
            );
            return;
        }
    }
}

#[test]
fn two_writers_at_once_harm_neither() {
    let objects = Memory::new();
    let (one, other) = (disk(7, 60), disk(7, 90));
    let stored = std::thread::scope(|scope| {
        let write = |name: &'static str, bytes: Vec<u8>| {
            let objects = objects.clone();
            // Each as a process of its own would: with an index of its own.
            scope.spawn(move || store(&open(&objects).expect("opened"), name, &bytes).expect("stored"))
        };
        drop(open(&objects).expect("made"));
        let writers = [write("backup-a", one.clone()), write("backup-b", other.clone())];
        writers.map(|writer| writer.join().expect("joined"))
    });
    let repository = open(&objects).expect("opened");
    repository.prune().expect("pruned");
    assert!(restore(&repository, &stored[0]).expect("whole") == one);
    assert!(restore(&repository, &stored[1]).expect("whole") == other);
}

#[test]
fn what_another_process_has_stored_and_pruned_is_seen_before_anything_is_relied_on() {
    let objects = Memory::new();
    let (one, other) = (open(&objects).expect("opened"), open(&objects).expect("opened"));
    let (old, new) = (disk(8, 30), disk(9, 40));
    store(&one, "backup-a", &old).expect("stored");
    let kept = store(&other, "backup-b", &new).expect("stored");
    // The first has never heard of the second's backup, and keeps it all the same.
    one.forget("backup-a").expect("forgotten");
    one.prune().expect("pruned");
    assert!(restore(&other, &kept).expect("whole") == new);
    // The first still believes to have the pieces that the second has pruned.
    store(&one, "backup-c", &old).expect("stored");
    other.forget("backup-c").expect("forgotten");
    other.prune().expect("pruned");
    let again = store(&one, "backup-d", &old).expect("stored");
    assert!(restore(&open(&objects).expect("opened"), &again).expect("whole") == old);
}

#[test]
fn nobody_removes_anything_while_another_adds_to_it() {
    let objects = Memory::new();
    let (one, other) = (open(&objects).expect("opened"), open(&objects).expect("opened"));
    let adding = one.lock(false).expect("locked");
    let also = other.lock(false).expect("many add at once");
    assert_eq!(other.prune().expect_err("refused").code, "repository_busy");
    drop((adding, also));
    let alone = other.lock(true).expect("locked");
    assert_eq!(store(&one, "backup-a", &disk(1, 1)).expect_err("refused").code, "repository_busy");
    drop(alone);
    store(&one, "backup-a", &disk(1, 1)).expect("stored");
    assert!(objects.list("locks").expect("listed").is_empty());
}

#[test]
fn another_password_opens_nothing() {
    let objects = Memory::new();
    open(&objects).expect("made");
    let Err(refused) = Repository::open(objects.clone(), "another") else { panic!("it was opened") };
    assert_eq!(refused.code, "wrong_key");
}
