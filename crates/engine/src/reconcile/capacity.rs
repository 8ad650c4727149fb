//! Looks how full the pool is, so that requests need not.

use std::time::Duration;

use super::{Loop, Report, Trouble};
use crate::Engine;

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
    let pool = devices.pool.name().to_owned();
    for (name, bytes) in [
        ("paddock_pool_capacity_bytes", capacity.capacity_bytes),
        ("paddock_pool_used_bytes", capacity.used_bytes),
        ("paddock_pool_free_bytes", capacity.free_bytes),
    ] {
        metrics::gauge!(name, "pool" => pool.clone()).set(bytes as f64);
    }
    devices.set_capacity(capacity);
    Ok(Report::default())
}
