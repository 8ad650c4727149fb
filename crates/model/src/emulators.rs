//! Emulators: devices that run. What is wanted and what is are kept apart; the status follows from both.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ci::{Ending, Job};
use crate::devices::{DeviceIdentity, DeviceType, NOT_STARTED, Observed, Phase};
use crate::labels::{LabelSelector, Labels};
use crate::layers::DiskId;
use crate::permissions::Object;
use crate::ports::Random;
use crate::scopes::Scope;
use crate::slug::Slug;
use crate::subjects::Subject;
use crate::templates::{NOT_RESUMED, TemplateId};
use crate::tenants::TenantId;

crate::id!(EmulatorId, "emu");

impl EmulatorId {
    pub fn object(self) -> Object {
        Object::new("emulator", self)
    }
}

macro_rules! named {
    ($type:ident: $($variant:ident = $name:literal),* $(,)?) => {
        impl $type {
            pub const ALL: &[$type] = &[$($type::$variant),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($name => Some($type::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

/// What its owner wants of an emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wanted {
    Running,
    /// No compute, the disk kept.
    Parked,
    Gone,
}

named! { Wanted: Running = "running", Parked = "parked", Gone = "gone" }

/// Why the device was started for the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    Deploy,
    Restart,
    /// Another snapshot's clone takes over, or the old disk comes back.
    Swap,
}

named! { Cause: Deploy = "deploy", Restart = "restart", Swap = "swap" }

/// What the host has seen of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Seen {
    None,
    Booting,
    Ready,
    Paused,
    Silent,
    Exited,
}

named! {
    Seen: None = "none", Booting = "booting", Ready = "ready", Paused = "paused", Silent = "silent", Exited = "exited",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
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

named! {
    Status: Provisioning = "provisioning", Running = "running", Restarting = "restarting", Swapping = "swapping",
    Parked = "parked", Unreachable = "unreachable", Failed = "failed", Terminating = "terminating", Terminated = "terminated",
}

/// What a caller may ask of an emulator in a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Restart,
    Swap,
    Capture,
    Park,
    Wake,
    Delete,
}

named! {
    Action: Restart = "restart", Swap = "swap", Capture = "capture", Park = "park", Wake = "wake", Delete = "delete",
}

impl Status {
    pub const fn actions(self) -> &'static [Action] {
        match self {
            Status::Provisioning | Status::Restarting | Status::Swapping => &[Action::Delete],
            Status::Running => {
                &[Action::Restart, Action::Swap, Action::Capture, Action::Park, Action::Delete]
            }
            // A device that does not answer is mended by a restart, too.
            Status::Unreachable => &[Action::Restart, Action::Delete],
            Status::Failed => &[Action::Restart, Action::Swap, Action::Capture, Action::Delete],
            Status::Parked => &[Action::Capture, Action::Wake, Action::Delete],
            Status::Terminating | Status::Terminated => &[],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulator {
    pub id: EmulatorId,
    pub tenant: TenantId,
    pub owner: Subject,
    pub name: String,
    pub labels: Labels,
    pub device_type: DeviceType,
    pub android_version: String,
    pub memory_bytes: i64,
    pub cpus: i64,
    pub snapshot: Slug,
    pub snapshot_parent: Option<Slug>,
    /// At the host.
    pub image: String,
    pub disk: DiskId,
    /// What it goes back to if a swap does not come up.
    pub previous: Option<Footing>,
    /// A disk that nobody needs any more.
    pub discarded: Option<DiskId>,
    /// The snapshot that is being captured of it; until then its disk is neither made, used nor removed anew.
    pub capturing: Option<Slug>,
    /// The job that it was started for.
    pub job: Option<Job>,
    pub identity: DeviceIdentity,
    /// Which of the loopback addresses is its own; none once it is gone.
    pub slot: Option<i64>,
    pub wanted: Wanted,
    pub incarnation: i64,
    pub cause: Cause,
    pub seen: Seen,
    pub seen_incarnation: i64,
    pub seen_since: Timestamp,
    pub disk_ready_at: Option<Timestamp>,
    /// When the host was told to start this incarnation.
    pub started_at: Option<Timestamp>,
    pub boot_duration_ms: Option<i64>,
    /// Given up; only a restart or the end helps.
    pub failed_at: Option<Timestamp>,
    pub reason: Option<Reason>,
    pub unsettled: bool,
    pub due_at: Timestamp,
    pub failures: i64,
    pub expires_at: Option<Timestamp>,
    pub idle_timeout_seconds: Option<i64>,
    pub active_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub terminated_at: Option<Timestamp>,
    pub generation: i64,
    #[serde(default)]
    pub start: Start,
    /// The incarnation that its car came with: a swap brings another. None where it has no car, or brings one of its own.
    #[serde(default)]
    pub vehicle: Option<i64>,
}

/// How this incarnation comes up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The memory that it is to resume from, which fits its disk only as long as nobody has written to that; none if it boots, and
    /// once it has resumed.
    pub template: Option<TemplateId>,
    /// Once it is known.
    pub kind: Option<StartKind>,
    /// Why it boots although there was memory to resume from.
    pub reason: Option<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// It went on where the device that was captured stood.
    Warm,
    Cold,
}

/// Why the status is what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

impl Reason {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Reason { code: code.to_owned(), message: message.into() }
    }
}

/// What an emulator stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footing {
    pub snapshot: Slug,
    pub snapshot_parent: Option<Slug>,
    pub image: String,
    pub android_version: String,
    pub disk: DiskId,
    #[serde(default)]
    pub vehicle: Option<i64>,
}

/// What a loop does next for an emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    MakeDisk,
    Start,
    /// Stops what runs of it.
    Stop,
    RemoveDisk,
    /// Removes the disk that nobody needs any more.
    Discard,
    /// The swap has come up: the disk before it is not needed any more.
    Keep,
    /// The swap has not come up: the disk before it takes over again.
    SwapBack(Reason),
    /// Everything is gone: the record becomes a tombstone.
    Finish,
    GiveUp(Reason),
    /// Nothing before this time, unless something changes.
    Wait(Timestamp),
    /// Everything is as wanted.
    Settle,
}

/// The code of a reason that a swap leaves behind.
pub const SWAP_FAILED: &str = "swap_failed";
/// The code of a reason that a device gives while it waits for its last capture.
pub const CAPTURING: &str = "capturing";
const CAPTURE_LOOKED_AT: Duration = Duration::from_secs(10);

impl Emulator {
    pub fn status(&self) -> Status {
        match self.wanted {
            Wanted::Gone if self.terminated_at.is_some() => Status::Terminated,
            Wanted::Gone => Status::Terminating,
            Wanted::Parked => Status::Parked,
            Wanted::Running if self.failed_at.is_some() => Status::Failed,
            Wanted::Running if self.seen_incarnation < self.incarnation => self.starting(),
            Wanted::Running => match self.seen {
                Seen::None | Seen::Booting => self.starting(),
                Seen::Ready => Status::Running,
                Seen::Paused | Seen::Silent => Status::Unreachable,
                // The old disk is about to come back.
                Seen::Exited if self.previous.is_some() => Status::Swapping,
                Seen::Exited => Status::Failed,
            },
        }
    }

    const fn starting(&self) -> Status {
        match self.cause {
            Cause::Deploy => Status::Provisioning,
            Cause::Restart => Status::Restarting,
            Cause::Swap => Status::Swapping,
        }
    }

    /// From what is wanted and what is, without looking anywhere else. Time in which nobody watched is no time to boot.
    pub fn next_step(&self, boot_deadline: Duration, watched_since: Timestamp, now: Timestamp) -> Step {
        if self.is_captured_last() {
            return Step::Wait(now + CAPTURE_LOOKED_AT);
        }
        let started = self.started_at.unwrap_or(self.updated_at);
        let step = self.step(boot_deadline, started.max(watched_since) + boot_deadline, now);
        let touches_a_disk = matches!(
            step,
            Step::MakeDisk | Step::Start | Step::RemoveDisk | Step::Discard | Step::Keep | Step::Finish
        );
        match step {
            // Of a device that does not answer nobody learns where it writes, so the capture waits for its end.
            Step::Start if self.capturing.is_some() && self.seen == Seen::Silent => Step::Stop,
            // The end of the capture wakes it; should that be missed, it is looked at again all the same.
            _ if touches_a_disk && self.capturing.is_some() => Step::Wait(now + CAPTURE_LOOKED_AT),
            Step::GiveUp(reason) if self.previous.is_some() => Step::SwapBack(reason),
            step => step,
        }
    }

    fn step(&self, boot_deadline: Duration, deadline: Timestamp, now: Timestamp) -> Step {
        let runs = self.seen != Seen::None;
        match self.wanted {
            Wanted::Gone if self.terminated_at.is_some() => Step::Settle,
            Wanted::Gone | Wanted::Parked if runs => Step::Stop,
            Wanted::Gone if self.discarded.is_some() => Step::Discard,
            Wanted::Gone if self.previous.is_some() => Step::Keep,
            Wanted::Gone if self.disk_ready_at.is_some() => Step::RemoveDisk,
            Wanted::Gone => Step::Finish,
            Wanted::Parked if self.discarded.is_some() => Step::Discard,
            Wanted::Parked => Step::Settle,
            Wanted::Running if self.failed_at.is_some() => {
                if runs {
                    Step::Stop
                } else if self.discarded.is_some() {
                    Step::Discard
                } else {
                    Step::Settle
                }
            }
            Wanted::Running if self.disk_ready_at.is_none() => Step::MakeDisk,
            Wanted::Running if self.seen == Seen::None || self.seen_incarnation < self.incarnation => {
                Step::Start
            }
            // What runs is of this incarnation: nobody has the disk of an earlier one open.
            Wanted::Running if self.discarded.is_some() => Step::Discard,
            Wanted::Running => match self.seen {
                Seen::Booting if now < deadline => Step::Wait(deadline),
                Seen::Booting => {
                    let message = format!("It was not up after {} s.", boot_deadline.as_secs());
                    Step::GiveUp(Reason::new("boot_timeout", message))
                }
                Seen::Exited => {
                    let reason = self.reason.clone();
                    Step::GiveUp(
                        reason.unwrap_or_else(|| Reason::new("exited", "The device ended by itself.")),
                    )
                }
                Seen::Ready if self.previous.is_some() => Step::Keep,
                Seen::None | Seen::Ready | Seen::Paused | Seen::Silent => Step::Settle,
            },
        }
    }

    /// As it stands once the host was looked at.
    #[must_use]
    pub fn with_observation(self, observed: Option<&Observed>, now: Timestamp) -> Self {
        let Some(observed) = observed else {
            let started =
                self.seen != Seen::None && self.wanted == Wanted::Running && self.failed_at.is_none();
            // It was there, nobody asked for its end, and there is no trace of it: that is an end, too.
            let lost = started && self.seen_incarnation == self.incarnation && self.seen != Seen::Exited;
            let seen = if lost { Seen::Exited } else { Seen::None };
            let reason = if lost {
                Some(Reason::new("lost", "The device is not there any more. Restart it; its disk is kept."))
            } else {
                self.reason.clone()
            };
            return self.seen_as(seen, None, reason, now);
        };
        // Nothing is lost: the same disk boots.
        if let Phase::Exited { code, message } = &observed.phase
            && *code == NOT_RESUMED
            && observed.incarnation == self.incarnation
            && self.wanted == Wanted::Running
            && self.failed_at.is_none()
        {
            // Whoever looks again before it is started finds this already said.
            let known = self.start.template.is_none();
            let start = Start { template: None, kind: None, reason: Some(Reason::new(NOT_RESUMED, message)) };
            let boots = if known { self } else { Emulator { start, started_at: None, ..self } };
            return boots.seen_as(Seen::None, Some(observed.incarnation), None, now);
        }
        let never_seen = self.seen == Seen::None || self.seen_incarnation < self.incarnation;
        let (seen, reason) = match &observed.phase {
            // The server ended between the intent and the act. Nothing has run, so it is simply started.
            Phase::Exited { code, .. }
                if *code == NOT_STARTED
                    && never_seen
                    && self.wanted == Wanted::Running
                    && self.failed_at.is_none() =>
            {
                (Seen::None, None)
            }
            Phase::Booting => (Seen::Booting, None),
            Phase::Ready { .. } => (Seen::Ready, None),
            Phase::Paused { code, message } => (Seen::Paused, Some(Reason::new(code, message))),
            Phase::Silent => {
                (Seen::Silent, Some(Reason::new("silent", "The device runs but does not answer.")))
            }
            Phase::Exited { code, message } => (Seen::Exited, Some(Reason::new(code, message))),
        };
        // Why it ends is known where its end was wanted; what it does meanwhile is no reason, nor what an earlier start did.
        let past = observed.incarnation < self.incarnation;
        let known = past || self.failed_at.is_some() || self.wanted != Wanted::Running;
        // Why a swap failed is of interest for as long as the device runs on its old disk.
        let swap = || self.reason.clone().filter(|reason| reason.code == SWAP_FAILED);
        let reason = if known { self.reason.clone() } else { reason.or_else(swap) };
        let boot = match observed.phase {
            Phase::Ready { boot_duration } => i64::try_from(boot_duration.as_millis()).ok(),
            _ => self.boot_duration_ms,
        };
        let start = match observed.phase {
            Phase::Ready { .. } if !past && self.start.kind.is_none() => Start {
                template: None,
                kind: Some(match self.start.template {
                    Some(_) => StartKind::Warm,
                    None => StartKind::Cold,
                }),
                ..self.start.clone()
            },
            _ => self.start.clone(),
        };
        let emulator = Emulator { boot_duration_ms: boot, start, ..self };
        emulator.seen_as(seen, Some(observed.incarnation), reason, now)
    }

    fn seen_as(self, seen: Seen, incarnation: Option<i64>, reason: Option<Reason>, now: Timestamp) -> Self {
        let incarnation = incarnation.unwrap_or(self.seen_incarnation);
        let changed = (seen, incarnation) != (self.seen, self.seen_incarnation);
        Emulator {
            seen,
            seen_incarnation: incarnation,
            seen_since: if changed { now } else { self.seen_since },
            reason,
            unsettled: self.unsettled || changed,
            due_at: if changed { now } else { self.due_at },
            ..self
        }
    }

    /// A new start of the same device on the same disk.
    #[must_use]
    pub fn restarted(self, now: Timestamp) -> Self {
        Emulator {
            wanted: Wanted::Running,
            incarnation: self.incarnation + 1,
            cause: Cause::Restart,
            failed_at: None,
            reason: None,
            started_at: None,
            boot_duration_ms: None,
            start: Start::default(),
            ..self.changed(now)
        }
    }

    /// A clone of another snapshot takes over; what it stands on now is kept until that is up.
    #[must_use]
    pub fn swapped(self, to: Footing, template: Option<TemplateId>, now: Timestamp) -> Self {
        let from = self.footing();
        let restarted = self.restarted(now);
        let to = Footing { vehicle: to.vehicle.map(|_| restarted.incarnation), ..to };
        Emulator {
            cause: Cause::Swap,
            previous: Some(from),
            disk_ready_at: None,
            start: Start { template, ..Start::default() },
            ..restarted.standing_on(to)
        }
    }

    /// What it stood on before takes over again, and the reason is kept.
    #[must_use]
    pub fn swapped_back(self, reason: &Reason, now: Timestamp) -> Self {
        let Some(previous) = self.previous.clone() else { return self };
        let message = format!("{} did not come up: {}", self.snapshot, reason.message);
        let discarded = Some(self.disk);
        let restarted = self.restarted(now);
        Emulator {
            cause: Cause::Swap,
            previous: None,
            discarded,
            disk_ready_at: Some(now),
            reason: Some(Reason::new(SWAP_FAILED, message)),
            ..restarted.standing_on(previous)
        }
    }

    fn footing(&self) -> Footing {
        Footing {
            snapshot: self.snapshot.clone(),
            snapshot_parent: self.snapshot_parent.clone(),
            image: self.image.clone(),
            android_version: self.android_version.clone(),
            disk: self.disk,
            vehicle: self.vehicle,
        }
    }

    fn standing_on(self, footing: Footing) -> Self {
        let Footing { snapshot, snapshot_parent, image, android_version, disk, vehicle } = footing;
        Emulator { snapshot, snapshot_parent, image, android_version, disk, vehicle, ..self }
    }

    /// The compute is given back, the disk stays.
    #[must_use]
    pub fn parked(self, now: Timestamp) -> Self {
        Emulator { wanted: Wanted::Parked, reason: None, ..self.changed(now) }
    }

    #[must_use]
    pub fn woken(self, now: Timestamp) -> Self {
        let woken = self.restarted(now);
        Emulator { cause: Cause::Deploy, ..woken }
    }

    #[must_use]
    pub fn removed(self, reason: Option<Reason>, now: Timestamp) -> Self {
        Emulator { wanted: Wanted::Gone, reason, ..self.changed(now) }
    }

    fn changed(self, now: Timestamp) -> Self {
        Emulator { unsettled: true, due_at: now, failures: 0, active_at: now, updated_at: now, ..self }
    }

    /// From here on it may stand on another disk: what is being captured of it is done or given up.
    #[must_use]
    pub fn captured(self, disk: DiskId, now: Timestamp) -> Self {
        // That it waits for its capture is no reason any more.
        let reason = self.reason.clone().filter(|reason| reason.code != CAPTURING);
        Emulator { disk, capturing: None, reason, unsettled: true, due_at: now, updated_at: now, ..self }
    }

    /// Whether it is to go, but only when what its job asked for has been captured of it or was given up.
    pub fn is_captured_last(&self) -> bool {
        let awaited = self.job.as_ref().and_then(|job| job.ending.as_ref()).and_then(Ending::awaited);
        self.wanted == Wanted::Gone && awaited.is_some() && awaited == self.capturing.as_ref()
    }

    pub fn object(&self) -> Object {
        self.id.object()
    }

    /// When nobody has used it for too long.
    pub fn idle_at(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.idle_timeout_seconds?).ok()?;
        Some(self.active_at + Duration::from_secs(seconds))
    }
}

