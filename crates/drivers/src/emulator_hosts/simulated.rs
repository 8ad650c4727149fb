//! Devices that are nothing but a state and a time, with seeded faults: for tests of trouble and of scale. Never the default.
//!
//! One task serves them all: it sleeps until the next of them comes up or ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use paddock_model::Timestamp;
use paddock_model::devices::{BRINGS_VEHICLE, DeviceState, DeviceType, Image, Observed, Phase};
use paddock_model::drivers::disk_pools::{Integrity, Volume};
use paddock_model::drivers::emulator_hosts::{
    ByteStream, Channel, Consistency, Console, EmulatorHost, HostTemplate, Launch, Switch,
};
use paddock_model::drivers::garages::NO_VEHICLE;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::ports::Clock;
use paddock_model::templates::{NOT_RESUMED, TemplateFacts, TemplateId};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{Notify, broadcast};

use super::profile::Profile;
use crate::clock::SystemClock;
use crate::faults::{FaultRates, Faults};

#[derive(Clone)]
pub struct SimulatedHostSettings {
    pub seed: u64,
    /// How long a device takes to come up; each a little different.
    pub boot: Duration,
    /// Within which time after it is up a device crashes, if it does.
    pub crash_within: Duration,
    /// How many lines a second a device that is up writes to its log.
    pub log_rate: u64,
    pub faults: FaultRates,
    pub clock: Arc<dyn Clock>,
    /// Who plays the devices' channels; without one, whatever is said comes back.
    pub peer: Option<SocketAddr>,
}

impl Default for SimulatedHostSettings {
    fn default() -> Self {
        SimulatedHostSettings {
            seed: 0,
            boot: Duration::from_millis(500),
            crash_within: Duration::from_secs(60),
            log_rate: 0,
            faults: FaultRates::default(),
            clock: Arc::new(SystemClock::default()),
            peer: None,
        }
    }
}

/// Clones of it are the same host, as two processes on one machine are.
#[derive(Clone)]
pub struct SimulatedHost(Arc<Host>);

struct Host {
    settings: SimulatedHostSettings,
    faults: Faults,
    world: Mutex<World>,
    /// Something is due earlier than before.
    sooner: Notify,
    changes: broadcast::Sender<EmulatorId>,
    /// No device moves to another disk.
    stubborn: AtomicBool,
}

#[derive(Default)]
struct World {
    devices: BTreeMap<EmulatorId, Device>,
    templates: BTreeMap<TemplateId, Memory>,
    /// What happens next. An entry whose number is not the device's any more is of the past.
    due: BinaryHeap<Reverse<(Duration, u64, EmulatorId, Turn)>>,
    starts: u64,
}

/// What is kept of a device's memory: which machine it fits, and whether clones can resume from it yet.
#[derive(Clone)]
struct Memory {
    fingerprint: String,
    whole: bool,
    damaged: bool,
}

/// A machine of another shape cannot use the memory.
fn fingerprint(launch: &Launch) -> String {
    format!("simulated {} {} {}", launch.image, launch.memory_bytes, launch.cpus)
}

/// What a template takes of a device's memory, and how much of a boot a resumed device still needs.
const TEMPLATE_SHARE: i64 = 4;
const RESUME_SHARE: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Up,
    Crash,
}

struct Device {
    launch: Launch,
    /// What it writes to, which may be another disk than at its start.
    volume: Volume,
    /// Which start this is.
    number: u64,
    phase: Phase,
    since: Timestamp,
    boot: Duration,
    up_at: Duration,
    /// What it has written to its console.
    said: Vec<&'static str>,
    /// What the incarnation before it had.
    before: Option<(i64, Vec<&'static str>)>,
    news: Arc<Notify>,
}

const BOOT_WORDS: [&str; 2] =
    ["[    0.000000] simulated kernel\n", "[    0.100000] init: a simulated device boots\n"];
const UP_WORDS: &str = "[    0.200000] init: up\n";
const END_WORDS: [&str; 2] = ["[    9.000000] init: shutting down\n", "[    9.100000] reboot: power down\n"];

impl Device {
    fn says(&mut self, words: &[&'static str]) {
        self.said.extend(words);
        self.news.notify_waiters();
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Exited { .. })
    }
}

impl Host {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, emulator: EmulatorId) {
        // Nobody may be listening.
        let _ = self.changes.send(emulator);
    }

