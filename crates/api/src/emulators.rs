//! Emulators: devices that run.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::ci::{CaptureSpec, CiSpec, EmulatorCapture, EmulatorCi, EmulatorRestore, EmulatorRestoreSpec};
use crate::labels::Labels;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceType {
    Phone,
    Tablet,
    Automotive,
    Tv,
    Wear,
}

/// Where an emulator is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmulatorStatus {
    Provisioning,
    Running,
    Restarting,
    Swapping,
    Parked,
    Unreachable,
    Failed,
    Terminating,
    Terminated,
}

/// What the device itself is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    Off,
    Booting,
    Ready,
    Degraded,
    Offline,
}

/// A step on the way up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConditionType {
    Scheduled,
    DiskReady,
    Booted,
    AdbReady,
    VehicleReady,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// The snapshot that an emulator runs from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorSnapshot {
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940")
    )]
    pub name: String,
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940"),
        required
    )]
    pub parent: Option<String>,
}

/// Why the status is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusReason {
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("boot_timeout"))]
    pub code: String,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", examples("It was not up after 120 s."))]
    pub message: String,
}

/// Whether a device booted, or resumed from a snapshot's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    Warm,
    Cold,
}

/// How the device came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorStart {
    pub kind: StartKind,
    /// Why it booted although its snapshot has memory.
    #[schema(required)]
    pub reason: Option<StatusReason>,
}

/// How far one step is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: ConditionType,
    pub status: ConditionStatus,
    #[schema(max_length = 100, pattern = "^[a-z][a-z0-9_]*$", examples("boot_timeout"), required)]
    pub reason: Option<String>,
    #[schema(max_length = 2000, pattern = "^[^\\x00-\\x1f]*$", required)]
    pub message: Option<String>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub changed_at: String,
}

/// Where ADB answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdbEndpoint {
    #[schema(max_length = 255, pattern = "^[0-9A-Za-z.:-]+$", examples("127.80.0.1"))]
    pub host: String,
    #[schema(minimum = 1, maximum = 65535, examples(5555))]
    pub port: i32,
    #[schema(
        format = "uri-reference",
        max_length = 300,
        examples("/api/v1/emulators/emu_01jcr8e8v0e9bvqz3tz4d0wq2h/adb/proxy")
    )]
    pub web_socket_url: String,
}

/// Where the display answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisplayEndpoint {
    #[schema(
        format = "uri-reference",
        max_length = 300,
        examples("/api/v1/emulators/emu_01jcr8e8v0e9bvqz3tz4d0wq2h/display")
    )]
    pub web_socket_url: String,
}

/// Where the vehicle answers, by Android's own gRPC service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcEndpoint {
    /// Empty where the server is reached as you have reached it now.
    #[schema(format = "uri-reference", max_length = 300, examples("https://paddock.example.com"))]
    pub address: String,
    pub header: GrpcHeader,
}

/// What a call must carry besides `authorization`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcHeader {
    #[schema(max_length = 100, pattern = "^[a-z0-9-]+$", examples("x-paddock-emulator"))]
    pub name: String,
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub value: String,
}

/// Ways into the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorEndpoints {
    #[schema(required)]
    pub adb: Option<AdbEndpoint>,
    #[schema(required)]
    pub display: Option<DisplayEndpoint>,
    /// Automotive devices only.
    #[schema(required)]
    pub grpc: Option<GrpcEndpoint>,
}

/// How a device stands to its vehicle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VehicleState {
    Connected,
    Connecting,
    Absent,
}

/// What the device says of itself, read from it just now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveState {
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(42))]
    pub uptime_seconds: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2100), required)]
    pub boot_duration_ms: Option<i64>,
    /// How far the device's clock is from the server's.
    #[schema(minimum = -9007199254740991_i64, maximum = 9007199254740991_i64, examples(3))]
    pub clock_offset_ms: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1))]
    pub adb_connections: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(268435456))]
    pub memory_total_bytes: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(134217728))]
    pub memory_available_bytes: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(2147483648_i64))]
    pub disk_total_bytes: i64,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1073741824))]
    pub disk_available_bytes: i64,
    /// How the device stands to its vehicle; null where it does not say.
    #[schema(required)]
    pub vehicle_state: Option<VehicleState>,
    /// System properties.
    #[schema(value_type = Object, additional_properties)]
    pub properties: std::collections::BTreeMap<String, String>,
}

