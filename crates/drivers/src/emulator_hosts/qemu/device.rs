//! One device under supervision: what QEMU, the agent and the system tell about it, brought down to a phase.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddock_model::Timestamp;
use paddock_model::devices::{Observed, Phase};
use paddock_model::drivers::disk_pools::Volume;
use paddock_model::drivers::emulator_hosts::{Consistency, Switch};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::templates::TemplateId;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::arguments::{self, ADB_PORT, BlockNode};
use super::console;
use super::control::{self, Control};
use super::conversation::Trouble;
use super::processes::{Ended, Process};
use super::qmp::{self, Memory, Migration, Qmp, RunState, Top};
use super::record::{Ending, Record, Resume};
use super::templates::{self, Taken, Templates};
use super::{OUTPUT_FILE, QemuSettings};
use crate::durable::{self, io_error};
use crate::emulator_hosts::profile::ReadyBy;

/// How often QEMU and the system are asked.
const TICK: Duration = Duration::from_millis(500);
const RECONNECT: Duration = Duration::from_millis(100);
/// Nobody gives up a question; when it takes too long, the device is silent.
const NO_END: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Device {
    pub emulator: EmulatorId,
    pub folder: PathBuf,
    settings: Arc<QemuSettings>,
    changes: broadcast::Sender<EmulatorId>,
    process: Option<Process>,
    state: Mutex<State>,
    over: watch::Sender<bool>,
    /// One record after the other, also when nobody waits any more for one to be written.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// Changes whenever the machine starts anew without QEMU ending.
    resets: watch::Sender<()>,
    /// Whether somebody else of this process holds the machine still.
    holding: AtomicBool,
    templates: Arc<Templates>,
    /// The port takes one reader at a time; a second one would wait without a word.
    pub log_reader: Arc<Semaphore>,
}

struct State {
    record: Record,
    facts: Facts,
    since: Timestamp,
    qmp: Option<Qmp>,
    control: Option<Control>,
}

/// What is known besides the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    /// The system holds the process still.
    stopped: bool,
    monitor_silent: bool,
    agent_silent: bool,
    /// QEMU holds the machine still.
    halted: Option<Halt>,
    switched_off: bool,
}

