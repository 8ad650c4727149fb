//! How QEMU is called for a device: a function of the image's profile, the launch and the host's settings, and of nothing else.
//!
//! QEMU runs in the device's own folder and finds its sockets and files there by short names: a path to a socket has no
//! room for more than 107 bytes, and a data folder may lie deeper than that.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use paddock_model::devices::DeviceIdentity;
use paddock_model::drivers::disk_pools::Volume;
use paddock_model::drivers::emulator_hosts::Launch;
use paddock_model::emulators::EmulatorId;
use paddock_model::templates::TemplateId;
use serde_json::{Value, json};

use super::console;
pub use crate::emulator_hosts::profile::ADB_PORT;
use crate::emulator_hosts::profile::{Boot, DiskFormat, Identity, Profile, Vehicle};

pub const QMP_SOCKET: &str = "qmp.sock";
pub const CONTROL_SOCKET: &str = "control.sock";
pub const LOG_SOCKET: &str = "log.sock";
pub const DISPLAY_SOCKET: &str = "display.sock";
pub const IDENTITY_FILE: &str = "identity.json";
/// A template's memory, and the state of everything else of the machine.
pub const MEMORY_FILE: &str = "memory.ram";
pub const STATE_FILE: &str = "memory.state";

/// How a machine comes to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Boot,
    /// It goes on where the template's device stood, on memory of its own; nobody reaches it before it is told who it is.
    Resume,
    /// It never runs: what is loaded into it becomes the template. Its disk is as large as the device's, and empty.
    Template {
        disk_bytes: u64,
    },
}

/// Who computes the device's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    /// KVM where the processor can do it and the device opens. The device alone proves nothing: inside some virtual
    /// machines it is there and guests hang.
    pub fn detect() -> Accelerator {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let opens = || std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
        if can_virtualise(&processor) && opens() { Accelerator::Kvm } else { Accelerator::Tcg }
    }

    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

fn can_virtualise(processor: &str) -> bool {
    let flags = processor.lines().filter(|line| line.starts_with("flags"));
    flags.flat_map(str::split_whitespace).any(|flag| flag == "vmx" || flag == "svm")
}

/// What tells this device's process from every other one, in its command line.
pub fn marker(emulator: EmulatorId, incarnation: i64) -> String {
    format!("guest={emulator}.{incarnation}")
}

pub fn read_marker(text: &str) -> Option<(EmulatorId, i64)> {
    let (emulator, incarnation) = text.strip_prefix("guest=")?.split_once('.')?;
    Some((EmulatorId::parse(emulator)?, incarnation.parse().ok()?))
}

pub fn template_marker(template: TemplateId) -> String {
    format!("guest={template}")
}

