//! Templates: memory that was taken from a device, made into a file that any number of clones map, each for itself.
//!
//! ```text
//! templates/tpl_…/stream         everything of the machine, as QEMU writes it; whole once `taken.json` is there
//! templates/tpl_…/memory.ram     the memory as a file, and
//! templates/tpl_…/memory.state   the rest of the machine; whole once `template.json` is there
//! ```
//!
//! The stream is loaded into a QEMU that never runs, with its memory in a file; what is left to write is small. Clones get links to the
//! two files, so nobody has to count them: a template may go while its clones run.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use paddock_model::devices::DeviceIdentity;
use paddock_model::drivers::disk_pools::{Integrity, Volume};
use paddock_model::drivers::emulator_hosts::{HostTemplate, Launch};
use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::emulators::EmulatorId;
use paddock_model::templates::{TemplateFacts, TemplateId};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::arguments::{self, Accelerator, MEMORY_FILE, STATE_FILE, Start};
use super::conversation::Trouble;
use super::processes::{self, Process};
use super::qmp::{Memory, Migration, Qmp, RunState};
use super::{OUTPUT_FILE, QemuSettings, console, images};
use crate::durable::{self, io_error, on_a_thread, sync_folder};

pub const STREAM_FILE: &str = "stream";
const TAKEN_FILE: &str = "taken.json";
const FAILED_FILE: &str = "failed.txt";
const TEMPLATE_FILE: &str = "template.json";
/// How often QEMU is asked how far it is.
pub const LOOKED_AT: Duration = Duration::from_millis(5);

/// What a stream was taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    pub fingerprint: String,
    pub image: String,
    pub memory_bytes: i64,
    pub cpus: i64,
    pub disk_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Template {
    fingerprint: String,
    memory: Part,
    state: Part,
}

/// One of its files, as it was when it was finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    bytes: u64,
    digest: String,
    /// In nanoseconds since 1970; whoever writes to the file changes it.
    written_at: i128,
}

/// Where a template is, seen from the folder that a device runs in: short, and without a letter that a shell would take for its own.
pub fn stream_from_device(template: TemplateId) -> String {
    format!("../../templates/{template}/{STREAM_FILE}")
}

fn written_at(found: &fs::Metadata) -> i128 {
    i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec())
}

impl Part {
    fn of(path: &Path) -> io::Result<Part> {
        let file = File::open(path)?;
        file.sync_all()?;
        let digest = digest_of_sparse(&file)?;
        let found = file.metadata()?;
        Ok(Part { bytes: found.len(), digest, written_at: written_at(&found) })
    }

    /// A look from outside, which costs nothing.
    fn is_as_it_was(&self, path: &Path) -> bool {
        fs::metadata(path)
            .is_ok_and(|found| found.len() == self.bytes && written_at(&found) == self.written_at)
    }
}

/// SHA-256 over what is written in a file and where: holes are most of a memory, and take no time.
fn digest_of_sparse(file: &File) -> io::Result<String> {
    let (length, mut at) = (file.metadata()?.len(), 0);
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    let zeros = vec![0; 4096];
    while at < length {
        let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but holes until the end.
            Err(rustix::io::Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start)).unwrap_or(length);
        let mut reader: &File = file;
        reader.seek(SeekFrom::Start(start))?;
        at = start;
        while at < end {
            let most = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let read = reader.read(&mut buffer[..most])?;
            if read == 0 {
                break;
            }
            // Page by page, and only what is not zero: whether zeros are written or a hole differs from file system to file system.
            for (number, page) in buffer[..read].chunks(zeros.len()).enumerate() {
                if page != &zeros[..page.len()] {
                    context.update(&(at + (number * zeros.len()) as u64).to_le_bytes());
                    context.update(page);
                }
            }
            at += read as u64;
        }
        at = at.max(end);
    }
    context.update(&length.to_le_bytes());
    Ok(durable::hex(context.finish().as_ref()))
}

/// All templates of a host.
pub struct Templates {
    folder: PathBuf,
    /// One is made or removed at a time: it takes a processor for a second.
    turn: tokio::sync::Mutex<()>,
}

impl Templates {
    /// Whatever an earlier process was making is not finished by anybody: it ends, and is begun anew when it is asked for.
    pub fn open(folder: PathBuf) -> io::Result<Templates> {
        durable::make_folder(&folder)?;
        end_makers(&folder)?;
        Ok(Templates { folder, turn: tokio::sync::Mutex::default() })
    }