/// A machine that stands still so that its memory can be written.
struct Hold {
    template: TemplateId,
    fingerprint: String,
    since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Halt {
    NoSpace,
    IoError,
    Other(String),
}

fn phase(record: &Record, facts: &Facts) -> Phase {
    if let Some(ending) = &record.ended {
        return ending.phase();
    }
    if facts.stopped || facts.monitor_silent {
        return Phase::Silent;
    }
    if let Some(halt) = &facts.halted {
        let (code, message) = match halt {
            Halt::NoSpace => {
                ("no_space", "the pool is full; the device goes on when there is room".to_owned())
            }
            Halt::IoError => ("io_error", "its disk cannot be read or written".to_owned()),
            Halt::Other(name) => ("halted", format!("QEMU holds it still: {name}")),
        };
        return Phase::Paused { code, message };
    }
    match record.boot_ms {
        Some(_) if facts.agent_silent => Phase::Silent,
        Some(duration) => Phase::Ready { boot_duration: Duration::from_millis(duration) },
        // However long that takes: who waits has a deadline of its own.
        None => Phase::Booting,
    }
}

/// Keeps the supervision going as long as it is held.
pub struct Supervised {
    pub device: Arc<Device>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Device {
    /// Watches over a device's process; without one, the device has ended.
    pub fn supervise(
        record: Record,
        process: Option<Process>,
        folder: PathBuf,
        settings: &Arc<QemuSettings>,
        templates: &Arc<Templates>,
        changes: &broadcast::Sender<EmulatorId>,
    ) -> Supervised {
        let since =
            record.ended.as_ref().map(|ending| ending.at).or(record.ready_at).unwrap_or(record.started_at);
        let device = Arc::new(Device {
            emulator: record.emulator,
            folder,
            settings: settings.clone(),
            changes: changes.clone(),
            over: watch::Sender::new(process.is_none()),
            process,
            writing: Arc::default(),
            resets: watch::Sender::new(()),
            holding: AtomicBool::new(false),
            templates: templates.clone(),
            state: Mutex::new(State { record, facts: Facts::default(), since, qmp: None, control: None }),
            log_reader: Arc::new(Semaphore::new(1)),
        });
        let task = device.process.is_some().then(|| tokio::spawn(device.clone().watch()));
        Supervised { device, task }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn observed(&self) -> Observed {
        let state = self.state();
        let phase = phase(&state.record, &state.facts);
        Observed { incarnation: state.record.incarnation, phase, since: state.since }
    }

    pub fn address(&self) -> Ipv4Addr {
        self.state().record.address
    }

    /// Where a VehicleServer listens that the image brings itself.
    pub fn vehicle_port(&self) -> Option<u16> {
        self.state().record.vehicle_port
    }

    /// The way to the agent; that of a device that was just taken over may take a moment.
    pub async fn control(&self, patience: Duration) -> Option<Control> {
        let find = async {
            loop {
                let (control, phase) = {
                    let state = self.state();
                    (state.control.clone(), phase(&state.record, &state.facts))
                };
                if control.is_some() || !matches!(phase, Phase::Ready { .. }) {
                    return control;
                }
                sleep(RECONNECT / 4).await;
            }
        };
        timeout(patience, find).await.ok().flatten()
    }

    /// The way to QEMU; that of a device that was just started or taken over may take a moment.
    async fn monitor(&self, patience: Duration) -> DriverResult<Qmp> {
        let find = async {
            loop {
                let (qmp, ended) = {
                    let state = self.state();
                    (state.qmp.clone(), state.record.ended.is_some())
                };
                match qmp {
                    Some(qmp) => return Ok(qmp),
                    None if ended => return Err(self.is_absent()),
                    None => sleep(RECONNECT / 4).await,
                }
            }
        };
        timeout(patience, find).await.unwrap_or_else(|_| Err(self.is_silent("its monitor is not open")))
    }

    fn is_absent(&self) -> DriverError {
        let message = format!("{} does not run on this host", self.emulator);
        DriverError::new(Retry::Later, "device_missing", message)
    }

    fn is_silent(&self, why: &str) -> DriverError {
        let message = format!("{} does not answer: {why}", self.emulator);
        DriverError::new(Retry::Soon, "device_silent", message)
    }

    fn monitor_trouble(&self, trouble: Trouble) -> DriverError {
        match trouble {
            Trouble::Gone => self.is_silent("QEMU is gone"),
            Trouble::Silent => self.is_silent("no word from QEMU in time"),
            Trouble::Refused(words) => {
                let message = format!("QEMU does not move {} to another disk: {words}", self.emulator);
                DriverError::new(Retry::Later, "switch_refused", message)
            }
        }
    }

    /// The disk it writes to, by the word of QEMU, which answers only after everything that it was asked before.
    /// A file that was opened for a move that never came is closed.
    pub async fn volume(&self) -> DriverResult<Volume> {
        let qmp = self.monitor(self.settings.silence).await?;
        let top = self.top(&qmp).await?;
        self.close(&qmp, &top.node.next()).await?;
        Ok(Volume(top.path))
    }

    /// The node's name comes from QEMU; which file it is was written down before it was opened.
    async fn top(&self, qmp: &Qmp) -> DriverResult<Top> {
        let (silence, disk) = (self.settings.silence, self.state().record.disk);
        let failed = |trouble| self.monitor_trouble(trouble);
        if let Some(node) = qmp.top_node(disk, silence).await.map_err(failed)? {
            let path = self.state().record.volume_of(node.turn).map(str::to_owned);
            if let Some(path) = path {
                return Ok(Top { node, path });
            }
        }
        qmp.top(silence).await.map_err(failed)
    }

    /// What is not there is closed.
    async fn close(&self, qmp: &Qmp, node: &BlockNode) -> DriverResult<()> {
        match qmp.remove_block_node(node, self.settings.silence).await {
            Ok(()) | Err(Trouble::Refused(_)) => Ok(()),
            Err(trouble) => Err(self.monitor_trouble(trouble)),
        }
    }

    /// See [`EmulatorHost::switch`](paddock_model::drivers::emulator_hosts::EmulatorHost::switch).
    pub async fn switch(&self, switch: &Switch) -> DriverResult<Consistency> {
        let silence = self.settings.silence;
        let failed = |trouble| self.monitor_trouble(trouble);
        let qmp = self.monitor(silence).await?;
        let top = self.top(&qmp).await?;
        if is_same(&top.path, &switch.to.0) {
            // Whoever brought it there may have been killed before the thaw.
            if let Some(control) = self.agent(silence).await {
                let _ = control.thaw(silence).await;
            }
            return Ok(Consistency::Crash);
        }
        if !is_same(&top.path, &switch.from.0) {
            let message = format!("{} writes to {}, not to {}", self.emulator, top.path, switch.from.0);
            return Err(DriverError::new(Retry::Never, "volume_conflict", message));
        }
        if !Path::new(&switch.to.0).exists() {
            let message = format!("there is no disk {} for {}", switch.to.0, self.emulator);
            return Err(DriverError::new(Retry::Later, "volume_missing", message));
        }
        let next = top.node.next();
        self.close(&qmp, &next).await?;
        self.state().record.note_move(top.node.turn, &switch.to.0);
        self.write_record().await.map_err(|error| io_error("write down where a device moves", error))?;
        qmp.add_block_node(arguments::successor(&next, &switch.to.0), silence).await.map_err(failed)?;

        if switch.memory.is_some() {
            // Before anything of it stands still: whoever comes after us has to know.
            self.holding.store(true, Ordering::SeqCst);
            self.state().record.held = true;
            self.keep_record().await;
        }
        let control = self.agent(switch.patience).await;
        let frozen = match &control {
            Some(control) => control.freeze(switch.memory.is_some(), switch.patience).await,
            None => Err(Trouble::Gone),
        };
        let held = match switch.memory {
            Some(template) => self.hold(&qmp, template, frozen.is_ok()).await,
            None => None,
        };
        let moved = qmp.put_on_top(&top.node, &next, silence.max(switch.patience)).await;
        let saved = match (&held, &moved) {
            (Some(hold), Ok(())) => self.save_memory(&qmp, hold.template, switch.patience).await,
            _ => Err("the disk was not captured".to_owned()),
        };
        self.let_go(&qmp).await;
        let paused = held.as_ref().map(|hold| hold.since.elapsed());
        // Also after a freeze that failed or took too long: it may have come about since.
        let thawed = match &control {
            Some(control) => control.thaw(silence).await,
            None => Err(Trouble::Gone),
        };
        self.holding.store(false, Ordering::SeqCst);
        if switch.memory.is_some() {
            self.keep_record().await;
        }
        if let Some(hold) = held {
            tracing::info!(emulator = %self.emulator, ?paused, "a device stood still for its memory");
            self.keep_memory(hold, &switch.from.0, saved).await;
        }
        if let Err(trouble) = moved {
            if matches!(trouble, Trouble::Refused(_)) {
                let _ = self.close(&qmp, &next).await;
            }
            return Err(failed(trouble));
        }
        // Held still from before the move until after it.
        let consistency = match (frozen, thawed) {
            (Ok(()), Ok(true)) => Consistency::Filesystem,
            (frozen, thawed) => {
                tracing::info!(emulator = %self.emulator, ?frozen, ?thawed, "a device moved without holding still");
                Consistency::Crash
            }
        };
        Ok(consistency)
    }

    /// Has the machine stand still, so that its disk and its memory are of one moment. None if its memory cannot be kept.
    async fn hold(&self, qmp: &Qmp, template: TemplateId, frozen: bool) -> Option<Hold> {
        let fingerprint = self.state().record.fingerprint.clone();
        let refused = match (&fingerprint, frozen) {
            (None, _) => Some("its image cannot resume, or it was started by an earlier version: restart it"),
            // Its agent would not answer a clone either.
            (_, false) => Some("its agent did not hold it still"),
            _ if !self.has_room_for_memory() => Some("there is not enough room for it"),
            _ => None,
        };
        let begun = match refused {
            Some(why) => Err(why.to_owned()),
            None => self.templates.begin(template).map(drop).map_err(|error| error.to_string()),
        };
        let stopped = match begun {
            Ok(()) => qmp.stop(self.settings.silence).await.map_err(|trouble| format!("{trouble:?}")),
            Err(why) => Err(why),
        };
        match (stopped, fingerprint) {
            (Ok(()), Some(fingerprint)) => Some(Hold { template, fingerprint, since: Instant::now() }),
            (stopped, _) => {
                let why = stopped.err().unwrap_or_default();
                tracing::warn!(emulator = %self.emulator, why, "a device's memory is not captured");
                let _ = self.templates.give_up(template, &why);
                None
            }
        }
    }

    /// Writes the machine that stands still to a stream.
    async fn save_memory(&self, qmp: &Qmp, template: TemplateId, patience: Duration) -> Result<(), String> {
        let work = async {
            let command = format!("umask 077; cat > {}", templates::stream_from_device(template));
            qmp.migrate(&command, Memory::All, self.settings.silence).await?;
            templates::await_migration(qmp, self.settings.silence).await
        };
        match timeout(patience, work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(trouble)) => Err(format!("QEMU does not write it: {trouble:?}")),
            Err(_) => Err(format!("it was not written within {} s", patience.as_secs())),
        }
    }

    async fn let_go(&self, qmp: &Qmp) {
        if !self.state().record.held {
            return;
        }
        // Should it still be at work; otherwise there is nothing to break off.
        if !matches!(qmp.migration(self.settings.silence).await, Ok(Migration::Done)) {
            let _ = qmp.cancel_migration(self.settings.silence).await;
        }
        match qmp.cont(self.settings.silence).await {
            Ok(()) => self.state().record.held = false,
            Err(trouble) => {
                tracing::warn!(emulator = %self.emulator, ?trouble, "a device was not let go; it is tried again");
            }
        }
    }

    async fn keep_memory(&self, hold: Hold, volume: &str, saved: Result<(), String>) {
        let Hold { template, fingerprint, .. } = hold;
        let (image, memory_bytes, cpus) = {
            let record = &self.state().record;
            (record.image.clone(), record.memory_bytes, record.cpus)
        };
        let (templates, volume) = (self.templates.clone(), volume.to_owned());
        let kept = tokio::task::spawn_blocking(move || {
            let kept = saved.and_then(|()| {
                let complete = || {
                    let disk_bytes = templates::disk_bytes(&volume)?;
                    let taken = Taken { fingerprint, image, memory_bytes, cpus, disk_bytes };
                    templates.complete(template, &taken)
                };
                complete().map_err(|error| error.to_string())
            });
            kept.inspect_err(|why| drop(templates.give_up(template, why)))
        });
        match kept.await {
            Ok(Ok(())) => {
                tracing::info!(emulator = %self.emulator, %template, "a device's memory was captured");
            }
            kept => tracing::warn!(emulator = %self.emulator, ?kept, "a device's memory was not captured"),
        }
    }

    /// Takes over a template's memory, tells the device who it is, and only then lets anybody reach it. May be begun again by
    /// whoever takes the device over, from wherever it stands.
    async fn resume(&self) {
        let forwards = self.state().record.resuming().map(<[String]>::to_vec);
        let Some(forwards) = forwards else { return };
        let resumed = match timeout(self.settings.resume_patience, self.take_memory(&forwards)).await {
            Ok(resumed) => resumed,
            Err(_) => Err(format!("it took longer than {} s", self.settings.resume_patience.as_secs())),
        };
        match resumed {
            Ok(()) => {
                let now = self.settings.clock.now();
                let took = now.duration_since(self.state().record.started_at);
                let took = Duration::try_from(took).unwrap_or_default();
                self.learn(|record, _| record.resume = Some(Resume::Done));
                self.is_up(took).await;
                for name in [arguments::MEMORY_FILE, arguments::STATE_FILE] {
                    let _ = durable::remove(&self.folder.join(name));
                }
            }
            Err(why) => {
                tracing::warn!(emulator = %self.emulator, why, "a device did not resume");
                self.state().record.resume = Some(Resume::Failed(why));
                if let Some(process) = &self.process {
                    process.kill();
                }
            }
        }
    }

    async fn take_memory(&self, forwards: &[String]) -> Result<(), String> {
        let (silence, patience) = (self.settings.silence, self.settings.resume_patience);
        let told = |trouble: Trouble| format!("{trouble:?}");
        let qmp = self.monitor(patience).await.map_err(|error| error.message)?;
        let waiting = || RunState::Halted("inmigrate".to_owned());
        if qmp.status(silence).await.map_err(told)? == waiting() {
            let command = format!("cat {}", arguments::STATE_FILE);
            // That its disk is used from now on must be known after a power cut, too: memory would not fit it any more.
            let (written, begun) = tokio::join!(
                self.write_record_with(Record::write),
                qmp.migrate_incoming(&command, Memory::Shared, silence)
            );
            written.map_err(|error| error.to_string())?;
            match begun {
                // An earlier process of ours has said so already.
                Ok(()) | Err(Trouble::Refused(_)) => {}
                Err(trouble) => return Err(told(trouble)),
            }
            while qmp.status(patience).await.map_err(told)? == waiting() {
                sleep(templates::LOOKED_AT).await;
            }
        }
        if qmp.status(silence).await.map_err(told)? != RunState::Running {
            qmp.cont(silence).await.map_err(told)?;
        }
        let identity =
            fs::read(self.folder.join(arguments::IDENTITY_FILE)).map_err(|error| error.to_string())?;
        let identity: Value = serde_json::from_slice(&identity).map_err(|error| error.to_string())?;
        let (control, _events) = Control::open(&self.folder).await.map_err(told)?;
        let hello = control.resume(self.settings.clock.now(), &identity, patience).await.map_err(told)?;
        if !hello.ready {
            return Err("the device was not up when its memory was taken".to_owned());
        }
        for forward in forwards {
            qmp.forward(forward, silence).await.map_err(told)?;
        }
        Ok(())
    }

    /// The agent of a device that is up; one that boots has none yet, or may be about to restart.
    async fn agent(&self, patience: Duration) -> Option<Control> {
        let (has_agent, up) = {
            let state = self.state();
            let phase = phase(&state.record, &state.facts);
            (state.record.has_agent, matches!(phase, Phase::Ready { .. }))
        };
        if has_agent && up { self.control(patience).await } else { None }
    }

    fn is_resuming(&self) -> bool {
        self.state().record.resuming().is_some()
    }

    pub fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.name.pid)
    }

