//! Vehicles: the car around an automotive emulator, its properties and recorded drives.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::vehicles::{
    VehicleArea, VehicleProperty, VehiclePropertyChange, VehiclePropertyStatus, VehicleReplay,
    VehicleReplaySpec, VehicleTrace, VehicleTraceSpec, VehicleValue,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::emulators;
use crate::failure::Failure;
use crate::output::{self, Column, Output, Row};
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock vehicle list maps-nightly
  paddock vehicle get maps-nightly PERF_VEHICLE_SPEED
  paddock vehicle set maps-nightly PERF_VEHICLE_SPEED 27.5
  paddock vehicle set maps-nightly HVAC_FAN_SPEED 4 --area 0x1
  paddock vehicle record maps-nightly --for 60s --to motorway.jsonl
  paddock vehicle replay motorway.jsonl clone-1 clone-2 clone-3 --speed 2

Programs reach the same vehicle by Android's own gRPC service: endpoints.grpc of the emulator says where.";

const SET_EXAMPLES: &str = "\
Examples:
  paddock vehicle set maps-nightly PERF_VEHICLE_SPEED 27.5
  paddock vehicle set maps-nightly NIGHT_MODE true
  paddock vehicle set maps-nightly 0x11400400 8                     a property by its number
  paddock vehicle set maps-nightly DOOR_LOCK false --area 0x1       one door
  paddock vehicle set maps-nightly WHEEL_TICK '[1, 2, 3, 4, 5]'     a list
  paddock vehicle set maps-nightly ENGINE_RPM --status error        its value stays

It is set as the car itself would: also what Android may only read.";

const RECORD_EXAMPLES: &str = "\
Examples:
  paddock vehicle record maps-nightly                               until Ctrl-C, shown as it is written down
  paddock vehicle record maps-nightly --for 60s --to motorway.jsonl";

const REPLAY_EXAMPLES: &str = "\
Examples:
  paddock vehicle replay motorway.jsonl clone-1 clone-2 clone-3
  paddock vehicle replay motorway.jsonl maps-nightly --speed 10 --wait
  paddock vehicle replay vtr_01jcr8e8v0e9bvqz3tz4d0wq2h maps-nightly --repeat

Stop it with: paddock vehicle stop-replay maps-nightly";

#[derive(Subcommand)]
pub enum Verb {
    /// Show a vehicle's properties and their values
    List(List),
    /// Show one property
    Get(Get),
    /// Set a property, as the car itself would
    #[command(after_help = SET_EXAMPLES)]
    Set(Set),
    /// Record a drive: everything that is told of the vehicle's properties
    #[command(after_help = RECORD_EXAMPLES)]
    Record(Record),
    /// Show recorded drives
    Traces(Emulator),
    /// Play a recorded drive into one or many vehicles
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// Stop what is being played into a vehicle
    StopReplay(Emulator),
}

#[derive(Args)]
pub struct Emulator {
    /// The emulator's id (emu_…) or its name
    emulator: String,
}

#[derive(Args)]
pub struct List {
    /// The emulator's id (emu_…) or its name
    emulator: String,
    /// Only properties whose name contains this
    #[arg(long)]
    matching: Option<String>,
}

#[derive(Args)]
pub struct Get {
    /// The emulator's id (emu_…) or its name
    emulator: String,
    /// The property's name, or its number (0x…)
    property: String,
}

#[derive(Args)]
pub struct Set {
    /// The emulator's id (emu_…) or its name
    emulator: String,
    /// The property's name, or its number (0x…)
    property: String,
    /// true, false, a number, a text, or a list in brackets
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// The part of the car, as a number; 0 is the whole car
    #[arg(long, default_value = "0")]
    area: String,
    /// Whether the value means anything
    #[arg(long, value_parser = one_of::<VehiclePropertyStatus>(&["available", "unavailable", "error"]))]
    status: Option<VehiclePropertyStatus>,
}

#[derive(Args)]
pub struct Record {
    /// The emulator's id (emu_…) or its name
    emulator: String,
    /// How long, such as 90s or 5m; until Ctrl-C where it is left out
    #[arg(long = "for", value_name = "TIME", value_parser = times::seconds)]
    length: Option<u64>,
    /// Write the drive to this file; to standard output where none is named
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// What the drive is called on the server
    #[arg(long)]
    name: Option<String>,
}

