//! Captures: devices' disks on their way to becoming layers.

use paddock_model::Timestamp;
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::{DiskId, LayerId};
use paddock_model::slug::Slug;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const DUE: &str = "
    SELECT snapshot, emulator, layer, from_disk, to_disk, state, deadline_at, due_at, failures, reason FROM captures
    WHERE due_at <= $1 ORDER BY due_at LIMIT $2";

const FIND: &str = "
    SELECT snapshot, emulator, layer, from_disk, to_disk, state, deadline_at, due_at, failures, reason FROM captures
    WHERE snapshot = $1";

const NEXT_DUE: &str = "
    SELECT due_at FROM captures ORDER BY due_at LIMIT 1";

const INSERT: &str = "
    INSERT INTO captures (snapshot, emulator, layer, from_disk, to_disk, state, deadline_at, due_at, failures)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)";

const UPDATE: &str = "
    UPDATE captures SET state = $2, due_at = $3, failures = $4, reason = $5 WHERE snapshot = $1";

const DELETE: &str = "
    DELETE FROM captures WHERE snapshot = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    pub snapshot: Slug,
    pub emulator: EmulatorId,
    /// What `from` becomes.
    pub layer: LayerId,
    pub from: DiskId,
    pub to: DiskId,
    pub state: CaptureState,
    pub deadline_at: Timestamp,
    pub due_at: Timestamp,
    pub failures: i64,
    /// Why the snapshot is of no use, if it is; for people.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureState {
    /// The device writes to `from`, or nobody knows.
    Wanted,
    /// The device writes to `to`; `from` is to become the layer.
    Switched,
    /// The device stays with `from`; `to` and the layer are to go.
    Abandoned,
}

impl CaptureState {
    const ALL: [CaptureState; 3] = [CaptureState::Wanted, CaptureState::Switched, CaptureState::Abandoned];

    const fn name(self) -> &'static str {
        match self {
            CaptureState::Wanted => "wanted",
            CaptureState::Switched => "switched",
            CaptureState::Abandoned => "abandoned",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        CaptureState::ALL.into_iter().find(|state| state.name() == text)
    }
}

pub async fn due(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<Capture>> {
    tx.rows(DUE, args![now, most]).await
}

pub async fn find(tx: &mut Tx, snapshot: &Slug) -> Result<Option<Capture>> {
    tx.row(FIND, args![snapshot]).await
}

pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_DUE, &[]).await?.map(|(at,)| at))
}

pub async fn insert(tx: &mut Tx, capture: &Capture) -> Result<()> {
    let args = args![
        &capture.snapshot,
        capture.emulator,
        capture.layer,
        capture.from,
        capture.to,
        capture.state.name(),
        capture.deadline_at,
        capture.due_at
    ];
    tx.execute_one(INSERT, args).await
}

/// As it stands now; only one replica runs the loops, so nobody else changes it.
pub async fn update(tx: &mut Tx, capture: &Capture) -> Result<()> {
    let args = args![
        &capture.snapshot,
        capture.state.name(),
        capture.due_at,
        capture.failures,
        capture.reason.as_deref()
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, snapshot: &Slug) -> Result<()> {
    tx.execute_one(DELETE, args![snapshot]).await
}

impl FromRow for Capture {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Capture {
            snapshot: row.take_text(Slug::parse)?,
            emulator: row.take()?,
            layer: row.take()?,
            from: row.take()?,
            to: row.take()?,
            state: row.take_text(CaptureState::parse)?,
            deadline_at: row.take()?,
            due_at: row.take()?,
            failures: row.take()?,
            reason: row.take_optional()?,
        })
    }
}
