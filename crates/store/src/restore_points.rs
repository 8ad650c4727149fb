//! Restore points: snapshots that jobs have left behind, found by key or branch. What a look costs does not grow with their number.

use paddock_model::ci::{Clue, JobOrigin};
use paddock_model::devices::DeviceType;
use paddock_model::slug::Slug;
use paddock_model::snapshots::Snapshot;
use paddock_model::tenants::TenantId;
use paddock_model::trust::Trust;
use uuid::Uuid;

use crate::{Result, Tx, args};

const INSERT: &str = "
    INSERT INTO restore_points (snapshot, id, tenant, device_type, abi, trust, key, project, ref)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const DELETE: &str = "
    DELETE FROM restore_points WHERE snapshot = $1";

const BY_KEY: &str = "
    SELECT p.snapshot, p.id FROM restore_points p JOIN snapshots s ON s.name = p.snapshot
    WHERE p.tenant = $1 AND p.device_type = $2 AND p.abi = $3 AND p.trust = $4 AND p.key = $5
        AND s.state = 'ready' AND CAST(s.problems AS TEXT) = '[]'
    ORDER BY p.id DESC LIMIT 1";

const BY_REF: &str = "
    SELECT p.snapshot, p.id FROM restore_points p JOIN snapshots s ON s.name = p.snapshot
    WHERE p.tenant = $1 AND p.device_type = $2 AND p.abi = $3 AND p.trust = $4 AND p.project = $5 AND p.ref = $6
        AND s.state = 'ready' AND CAST(s.problems AS TEXT) = '[]'
    ORDER BY p.id DESC LIMIT 1";

/// Of the newest few, whatever their keys are: what many keys begin with is found here.
const RECENT: &str = "
    SELECT p.snapshot, p.id FROM
        (SELECT snapshot, id, key FROM restore_points WHERE tenant = $1 AND device_type = $2 AND abi = $3 AND trust = $4
        ORDER BY id DESC LIMIT 256) p
    JOIN snapshots s ON s.name = p.snapshot
    WHERE p.key >= $5 AND p.key < $6 AND s.state = 'ready' AND CAST(s.problems AS TEXT) = '[]'
    ORDER BY p.id DESC LIMIT 1";

/// Of all keys in a range; those that are not among the newest few are rare, or old.
const BY_RANGE: &str = "
    SELECT p.snapshot, p.id FROM restore_points p JOIN snapshots s ON s.name = p.snapshot
    WHERE p.tenant = $1 AND p.device_type = $2 AND p.abi = $3 AND p.trust = $4 AND p.key >= $5 AND p.key < $6
        AND s.state = 'ready' AND CAST(s.problems AS TEXT) = '[]'
    ORDER BY p.id DESC LIMIT 1";

/// What must fit before anything else is asked.
#[derive(Debug, Clone, Copy)]
pub struct Fit<'a> {
    pub tenant: TenantId,
    pub device_type: DeviceType,
    pub abi: &'a str,
    /// This, or more.
    pub trust: Trust,
}

/// Lets a snapshot be found by the job that it comes from, once it can be deployed.
pub async fn insert(tx: &mut Tx, snapshot: &Snapshot, job: &JobOrigin) -> Result<()> {
    let args = args![
        &snapshot.name,
        snapshot.id,
        snapshot.tenant,
        snapshot.image.device_type.name(),
        &snapshot.image.abi,
        snapshot.trust.name(),
        job.key.as_deref().map(str::as_bytes),
        job.project.as_deref(),
        job.reference.as_deref()
    ];
    tx.execute_one(INSERT, args).await
}

/// Nothing where it was never to be found.
pub async fn delete(tx: &mut Tx, snapshot: &Slug) -> Result<()> {
    tx.execute(DELETE, args![snapshot]).await.map(drop)
}

/// The newest that fits and can be deployed.
pub async fn newest(tx: &mut Tx, fit: Fit<'_>, clue: &Clue) -> Result<Option<Slug>> {
    let mut newest: Option<(String, Uuid)> = None;
    for trust in Trust::ALL.into_iter().filter(|trust| *trust >= fit.trust) {
        let found = newest_of(tx, Fit { trust, ..fit }, clue).await?;
        newest = newest.into_iter().chain(found).max_by_key(|(_, id)| *id);
    }
    let broken = || crate::Error::unexpected("a snapshot's name breaks its rule");
    newest.map(|(name, _)| Slug::parse(&name).ok_or_else(broken)).transpose()
}

/// The same, of exactly this trust.
async fn newest_of(tx: &mut Tx, fit: Fit<'_>, clue: &Clue) -> Result<Option<(String, Uuid)>> {
    let Fit { tenant, device_type, abi, trust } = fit;
    let (kind, trust) = (device_type.name(), trust.name());
    match clue {
        Clue::Key(key) => tx.row(BY_KEY, args![tenant, kind, abi, trust, key.as_bytes()]).await,
        Clue::Prefix(prefix) => {
            let (first, end) = (prefix.as_bytes(), end_of(prefix));
            let args = args![tenant, kind, abi, trust, first, &end];
            match tx.row(RECENT, args).await? {
                Some(found) => Ok(Some(found)),
                None => tx.row(BY_RANGE, args).await,
            }
        }
        Clue::Branch { project, reference } => {
            tx.row(BY_REF, args![tenant, kind, abi, trust, project, reference]).await
        }
    }
}

/// The first bytes that are behind everything that begins with the prefix. No text holds a byte of only ones, so that there is room
/// behind every one.
fn end_of(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[0xff]].concat()
}
