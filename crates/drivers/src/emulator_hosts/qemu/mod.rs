//! Devices in QEMU on this machine.
//!
//! ```text
//! images/<name>-<digest>/   kernel, initramfs, shared disks and profile of an image
//! run/emu_…/                a device: its record, identity, sockets and logs; QEMU runs in there
//! templates/tpl_…/          memory that clones resume from
//! ```
//!
//! QEMU lives in a session of its own and knows nothing of us. A device is there when its folder is; its record is
//! flushed before QEMU is started, and says afterwards which process it is. Killed in between, we find the process by the
//! marker in its command line and the folder it runs in.

pub mod arguments;
mod console;
pub mod control;
pub mod conversation;
mod device;
mod images;
mod processes;
pub mod qmp;
mod record;
mod templates;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use paddock_model::devices::{DeviceState, Image, Observed, Phase};
use paddock_model::drivers::disk_pools::{Integrity, Volume};
use paddock_model::drivers::emulator_hosts::{
    ByteStream, Channel, Consistency, Console, EmulatorHost, HostTemplate, Launch, Switch,
};
use paddock_model::drivers::garages::NO_VEHICLE;
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::ports::Clock;
use paddock_model::templates::{TemplateFacts, TemplateId};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio::time::timeout;

pub use self::arguments::Accelerator;
use self::arguments::Start;
use self::conversation::{Trouble, connect};
use self::device::{Device, Supervised};
use self::processes::Process;
use self::record::{Ending, Record, Resume};
use self::templates::Templates;
use super::profile::Profile;
use crate::clock::SystemClock;
use crate::durable::{self, io_error, on_a_thread, sync_folder};

/// What QEMU itself has to say.
pub(crate) const OUTPUT_FILE: &str = "qemu.log";

const INSPECTION: Duration = Duration::from_secs(2);
/// How soon a console is looked at again; the longer it is silent, the later.
const CONSOLE_PAUSE: Duration = Duration::from_millis(40);

pub struct QemuSettings {
    /// Everything of this host is in there.
    pub folder: PathBuf,
    pub qemu_binary: PathBuf,
    /// The program that QEMU calls as `PROGRAM connect SOCKET` when a device connects to its car.
    pub connector: PathBuf,
    /// Found out if not given.
    pub accelerator: Option<Accelerator>,
    /// How much of a device's console is kept for those who have not read it yet.
    pub console_bytes: u64,
    /// How long a device may take to switch itself off before it is killed.
    pub patience: Duration,
    /// How long QEMU may leave a question unanswered before its device counts as silent.
    pub silence: Duration,
    /// The same for the agent in a device, which a busy machine slows down more.
    pub agent_silence: Duration,
    /// How long a clone may take to resume before it is booted instead.
    pub resume_patience: Duration,
    /// How long it may take to make a template.
    pub template_patience: Duration,
    /// A device that a full pool has halted goes on when there is as much room.
    pub resume_free_bytes: u64,
    pub clock: Arc<dyn Clock>,
}

impl QemuSettings {
    pub fn in_folder(folder: impl Into<PathBuf>) -> QemuSettings {
        QemuSettings {
            folder: folder.into(),
            qemu_binary: PathBuf::from("qemu-system-x86_64"),
            connector: PathBuf::from("paddockd"),
            accelerator: None,
            console_bytes: 16 << 20,
            patience: Duration::from_secs(5),
            silence: Duration::from_secs(5),
            agent_silence: Duration::from_secs(20),
            resume_patience: Duration::from_secs(30),
            template_patience: Duration::from_secs(60),
            resume_free_bytes: 64 << 20,
            clock: Arc::new(SystemClock::default()),
        }
    }
}

pub struct QemuHost(Arc<Host>);

struct Host {
    settings: Arc<QemuSettings>,
    images: PathBuf,
    run: PathBuf,
    accelerator: Accelerator,
    templates: Arc<Templates>,
    /// QEMU's version, once it was asked.
    version: Arc<OnceLock<String>>,
    /// Every device of which there is a trace.
    devices: Mutex<HashMap<EmulatorId, Supervised>>,
    /// One verb at a time that changes a device.
    turns: Mutex<HashMap<EmulatorId, Arc<tokio::sync::Mutex<()>>>>,
    images_turn: Arc<tokio::sync::Mutex<()>>,
    changes: broadcast::Sender<EmulatorId>,
}