/// The loopback address of a slot: 127.80.0.1 is the first.
pub fn address_of(slot: i64) -> Ipv4Addr {
    const FIRST: u32 = u32::from_be_bytes([127, 80, 0, 0]);
    Ipv4Addr::from(FIRST + u32::try_from(slot).unwrap_or(0))
}

/// The slot of a loopback address, if it is one that a device may have.
pub fn slot_of(address: Ipv4Addr) -> Option<i64> {
    let slot = i64::from(u32::from(address)) - i64::from(u32::from(address_of(0)));
    (1..=SLOTS).contains(&slot).then_some(slot)
}

/// As many addresses as there are from 127.80.0.1 to 127.95.255.254.
pub const SLOTS: i64 = (16 << 16) - 2;

/// Who a clone is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdentityMode {
    /// Someone new.
    #[default]
    Regenerate,
    /// The same for the same seed, whenever and wherever it is asked for.
    Keep { seed: String },
}

/// 32 bytes from which everything that makes a device itself is drawn.
pub fn identity(bytes: &[u8; 32], seed: &[u8; 32], device_type: DeviceType) -> DeviceIdentity {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Locally administered, and QEMU's own prefix is left to QEMU.
    let mac = format!(
        "02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
        bytes[24], bytes[25], bytes[26], bytes[27], bytes[28]
    );
    let vin = (device_type == DeviceType::Automotive).then(|| vin(&bytes[8..32]));
    DeviceIdentity {
        serial: format!("PDK{}", hex(&bytes[..6]).to_uppercase()),
        android_id: hex(&bytes[6..14]),
        machine_id: hex(&bytes[8..24]),
        mac,
        seed: hex(seed),
        vin,
    }
}