    /// Changes what is known, and tells if that makes another phase of it.
    fn learn(&self, change: impl FnOnce(&mut Record, &mut Facts)) {
        let mut state = self.state();
        let before = phase(&state.record, &state.facts);
        let State { record, facts, .. } = &mut *state;
        change(record, facts);
        let after = phase(&state.record, &state.facts);
        if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
            let ended = state.record.ended.as_ref().map(|ending| ending.at);
            let since = ended.unwrap_or_else(|| self.settings.clock.now());
            state.since = since;
            // Written down only where another process should say the same: when it first came up.
            if matches!(after, Phase::Ready { .. }) && state.record.ready_at.is_none() {
                state.record.ready_at = Some(since);
            }
        }
        drop(state);
        if before != after {
            tracing::info!(emulator = %self.emulator, ?before, ?after, "a device changed");
            // Nobody may be listening.
            let _ = self.changes.send(self.emulator);
        }
    }

    /// Writes the record down anew. What it holds beyond the start is convenience, so trouble is only logged.
    async fn keep_record(&self) {
        if let Err(error) = self.write_record().await {
            tracing::warn!(emulator = %self.emulator, %error, "could not write the device's record");
        }
    }

    async fn write_record(&self) -> io::Result<()> {
        self.write_record_with(Record::update).await
    }

    async fn write_record_with(&self, write: fn(&Record, &Path) -> io::Result<()>) -> io::Result<()> {
        let turn = self.writing.clone().lock_owned().await;
        let (record, folder) = (self.state().record.clone(), self.folder.clone());
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            write(&record, &folder)
        });
        written.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    async fn watch(self: Arc<Self>) {
        let Some(process) = &self.process else { return };
        let agent = async {
            self.resume().await;
            // One that did not resume is about to end.
            if matches!(self.state().record.resume, Some(Resume::Failed(_))) {
                std::future::pending::<()>().await;
            }
            self.watch_agent().await;
        };
        let ended = tokio::select! {
            ended = process.ended() => ended,
            () = self.watch_monitor() => return,
            () = agent => return,
            () = self.watch_system(process) => return,
        };
        self.end(ended).await;
    }

    async fn end(&self, ended: Ended) {
        let words = console::last_words(&self.folder.join(OUTPUT_FILE));
        let now = self.settings.clock.now();
        {
            let mut state = self.state();
            (state.qmp, state.control) = (None, None);
        }
        self.learn(|record, facts| {
            record.ended = Some(match &record.resume {
                Some(Resume::UnderWay { .. }) => {
                    Ending::not_resumed(&words.unwrap_or_else(|| "QEMU ended".to_owned()), now)
                }
                Some(Resume::Failed(why)) => Ending::not_resumed(why, now),
                Some(Resume::Done) | None => Ending::of(ended, facts.switched_off, words, now),
            });
        });
        self.keep_record().await;
        self.over.send_replace(true);
    }

    /// Returns once the process is gone.
    pub async fn over(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Ends the device: in order if it is up and manages within the patience, by force otherwise. Whether it is gone.
    pub async fn stop(&self) -> bool {
        let Some(process) = &self.process else { return true };
        if *self.over.borrow() {
            return true;
        }
        let patience = self.settings.patience;
        // One that has just resumed is up before its agent is spoken to again.
        let control = self.agent(self.settings.silence).await;
        let qmp = self.state().qmp.clone();
        let asked = match (self.observed().phase, control, qmp) {
            (Phase::Ready { .. }, Some(control), _) => control.shutdown(patience).await,
            (Phase::Ready { .. }, None, Some(qmp)) => qmp.system_powerdown(patience).await,
            // There is nobody to ask yet, but QEMU can put its files in order.
            (Phase::Booting, _, Some(qmp)) => qmp.quit(patience).await,
            _ => Err(Trouble::Silent),
        };
        // One that ends at once may not come to answering.
        if !matches!(asked, Err(Trouble::Silent | Trouble::Refused(_))) {
            let _ = timeout(patience, self.over()).await;
        }
        if !*self.over.borrow() {
            process.kill();
        }
        timeout(Duration::from_secs(10), self.over()).await.is_ok()
    }

    /// Holds QEMU's monitor, and comes back to it whenever the connection breaks.
    async fn watch_monitor(&self) {
        loop {
            if let Ok((qmp, events)) = Qmp::open(&self.folder, self.settings.silence).await {
                self.state().qmp = Some(qmp.clone());
                self.converse_with_monitor(&qmp, events).await;
                self.state().qmp = None;
            }
            // One that resumes is up in no more time than this.
            sleep(if self.is_resuming() { RECONNECT / 10 } else { RECONNECT }).await;
        }
    }

    async fn converse_with_monitor(&self, qmp: &Qmp, mut events: mpsc::Receiver<Value>) {
        let ask = async {
            loop {
                let mut status = pin!(self.ask_monitor(qmp));
                // One question at a time: to a process that stands still, others would only pile up.
                let answered = match timeout(self.settings.silence, &mut status).await {
                    Ok(answered) => answered,
                    Err(_) => {
                        self.learn(|_, facts| facts.monitor_silent = true);
                        status.await
                    }
                };
                if answered.is_err() {
                    return;
                }
                sleep(TICK).await;
            }
        };
        let listen = async {
            while let Some(line) = events.recv().await {
                match qmp::event(&line) {
                    Some(qmp::Event::BlockIoError { no_space }) => self.learn(|_, facts| {
                        facts.halted = Some(if no_space { Halt::NoSpace } else { Halt::IoError });
                    }),
                    Some(qmp::Event::Resume) => self.learn(|_, facts| facts.halted = None),
                    Some(qmp::Event::Reset) => {
                        self.learn(|record, _| (record.boot_ms, record.ready_at) = (None, None));
                        self.resets.send_replace(());
                    }
                    Some(qmp::Event::Shutdown { by_guest }) => {
                        self.state().facts.switched_off = by_guest;
                    }
                    Some(qmp::Event::Stop | qmp::Event::Panicked) | None => {}
                }
            }
        };
        tokio::select! {
            () = ask => {}
            () = listen => {}
        }
    }

    async fn ask_monitor(&self, qmp: &Qmp) -> Result<(), Trouble> {
        let status = qmp.status(NO_END).await?;
        let holding = self.holding.load(Ordering::SeqCst);
        if self.state().record.held && !holding {
            match &status {
                RunState::Running => {
                    // Its file systems were held still with it.
                    if let Some(control) = self.agent(self.settings.silence).await {
                        let _ = control.thaw(self.settings.silence).await;
                    }
                    self.state().record.held = false;
                    self.keep_record().await;
                }
                // Whoever held it is gone, and perhaps in the middle of it.
                RunState::Halted(name) => {
                    tracing::warn!(emulator = %self.emulator, name, "a device was left standing still; it goes on");
                    if !matches!(qmp.migration(NO_END).await?, Migration::Done) {
                        let _ = qmp.cancel_migration(NO_END).await;
                    }
                    return match qmp.cont(NO_END).await {
                        Err(Trouble::Refused(_)) | Ok(()) => Ok(()),
                        gone => gone,
                    };
                }
                RunState::IoError | RunState::Shutdown => {}
            }
        }
        let halted = match status {
            RunState::Running | RunState::Shutdown => None,
            RunState::Halted(_) if holding || self.is_resuming() => None,
            RunState::IoError if qmp.lacks_space(NO_END).await? => Some(Halt::NoSpace),
            RunState::IoError => Some(Halt::IoError),
            RunState::Halted(name) => Some(Halt::Other(name)),
        };
        let goes_on = halted == Some(Halt::NoSpace) && self.has_space();
        self.learn(|_, facts| {
            facts.monitor_silent = false;
            facts.halted = halted;
        });
        // The write that failed is done again. If room is still short, QEMU halts again and nothing is lost.
        if goes_on { qmp.cont(NO_END).await } else { Ok(()) }
    }

    /// For the stream and for the template that is made of it, both as large as the memory at worst.
    fn has_room_for_memory(&self) -> bool {
        let wanted = 2 * u64::try_from(self.state().record.memory_bytes).unwrap_or_default();
        rustix::fs::statvfs(&self.folder).is_ok_and(|facts| {
            let free = facts.f_bavail.saturating_mul(facts.f_frsize);
            free >= wanted + self.settings.resume_free_bytes
        })
    }

    fn has_space(&self) -> bool {
        // The folder: a disk that has become a layer has lost this name.
        let volume = PathBuf::from(self.state().record.volume.clone());
        rustix::fs::statvfs(volume.parent().unwrap_or(&volume)).is_ok_and(|facts| {
            facts.f_bavail.saturating_mul(facts.f_frsize) >= self.settings.resume_free_bytes
        })
    }

    /// Learns from the device itself whether it is up, and whether it still answers.
    async fn watch_agent(&self) {
        let (has_agent, ready_by) = {
            let state = self.state();
            (state.record.has_agent, state.record.ready_by)
        };
        match (has_agent, ready_by) {
            (true, ReadyBy::Control) => self.watch_control(true).await,
            (true, ReadyBy::Adb) => tokio::join!(self.watch_control(false), self.watch_adb()).0,
            (false, _) => self.watch_adb().await,
        }
    }

    async fn watch_control(&self, tells_readiness: bool) {
        loop {
            if let Ok((control, mut events)) = Control::open(&self.folder).await {
                let listen = async {
                    while let Some(line) = events.recv().await {
                        match control::event(&line) {
                            Some(control::Event::Ready { boot_duration }) if tells_readiness => {
                                self.is_up(boot_duration).await;
                            }
                            Some(control::Event::Fault(message)) => {
                                tracing::warn!(emulator = %self.emulator, message, "the device reports a fault");
                            }
                            _ => {}
                        }
                    }
                };
                tokio::select! {
                    () = listen => {}
                    () = self.ask_agent(&control, tells_readiness) => {}
                }
                self.state().control = None;
            }
            sleep(RECONNECT).await;
        }
    }

    /// Ends when the connection does, or when the device starts anew: a question to the agent of before has no answer.
    async fn ask_agent(&self, control: &Control, tells_readiness: bool) {
        let mut resets = self.resets.subscribe();
        // Before its first answer a device is not silent, it boots.
        let mut known = self.state().record.boot_ms.is_some();
        loop {
            let mut answer = pin!(control.health(NO_END));
            let answered = loop {
                tokio::select! {
                    answered = &mut answer => break answered,
                    () = sleep(self.settings.agent_silence), if known => {
                        self.learn(|_, facts| facts.agent_silent = true);
                    }
                    _ = resets.changed() => return,
                }
            };
            let health = match answered {
                Ok(health) => health,
                Err(Trouble::Refused(_)) => control::Hello::default(),
                Err(_) => return,
            };
            known = true;
            self.state().control = Some(control.clone());
            self.learn(|_, facts| facts.agent_silent = false);
            if health.ready && tells_readiness {
                self.is_up(Duration::from_millis(health.boot_duration_ms.unwrap_or_default())).await;
            }
            // A device that boots says by itself when it is up; this is for the case that nobody heard.
            tokio::select! {
                () = sleep(4 * TICK) => {}
                _ = resets.changed() => return,
            }
        }
    }

    async fn is_up(&self, boot_duration: Duration) {
        if self.state().record.boot_ms.is_some() {
            return;
        }
        let duration = u64::try_from(boot_duration.as_millis()).unwrap_or(u64::MAX);
        self.learn(|record, _| record.boot_ms = Some(duration));
        self.keep_record().await;
    }

    /// For devices without an agent: they are up when their ADB daemon says something.
    async fn watch_adb(&self) {
        let started = self.state().record.started_at;
        loop {
            if self.state().record.boot_ms.is_none() && adb_answers(self.address()).await {
                let took = self.settings.clock.now().duration_since(started);
                self.is_up(Duration::try_from(took).unwrap_or_default()).await;
            }
            sleep(2 * TICK).await;
        }
    }

    /// What neither QEMU nor the device would tell.
    async fn watch_system(&self, process: &Process) {
        let console = self.folder.join(console::file_name(self.state().record.incarnation));
        loop {
            let stopped = process.is_stopped();
            self.learn(|_, facts| facts.stopped = stopped);
            for file in [&console, &self.folder.join(OUTPUT_FILE)] {
                if let Err(error) = console::trim(file, self.settings.console_bytes) {
                    tracing::warn!(emulator = %self.emulator, %error, "could not keep the console's log within bounds");
                }
            }
            sleep(TICK).await;
        }
    }
}

