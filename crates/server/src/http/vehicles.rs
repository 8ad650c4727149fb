//! Vehicles: the car around an automotive device, its properties and recorded drives.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, LOCATION};
use paddock_api::emulators::EmulatorPath;
use paddock_api::vehicles::{
    VehicleAccess, VehicleArea, VehicleAreaPath, VehicleChangeMode, VehicleProperty, VehiclePropertyChange,
    VehiclePropertyList, VehiclePropertyPath, VehiclePropertyStatus, VehicleReplay, VehicleReplaySpec,
    VehicleTrace, VehicleTraceContent, VehicleTraceList, VehicleTracePath, VehicleTraceSpec, VehicleValue,
};
use paddock_engine::vehicles::{self, ReplaySpec};
use paddock_model::emulators::EmulatorId;
use paddock_model::vehicles::{self as model, AreaId, AreaKind, PropertyChange, TraceId};
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::{Bare, Body, Perhaps};
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::subject;
use super::conventions::time::time;
use super::emulators::read_id;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_properties))
        .routes(routes!(get_property))
        .routes(routes!(set_property))
        .routes(routes!(list_traces, create_trace))
        .routes(routes!(get_trace, delete_trace))
        .routes(routes!(finish_trace))
        .routes(routes!(read_trace))
        .routes(routes!(get_replay, create_replay, delete_replay))
}

/// List a vehicle's properties
///
/// What clients of Android's vehicle service get, as people read it: by name, with values, areas and ranges.
#[utoipa::path(get, path = "/emulators/{id}/vehicle/properties", tag = "vehicles", params(EmulatorPath), responses((status = 200, body = VehiclePropertyList, description = "Every property with its values.")))]
async fn list_properties(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
) -> Answer<Json<VehiclePropertyList>> {
    let properties = vehicles::list_properties(&app.engine, &caller, read_id(&id)?).await?;
    Ok(Json(VehiclePropertyList { items: properties.into_iter().map(wire).collect() }))
}

/// Read a vehicle's property
#[utoipa::path(get, path = "/emulators/{id}/vehicle/properties/{property}", tag = "vehicles", params(VehiclePropertyPath), responses((status = 200, body = VehicleProperty, description = "The property with its values.")))]
async fn get_property(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, property)): Path<(String, String)>,
) -> Answer<Json<VehicleProperty>> {
    Ok(Json(wire(vehicles::get_property(&app.engine, &caller, read_id(&id)?, &property).await?)))
}

/// Set a vehicle's property
///
/// As the car itself would: also what Android may only read. The device notices as it would in a car.
#[utoipa::path(put, path = "/emulators/{id}/vehicle/properties/{property}/{area}", tag = "vehicles", params(VehiclePropertyPath, VehicleAreaPath), request_body = VehiclePropertyChange, responses((status = 200, body = VehicleProperty, description = "The property as it stands now.")))]
async fn set_property(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, property, area)): Path<(String, String, String)>,
    Body(body): Body<VehiclePropertyChange>,
) -> Answer<Json<VehicleProperty>> {
    let change = PropertyChange {
        value: body.value.map(|value| value.0),
        status: read_status(body.status.unwrap_or_default()),
    };
    let (id, area) = (read_id(&id)?, read_area(&area)?);
    Ok(Json(wire(vehicles::set_property(&app.engine, &caller, id, &property, area, &change).await?)))
}

/// List recorded drives
#[utoipa::path(get, path = "/emulators/{id}/vehicle/traces", tag = "vehicles", params(EmulatorPath), responses((status = 200, body = VehicleTraceList, description = "The drives of this vehicle.")))]
async fn list_traces(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
) -> Answer<Json<VehicleTraceList>> {
    let traces = vehicles::list_traces(&app.engine, &caller, read_id(&id)?).await?;
    Ok(Json(VehicleTraceList { items: traces.into_iter().map(wire_trace).collect() }))
}