    /// Does what is due, and says when the next thing is.
    fn turn(&self) -> Option<Duration> {
        let now = self.settings.clock.elapsed();
        let mut world = self.world();
        while let Some(Reverse((at, number, emulator, turn))) = world.due.peek().copied() {
            if at > now {
                return Some(at - now);
            }
            world.due.pop();
            let Some(device) = world.devices.get_mut(&emulator) else { continue };
            if device.number != number || matches!(device.phase, Phase::Exited { .. }) {
                continue;
            }
            device.since = self.settings.clock.now();
            device.phase = match turn {
                Turn::Up => {
                    device.says(&[UP_WORDS]);
                    Phase::Ready { boot_duration: device.boot }
                }
                Turn::Crash => Phase::Exited { code: "crashed", message: "a simulated crash".to_owned() },
            };
            device.news.notify_waiters();
            self.tell(emulator);
        }
        None
    }
}

/// Ends with the last clone of the host.
async fn serve(host: Weak<Host>) {
    loop {
        let Some(host) = host.upgrade() else { return };
        let next = host.turn();
        // Looks up now and then whether there is still a host.
        let idle = Duration::from_secs(1);
        tokio::select! {
            () = host.settings.clock.sleep(next.unwrap_or(idle).min(idle)) => {}
            () = host.sooner.notified() => {}
            () = tokio::time::sleep(idle) => {}
        }
    }
}

impl SimulatedHost {
    /// Must be called within a runtime.
    pub fn new(settings: SimulatedHostSettings) -> SimulatedHost {
        let host = Arc::new(Host {
            faults: Faults::new(settings.seed, settings.faults),
            settings,
            world: Mutex::default(),
            sooner: Notify::new(),
            changes: broadcast::Sender::new(4096),
            stubborn: AtomicBool::new(false),
        });
        tokio::spawn(serve(Arc::downgrade(&host)));
        SimulatedHost(host)
    }

    /// Ends a device, as if its process had been killed.
    pub fn crash(&self, emulator: EmulatorId) {
        self.set(emulator, Phase::Exited { code: "killed", message: "ended by the test".to_owned() });
    }

    /// Whether devices refuse to move to another disk, again and again.
    pub fn set_stubborn(&self, stubborn: bool) {
        self.0.stubborn.store(stubborn, Ordering::Relaxed);
    }

    /// Has a device be in a phase until it is started anew.
    pub fn set(&self, emulator: EmulatorId, phase: Phase) {
        let now = self.0.settings.clock.now();
        if let Some(device) = self.0.world().devices.get_mut(&emulator) {
            (device.phase, device.since) = (phase, now);
            device.news.notify_waiters();
            // What was due for this start is so no more.
            device.number = u64::MAX;
        }
        self.0.tell(emulator);
    }

    /// Somebody writes to a template.
    pub fn damage_template(&self, template: TemplateId) {
        if let Some(memory) = self.0.world().templates.get_mut(&template) {
            memory.damaged = true;
        }
    }

    fn present<T>(
        &self,
        emulator: EmulatorId,
        look: impl FnOnce(&Device) -> DriverResult<T>,
    ) -> DriverResult<T> {
        let world = self.0.world();
        let device = world.devices.get(&emulator).ok_or_else(|| absent(emulator))?;
        look(device)
    }

    /// For what only a device that runs and answers can do, up or not.
    fn running<T>(
        &self,
        emulator: EmulatorId,
        act: impl FnOnce(&mut Device) -> DriverResult<T>,
    ) -> DriverResult<T> {
        let mut world = self.0.world();
        let device = world.devices.get_mut(&emulator).ok_or_else(|| absent(emulator))?;
        match device.phase {
            Phase::Exited { .. } => Err(absent(emulator)),
            Phase::Silent => {
                let message = format!("{emulator} does not answer");
                Err(DriverError::new(Retry::Soon, "device_silent", message))
            }
            _ => act(device),
        }
    }
}