    pub fn folder(&self, template: TemplateId) -> PathBuf {
        self.folder.join(template.to_string())
    }

    /// A place for a stream. What an earlier try left there goes.
    pub fn begin(&self, template: TemplateId) -> io::Result<PathBuf> {
        let folder = self.folder(template);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        durable::make_folder(&folder)?;
        Ok(folder)
    }

    /// The stream is all there.
    pub fn complete(&self, template: TemplateId, taken: &Taken) -> io::Result<()> {
        let folder = self.folder(template);
        File::open(folder.join(STREAM_FILE))?.sync_all()?;
        let text = serde_json::to_vec_pretty(taken).map_err(io::Error::other)?;
        durable::write(&folder.join(TAKEN_FILE), &text, 0o600)
    }

    /// There will be no stream, for this reason.
    pub fn give_up(&self, template: TemplateId, reason: &str) -> io::Result<()> {
        let folder = self.begin(template)?;
        durable::write(&folder.join(FAILED_FILE), reason.as_bytes(), 0o600)
    }

    fn read(&self, template: TemplateId) -> Option<Template> {
        let text = fs::read(self.folder(template).join(TEMPLATE_FILE)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn facts(&self, template: TemplateId, found: &Template) -> TemplateFacts {
        TemplateFacts {
            allocated_bytes: allocated(&self.folder(template)),
            fingerprint: found.fingerprint.clone(),
        }
    }

    /// Puts what a clone needs into its folder, or says why it cannot resume.
    pub fn hand_out(&self, template: TemplateId, fingerprint: &str, to: &Path) -> Result<(), String> {
        let folder = self.folder(template);
        let found = self.read(template).ok_or("the template is not there any more")?;
        if found.fingerprint != fingerprint {
            return Err("the template was made on another machine, or by another version of QEMU".to_owned());
        }
        for (name, part) in [(MEMORY_FILE, &found.memory), (STATE_FILE, &found.state)] {
            if !part.is_as_it_was(&folder.join(name)) {
                return Err(format!("somebody has changed or removed the template's {name}"));
            }
            let link = to.join(name);
            let linked = durable::remove(&link).and_then(|()| fs::hard_link(folder.join(name), &link));
            linked.map_err(|error| format!("the template's {name} cannot be used: {error}"))?;
        }
        // It is small, and QEMU would believe whatever it says.
        let state = File::open(to.join(STATE_FILE)).and_then(|file| digest_of_sparse(&file));
        match state {
            Ok(digest) if digest == found.state.digest => Ok(()),
            _ => Err(format!("the template's {STATE_FILE} is not what was recorded")),
        }
    }

    pub async fn ensure(
        &self,
        template: TemplateId,
        images: &Path,
        accelerator: Accelerator,
        fingerprint: impl Fn(&Launch) -> Option<String>,
        settings: &QemuSettings,
    ) -> DriverResult<TemplateFacts> {
        let _turn = self.turn.lock().await;
        if let Some(found) = self.read(template) {
            return Ok(self.facts(template, &found));
        }
        let folder = self.folder(template);
        let never = |message: String| DriverError::new(Retry::Never, "memory_missing", message);
        let taken: Option<Taken> =
            fs::read(folder.join(TAKEN_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let Some(taken) = taken else {
            let reason = fs::read_to_string(folder.join(FAILED_FILE));
            return Err(never(
                reason.unwrap_or_else(|_| {
                    "the capture was broken off before the memory was written".to_owned()
                }),
            ));
        };
        let launch = launch_of(template, &taken);
        if fingerprint(&launch).as_deref() != Some(&taken.fingerprint) {
            let message =
                "the memory was taken by another version of QEMU; restart the device and capture it again";
            return Err(never(message.to_owned()));
        }
        let made = self.make(&launch, &taken, &folder, images, accelerator, settings).await;
        end_makers(&folder).map_err(|error| io_error("end the maker of a template", error))?;
        made?;
        let (at, fingerprint) = (folder.clone(), taken.fingerprint.clone());
        let found = on_a_thread(move || {
            finish(&at, fingerprint).map_err(|error| io_error("write down a template", error))
        })
        .await?;
        Ok(self.facts(template, &found))
    }

    /// Loads the stream into a machine that does not run, and writes down what is not memory.
    async fn make(
        &self,
        launch: &Launch,
        taken: &Taken,
        folder: &Path,
        images: &Path,
        accelerator: Accelerator,
        settings: &QemuSettings,
    ) -> DriverResult<()> {
        let failed = |error| io_error("make a template", error);
        let (image, profile) = images::find(images, &launch.image)?;
        for name in [MEMORY_FILE, STATE_FILE, arguments::QMP_SOCKET, OUTPUT_FILE] {
            durable::remove(&folder.join(name)).map_err(failed)?;
        }
        durable::replace(&folder.join(arguments::IDENTITY_FILE), b"{}", 0o600).map_err(failed)?;
        let output = File::options().append(true).create(true).mode(0o600).open(folder.join(OUTPUT_FILE));
        let start = Start::Template { disk_bytes: taken.disk_bytes };
        let words = arguments::arguments(&profile, &image, launch, accelerator, Path::new(""), start);
        let maker = Process::start(&settings.qemu_binary, &words, folder, &output.map_err(failed)?);
        let maker = maker.map_err(failed)?;
        let work = async {
            let qmp = open_monitor(folder).await?;
            qmp.migrate_incoming(&format!("cat {STREAM_FILE}"), Memory::All, settings.silence).await?;
            while qmp.status(settings.silence).await? == RunState::Halted("inmigrate".to_owned()) {
                sleep(LOOKED_AT).await;
            }
            let command = format!("umask 077; cat > {STATE_FILE}");
            qmp.migrate(&command, Memory::Shared, settings.silence).await?;
            await_migration(&qmp, settings.silence).await?;
            Ok::<Qmp, Trouble>(qmp)
        };
        let done = tokio::select! {
            done = timeout(settings.template_patience, work) => done,
            _ = maker.ended() => Ok(Err(Trouble::Gone)),
        };
        if let Ok(Ok(qmp)) = &done {
            let _ = qmp.quit(settings.silence).await;
            let _ = timeout(settings.silence, maker.ended()).await;
        }
        maker.kill();
        match done {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(trouble)) => {
                let words = console::last_words(&folder.join(OUTPUT_FILE)).unwrap_or_default();
                let message = format!("QEMU does not take the memory: {trouble:?} {words}");
                Err(DriverError::new(Retry::Never, "memory_refused", message))
            }
            Err(_) => {
                let message = "the template was not made in time; the machine is busy";
                Err(DriverError::new(Retry::Soon, "host_busy", message))
            }
        }
    }

    pub async fn verify(&self, template: TemplateId) -> DriverResult<Integrity> {
        let _turn = self.turn.lock().await;
        let (folder, found) = (self.folder(template), self.read(template));
        on_a_thread(move || {
            let Some(found) = found else { return Ok(Integrity::Missing) };
            for (name, part) in [(MEMORY_FILE, &found.memory), (STATE_FILE, &found.state)] {
                match File::open(folder.join(name)).and_then(|file| digest_of_sparse(&file)) {
                    Ok(digest) if digest == part.digest => {}
                    Ok(_) => return Ok(Integrity::Altered),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Integrity::Missing),
                    Err(error) => return Err(io_error("read a template", error)),
                }
            }
            Ok(Integrity::Sound)
        })
        .await
    }

    pub async fn remove(&self, template: TemplateId) -> DriverResult<()> {
        let _turn = self.turn.lock().await;
        let folder = self.folder(template);
        on_a_thread(move || {
            let remove = || {
                if !folder.exists() {
                    return Ok(());
                }
                end_makers(&folder)?;
                // First what makes it whole: nobody begins to use what is about to go.
                durable::remove(&folder.join(TEMPLATE_FILE))?;
                fs::remove_dir_all(&folder)?;
                sync_folder(folder.parent().unwrap_or(&folder))
            };
            remove().map_err(|error| io_error("remove a template", error))
        })
        .await
    }
}

/// Every template of which there is a trace in a host's folder.
pub fn list(folder: &Path) -> io::Result<Vec<HostTemplate>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(TemplateId::parse) {
            found.push(HostTemplate { id, allocated_bytes: allocated(&entry.path()) });
        }
    }
    found.sort_by_key(|template| template.id);
    Ok(found)
}

