//! Layers: the catalogue of bytes that are never written again.

use paddock_model::Timestamp;
use paddock_model::layers::{LayerFacts, LayerId};

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args, vehicle_states};

const LIST: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers ORDER BY id";

const ALL: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers";

const UNSETTLED: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers
    WHERE state IN ('importing', 'removing') ORDER BY id LIMIT 100";

const FIND: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers WHERE id = $1";

const INSERT: &str = "
    INSERT INTO layers (id, parent, state, source, virtual_bytes, allocated_bytes, refs, depth, reach_bytes, created_at, folder, expected)
    VALUES ($1, $2, $3, $4, 0, 0, $5,
        1 + COALESCE((SELECT below.depth FROM layers below WHERE below.id = $2), 0),
        COALESCE((SELECT below.reach_bytes FROM layers below WHERE below.id = $2), 0), $6, $7, $8)";

const COMPLETE: &str = "
    UPDATE layers SET state = 'ready', virtual_bytes = $2, allocated_bytes = $3, digest = $4, source = NULL,
        reach_bytes = $3 + COALESCE((SELECT below.reach_bytes FROM layers below WHERE below.id = layers.parent), 0)
    WHERE id = $1 AND state IN ('importing', 'capturing')";

/// Those that have waited for their bytes since this time or longer.
const UPLOADING: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers
    WHERE state = 'uploading' AND created_at <= $1 ORDER BY created_at LIMIT 100";

const OLDEST_UPLOADING: &str = "
    SELECT created_at FROM layers WHERE state = 'uploading' ORDER BY created_at LIMIT 1";

const RECEIVED: &str = "
    UPDATE layers SET state = 'importing' WHERE id = $1 AND state = 'uploading'";

/// Bytes that have a digest only once they are there.
const RESTORED: &str = "
    UPDATE layers SET state = 'importing', expected = $2 WHERE id = $1 AND state = 'uploading'";

/// Only what is not on its way out can be stood on.
const HOLD: &str = "
    UPDATE layers SET refs = refs + 1 WHERE id = $1 AND state <> 'removing'";

/// Where nothing stands on it any more, it goes.
const RELEASE: &str = "
    UPDATE layers SET refs = refs - 1, state = CASE WHEN refs = 1 THEN 'removing' ELSE state END WHERE id = $1";

const DELETE: &str = "
    DELETE FROM layers WHERE id = $1 AND refs = 0";

const TAKEN: &str = "
    SELECT CAST(COALESCE(SUM(allocated_bytes), 0) AS BIGINT) FROM layers WHERE state = 'removing'";

const MISCOUNTED: &str = "
    SELECT id FROM layers
    WHERE refs <> (SELECT COUNT(*) FROM snapshots WHERE snapshots.layer = layers.id)
               + (SELECT COUNT(*) FROM disks WHERE disks.layer = layers.id)
               + (SELECT COUNT(*) FROM layers above WHERE above.parent = layers.id)
               + (SELECT COUNT(*) FROM consolidations WHERE consolidations.layer = layers.id)
               + (SELECT COUNT(*) FROM consolidations WHERE consolidations.was_on = layers.id)
               + (SELECT COUNT(*) FROM backups WHERE backups.held_layer = layers.id)
    ORDER BY id";

/// Those whose lineage is not one longer than that of what they stand on.
const MISMEASURED: &str = "
    SELECT id FROM layers
    WHERE depth <> 1 + COALESCE((SELECT below.depth FROM layers below WHERE below.id = layers.parent), 0)
    ORDER BY id";

/// On too long a lineage, and with something to boot or a device on it; the shortest first, as those above become shorter with it.
const DEEPER: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers
    WHERE state = 'ready' AND depth > $1
        AND (EXISTS (SELECT 1 FROM snapshots WHERE snapshots.layer = layers.id AND snapshots.state <> 'deleting')
          OR EXISTS (SELECT 1 FROM disks WHERE disks.layer = layers.id))
    ORDER BY depth, id LIMIT $2";

const COUNT_DEEPER: &str = "
    SELECT COUNT(*) FROM layers WHERE state = 'ready' AND depth > $1";

const DEEPEST: &str = "
    SELECT depth FROM layers WHERE state = 'ready' ORDER BY depth DESC, id DESC LIMIT 1";

