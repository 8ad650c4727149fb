//! Devices: what an emulator is made of, and what it says of itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceType {
    Phone,
    Tablet,
    Automotive,
    Tv,
    Wear,
}

impl DeviceType {
    pub const ALL: [DeviceType; 5] =
        [DeviceType::Phone, DeviceType::Tablet, DeviceType::Automotive, DeviceType::Tv, DeviceType::Wear];

    pub const fn name(self) -> &'static str {
        match self {
            DeviceType::Phone => "phone",
            DeviceType::Tablet => "tablet",
            DeviceType::Automotive => "automotive",
            DeviceType::Tv => "tv",
            DeviceType::Wear => "wear",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        DeviceType::ALL.into_iter().find(|kind| kind.name() == text)
    }
}

/// The API level of an Android version, as apps know it.
pub fn api_level(version: &str) -> Option<i64> {
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some(match (major.parse().ok()?, minor) {
        (12, "1") => 32,
        (10 | 11, _) => 19 + major.parse::<i64>().ok()?,
        (12, _) => 31,
        (known @ 13..=16, _) => 20 + known,
        (9, _) => 28,
        _ => return None,
    })
}

/// An image that the host has taken into keeping: what a disk needs besides itself to boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Names it at this host; another build of the image has another name.
    pub name: String,
    pub device_type: DeviceType,
    pub android_version: String,
    pub abi: String,
    pub memory_bytes: i64,
    pub cpus: i64,
    /// Whether the device has a vehicle and an agent that reports its readiness.
    pub capabilities: Vec<String>,
    /// The disk image that came with it, to be brought into a pool.
    pub disk: PathBuf,
}

impl Image {
    /// Whether its devices need a car of ours: they are automotive, and bring none themselves.
    pub fn needs_vehicle(&self) -> bool {
        self.device_type == DeviceType::Automotive
            && !self.capabilities.iter().any(|capability| capability == BRINGS_VEHICLE)
    }
}

/// What an image says of itself that has a car inside.
pub const BRINGS_VEHICLE: &str = "vehicleServer";

/// Who a device is; no two devices are the same unless somebody asked for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    pub serial: String,
    /// 16 hexadecimal digits.
    pub android_id: String,
    /// 32 hexadecimal digits.
    pub machine_id: String,
    /// `52:54:00:12:34:56`.
    pub mac: String,
    /// 32 bytes in hexadecimal digits, mixed into the device's generator at every start. A secret.
    pub seed: String,
    /// Vehicle identification number; automotive devices only.
    pub vin: Option<String>,
}

/// What there is of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub incarnation: i64,
    pub phase: Phase,
    pub since: Timestamp,
}

/// The code of a device that was about to be started and never was, because the host's process ended in between.
pub const NOT_STARTED: &str = "not_started";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It runs, and has not said that it is up.
    Booting,
    /// Up, and ADB answers.
    Ready { boot_duration: Duration },
    /// It stands still until something is done, such as making room in the pool.
    Paused { code: &'static str, message: String },
    /// It runs, but does not answer.
    Silent,
    /// It runs no more.
    Exited { code: &'static str, message: String },
}

/// What a device says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    pub uptime: Duration,
    /// How far its clock is from ours.
    pub clock_offset_ms: i64,
    pub adb_connections: i64,
    pub memory_total_bytes: i64,
    pub memory_available_bytes: i64,
    pub disk_total_bytes: i64,
    pub disk_available_bytes: i64,
    pub properties: BTreeMap<String, String>,
    /// None where the device does not say.
    pub vehicle: Option<VehicleLink>,
}

/// How a device stands to its car, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VehicleLink {
    Connected,
    /// It tries.
    Connecting,
    /// It was told of none.
    Absent,
}

impl VehicleLink {
    pub const fn name(self) -> &'static str {
        match self {
            VehicleLink::Connected => "connected",
            VehicleLink::Connecting => "connecting",
            VehicleLink::Absent => "absent",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [VehicleLink::Connected, VehicleLink::Connecting, VehicleLink::Absent]
            .into_iter()
            .find(|link| link.name() == text)
    }
}
