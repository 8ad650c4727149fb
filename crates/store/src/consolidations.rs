//! Consolidations: layers on their way to standing on fewer others, one row each from the wish to the end.

use paddock_model::Timestamp;
use paddock_model::layers::{LayerFacts, LayerId};

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args, layers};

const LIST: &str = "
    SELECT layer, onto, state, reserved_bytes, allocated_bytes, digest, was_on, created_at, due_at, failures FROM consolidations
    ORDER BY created_at, layer";

const FIND: &str = "
    SELECT layer, onto, state, reserved_bytes, allocated_bytes, digest, was_on, created_at, due_at, failures FROM consolidations
    WHERE layer = $1";

const INSERT: &str = "
    INSERT INTO consolidations (layer, onto, state, reserved_bytes, created_at, due_at, failures) VALUES ($1, $2, 'merging', $3, $4, $4, 0)";

const UPDATE: &str = "
    UPDATE consolidations SET state = $2, allocated_bytes = $3, digest = $4, was_on = $5, due_at = $6, failures = $7 WHERE layer = $1";

const DELETE: &str = "
    DELETE FROM consolidations WHERE layer = $1";

const RESERVED: &str = "
    SELECT CAST(COALESCE(SUM(reserved_bytes), 0) AS BIGINT) FROM consolidations WHERE state = 'merging'";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consolidation {
    pub layer: LayerId,
    /// What it is to stand on.
    pub onto: LayerId,
    pub state: ConsolidationState,
    pub reserved_bytes: i64,
    /// Of the merged file, once there is one.
    pub allocated_bytes: Option<i64>,
    pub digest: Option<String>,
    /// What it stood on before it moved.
    pub was_on: Option<LayerId>,
    pub created_at: Timestamp,
    pub due_at: Timestamp,
    pub failures: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolidationState {
    /// The merged file is being written; the layer is as it was.
    Merging,
    /// The merged file is whole; whether it is in the layer's place already, nobody knows.
    Merged,
    /// The layer has moved; who opened it just before may still be about to open what it stood on.
    Settling,
}

impl ConsolidationState {
    const ALL: [ConsolidationState; 3] =
        [ConsolidationState::Merging, ConsolidationState::Merged, ConsolidationState::Settling];

    const fn name(self) -> &'static str {
        match self {
            ConsolidationState::Merging => "merging",
            ConsolidationState::Merged => "merged",
            ConsolidationState::Settling => "settling",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        ConsolidationState::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// All of them, the oldest first; there are few.
pub async fn list(tx: &mut Tx) -> Result<Vec<Consolidation>> {
    tx.rows(LIST, &[]).await
}

pub async fn find(tx: &mut Tx, layer: LayerId) -> Result<Option<Consolidation>> {
    tx.row(FIND, args![layer]).await
}

/// The room that is kept free for all of them.
pub async fn reserved_bytes(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(RESERVED, &[]).await?.map_or(0, |(bytes,)| bytes))
}

/// The wish; the layer stays from now on until it is over.
pub async fn insert(
    tx: &mut Tx,
    layer: LayerId,
    onto: LayerId,
    reserved_bytes: i64,
    now: Timestamp,
) -> Result<()> {
    layers::hold(tx, layer).await?;
    tx.execute_one(INSERT, args![layer, onto, reserved_bytes, now]).await
}

/// As it stands now; only one replica runs the loops, so nobody else changes it.
pub async fn update(tx: &mut Tx, after: &Consolidation) -> Result<()> {
    let args = args![
        after.layer,
        after.state.name(),
        after.allocated_bytes,
        after.digest.as_deref(),
        after.was_on,
        after.due_at,
        after.failures
    ];
    tx.execute_one(UPDATE, args).await
}

/// The merged file is in its place: the layer stands on another from now on, and so does all that stands on it. What it stood on
/// before stays until this is over.
pub async fn switch(
    tx: &mut Tx,
    merged: &Consolidation,
    facts: &LayerFacts,
    now: Timestamp,
    until: Timestamp,
) -> Result<()> {
    let was_on = layers::find(tx, merged.layer).await?.and_then(|layer| layer.parent);
    layers::hold(tx, merged.onto).await?;
    layers::move_onto(tx, merged.layer, merged.onto, facts, now).await?;
    let settling = Consolidation {
        state: ConsolidationState::Settling,
        allocated_bytes: Some(facts.allocated_bytes),
        was_on,
        due_at: until,
        failures: 0,
        ..merged.clone()
    };
    update(tx, &settling).await
}

/// It is over, one way or another: what it held is let go.
pub async fn delete(tx: &mut Tx, over: &Consolidation) -> Result<()> {
    tx.execute_one(DELETE, args![over.layer]).await?;
    if let Some(below) = over.was_on {
        layers::release(tx, below).await?;
    }
    layers::release(tx, over.layer).await
}

impl FromRow for Consolidation {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Consolidation {
            layer: row.take()?,
            onto: row.take()?,
            state: row.take_text(ConsolidationState::parse)?,
            reserved_bytes: row.take()?,
            allocated_bytes: row.take_optional()?,
            digest: row.take_optional()?,
            was_on: row.take_optional()?,
            created_at: row.take()?,
            due_at: row.take()?,
            failures: row.take()?,
        })
    }
}
