//! Logs: what changes of emulators have to tell, until a journal has it.

use paddock_model::emulators::{EmulatorId, Reason, Status};
use paddock_model::logs::Change;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const INSERT: &str = "
    INSERT INTO log_changes (emulator, generation, at, incarnation, status, reason_code, reason_message)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Those of one emulator in the order in which they happened.
const WAITING: &str = "
    SELECT emulator, generation, at, incarnation, status, reason_code, reason_message FROM log_changes
    ORDER BY emulator, generation LIMIT $1";

const DELETE: &str = "
    DELETE FROM log_changes WHERE emulator = $1 AND generation <= $2";

pub async fn insert(tx: &mut Tx, change: &Change) -> Result<()> {
    let args = args![
        change.emulator,
        change.generation,
        change.at,
        change.incarnation,
        change.status.name(),
        change.reason.as_ref().map(|reason| reason.code.as_str()),
        change.reason.as_ref().map(|reason| reason.message.as_str()),
    ];
    tx.execute_one(INSERT, args).await
}

pub async fn waiting(tx: &mut Tx, most: i64) -> Result<Vec<Change>> {
    tx.rows(WAITING, args![most]).await
}

/// Forgets what a journal has.
pub async fn delete(tx: &mut Tx, emulator: EmulatorId, through: i64) -> Result<()> {
    tx.execute(DELETE, args![emulator, through]).await.map(drop)
}

impl FromRow for Change {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Change {
            emulator: row.take()?,
            generation: row.take()?,
            at: row.take()?,
            incarnation: row.take()?,
            status: row.take_text(Status::parse)?,
            reason: match (row.take_optional()?, row.take_optional()?) {
                (Some(code), Some(message)) => Some(Reason { code, message }),
                _ => None,
            },
        })
    }
}
