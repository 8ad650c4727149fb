//! Emulators: devices that run.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::ci::{DeleteEmulator, EmulatorBatch, EmulatorResult};
use paddock_api::emulators::{
    AdbEndpoint, Condition, ConditionStatus, ConditionType, DeviceState, DeviceType, DisplayEndpoint,
    Emulator, EmulatorEndpoints, EmulatorPage, EmulatorPath, EmulatorSnapshot, EmulatorSpec, EmulatorStart,
    EmulatorStatus, EmulatorStatusReport, GrpcEndpoint, GrpcHeader, IdentityMode, IdentitySpec,
    ListEmulators, LiveState, SnapshotSwap, StartKind, StatusReason, VehicleState, Wait,
};
use paddock_api::labels::Labels;
use paddock_api::problem::Obstacle;
use paddock_engine::ci;
use paddock_engine::emulators::{self, Made};
use paddock_model::caller as model_caller;
use paddock_model::devices;
use paddock_model::emulators::{self as model, EmulatorFilter, EmulatorId, Seen, Status, Wanted};
use paddock_model::error::Fault;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::ci::{
    read_capture, read_outcome, read_restore, read_statement, wire_capture, wire_ci, wire_restore,
};
use super::conventions::body::{Bare, Body, Submission};
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

/// What names the emulator in a gRPC call.
pub const EMULATOR_HEADER: &str = "x-paddock-emulator";

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, delete))
        .routes(routes!(status))
        .routes(routes!(restart))
        .routes(routes!(swap_snapshot))
        .routes(routes!(park))
}

/// List emulators
///
/// All of the tenants that you operate or audit, your own in others, and those that were granted to you.
#[utoipa::path(get, path = "/emulators", tag = "emulators", params(ListEmulators), responses((status = 200, body = EmulatorPage, description = "A page of emulators.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    TenantHint(hint): TenantHint,
    Query(query): Query<ListEmulators>,
) -> Answer<Json<EmulatorPage>> {
    let filters = ListEmulators { limit: None, cursor: None, ..query.clone() };
    let listing = Listing::of("emulators", &(filters, hint));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = EmulatorFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse).or(hint),
        status: query.status.map(read_status),
        snapshot: query.snapshot,
        name: query.name,
        labels: label_selector(query.label_selector.as_deref())?,
    };
    let page = emulators::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    let items = page.items.into_iter().map(|emulator| wire(&app, emulator, None)).collect();
    Ok(Json(EmulatorPage { items, next_cursor }))
}

/// Deploy an emulator
///
/// From the snapshot that you name, from what a job has captured under a key (`restore`), or from the newest deployable promoted
/// root. With `wait`, the answer comes when the device is up. With `count`, several are made of one snapshot, and the answer says of
/// each what became of it; where not even one can be made, the request is refused as a whole.
#[utoipa::path(post, path = "/emulators", tag = "emulators", params(Wait), request_body = EmulatorSpec, responses((status = 201, body = Emulator, description = "The emulator, on its way up."), (status = 207, body = EmulatorBatch, description = "With `count`: each emulator, or why there is none.")))]
async fn create(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Query(query): Query<Wait>,
    Submission { caller, body }: Submission<EmulatorSpec>,
) -> Answer<Response> {
    let count = body.count;
    let spec = spec(body, hint)?;
    if let Some(count) = count {
        return create_many(&app, &caller, spec, count, patience(&query)).await;
    }
    let mut emulator = emulators::create(&app.engine, &caller, spec).await?;
    if let Some(patience) = patience(&query) {
        emulator = emulators::wait(&app.engine, &caller, emulator.id, patience).await?;
    }
    let location = format!("/api/v1/emulators/{}", emulator.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], versioned(&app, emulator, None)).into_response())
}

