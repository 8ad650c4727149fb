//! Templates: memory that was captured with snapshots' disks, one row each from the wish to the end.

use paddock_model::Timestamp;
use paddock_model::emulators::{EmulatorId, Reason};
use paddock_model::slug::Slug;
use paddock_model::templates::{TemplateId, TemplateState};
use paddock_model::tenants::TenantId;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::verifications::Trial;
use crate::{Result, Tx, args};

const PER_TENANT: &str = "
    SELECT snapshots.tenant, CAST(SUM(templates.allocated_bytes) AS BIGINT) FROM templates
    JOIN snapshots ON snapshots.name = templates.snapshot WHERE snapshots.tenant IS NOT NULL GROUP BY snapshots.tenant";

const LIST: &str = "
    SELECT id, snapshot, state, fingerprint, allocated_bytes, proved_at, resume_ms, reason_code, reason_message, emulator, disk, slot,
        identity, started_at, deadline_at, due_at, failures, created_at FROM templates";

const DUE: &str = "
    SELECT id, snapshot, state, fingerprint, allocated_bytes, proved_at, resume_ms, reason_code, reason_message, emulator, disk, slot,
        identity, started_at, deadline_at, due_at, failures, created_at FROM templates
    WHERE due_at <= $1 ORDER BY due_at LIMIT $2";

const NEXT_DUE: &str = "
    SELECT due_at FROM templates WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";

const OF_SNAPSHOT: &str = "
    SELECT id, snapshot, state, fingerprint, allocated_bytes, proved_at, resume_ms, reason_code, reason_message, emulator, disk, slot,
        identity, started_at, deadline_at, due_at, failures, created_at FROM templates
    WHERE snapshot = $1 AND state <> 'removing'";

const EMULATORS: &str = "
    SELECT emulator FROM templates WHERE emulator IS NOT NULL";

const INSERT: &str = "
    INSERT INTO templates (id, snapshot, state, allocated_bytes, deadline_at, failures, created_at)
    VALUES ($1, $2, $3, 0, $4, 0, $5)";

const UPDATE: &str = "
    UPDATE templates SET state = $2, fingerprint = $3, allocated_bytes = $4, proved_at = $5, resume_ms = $6, reason_code = $7,
        reason_message = $8, emulator = $9, disk = $10, slot = $11, identity = $12, started_at = $13, deadline_at = $14, due_at = $15,
        failures = $16
    WHERE id = $1 AND state <> 'removing'";

/// Whatever else somebody is about to write: what is to go comes back under no name.
const LET_GO: &str = "
    UPDATE templates SET state = 'removing', due_at = $2, failures = 0 WHERE snapshot = $1 AND state <> 'removing'";

const DELETE: &str = "
    DELETE FROM templates WHERE id = $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub id: TemplateId,
    pub snapshot: Slug,
    pub state: TemplateState,
    pub fingerprint: Option<String>,
    pub allocated_bytes: i64,
    /// When a clone last resumed to prove it.
    pub proved_at: Option<Timestamp>,
    pub resume_ms: Option<i64>,
    /// Why it is of no use.
    pub reason: Option<Reason>,
    pub trial: Option<Trial>,
    /// After this it is given up.
    pub deadline_at: Timestamp,
    pub due_at: Option<Timestamp>,
    pub failures: i64,
    pub created_at: Timestamp,
}

impl Template {
    /// Whether clones may resume from it; one that is proved again stays what it was until then.
    pub fn is_usable(&self) -> bool {
        match self.state {
            TemplateState::Ready => true,
            TemplateState::Made | TemplateState::Proving => self.proved_at.is_some(),
            _ => false,
        }
    }
}

/// What the memory of each tenant's snapshots takes.
pub async fn bytes_per_tenant(tx: &mut Tx) -> Result<Vec<(TenantId, i64)>> {
    tx.rows(PER_TENANT, &[]).await
}

pub async fn list(tx: &mut Tx) -> Result<Vec<Template>> {
    let mut select = Select::new(LIST);
    select.may_scan();
    tx.rows_of(select.all()).await
}

