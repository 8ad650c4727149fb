//! What of a car travels with a snapshot.

use std::io;
use std::path::Path;
use std::time::Duration;

use paddock_model::vehicles::{AreaId, PropertyStatus, VehicleState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalogue::{Catalogue, Entry};
use crate::journal::{ClockMark, Footing, Journal, Told};
use crate::time::nanos;
use crate::values::{self, Key, Limits, Raw};

/// How long after a car's state is taken the memory of the device inside may be: a clone's clock begins later than anything in it.
const HEAD_START: Duration = Duration::from_secs(600);
const STATE_VERSION: u32 = 1;

/// As it is written.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    /// Later than every time that the device inside can have seen.
    clock: i64,
    values: Vec<StateValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<StateLimits>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StateValue {
    property: String,
    area: i32,
    value: Option<Value>,
    #[serde(default)]
    status: PropertyStatus,
}

#[derive(Debug, Serialize, Deserialize)]
struct StateLimits {
    property: String,
    area: i32,
    min: Option<Value>,
    max: Option<Value>,
    supported: Vec<Value>,
}

/// The state of a car whose process is gone, from what it left; nothing when it left nothing.
pub fn left_in(folder: &Path, catalogue: &Catalogue) -> io::Result<Option<VehicleState>> {
    let Some(kept) = Journal::read(folder)? else { return Ok(None) };
    let clock = ClockMark::open(folder)?.written();
    let footing = kept.current.and_then(|current| kept.footings.get(&current));
    Ok(footing.map(|footing| write(catalogue, footing, clock)))
}

/// `now` is the car's time.
pub fn write(catalogue: &Catalogue, footing: &Footing, now: i64) -> VehicleState {
    let mut state = State {
        version: STATE_VERSION,
        clock: now + nanos(HEAD_START),
        values: Vec::new(),
        limits: Vec::new(),
    };
    for (&(property, area), told) in &footing.values {
        let Some(kind) = property.value_type() else { continue };
        state.values.push(StateValue {
            property: catalogue.label(property),
            area: area.0,
            value: told.value.as_ref().map(|value| values::to_json(kind, value)),
            status: told.status,
        });
    }
    for (&(property, area), limits) in &footing.limits {
        let Some(kind) = property.value_type() else { continue };
        let json = |raw: &Raw| values::to_json(kind, raw);
        state.limits.push(StateLimits {
            property: catalogue.label(property),
            area: area.0,
            min: limits.min.as_ref().map(json),
            max: limits.max.as_ref().map(json),
            supported: limits.supported.iter().map(json).collect(),
        });
    }
    VehicleState(serde_json::to_value(state).unwrap_or_default())
}

/// What is not understood is left as the maker made it: the car it was taken from may have had other properties.
pub fn read(catalogue: &Catalogue, state: &VehicleState) -> (Footing, i64) {
    let state = match State::deserialize(&state.0) {
        Ok(state) if state.version == STATE_VERSION => state,
        Ok(state) => {
            tracing::warn!(
                version = state.version,
                "a car's state is of another version; it begins as its maker made it"
            );
            return (Footing::default(), state.clock);
        }
        Err(error) => {
            tracing::warn!(%error, "a car's state cannot be read; it begins as its maker made it");
            return (Footing::default(), 0);
        }
    };
    let mut footing = Footing::default();
    for told in state.values {
        let Some((key, entry)) = place(catalogue, &told.property, told.area) else { continue };
        let value = told.value.map(|value| values::from_json(entry.kind, &value)).transpose();
        let value = value.and_then(|value| {
            value.map(|value| values::shaped(entry.kind, &entry.config.config_array, value)).transpose()
        });
        match value {
            Ok(value) => drop(footing.values.insert(key, Told { value, status: told.status })),
            Err(problem) => {
                tracing::warn!(property = told.property, problem, "a captured value does not fit this car");
            }
        }
    }
    for told in state.limits {
        let Some((key, entry)) = place(catalogue, &told.property, told.area) else { continue };
        let read = |value: &Value| values::from_json(entry.kind, value).ok();
        let limits = Limits {
            min: told.min.as_ref().and_then(read),
            max: told.max.as_ref().and_then(read),
            supported: told.supported.iter().filter_map(read).collect(),
        };
        footing.limits.insert(key, limits);
    }
    (footing, state.clock.clamp(0, i64::MAX / 4))
}

fn place<'a>(catalogue: &'a Catalogue, property: &str, area: i32) -> Option<(Key, &'a Entry)> {
    let id = catalogue.find(property)?;
    let entry = catalogue.entry(id)?;
    entry.area(AreaId(area))?;
    Some(((id, AreaId(area)), entry))
}
