//! Verifications: throw-away clones that are to prove snapshots, one row each from the wish to the end.

use paddock_model::Timestamp;
use paddock_model::devices::DeviceIdentity;
use paddock_model::emulators::EmulatorId;
use paddock_model::layers::DiskId;
use paddock_model::slug::Slug;
use serde::{Deserialize, Serialize};

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

/// Those under way first, then whoever has waited longest; who was put off is behind those who were not.
const NEXT: &str = "
    SELECT snapshot, state, queued_at, emulator, disk, slot, identity, started_at, due_at, failures, outcome FROM verifications
    ORDER BY CASE WHEN state = 'queued' THEN 1 ELSE 0 END, due_at, queued_at LIMIT $1";

const FIND: &str = "
    SELECT snapshot, state, queued_at, emulator, disk, slot, identity, started_at, due_at, failures, outcome FROM verifications
    WHERE snapshot = $1";

const EMULATORS: &str = "
    SELECT emulator FROM verifications WHERE emulator IS NOT NULL";

const INSERT: &str = "
    INSERT INTO verifications (snapshot, state, queued_at, due_at, failures) VALUES ($1, 'queued', $2, $2, 0)
    ON CONFLICT (snapshot) DO NOTHING";

const UPDATE: &str = "
    UPDATE verifications SET state = $2, emulator = $3, disk = $4, slot = $5, identity = $6, started_at = $7, due_at = $8,
        failures = $9, outcome = $10
    WHERE snapshot = $1";

const DELETE: &str = "
    DELETE FROM verifications WHERE snapshot = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub snapshot: Slug,
    pub state: VerificationState,
    pub queued_at: Timestamp,
    pub trial: Option<Trial>,
    pub due_at: Timestamp,
    pub failures: i64,
    pub outcome: Option<Outcome>,
}

/// The device that is booted to see whether it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub emulator: EmulatorId,
    pub disk: DiskId,
    pub slot: i64,
    pub identity: DeviceIdentity,
    pub started_at: Timestamp,
}

/// What the boot has shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    Booted {
        duration_ms: i64,
    },
    /// Why not: a problem's code, and words for people.
    Failed {
        code: String,
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationState {
    Queued,
    Booting,
    /// It is known; what was made for it is to go.
    Ending,
}

impl VerificationState {
    const ALL: [VerificationState; 3] =
        [VerificationState::Queued, VerificationState::Booting, VerificationState::Ending];

    const fn name(self) -> &'static str {
        match self {
            VerificationState::Queued => "queued",
            VerificationState::Booting => "booting",
            VerificationState::Ending => "ending",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        VerificationState::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// At most so many: those that are under way, and the next ones.
pub async fn next(tx: &mut Tx, most: i64) -> Result<Vec<Verification>> {
    tx.rows(NEXT, args![most]).await
}

pub async fn find(tx: &mut Tx, snapshot: &Slug) -> Result<Option<Verification>> {
    tx.row(FIND, args![snapshot]).await
}

/// The devices that run to prove something, and are nobody's.
pub async fn emulators(tx: &mut Tx) -> Result<Vec<EmulatorId>> {
    let rows: Vec<(EmulatorId,)> = tx.rows(EMULATORS, &[]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Asks for a snapshot to be verified; one that waits already does so.
pub async fn insert(tx: &mut Tx, snapshot: &Slug, now: Timestamp) -> Result<()> {
    tx.execute(INSERT, args![snapshot, now]).await.map(drop)
}

/// As it stands now; only one replica runs the loops, so nobody else changes it.
pub async fn update(tx: &mut Tx, verification: &Verification) -> Result<()> {
    let trial = verification.trial.as_ref();
    let args = args![
        &verification.snapshot,
        verification.state.name(),
        trial.map(|trial| trial.emulator),
        trial.map(|trial| trial.disk),
        trial.map(|trial| trial.slot),
        trial.map(|trial| serde_json::json!(trial.identity)),
        trial.map(|trial| trial.started_at),
        verification.due_at,
        verification.failures,
        verification.outcome.as_ref().map(|outcome| serde_json::json!(outcome))
    ];
    tx.execute_one(UPDATE, args).await
}

pub async fn delete(tx: &mut Tx, snapshot: &Slug) -> Result<()> {
    tx.execute(DELETE, args![snapshot]).await.map(drop)
}

impl FromRow for Verification {
    fn from_row(row: &mut Row) -> Result<Self> {
        let (snapshot, state) = (row.take_text(Slug::parse)?, row.take_text(VerificationState::parse)?);
        let queued_at = row.take()?;
        let parts = (row.take_optional()?, row.take_optional()?, row.take_optional()?);
        let trial = match (parts, row.take_optional_json()?, row.take_optional()?) {
            ((Some(emulator), Some(disk), Some(slot)), Some(identity), Some(started_at)) => {
                Some(Trial { emulator, disk, slot, identity, started_at })
            }
            _ => None,
        };
        let (due_at, failures, outcome) = (row.take()?, row.take()?, row.take_optional_json()?);
        Ok(Verification { snapshot, state, queued_at, trial, due_at, failures, outcome })
    }
}
