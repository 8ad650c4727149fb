//! A durable clone of a disk against `qemu-img create -b`, on a short lineage and on a long one.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use paddock_drivers::clock::SystemClock;
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::random::OsRandom;
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource};
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::ports::Clock;

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::{Bench, disk};

const SHORT: usize = 1;
const LONG: usize = 256;
/// Clones in one measurement; their median counts.
const CLONES: usize = 20;
const DISK_BYTES: u64 = 2 << 30;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.folder("clone")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let pool = Qcow2Pool::open("bench", &folder)?;
    let [short, long] = [lineage(&runtime, &pool, &folder, SHORT)?, lineage(&runtime, &pool, &folder, LONG)?];

    let (mut at_short, mut at_long, mut flat) = (Pairs::default(), Pairs::default(), Pairs::default());
    let mut flush = Pairs::default();
    for _ in 0..bench.rounds {
        let mut ours = [0.0; 2];
        for (at, (layer, pairs)) in [(short, &mut at_short), (long, &mut at_long)].into_iter().enumerate() {
            ours[at] = median(|| clone(&runtime, &pool, layer))?;
            let peer = median(|| qemu_img(&folder, layer))?;
            // Clones a second, so that more is better.
            pairs.push(1e6 / ours[at], 1e6 / peer);
        }
        flat.push(ours[1], ours[0]);
        flush.push(ours[0], disk::fdatasync_microseconds(&folder.join("appended"))?);
    }
    let against = |depth: usize, pairs: &Pairs| Row {
        name: format!("durable clone ÷ qemu-img create, depth {depth}"),
        figures: pairs.ratios(),
        goal: Some(Goal::AtLeast(20.0)),
        note: pairs.note("/s"),
    };
    Ok(vec![
        against(SHORT, &at_short),
        against(LONG, &at_long),
        Row {
            name: format!("durable clone, depth {LONG} ÷ {SHORT}"),
            figures: flat.ratios(),
            goal: Some(Goal::AtMost(1.5)),
            note: flat.note("µs"),
        },
        Row {
            name: format!("durable clone ÷ fdatasync, depth {SHORT}"),
            figures: flush.ratios(),
            goal: None,
            note: flush.note("µs"),
        },
    ])
}

/// In microseconds.
fn median(mut act: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let times: Result<Vec<Duration>> = (0..CLONES).map(|_| act()).collect();
    Ok(Figures::of(times?.iter().map(|time| time.as_secs_f64() * 1e6)).median())
}

fn clone(runtime: &tokio::runtime::Runtime, pool: &Qcow2Pool, layer: LayerId) -> Result<Duration> {
    let new = DiskId::new(SystemClock::default().now(), &OsRandom::default());
    let begun = Instant::now();
    runtime.block_on(pool.ensure_disk(new, layer))?;
    let took = begun.elapsed();
    runtime.block_on(pool.remove_disk(new))?;
    Ok(took)
}

/// The same kind of disk; nothing flushes it.
fn qemu_img(folder: &Path, layer: LayerId) -> Result<Duration> {
    let disk = folder.join("disks/peer.qcow2");
    let mut command = Command::new("qemu-img");
    command
        .args(["create", "-q", "-f", "qcow2", "-o", "extended_l2=on,cluster_size=128k", "-F", "qcow2", "-b"])
        .arg(format!("../layers/{layer}.qcow2"))
        .arg(&disk);
    let begun = Instant::now();
    let status = command.status().context("run qemu-img; is qemu-utils installed?")?;
    let took = begun.elapsed();
    ensure!(status.success(), "qemu-img create: {status}");
    std::fs::remove_file(disk)?;
    Ok(took)
}

/// So many layers that were disks, each on the one before; the topmost.
fn lineage(
    runtime: &tokio::runtime::Runtime,
    pool: &Qcow2Pool,
    folder: &Path,
    depth: usize,
) -> Result<LayerId> {
    let layer = || LayerId::new(SystemClock::default().now(), &OsRandom::default());
    let disk = || DiskId::new(SystemClock::default().now(), &OsRandom::default());
    let base = folder.join("base.raw");
    std::fs::File::create(&base)?.set_len(DISK_BYTES)?;
    runtime.block_on(async {
        let (mut topmost, mut top) = (layer(), disk());
        pool.ensure_layer(topmost, &LayerSource::File(base)).await?;
        pool.ensure_disk(top, topmost).await?;
        for _ in 0..depth {
            let next = disk();
            topmost = layer();
            pool.ensure_successor(top, topmost, next).await?;
            pool.seal_layer(topmost, top).await?;
            top = next;
        }
        pool.remove_disk(top).await?;
        Ok(topmost)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parties_clone_a_lineage() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let pool = Qcow2Pool::open("bench", folder.path()).expect("a pool");
        let layer = lineage(&runtime, &pool, folder.path(), 3).expect("a lineage");

        assert!(!clone(&runtime, &pool, layer).expect("cloned").is_zero());
        assert!(!qemu_img(folder.path(), layer).expect("cloned").is_zero());
        assert_eq!(std::fs::read_dir(folder.path().join("disks")).expect("a folder").count(), 0);
    }
}