impl QemuHost {
    /// Opens the host, and takes over the devices that an earlier process has left running, without touching them.
    pub fn open(mut settings: QemuSettings) -> DriverResult<QemuHost> {
        let failed = |error| io_error("open the host's folder", error);
        let [images, run] = ["images", "run"].map(|name| settings.folder.join(name));
        for folder in [&images, &run] {
            durable::make_folder(folder).map_err(failed)?;
        }
        // QEMU runs in another folder, and the system tells folders by their real paths.
        settings.folder = fs::canonicalize(&settings.folder).map_err(failed)?;
        let [images, run] = ["images", "run"].map(|name| settings.folder.join(name));
        images::sweep(&images).map_err(failed)?;
        let accelerator = settings.accelerator.unwrap_or_else(Accelerator::detect);
        let templates = Arc::new(Templates::open(settings.folder.join("templates")).map_err(failed)?);
        let host = Host {
            settings: Arc::new(settings),
            images,
            run,
            accelerator,
            templates,
            version: Arc::default(),
            devices: Mutex::default(),
            turns: Mutex::default(),
            images_turn: Arc::default(),
            changes: broadcast::Sender::new(4096),
        };
        host.adopt().map_err(failed)?;
        // Asked now: the first device need not wait for the answer.
        let (version, qemu) = (host.version.clone(), host.settings.qemu_binary.clone());
        std::thread::spawn(move || {
            version.get_or_init(|| self::version(&qemu));
        });
        Ok(QemuHost(Arc::new(host)))
    }

    pub fn accelerator(&self) -> Accelerator {
        self.0.accelerator
    }

    /// The pid of a device's process, for people and tests.
    pub fn pid(&self, emulator: EmulatorId) -> Option<i32> {
        self.0.device(emulator).and_then(|device| device.pid())
    }

    /// Where a device's logs are.
    pub fn device_folder(&self, emulator: EmulatorId) -> PathBuf {
        self.0.device_folder(emulator)
    }
}

/// The devices of which there is a trace in a host's folder, to look at while another process looks after them.
pub fn traces(folder: &Path) -> DriverResult<Vec<EmulatorId>> {
    let failed = |error| io_error("look into the host's folder", error);
    let run = match fs::canonicalize(folder.join("run")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        run => run.map_err(failed)?,
    };
    let mut found = std::collections::BTreeSet::new();
    for (_, words) in processes::running_within(&run).map_err(failed)? {
        found
            .extend(words.iter().find_map(|word| arguments::read_marker(word)).map(|(emulator, _)| emulator));
    }
    for entry in fs::read_dir(&run).map_err(failed)? {
        found.extend(entry.map_err(failed)?.file_name().to_str().and_then(EmulatorId::parse));
    }
    Ok(found.into_iter().collect())
}

/// The templates of which there is a trace in a host's folder, to look at while another process looks after them.
pub fn template_traces(folder: &Path) -> DriverResult<Vec<HostTemplate>> {
    templates::list(&folder.join("templates")).map_err(|error| io_error("look into the host's folder", error))
}

impl Host {
    fn device_folder(&self, emulator: EmulatorId) -> PathBuf {
        self.run.join(emulator.to_string())
    }