/// The memory's size is in the fingerprint.
fn template_bytes(fingerprint: &str) -> i64 {
    let memory: Option<i64> = fingerprint.split(' ').nth(2).and_then(|size| size.parse().ok());
    memory.unwrap_or_default() / TEMPLATE_SHARE
}

fn absent(emulator: EmulatorId) -> DriverError {
    DriverError::new(Retry::Later, "device_missing", format!("{emulator} does not run on this host"))
}

fn is_up(device: &Device, emulator: EmulatorId) -> DriverResult<()> {
    match device.phase {
        Phase::Ready { .. } => Ok(()),
        _ => Err(DriverError::new(Retry::Soon, "not_ready", format!("{emulator} is not up"))),
    }
}

#[async_trait]
impl EmulatorHost for SimulatedHost {
    /// A profile that is there is read; for another one an image is made up from its name.
    async fn ensure_image(&self, profile: &Path) -> DriverResult<Image> {
        self.0.faults.strike("take an image into keeping")?;
        let stem = profile.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = stem.split('.').next().unwrap_or_default().to_owned();
        let folder = profile.parent().unwrap_or(Path::new("."));
        if let Ok(text) = std::fs::read(profile) {
            let parsed = Profile::parse(&text).map_err(|error| {
                DriverError::new(Retry::Never, "image_refused", format!("{}: {error}", profile.display()))
            })?;
            let mut image = parsed.image(format!("simulated-{name}"), folder);
            // Who plays the devices plays their cars as well.
            if self.0.settings.peer.is_some() {
                image.capabilities.push(BRINGS_VEHICLE.to_owned());
            }
            return Ok(image);
        }
        Ok(Image {
            device_type: DeviceType::parse(&name).unwrap_or(DeviceType::Phone),
            disk: folder.join(format!("{name}.qcow2")),
            name: format!("simulated-{name}"),
            android_version: "14".to_owned(),
            abi: "x86_64".to_owned(),
            memory_bytes: 256 << 20,
            cpus: 1,
            capabilities: Vec::new(),
        })
    }

    async fn ensure(&self, launch: &Launch) -> DriverResult<()> {
        let host = &self.0;
        host.faults.strike("start a device")?;
        let (elapsed, now) = (host.settings.clock.elapsed(), host.settings.clock.now());
        let mut world = host.world();
        if let Some(device) = world.devices.get(&launch.emulator) {
            let known = device.launch.incarnation;
            if known > launch.incarnation {
                let message = format!("{} is at incarnation {known} already", launch.emulator);
                return Err(DriverError::new(Retry::Never, "stale_incarnation", message));
            }
            if known == launch.incarnation && !matches!(device.phase, Phase::Exited { .. }) {
                return Ok(());
            }
        }
        let refusal = launch.template.and_then(|template| match world.templates.get(&template) {
            Some(memory) if memory.whole && !memory.damaged && memory.fingerprint == fingerprint(launch) => {
                None
            }
            Some(memory) if memory.damaged => Some("somebody has changed the template"),
            Some(memory) if memory.whole => Some("the template was made on another machine"),
            _ => Some("the template is not there any more"),
        });
        let slow = if host.faults.happens(host.faults.rates.slow_boot) { 10.0 } else { 1.0 };
        let resumes = if launch.template.is_some() { RESUME_SHARE } else { 1.0 };
        let boot = host.settings.boot.mul_f64((0.75 + host.faults.share() / 2.0) * slow * resumes);
        world.starts += 1;
        let number = world.starts;
        let up_at = elapsed + boot;
        if refusal.is_none() {
            world.due.push(Reverse((up_at, number, launch.emulator, Turn::Up)));
        }
        if host.faults.happens(host.faults.rates.crash) {
            let at = up_at + host.settings.crash_within.mul_f64(host.faults.share());
            world.due.push(Reverse((at, number, launch.emulator, Turn::Crash)));
        }
        let mut device = Device {
            launch: launch.clone(),
            volume: launch.volume.clone(),
            number,
            phase: match refusal {
                None => Phase::Booting,
                Some(why) => {
                    Phase::Exited { code: NOT_RESUMED, message: format!("it did not resume: {why}") }
                }
            },
            since: now,
            boot,
            up_at,
            said: BOOT_WORDS.to_vec(),
            before: None,
            news: Arc::new(Notify::new()),
        };
        if let Some(mut earlier) = world.devices.remove(&launch.emulator) {
            if !earlier.has_ended() {
                earlier.says(&END_WORDS);
            }
            earlier.news.notify_waiters();
            device.before = Some((earlier.launch.incarnation, earlier.said));
        }
        world.devices.insert(launch.emulator, device);
        drop(world);
        host.sooner.notify_one();
        host.tell(launch.emulator);
        Ok(())
    }