pub async fn due(tx: &mut Tx, now: Timestamp, most: i64) -> Result<Vec<Template>> {
    tx.rows(DUE, args![now, most]).await
}

pub async fn next_due(tx: &mut Tx) -> Result<Option<Timestamp>> {
    Ok(tx.row::<(Timestamp,)>(NEXT_DUE, &[]).await?.map(|(at,)| at))
}

/// The memory of a snapshot, if any was wanted.
pub async fn of_snapshot(tx: &mut Tx, snapshot: &Slug) -> Result<Option<Template>> {
    tx.row(OF_SNAPSHOT, args![snapshot]).await
}

pub async fn of_snapshots(tx: &mut Tx, snapshots: &[Slug]) -> Result<Vec<Template>> {
    let mut found = Vec::new();
    for part in snapshots.chunks(500) {
        let mut select = Select::new(LIST);
        select.and("state <> 'removing'", []);
        select.one_of("snapshot", part.iter().map(|name| Value::String(name.to_string())));
        found.extend(tx.rows_of::<Template>(select.all()).await?);
    }
    Ok(found)
}

/// The clones that run to prove something, and are nobody's.
pub async fn emulators(tx: &mut Tx) -> Result<Vec<EmulatorId>> {
    let rows: Vec<(EmulatorId,)> = tx.rows(EMULATORS, &[]).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

pub async fn insert(tx: &mut Tx, template: &Template) -> Result<()> {
    let args = args![
        template.id,
        &template.snapshot,
        template.state.name(),
        template.deadline_at,
        template.created_at
    ];
    tx.execute_one(INSERT, args).await
}

/// As it stands now; false if it is to go meanwhile, which nothing changes any more.
pub async fn update(tx: &mut Tx, template: &Template) -> Result<bool> {
    let trial = template.trial.as_ref();
    let args = args![
        template.id,
        template.state.name(),
        template.fingerprint.as_deref(),
        template.allocated_bytes,
        template.proved_at,
        template.resume_ms,
        template.reason.as_ref().map(|reason| reason.code.as_str()),
        template.reason.as_ref().map(|reason| reason.message.as_str()),
        trial.map(|trial| trial.emulator),
        trial.map(|trial| trial.disk),
        trial.map(|trial| trial.slot),
        trial.map(|trial| serde_json::json!(trial.identity)),
        trial.map(|trial| trial.started_at),
        template.deadline_at,
        template.due_at,
        template.failures
    ];
    Ok(tx.execute(UPDATE, args).await? > 0)
}

pub async fn let_go(tx: &mut Tx, snapshot: &Slug, now: Timestamp) -> Result<()> {
    tx.execute(LET_GO, args![snapshot, now]).await.map(drop)
}

pub async fn delete(tx: &mut Tx, id: TemplateId) -> Result<()> {
    tx.execute(DELETE, args![id]).await.map(drop)
}

impl FromRow for Template {
    fn from_row(row: &mut Row) -> Result<Self> {
        let (id, snapshot) = (row.take()?, row.take_text(Slug::parse)?);
        let (state, fingerprint) = (row.take_text(TemplateState::parse)?, row.take_optional()?);
        let (allocated_bytes, proved_at, resume_ms) =
            (row.take()?, row.take_optional()?, row.take_optional()?);
        let reason = match (row.take_optional()?, row.take_optional()?) {
            (Some(code), Some(message)) => Some(Reason { code, message }),
            _ => None,
        };
        let parts = (row.take_optional()?, row.take_optional()?, row.take_optional()?);
        let trial = match (parts, row.take_optional_json()?, row.take_optional()?) {
            ((Some(emulator), Some(disk), Some(slot)), Some(identity), Some(started_at)) => {
                Some(Trial { emulator, disk, slot, identity, started_at })
            }
            _ => None,
        };
        let (deadline_at, due_at, failures, created_at) =
            (row.take()?, row.take_optional()?, row.take()?, row.take()?);
        Ok(Template {
            id,
            snapshot,
            state,
            fingerprint,
            allocated_bytes,
            proved_at,
            resume_ms,
            reason,
            trial,
            deadline_at,
            due_at,
            failures,
            created_at,
        })
    }
}
