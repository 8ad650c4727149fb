//! Backups: what a disk held, kept where no accident of the pool reaches it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::backups::{
    Backup, BackupPage, BackupPath, BackupPhase, BackupSource, BackupSpec, ListBackups, TransferError,
    TransferProgress,
};
use paddock_api::labels::Labels;
use paddock_engine::backups::{self, SourceSpec};
use paddock_model::backups::{self as model, BackupFilter, BackupId, JobError};
use paddock_model::emulators::EmulatorId;
use paddock_model::error::Fault;
use paddock_model::layers::DiskId;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::conditional::{IfMatch, etag};
use super::conventions::cursor::Listing;
use super::conventions::labels::label_selector;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::subject;
use super::conventions::tenant::TenantHint;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, delete))
}

/// List backups
///
/// All of the tenants that you operate or audit, and your own in others.
#[utoipa::path(get, path = "/backups", tag = "backups", params(ListBackups), responses((status = 200, body = BackupPage, description = "A page of backups.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListBackups>,
) -> Answer<Json<BackupPage>> {
    let filters = ListBackups { limit: None, cursor: None, ..query.clone() };
    let listing = Listing::of("backups", &(filters, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = BackupFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse).or(hint),
        phase: query.phase.map(read_phase),
        snapshot: query.snapshot,
        labels: label_selector(query.label_selector.as_deref())?,
    };
    let page = backups::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(BackupPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Back up a snapshot or a device
///
/// A device goes on running; what it holds at this moment is what is backed up. Of a disk that stands on what was backed up
/// before, only the difference is read.
#[utoipa::path(post, path = "/backups", tag = "backups", request_body = BackupSpec, responses((status = 202, body = Backup, description = "The backup, which is wanted from now on.")))]
async fn create(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Submission { caller, body }: Submission<BackupSpec>,
) -> Answer<Response> {
    let tenant = match body.tenant_id.as_deref() {
        Some(id) => Some(TenantId::parse(id).ok_or_else(|| subject::not_an_id("/tenantId"))?),
        None => hint,
    };
    let spec = backups::BackupSpec {
        tenant,
        source: source(&body.source)?,
        labels: body.labels.unwrap_or_default().0,
        expires_in: body
            .expires_in_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
    };
    let backup = backups::create(&app.engine, &caller, spec).await?;
    let location = format!("/api/v1/backups/{}", backup.id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], versioned(backup)).into_response())
}

/// Read a backup
#[utoipa::path(get, path = "/backups/{podName}", tag = "backups", params(BackupPath), responses((status = 200, body = Backup, description = "The backup.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(name): Path) -> Answer<Response> {
    Ok(versioned(backups::get(&app.engine, &caller, read_id(&name)?).await?).into_response())
}

/// Delete a backup
///
/// One that is under way is given up. What no other backup needs is removed from where it is kept.
#[utoipa::path(delete, path = "/backups/{podName}", tag = "backups", params(BackupPath), responses((status = 202, body = Backup, description = "The backup, on its way out.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(name): Path,
    IfMatch(expected): IfMatch,
) -> Answer<Response> {
    let backup = backups::delete(&app.engine, &caller, read_id(&name)?, &expected).await?;
    Ok((StatusCode::ACCEPTED, versioned(backup)).into_response())
}

/// A text that is no name of a backup names one that does not exist.
fn read_id(text: &str) -> Result<BackupId> {
    BackupId::parse(text).ok_or_else(|| Error::not_found("backup"))
}

fn source(source: &BackupSource) -> Result<SourceSpec> {
    match (&source.emulator_id, &source.snapshot, &source.volume) {
        (Some(id), None, None) => {
            EmulatorId::parse(id).map(SourceSpec::Emulator).ok_or_else(|| Error::not_found("emulator"))
        }
        (None, Some(name), None) => Ok(SourceSpec::Snapshot(name.clone())),
        (None, None, Some(id)) => {
            DiskId::parse(id).map(SourceSpec::Volume).ok_or_else(|| Error::not_found("volume"))
        }
        _ => Err(Error::invalid(vec![Fault {
            pointer: "/source".into(),
            code: "one_of".into(),
            message: "exactly one of emulatorId, snapshot and volume".to_owned(),
        }])),
    }
}

fn read_phase(phase: BackupPhase) -> model::BackupPhase {
    match phase {
        BackupPhase::Queued => model::BackupPhase::Queued,
        BackupPhase::Running => model::BackupPhase::Running,
        BackupPhase::Completed => model::BackupPhase::Completed,
        BackupPhase::Failed => model::BackupPhase::Failed,
        BackupPhase::Deleting => model::BackupPhase::Deleting,
    }
}

fn versioned(backup: model::Backup) -> impl IntoResponse {
    ([(ETAG, etag(backup.generation))], Json(wire(backup)))
}

fn wire(backup: model::Backup) -> Backup {
    Backup {
        pod_name: backup.id.to_string(),
        tenant_id: backup.tenant.to_string(),
        owner_id: backup.owner.thing().id.to_string(),
        source: match backup.source {
            model::BackupSource::Emulator { emulator } => {
                BackupSource { emulator_id: Some(emulator.to_string()), ..BackupSource::default() }
            }
            model::BackupSource::Snapshot { snapshot } => {
                BackupSource { snapshot: Some(snapshot.to_string()), ..BackupSource::default() }
            }
            model::BackupSource::Volume { volume, .. } => {
                BackupSource { volume: Some(volume.to_string()), ..BackupSource::default() }
            }
        },
        phase: match backup.phase {
            model::BackupPhase::Queued => BackupPhase::Queued,
            model::BackupPhase::Running => BackupPhase::Running,
            model::BackupPhase::Completed => BackupPhase::Completed,
            model::BackupPhase::Failed => BackupPhase::Failed,
            model::BackupPhase::Deleting => BackupPhase::Deleting,
        },
        progress: TransferProgress { bytes_done: backup.bytes_done, bytes_total: backup.bytes_total },
        location: backup.location,
        checksum: backup.checksum,
        disk_bytes: backup.disk_bytes,
        added_bytes: backup.added_bytes,
        labels: Labels(backup.labels),
        error: backup.error.map(wire_error),
        created_at: time(backup.created_at),
        started_at: backup.started_at.map(time),
        completed_at: backup.completed_at.map(time),
        expires_at: backup.expires_at.map(time),
    }
}

pub(super) fn wire_error(error: JobError) -> TransferError {
    TransferError { code: error.code, message: error.message }
}