    async fn observe(&self, emulator: EmulatorId) -> DriverResult<Option<Observed>> {
        self.0.faults.strike("look at a device")?;
        let world = self.0.world();
        Ok(world.devices.get(&emulator).map(|device| Observed {
            incarnation: device.launch.incarnation,
            phase: device.phase.clone(),
            since: device.since,
        }))
    }

    async fn list(&self) -> DriverResult<Vec<EmulatorId>> {
        self.0.faults.strike("list devices")?;
        Ok(self.0.world().devices.keys().copied().collect())
    }

    async fn stop(&self, emulator: EmulatorId) -> DriverResult<()> {
        self.0.faults.strike("stop a device")?;
        let now = self.0.settings.clock.now();
        if let Some(device) = self.0.world().devices.get_mut(&emulator)
            && !device.has_ended()
        {
            device.phase = Phase::Exited { code: "stopped", message: "it was stopped".to_owned() };
            device.since = now;
            device.says(&END_WORDS);
            self.0.tell(emulator);
        }
        Ok(())
    }

    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()> {
        self.0.faults.strike("remove a device")?;
        if let Some(device) = self.0.world().devices.remove(&emulator) {
            device.news.notify_waiters();
            self.0.tell(emulator);
        }
        Ok(())
    }

    async fn inspect(&self, emulator: EmulatorId) -> DriverResult<DeviceState> {
        self.0.faults.strike("ask a device")?;
        let elapsed = self.0.settings.clock.elapsed();
        self.present(emulator, |device| {
            is_up(device, emulator)?;
            let memory = device.launch.memory_bytes;
            let properties = [
                ("ro.serialno", device.launch.identity.serial.as_str()),
                ("sys.boot_completed", "1"),
                ("ro.hardware", "simulated"),
            ];
            Ok(DeviceState {
                uptime: elapsed.saturating_sub(device.up_at.saturating_sub(device.boot)),
                memory_total_bytes: memory,
                memory_available_bytes: memory / 2,
                disk_total_bytes: 2 << 30,
                disk_available_bytes: 1 << 30,
                properties: properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
                ..DeviceState::default()
            })
        })
    }

