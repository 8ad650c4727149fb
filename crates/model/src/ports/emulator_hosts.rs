//! The door to running devices.
//!
//! Every verb is idempotent. Devices outlive this process: a host that starts again finds those that still run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::broadcast;

use super::disk_pools::Volume;
use super::drivers::DriverResult;
use crate::Timestamp;
use crate::emulators::{DeviceType, EmulatorId};

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

/// How a device is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub emulator: EmulatorId,
    /// Rises with every restart; a device of an older one is replaced.
    pub incarnation: i64,
    pub name: String,
    pub image: String,
    pub volume: Volume,
    pub identity: DeviceIdentity,
    /// Lines of `adbkey.pub` that are let in; none lets everyone in who reaches the address.
    pub adb_keys: Vec<String>,
    /// Its own loopback address; ADB answers there on port 5555.
    pub address: Ipv4Addr,
    pub memory_bytes: i64,
    pub cpus: i64,
}

/// What there is of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub incarnation: i64,
    pub phase: Phase,
    pub since: Timestamp,
}

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
}

/// A way into a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    Adb,
    /// RFB, as VNC clients speak it.
    Display,
    /// Lines of JSON, one a log entry.
    Log,
}

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

#[async_trait]
pub trait EmulatorHost: Send + Sync + 'static {
    /// Takes the image of a profile file into keeping, with the files it names.
    async fn ensure_image(&self, profile: &Path) -> DriverResult<Image>;

    /// Has the device run as said; one that has ended is started anew. Returns once it is started, long before it is up.
    /// An incarnation older than the one that is there is refused with `stale_incarnation`.
    async fn ensure(&self, launch: &Launch) -> DriverResult<()>;

    /// Nothing when there is no trace of it.
    async fn observe(&self, emulator: EmulatorId) -> DriverResult<Option<Observed>>;

    /// Every device of which there is a trace, also those that nobody asked for.
    async fn list(&self) -> DriverResult<Vec<EmulatorId>>;

    /// Stops the device, in order if it answers in time, and removes every trace of it but its volume.
    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()>;

    /// Asks the device itself.
    async fn inspect(&self, emulator: EmulatorId) -> DriverResult<DeviceState>;

    async fn open(&self, emulator: EmulatorId, channel: Channel) -> DriverResult<Box<dyn ByteStream>>;

    /// Tells of devices that may have changed.
    fn changes(&self) -> broadcast::Receiver<EmulatorId>;
}
