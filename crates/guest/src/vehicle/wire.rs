//! The messages of Android's VehicleServer, as far as the device speaks them, and what their numbers mean.

/// Nothing to say.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PropValue {
    /// Nanoseconds of the car's clock.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(int32, tag = "2")]
    pub area_id: i32,
    #[prost(int32, tag = "3")]
    pub prop: i32,
    #[prost(int32, tag = "4")]
    pub status: i32,
    #[prost(int32, repeated, tag = "5")]
    pub int32_values: Vec<i32>,
    #[prost(float, repeated, tag = "6")]
    pub float_values: Vec<f32>,
    #[prost(int64, repeated, tag = "7")]
    pub int64_values: Vec<i64>,
    #[prost(bytes = "vec", tag = "8")]
    pub byte_values: Vec<u8>,
    #[prost(string, tag = "9")]
    pub string_value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PropValues {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<PropValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueRequest {
    #[prost(int64, tag = "1")]
    pub request_id: i64,
    #[prost(message, optional, tag = "2")]
    pub value: Option<PropValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueRequests {
    #[prost(message, repeated, tag = "1")]
    pub requests: Vec<ValueRequest>,
}

/// The answer to a get; a set is answered with the first two fields alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueResult {
    #[prost(int64, tag = "1")]
    pub request_id: i64,
    #[prost(int32, tag = "2")]
    pub status: i32,
    #[prost(message, optional, tag = "3")]
    pub value: Option<PropValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueResults {
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<ValueResult>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CallStatus {
    #[prost(int32, tag = "1")]
    pub status_code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscribeOptions {
    #[prost(int32, tag = "1")]
    pub prop_id: i32,
    #[prost(int32, repeated, tag = "2")]
    pub area_ids: Vec<i32>,
    #[prost(float, tag = "3")]
    pub sample_rate: f32,
    #[prost(bool, tag = "5")]
    pub enable_variable_update_rate: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscribeRequest {
    #[prost(message, optional, tag = "1")]
    pub options: Option<SubscribeOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PropConfig {
    #[prost(int32, tag = "1")]
    pub prop: i32,
    #[prost(int32, tag = "2")]
    pub access: i32,
    #[prost(int32, tag = "3")]
    pub change_mode: i32,
    #[prost(message, repeated, tag = "4")]
    pub area_configs: Vec<AreaConfig>,
    #[prost(float, tag = "7")]
    pub min_sample_rate: f32,
    #[prost(float, tag = "8")]
    pub max_sample_rate: f32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AreaConfig {
    #[prost(int32, tag = "1")]
    pub area_id: i32,
    #[prost(int32, tag = "9")]
    pub access: i32,
}

/// Bits of `access`.
pub const READ: i32 = 1;
pub const WRITE: i32 = 2;
/// Values of `change_mode`.
pub const STATIC: i32 = 0;
pub const CONTINUOUS: i32 = 2;

pub const OK: i32 = 0;
const STATUSES: [&str; 11] = [
    "OK",
    "TRY_AGAIN",
    "INVALID_ARG",
    "NOT_AVAILABLE",
    "ACCESS_DENIED",
    "INTERNAL_ERROR",
    "NOT_AVAILABLE_DISABLED",
    "NOT_AVAILABLE_SPEED_LOW",
    "NOT_AVAILABLE_SPEED_HIGH",
    "NOT_AVAILABLE_POOR_VISIBILITY",
    "NOT_AVAILABLE_SAFETY",
];

pub fn status_name(code: i32) -> String {
    let known = usize::try_from(code).ok().and_then(|code| STATUSES.get(code));
    known.map_or_else(|| format!("status {code}"), |name| (*name).to_owned())
}

impl PropConfig {
    /// The areas that there are values for; a property of the whole car has area 0.
    pub fn areas(&self) -> Vec<i32> {
        match self.area_configs.as_slice() {
            [] => vec![0],
            areas => areas.iter().map(|area| area.area_id).collect(),
        }
    }

    /// What Android may do in an area, which may be less than elsewhere; nothing if there is no such area.
    pub fn access_in(&self, area: i32) -> Option<i32> {
        let own = self.area_configs.iter().find(|config| config.area_id == area);
        match own {
            Some(own) if own.access != 0 => Some(own.access),
            Some(_) => Some(self.access),
            None if self.area_configs.is_empty() && area == 0 => Some(self.access),
            None => None,
        }
    }
}

impl PropValue {
    pub fn is_available(&self) -> bool {
        self.status == 0
    }
}