    /// The lot may have it fail before or after the device has moved, or end the device on the way.
    async fn switch(&self, switch: &Switch) -> DriverResult<Consistency> {
        let (emulator, faults) = (switch.emulator, &self.0.faults);
        faults.strike("move a device to another disk")?;
        if self.0.stubborn.load(Ordering::Relaxed) {
            let message = format!("{emulator} did not hold still");
            return Err(DriverError::new(Retry::Soon, "device_busy", message));
        }
        let (dies, moved_first) = (faults.happens(faults.rates.crash), faults.share() < 0.5);
        let consistency = self.running(emulator, |device| {
            if device.volume == switch.to {
                return Ok(Consistency::Crash);
            }
            if device.volume != switch.from {
                let message = format!("{emulator} writes to {}, not to {}", device.volume.0, switch.from.0);
                return Err(DriverError::new(Retry::Never, "volume_conflict", message));
            }
            if !dies || moved_first {
                device.volume = switch.to.clone();
            }
            Ok(match device.phase {
                Phase::Ready { .. } => Consistency::Filesystem,
                _ => Consistency::Crash,
            })
        })?;
        // Only what moved in order has memory worth keeping.
        if let (Some(template), Consistency::Filesystem, false) = (switch.memory, consistency, dies) {
            let mut world = self.0.world();
            if let Some(device) = world.devices.get(&emulator) {
                let memory =
                    Memory { fingerprint: fingerprint(&device.launch), whole: false, damaged: false };
                world.templates.insert(template, memory);
            }
        }
        if dies {
            self.set(emulator, Phase::Exited { code: "crashed", message: "a simulated crash".to_owned() });
            let message = format!("{emulator} ended while it moved to another disk");
            return Err(DriverError::new(Retry::Soon, "device_silent", message));
        }
        faults.strike("hear that a device has moved to another disk")?;
        Ok(consistency)
    }

    async fn volume(&self, emulator: EmulatorId) -> DriverResult<Option<Volume>> {
        self.0.faults.strike("ask for a device's disk")?;
        match self.running(emulator, |device| Ok(device.volume.clone())) {
            Err(error) if error.code == "device_missing" => Ok(None),
            volume => volume.map(Some),
        }
    }

    async fn ensure_template(&self, template: TemplateId) -> DriverResult<TemplateFacts> {
        self.0.faults.strike("make a template")?;
        let mut world = self.0.world();
        let Some(memory) = world.templates.get_mut(&template) else {
            let message = "the capture was broken off before the memory was written";
            return Err(DriverError::new(Retry::Never, "memory_missing", message));
        };
        memory.whole = true;
        let fingerprint = memory.fingerprint.clone();
        Ok(TemplateFacts { allocated_bytes: template_bytes(&fingerprint), fingerprint })
    }

    async fn verify_template(&self, template: TemplateId) -> DriverResult<Integrity> {
        self.0.faults.strike("read a template")?;
        Ok(match self.0.world().templates.get(&template) {
            Some(memory) if memory.damaged => Integrity::Altered,
            Some(memory) if memory.whole => Integrity::Sound,
            _ => Integrity::Missing,
        })
    }

    async fn remove_template(&self, template: TemplateId) -> DriverResult<()> {
        self.0.faults.strike("remove a template")?;
        self.0.world().templates.remove(&template);
        Ok(())
    }

    async fn templates(&self) -> DriverResult<Vec<HostTemplate>> {
        let world = self.0.world();
        let told = |(id, memory): (&TemplateId, &Memory)| HostTemplate {
            id: *id,
            allocated_bytes: template_bytes(&memory.fingerprint),
        };
        Ok(world.templates.iter().map(told).collect())
    }

    /// Whatever is said comes back, but from the log, which is written as a real device's is.
    async fn open(&self, emulator: EmulatorId, channel: Channel) -> DriverResult<Box<dyn ByteStream>> {
        self.0.faults.strike("open a way into a device")?;
        if channel == Channel::Vehicle && self.0.settings.peer.is_none() {
            let message = format!("{emulator} is simulated and has no VehicleServer of its own");
            return Err(DriverError::new(Retry::Never, NO_VEHICLE, message));
        }
        let number = self.present(emulator, |device| {
            is_up(device, emulator)?;
            Ok(device.number)
        })?;
        if let Some(peer) = self.0.settings.peer {
            let unreachable = |error| {
                DriverError::new(Retry::Soon, "channel_closed", format!("nobody plays {emulator} at {peer}"))
                    .with_cause(error)
            };
            let stream = TcpStream::connect(peer).await.map_err(unreachable)?;
            let _ = stream.set_nodelay(true);
            return Ok(Box::new(stream));
        }
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        if channel == Channel::Log {
            tokio::spawn(write_log(Arc::downgrade(&self.0), emulator, number, theirs));
            return Ok(Box::new(ours));
        }
        let (mut reader, mut writer) = tokio::io::split(theirs);
        tokio::spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
        Ok(Box::new(ours))
    }