/// Record a drive
///
/// From now on whatever is told of the vehicle's properties is written down, until the recording is finished. With `content`, a
/// drive that was recorded elsewhere is taken instead.
#[utoipa::path(post, path = "/emulators/{id}/vehicle/traces", tag = "vehicles", params(EmulatorPath), request_body = VehicleTraceSpec, responses((status = 201, body = VehicleTrace, description = "The drive; it is being recorded unless it was sent.")))]
async fn create_trace(
    State(app): State<App>,
    Path(id): Path,
    Perhaps { caller, body }: Perhaps<VehicleTraceSpec>,
) -> Answer<Response> {
    let id = read_id(&id)?;
    let content = body.content.as_deref().map(str::as_bytes);
    let trace = vehicles::create_trace(&app.engine, &caller, id, body.name, content).await?;
    let location = format!("/api/v1/emulators/{id}/vehicle/traces/{}", trace.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(wire_trace(trace))).into_response())
}

/// Read what a recorded drive is
#[utoipa::path(get, path = "/emulators/{id}/vehicle/traces/{trace}", tag = "vehicles", params(VehicleTracePath), responses((status = 200, body = VehicleTrace, description = "The drive.")))]
async fn get_trace(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, trace)): Path<(String, String)>,
) -> Answer<Json<VehicleTrace>> {
    let (id, trace) = (read_id(&id)?, read_trace_id(&trace)?);
    Ok(Json(wire_trace(vehicles::get_trace(&app.engine, &caller, id, trace).await?)))
}

/// Finish a recording
#[utoipa::path(post, path = "/emulators/{id}/vehicle/traces/{trace}/finish", tag = "vehicles", params(VehicleTracePath), responses((status = 200, body = VehicleTrace, description = "The drive as it stays.")))]
async fn finish_trace(
    State(app): State<App>,
    Path((id, trace)): Path<(String, String)>,
    Bare(caller): Bare,
) -> Answer<Json<VehicleTrace>> {
    let (id, trace) = (read_id(&id)?, read_trace_id(&trace)?);
    Ok(Json(wire_trace(vehicles::finish_trace(&app.engine, &caller, id, trace).await?)))
}

/// Download a recorded drive
///
/// As lines of JSON: a header, then one line an event, with the milliseconds since the beginning.
#[utoipa::path(get, path = "/emulators/{id}/vehicle/traces/{trace}/content", tag = "vehicles", params(VehicleTracePath), responses((status = 200, content_type = "application/x-ndjson", body = VehicleTraceContent, description = "The drive.")))]
async fn read_trace(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, trace)): Path<(String, String)>,
) -> Answer<Response> {
    let (id, trace) = (read_id(&id)?, read_trace_id(&trace)?);
    let content = vehicles::read_trace(&app.engine, &caller, id, trace).await?;
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], content).into_response())
}

