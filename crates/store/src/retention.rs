//! What retention reads of snapshots and layers, in a few sweeps over all of them, and what it notes on snapshots.

use paddock_model::Timestamp;
use paddock_model::layers::LayerId;
use paddock_model::retention::{Kept, Points};
use paddock_model::slug::Slug;
use paddock_model::snapshots::{Origin, SnapshotState, Trust, VerifiedBoot};
use paddock_model::tenants::TenantId;
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::select::{AT_ONCE, Select};
use crate::value::Value;
use crate::{Result, Tx, args};

const SNAPSHOTS: &str = "
    SELECT name, id, tenant, of_group, layer, state, problems, rooted_at, origin, trust, verified, created_at, last_used_at, use_count,
        retention_score, kept_because FROM snapshots ORDER BY id";

const FIND: &str = "
    SELECT name, id, tenant, of_group, layer, state, problems, rooted_at, origin, trust, verified, created_at, last_used_at, use_count,
        retention_score, kept_because FROM snapshots WHERE name = $1";

const LAYERS: &str = "
    SELECT id, parent, allocated_bytes, depth FROM layers";

const DISKS: &str = "
    SELECT layer, COUNT(*) FROM disks GROUP BY layer";

const SOURCES: &str = "
    SELECT DISTINCT snapshot FROM disks WHERE snapshot IS NOT NULL";

const BUSY: &str = "
    SELECT snapshot FROM captures UNION SELECT snapshot FROM verifications";

const CHILDREN: &str = "
    SELECT snapshot, children FROM snapshot_children WHERE tenant = $1";

const NEWER: &str = "
    SELECT name FROM snapshots
    WHERE tenant = $1 AND COALESCE(of_group, '') = $2 AND state = 'ready' AND CAST(problems AS TEXT) = '[]'
        AND created_at <= $5 AND (created_at > $3 OR created_at = $3 AND id > $4)
    LIMIT 1";

const LEAVING: &str = "
    SELECT (SELECT COUNT(*) FROM snapshots WHERE state = 'deleting') + (SELECT COUNT(*) FROM layers WHERE state = 'removing')";

const ANNOTATIONS: &str = "
    SELECT name, retention_score, score_breakdown, kept_because FROM snapshots";

/// The snapshot itself stays as it is: nobody who changes it has to know.
const ANNOTATE: &str = "
    UPDATE snapshots SET retention_score = $2, score_breakdown = $3, kept_because = $4, annotated_at = $5 WHERE name = $1";

/// A snapshot, as far as retention looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub name: Slug,
    pub id: Uuid,
    pub tenant: Option<TenantId>,
    pub group: Option<String>,
    pub layer: LayerId,
    pub state: SnapshotState,
    pub problems: Vec<String>,
    pub rooted_at: Option<Timestamp>,
    pub origin: Origin,
    pub trust: Trust,
    pub verified: Option<VerifiedBoot>,
    pub created_at: Timestamp,
    pub last_used_at: Option<Timestamp>,
    pub use_count: i64,
    /// None until it was annotated.
    pub score: Option<i64>,
    pub kept_because: Vec<Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes {
    pub layer: LayerId,
    pub below: Option<LayerId>,
    pub allocated_bytes: i64,
    pub depth: i64,
}

/// What was noted on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    pub name: Slug,
    pub score: i64,
    pub breakdown: Vec<Points>,
    pub kept_because: Vec<Kept>,
}

/// All snapshots, oldest first.
pub async fn snapshots(tx: &mut Tx) -> Result<Vec<Judged>> {
    tx.rows(SNAPSHOTS, &[]).await
}

pub async fn find(tx: &mut Tx, name: &Slug) -> Result<Option<Judged>> {
    tx.row(FIND, args![name]).await
}

/// All layers.
pub async fn layers(tx: &mut Tx) -> Result<Vec<Bytes>> {
    tx.rows(LAYERS, &[]).await
}

/// How many disks stand on each layer.
pub async fn disks(tx: &mut Tx) -> Result<Vec<(LayerId, i64)>> {
    tx.rows(DISKS, &[]).await
}

/// The snapshots of which there are clones.
pub async fn sources(tx: &mut Tx) -> Result<Vec<String>> {
    Ok(names(tx.rows(SOURCES, &[]).await?))
}

/// The snapshots that are being captured or verified.
pub async fn busy(tx: &mut Tx) -> Result<Vec<String>> {
    Ok(names(tx.rows(BUSY, &[]).await?))
}

/// How many children each snapshot has that has any.
pub async fn children(tx: &mut Tx) -> Result<Vec<(String, i64)>> {
    tx.rows(CHILDREN, args![Uuid::nil()]).await
}

/// Whether its group has a newer one that can be deployed now.
pub async fn has_newer_deployable(tx: &mut Tx, snapshot: &Judged, now: Timestamp) -> Result<bool> {
    let group = snapshot.group.as_deref().unwrap_or_default();
    let args = args![snapshot.tenant, group, snapshot.created_at, snapshot.id, now];
    Ok(tx.row::<(String,)>(NEWER, args).await?.is_some())
}

/// How many snapshots and layers are on their way out.
pub async fn leaving(tx: &mut Tx) -> Result<i64> {
    Ok(tx.row::<(i64,)>(LEAVING, &[]).await?.map_or(0, |(count,)| count))
}

/// What was noted on these, as far as it was.
pub async fn annotations(tx: &mut Tx, names: &[Slug]) -> Result<Vec<Annotation>> {
    let mut found = Vec::new();
    for part in names.chunks(AT_ONCE) {
        let mut select = Select::new(ANNOTATIONS);
        select.and("annotated_at IS NOT NULL", []);
        select.one_of("name", part.iter().map(|name| Value::String(name.to_string())));
        found.extend(tx.rows_of(select.all()).await?);
    }
    Ok(found)
}

/// Notes a score on a snapshot; nothing where it is gone.
pub async fn annotate(tx: &mut Tx, annotation: &Annotation, now: Timestamp) -> Result<()> {
    let args = args![
        &annotation.name,
        annotation.score,
        serde_json::json!(annotation.breakdown),
        serde_json::json!(annotation.kept_because),
        now
    ];
    tx.execute(ANNOTATE, args).await.map(drop)
}

fn names(rows: Vec<(String,)>) -> Vec<String> {
    rows.into_iter().map(|(name,)| name).collect()
}

impl FromRow for Judged {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Judged {
            name: row.take_text(Slug::parse)?,
            id: row.take()?,
            tenant: row.take_optional()?,
            group: row.take_optional()?,
            layer: row.take()?,
            state: row.take_text(SnapshotState::parse)?,
            problems: row.take_json()?,
            rooted_at: row.take_optional()?,
            origin: row.take_json()?,
            trust: row.take_text(Trust::parse)?,
            verified: row.take_optional_json()?,
            created_at: row.take()?,
            last_used_at: row.take_optional()?,
            use_count: row.take()?,
            score: row.take_optional()?,
            kept_because: row.take_optional_json()?.unwrap_or_default(),
        })
    }
}

impl FromRow for Bytes {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Bytes {
            layer: row.take()?,
            below: row.take_optional()?,
            allocated_bytes: row.take()?,
            depth: row.take()?,
        })
    }
}

impl FromRow for Annotation {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Annotation {
            name: row.take_text(Slug::parse)?,
            score: row.take()?,
            breakdown: row.take_json()?,
            kept_because: row.take_json()?,
        })
    }
}
