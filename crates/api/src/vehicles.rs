//! Vehicles: the car around an automotive device, its properties and recorded drives.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use crate::vehicle_values::VehicleValue;

/// What Android may do with a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VehicleAccess {
    None,
    Read,
    Write,
    ReadWrite,
}

/// When those who subscribe are told of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VehicleChangeMode {
    Static,
    OnChange,
    Continuous,
}

/// Whether a value means anything now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VehiclePropertyStatus {
    #[default]
    Available,
    Unavailable,
    Error,
}

/// A property's value in one part of the car.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehicleArea {
    /// A bit for each seat, door, window or wheel that is meant; 0 for the whole car.
    #[schema(minimum = -2147483648_i64, maximum = 2147483647_i64, examples(0))]
    pub area_id: i32,
    /// Null until it is set.
    #[schema(required)]
    pub value: Option<VehicleValue>,
    pub status: VehiclePropertyStatus,
    /// Nanoseconds of the car's own clock, which never goes back.
    #[schema(max_length = 20, pattern = "^[0-9]+$", examples("81234567890"))]
    pub timestamp: String,
    #[schema(required)]
    pub min: Option<VehicleValue>,
    #[schema(required)]
    pub max: Option<VehicleValue>,
    /// Empty where every value is.
    #[schema(max_items = 1024)]
    pub supported_values: Vec<VehicleValue>,
}

/// A property of a car.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehicleProperty {
    /// Its number in hexadecimal digits.
    #[schema(max_length = 10, pattern = "^0x[0-9a-f]{8}$", examples("0x11600207"))]
    pub id: String,
    /// Null for a maker's property of which only the number is known.
    #[schema(max_length = 200, pattern = "^[A-Za-z0-9_]+$", examples("PERF_VEHICLE_SPEED"), required)]
    pub name: Option<String>,
    /// What its values are made of: `boolean`, `int32`, `float`, `string`, `int32_vec`, ….
    #[schema(max_length = 20, pattern = "^[a-z0-9_]+$", examples("float"))]
    pub r#type: String,
    /// What its areas are parts of: `global`, `seat`, `door`, `window`, `wheel`, `mirror`, `vendor`.
    #[schema(max_length = 20, pattern = "^[a-z]+$", examples("global"))]
    pub area_type: String,
    pub access: VehicleAccess,
    pub change_mode: VehicleChangeMode,
    /// In Hertz; 0 where it is not sampled.
    #[schema(minimum = 0, maximum = 100000, examples(1.0))]
    pub min_sample_rate: f64,
    #[schema(minimum = 0, maximum = 100000, examples(10.0))]
    pub max_sample_rate: f64,
    #[schema(max_items = 1024, minimum = -2147483648_i64, maximum = 2147483647_i64)]
    pub config_array: Vec<i32>,
    #[schema(max_items = 64)]
    pub areas: Vec<VehicleArea>,
}

/// Every property of a car.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehiclePropertyList {
    #[schema(max_items = 5000)]
    pub items: Vec<VehicleProperty>,
}

/// What a property is from now on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VehiclePropertyChange {
    /// Left out, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value: Option<VehicleValue>,
    /// Available where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<VehiclePropertyStatus>,
}

/// A drive that is or was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehicleTrace {
    #[schema(
        max_length = 30,
        pattern = "^vtr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("vtr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("motorway"))]
    pub name: String,
    /// Whether more is still being added to it.
    pub recording: bool,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1200))]
    pub events: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(96000))]
    pub bytes: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(60000))]
    pub duration_ms: i64,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub started_at: String,
    /// Why the recording ended by itself.
    #[schema(max_length = 2000, pattern = "^[^\\x00]*$", required)]
    pub problem: Option<String>,
}

/// The drives of a car.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehicleTraceList {
    #[schema(max_items = 100)]
    pub items: Vec<VehicleTrace>,
}

/// A drive as lines of JSON: a header, then one line an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(max_length = 67108864, pattern = "^[^\\x00]*$")]
pub struct VehicleTraceContent(pub String);

/// A drive to be recorded, or one that was recorded elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VehicleTraceSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("motorway"),
        nullable = false
    )]
    pub name: Option<String>,
    /// The content of a trace, as lines of JSON: then nothing is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000000, pattern = "^[^\\x00]*$", nullable = false)]
    pub content: Option<String>,
}

/// A drive to be played into a car.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VehicleReplaySpec {
    #[schema(
        max_length = 30,
        pattern = "^vtr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("vtr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub trace_id: String,
    /// Whose trace it is, where it is another emulator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub emulator_id: Option<String>,
    /// 2 is twice as fast; 1 where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 100, examples(1.0), nullable = false)]
    pub speed: Option<f64>,
    /// From the beginning again when it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub repeat: Option<bool>,
}

/// A drive on its way into a car.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VehicleReplay {
    #[schema(
        max_length = 30,
        pattern = "^vtr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("vtr_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub trace_id: String,
    #[schema(minimum = 0.01, maximum = 100, examples(1.0))]
    pub speed: f64,
    pub repeat: bool,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(600))]
    pub events_done: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1200))]
    pub events_total: i64,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub started_at: String,
    /// Null while it goes on.
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:01:00.000000Z"), required)]
    pub ended_at: Option<String>,
    /// Why it ended before its time.
    #[schema(max_length = 2000, pattern = "^[^\\x00]*$", required)]
    pub problem: Option<String>,
}

/// Which property of which emulator's car.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct VehiclePropertyPath {
    /// The emulator's id.
    #[param(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "emu_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
    /// The property's name, or its number in hexadecimal digits.
    #[param(max_length = 200, pattern = "^[A-Za-z0-9_]+$", example = "PERF_VEHICLE_SPEED")]
    pub property: String,
}

/// Which part of a car.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct VehicleAreaPath {
    /// The area's number, in decimal or in hexadecimal digits after `0x`; 0 for the whole car.
    #[param(max_length = 11, pattern = "^(-?[0-9]{1,10}|0x[0-9a-fA-F]{1,8})$", example = "0")]
    pub area: String,
}

/// Which drive of which emulator's car.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct VehicleTracePath {
    /// The emulator's id.
    #[param(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "emu_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
    /// The trace's id.
    #[param(
        max_length = 30,
        pattern = "^vtr_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "vtr_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub trace: String,
}