/// Seventeen letters with the check digit in the ninth place (ISO 3779); `1PD` is nobody's.
fn vin(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHJKLMNPRSTUVWXYZ";
    const WEIGHTS: [u32; 17] = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
    let mut vin: Vec<u8> = b"1PD".to_vec();
    vin.extend(bytes.iter().take(14).map(|byte| LETTERS[*byte as usize % LETTERS.len()]));
    let value = |letter: u8| match letter {
        b'0'..=b'9' => u32::from(letter - b'0'),
        b'A'..=b'H' => u32::from(letter - b'A') + 1,
        b'J'..=b'N' => u32::from(letter - b'J') + 1,
        b'P' => 7,
        b'R' => 9,
        _ => u32::from(letter - b'S') + 2,
    };
    let sum: u32 = vin.iter().zip(WEIGHTS).map(|(letter, weight)| value(*letter) * weight).sum();
    vin[8] = b"0123456789X"[sum as usize % 11];
    vin.into_iter().map(char::from).collect()
}

/// Fresh bytes for an identity that nobody else has.
pub fn fresh(random: &dyn Random) -> [u8; 32] {
    let mut bytes = [0; 32];
    random.fill(&mut bytes);
    bytes
}

/// Which emulators a caller may see: all of some tenants, its own in others, and those that were granted to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulatorScope {
    pub all_of: Scope,
    pub owner: Subject,
    pub own_in: Scope,
    pub granted: Vec<EmulatorId>,
}