async fn create_many(
    app: &App,
    caller: &model_caller::Caller,
    spec: emulators::EmulatorSpec,
    count: u32,
    patience: Option<Duration>,
) -> Answer<Response> {
    let mut made = emulators::create_many(&app.engine, caller, spec, count).await?;
    let over = patience.map(|patience| tokio::time::Instant::now() + patience);
    for made in &mut made {
        if let (Made::Emulator(emulator), Some(over)) = (made, over) {
            let left = over.saturating_duration_since(tokio::time::Instant::now());
            **emulator = emulators::wait(&app.engine, caller, emulator.id, left).await?;
        }
    }
    let result = |made: Made| match made {
        Made::Emulator(emulator) => {
            EmulatorResult { emulator: Some(wire(app, *emulator, None)), problem: None }
        }
        Made::Refused(problem) => {
            let problem = Obstacle { code: problem.code.into_owned(), message: problem.message };
            EmulatorResult { emulator: None, problem: Some(problem) }
        }
    };
    let items = made.into_iter().map(result).collect();
    Ok((StatusCode::MULTI_STATUS, Json(EmulatorBatch { items })).into_response())
}

/// Read an emulator
///
/// With what the device says of itself at this moment, if it answers.
#[utoipa::path(get, path = "/emulators/{id}", tag = "emulators", params(EmulatorPath), responses((status = 200, body = Emulator, description = "The emulator.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Response> {
    let emulator = emulators::get(&app.engine, &caller, read_id(&id)?).await?;
    let live = emulators::inspect(&app.engine, &emulator).await;
    Ok(versioned(&app, emulator, live).into_response())
}

/// Delete an emulator
///
/// The device is torn down and its disk removed. With the `outcome` of its job, what its `capture` asks for then is captured first; if
/// that fails or takes too long, it goes all the same, and `capture` says why. For a day it can still be asked what became of it.
#[utoipa::path(delete, path = "/emulators/{id}", tag = "emulators", params(EmulatorPath, DeleteEmulator), responses((status = 202, body = Emulator, description = "The emulator, on its way out.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<DeleteEmulator>,
    IfMatch(expected): IfMatch,
) -> Answer<Response> {
    let id = read_id(&id)?;
    let emulator = match query.outcome {
        Some(outcome) => ci::finish(&app.engine, &caller, id, read_outcome(outcome), &expected).await?,
        None => emulators::delete(&app.engine, &caller, id, &expected).await?,
    };
    Ok((StatusCode::ACCEPTED, versioned(&app, emulator, None)).into_response())
}

/// Read where an emulator is in its life
///
/// With `wait`, the answer comes when it has come up, failed or gone.
#[utoipa::path(get, path = "/emulators/{id}/status", tag = "emulators", params(EmulatorPath, Wait), responses((status = 200, body = EmulatorStatusReport, description = "The status, and why.")))]
async fn status(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<Wait>,
) -> Answer<Json<EmulatorStatusReport>> {
    let id = read_id(&id)?;
    let emulator = match patience(&query) {
        Some(patience) => emulators::wait(&app.engine, &caller, id, patience).await?,
        None => emulators::get(&app.engine, &caller, id).await?,
    };
    Ok(Json(EmulatorStatusReport {
        status: wire_status(emulator.status()),
        conditions: conditions(&emulator),
        incarnation: emulator.incarnation,
        allowed_actions: actions(&emulator),
        start: start(&emulator),
        updated_at: time(emulator.updated_at),
        status_reason: emulator.reason.map(wire_reason),
    }))
}

/// Restart an emulator
///
/// The same device from its disk as it is: same id, same address. One that is parked wakes.
#[utoipa::path(post, path = "/emulators/{id}/restart", tag = "emulators", params(EmulatorPath, Wait), responses((status = 200, body = Emulator, description = "The emulator, on its way up again.")))]
async fn restart(
    State(app): State<App>,
    Path(id): Path,
    Query(query): Query<Wait>,
    Bare(caller): Bare,
) -> Answer<Response> {
    let mut emulator = emulators::restart(&app.engine, &caller, read_id(&id)?).await?;
    if let Some(patience) = patience(&query) {
        emulator = emulators::wait(&app.engine, &caller, emulator.id, patience).await?;
    }
    Ok(versioned(&app, emulator, None).into_response())
}

/// Swap the snapshot under an emulator
///
/// A clone of the new snapshot takes over under the same id and address. The disk before it is kept until the new one has
/// booted, and comes back by itself if it does not; the status then says why.
#[utoipa::path(put, path = "/emulators/{id}/snapshot", tag = "emulators", params(EmulatorPath, Wait), request_body = SnapshotSwap, responses((status = 200, body = Emulator, description = "The emulator, on its way up on the new snapshot.")))]
async fn swap_snapshot(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<Wait>,
    IfMatch(expected): IfMatch,
    Body(body): Body<SnapshotSwap>,
) -> Answer<Response> {
    let mut emulator =
        emulators::swap_snapshot(&app.engine, &caller, read_id(&id)?, &body.snapshot, &expected).await?;
    if let Some(patience) = patience(&query) {
        emulator = emulators::wait(&app.engine, &caller, emulator.id, patience).await?;
    }
    Ok(versioned(&app, emulator, None).into_response())
}