pub fn arguments(
    profile: &Profile,
    image: &Path,
    launch: &Launch,
    accelerator: Accelerator,
    connector: &Path,
    start: Start,
) -> Vec<String> {
    let mut line = Line(Vec::new());
    let machine = &profile.machine;
    line.add(
        "-name",
        match (start, launch.template) {
            (Start::Template { .. }, Some(template)) => template_marker(template),
            _ => marker(launch.emulator, launch.incarnation),
        },
    );
    line.add("-accel", accelerator.name());
    // Memory has one name however it is come by: what is saved from one machine is loaded into another.
    line.add("-machine", joined([machine.kind.as_str(), "memory-backend=memory", &machine.options]));
    let size = format!("size={}M", (launch.memory_bytes >> 20).max(1));
    line.add(
        "-object",
        match start {
            Start::Boot => format!("memory-backend-ram,id=memory,{size}"),
            Start::Resume => format!("memory-backend-file,id=memory,{size},mem-path={MEMORY_FILE},share=off"),
            Start::Template { .. } => {
                format!("memory-backend-file,id=memory,{size},mem-path={MEMORY_FILE},share=on")
            }
        },
    );
    if let Some(cpu) = &machine.cpu {
        line.add("-cpu", cpu);
    }
    line.add("-smp", launch.cpus.max(1).to_string());
    line.add("-m", format!("{}M", (launch.memory_bytes >> 20).max(1)));
    line.flags(["-nodefaults", "-no-user-config"]);
    line.add("-display", "none");

    let file = |name: &str| image.join(name).display().to_string();
    match &profile.boot {
        Boot::Kernel { kernel, initramfs, command_line } => {
            line.add("-kernel", file(kernel));
            if let Some(initramfs) = initramfs {
                line.add("-initrd", file(initramfs));
            }
            line.add("-append", command_line);
        }
        Boot::Bios { firmware: Some(firmware) } => line.add("-bios", file(firmware)),
        Boot::Bios { firmware: None } => {}
    }

    for (number, disk) in profile.disks.iter().enumerate() {
        let name = number.to_string();
        let [below, node] = match disk.read_only {
            true => read_only_nodes(&name, &file(&disk.file), disk.format),
            false => match start {
                Start::Boot | Start::Resume => writable_nodes(&name, &launch.volume.0),
                Start::Template { disk_bytes } => empty_nodes(&name, disk_bytes),
            },
        };
        line.add("-blockdev", below.to_string());
        line.add("-blockdev", node.to_string());
        // The firmware starts from the device's own disk.
        let boot =
            if matches!(profile.boot, Boot::Bios { .. }) && !disk.read_only { "bootindex=0" } else { "" };
        let drive = format!("drive=disk{number}");
        line.add("-device", joined([disk.device.as_str(), &drive, boot, &disk.device_options]));
    }

    let network = &profile.network;
    let mut netdev = "user,id=network".to_owned();
    if start == Start::Boot {
        for forward in forwards(profile, launch.address) {
            netdev += &format!(",hostfwd={forward}");
        }
    }
    if !matches!(start, Start::Template { .. })
        && let Some((address, socket)) = car(profile, launch)
    {
        let command = [connector, Path::new("connect"), socket].map(quoted).join(" ");
        let (ip, port) = (address.ip(), address.port());
        // A comma ends an option unless there are two.
        netdev += &format!(",guestfwd=tcp:{ip}:{port}-cmd:{}", command.replace(',', ",,"));
    }
    if network.restricted {
        netdev += ",restrict=on";
    }
    line.add("-netdev", netdev);
    let mac = format!("mac={}", launch.identity.mac);
    line.add("-device", joined([network.device.as_str(), "netdev=network", &mac, &network.device_options]));

    if let Some(display) = &profile.display {
        line.add("-device", &display.device);
        line.add("-vnc", format!("unix:{DISPLAY_SOCKET}"));
    }
    for device in profile.input.iter().chain(&profile.entropy).chain(&profile.devices) {
        line.add("-device", device);
    }
    if let Some(channels) = &profile.channels {
        line.add("-device", &channels.device);
        for (id, socket, name) in
            [("control", CONTROL_SOCKET, &channels.control), ("log", LOG_SOCKET, &channels.log)]
        {
            line.add("-chardev", format!("socket,id={id},path={socket},server=on,wait=off"));
            line.add("-device", format!("virtserialport,chardev={id},name={name}"));
        }
    }
    if let Some(Identity::FwCfg { name }) = &profile.identity {
        line.add("-fw_cfg", format!("name={name},file={IDENTITY_FILE}"));
    }
    // Appending, so that a restart of QEMU under the same number would not overwrite what is there.
    let console = console::file_name(launch.incarnation);
    line.add(
        "-chardev",
        match start {
            Start::Template { .. } => "null,id=console".to_owned(),
            Start::Boot | Start::Resume => format!("file,id=console,path={console},append=on"),
        },
    );
    line.add("-serial", "chardev:console");
    line.add("-qmp", format!("unix:{QMP_SOCKET},server=on,wait=off"));
    if start != Start::Boot {
        line.flags(["-S"]);
        line.add("-incoming", "defer");
    }
    line.0
}

/// Where the device finds its car, and the car's socket; nothing when it has none outside.
pub fn car<'a>(profile: &Profile, launch: &'a Launch) -> Option<(SocketAddrV4, &'a Path)> {
    match (profile.vehicle, &launch.vehicle) {
        (Vehicle::GuestAddress(address), Some(socket)) => Some((address, socket)),
        _ => None,
    }
}