impl EmulatorScope {
    pub fn covers(&self, emulator: &Emulator) -> bool {
        self.all_of.covers(emulator.tenant)
            || self.own_in.covers(emulator.tenant)
                && (emulator.owner == self.owner || self.granted.contains(&emulator.id))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmulatorFilter {
    pub tenant: Option<TenantId>,
    pub status: Option<Status>,
    pub snapshot: Option<String>,
    pub name: Option<String>,
    pub labels: LabelSelector,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{LastCapture, Outcome};

    const BOOT: Duration = Duration::from_secs(120);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// One that runs since it was started at ten seconds.
    fn running() -> Emulator {
        Emulator {
            id: EmulatorId(Default::default()),
            tenant: TenantId(Default::default()),
            owner: Subject::ServiceAccount("cluster/ci/runner".into()),
            name: "phone".to_owned(),
            labels: Labels::default(),
            device_type: DeviceType::Phone,
            android_version: "14".to_owned(),
            memory_bytes: 1 << 28,
            cpus: 1,
            snapshot: Slug::parse("base").expect("a name"),
            snapshot_parent: None,
            image: "phone".to_owned(),
            disk: DiskId(Default::default()),
            previous: None,
            discarded: None,
            capturing: None,
            job: None,
            identity: identity(&[0; 32], &[0; 32], DeviceType::Phone),
            slot: Some(1),
            wanted: Wanted::Running,
            incarnation: 1,
            cause: Cause::Deploy,
            seen: Seen::Ready,
            seen_incarnation: 1,
            seen_since: at(15),
            disk_ready_at: Some(at(9)),
            started_at: Some(at(10)),
            boot_duration_ms: Some(5000),
            failed_at: None,
            reason: None,
            unsettled: false,
            due_at: at(10),
            failures: 0,
            expires_at: None,
            idle_timeout_seconds: None,
            active_at: at(15),
            created_at: at(8),
            updated_at: at(15),
            terminated_at: None,
            generation: 1,
            start: Start::default(),
            vehicle: None,
        }
    }

    #[test]
    fn while_it_is_captured_a_device_may_end_and_no_disk_is_touched() {
        let now = at(20);
        let capturing = || Emulator { capturing: Slug::parse("taken"), ..running() };
        let seen = |emulator: Emulator, seen| Emulator { seen, ..emulator };
        let held = Step::Wait(now + CAPTURE_LOOKED_AT);
        for (what, emulator, step) in [
            ("it runs", capturing(), Step::Settle),
            (
                "it has ended",
                seen(capturing(), Seen::Exited),
                Step::GiveUp(Reason::new("exited", "The device ended by itself.")),
            ),
            ("it is to go and runs", capturing().removed(None, now), Step::Stop),
            ("it is to go", seen(capturing().removed(None, now), Seen::None), held.clone()),
            ("it is parked and runs", capturing().parked(now), Step::Stop),
            ("it is parked", seen(capturing().parked(now), Seen::None), Step::Settle),
            ("it is woken", seen(capturing().parked(now).woken(now), Seen::None), held.clone()),
            ("it is restarted", capturing().restarted(now), held.clone()),
            ("it has ended and is restarted", seen(capturing().restarted(now), Seen::Exited), held.clone()),
            // Nobody would ever learn where it writes: its end lets both go on.
            (
                "it does not answer and is restarted",
                seen(capturing().restarted(now), Seen::Silent),
                Step::Stop,
            ),
            ("it was stopped and is restarted", seen(capturing().restarted(now), Seen::None), held),
            ("it does not answer and nobody minds", seen(capturing(), Seen::Silent), Step::Settle),
            ("the capture is over", running().restarted(now), Step::Start),
        ] {
            assert_eq!(emulator.next_step(BOOT, at(0), now), step, "{what}");
        }
    }

    #[test]
    fn a_device_that_its_job_has_captured_last_goes_when_that_is_over() {
        let now = at(20);
        let slug = |name: &str| Slug::parse(name).expect("a name");
        let ended = |capture| Job {
            context: None,
            restored: None,
            capture: None,
            ending: Some(Ending { outcome: Outcome::Success, capture }),
        };
        let going = |capture, capturing: Option<&str>, seen| Emulator {
            job: Some(ended(capture)),
            capturing: capturing.map(slug),
            seen,
            ..running().removed(None, now)
        };
        let wanted = || LastCapture::Wanted { snapshot: slug("last") };
        let taken = || LastCapture::Taken { snapshot: slug("last") };
        let failed = || LastCapture::Failed { message: "It took too long.".to_owned() };
        let held = Step::Wait(now + CAPTURE_LOOKED_AT);
        for (what, emulator, step) in [
            ("it is captured", going(wanted(), Some("last"), Seen::Ready), held.clone()),
            ("it ends meanwhile", going(wanted(), Some("last"), Seen::Exited), held),
            ("another capture holds it", going(wanted(), Some("other"), Seen::Ready), Step::Stop),
            ("its disk is another one by now", going(wanted(), None, Seen::Ready), Step::Stop),
            ("it was captured", going(taken(), None, Seen::Ready), Step::Stop),
            ("it was captured and stopped", going(taken(), None, Seen::None), Step::RemoveDisk),
            ("it was given up", going(failed(), None, Seen::Ready), Step::Stop),
            ("nothing was asked for", going(LastCapture::NotAsked, None, Seen::Ready), Step::Stop),
        ] {
            assert_eq!(emulator.status(), Status::Terminating, "{what}");
            assert_eq!(emulator.next_step(BOOT, at(0), now), step, "{what}");
        }
    }

    #[test]
    fn time_in_which_nobody_watched_is_no_time_to_boot() {
        let booting = Emulator { seen: Seen::Booting, boot_duration_ms: None, ..running() };
        let late = Step::GiveUp(Reason::new("boot_timeout", "It was not up after 120 s."));
        for (watched_since, now, step) in [
            (0, 129, Step::Wait(at(130))),
            (0, 130, late.clone()),
            (500, 500, Step::Wait(at(620))),
            (500, 620, late),
        ] {
            assert_eq!(booting.next_step(BOOT, at(watched_since), at(now)), step, "{watched_since} {now}");
        }
    }

    #[test]
    fn what_does_not_resume_boots_from_the_same_disk() {
        let template = Some(TemplateId(Default::default()));
        let resuming =
            Emulator { seen: Seen::Booting, start: Start { template, ..Start::default() }, ..running() };
        let seen = |phase| Observed { incarnation: resuming.incarnation, phase, since: at(11) };
        let ready = seen(Phase::Ready { boot_duration: Duration::from_millis(300) });
        let refused = seen(Phase::Exited { code: NOT_RESUMED, message: "another machine".to_owned() });

        let warm = resuming.clone().with_observation(Some(&ready), at(11));
        assert_eq!((warm.start.kind, warm.start.template), (Some(StartKind::Warm), None));
        assert_eq!(warm.status(), Status::Running);
        // Its disk is its own from now on.
        assert_eq!(warm.clone().restarted(at(12)).start, Start::default());

        let fallen_back = resuming.clone().with_observation(Some(&refused), at(11));
        assert_eq!(fallen_back.next_step(BOOT, at(0), at(11)), Step::Start);
        assert_eq!((fallen_back.started_at, fallen_back.start.template), (None, None));
        assert_eq!(fallen_back.start.reason, Some(Reason::new(NOT_RESUMED, "another machine")));
        // Looked at twice before anything is started.
        assert_eq!(fallen_back.clone().with_observation(Some(&refused), at(11)), fallen_back);
        let cold = fallen_back.clone().with_observation(Some(&ready), at(20));
        assert_eq!((cold.start.kind, cold.start.reason), (Some(StartKind::Cold), fallen_back.start.reason));
        // One that is to go anyway simply ends.
        let gone = Emulator { wanted: Wanted::Gone, ..resuming.clone() };
        assert_eq!(gone.with_observation(Some(&refused), at(11)).seen, Seen::Exited);
    }
}
