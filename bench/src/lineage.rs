//! Reads of a clone whose lineage was long, once it is consolidated, against a clone of the same content on one layer; and what that writes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use paddock_drivers::clock::SystemClock;
use paddock_drivers::disk_pools::qcow2::Qcow2Pool;
use paddock_drivers::random::OsRandom;
use paddock_model::drivers::disk_pools::{DiskPool, LayerSource, Merging, Volume};
use paddock_model::layers::{DiskId, LayerFacts, LayerId};
use paddock_model::ports::Clock;

use crate::Bench;
use crate::figures::{Figures, Goal, Pairs, Row};

const LONG: usize = 256;
/// What each layer writes, and how far from the one before: half of it is written anew by the next.
const WRITTEN: u64 = 512 << 10;
const APART: u64 = 256 << 10;
const BLOCK: u64 = 4096;
/// Reads in one measurement, some way apart, so that they meet all layers.
const READS: u64 = 20_000;
/// Where each is looked for in all layers.
const DEEP_READS: u64 = 1_000;
const STEP: u64 = 17 * BLOCK;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.folder("lineage")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let pool = Qcow2Pool::open("bench", &folder)?;
    let lineage = Lineage::make(&runtime, &pool, &folder, LONG)?;

    let whole = folder.join("whole.qcow2");
    let converted = qemu_img(&["convert", "-O", "qcow2"], &lineage.file(&folder), &whole)?;
    let deep = Row {
        name: format!("reads of a clone, depth {LONG} ÷ depth 1, not consolidated"),
        ..reads(bench, &runtime, &pool, lineage.top, &whole, DEEP_READS)?
    };
    let begun = Instant::now();
    let facts = consolidate(&runtime, &pool, &lineage)?;
    let took = begun.elapsed();
    let ratio = facts.allocated_bytes as f64 / lineage.live_bytes as f64;
    let pace = converted.as_secs_f64() / took.as_secs_f64();
    Ok(vec![
        Row {
            name: format!("reads of a clone, lineage of {LONG} consolidated ÷ depth 1"),
            goal: Some(Goal::AtLeast(0.9)),
            ..reads(bench, &runtime, &pool, lineage.top, &whole, READS)?
        },
        deep,
        Row {
            name: "consolidation, bytes written ÷ live bytes".to_owned(),
            figures: Figures::of([ratio]),
            goal: Some(Goal::AtMost(1.1)),
            note: format!("{} ÷ {} KiB", facts.allocated_bytes >> 10, lineage.live_bytes >> 10),
        },
        Row {
            name: "consolidation, checked and compared ÷ qemu-img convert, a second".to_owned(),
            figures: Figures::of([pace]),
            goal: None,
            note: format!("{} ÷ {} ms", took.as_millis(), converted.as_millis()),
        },
    ])
}

struct Lineage {
    base: LayerId,
    top: LayerId,
    /// Of all layers, each place once.
    live_bytes: u64,
}

fn layer() -> LayerId {
    LayerId::new(SystemClock::default().now(), &OsRandom::default())
}

fn disk() -> DiskId {
    DiskId::new(SystemClock::default().now(), &OsRandom::default())
}

impl Lineage {
    fn make(
        runtime: &tokio::runtime::Runtime,
        pool: &Qcow2Pool,
        folder: &Path,
        depth: usize,
    ) -> Result<Lineage> {
        let image = folder.join("base.raw");
        // All of it is written by some layer: where none has written, everyone would find the same hole.
        std::fs::File::create(&image)?.set_len((depth as u64 - 1) * APART + WRITTEN)?;
        let mut live = BTreeSet::new();
        let (base, mut from) = (layer(), disk());
        runtime.block_on(async {
            pool.ensure_layer(base, &LayerSource::File(image)).await?;
            let mut volume = pool.ensure_disk(from, base).await?;
            let mut top = base;
            for number in 0..depth as u64 {
                let at = number * APART;
                write(&volume, &format!("write -P {} {at} {WRITTEN}", 1 + number % 250))?;
                live.extend((at / BLOCK)..(at + WRITTEN) / BLOCK);
                let to = disk();
                top = layer();
                volume = pool.ensure_successor(from, top, to).await?;
                pool.seal_layer(top, from).await?;
                from = to;
            }
            pool.remove_disk(from).await?;
            Ok(Lineage { base, top, live_bytes: live.len() as u64 * BLOCK })
        })
    }

