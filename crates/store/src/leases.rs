//! Leases: which replica does a job that only one may do.
//!
//! No clock is compared with another's: a holder raises the generation while it lives, and whoever has watched it
//! stand still for the length of the lease may take over.

use paddock_model::Timestamp;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub holder: String,
    pub generation: i64,
}

const FIND: &str = "
    SELECT holder, generation FROM leases WHERE name = $1";

const INSERT: &str = "
    INSERT INTO leases (name, holder, renewed_at, generation) VALUES ($1, $2, $3, 1)
    ON CONFLICT DO NOTHING";

const TAKE: &str = "
    UPDATE leases SET holder = $2, renewed_at = $3, generation = generation + 1
    WHERE name = $1 AND generation = $4";

const RELEASE: &str = "
    DELETE FROM leases WHERE name = $1 AND holder = $2";

pub async fn find(tx: &mut Tx, name: &str) -> Result<Option<Lease>> {
    tx.row(FIND, args![name]).await
}

/// Takes a lease that nobody holds.
pub async fn insert(tx: &mut Tx, name: &str, holder: &str, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(INSERT, args![name, holder, now]).await? > 0)
}

/// Renews or takes over the lease, if it still is as it was seen.
pub async fn take(tx: &mut Tx, name: &str, holder: &str, seen: &Lease, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(TAKE, args![name, holder, now, seen.generation]).await? > 0)
}

pub async fn release(tx: &mut Tx, name: &str, holder: &str) -> Result<()> {
    tx.execute(RELEASE, args![name, holder]).await?;
    Ok(())
}

impl FromRow for Lease {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Lease { holder: row.take()?, generation: row.take()? })
    }
}
