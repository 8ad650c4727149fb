//! The device: everything that its ADB daemon, its tools and its control channel share.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::system::RebootCommand;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::activities::Activities;
use crate::adb::Connections;
use crate::adb::auth::Gate;
use crate::freezer::Freezer;
use crate::identity::{DeviceType, Given, Identity};
use crate::logs::Logs;
use crate::packages::Packages;
use crate::properties::Properties;
use crate::settings::Settings;
use crate::vehicle::Vehicle;
use crate::{kernel, network};

/// Where the identity is kept while the machine runs, and no longer.
pub const KEPT_IDENTITY: &str = "/run/identity.json";

/// What the agent stands on.
pub enum Ground {
    /// A whole machine, which it may rename, freeze and switch off.
    Machine,
    /// A folder that stands for the root: an ordinary process, for tests.
    Folder(PathBuf),
}

#[derive(Clone, Copy)]
pub enum Power {
    Off,
    Restart,
}

pub struct Device {
    pub ground: Ground,
    pub properties: Properties,
    pub log: Logs,
    pub packages: Packages,
    pub settings: Settings,
    pub activities: Activities,
    pub connections: Connections,
    pub freezer: Freezer,
    pub vehicle: Vehicle,
    identity: Mutex<Identity>,
    gate: Mutex<Arc<Gate>>,
}

impl Device {
    pub fn new(ground: Ground, given: &Given) -> Result<Arc<Device>> {
        let root = match &ground {
            Ground::Machine => PathBuf::from("/"),
            Ground::Folder(root) => root.clone(),
        };
        let build = fs::read_to_string(root.join("system/build.prop")).unwrap_or_default();
        let properties = Properties::load(&build, root.join("data/property/persistent"));
        let version = properties.get("ro.build.version.release");
        let characteristics = properties.get("ro.build.characteristics");
        let device_type =
            if characteristics.contains("automotive") { DeviceType::Automotive } else { DeviceType::Phone };
        let identity = Identity::made_up(device_type, if version.is_empty() { "14" } else { &version })?;
        let device = Arc::new(Device {
            freezer: Freezer::new(&root),
            packages: Packages::load(&root),
            settings: Settings::load(&root),
            ground,
            properties,
            log: Logs::default(),
            activities: Activities::default(),
            connections: Connections::default(),
            vehicle: Vehicle::default(),
            gate: Mutex::new(Arc::new(identity.adb.parsed()?)),
            identity: Mutex::new(identity),
        });
        device.take_identity(given)?;
        Ok(device)
    }

    pub fn is_machine(&self) -> bool {
        matches!(self.ground, Ground::Machine)
    }

    pub fn identity(&self) -> Identity {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who may connect now.
    pub fn gate(&self) -> Arc<Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes on the identity that the host gives. Nothing changes when any part of it is wrong.
    pub fn take_identity(&self, given: &Given) -> Result<()> {
        let new = self.identity().with(given)?;
        let gate = Arc::new(new.adb.parsed()?);
        let seed = given
            .seed
            .as_deref()
            .map(|seed| STANDARD.decode(seed))
            .transpose()
            .context("seed: not base64")?;
        if let Some(seed) = seed {
            self.take_seed(&seed)?;
        }
        for (name, value) in [
            ("ro.serialno", new.serial.as_str()),
            ("ro.boot.serialno", &new.serial),
            ("ro.build.version.release", &new.android_version),
            ("ro.build.version.sdk", &new.sdk().to_string()),
            ("ro.paddock.device_name", &new.device_name),
            ("net.hostname", &new.hostname),
        ] {
            self.properties.assign(name, value);
        }
        for (name, value) in &given.properties {
            self.properties.assign(name, value);
        }
        if self.is_machine() {
            rustix::system::sethostname(new.hostname.as_bytes()).context("set the host name")?;
            fs::write("/run/machine-id", format!("{}\n", new.machine_id)).context("write the machine id")?;
            // Without a network card the device still has its control channel.
            if let Err(error) = network::configure(&new.network, new.mac) {
                self.log.warn("network", &format!("{error:#}"));
            }
        }
        if self.is_machine() {
            // In memory only: for the agent's next start, should this one fail.
            let kept = serde_json::to_vec(&new.as_given()).context("write down the identity")?;
            fs::write(KEPT_IDENTITY, kept).context("write down the identity")?;
        }
        // Anew each time: after a resume from memory the old connection leads nowhere.
        self.vehicle.aim(new.vehicle);
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = gate;
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Mixes bytes that no other clone has into the kernel's generator, and uses them from now on.
    fn take_seed(&self, seed: &[u8]) -> Result<()> {
        if !self.is_machine() {
            return Ok(());
        }
        let mut random = File::options().write(true).open("/dev/urandom").context("open /dev/urandom")?;
        random.write_all(seed).context("write the seed")?;
        kernel::reseed(&random).context("reseed the kernel's generator")
    }

    pub fn set_clock(&self, since_epoch: Duration) -> Result<()> {
        if self.is_machine() {
            let time =
                Timespec { tv_sec: since_epoch.as_secs() as i64, tv_nsec: since_epoch.subsec_nanos().into() };
            clock_settime(ClockId::Realtime, time).context("set the clock")?;
        }
        self.properties.nudge();
        Ok(())
    }

    pub fn clock(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    /// Since the kernel started.
    pub fn uptime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }

    /// Where a path of the device lies for the agent.
    pub fn path(&self, path: &str) -> PathBuf {
        self.path_of(OsStr::new(path))
    }

    pub fn path_of(&self, path: &OsStr) -> PathBuf {
        let path = Path::new(path);
        match &self.ground {
            Ground::Machine => Path::new("/").join(path),
            Ground::Folder(root) if path.starts_with(root) => path.to_owned(),
            Ground::Folder(root) => {
                let inside = path.components().filter(|part| matches!(part, Component::Normal(_)));
                root.join(inside.collect::<PathBuf>())
            }
        }
    }

    /// A shell for this command, or one to type into.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        if line.is_empty() {
            command.arg("-");
        } else {
            command.args(["-c", line]);
        }
        let tools = self.path("/system/bin");
        let path = match self.ground {
            Ground::Machine => "/system/bin:/vendor/bin:/bin:/sbin:/usr/bin:/usr/sbin".to_owned(),
            Ground::Folder(_) => format!("{}:/usr/bin:/bin", tools.display()),
        };
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.path("/data/local"))
            .env("TMPDIR", self.path("/data/local/tmp"))
            .env("ANDROID_DATA", self.path("/data"))
            .env("ANDROID_ROOT", self.path("/system"))
            .env("HOSTNAME", self.identity().hostname)
            .env("USER", "root")
            .env("SHELL", "/bin/sh")
            .env("PS1", "\\h:\\w # ")
            .env("TERM", "dumb")
            .env(crate::tools::SOCKET, self.path(crate::tools::SOCKET_PATH))
            .current_dir(self.path("/"));
        command
    }

    /// Switches the machine off or restarts it, with everything on the disk.
    pub fn power(&self, power: Power) -> io::Result<()> {
        if let Ground::Folder(_) = self.ground {
            std::process::exit(0);
        }
        self.freezer.thaw();
        rustix::fs::sync();
        let read_only = rustix::mount::MountFlags::RDONLY;
        // Open files may forbid it; what is synced is safe all the same, and the journal does the rest.
        let _ = rustix::mount::mount_remount("/", read_only, "");
        Ok(rustix::system::reboot(match power {
            Power::Off => RebootCommand::PowerOff,
            Power::Restart => RebootCommand::Restart,
        })?)
    }
}