    async fn console(&self, emulator: EmulatorId, incarnation: i64, from: u64) -> DriverResult<Console> {
        loop {
            let news = {
                let world = self.0.world();
                let device = world.devices.get(&emulator);
                let earlier = |device: &&Device| device.launch.incarnation != incarnation;
                let (said, over) = match device {
                    None => (None, true),
                    Some(device) if earlier(&device) => {
                        let before = device.before.as_ref().filter(|(before, _)| *before == incarnation);
                        (before.map(|(_, said)| said), true)
                    }
                    Some(device) => (Some(&device.said), device.has_ended()),
                };
                let said = said.map(|said| said.concat().into_bytes()).unwrap_or_default();
                let start = usize::try_from(from).unwrap_or(usize::MAX).min(said.len());
                let bytes = said[start..].to_vec();
                if over || !bytes.is_empty() {
                    let next = from + bytes.len() as u64;
                    return Ok(Console { bytes, next, lost: 0, ended: over });
                }
                device.map(|device| device.news.clone().notified_owned())
            };
            if let Some(news) = news {
                // Whoever spoke between the look and this was heard: the wait began with the look.
                news.await;
            }
        }
    }

    fn changes(&self) -> broadcast::Receiver<EmulatorId> {
        self.0.changes.subscribe()
    }
}

/// A device keeps no more of its log.
const LOG_KEPT: u64 = 10_000;

