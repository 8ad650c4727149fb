//! Snapshots: what emulators boot from.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use paddock_api::labels::Labels;
use paddock_api::snapshots::{
    AndroidFacts, DiskImage, DiskPool, DiskPoolStatus, DiskPoolThresholds, DiskPools, ListSnapshots,
    MemoryState, OriginKind, PromoteRoot, ReadTree, ScoreFactor, Snapshot, SnapshotConsistency,
    SnapshotMemory, SnapshotNode, SnapshotOrigin, SnapshotPage, SnapshotPath, SnapshotSpec, SnapshotState,
    SnapshotTree, SourceVolume, VerifiedBoot,
};
use paddock_engine::captures::{self, CaptureSpec};
use paddock_engine::imports::{self, Content, ImportSpec};
use paddock_engine::snapshots::{self, Described, Node};
use paddock_model::devices as model_devices;
use paddock_model::drivers::emulator_hosts::Consistency;
use paddock_model::error::Fault;
use paddock_model::retention::Points;
use paddock_model::snapshots::{self as model, SnapshotFilter};
use paddock_model::templates::TemplateState;
use paddock_model::tenants::TenantId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::ci::{wire_outcome, wire_trust};
use super::conventions::body::{Bare, Perhaps, Submission};
use super::conventions::conditional::{IfMatch, etag};
use super::conventions::cursor::Listing;
use super::conventions::labels::label_selector;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::stream::Stream;
use super::conventions::tenant::TenantHint;
use super::conventions::time::time;
use super::emulators::{read_device_type, read_id, wire_device_type, wire_reason};
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(tree))
        .routes(routes!(diskpool))
        .routes(routes!(get, delete))
        .routes(routes!(promote_root))
        .routes(routes!(demote_root))
        .routes(routes!(verify))
        .routes(routes!(upload))
}

/// List snapshots
///
/// Those of your tenants and the platform's own, newest first. With `deployable=true`, what a new emulator boots from by
/// default stands first.
#[utoipa::path(get, path = "/snapshots", tag = "snapshots", params(ListSnapshots), responses((status = 200, body = SnapshotPage, description = "A page of snapshots.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ListSnapshots>,
) -> Answer<Json<SnapshotPage>> {
    let listing = Listing::of("snapshots", &ListSnapshots { limit: None, cursor: None, ..query.clone() });
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = SnapshotFilter {
        tenant: query.tenant_id.as_deref().and_then(TenantId::parse),
        deployable: query.deployable,
        root: query.root,
        device_type: query.device_type.map(read_device_type),
        state: query.state.map(read_state),
        parent: query.parent,
        group: query.group,
        labels: label_selector(query.label_selector.as_deref())?,
        but: None,
    };
    let page = snapshots::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(SnapshotPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Make a snapshot
///
/// With `emulatorId`, of a device, which goes on running; `memory` keeps what it has in memory, too, and clones of it resume where it stood. With `import`, of a disk image: a file on the server, or bytes that
/// you send next. It can be deployed once a throw-away clone of it has booted.
#[utoipa::path(post, path = "/snapshots", tag = "snapshots", request_body = SnapshotSpec, responses((status = 202, body = Snapshot, description = "The snapshot, on its way.")))]
async fn create(
    State(app): State<App>,
    TenantHint(hint): TenantHint,
    Submission { caller, body }: Submission<SnapshotSpec>,
) -> Answer<Response> {
    let SnapshotSpec { emulator_id, import, name, group, labels, memory } = body;
    let memory = memory.unwrap_or_default();
    let labels = labels.unwrap_or_default().0;
    let described = match (emulator_id, import) {
        (Some(emulator), None) => {
            let spec = CaptureSpec { emulator: read_id(&emulator)?, name, group, labels, memory };
            captures::create(&app.engine, &caller, spec).await?
        }
        (None, Some(_)) if memory => {
            let message = "a disk image has no memory; only a device is captured with it";
            let fault =
                Fault { pointer: "/memory".into(), code: "no_device".into(), message: message.to_owned() };
            return Err(Error::invalid(vec![fault]).into());
        }
        (None, Some(import)) => {
            let spec = ImportSpec {
                tenant: import.tenant_id.as_deref().and_then(TenantId::parse).or(hint),
                like: import.like,
                path: import.path,
                digest: import.checksum.as_deref().map(digest),
                name,
                group,
                labels,
            };
            imports::create(&app.engine, &caller, spec).await?
        }
        _ => {
            let message =
                "exactly one of `emulatorId` (to capture a device) and `import` (to bring in a disk image)";
            let fault = Fault { pointer: String::new(), code: "one_of".into(), message: message.to_owned() };
            return Err(Error::invalid(vec![fault]).into());
        }
    };
    let location = format!("/api/v1/snapshots/{}", described.snapshot.name);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], versioned(described)).into_response())
}