/// Park an emulator
///
/// Gives its compute back and keeps its disk; a restart wakes it under the same id.
#[utoipa::path(post, path = "/emulators/{id}/park", tag = "emulators", params(EmulatorPath), responses((status = 200, body = Emulator, description = "The emulator, at rest.")))]
async fn park(State(app): State<App>, Path(id): Path, Bare(caller): Bare) -> Answer<Response> {
    Ok(versioned(&app, emulators::park(&app.engine, &caller, read_id(&id)?).await?, None).into_response())
}

fn patience(query: &Wait) -> Option<Duration> {
    query.wait.map(|seconds| Duration::from_secs(seconds.into()))
}

/// A text that is no id names an emulator that does not exist.
pub(super) fn read_id(text: &str) -> Result<EmulatorId> {
    EmulatorId::parse(text).ok_or_else(|| Error::not_found("emulator"))
}

fn spec(body: EmulatorSpec, hint: Option<TenantId>) -> Result<emulators::EmulatorSpec> {
    let tenant = match &body.tenant_id {
        Some(id) => Some(TenantId::parse(id).ok_or_else(|| subject::not_an_id("/tenantId"))?),
        None => hint,
    };
    let faults = contradictions(&body);
    if !faults.is_empty() {
        return Err(Error::invalid(faults));
    }
    Ok(emulators::EmulatorSpec {
        tenant,
        name: body.name,
        snapshot: body.snapshot,
        capture: body.capture.map(|capture| read_capture(capture, body.restore.as_ref())),
        restore: body.restore.map(read_restore),
        ci: body.ci.map(read_statement),
        device_type: body.device_type.map(read_device_type),
        labels: body.labels.unwrap_or_default().0,
        identity: identity(body.identity)?,
        expires_in: body.expires_in_seconds.map(Duration::from_secs),
        idle_timeout: body.idle_timeout_seconds.map(Duration::from_secs),
    })
}

/// What cannot be meant together.
fn contradictions(body: &EmulatorSpec) -> Vec<Fault> {
    /// Leaves room for a number.
    const LONGEST_NAME: usize = 250;
    let several = body.count.is_some();
    let keeps = body.identity.as_ref().is_some_and(|identity| identity.mode == IdentityMode::Keep);
    let long = body.name.as_ref().is_some_and(|name| name.chars().count() > LONGEST_NAME);
    [
        (
            body.snapshot.is_some() && body.restore.is_some(),
            ("/restore", "a snapshot is named, so that there is nothing to look for; leave one of them out"),
        ),
        (several && keeps, ("/identity", "only one device can have a kept identity; leave count out")),
        (several && long, ("/name", "a number is added to it: at most 250 characters")),
    ]
    .into_iter()
    .filter(|(wrong, _)| *wrong)
    .map(|(_, (pointer, message))| Fault {
        pointer: pointer.to_owned(),
        code: "ambiguous".into(),
        message: message.to_owned(),
    })
    .collect()
}

fn identity(spec: Option<IdentitySpec>) -> Result<model::IdentityMode> {
    match spec {
        None | Some(IdentitySpec { mode: IdentityMode::Regenerate, seed: None }) => {
            Ok(model::IdentityMode::Regenerate)
        }
        Some(IdentitySpec { mode: IdentityMode::Keep, seed: Some(seed) }) => {
            Ok(model::IdentityMode::Keep { seed })
        }
        Some(_) => {
            let message = "a seed belongs to the mode keep, and only to that".to_owned();
            Err(Error::invalid(vec![Fault {
                pointer: "/identity/seed".to_owned(),
                code: "ambiguous".into(),
                message,
            }]))
        }
    }
}

fn versioned(
    app: &App,
    emulator: model::Emulator,
    live: Option<devices::DeviceState>,
) -> impl IntoResponse + use<> {
    ([(ETAG, etag(emulator.generation))], Json(wire(app, emulator, live)))
}