/// Speaks the log port's protocol for as long as this start of the device lasts and somebody listens.
async fn write_log(host: Weak<Host>, emulator: EmulatorId, number: u64, stream: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut requests = BufReader::new(reader).lines();
    let mut after: Option<u64> = None;
    loop {
        let Some(host) = host.upgrade() else { return };
        let (rate, clock) = (host.settings.log_rate, host.settings.clock.clone());
        let facts = host
            .world()
            .devices
            .get(&emulator)
            .filter(|device| device.number == number && !device.has_ended())
            .map(|device| (device.launch.incarnation, device.up_at, device.news.clone().notified_owned()));
        let Some((incarnation, up_at, news)) = facts else { return };
        drop(host);
        let up = clock.elapsed().saturating_sub(up_at);
        let written = (up.as_micros() * u128::from(rate) / 1_000_000) as u64;
        let mut text = String::new();
        if let Some(last) = &mut after {
            let lost = written.saturating_sub(LOG_KEPT);
            if *last < lost {
                text += &format!("{{\"lost\":{{\"through\":{lost}}}}}\n");
                *last = lost;
            }
            for line in *last + 1..=written.min(*last + 1_000) {
                let time = clock.now().as_millisecond();
                text += &format!(
                    "{{\"seq\":{line},\"time\":{time},\"buffer\":\"main\",\"level\":\"info\",\"tag\":\"Simulated\",\"pid\":1,\
                     \"message\":\"line {line} of incarnation {incarnation}\"}}\n"
                );
                *last = line;
            }
            if writer.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        if !text.is_empty() {
            continue;
        }
        // Lines that are due at once are written at once, but not one by one.
        let pause = match rate {
            0 => Duration::from_secs(3600),
            rate => Duration::from_micros(1_000_000 / rate).max(Duration::from_millis(5)),
        };
        tokio::select! {
            request = requests.next_line() => match request {
                Ok(Some(request)) => {
                    let request: serde_json::Value = serde_json::from_str(&request).unwrap_or_default();
                    after = request["after"].as_u64().or(after);
                }
                _ => return,
            },
            () = clock.sleep(pause) => {}
            () = news => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use paddock_model::devices::DeviceIdentity;
    use paddock_model::drivers::disk_pools::Volume;

    use super::*;

    fn launch(number: u32) -> Launch {
        Launch {
            emulator: EmulatorId(uuid_of(number)),
            incarnation: 1,
            name: "d".to_owned(),
            image: "simulated-phone".to_owned(),
            volume: Volume("simulated:x".to_owned()),
            identity: DeviceIdentity {
                serial: "S".to_owned(),
                android_id: String::new(),
                machine_id: String::new(),
                mac: String::new(),
                seed: String::new(),
                vin: None,
            },
            adb_keys: Vec::new(),
            address: number.into(),
            memory_bytes: 1 << 28,
            cpus: 1,
            template: None,
            vehicle: None,
        }
    }

    fn uuid_of(number: u32) -> uuid::Uuid {
        uuid::Uuid::from_u128(number.into())
    }

    #[tokio::test]
    async fn a_hundred_thousand_devices_come_up_and_go() {
        let host = SimulatedHost::new(SimulatedHostSettings {
            boot: Duration::from_millis(50),
            ..Default::default()
        });
        let started = Instant::now();
        for number in 0..100_000 {
            host.ensure(&launch(number)).await.expect("started");
        }
        let last = EmulatorId(uuid_of(99_999));
        while !matches!(host.observe(last).await.expect("seen").expect("there").phase, Phase::Ready { .. }) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(host.list().await.expect("listed").len(), 100_000);
        for number in 0..100_000 {
            host.remove(EmulatorId(uuid_of(number))).await.expect("removed");
        }
        println!("100,000 simulated devices in {:?}", started.elapsed());
        assert!(host.list().await.expect("listed").is_empty());
    }

    #[tokio::test]
    async fn the_same_seed_makes_the_same_trouble() {
        let run = async |seed| {
            let faults = FaultRates { soon: 0.2, later: 0.1, ..FaultRates::default() };
            let host = SimulatedHost::new(SimulatedHostSettings { seed, faults, ..Default::default() });
            let mut codes = Vec::new();
            for number in 0..200 {
                codes.push(host.ensure(&launch(number)).await.map_err(|error| error.code));
            }
            codes
        };
        let once = run(7).await;
        assert_eq!(once, run(7).await);
        assert_ne!(once, run(8).await);
        assert!(
            once.contains(&Err("host_busy")) && once.contains(&Err("host_down")) && once.contains(&Ok(()))
        );
    }

    #[tokio::test]
    async fn a_move_fails_before_or_after_it_or_ends_the_device() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let faults = FaultRates { soon: 0.2, crash: 0.2, ..FaultRates::default() };
            let settings = SimulatedHostSettings { seed, faults, ..Default::default() };
            let host = SimulatedHost::new(settings);
            if host.ensure(&launch(1)).await.is_err() {
                continue;
            }
            let (from, to) = (launch(1).volume, Volume("simulated:y".to_owned()));
            let patience = Duration::from_secs(1);
            let switch = Switch {
                emulator: launch(1).emulator,
                from: from.clone(),
                to: to.clone(),
                patience,
                memory: None,
            };

            let told = host.switch(&switch).await.map(drop).map_err(|error| error.code);

            let volume = loop {
                if let Ok(volume) = host.volume(switch.emulator).await {
                    break volume;
                }
            };
            seen.insert((told, volume.map(|volume| volume == to)));
        }
        let expected = [
            (Ok(()), Some(true)),
            (Err("device_silent"), None),
            (Err("host_busy"), Some(false)),
            (Err("host_busy"), Some(true)),
        ];
        assert_eq!(seen, expected.into());
    }

    #[tokio::test]
    async fn a_device_that_crashes_says_so() {
        let faults = FaultRates { crash: 1.0, ..FaultRates::default() };
        let within = Duration::from_millis(20);
        let settings =
            SimulatedHostSettings { boot: within, crash_within: within, faults, ..Default::default() };
        let host = SimulatedHost::new(settings);
        let mut changes = host.changes();
        host.ensure(&launch(1)).await.expect("started");

        let mut seen = Vec::new();
        for _ in 0..3 {
            changes.recv().await.expect("told");
            seen.push(host.observe(launch(1).emulator).await.expect("seen").expect("there").phase);
        }

        assert!(matches!(seen.last(), Some(Phase::Exited { code: "crashed", .. })), "{seen:?}");
    }
}
