//! The door to running devices.
//!
//! Every verb is idempotent. Devices outlive this process: a host that starts again finds those that still run.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::broadcast;

use super::DriverResult;
use super::disk_pools::{Integrity, Volume};
use crate::devices::{DeviceIdentity, DeviceState, Image, Observed};
use crate::emulators::EmulatorId;
use crate::templates::{TemplateFacts, TemplateId};

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
    /// The memory to resume from instead of booting; the volume is a clone of the disk that was taken with it, and nobody has
    /// written to it yet.
    pub template: Option<TemplateId>,
    /// The socket of its car, which need not be there yet; none for a device without one.
    pub vehicle: Option<PathBuf>,
}

/// A way into a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    Adb,
    /// RFB, as VNC clients speak it.
    Display,
    /// Lines of JSON, one a log entry.
    Log,
    /// HTTP/2, as the VehicleServer speaks it that an image brings itself.
    Vehicle,
}

/// A part of what a device has written to its serial port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Console {
    pub bytes: Vec<u8>,
    /// Where the next part begins.
    pub next: u64,
    /// So many bytes before these are gone.
    pub lost: u64,
    /// Nothing will follow: the device of this incarnation has ended, or was never there.
    pub ended: bool,
}

/// What a captured disk can be trusted to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// As after a power cut: the device's journal is replayed at the next start.
    Crash,
    /// The device held still: everything it had written is there.
    Filesystem,
}

impl Consistency {
    pub const fn name(self) -> &'static str {
        match self {
            Consistency::Crash => "crash",
            Consistency::Filesystem => "filesystem",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Consistency::Crash, Consistency::Filesystem].into_iter().find(|each| each.name() == text)
    }
}

/// A device's move from one disk to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    pub emulator: EmulatorId,
    /// What it writes to now.
    pub from: Volume,
    /// What it is to write to, standing on `from`.
    pub to: Volume,
    /// How long the device may be held still.
    pub patience: Duration,
    /// The memory of the same moment is kept under this name, if that is possible; the move does not depend on it.
    pub memory: Option<TemplateId>,
}

/// What lies at a host of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTemplate {
    pub id: TemplateId,
    pub allocated_bytes: i64,
}

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The TCP connection whose bytes these are, where nothing is made of them on the way.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl ByteStream for TcpStream {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

impl ByteStream for UnixStream {}
impl ByteStream for DuplexStream {}

#[async_trait]
pub trait EmulatorHost: Send + Sync + 'static {
    /// Takes the image of a profile file into keeping, with the files it names.
    async fn ensure_image(&self, profile: &Path) -> DriverResult<Image>;

    /// Has the device run as said; one that has ended is started anew. Returns once it is started, long before it is up.
    /// An incarnation older than the one that is there is refused with `stale_incarnation`. One that cannot resume from its
    /// template ends with `not_resumed`; it may then be asked for again without one.
    async fn ensure(&self, launch: &Launch) -> DriverResult<()>;

    /// Nothing when there is no trace of it.
    async fn observe(&self, emulator: EmulatorId) -> DriverResult<Option<Observed>>;

    /// Every device of which there is a trace, also those that nobody asked for.
    async fn list(&self) -> DriverResult<Vec<EmulatorId>>;

    /// Stops the device, in order if it answers in time. What it has said can still be read.
    async fn stop(&self, emulator: EmulatorId) -> DriverResult<()>;

    /// Stops the device and removes every trace of it but its volume.
    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()>;

    /// Asks the device itself.
    async fn inspect(&self, emulator: EmulatorId) -> DriverResult<DeviceState>;

    /// Has a running device write to another disk from now on, without its noticing; one that does so already is told
    /// of as `Crash`, for nobody knows how it came there. When this fails the device runs on, on the disk that `volume` tells.
    async fn switch(&self, switch: &Switch) -> DriverResult<Consistency>;

    /// The disk that a running device writes to, as it says itself; nothing when it does not run.
    async fn volume(&self, emulator: EmulatorId) -> DriverResult<Option<Volume>>;

    /// Makes what clones resume from of the memory that a switch has kept. Refused for ever where it has kept none.
    async fn ensure_template(&self, template: TemplateId) -> DriverResult<TemplateFacts>;

    /// Reads the whole template and compares it with what was recorded.
    async fn verify_template(&self, template: TemplateId) -> DriverResult<Integrity>;

    /// Also what is only a part of one. Devices that have resumed from it do not mind.
    async fn remove_template(&self, template: TemplateId) -> DriverResult<()>;

    /// Every template of which there is a trace.
    async fn templates(&self) -> DriverResult<Vec<HostTemplate>>;

    async fn open(&self, emulator: EmulatorId, channel: Channel) -> DriverResult<Box<dyn ByteStream>>;

    /// What an incarnation has written to its console from this byte on. Waits until there is something, or will be nothing.
    async fn console(&self, emulator: EmulatorId, incarnation: i64, from: u64) -> DriverResult<Console>;

    /// Tells of devices that may have changed.
    fn changes(&self) -> broadcast::Receiver<EmulatorId>;
}
