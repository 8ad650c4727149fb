//! Layers: the catalogue of bytes that are never written again.

use paddock_model::Timestamp;
use paddock_model::layers::{LayerFacts, LayerId};

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const LIST: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, created_at FROM layers ORDER BY id";

const UNSETTLED: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, created_at FROM layers
    WHERE state IN ('importing', 'removing') ORDER BY id LIMIT 100";

const FIND: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, created_at FROM layers WHERE id = $1";

const INSERT: &str = "
    INSERT INTO layers (id, parent, state, source, virtual_bytes, allocated_bytes, created_at)
    VALUES ($1, $2, $3, $4, 0, 0, $5)";

const COMPLETE: &str = "
    UPDATE layers SET state = 'ready', virtual_bytes = $2, allocated_bytes = $3, digest = $4
    WHERE id = $1 AND state = 'importing'";

const SET_STATE: &str = "
    UPDATE layers SET state = $2 WHERE id = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub id: LayerId,
    pub parent: Option<LayerId>,
    pub state: LayerState,
    /// The file that it is imported from.
    pub source: Option<String>,
    pub virtual_bytes: i64,
    pub allocated_bytes: i64,
    pub digest: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerState {
    Importing,
    Ready,
    Quarantined,
    Removing,
}

impl LayerState {
    const fn name(self) -> &'static str {
        match self {
            LayerState::Importing => "importing",
            LayerState::Ready => "ready",
            LayerState::Quarantined => "quarantined",
            LayerState::Removing => "removing",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [LayerState::Importing, LayerState::Ready, LayerState::Quarantined, LayerState::Removing]
            .into_iter()
            .find(|state| state.name() == text)
    }
}

pub async fn list(tx: &mut Tx) -> Result<Vec<Layer>> {
    tx.rows(LIST, &[]).await
}

/// Those with which something is to be done, a few at a time.
pub async fn unsettled(tx: &mut Tx) -> Result<Vec<Layer>> {
    tx.rows(UNSETTLED, &[]).await
}

pub async fn find(tx: &mut Tx, id: LayerId) -> Result<Option<Layer>> {
    tx.row(FIND, args![id]).await
}

/// The intent to have a layer; its bytes come later.
pub async fn insert(tx: &mut Tx, id: LayerId, source: &str, now: Timestamp) -> Result<()> {
    let parent: Option<LayerId> = None;
    tx.execute_one(INSERT, args![id, parent, LayerState::Importing.name(), source, now]).await
}

/// The bytes are there.
pub async fn complete(tx: &mut Tx, id: LayerId, facts: &LayerFacts) -> Result<()> {
    tx.execute_one(COMPLETE, args![id, facts.virtual_bytes, facts.allocated_bytes, &facts.digest]).await
}

pub async fn set_state(tx: &mut Tx, id: LayerId, state: LayerState) -> Result<()> {
    tx.execute_one(SET_STATE, args![id, state.name()]).await
}

impl FromRow for Layer {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Layer {
            id: row.take()?,
            parent: row.take_optional()?,
            state: row.take_text(LayerState::parse)?,
            source: row.take_optional()?,
            virtual_bytes: row.take()?,
            allocated_bytes: row.take()?,
            digest: row.take_optional()?,
            created_at: row.take()?,
        })
    }
}