    fn adopt(&self) -> io::Result<()> {
        // The processes first: one that is started meanwhile cannot be, for nobody else starts any.
        let mut unclaimed = HashMap::new();
        for (pid, words) in processes::running_within(&self.run)? {
            if let Some((emulator, incarnation)) = words.iter().find_map(|word| arguments::read_marker(word))
            {
                unclaimed.insert((emulator, incarnation), pid);
            }
        }
        for entry in fs::read_dir(&self.run)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(emulator) = name.to_str().and_then(EmulatorId::parse) else { continue };
            let record = Record::read(&entry.path()).filter(|record| record.emulator == emulator);
            let record = record.unwrap_or_else(|| {
                let incarnation =
                    unclaimed.keys().find(|(known, _)| *known == emulator).map_or(0, |key| key.1);
                Record::of_a_stranger(emulator, incarnation, self.settings.clock.now())
            });
            let found = unclaimed.remove(&(emulator, record.incarnation));
            self.take_over(record, found, entry.path())?;
        }
        // Those whose folder somebody has taken away; they are listed, so that they can be removed.
        for ((emulator, incarnation), pid) in unclaimed {
            let record = Record::of_a_stranger(emulator, incarnation, self.settings.clock.now());
            self.take_over(record, Some(pid), self.device_folder(emulator))?;
        }
        Ok(())
    }

    fn take_over(&self, mut record: Record, found: Option<i32>, folder: PathBuf) -> io::Result<()> {
        let before = record.clone();
        let marker = record.marker();
        let process = match record.process {
            Some(name) => Process::find(name, &marker)?,
            // Started, but not written down.
            None => match found.map(Process::open).transpose()?.flatten() {
                Some(process) => Process::find(process.name, &marker)?,
                None => None,
            },
        };
        match &process {
            Some(process) => record.process = Some(process.name),
            None if record.is_intent() => record.ended = Some(Ending::not_started(self.settings.clock.now())),
            None if record.ended.is_none() => record.ended = Some(Ending::lost(self.settings.clock.now())),
            None => {}
        }
        tracing::info!(emulator = %record.emulator, runs = process.is_some(), "took over a device");
        // A folder that is gone stays gone.
        if record != before
            && folder.exists()
            && let Err(error) = record.update(&folder)
        {
            tracing::warn!(emulator = %record.emulator, %error, "could not write the device's record");
        }
        self.keep(Device::supervise(record, process, folder, &self.settings, &self.templates, &self.changes));
        Ok(())
    }

    fn devices(&self) -> MutexGuard<'_, HashMap<EmulatorId, Supervised>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, supervised: Supervised) {
        let emulator = supervised.device.emulator;
        self.devices().insert(emulator, supervised);
        let _ = self.changes.send(emulator);
    }

    fn device(&self, emulator: EmulatorId) -> Option<Arc<Device>> {
        self.devices().get(&emulator).map(|supervised| supervised.device.clone())
    }

    fn present(&self, emulator: EmulatorId) -> DriverResult<Arc<Device>> {
        self.device(emulator).ok_or_else(|| {
            DriverError::new(Retry::Later, "device_missing", format!("{emulator} does not run on this host"))
        })
    }

    fn turn(&self, emulator: EmulatorId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody waits for are made anew when they are needed.
        if turns.len() > 1024 {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(emulator).or_default().clone()
    }

    async fn stop(&self, device: &Device) -> DriverResult<()> {
        if device.stop().await {
            return Ok(());
        }
        let message = format!("QEMU of {} was killed and is still there", device.emulator);
        Err(DriverError::new(Retry::Soon, "host_busy", message))
    }

    /// What the memory of such a device depends on; none where nobody could tell a clone who it is.
    fn fingerprint(&self, profile: &Profile, launch: &Launch) -> Option<String> {
        let resumes = profile.channels.is_some() && profile.capabilities.iter().any(|name| name == "resume");
        if !resumes {
            return None;
        }
        let mut facts = arguments::shape(profile, launch, self.accelerator);
        facts += "\n";
        facts += self.version.get_or_init(|| version(&self.settings.qemu_binary));
        if self.accelerator == Accelerator::Kvm {
            // The device sees this machine's processor.
            facts += &processor();
        }
        durable::digest(facts.as_bytes()).ok()
    }

    /// Makes the folder, writes down what is about to happen, and starts QEMU.
    fn start(&self, launch: &Launch) -> DriverResult<()> {
        let failed = |error| io_error(&format!("start {}", launch.emulator), error);
        let (image, profile) = images::find(&self.images, &launch.image)?;
        if !Path::new(&launch.volume.0).exists() {
            let message = format!("{} has no disk {}", launch.emulator, launch.volume.0);
            return Err(DriverError::new(Retry::Later, "volume_missing", message));
        }
        let folder = self.device_folder(launch.emulator);
        let mut record = Record::new(launch, &profile, self.settings.clock.now());
        record.fingerprint = self.fingerprint(&profile, launch);
        let used = Record::read(&folder).is_some_and(|before| {
            before.process.is_some() && before.volume_of(before.moves.len() as u32) == Some(&launch.volume.0)
        });
        let start = match launch.template {
            Some(_) => {
                record.resume =
                    Some(Resume::UnderWay { forwards: arguments::forwards(&profile, launch.address) });
                Start::Resume
            }
            None => Start::Boot,
        };
        let car = arguments::car(&profile, launch).map(|(address, _)| address);
        prepare(&folder, launch, &control::identity(launch, car), &record).map_err(failed)?;
        if let Some(template) = launch.template {
            let handed_out = match &record.fingerprint {
                // Memory fits the disk that it was taken with, and no other.
                _ if used => Err("its disk has been used since".to_owned()),
                Some(fingerprint) => self.templates.hand_out(template, fingerprint, &folder),
                None => Err("its image cannot resume".to_owned()),
            };
            if let Err(why) = handed_out {
                record.ended = Some(Ending::not_resumed(&why, self.settings.clock.now()));
                let written = record.update(&folder);
                self.keep(Device::supervise(
                    record,
                    None,
                    folder,
                    &self.settings,
                    &self.templates,
                    &self.changes,
                ));
                return written.map_err(failed);
            }
        }
        let output = File::options().append(true).create(true).mode(0o600).open(folder.join(OUTPUT_FILE));
        let connector = &self.settings.connector;
        let words = arguments::arguments(&profile, &image, launch, self.accelerator, connector, start);
        let started = Process::start(&self.settings.qemu_binary, &words, &folder, &output.map_err(failed)?);
        let process = started.map_err(|error| {
            let message = "could not start QEMU; are qemu-system-x86 and util-linux installed?";
            DriverError::new(Retry::Later, "qemu_missing", message).with_cause(error)
        })?;
        record.process = Some(process.name);
        // Should this fail, the marker finds the process: it runs, so it is looked after.
        let written = record.update(&folder);
        self.keep(Device::supervise(
            record,
            Some(process),
            folder,
            &self.settings,
            &self.templates,
            &self.changes,
        ));
        written.map_err(failed)
    }
}