fn allocated(folder: &Path) -> i64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.blocks() as i64 * 512)).sum()
}

/// Ends every QEMU that makes a template in this folder or below it.
fn end_makers(folder: &Path) -> io::Result<()> {
    let folder = fs::canonicalize(folder)?;
    let around = folder.parent().unwrap_or(&folder);
    for (pid, words) in processes::running_within(around)? {
        let within = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|path| path.starts_with(&folder));
        let Some(marker) = words.iter().find(|word| word.starts_with("guest=tpl_")).filter(|_| within) else {
            continue;
        };
        if let Some(process) = Process::open(pid)?
            && Process::find(process.name, marker)?.is_some()
        {
            process.kill();
        }
    }
    Ok(())
}

/// The template gets its last file when everything else of it is on the disk.
fn finish(folder: &Path, fingerprint: String) -> io::Result<Template> {
    let part = |name| Part::of(&folder.join(name));
    let template = Template { fingerprint, memory: part(MEMORY_FILE)?, state: part(STATE_FILE)? };
    sync_folder(folder)?;
    let text = serde_json::to_vec_pretty(&template).map_err(io::Error::other)?;
    durable::write(&folder.join(TEMPLATE_FILE), &text, 0o600)?;
    for name in [
        STREAM_FILE,
        TAKEN_FILE,
        arguments::IDENTITY_FILE,
        arguments::QMP_SOCKET,
        arguments::CONTROL_SOCKET,
        arguments::LOG_SOCKET,
        arguments::DISPLAY_SOCKET,
        OUTPUT_FILE,
    ] {
        durable::remove(&folder.join(name))?;
    }
    Ok(template)
}