fn wire(app: &App, emulator: model::Emulator, live: Option<devices::DeviceState>) -> Emulator {
    let adb = emulators::address(&emulator).map(|address| AdbEndpoint {
        host: address.to_string(),
        port: 5555,
        web_socket_url: web_socket_url(app, emulator.id, "adb/proxy"),
    });
    let display =
        adb.as_ref().map(|_| DisplayEndpoint { web_socket_url: web_socket_url(app, emulator.id, "display") });
    let drives = emulator.device_type == devices::DeviceType::Automotive;
    let grpc = adb.as_ref().filter(|_| drives).map(|_| GrpcEndpoint {
        address: app.sign_in.public_url().unwrap_or_default().to_owned(),
        header: GrpcHeader { name: EMULATOR_HEADER.to_owned(), value: emulator.id.to_string() },
    });
    let job = &emulator.job;
    Emulator {
        status: wire_status(emulator.status()),
        allowed_actions: actions(&emulator),
        conditions: conditions(&emulator),
        device_state: device_state(&emulator),
        start: start(&emulator),
        live: live.map(|live| wire_live(live, &emulator)),
        id: emulator.id.to_string(),
        name: emulator.name,
        tenant_id: emulator.tenant.to_string(),
        owner_id: emulator.owner.thing().id.to_string(),
        snapshot: EmulatorSnapshot {
            name: emulator.snapshot.to_string(),
            parent: emulator.snapshot_parent.map(|parent| parent.to_string()),
        },
        status_reason: emulator.reason.map(wire_reason),
        incarnation: emulator.incarnation,
        android_version: emulator.android_version,
        device_type: wire_device_type(emulator.device_type),
        serial: emulator.identity.serial,
        labels: Labels(emulator.labels),
        endpoints: EmulatorEndpoints { adb, display, grpc },
        restore: job.as_ref().and_then(|job| job.restored.as_ref()).map(wire_restore),
        capture: job
            .as_ref()
            .and_then(|job| job.capture.as_ref().map(|policy| wire_capture(policy, job.ending.as_ref()))),
        ci: job.as_ref().and_then(|job| job.context.as_ref()).map(wire_ci),
        created_at: time(emulator.created_at),
        updated_at: time(emulator.updated_at),
        expires_at: emulator.expires_at.map(time),
        idle_timeout_seconds: emulator.idle_timeout_seconds,
        terminated_at: emulator.terminated_at.map(time),
    }
}

/// Where a stream is opened: in full where it is known how clients reach this server.
fn web_socket_url(app: &App, id: EmulatorId, place: &str) -> String {
    let path = format!("/api/v1/emulators/{id}/{place}");
    // http becomes ws, https becomes wss.
    match app.sign_in.public_url().and_then(|url| url.strip_prefix("http")) {
        Some(rest) => format!("ws{rest}{path}"),
        None => path,
    }
}

fn wire_live(live: devices::DeviceState, emulator: &model::Emulator) -> LiveState {
    LiveState {
        uptime_seconds: live.uptime.as_secs() as i64,
        boot_duration_ms: emulator.boot_duration_ms,
        clock_offset_ms: live.clock_offset_ms,
        adb_connections: live.adb_connections,
        memory_total_bytes: live.memory_total_bytes,
        memory_available_bytes: live.memory_available_bytes,
        disk_total_bytes: live.disk_total_bytes,
        disk_available_bytes: live.disk_available_bytes,
        vehicle_state: live.vehicle.map(|link| match link {
            devices::VehicleLink::Connected => VehicleState::Connected,
            devices::VehicleLink::Connecting => VehicleState::Connecting,
            devices::VehicleLink::Absent => VehicleState::Absent,
        }),
        properties: live.properties,
    }
}

pub(super) fn wire_reason(reason: model::Reason) -> StatusReason {
    StatusReason { code: reason.code, message: reason.message }
}

/// Once it is known, or as soon as it is clear that it boots although it was to resume.
fn start(emulator: &model::Emulator) -> Option<EmulatorStart> {
    let model::Start { kind, reason, .. } = &emulator.start;
    let kind = match kind {
        Some(model::StartKind::Warm) => StartKind::Warm,
        Some(model::StartKind::Cold) => StartKind::Cold,
        None => reason.as_ref().map(|_| StartKind::Cold)?,
    };
    Some(EmulatorStart { kind, reason: reason.clone().map(wire_reason) })
}