/// As the program says it.
fn version(qemu: &Path) -> String {
    let said = std::process::Command::new(qemu).arg("--version").output();
    said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let told = ["vendor_id", "cpu family", "model", "stepping", "flags"];
    let of_interest = |line: &&str| told.iter().any(|name| line.starts_with(name));
    first.lines().filter(of_interest).collect::<Vec<_>>().join("\n")
}

fn prepare(folder: &Path, launch: &Launch, identity: &Value, record: &Record) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // The intent, before anything can run.
    record.write(folder)?;
    for socket in [
        arguments::MEMORY_FILE,
        arguments::STATE_FILE,
        arguments::QMP_SOCKET,
        arguments::CONTROL_SOCKET,
        arguments::LOG_SOCKET,
        arguments::DISPLAY_SOCKET,
        OUTPUT_FILE,
    ] {
        durable::remove(&folder.join(socket))?;
    }
    console::forget_old(folder, launch.incarnation)?;
    // It holds a secret, so it is nobody else's from its first byte on.
    durable::replace(&folder.join(arguments::IDENTITY_FILE), identity.to_string().as_bytes(), 0o600)?;
    sync_folder(folder.parent().unwrap_or(folder))
}

/// The record goes last, with the folder: until then a device is listed, and can be removed again.
fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    sync_folder(folder.parent().unwrap_or(folder))
}

#[async_trait]
impl EmulatorHost for QemuHost {
    async fn ensure_image(&self, profile: &Path) -> DriverResult<Image> {
        let turn = self.0.images_turn.clone().lock_owned().await;
        let (images, profile) = (self.0.images.clone(), profile.to_owned());
        on_a_thread(move || {
            let _turn = turn;
            images::ensure(&images, &profile)
        })
        .await
    }

