//! Disks: which emulator's writable disk stands on which layer. A row is there from before the file until after it.

use paddock_model::Timestamp;
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::slug::Slug;
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args, layers};

const LIST: &str = "
    SELECT id, emulator, layer, snapshot, created_at FROM disks ORDER BY id";

const FIND: &str = "
    SELECT id, emulator, layer, snapshot, created_at FROM disks WHERE id = $1";

const BY_TENANT: &str = "
    SELECT disks.id, emulators.tenant FROM disks JOIN emulators ON emulators.id = disks.emulator
    WHERE disks.id > $1 ORDER BY disks.id LIMIT $2";

const INSERT: &str = "
    INSERT INTO disks (id, emulator, layer, snapshot, created_at) VALUES ($1, $2, $3, $4, $5)";

/// Clones of a snapshot, the oldest first.
const OF_SNAPSHOT: &str = "
    SELECT id, emulator, layer, snapshot, created_at FROM disks WHERE snapshot = $1 ORDER BY id LIMIT $2";

const OF_EMULATOR: &str = "
    SELECT id, emulator, layer, snapshot, created_at FROM disks WHERE emulator = $1 ORDER BY id";

/// Each may grow to the size of the layer that it stands on.
const COMMITTED: &str = "
    SELECT CAST(COALESCE(SUM(layers.virtual_bytes), 0) AS BIGINT) FROM disks JOIN layers ON layers.id = disks.layer";

const DELETE: &str = "
    DELETE FROM disks WHERE id = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub id: DiskId,
    pub emulator: EmulatorId,
    pub layer: LayerId,
    /// The snapshot that it is a clone of; none where nobody is to be kept from deleting that.
    pub snapshot: Option<Slug>,
    pub created_at: Timestamp,
}

pub async fn list(tx: &mut Tx) -> Result<Vec<Disk>> {
    tx.rows(LIST, &[]).await
}

pub async fn find(tx: &mut Tx, id: DiskId) -> Result<Option<Disk>> {
    tx.row(FIND, args![id]).await
}

/// The first few clones of a snapshot.
pub async fn of_snapshot(tx: &mut Tx, snapshot: &Slug, most: i64) -> Result<Vec<Disk>> {
    tx.rows(OF_SNAPSHOT, args![snapshot, most]).await
}

/// Whose disks they are, a part at a time.
pub async fn by_tenant(tx: &mut Tx, after: Option<DiskId>, most: i64) -> Result<Vec<(DiskId, TenantId)>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    tx.rows(BY_TENANT, args![after, most]).await
}

/// One, and for a while two, where another takes over.
pub async fn of_emulator(tx: &mut Tx, emulator: EmulatorId) -> Result<Vec<Disk>> {
    tx.rows(OF_EMULATOR, args![emulator]).await
}

/// What all of them may grow to.
pub async fn committed_bytes(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(COMMITTED, &[]).await?.map_or(0, |(bytes,)| bytes))
}

/// The record of a disk holds its layer from before the file is made.
pub async fn insert(tx: &mut Tx, disk: &Disk) -> Result<()> {
    layers::hold(tx, disk.layer).await?;
    let args = args![disk.id, disk.emulator, disk.layer, disk.snapshot.as_ref(), disk.created_at];
    tx.execute_one(INSERT, args).await
}

/// Its file is gone: what it stood on is let go.
pub async fn delete(tx: &mut Tx, id: DiskId) -> Result<()> {
    let Some(disk) = find(tx, id).await? else { return Ok(()) };
    tx.execute_one(DELETE, args![id]).await?;
    layers::release(tx, disk.layer).await
}

impl FromRow for Disk {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Disk {
            id: row.take()?,
            emulator: row.take()?,
            layer: row.take()?,
            snapshot: row.take_optional_text(Slug::parse)?,
            created_at: row.take()?,
        })
    }
}
