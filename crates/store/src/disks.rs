//! Disks: which emulator's writable disk stands on which layer. A row is there from before the file until after it.

use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, emulator, layer FROM disks ORDER BY id";

const FIND: &str = "
    SELECT id, emulator, layer FROM disks WHERE id = $1";

const BY_TENANT: &str = "
    SELECT disks.id, emulators.tenant FROM disks JOIN emulators ON emulators.id = disks.emulator
    WHERE disks.id > $1 ORDER BY disks.id LIMIT $2";

const INSERT: &str = "
    INSERT INTO disks (id, emulator, layer) VALUES ($1, $2, $3)";

const DELETE: &str = "
    DELETE FROM disks WHERE id = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub id: DiskId,
    pub emulator: EmulatorId,
    pub layer: LayerId,
}

pub async fn list(tx: &mut Tx) -> Result<Vec<Disk>> {
    tx.rows(LIST, &[]).await
}

pub async fn find(tx: &mut Tx, id: DiskId) -> Result<Option<Disk>> {
    tx.row(FIND, args![id]).await
}

/// Whose disks they are, a part at a time.
pub async fn by_tenant(tx: &mut Tx, after: Option<DiskId>, most: i64) -> Result<Vec<(DiskId, TenantId)>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    tx.rows(BY_TENANT, args![after, most]).await
}

pub async fn insert(tx: &mut Tx, disk: &Disk) -> Result<()> {
    tx.execute_one(INSERT, args![disk.id, disk.emulator, disk.layer]).await
}

pub async fn delete(tx: &mut Tx, id: DiskId) -> Result<()> {
    tx.execute(DELETE, args![id]).await.map(drop)
}

impl FromRow for Disk {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Disk { id: row.take()?, emulator: row.take()?, layer: row.take()? })
    }
}