    async fn ensure(&self, launch: &Launch) -> DriverResult<()> {
        let turn = self.0.turn(launch.emulator).lock_owned().await;
        if let Some(device) = self.0.device(launch.emulator) {
            let observed = device.observed();
            if observed.incarnation > launch.incarnation {
                let message = format!(
                    "{} is at incarnation {} already, {} is past",
                    launch.emulator, observed.incarnation, launch.incarnation
                );
                return Err(DriverError::new(Retry::Never, "stale_incarnation", message));
            }
            let runs = !matches!(observed.phase, Phase::Exited { .. });
            if runs && observed.incarnation == launch.incarnation {
                return Ok(());
            }
            self.0.stop(&device).await?;
        }
        // To its end even if nobody waits for it any more, and nobody else meanwhile.
        let (host, launch) = (self.0.clone(), launch.clone());
        on_a_thread(move || {
            let _turn = turn;
            host.start(&launch)
        })
        .await
    }

    async fn observe(&self, emulator: EmulatorId) -> DriverResult<Option<Observed>> {
        Ok(self.0.device(emulator).map(|device| device.observed()))
    }

    async fn list(&self) -> DriverResult<Vec<EmulatorId>> {
        let mut emulators: Vec<EmulatorId> = self.0.devices().keys().copied().collect();
        emulators.sort();
        Ok(emulators)
    }

    async fn stop(&self, emulator: EmulatorId) -> DriverResult<()> {
        let _turn = self.0.turn(emulator).lock_owned().await;
        match self.0.device(emulator) {
            Some(device) => self.0.stop(&device).await,
            None => Ok(()),
        }
    }

    async fn remove(&self, emulator: EmulatorId) -> DriverResult<()> {
        let _turn = self.0.turn(emulator).lock_owned().await;
        let Some(device) = self.0.device(emulator) else { return Ok(()) };
        self.0.stop(&device).await?;
        let folder = device.folder.clone();
        on_a_thread(move || {
            remove_folder(&folder).map_err(|error| io_error(&format!("remove {emulator}"), error))
        })
        .await?;
        self.0.devices().remove(&emulator);
        let _ = self.0.changes.send(emulator);
        Ok(())
    }

    async fn inspect(&self, emulator: EmulatorId) -> DriverResult<DeviceState> {
        let device = self.0.present(emulator)?;
        let unanswered = |what: &str| {
            DriverError::new(Retry::Soon, "device_silent", format!("{emulator} does not answer: {what}"))
        };
        let control = device.control(INSPECTION).await.ok_or_else(|| unanswered("its agent is not up"))?;
        let clock = self.0.settings.clock.clone();
        control.state(move || clock.now(), INSPECTION).await.map_err(|trouble| match trouble {
            Trouble::Gone => unanswered("the connection is gone"),
            Trouble::Silent => unanswered("no answer in time"),
            Trouble::Refused(words) => unanswered(&words.to_string()),
        })
    }

    async fn switch(&self, switch: &Switch) -> DriverResult<Consistency> {
        let turn = self.0.turn(switch.emulator).lock_owned().await;
        let device = self.0.present(switch.emulator)?;
        let switch = switch.clone();
        // To its end even if nobody waits for it any more: a device must not be left frozen.
        let moved = tokio::spawn(async move {
            let _turn = turn;
            device.switch(&switch).await
        });
        moved.await.unwrap_or_else(|error| {
            Err(DriverError::new(Retry::Soon, "internal", "the move was broken off").with_cause(error))
        })
    }

    async fn volume(&self, emulator: EmulatorId) -> DriverResult<Option<Volume>> {
        // After a move that is under way.
        let _turn = self.0.turn(emulator).lock_owned().await;
        let Some(device) = self.0.device(emulator) else { return Ok(None) };
        match device.volume().await {
            Err(_) if matches!(device.observed().phase, Phase::Exited { .. }) => Ok(None),
            volume => volume.map(Some),
        }
    }

