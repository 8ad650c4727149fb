//! The agent: puts the device together, opens its doors, and says when it is ready.

use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::channel::Place;
use crate::device::{Device, Ground, KEPT_IDENTITY};
use crate::identity::{DeviceType, Given};
use crate::logs::{Buffer, Level};
use crate::{adb, control, init, log_port, screen, tools, touches, vehicle};

/// Where QEMU's firmware configuration shows what the host gave.
const GIVEN: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.paddock/identity/raw";
/// What only the screen's viewer needs.
const LATE_MODULES: &str = "/system/lib/modules";
const ADB_PORT: u16 = 5555;

/// Runs the agent until the process ends. Without options it stands on a machine.
pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let given = match &options.identity {
        Some(path) => {
            serde_json::from_slice(&fs::read(path)?).with_context(|| format!("read {}", path.display()))
        }
        // An agent that was restarted goes on as who it was; a resume may have changed that.
        None => match fs::read(KEPT_IDENTITY).or_else(|_| fs::read(GIVEN)) {
            Ok(text) => serde_json::from_slice(&text).context("read the identity that the host gave"),
            Err(_) => Ok(Given::default()),
        },
    };
    let ground = options.root.clone().map_or(Ground::Machine, Ground::Folder);
    let events = control::Events::new()?;
    // A device whose identity cannot be read still starts, so that the host can see why; ADB stays closed.
    let (given, fault) = match given {
        Ok(given) => (given, None),
        Err(error) => (Given::default(), Some(error)),
    };
    let (device, fault) = match Device::new(ground, &given) {
        Ok(device) => (device, fault),
        Err(error) => {
            let ground = options.root.clone().map_or(Ground::Machine, Ground::Folder);
            (Device::new(ground, &Given::default())?, Some(error))
        }
    };
    if let Some(fault) = fault {
        device.log.warn("paddock", &format!("{fault:#}"));
        events.tell(&json!({"event": "fault", "message": format!("{fault:#}")}));
    }
    make_folders(&device)?;
    let place = |port, socket: &Option<PathBuf>| socket.clone().map_or(Place::Port(port), Place::Socket);
    control::start(&device, &events, place(control::PORT, &options.control))?;
    log_port::start(&device, place(log_port::PORT, &options.log))?;
    tools::start(&device)?;
    let listener = TcpListener::bind(options.adb).with_context(|| format!("listen at {}", options.adb))?;
    let address = listener.local_addr()?;
    adb::start(&device, listener)?;
    device.properties.assign("service.adb.tcp.port", &address.port().to_string());
    device.properties.assign("ro.boottime.ready", &device.uptime().as_millis().to_string());
    device.properties.assign("sys.boot_completed", "1");
    device.log.info("paddock", &format!("ready as {}", device.identity().serial));
    events.tell(&json!({"event": "ready", "adb": address.port(), "bootDurationMs": crate::health::boot_duration(&device)}));
    println!("paddock: ready, adb at {address}");
    if device.identity().device_type == DeviceType::Automotive {
        device.properties.assign(vehicle::CONNECTED, "0");
        vehicle::start(&device)?;
    }
    if device.is_machine() {
        // None of this is needed to be ready, and all of it takes time.
        screen::start(&device)?;
        if let Err(error) = init::load_modules(LATE_MODULES) {
            device.log.warn("paddock", &format!("{error:#}"));
        }
        touches::start(&device);
        follow_kernel_log(&device)?;
    }
    loop {
        std::thread::park();
    }
}

struct Options {
    root: Option<PathBuf>,
    adb: SocketAddr,
    control: Option<PathBuf>,
    log: Option<PathBuf>,
    identity: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options {
            root: None,
            adb: ([0, 0, 0, 0], ADB_PORT).into(),
            control: None,
            log: None,
            identity: None,
        };
        for pair in args.chunks(2) {
            let [name, value] = pair else {
                bail!("{} wants a value", pair[0]);
            };
            match name.as_str() {
                "--root" => {
                    options.root =
                        Some(fs::canonicalize(value).with_context(|| format!("no folder {value}"))?);
                }
                "--adb" => {
                    options.adb = value.parse().with_context(|| format!("{value} is no ADDRESS:PORT"))?;
                }
                "--control" => options.control = Some(value.into()),
                "--log" => options.log = Some(value.into()),
                "--identity" => options.identity = Some(value.into()),
                _ => bail!("agent knows --root, --adb, --control, --log and --identity, not {name}"),
            }
        }
        Ok(options)
    }
}

/// What a device has, and a folder that stands for one lacks.
fn make_folders(device: &Device) -> Result<()> {
    for folder in [
        "/data/local/tmp",
        "/data/app",
        "/data/data",
        "/data/system",
        "/sdcard",
        "/system/bin",
        "/dev/socket",
    ] {
        let path = device.path(folder);
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
    }
    if !device.is_machine() {
        let program = std::env::current_exe()?;
        for name in tools::NAMES {
            let link = device.path(&format!("/system/bin/{name}"));
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&program, &link)
                .with_context(|| format!("link {}", link.display()))?;
        }
    }
    Ok(())
}

/// Copies the kernel's messages into the log, as Android does.
fn follow_kernel_log(device: &Arc<Device>) -> Result<()> {
    let Ok(mut messages) = File::open("/dev/kmsg") else {
        return Ok(());
    };
    let device = device.clone();
    std::thread::Builder::new().name("kernel-log".to_owned()).spawn(move || {
        let mut record = vec![0; 8192];
        loop {
            match messages.read(&mut record) {
                Ok(0) => return,
                Ok(length) => add_kernel_message(&device, &String::from_utf8_lossy(&record[..length])),
                // The kernel has overwritten what was not read in time; the next read goes on behind it.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}

/// A record is `priority,number,time,flags;text` and further lines about the device it came from.
fn add_kernel_message(device: &Device, record: &str) {
    let Some((head, text)) = record.split_once(';') else {
        return;
    };
    let priority: u32 = head.split(',').next().and_then(|priority| priority.parse().ok()).unwrap_or(6);
    let level = match priority & 7 {
        0..=2 => Level::Fatal,
        3 => Level::Error,
        4 => Level::Warn,
        5 | 6 => Level::Info,
        _ => Level::Debug,
    };
    device.log.add(Buffer::Kernel, level, "kernel", 0, text.lines().next().unwrap_or_default());
}
