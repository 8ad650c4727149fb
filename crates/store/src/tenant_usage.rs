//! What a tenant uses of its quotas, kept with every change.

use paddock_model::tenants::TenantId;

use crate::{Result, Tx, args};

/// Holds up others of the tenant until the commit: two who take the last place cannot both have it.
const ADD: &str = "
    INSERT INTO tenant_usage (tenant, emulators, memory_bytes) VALUES ($1, $2, $3)
    ON CONFLICT (tenant) DO UPDATE
    SET emulators = tenant_usage.emulators + excluded.emulators,
        memory_bytes = tenant_usage.memory_bytes + excluded.memory_bytes
    RETURNING emulators, memory_bytes";

const DELETE: &str = "
    DELETE FROM tenant_usage WHERE tenant = $1";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub emulators: i64,
    pub memory_bytes: i64,
}

/// Adds to what the tenant uses (or takes from it), and returns the sum.
pub async fn add(tx: &mut Tx, tenant: TenantId, more: Usage) -> Result<Usage> {
    let sum: Option<(i64, i64)> = tx.row(ADD, args![tenant, more.emulators, more.memory_bytes]).await?;
    Ok(sum.map_or(more, |(emulators, memory_bytes)| Usage { emulators, memory_bytes }))
}

pub async fn delete(tx: &mut Tx, tenant: TenantId) -> Result<()> {
    tx.execute(DELETE, args![tenant]).await.map(drop)
}