/// Read the tree of snapshots
///
/// As they were derived from each other.
#[utoipa::path(get, path = "/snapshots/tree", tag = "snapshots", params(ReadTree), responses((status = 200, body = SnapshotTree, description = "The tree, or a part of it.")))]
async fn tree(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ReadTree>,
) -> Answer<Response> {
    let depth = query.depth.map(|depth| depth as usize);
    let tree = snapshots::tree(&app.engine, &caller, query.root.as_deref(), depth, write_tree).await?;
    Ok(([(CONTENT_TYPE, "application/json")], tree).into_response())
}

fn write_tree(roots: Vec<Node>) -> Result<Vec<u8>> {
    let tree = SnapshotTree { roots: roots.into_iter().map(wire_node).collect() };
    serde_json::to_vec(&tree).map_err(Error::internal)
}

/// Read how full the disk pool is
#[utoipa::path(get, path = "/snapshots/diskpool", tag = "snapshots", responses((status = 200, body = DiskPools, description = "The pools.")))]
async fn diskpool(State(app): State<App>, Caller(caller): Caller) -> Answer<Json<DiskPools>> {
    let pools = snapshots::diskpool(&app.engine, &caller).await?;
    Ok(Json(DiskPools { pools: pools.into_iter().map(wire_pool).collect() }))
}

/// Read a snapshot
#[utoipa::path(get, path = "/snapshots/{name}", tag = "snapshots", params(SnapshotPath), responses((status = 200, body = Snapshot, description = "The snapshot.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(name): Path) -> Answer<Response> {
    Ok(versioned(snapshots::get(&app.engine, &caller, &name).await?).into_response())
}

/// Delete a snapshot
///
/// It is marked, then purged. What was derived from it stays: its bytes go when nothing stands on them any more.
#[utoipa::path(delete, path = "/snapshots/{name}", tag = "snapshots", params(SnapshotPath), responses((status = 202, body = Snapshot, description = "The snapshot, on its way out.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(name): Path,
    IfMatch(expected): IfMatch,
) -> Answer<Response> {
    let described = snapshots::delete(&app.engine, &caller, &name, &expected).await?;
    Ok((StatusCode::ACCEPTED, versioned(described)).into_response())
}

/// Protect a snapshot as a retention root
///
/// Refused with everything that speaks against it, unless the body says `force`.
#[utoipa::path(post, path = "/snapshots/{name}/promote-root", tag = "snapshots", params(SnapshotPath), request_body = Option<PromoteRoot>, responses((status = 200, body = Snapshot, description = "The snapshot, a root.")))]
async fn promote_root(
    State(app): State<App>,
    Path(name): Path,
    Perhaps { caller, body }: Perhaps<PromoteRoot>,
) -> Answer<Response> {
    Ok(versioned(snapshots::promote_root(&app.engine, &caller, &name, body.force).await?).into_response())
}

/// Take a snapshot's protection back
///
/// Retention judges it again like any other.
#[utoipa::path(post, path = "/snapshots/{name}/demote-root", tag = "snapshots", params(SnapshotPath), responses((status = 200, body = Snapshot, description = "The snapshot, no root any more.")))]
async fn demote_root(State(app): State<App>, Path(name): Path, Bare(caller): Bare) -> Answer<Response> {
    Ok(versioned(snapshots::demote_root(&app.engine, &caller, &name).await?).into_response())
}