/// Whether both are names of one file, or the same name of one that has lost it.
fn is_same(one: &str, other: &str) -> bool {
    let look = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    one == other || look(one).is_some_and(|found| Some(found) == look(other))
}

/// QEMU accepts connections long before the device does, so only an answer counts, and each try is a new connection.
async fn adb_answers(address: Ipv4Addr) -> bool {
    let attempt = async {
        let mut stream = TcpStream::connect((address, ADB_PORT)).await.ok()?;
        let banner = b"host::\0";
        let mut message = Vec::new();
        let checksum: u32 = banner.iter().map(|byte| u32::from(*byte)).sum();
        let connect = u32::from_le_bytes(*b"CNXN");
        for word in [connect, 0x0100_0000, 4096, banner.len() as u32, checksum, !connect] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(banner);
        stream.write_all(&message).await.ok()?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.ok()?;
        matches!(&answer, b"CNXN" | b"AUTH" | b"STLS").then_some(())
    };
    timeout(Duration::from_secs(1), attempt).await.ok().flatten().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_follows_from_what_is_known() {
        let record = |boot_ms, ended| Record {
            boot_ms,
            ended,
            ..Record::of_a_stranger(EmulatorId(Default::default()), 1, Timestamp::UNIX_EPOCH)
        };
        let (booting, up) = (record(None, None), record(Some(5), None));
        let gone = record(Some(5), Some(Ending::lost(Timestamp::UNIX_EPOCH)));
        let ready = Phase::Ready { boot_duration: Duration::from_millis(5) };
        let full = || Some(Halt::NoSpace);
        let code = |phase: &Phase| match phase {
            Phase::Paused { code, .. } | Phase::Exited { code, .. } => *code,
            Phase::Booting => "booting",
            Phase::Ready { .. } => "ready",
            Phase::Silent => "silent",
        };
        let facts = Facts::default;
        for (record, facts, expected) in [
            (&booting, facts(), "booting"),
            (&booting, Facts { agent_silent: true, ..facts() }, "booting"),
            (&up, facts(), "ready"),
            (&up, Facts { stopped: true, ..facts() }, "silent"),
            (&up, Facts { monitor_silent: true, ..facts() }, "silent"),
            (&up, Facts { agent_silent: true, ..facts() }, "silent"),
            (&up, Facts { halted: full(), agent_silent: true, ..facts() }, "no_space"),
            (&up, Facts { halted: full(), stopped: true, ..facts() }, "silent"),
            (&up, Facts { halted: Some(Halt::Other("paused".to_owned())), ..facts() }, "halted"),
            (&gone, Facts { stopped: true, ..facts() }, "lost"),
        ] {
            assert_eq!(code(&phase(record, &facts)), expected, "{facts:?}");
        }
        assert_eq!(phase(&up, &facts()), ready);
    }
}