fn actions(emulator: &model::Emulator) -> Vec<String> {
    emulator.status().actions().iter().map(|action| action.name().to_owned()).collect()
}

const fn device_state(emulator: &model::Emulator) -> DeviceState {
    match (emulator.wanted, emulator.seen) {
        (Wanted::Gone | Wanted::Parked, _) | (_, Seen::None | Seen::Exited) => DeviceState::Off,
        (_, Seen::Booting) => DeviceState::Booting,
        (_, Seen::Ready) => DeviceState::Ready,
        (_, Seen::Paused) => DeviceState::Degraded,
        (_, Seen::Silent) => DeviceState::Offline,
    }
}

/// The steps on the way up, each as far as it is.
fn conditions(emulator: &model::Emulator) -> Vec<Condition> {
    let current = emulator.seen_incarnation == emulator.incarnation;
    let ready = current && emulator.seen == Seen::Ready;
    let condition = |r#type, holds: bool, changed_at| Condition {
        r#type,
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: if holds { None } else { emulator.reason.as_ref().map(|reason| reason.code.clone()) },
        message: if holds { None } else { emulator.reason.as_ref().map(|reason| reason.message.clone()) },
        changed_at: time(changed_at),
    };
    let since = emulator.seen_since;
    let mut conditions = vec![
        condition(ConditionType::Scheduled, emulator.slot.is_some(), emulator.created_at),
        condition(
            ConditionType::DiskReady,
            emulator.disk_ready_at.is_some(),
            emulator.disk_ready_at.unwrap_or(emulator.created_at),
        ),
        condition(ConditionType::Booted, ready, since),
        condition(ConditionType::AdbReady, ready, since),
    ];
    if let Some(car) = emulator.vehicle {
        // It stands ready before its device is started, and stays when that is started anew.
        let stands = emulator.incarnation > car || emulator.started_at.is_some();
        let since = emulator.started_at.unwrap_or(emulator.created_at);
        conditions.push(condition(ConditionType::VehicleReady, stands, since));
    }
    conditions
}

pub(super) const fn wire_status(status: Status) -> EmulatorStatus {
    match status {
        Status::Provisioning => EmulatorStatus::Provisioning,
        Status::Running => EmulatorStatus::Running,
        Status::Restarting => EmulatorStatus::Restarting,
        Status::Swapping => EmulatorStatus::Swapping,
        Status::Parked => EmulatorStatus::Parked,
        Status::Unreachable => EmulatorStatus::Unreachable,
        Status::Failed => EmulatorStatus::Failed,
        Status::Terminating => EmulatorStatus::Terminating,
        Status::Terminated => EmulatorStatus::Terminated,
    }
}

const fn read_status(status: EmulatorStatus) -> Status {
    match status {
        EmulatorStatus::Provisioning => Status::Provisioning,
        EmulatorStatus::Running => Status::Running,
        EmulatorStatus::Restarting => Status::Restarting,
        EmulatorStatus::Swapping => Status::Swapping,
        EmulatorStatus::Parked => Status::Parked,
        EmulatorStatus::Unreachable => Status::Unreachable,
        EmulatorStatus::Failed => Status::Failed,
        EmulatorStatus::Terminating => Status::Terminating,
        EmulatorStatus::Terminated => Status::Terminated,
    }
}

pub(super) const fn wire_device_type(kind: devices::DeviceType) -> DeviceType {
    match kind {
        devices::DeviceType::Phone => DeviceType::Phone,
        devices::DeviceType::Tablet => DeviceType::Tablet,
        devices::DeviceType::Automotive => DeviceType::Automotive,
        devices::DeviceType::Tv => DeviceType::Tv,
        devices::DeviceType::Wear => DeviceType::Wear,
    }
}

pub(super) const fn read_device_type(kind: DeviceType) -> devices::DeviceType {
    match kind {
        DeviceType::Phone => devices::DeviceType::Phone,
        DeviceType::Tablet => devices::DeviceType::Tablet,
        DeviceType::Automotive => devices::DeviceType::Automotive,
        DeviceType::Tv => devices::DeviceType::Tv,
        DeviceType::Wear => devices::DeviceType::Wear,
    }
}