/// An emulated device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Emulator {
    #[schema(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("emu_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub id: String,
    #[schema(max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", examples("maps-nightly"))]
    pub name: String,
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h")
    )]
    pub tenant_id: String,
    /// A user's id, or a machine's name.
    #[schema(max_length = 255, pattern = "^[^\\s#*]+$", examples("usr_01jcr8e8v0e9bvqz3tz4d0wq2h"))]
    pub owner_id: String,
    pub snapshot: EmulatorSnapshot,
    pub status: EmulatorStatus,
    #[schema(required)]
    pub status_reason: Option<StatusReason>,
    /// What you may ask of it in this status.
    #[schema(max_items = 10, max_length = 20, pattern = "^[a-z_]+$")]
    pub allowed_actions: Vec<String>,
    #[schema(max_items = 10)]
    pub conditions: Vec<Condition>,
    pub device_state: DeviceState,
    /// Null until it is known.
    #[schema(required)]
    pub start: Option<EmulatorStart>,
    /// Rises with every restart.
    #[schema(minimum = 1, maximum = 9007199254740991_i64, examples(1))]
    pub incarnation: i64,
    #[schema(max_length = 30, pattern = "^[0-9A-Za-z.]+$", examples("14"))]
    pub android_version: String,
    pub device_type: DeviceType,
    #[schema(max_length = 64, pattern = "^[0-9A-Za-z_-]+$", examples("PDK0A1B2C3D4E5"))]
    pub serial: String,
    pub labels: Labels,
    pub endpoints: EmulatorEndpoints,
    /// What it was started from, where that was looked for.
    #[schema(required)]
    pub restore: Option<EmulatorRestore>,
    /// What is captured of it when its job ends.
    #[schema(required)]
    pub capture: Option<EmulatorCapture>,
    /// The job that it is for.
    #[schema(required)]
    pub ci: Option<EmulatorCi>,
    /// Only where one emulator is read, and it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub live: Option<LiveState>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub created_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub updated_at: String,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub expires_at: Option<String>,
    #[schema(minimum = 1, maximum = 9007199254740991_i64, examples(600), required)]
    pub idle_timeout_seconds: Option<i64>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"), required)]
    pub terminated_at: Option<String>,
}

/// Where an emulator is in its life, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorStatusReport {
    pub status: EmulatorStatus,
    #[schema(required)]
    pub status_reason: Option<StatusReason>,
    #[schema(max_items = 10)]
    pub conditions: Vec<Condition>,
    #[schema(minimum = 1, maximum = 9007199254740991_i64, examples(1))]
    pub incarnation: i64,
    #[schema(max_items = 10, max_length = 20, pattern = "^[a-z_]+$")]
    pub allowed_actions: Vec<String>,
    /// Null until it is known.
    #[schema(required)]
    pub start: Option<EmulatorStart>,
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000000Z"))]
    pub updated_at: String,
}

/// Whether a clone is someone new, or the same for the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdentityMode {
    Regenerate,
    Keep,
}

/// Who the device is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentitySpec {
    pub mode: IdentityMode,
    /// Needed to keep an identity: the same seed makes the same device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255, pattern = "^[^\\x00-\\x1f\\x7f]*$", nullable = false)]
    pub seed: Option<String>,
}

/// An emulator to be deployed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmulatorSpec {
    /// May be left out if you have one tenant, or name it in X-Paddock-Tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        examples("ten_01jcr8e8v0e9bvqz3tz4d0wq2h"),
        nullable = false
    )]
    pub tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        examples("maps-nightly"),
        nullable = false
    )]
    pub name: Option<String>,
    /// The newest deployable promoted root where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("paddock-phone-3fe30cce5940"),
        nullable = false
    )]
    pub snapshot: Option<String>,
    /// Look for what a job has captured, instead of naming a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub restore: Option<EmulatorRestoreSpec>,
    /// What is captured of it when its job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub capture: Option<CaptureSpec>,
    /// The job that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ci: Option<CiSpec>,
    /// As many of one snapshot, each with its own result; the answer is then a list, and where a name is given a number is added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100, examples(4), nullable = false)]
    pub count: Option<u32>,
    /// Which root is taken where no snapshot is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub device_type: Option<DeviceType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub identity: Option<IdentitySpec>,
    /// It is deleted after so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31536000, examples(3600), nullable = false)]
    pub expires_in_seconds: Option<u64>,
    /// It is parked after nobody has used ADB for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10, maximum = 31536000, examples(600), nullable = false)]
    pub idle_timeout_seconds: Option<u64>,
}

/// A page of emulators, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmulatorPage {
    #[schema(max_items = 200)]
    pub items: Vec<Emulator>,
    /// Pass it as `cursor` to get the next page; null on the last one.
    #[schema(max_length = 1000, pattern = "^[A-Za-z0-9_-]+$", required)]
    pub next_cursor: Option<String>,
}

/// Which emulator.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Path, rename_all = "camelCase")]
pub struct EmulatorPath {
    /// The emulator's id.
    #[param(
        max_length = 30,
        pattern = "^emu_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "emu_01jcr8e8v0e9bvqz3tz4d0wq2h"
    )]
    pub id: String,
}

/// Which emulators, and which page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListEmulators {
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 30,
        pattern = "^ten_[0-7][0-9a-hjkmnp-tv-z]{25}$",
        example = "ten_01jcr8e8v0e9bvqz3tz4d0wq2h",
        nullable = false
    )]
    pub tenant_id: Option<String>,
    /// Only those in this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub status: Option<EmulatorStatus>,
    /// Only those that run from this snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 63, pattern = "^[a-z0-9-]*$", example = "base", nullable = false)]
    pub snapshot: Option<String>,
    /// Only those of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(
        max_length = 255,
        pattern = "^[^\\x00-\\x1f\\x7f]*$",
        example = "maps-nightly",
        nullable = false
    )]
    pub name: Option<String>,
    /// Only what carries these labels: `team=maps,tier!=test,owner`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[^\\x00-\\x1f\\x7f]*$", example = "team=maps", nullable = false)]
    pub label_selector: Option<String>,
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}

/// How long to wait for a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Answer when it has come up or failed, or after so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, maximum = 60, example = 30, nullable = false)]
    pub wait: Option<u32>,
}

/// The snapshot that takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotSwap {
    /// Its name.
    #[schema(
        max_length = 63,
        pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        examples("with-maps-installed")
    )]
    pub snapshot: String,
}
