//! Looks how full the pool is and how fast it fills up, so that requests need not.

use std::time::Duration;

use paddock_model::drivers::disk_pools::PoolCapacity;

use super::{Loop, Report, Trouble};
use crate::Engine;
use crate::devices::Devices;

pub const LOOP: Loop = Loop {
    name: "capacity",
    watches: &[],
    every: Duration::from_secs(5),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let mut capacity = devices.pool.capacity().await?;
    // Memory lies at the host, beside the pool's own files.
    capacity.used_bytes +=
        devices.host.templates().await?.iter().map(|template| template.allocated_bytes).sum::<i64>();
    let before = devices.capacity();
    devices.set_capacity(capacity, engine.now());
    let pool = devices.pool.name().to_owned();
    for (name, bytes) in [
        ("paddock_pool_capacity_bytes", capacity.capacity_bytes),
        ("paddock_pool_used_bytes", capacity.used_bytes),
        ("paddock_pool_free_bytes", capacity.free_bytes),
        ("paddock_pool_reserved_bytes", devices.merges().reserved_bytes),
        ("paddock_pool_pressure_percent", capacity.pressure()),
    ] {
        metrics::gauge!(name, "pool" => pool.clone()).set(bytes as f64);
    }
    // What never fills up is full in infinity.
    let left = devices.full_in().map_or(f64::INFINITY, |left| left.as_secs_f64());
    metrics::gauge!("paddock_pool_full_in_seconds", "pool" => pool).set(left);
    tell(devices, before, capacity);
    Ok(Report::default())
}

/// Once when a mark is passed, in either direction.
fn tell(devices: &Devices, before: Option<PoolCapacity>, now: PoolCapacity) {
    let marks = [devices.settings.warn_percent, devices.settings.critical_percent];
    let passed = |capacity: &PoolCapacity| marks.iter().filter(|mark| capacity.pressure() >= **mark).count();
    let (before, percent) = (before.as_ref().map_or(0, passed), now.pressure());
    match passed(&now) {
        2 if before < 2 => {
            tracing::error!(
                percent,
                "the disk pool is full up to its critical mark: nothing new is put into it"
            );
        }
        1 if before < 1 => {
            tracing::warn!(percent, "the disk pool fills up: policies for times of pressure are carried out");
        }
        marks if marks < before => tracing::info!(percent, "the disk pool has more room again"),
        _ => {}
    }
}