    fn file(&self, folder: &Path) -> std::path::PathBuf {
        folder.join(format!("layers/{}.qcow2", self.top))
    }
}

/// Whole clusters, for which nothing below has to be read: to open all of a long lineage for each write would take minutes.
fn write(volume: &Volume, what: &str) -> Result<()> {
    let file = serde_json::json!({ "driver": "file", "filename": volume.0 });
    let alone = serde_json::json!({ "driver": "qcow2", "file": file, "backing": null });
    let output = Command::new("qemu-io").args(["-c", what, &format!("json:{alone}")]).output();
    let output = output.context("run qemu-io; is qemu-utils installed?")?;
    ensure!(output.status.success(), "qemu-io: {output:?}");
    Ok(())
}

fn qemu_img(arguments: &[&str], from: &Path, to: &Path) -> Result<Duration> {
    let begun = Instant::now();
    let output = Command::new("qemu-img").args(arguments).args([from, to]).output()?;
    ensure!(output.status.success(), "qemu-img {arguments:?}: {output:?}");
    Ok(begun.elapsed())
}

fn consolidate(runtime: &tokio::runtime::Runtime, pool: &Qcow2Pool, lineage: &Lineage) -> Result<LayerFacts> {
    runtime.block_on(async {
        let Merging::Ready(facts) = pool.merge_layer(lineage.top, lineage.base, u64::MAX).await? else {
            bail!("it was not merged at once");
        };
        Ok(pool.replace_layer(lineage.top, &facts.digest).await?)
    })
}

/// A clone of the layer against a clone of the same content on a layer that stands alone.
fn reads(
    bench: &Bench,
    runtime: &tokio::runtime::Runtime,
    pool: &Qcow2Pool,
    top: LayerId,
    whole: &Path,
    count: u64,
) -> Result<Row> {
    let alone = layer();
    let (ours, peer) = (disk(), disk());
    let (our_disk, peer_disk) = runtime.block_on(async {
        pool.ensure_layer(alone, &LayerSource::File(whole.to_owned())).await?;
        anyhow::Ok((pool.ensure_disk(ours, top).await?, pool.ensure_disk(peer, alone).await?))
    })?;
    let mut pairs = Pairs::default();
    for _ in 0..bench.rounds {
        pairs.push(reads_a_second(&our_disk, count)?, reads_a_second(&peer_disk, count)?);
    }
    runtime.block_on(async {
        pool.remove_disk(ours).await?;
        pool.remove_disk(peer).await?;
        pool.remove_layer(alone).await
    })?;
    Ok(Row { name: String::new(), figures: pairs.ratios(), goal: None, note: pairs.note("/s") })
}

/// From the page cache: what is measured is the way through the layers.
fn reads_a_second(disk: &Volume, count: u64) -> Result<f64> {
    let words = [
        "bench",
        "-f",
        "qcow2",
        "-d",
        "8",
        "-s",
        &BLOCK.to_string(),
        "-S",
        &STEP.to_string(),
        "-c",
        &count.to_string(),
    ]
    .map(str::to_owned);
    let output = Command::new("qemu-img").args(words).arg(&disk.0).output()?;
    ensure!(output.status.success(), "qemu-img bench: {output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds =
        said.split("completed in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    let seconds = seconds.with_context(|| format!("qemu-img bench says something else: {said}"))?;
    Ok(count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_consolidated_and_both_parties_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let pool = Qcow2Pool::open("bench", folder.path()).expect("a pool");
        let lineage = Lineage::make(&runtime, &pool, folder.path(), 4).expect("a lineage");
        assert_eq!(lineage.live_bytes, 3 * APART + WRITTEN);

        let facts = consolidate(&runtime, &pool, &lineage).expect("consolidated");

        assert!(facts.allocated_bytes as u64 >= lineage.live_bytes);
        let clone = runtime.block_on(pool.ensure_disk(disk(), lineage.top)).expect("a clone");
        assert!(reads_a_second(&clone, READS).expect("read") > 0.0);
    }
}