/// Verify a snapshot again
///
/// Its bytes are compared with what was recorded, then a throw-away clone is booted and must answer.
#[utoipa::path(post, path = "/snapshots/{name}/verify", tag = "snapshots", params(SnapshotPath), responses((status = 202, body = Snapshot, description = "The snapshot; its verification waits for its turn.")))]
async fn verify(State(app): State<App>, Path(name): Path, Bare(caller): Bare) -> Answer<Response> {
    let described = snapshots::verify(&app.engine, &caller, &name).await?;
    Ok((StatusCode::ACCEPTED, versioned(described)).into_response())
}

/// Send a disk image
///
/// The bytes of a snapshot that was made with `import` and no path. They are kept if all have come and have the checksum that was
/// announced; otherwise nothing is, and they can be sent again. There is no limit on how long it takes, only on silence.
#[utoipa::path(put, path = "/snapshots/{name}/content", tag = "snapshots", params(SnapshotPath), request_body(content = DiskImage, content_type = "application/octet-stream", description = "The disk image, as it is."), responses((status = 202, body = Snapshot, description = "The snapshot; its bytes are there and are being looked at.")))]
async fn upload(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(name): Path,
    IfMatch(expected): IfMatch,
    mut image: Stream,
) -> Answer<Response> {
    let content = Content { length: image.length(), bytes: &mut image };
    let outcome = imports::upload(&app.engine, &caller, &name, &expected, content).await;
    let described = image.unless_troubled(outcome).await?;
    Ok((StatusCode::ACCEPTED, versioned(described)).into_response())
}

fn digest(checksum: &str) -> String {
    checksum.strip_prefix("sha256:").unwrap_or(checksum).to_owned()
}

fn versioned(described: Described) -> impl IntoResponse {
    ([(ETAG, etag(described.snapshot.generation))], Json(wire(described)))
}

fn wire_node(node: Node) -> SnapshotNode {
    SnapshotNode {
        snapshot: wire(node.described),
        children: node.children.into_iter().map(wire_node).collect(),
    }
}

fn wire(described: Described) -> Snapshot {
    let has_memory = described.has_memory();
    let Described {
        snapshot,
        layer,
        child_count,
        exclusive_bytes,
        shared_bytes,
        source_volumes,
        memory,
        annotation,
        kept_because,
        backups,
    } = described;
    Snapshot {
        deployable: snapshot.is_deployable(),
        root: snapshot.is_root(),
        name: snapshot.name.to_string(),
        tenant_id: snapshot.tenant.map(|tenant| tenant.to_string()),
        parent: snapshot.parent.map(|parent| parent.to_string()),
        child_count,
        depth: layer.as_ref().map_or(0, |layer| layer.depth),
        state: wire_state(snapshot.state),
        deployable_problems: snapshot.problems,
        fault: snapshot.fault,
        rooted_at: snapshot.rooted_at.map(time),
        rooted_by: snapshot.rooted_by,
        size_bytes: exclusive_bytes + shared_bytes,
        exclusive_bytes,
        shared_bytes,
        virtual_bytes: layer.as_ref().map_or(0, |layer| layer.virtual_bytes),
        checksum: layer.and_then(|layer| layer.digest).map(|digest| format!("sha256:{digest}")),
        android: AndroidFacts {
            api_level: model_devices::api_level(&snapshot.image.android_version),
            version: snapshot.image.android_version,
            abi: snapshot.image.abi,
            device_type: wire_device_type(snapshot.image.device_type),
        },
        origin: wire_origin(snapshot.origin),
        group: snapshot.group,
        trust: wire_trust(snapshot.trust),
        consistency: snapshot.consistency.map(|consistency| match consistency {
            Consistency::Crash => SnapshotConsistency::Crash,
            Consistency::Filesystem => SnapshotConsistency::Filesystem,
        }),
        has_memory,
        memory: memory.map(|memory| SnapshotMemory {
            state: match memory.state {
                TemplateState::Ready => MemoryState::Ready,
                TemplateState::Failed | TemplateState::Removing => MemoryState::Failed,
                _ => MemoryState::Pending,
            },
            size_bytes: memory.allocated_bytes,
            resume_duration_ms: memory.resume_ms,
            reason: memory.reason.map(wire_reason),
        }),
        verified_boot: snapshot.verified.map(|boot| VerifiedBoot {
            at: time(boot.at),
            duration_ms: boot.duration_ms,
            adb: boot.adb,
            vehicle: boot.vehicle,
        }),
        source_volumes: source_volumes.map(|volumes| volumes.iter().map(wire_volume).collect()),
        backups: backups.map(|backups| backups.iter().map(ToString::to_string).collect()),
        retention_score: annotation.as_ref().map(|annotation| annotation.score),
        score_breakdown: annotation.map(|annotation| annotation.breakdown.iter().map(wire_factor).collect()),
        kept_because: kept_because.map(|reasons| reasons.iter().map(|kept| kept.name().to_owned()).collect()),
        labels: Labels(snapshot.labels),
        created_at: time(snapshot.created_at),
        created_by: snapshot.created_by,
        last_used_at: snapshot.last_used_at.map(time),
        use_count: snapshot.use_count,
    }
}