/// Waits until everything is written.
pub async fn await_migration(qmp: &Qmp, patience: Duration) -> Result<(), Trouble> {
    loop {
        match qmp.migration(patience).await? {
            Migration::Done => return Ok(()),
            Migration::Failed(why) => return Err(Trouble::Refused(why.into())),
            Migration::UnderWay => sleep(LOOKED_AT).await,
        }
    }
}

async fn open_monitor(folder: &Path) -> Result<Qmp, Trouble> {
    let started = Instant::now();
    loop {
        match Qmp::open(folder, Duration::from_secs(10)).await {
            Ok((qmp, _)) => return Ok(qmp),
            Err(trouble) if started.elapsed() > Duration::from_secs(30) => return Err(trouble),
            Err(_) => sleep(LOOKED_AT).await,
        }
    }
}

/// A machine of the same shape, of nobody.
fn launch_of(template: TemplateId, taken: &Taken) -> Launch {
    Launch {
        emulator: EmulatorId(Default::default()),
        incarnation: 0,
        name: String::new(),
        image: taken.image.clone(),
        volume: Volume(String::new()),
        identity: DeviceIdentity {
            serial: String::new(),
            android_id: String::new(),
            machine_id: String::new(),
            mac: "52:54:00:00:00:01".to_owned(),
            seed: String::new(),
            vin: None,
        },
        adb_keys: Vec::new(),
        address: std::net::Ipv4Addr::UNSPECIFIED,
        memory_bytes: taken.memory_bytes,
        cpus: taken.cpus,
        template: Some(template),
        vehicle: None,
    }
}

/// As large as the device believes its disk to be: the pool makes qcow2 of whatever it was given.
pub fn disk_bytes(volume: &str) -> io::Result<u64> {
    let mut header = [0; 32];
    File::open(volume)?.read_exact(&mut header)?;
    let mut size = [0; 8];
    size.copy_from_slice(&header[24..]);
    Ok(u64::from_be_bytes(size))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_digest_of_a_memory_tells_content_and_place_and_not_holes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, writes: &[(&[u8], u64)], length: u64| {
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(folder.path().join(name))
                .expect("a file");
            file.set_len(length).expect("a length");
            for (bytes, at) in writes {
                file.write_all_at(bytes, *at).expect("written");
            }
            digest_of_sparse(&file).expect("a digest")
        };
        let page = [7; 4096];
        let plain = file("a", &[(&page, 8 << 20)], 16 << 20);
        assert_eq!(file("b", &[(&[0; 65536], 0), (&page, 8 << 20)], 16 << 20), plain);
        assert_ne!(file("c", &[(&page, (8 << 20) + 4096)], 16 << 20), plain);
        assert_ne!(file("d", &[(&page, 8 << 20)], 32 << 20), plain);
        assert_ne!(file("e", &[(&page, 8 << 20), (&[1], 5)], 16 << 20), plain);
        assert_ne!(file("f", &[], 16 << 20), plain);
    }
}