/// Delete a recorded drive
#[utoipa::path(delete, path = "/emulators/{id}/vehicle/traces/{trace}", tag = "vehicles", params(VehicleTracePath), responses((status = 204, description = "The drive is gone.")))]
async fn delete_trace(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, trace)): Path<(String, String)>,
) -> Answer<StatusCode> {
    vehicles::delete_trace(&app.engine, &caller, read_id(&id)?, read_trace_id(&trace)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read how a replay fares
#[utoipa::path(get, path = "/emulators/{id}/vehicle/replay", tag = "vehicles", params(EmulatorPath), responses((status = 200, body = VehicleReplay, description = "The last replay.")))]
async fn get_replay(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
) -> Answer<Json<VehicleReplay>> {
    Ok(Json(wire_replay(vehicles::get_replay(&app.engine, &caller, read_id(&id)?).await?)))
}

/// Replay a recorded drive
///
/// Plays a drive of this vehicle, or of another emulator's, into this vehicle, at its pace or another. What is being played ends.
#[utoipa::path(put, path = "/emulators/{id}/vehicle/replay", tag = "vehicles", params(EmulatorPath), request_body = VehicleReplaySpec, responses((status = 200, body = VehicleReplay, description = "The replay, under way.")))]
async fn create_replay(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Body(body): Body<VehicleReplaySpec>,
) -> Answer<Json<VehicleReplay>> {
    let of = match &body.emulator_id {
        Some(other) => Some(EmulatorId::parse(other).ok_or_else(|| subject::not_an_id("/emulatorId"))?),
        None => None,
    };
    let spec = ReplaySpec {
        trace: TraceId::parse(&body.trace_id).ok_or_else(|| subject::not_an_id("/traceId"))?,
        of,
        speed: body.speed.unwrap_or(1.0),
        repeat: body.repeat.unwrap_or_default(),
    };
    Ok(Json(wire_replay(vehicles::create_replay(&app.engine, &caller, read_id(&id)?, &spec).await?)))
}

/// End a replay
#[utoipa::path(delete, path = "/emulators/{id}/vehicle/replay", tag = "vehicles", params(EmulatorPath), responses((status = 204, description = "Nothing is played into this vehicle any more.")))]
async fn delete_replay(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<StatusCode> {
    vehicles::delete_replay(&app.engine, &caller, read_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A text that is no id names a trace that does not exist.
fn read_trace_id(text: &str) -> Result<TraceId> {
    TraceId::parse(text).ok_or_else(|| Error::not_found("trace"))
}

/// Areas are sets of bits, so that the highest one may be written with or without a sign.
fn read_area(text: &str) -> Result<AreaId> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(u32::cast_signed),
        None => text.parse::<i64>().ok().and_then(|number| {
            i32::try_from(number).ok().or_else(|| u32::try_from(number).ok().map(u32::cast_signed))
        }),
    };
    number.map(AreaId).ok_or_else(|| Error::not_found("area"))
}

fn wire(property: model::Property) -> VehicleProperty {
    VehicleProperty {
        id: format!("{:#010x}", property.id.0),
        name: property.name,
        r#type: property.id.value_type().map_or("mixed", model::PropertyType::name).to_owned(),
        area_type: property.id.area_kind().map_or("vendor", AreaKind::name).to_owned(),
        access: match property.access {
            model::Access::None => VehicleAccess::None,
            model::Access::Read => VehicleAccess::Read,
            model::Access::Write => VehicleAccess::Write,
            model::Access::ReadWrite => VehicleAccess::ReadWrite,
        },
        change_mode: match property.change_mode {
            model::ChangeMode::Static => VehicleChangeMode::Static,
            model::ChangeMode::OnChange => VehicleChangeMode::OnChange,
            model::ChangeMode::Continuous => VehicleChangeMode::Continuous,
        },
        min_sample_rate: property.min_sample_rate.into(),
        max_sample_rate: property.max_sample_rate.into(),
        config_array: property.config_array,
        areas: property.areas.into_iter().map(wire_area).collect(),
    }
}

fn wire_area(area: model::PropertyArea) -> VehicleArea {
    VehicleArea {
        area_id: area.area.0,
        value: area.value.map(VehicleValue),
        status: match area.status {
            model::PropertyStatus::Available => VehiclePropertyStatus::Available,
            model::PropertyStatus::Unavailable => VehiclePropertyStatus::Unavailable,
            model::PropertyStatus::Error => VehiclePropertyStatus::Error,
        },
        timestamp: area.timestamp.to_string(),
        min: area.min.map(VehicleValue),
        max: area.max.map(VehicleValue),
        supported_values: area.supported.into_iter().map(VehicleValue).collect(),
    }
}

fn read_status(status: VehiclePropertyStatus) -> model::PropertyStatus {
    match status {
        VehiclePropertyStatus::Available => model::PropertyStatus::Available,
        VehiclePropertyStatus::Unavailable => model::PropertyStatus::Unavailable,
        VehiclePropertyStatus::Error => model::PropertyStatus::Error,
    }
}

fn wire_trace(trace: model::Trace) -> VehicleTrace {
    VehicleTrace {
        id: trace.id.to_string(),
        name: trace.name,
        recording: trace.recording,
        events: trace.events,
        bytes: trace.bytes,
        duration_ms: trace.duration_ms,
        started_at: time(trace.started_at),
        problem: trace.problem,
    }
}

fn wire_replay(replay: model::Replay) -> VehicleReplay {
    VehicleReplay {
        trace_id: replay.trace.to_string(),
        speed: replay.speed,
        repeat: replay.repeat,
        events_done: replay.events_done,
        events_total: replay.events_total,
        started_at: time(replay.started_at),
        ended_at: replay.ended_at.map(time),
        problem: replay.problem,
    }
}