#[derive(Args)]
pub struct Replay {
    /// A file that was recorded, or a drive (vtr_…) of the first emulator
    drive: String,
    /// The emulators' ids (emu_…) or names
    #[arg(required = true)]
    emulators: Vec<String>,
    /// 2 is twice as fast
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// From the beginning again when it is over
    #[arg(long)]
    repeat: bool,
    /// Wait until it is over
    #[arg(long, conflicts_with = "repeat")]
    wait: bool,
}

/// A property in one area: a line of the table.
#[derive(Serialize)]
struct Line {
    name: String,
    id: String,
    area: String,
    value: String,
    status: String,
    kind: String,
    access: String,
    mode: String,
}

impl Row for Line {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("PROPERTY", |line| line.name.clone()),
        Column::new("AREA", |line| line.area.clone()),
        Column::new("VALUE", |line| line.value.clone()),
        Column::new("STATUS", |line| line.status.clone()),
        Column::wide("NUMBER", |line| line.id.clone()),
        Column::wide("TYPE", |line| line.kind.clone()),
        Column::wide("ACCESS", |line| line.access.clone()),
        Column::wide("CHANGES", |line| line.mode.clone()),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

impl Row for VehicleTrace {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", |trace| trace.id.clone()),
        Column::new("NAME", |trace| trace.name.clone()),
        Column::new("EVENTS", |trace| trace.events.to_string()),
        Column::new("LENGTH", |trace| format!("{:.1}s", trace.duration_ms as f64 / 1000.0)),
        Column::new("STATE", |trace| if trace.recording { "recording" } else { "finished" }.to_owned()),
        Column::new("AGE", |trace| times::age(&trace.started_at)),
    ];

    #[expect(clippy::misnamed_getters, reason = "by its id it is named in commands; names may be the same")]
    fn name(&self) -> &str {
        &self.id
    }
}

/// A drive on its way into one of several vehicles.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Played {
    emulator_id: String,
    #[serde(flatten)]
    replay: VehicleReplay,
}

impl Row for Played {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("EMULATOR", |played| played.emulator_id.clone()),
        Column::new("DRIVE", |played| played.replay.trace_id.clone()),
        Column::new("SPEED", |played| format!("{}x", played.replay.speed)),
        Column::new("EVENTS", |played| {
            format!("{} of {}", played.replay.events_done, played.replay.events_total)
        }),
        Column::new("STATE", |played| {
            if played.replay.ended_at.is_some() { "ended" } else { "playing" }.to_owned()
        }),
    ];

    fn name(&self) -> &str {
        &self.emulator_id
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(&wanted, client, output).await,
        Verb::Get(wanted) => {
            let id = emulators::id(&wanted.emulator, client).await?;
            let property = client.get_vehicle_property(&id, &wanted.property).await?;
            output.list(&property, &lines(&property))
        }
        Verb::Set(wanted) => set(wanted, client, output).await,
        Verb::Record(wanted) => record(wanted, client).await,
        Verb::Traces(wanted) => {
            let id = emulators::id(&wanted.emulator, client).await?;
            let traces = client.list_vehicle_traces(&id).await?;
            output.list(&json!({ "items": traces }), &traces)
        }
        Verb::Replay(wanted) => replay(wanted, client, output).await,
        Verb::StopReplay(wanted) => {
            let id = emulators::id(&wanted.emulator, client).await?;
            Ok(client.delete_vehicle_replay(&id).await?)
        }
    }
}

async fn list(wanted: &List, client: &Client, output: Output) -> Result<(), Failure> {
    let id = emulators::id(&wanted.emulator, client).await?;
    let mut properties = client.list_vehicle_properties(&id).await?;
    if let Some(part) = wanted.matching.as_deref().map(str::to_uppercase) {
        properties.retain(|property| {
            property.name.as_deref().unwrap_or(&property.id).to_uppercase().contains(&part)
        });
    }
    let rows: Vec<Line> = properties.iter().flat_map(lines).collect();
    output.list(&json!({ "items": properties }), &rows)
}

