//! Vehicles: the car around an automotive device, as its properties say it.
//!
//! Names and numbers are those of Android's vehicle properties; the kind of a value and of an area follow from a property's number.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;
use crate::devices::DeviceIdentity;
use crate::emulators::EmulatorId;

crate::id!(TraceId, "vtr");

/// A property's number, as Android knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PropertyId(pub i32);

/// A part of the car: a bit for each seat, door, window or wheel that is meant; 0 for the car as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AreaId(pub i32);

/// What a property's values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PropertyType {
    String,
    Boolean,
    Int32,
    Int32Vec,
    Int64,
    Int64Vec,
    Float,
    FloatVec,
    Bytes,
    /// Whatever the maker says.
    Mixed,
}

/// What a property's areas are parts of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AreaKind {
    Global,
    Window,
    Mirror,
    Seat,
    Door,
    Wheel,
    Vendor,
}

impl PropertyId {
    pub fn value_type(self) -> Option<PropertyType> {
        Some(match self.0 & 0x00ff_0000 {
            0x0010_0000 => PropertyType::String,
            0x0020_0000 => PropertyType::Boolean,
            0x0040_0000 => PropertyType::Int32,
            0x0041_0000 => PropertyType::Int32Vec,
            0x0050_0000 => PropertyType::Int64,
            0x0051_0000 => PropertyType::Int64Vec,
            0x0060_0000 => PropertyType::Float,
            0x0061_0000 => PropertyType::FloatVec,
            0x0070_0000 => PropertyType::Bytes,
            0x00e0_0000 => PropertyType::Mixed,
            _ => return None,
        })
    }

    pub fn area_kind(self) -> Option<AreaKind> {
        Some(match self.0 & 0x0f00_0000 {
            0x0100_0000 => AreaKind::Global,
            0x0300_0000 => AreaKind::Window,
            0x0400_0000 => AreaKind::Mirror,
            0x0500_0000 => AreaKind::Seat,
            0x0600_0000 => AreaKind::Door,
            0x0700_0000 => AreaKind::Wheel,
            0x0800_0000 => AreaKind::Vendor,
            _ => return None,
        })
    }
}

impl PropertyType {
    pub const fn name(self) -> &'static str {
        match self {
            PropertyType::String => "string",
            PropertyType::Boolean => "boolean",
            PropertyType::Int32 => "int32",
            PropertyType::Int32Vec => "int32_vec",
            PropertyType::Int64 => "int64",
            PropertyType::Int64Vec => "int64_vec",
            PropertyType::Float => "float",
            PropertyType::FloatVec => "float_vec",
            PropertyType::Bytes => "bytes",
            PropertyType::Mixed => "mixed",
        }
    }
}

/// What Android may do with a property; the car itself may do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    None,
    Read,
    Write,
    ReadWrite,
}

/// When a property's value is told to those who subscribe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeMode {
    Static,
    OnChange,
    /// At a rate, whether it has changed or not.
    Continuous,
}

/// Whether a value means anything at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyStatus {
    #[default]
    Available,
    Unavailable,
    Error,
}

/// A property with everything that is known of it now.
#[derive(Debug, Clone, PartialEq)]
pub struct Property {
    pub id: PropertyId,
    /// None for a vendor's property of which only the number is known.
    pub name: Option<String>,
    pub access: Access,
    pub change_mode: ChangeMode,
    pub min_sample_rate: f32,
    pub max_sample_rate: f32,
    pub config_array: Vec<i32>,
    pub areas: Vec<PropertyArea>,
}

/// A property's value in one area. Values are written as people write them: a number, true or false, a text, a list; bytes in base64;
/// `{"int32Values": […], …}` where a property mixes kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct PropertyArea {
    pub area: AreaId,
    /// None until somebody sets it.
    pub value: Option<Value>,
    pub status: PropertyStatus,
    /// Nanoseconds of the car's own clock, which never goes back.
    pub timestamp: i64,
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub supported: Vec<Value>,
}

/// What is to be set by people.
#[derive(Debug, Clone, PartialEq)]
pub struct PropertyChange {
    /// None leaves the value as it is.
    pub value: Option<Value>,
    pub status: PropertyStatus,
}

/// Everything of a car that travels with a snapshot, as the garage that made it reads it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VehicleState(pub Value);

/// Which car an emulator is to have.
#[derive(Debug, Clone, PartialEq)]
pub struct VehicleOrder {
    pub emulator: EmulatorId,
    pub identity: DeviceIdentity,
    /// Another number, another car; the values of the same number are kept, whatever restarts.
    pub footing: i64,
    /// The car that it may go back to, which is kept as well.
    pub previous: Option<i64>,
    /// What a new car begins with; none: as its maker made it.
    pub begins_with: Option<VehicleState>,
}

/// A recorded drive: what a car's properties were told to be, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub id: TraceId,
    pub name: String,
    pub recording: bool,
    pub events: i64,
    pub bytes: i64,
    pub duration_ms: i64,
    pub started_at: Timestamp,
    /// Why it ended by itself; for people.
    pub problem: Option<String>,
}

/// A trace on its way into a car.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    pub trace: TraceId,
    /// 2 is twice as fast.
    pub speed: f64,
    pub repeat: bool,
    pub events_done: i64,
    pub events_total: i64,
    pub started_at: Timestamp,
    /// Running until then.
    pub ended_at: Option<Timestamp>,
    /// Why it ended before its time, or what the car did not take; for people.
    pub problem: Option<String>,
}
