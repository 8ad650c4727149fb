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

/// The one whose bytes nobody has looked at for longest, if that is too long.
const UNVERIFIED: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, created_at FROM layers
    WHERE state = 'ready' AND COALESCE(verified_at, created_at) <= $1 ORDER BY COALESCE(verified_at, created_at) LIMIT 1";

const NEXT_VERIFICATION: &str = "
    SELECT COALESCE(verified_at, created_at) FROM layers WHERE state = 'ready' ORDER BY COALESCE(verified_at, created_at) LIMIT 1";

const SET_VERIFIED: &str = "
    UPDATE layers SET verified_at = $2 WHERE id = $1";

const CHILDREN: &str = "
    SELECT id FROM layers WHERE parent = $1 ORDER BY id";

const QUARANTINED: &str = "
    SELECT COUNT(*) FROM layers WHERE state = 'quarantined'";

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

/// The layer that was verified longest ago, if that was before this time.
pub async fn unverified_since(tx: &mut Tx, before: Timestamp) -> Result<Option<Layer>> {
    tx.row(UNVERIFIED, args![before]).await
}

/// When the layer that was verified longest ago was.
pub async fn oldest_verification(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_VERIFICATION, &[]).await?.map(|(at,)| at))
}

pub async fn set_verified(tx: &mut Tx, id: LayerId, now: Timestamp) -> Result<()> {
    tx.execute_one(SET_VERIFIED, args![id, now]).await
}

/// The layers that stand on this one.
pub async fn children(tx: &mut Tx, id: LayerId) -> Result<Vec<LayerId>> {
    let rows: Vec<(LayerId,)> = tx.rows(CHILDREN, args![id]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

pub async fn count_quarantined(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(QUARANTINED, &[]).await?.map_or(0, |(count,)| count))
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