fn lines(property: &VehicleProperty) -> Vec<Line> {
    let line = |area: &VehicleArea| Line {
        name: property.name.clone().unwrap_or_else(|| property.id.clone()),
        id: property.id.clone(),
        area: if area.area_id == 0 { "-".to_owned() } else { format!("{:#x}", area.area_id) },
        value: area.value.as_ref().map_or("-".to_owned(), |value| shown(&value.0)),
        status: word(&area.status),
        kind: property.r#type.clone(),
        access: word(&property.access),
        mode: word(&property.change_mode),
    };
    property.areas.iter().map(line).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn set(wanted: Set, client: &Client, output: Output) -> Result<(), Failure> {
    if wanted.value.is_none() && wanted.status.is_none() {
        let usage = "say what it is to be: a value, or --status error";
        return Err(Failure::Usage(usage.to_owned()));
    }
    let id = emulators::id(&wanted.emulator, client).await?;
    let property = client.get_vehicle_property(&id, &wanted.property).await?;
    let value = wanted.value.map(|text| VehicleValue(read(&text, &property.r#type)));
    let change = VehiclePropertyChange { value, status: wanted.status };
    let property = client.set_vehicle_property(&id, &wanted.property, &wanted.area, &change).await?;
    output.list(&property, &lines(&property))
}

/// A text as the property wants it: what is a number elsewhere is a text in a property of texts.
fn read(text: &str, kind: &str) -> Value {
    match kind {
        "string" | "bytes" => Value::String(text.to_owned()),
        _ => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

async fn record(wanted: Record, client: &Client) -> Result<(), Failure> {
    let id = emulators::id(&wanted.emulator, client).await?;
    let spec = VehicleTraceSpec { name: wanted.name, content: None };
    let trace = client.create_vehicle_trace(&id, &spec).await?;
    let length = wanted.length.map(Duration::from_secs);
    match length {
        Some(length) => output::notice(&format!("Recording {} for {} s", trace.id, length.as_secs())),
        None => output::notice(&format!("Recording {}; press Ctrl-C to end it", trace.id)),
    }
    let over = async {
        match length {
            Some(length) => tokio::time::sleep(length).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let trace = client.finish_vehicle_trace(&id, &trace.id).await?;
    let content = client.read_vehicle_trace(&id, &trace.id).await?;
    output::notice(&format!("{} events in {:.1} s", trace.events, trace.duration_ms as f64 / 1000.0));
    match wanted.to {
        Some(file) => std::fs::write(&file, content).map_err(|error| {
            let kept = format!("the drive is kept as {}", trace.id);
            Failure::Usage(format!("cannot write {}: {error}; {kept}", file.display()))
        }),
        None => output::write(&content),
    }
}

async fn replay(wanted: Replay, client: &Client, output: Output) -> Result<(), Failure> {
    let content = if wanted.drive.starts_with("vtr_") {
        None
    } else {
        let text = std::fs::read_to_string(&wanted.drive).map_err(|error| {
            Failure::Usage(format!("cannot read {}: {error}; name a file or a drive (vtr_…)", wanted.drive))
        })?;
        Some(text)
    };
    let mut ids = Vec::new();
    for emulator in &wanted.emulators {
        ids.push(emulators::id(emulator, client).await?);
    }
    // Sent once; the others are lent it.
    let (first, trace_id) = match (&content, ids.first()) {
        (Some(content), Some(first)) => {
            let spec = VehicleTraceSpec { name: None, content: Some(content.clone()) };
            (first.clone(), client.create_vehicle_trace(first, &spec).await?.id)
        }
        (_, first) => (first.cloned().unwrap_or_default(), wanted.drive.clone()),
    };
    let spec = VehicleReplaySpec {
        trace_id,
        emulator_id: Some(first),
        speed: Some(wanted.speed),
        repeat: Some(wanted.repeat),
    };
    for id in &ids {
        client.create_vehicle_replay(id, &spec).await?;
    }
    let mut replays = Vec::new();
    for id in &ids {
        let mut replay = client.get_vehicle_replay(id).await?;
        while wanted.wait && replay.ended_at.is_none() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            replay = client.get_vehicle_replay(id).await?;
        }
        if let Some(problem) = &replay.problem {
            return Err(Failure::NotReached(output::printable(&format!(
                "The replay to {id} ended: {problem}"
            ))));
        }
        replays.push(Played { emulator_id: id.clone(), replay });
    }
    output.list(&json!({ "items": replays }), &replays)
}