const MOVE: &str = "
    UPDATE layers SET parent = $2, allocated_bytes = $3, digest = $4, verified_at = $5,
        depth = 1 + (SELECT below.depth FROM layers below WHERE below.id = $2),
        reach_bytes = $3 + (SELECT below.reach_bytes FROM layers below WHERE below.id = $2)
    WHERE id = $1 AND state <> 'removing'";

/// What stands on a layer that has moved.
const MOVE_ABOVE: &str = "
    UPDATE layers SET
        depth = 1 + (SELECT below.depth FROM layers below WHERE below.id = $1),
        reach_bytes = allocated_bytes + (SELECT below.reach_bytes FROM layers below WHERE below.id = $1)
    WHERE parent = $1";

const SET_STATE: &str = "
    UPDATE layers SET state = $2 WHERE id = $1";

/// The one whose bytes nobody has looked at for longest, if that is too long.
const UNVERIFIED: &str = "
    SELECT id, parent, state, source, virtual_bytes, allocated_bytes, digest, refs, depth, reach_bytes, folder, expected, created_at FROM layers
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
    /// The file that it is imported from; none for what is sent to us.
    pub source: Option<String>,
    pub virtual_bytes: i64,
    pub allocated_bytes: i64,
    pub digest: Option<String>,
    /// How many snapshots, disks, layers and backups under way stand on it.
    pub refs: i64,
    /// How many layers its lineage has, itself included.
    pub depth: i64,
    /// What the whole lineage takes in the pool.
    pub reach_bytes: i64,
    /// The source is to be found below this folder, and must not lead out of it.
    pub folder: Option<String>,
    /// The digest that it must have once its bytes are there.
    pub expected: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerState {
    /// Somebody is to send its bytes.
    Uploading,
    Importing,
    /// A device may still write to it.
    Capturing,
    Ready,
    Quarantined,
    /// It never came to be; its record stays for as long as its snapshot's.
    Void,
    Removing,
}

impl LayerState {
    const ALL: [LayerState; 7] = [
        LayerState::Uploading,
        LayerState::Importing,
        LayerState::Capturing,
        LayerState::Ready,
        LayerState::Quarantined,
        LayerState::Void,
        LayerState::Removing,
    ];

