//! Measures what each tenant's disks and snapshots take, so that a request reads one row.

use std::time::Duration;

use paddock_model::Timestamp;
use paddock_store::tenant_usage;

use super::{Loop, Report, Trouble};
use crate::{Engine, usage};

pub const LOOP: Loop = Loop {
    name: "usage",
    watches: &[],
    every: Duration::from_secs(3600),
    run: |engine| Box::pin(run(engine)),
};

/// Sums are kept in these, so that a device that writes a little does not cost a commit.
const UNIT: i64 = 1 << 20;

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let Some(devices) = &engine.devices else { return Ok(Report::default()) };
    let begun = engine.now();
    let mut measured = usage::measure(engine, &*devices.pool).await?;
    let layers = &measured.figures.layers;
    for (kind, bytes) in [
        ("virtual", layers.virtual_bytes),
        ("allocated", layers.allocated_bytes),
        ("exclusive", layers.exclusive_bytes),
        ("shared", layers.shared_bytes),
    ] {
        metrics::gauge!("paddock_layers_bytes", "kind" => kind).set(bytes as f64);
    }
    metrics::gauge!("paddock_disks_bytes").set(measured.figures.disk_bytes as f64);

    let mut changes = Vec::new();
    let rounded = |bytes: i64| (bytes + UNIT - 1) / UNIT * UNIT;
    for (tenant, usage) in tenant_usage::list(&mut engine.store.read().await?).await? {
        let bytes = rounded(measured.of_tenants.remove(&tenant).unwrap_or_default());
        if bytes != usage.disk_bytes {
            changes.push((tenant, bytes));
        }
    }
    // Those that have had no emulator yet.
    changes.extend(measured.of_tenants.drain().map(|(tenant, bytes)| (tenant, rounded(bytes))));
    if !changes.is_empty() {
        let mut tx = engine.store.begin().await?;
        for (tenant, bytes) in &changes {
            tenant_usage::set_disk_bytes(&mut tx, *tenant, *bytes).await?;
        }
        engine.commit(tx).await?;
    }
    devices.set_disk_bytes(measured.of_disks);
    Ok(Report {
        changed: changes.len() as u64,
        next: Some(next(begun, engine.now(), devices.settings.measure_every)),
    })
}

/// A pool so large that a look takes long is looked at less often: it costs no more than a twentieth of the time.
fn next(begun: Timestamp, now: Timestamp, every: Duration) -> Timestamp {
    let took = Duration::try_from(now.duration_since(begun)).unwrap_or_default();
    now + every.max(20 * took)
}