    async fn ensure_template(&self, template: TemplateId) -> DriverResult<TemplateFacts> {
        let host = &self.0;
        let fingerprint = |launch: &Launch| {
            let (_, profile) = images::find(&host.images, &launch.image).ok()?;
            host.fingerprint(&profile, launch)
        };
        host.templates.ensure(template, &host.images, host.accelerator, fingerprint, &host.settings).await
    }

    async fn verify_template(&self, template: TemplateId) -> DriverResult<Integrity> {
        self.0.templates.verify(template).await
    }

    async fn remove_template(&self, template: TemplateId) -> DriverResult<()> {
        self.0.templates.remove(template).await
    }

    async fn templates(&self) -> DriverResult<Vec<HostTemplate>> {
        let folder = self.0.settings.folder.clone();
        on_a_thread(move || template_traces(&folder)).await
    }

    async fn open(&self, emulator: EmulatorId, channel: Channel) -> DriverResult<Box<dyn ByteStream>> {
        let device = self.0.present(emulator)?;
        let not_open = |error: io::Error| {
            let message = format!("the way to {emulator} is not open");
            DriverError::new(Retry::Soon, "not_ready", message).with_cause(error)
        };
        match channel {
            Channel::Adb | Channel::Vehicle => {
                let port = match channel {
                    Channel::Vehicle => device.vehicle_port().ok_or_else(|| {
                        let message = format!("{emulator} has no VehicleServer inside; ask its car");
                        DriverError::new(Retry::Never, NO_VEHICLE, message)
                    })?,
                    _ => arguments::ADB_PORT,
                };
                // QEMU would accept the connection of a device that is not up, and leave it waiting.
                if !matches!(device.observed().phase, Phase::Ready { .. }) {
                    let message = format!("{emulator} is not up");
                    return Err(DriverError::new(Retry::Soon, "not_ready", message));
                }
                let connecting = TcpStream::connect((device.address(), port));
                let stream = timeout(INSPECTION, connecting).await;
                let stream =
                    stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(not_open)?;
                stream.set_nodelay(true).map_err(not_open)?;
                Ok(Box::new(stream))
            }
            Channel::Display => {
                let stream = connect(&device.folder, arguments::DISPLAY_SOCKET).await;
                Ok(Box::new(stream.map_err(not_open)?))
            }
            Channel::Log => {
                let Ok(permit) = device.log_reader.clone().try_acquire_owned() else {
                    let message = format!("somebody reads the log of {emulator} already");
                    return Err(DriverError::new(Retry::Soon, "host_busy", message));
                };
                let stream = connect(&device.folder, arguments::LOG_SOCKET).await.map_err(not_open)?;
                Ok(Box::new(LogStream { stream, _permit: permit }))
            }
        }
    }

    async fn console(&self, emulator: EmulatorId, incarnation: i64, from: u64) -> DriverResult<Console> {
        let path = self.0.device_folder(emulator).join(console::file_name(incarnation));
        let mut pause = CONSOLE_PAUSE;
        loop {
            // Before it is read: what is written until the end is there when the end is known.
            let over = self.0.device(emulator).is_none_or(|device| {
                let observed = device.observed();
                observed.incarnation != incarnation || matches!(observed.phase, Phase::Exited { .. })
            });
            if over || fs::metadata(&path).is_ok_and(|facts| facts.len() != from) {
                let path = path.clone();
                let part = on_a_thread(move || {
                    console::read(&path, from).map_err(|error| io_error("read a console", error))
                });
                let part = part.await?;
                if over || !part.bytes.is_empty() {
                    return Ok(Console { ended: over && part.ended, ..part });
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(8 * CONSOLE_PAUSE);
        }
    }

    fn changes(&self) -> broadcast::Receiver<EmulatorId> {
        self.0.changes.subscribe()
    }
}

/// Lets the next reader in when it is dropped.
struct LogStream {
    stream: UnixStream,
    _permit: OwnedSemaphorePermit,
}

impl ByteStream for LogStream {}

impl AsyncRead for LogStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for LogStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