    const fn name(self) -> &'static str {
        match self {
            LayerState::Uploading => "uploading",
            LayerState::Importing => "importing",
            LayerState::Capturing => "capturing",
            LayerState::Ready => "ready",
            LayerState::Quarantined => "quarantined",
            LayerState::Void => "void",
            LayerState::Removing => "removing",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        LayerState::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// A layer that is wanted; its bytes come later.
pub struct NewLayer {
    pub id: LayerId,
    pub below: Option<Layer>,
    pub state: LayerState,
    pub source: Option<String>,
    pub folder: Option<String>,
    pub expected: Option<String>,
    /// How many stand on it from the beginning.
    pub refs: i64,
}

impl NewLayer {
    /// One that a snapshot stands on, and that comes from no file.
    pub fn new(id: LayerId, below: Option<Layer>, state: LayerState) -> NewLayer {
        NewLayer { id, below, state, source: None, folder: None, expected: None, refs: 1 }
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

/// The intent to have a layer; it stands on the one below from now on, wherever that may have moved since it was read.
pub async fn insert(tx: &mut Tx, new: &NewLayer, now: Timestamp) -> Result<()> {
    if let Some(below) = &new.below {
        hold(tx, below.id).await?;
    }
    let parent = new.below.as_ref().map(|below| below.id);
    let (source, folder, expected) = (new.source.as_deref(), new.folder.as_deref(), new.expected.as_deref());
    let args = args![new.id, parent, new.state.name(), source, new.refs, now, folder, expected];
    tx.execute_one(INSERT, args).await
}

/// One more stands on it.
pub async fn hold(tx: &mut Tx, id: LayerId) -> Result<()> {
    tx.execute_one(HOLD, args![id]).await
}

/// One less stands on it; the last one lets it go.
pub async fn release(tx: &mut Tx, id: LayerId) -> Result<()> {
    tx.execute_one(RELEASE, args![id]).await
}

/// Forgets a layer whose bytes are gone, and lets the one below it go.
pub async fn delete(tx: &mut Tx, layer: &Layer) -> Result<()> {
    tx.execute_one(DELETE, args![layer.id]).await?;
    vehicle_states::delete(tx, layer.id).await?;
    match layer.parent {
        Some(below) => release(tx, below).await,
        None => Ok(()),
    }
}

/// The bytes of layers that are on their way out.
pub async fn removing_bytes(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(TAKEN, &[]).await?.map_or(0, |(bytes,)| bytes))
}

/// Those on which not as much stands as was counted; none in a healthy catalogue.
pub async fn miscounted(tx: &mut Tx) -> Result<Vec<LayerId>> {
    let rows: Vec<(LayerId,)> = tx.rows(MISCOUNTED, &[]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Those whose lineage is not as long as was counted; none in a healthy catalogue.
pub async fn mismeasured(tx: &mut Tx) -> Result<Vec<LayerId>> {
    let rows: Vec<(LayerId,)> = tx.rows(MISMEASURED, &[]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// Some of those with a lineage of more layers than this, that somebody boots from or runs on.
pub async fn deeper_than(tx: &mut Tx, depth: i64, most: i64) -> Result<Vec<Layer>> {
    tx.rows(DEEPER, args![depth, most]).await
}

pub async fn count_deeper_than(tx: &mut Tx, depth: i64) -> Result<i64> {
    Ok(tx.row::<(i64,)>(COUNT_DEEPER, args![depth]).await?.map_or(0, |(count,)| count))
}

/// The length of the longest lineage.
pub async fn deepest(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(DEEPEST, &[]).await?.map_or(0, |(depth,)| depth))
}

/// The layer and all that stands on it, from the bottom up: once a row is changed nobody puts another layer on it before the commit,
/// so none is missed.
pub(crate) async fn move_onto(
    tx: &mut Tx,
    id: LayerId,
    onto: LayerId,
    facts: &LayerFacts,
    now: Timestamp,
) -> Result<()> {
    tx.execute_one(MOVE, args![id, onto, facts.allocated_bytes, &facts.digest, now]).await?;
    let mut next = vec![id];
    while let Some(below) = next.pop() {
        if tx.execute(MOVE_ABOVE, args![below]).await? > 0 {
            next.extend(children(tx, below).await?);
        }
    }
    Ok(())
}

/// These layers, in no order.
pub async fn find_all(tx: &mut Tx, ids: &[LayerId]) -> Result<Vec<Layer>> {
    let mut found = Vec::with_capacity(ids.len());
    for part in ids.chunks(AT_ONCE) {
        let mut select = Select::new(ALL);
        select.one_of("id", part.iter().map(|id| Value::Uuid(id.0)));
        found.extend(tx.rows_of(select.all()).await?);
    }
    Ok(found)
}

/// The bytes are there.
pub async fn complete(tx: &mut Tx, id: LayerId, facts: &LayerFacts) -> Result<()> {
    tx.execute_one(COMPLETE, args![id, facts.virtual_bytes, facts.allocated_bytes, &facts.digest]).await
}

pub async fn set_state(tx: &mut Tx, id: LayerId, state: LayerState) -> Result<()> {
    tx.execute_one(SET_STATE, args![id, state.name()]).await
}

/// Those whose bytes nobody has sent since before this time, a few at a time.
pub async fn uploading_since(tx: &mut Tx, before: Timestamp) -> Result<Vec<Layer>> {
    tx.rows(UPLOADING, args![before]).await
}

/// Since when the longest has waited for its bytes.
pub async fn oldest_uploading(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(OLDEST_UPLOADING, &[]).await?.map(|(at,)| at))
}

/// The bytes that it waited for lie in the pool; false when it does not wait any more.
pub async fn received(tx: &mut Tx, id: LayerId) -> Result<bool> {
    Ok(tx.execute(RECEIVED, args![id]).await? == 1)
}

/// The same for bytes that nobody knew the digest of before; false when it does not wait any more.
pub async fn restored(tx: &mut Tx, id: LayerId, digest: &str) -> Result<bool> {
    Ok(tx.execute(RESTORED, args![id, digest]).await? == 1)
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
            refs: row.take()?,
            depth: row.take()?,
            reach_bytes: row.take()?,
            folder: row.take_optional()?,
            expected: row.take_optional()?,
            created_at: row.take()?,
        })
    }
}