/// As one word of a shell's line, which is how QEMU's network reads a command.
fn quoted(word: &Path) -> String {
    format!("'{}'", word.display().to_string().replace('\'', r"'\''"))
}

/// What of the device's own network answers at its address, as QEMU is told it.
pub fn forwards(profile: &Profile, address: Ipv4Addr) -> Vec<String> {
    let adb = (ADB_PORT, profile.adb.port);
    let others = profile.network.ports.iter().map(|port| (port.host, port.guest));
    let own_car = match profile.vehicle {
        Vehicle::Port(port) => Some((port, port)),
        Vehicle::GuestAddress(_) => None,
    };
    let ports = std::iter::once(adb).chain(others).chain(own_car);
    ports.map(|(host, guest)| format!("tcp:{address}:{host}-:{guest}")).collect()
}

/// What the memory of a machine depends on besides QEMU's version and the processor: everything that it is made of, and nothing
/// that is one device's own.
pub fn shape(profile: &Profile, launch: &Launch, accelerator: Accelerator) -> String {
    let nobody = Launch {
        emulator: EmulatorId(Default::default()),
        incarnation: 0,
        volume: Volume(String::new()),
        identity: DeviceIdentity { mac: String::new(), ..launch.identity.clone() },
        address: Ipv4Addr::UNSPECIFIED,
        template: None,
        vehicle: None,
        ..launch.clone()
    };
    // The image's name holds the digest of its files.
    let words =
        arguments(profile, Path::new(&launch.image), &nobody, accelerator, Path::new(""), Start::Boot);
    words.join("\n")
}

// In JSON, where no letter of a path means anything.

fn read_only_nodes(name: &str, path: &str, format: DiskFormat) -> [Value; 2] {
    let driver = match format {
        DiskFormat::Qcow2 => "qcow2",
        DiskFormat::Raw => "raw",
    };
    [
        json!({"driver": "file", "node-name": format!("file{name}"), "filename": path, "read-only": true}),
        json!({"driver": driver, "node-name": format!("disk{name}"), "file": format!("file{name}"), "read-only": true}),
    ]
}

/// A disk of that size that holds nothing, for a machine that never looks.
fn empty_nodes(name: &str, bytes: u64) -> [Value; 2] {
    [
        json!({"driver": "null-co", "node-name": format!("file{name}"), "size": bytes, "read-zeroes": true}),
        json!({"driver": "raw", "node-name": format!("disk{name}"), "file": format!("file{name}")}),
    ]
}

/// The pool makes qcow2 of whatever it was given.
fn writable_nodes(name: &str, path: &str) -> [Value; 2] {
    [
        json!({"driver": "file", "node-name": format!("file{name}"), "filename": path, "discard": "unmap"}),
        json!({"driver": "qcow2", "node-name": format!("disk{name}"), "file": format!("file{name}"), "discard": "unmap", "detect-zeroes": "unmap"}),
    ]
}

/// Another disk for a device that runs, as if it had been started with it; what it stands on comes when it takes its place.
pub fn successor(node: &BlockNode, path: &str) -> Value {
    let [below, mut disk] = writable_nodes(&node.to_string(), path);
    (disk["file"], disk["backing"]) = (below, Value::Null);
    disk
}

/// One of a device's disks and its place in time: `0`, then `0.1`, `0.2`, … after each move to another disk.
/// QEMU calls it `disk0.1`, and the file below `file0.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockNode {
    pub disk: u32,
    pub turn: u32,
}

impl BlockNode {
    pub fn parse(name: &str) -> Option<BlockNode> {
        let numbers = name.strip_prefix("disk")?;
        let (disk, turn) = numbers.split_once('.').unwrap_or((numbers, "0"));
        let node = BlockNode { disk: disk.parse().ok()?, turn: turn.parse().ok()? };
        (node.name() == name).then_some(node)
    }

    pub fn name(&self) -> String {
        format!("disk{self}")
    }

    pub fn file(&self) -> String {
        format!("file{self}")
    }

