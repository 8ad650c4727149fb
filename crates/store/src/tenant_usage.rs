//! What a tenant uses of its quotas, kept with every change.

use paddock_model::tenants::TenantId;

use crate::{Result, Tx, args};

/// Holds up others of the tenant until the commit: two who take the last place cannot both have it.
const ADD: &str = "
    INSERT INTO tenant_usage (tenant, emulators, memory_bytes) VALUES ($1, $2, $3)
    ON CONFLICT (tenant) DO UPDATE
    SET emulators = tenant_usage.emulators + excluded.emulators,
        memory_bytes = tenant_usage.memory_bytes + excluded.memory_bytes
    RETURNING emulators, memory_bytes, disk_bytes";

const LIST: &str = "
    SELECT tenant, emulators, memory_bytes, disk_bytes FROM tenant_usage ORDER BY tenant";

/// What the rows themselves say, to hold the sums against.
const COUNTED: &str = "
    SELECT tenant, COUNT(*), CAST(SUM(memory_bytes) AS BIGINT), CAST(0 AS BIGINT) FROM emulators
    WHERE terminated_at IS NULL GROUP BY tenant ORDER BY tenant";

/// A tenant may have snapshots and never have had an emulator; one that has gone meanwhile has nothing.
const SET_DISK: &str = "
    INSERT INTO tenant_usage (tenant, emulators, memory_bytes, disk_bytes)
    SELECT id, CAST(0 AS BIGINT), CAST(0 AS BIGINT), CAST($2 AS BIGINT) FROM tenants WHERE id = $1
    ON CONFLICT (tenant) DO UPDATE SET disk_bytes = excluded.disk_bytes";

const DISK: &str = "
    SELECT disk_bytes FROM tenant_usage WHERE tenant = $1";

const DELETE: &str = "
    DELETE FROM tenant_usage WHERE tenant = $1";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub emulators: i64,
    pub memory_bytes: i64,
    /// What its disks and snapshots took when the pool was last measured; nobody adds to it.
    pub disk_bytes: i64,
}

/// Adds to what the tenant uses (or takes from it), and returns the sum.
pub async fn add(tx: &mut Tx, tenant: TenantId, more: Usage) -> Result<Usage> {
    let sum: Option<(i64, i64, i64)> = tx.row(ADD, args![tenant, more.emulators, more.memory_bytes]).await?;
    let usage = |(emulators, memory_bytes, disk_bytes)| Usage { emulators, memory_bytes, disk_bytes };
    Ok(sum.map_or(more, usage))
}

/// What every tenant uses.
pub async fn list(tx: &mut Tx) -> Result<Vec<(TenantId, Usage)>> {
    tx.rows(LIST, &[]).await.map(usages)
}

/// The same, counted anew; disks are not in it.
pub async fn counted(tx: &mut Tx) -> Result<Vec<(TenantId, Usage)>> {
    tx.rows(COUNTED, &[]).await.map(usages)
}

/// What the tenant took in the pool when that was last measured.
pub async fn disk_bytes(tx: &mut Tx, tenant: TenantId) -> Result<i64> {
    Ok(tx.row::<(i64,)>(DISK, args![tenant]).await?.map_or(0, |(bytes,)| bytes))
}

/// What the tenant was measured to take.
pub async fn set_disk_bytes(tx: &mut Tx, tenant: TenantId, bytes: i64) -> Result<()> {
    tx.execute(SET_DISK, args![tenant, bytes]).await.map(drop)
}

fn usages(rows: Vec<(TenantId, i64, i64, i64)>) -> Vec<(TenantId, Usage)> {
    let usage = |(tenant, emulators, memory_bytes, disk_bytes)| {
        (tenant, Usage { emulators, memory_bytes, disk_bytes })
    };
    rows.into_iter().map(usage).collect()
}

pub async fn delete(tx: &mut Tx, tenant: TenantId) -> Result<()> {
    tx.execute(DELETE, args![tenant]).await.map(drop)
}