fn wire_origin(origin: model::Origin) -> SnapshotOrigin {
    let (kind, emulator, job) = match origin {
        model::Origin::Import { .. } => (OriginKind::Import, None, None),
        model::Origin::Restore { .. } => (OriginKind::Restore, None, None),
        model::Origin::Manual { emulator } => (OriginKind::Manual, Some(emulator), None),
        model::Origin::Ci { emulator, job } => (OriginKind::Ci, Some(emulator), Some(job)),
    };
    let job_status = job.as_ref().map(|job| wire_outcome(job.outcome));
    let ref_protected = job.as_ref().and_then(|job| job.ref_protected);
    let [project, reference, commit, job_id, key] =
        job.map(|job| [job.project, job.reference, job.commit, job.job_id, job.key]).unwrap_or_default();
    SnapshotOrigin {
        kind,
        emulator_id: emulator.map(|emulator| emulator.to_string()),
        project,
        r#ref: reference,
        ref_protected,
        commit,
        job_id,
        job_status,
        key,
    }
}

fn wire_factor(points: &Points) -> ScoreFactor {
    ScoreFactor {
        factor: points.factor.name().to_owned(),
        value: points.value as f64 / 1000.0,
        weight: points.weight,
        points: points.points,
    }
}

fn wire_volume(volume: &snapshots::SourceVolume) -> SourceVolume {
    SourceVolume {
        volume: volume.volume.to_string(),
        emulator_id: volume.emulator.to_string(),
        since: time(volume.since),
    }
}

fn wire_pool(pool: snapshots::DiskPool) -> DiskPool {
    let pressure = pool.capacity.pressure();
    DiskPool {
        name: pool.name,
        status: if pressure >= pool.critical_percent {
            DiskPoolStatus::Critical
        } else if pressure >= pool.warn_percent {
            DiskPoolStatus::Warn
        } else {
            DiskPoolStatus::Ok
        },
        capacity_bytes: pool.capacity.capacity_bytes,
        used_bytes: pool.capacity.used_bytes,
        committed_bytes: pool.committed_bytes,
        free_bytes: pool.capacity.free_bytes,
        reclaimable_bytes: pool.reclaimable_bytes,
        thresholds: DiskPoolThresholds {
            warn_percent: pool.warn_percent,
            critical_percent: pool.critical_percent,
        },
        pressure,
        seconds_to_full: pool.full_in.map(|(left, _)| i64::try_from(left.as_secs()).unwrap_or(i64::MAX)),
        full_at: pool.full_in.map(|(_, at)| time(at)),
    }
}

const fn wire_state(state: model::SnapshotState) -> SnapshotState {
    match state {
        model::SnapshotState::Creating => SnapshotState::Creating,
        model::SnapshotState::Verifying => SnapshotState::Verifying,
        model::SnapshotState::Ready => SnapshotState::Ready,
        model::SnapshotState::Faulted => SnapshotState::Faulted,
        model::SnapshotState::Deleting => SnapshotState::Deleting,
    }
}

const fn read_state(state: SnapshotState) -> model::SnapshotState {
    match state {
        SnapshotState::Creating => model::SnapshotState::Creating,
        SnapshotState::Verifying => model::SnapshotState::Verifying,
        SnapshotState::Ready => model::SnapshotState::Ready,
        SnapshotState::Faulted => model::SnapshotState::Faulted,
        SnapshotState::Deleting => model::SnapshotState::Deleting,
    }
}
