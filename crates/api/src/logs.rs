//! Logs: what an emulator and its device have said, as a stream of events.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::emulators::{EmulatorStatus, StatusReason};

/// Who said a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    Console,
    Logcat,
    Lifecycle,
}

/// How grave a line is, the least grave first. The console's are all `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Verbose,
    Debug,
    Info,
    Warn,
    Error,
    Fatal,
}

/// The data of an event `log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEvent {
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000Z"))]
    pub ts: String,
    pub source: LogSource,
    pub level: LogLevel,
    #[schema(max_length = 8192, pattern = "^[^\\n]*$", examples("init: up"))]
    pub line: String,
    /// Which start of the device it is about.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1))]
    pub incarnation: i64,
    /// Android's log only.
    #[schema(max_length = 128, pattern = "^[^\\n]*$", examples("ActivityManager"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Android's log only.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(117))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// Android's log only.
    #[schema(max_length = 128, pattern = "^[^\\n]*$", examples("main"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
}

/// The data of an event `status`: where the emulator is in its life from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusEvent {
    #[schema(format = DateTime, max_length = 35, examples("2026-11-15T04:00:00.000Z"))]
    pub ts: String,
    pub status: EmulatorStatus,
    #[schema(required)]
    pub status_reason: Option<StatusReason>,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1))]
    pub incarnation: i64,
}

/// The data of an event `gap`: something is missing here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GapEvent {
    /// How many events, or lines of a source; none where only bytes can be counted.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(42), required)]
    pub dropped: Option<u64>,
    /// The source that lost them before they could be read; without it, they were kept no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LogSource>,
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(4096))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_bytes: Option<u64>,
    /// Which start of the device it is about, where a source lost something.
    #[schema(minimum = 0, maximum = 9007199254740991_i64, examples(1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<i64>,
}

/// Why a stream ends: the emulator is gone (`terminated`), there is nothing more and you did not want to wait (`complete`), your
/// credential or your right is over, or the server stops; then come again, with the last id that you have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEnd {
    Terminated,
    Complete,
    CredentialExpired,
    PermissionLost,
    DeviceGone,
    ServerGoingAway,
    Failed,
}

/// The data of an event `end`: nothing follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndEvent {
    pub reason: LogEnd,
}

/// The data of one event; its name (`event:`) says which of these it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LogStreamEvent {
    Log(LogEvent),
    Status(StatusEvent),
    Gap(GapEvent),
    End(EndEvent),
}

/// Which part of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReadLogs {
    /// Whether to go on with what is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(default = true, example = false, nullable = false)]
    pub follow: Option<bool>,
    /// Of the lines that are there, only so many of the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, maximum = 10000, example = 100, nullable = false)]
    pub tail: Option<u32>,
    /// Only what was said from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(format = DateTime, max_length = 35, example = "2026-11-15T00:00:00Z", nullable = false)]
    pub since: Option<String>,
    /// Only lines of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub source: Option<LogSource>,
    /// Only lines that are at least so grave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, nullable = false)]
    pub level: Option<LogLevel>,
    /// The same as the header `Last-Event-ID`, for tools that cannot send it.
    #[serde(rename = "after", skip_serializing_if = "Option::is_none")]
    #[param(minimum = 0, maximum = 9007199254740991_i64, example = 1099511627817_i64, nullable = false)]
    pub last_event_id: Option<i64>,
}