    pub fn next(&self) -> BlockNode {
        BlockNode { turn: self.turn + 1, ..self.clone() }
    }
}

impl fmt::Display for BlockNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turn {
            0 => write!(f, "{}", self.disk),
            turn => write!(f, "{}.{turn}", self.disk),
        }
    }
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
}

struct Line(Vec<String>);

impl Line {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }

    fn flags<const N: usize>(&mut self, flags: [&str; N]) {
        self.0.extend(flags.map(str::to_owned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            emulator: EmulatorId::parse("emu_01k9zzzzzzzzzzzzzzzzzzzzzz").expect("an id"),
            incarnation: 3,
            name: "a, b \"c\"".to_owned(),
            image: "paddock-phone-0123456789ab".to_owned(),
            volume: Volume("/data/a, \"b\"/disks/dsk_1.qcow2".to_owned()),
            identity: DeviceIdentity {
                serial: "PDK1".to_owned(),
                android_id: "0123456789abcdef".to_owned(),
                machine_id: "0123456789abcdef0123456789abcdef".to_owned(),
                mac: "52:54:00:12:34:56".to_owned(),
                seed: "00".repeat(32),
                vin: None,
            },
            adb_keys: Vec::new(),
            address: "127.80.0.5".parse().expect("an address"),
            memory_bytes: 512 << 20,
            cpus: 2,
            template: TemplateId::parse("tpl_01k9zzzzzzzzzzzzzzzzzzzzzz"),
            vehicle: None,
        }
    }

    fn readable(words: &[String]) -> String {
        words.iter().fold(String::new(), |text, word| match word.strip_prefix('-') {
            Some(_) if !text.is_empty() => text + "\n" + word,
            Some(_) => word.clone(),
            None => text + " " + word,
        })
    }

    const AUTOMOTIVE: &str = include_str!("../../../../../image/automotive.profile.json");

    fn words(profile: &Profile, launch: &Launch, start: Start) -> Vec<String> {
        let connector = Path::new("/usr/local/bin/paddockd");
        arguments(profile, Path::new("/host/images/x"), launch, Accelerator::Tcg, connector, start)
    }

    fn netdev(profile: &Profile, launch: &Launch, start: Start) -> String {
        let words = words(profile, launch, start);
        let at = words.iter().position(|word| word == "-netdev").expect("a network");
        words[at + 1].clone()
    }

    #[test]
    fn an_image_with_a_server_of_its_own_is_reached_and_reaches_nobody() {
        let mut profile = Profile::parse(AUTOMOTIVE.as_bytes()).expect("a profile");
        let launch = Launch { vehicle: Some("/car".into()), ..launch() };
        assert!(netdev(&profile, &launch, Start::Boot).contains("guestfwd=tcp:10.0.2.100:9300-cmd:"));
        assert_eq!(
            netdev(&profile, &Launch { vehicle: None, ..launch.clone() }, Start::Resume),
            "user,id=network"
        );

        profile.vehicle = Vehicle::Port(9301);

        let own = netdev(&profile, &launch, Start::Boot);
        assert!(own.contains("hostfwd=tcp:127.80.0.5:9301-:9301") && !own.contains("guestfwd"), "{own}");
        assert_eq!(forwards(&profile, launch.address).len(), 2);
    }

    /// Every change of the command line shows in `arguments.txt`; UPDATE=1 writes it anew.
    #[test]
    fn the_command_line_is_the_one_that_was_agreed_on() {
        let profiles = [
            ("reference device", include_str!("../../../../../image/phone.profile.json")),
            ("Android-x86", include_str!("../../../../../docs/guide/android-x86.profile.json")),
            (
                "Google's emulator image",
                include_str!("../../../../../docs/guide/google-emulator.profile.json"),
            ),
        ];
        let mut found = String::new();
        for (title, text) in profiles {
            let profile = Profile::parse(text.as_bytes()).expect(title);
            let words = words(&profile, &launch(), Start::Boot);
            found += &format!("## {title}\n{}\n\n", readable(&words));
        }
        let profile = Profile::parse(profiles[0].1.as_bytes()).expect("a profile");
        for (title, start) in [
            ("reference device, resuming", Start::Resume),
            ("reference device, becoming a template", Start::Template { disk_bytes: 2 << 30 }),
        ] {
            let words = words(&profile, &launch(), start);
            found += &format!("## {title}\n{}\n\n", readable(&words));
        }
        let profile = Profile::parse(AUTOMOTIVE.as_bytes()).expect("a profile");
        for (title, start) in [
            ("reference device with a car", Start::Boot),
            ("reference device with a car, resuming", Start::Resume),
        ] {
            let launch =
                Launch { vehicle: Some("/data/a, \"b\"'s/vehicles/x/vehicle.sock".into()), ..launch() };
            found += &format!("## {title}\n{}\n\n", readable(&words(&profile, &launch, start)));
        }
        let found = found.trim_end().to_owned() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emulator_hosts/qemu/arguments.txt");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &found).expect("written");
        }
        assert_eq!(found, std::fs::read_to_string(&path).expect("the agreed text"));
    }

    #[test]
    fn a_shape_is_that_of_the_machine_and_not_of_the_device() {
        let profile = include_str!("../../../../../image/phone.profile.json");
        let profile = Profile::parse(profile.as_bytes()).expect("a profile");
        let shape = |launch: &Launch| shape(&profile, launch, Accelerator::Tcg);
        let first = shape(&launch());
        let mut other = Launch {
            emulator: EmulatorId(Default::default()),
            incarnation: 9,
            name: "z".to_owned(),
            volume: Volume("/z".to_owned()),
            address: Ipv4Addr::LOCALHOST,
            template: None,
            vehicle: Some("/z".into()),
            ..launch()
        };
        other.identity.mac = "02:00:00:00:00:01".to_owned();
        assert_eq!(shape(&other), first);
        assert!(!first.contains("52:54"), "{first}");
        for other in [
            Launch { memory_bytes: 1 << 30, ..launch() },
            Launch { cpus: 1, ..launch() },
            Launch { image: "another".to_owned(), ..launch() },
        ] {
            assert_ne!(shape(&other), first);
        }
    }

    #[test]
    fn a_successor_is_opened_as_the_first_disk_is() {
        let node = BlockNode { disk: 0, turn: 2 };
        let [file, mut disk] = writable_nodes("0.2", "/x");
        let mut successor = successor(&node, "/x");
        assert_eq!(successor["backing"].take(), Value::Null);
        assert_eq!(successor["file"].take(), file);
        disk["file"].take();
        disk["backing"] = Value::Null;
        assert_eq!(successor, disk);
        assert_eq!((node.name().as_str(), node.file().as_str()), ("disk0.2", "file0.2"));
    }

    #[test]
    fn nodes_are_known_by_their_names() {
        for (name, expected) in [
            ("disk0", Some((0, 0))),
            ("disk2.17", Some((2, 17))),
            ("disk0.0", None),
            ("disk", None),
            ("disk+1", None),
            ("file0", None),
            ("#block123", None),
        ] {
            let node = BlockNode::parse(name);
            assert_eq!(node.as_ref().map(|node| (node.disk, node.turn)), expected, "{name}");
        }
        assert_eq!(BlockNode { disk: 0, turn: 0 }.next().name(), "disk0.1");
    }

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let launch = launch();
        assert_eq!(read_marker(&marker(launch.emulator, 3)), Some((launch.emulator, 3)));
        for text in ["", "guest=", "guest=vm", "guest=emu_1.2", "emu_01k9zzzzzzzzzzzzzzzzzzzzzz.3"] {
            assert_eq!(read_marker(text), None, "{text}");
        }
    }

    #[test]
    fn kvm_needs_a_processor_that_can() {
        for (processor, can) in [
            ("flags\t\t: fpu vmx sse", true),
            ("flags\t\t: fpu svm", true),
            ("flags\t\t: fpu vmxnet svm_lock", false),
            ("model name\t: vmx svm", false),
            ("", false),
        ] {
            assert_eq!(can_virtualise(processor), can, "{processor}");
        }
    }
}
