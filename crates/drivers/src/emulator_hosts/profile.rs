//! Image profiles: what kind of machine a disk needs around it, as data. `docs/guide/android-images.md` explains each field.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Component, Path};

use paddock_model::devices::{BRINGS_VEHICLE, DeviceType, Image};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The version of this format, 1.
    pub profile: u32,
    pub name: String,
    pub device_type: DeviceType,
    pub android_version: String,
    pub abi: String,
    pub boot: Boot,
    pub machine: Machine,
    pub disks: Vec<Disk>,
    pub network: Network,
    pub display: Option<Display>,
    #[serde(default)]
    pub input: Vec<String>,
    pub entropy: Option<String>,
    /// Further devices, as QEMU's `-device` takes them.
    #[serde(default)]
    pub devices: Vec<String>,
    pub adb: Adb,
    pub identity: Option<Identity>,
    pub channels: Option<Channels>,
    #[serde(default)]
    pub vehicle: Vehicle,
    pub ready: Ready,
    #[serde(default)]
    pub capabilities: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Boot {
    /// QEMU loads the kernel itself.
    Kernel { kernel: String, initramfs: Option<String>, command_line: String },
    /// The firmware starts what the device's own disk holds.
    Bios { firmware: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub options: String,
    pub cpu: Option<String>,
    pub cpus: i64,
    #[serde(rename = "memoryMiB")]
    pub memory_mib: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    pub role: String,
    pub file: String,
    pub format: DiskFormat,
    pub device: String,
    #[serde(default)]
    pub device_options: String,
    /// Shared by all devices of the image. Exactly one disk is not: it becomes the layer that each device's volume stands on.
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    Qcow2,
    Raw,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    pub device: String,
    #[serde(default)]
    pub device_options: String,
    /// Whether the device is kept from opening connections to anywhere.
    #[serde(default)]
    pub restricted: bool,
    /// Further ports of the device that its address answers on.
    #[serde(default)]
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Port {
    pub host: u16,
    pub guest: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Display {
    pub device: String,
    pub width: u32,
    pub height: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Adb {
    pub port: u16,
    pub authorisation: Option<String>,
}

/// How the device is told who it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Identity {
    FwCfg { name: String },
}

/// The agent's serial ports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Channels {
    pub device: String,
    pub control: String,
    pub log: String,
}

/// How an automotive device and its car reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Vehicle {
    /// The car stands outside, and this address of the device's own network leads to it.
    GuestAddress(SocketAddrV4),
    /// The image brings a VehicleServer of its own, which listens on this port.
    Port(u16),
}

impl Default for Vehicle {
    fn default() -> Vehicle {
        Vehicle::GuestAddress(SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 100), 9300))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ready {
    pub by: ReadyBy,
    /// How long a boot takes at most, for whoever launches the image by hand; the daemon has a deadline of its own.
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadyBy {
    /// The agent says so on its control channel.
    Control,
    /// The ADB daemon answers.
    Adb,
}

/// Why a profile cannot be used.
#[derive(Debug)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    pub fn parse(text: &[u8]) -> Result<Profile, ProfileError> {
        let profile: Profile =
            serde_json::from_slice(text).map_err(|error| ProfileError(error.to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let wrong = |text: String| Err(ProfileError(text));
        if self.profile != 1 {
            return wrong(format!("version {} of profiles is not known", self.profile));
        }
        // The name becomes a folder's.
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if self.name.is_empty()
            || self.name.len() > 64
            || self.name.starts_with('.')
            || !self.name.chars().all(plain)
        {
            return wrong(format!("{:?} cannot be a name: letters, digits, `-`, `_`, `.`", self.name));
        }
        let writable = self.disks.iter().filter(|disk| !disk.read_only).count();
        if writable != 1 {
            return wrong(format!("exactly one disk is the device's own, not {writable}"));
        }
        if self.machine.cpus < 1 || self.machine.memory_mib < 1 {
            return wrong("a machine needs a processor and memory".to_owned());
        }
        if self.ready.by == ReadyBy::Control && self.channels.is_none() {
            return wrong(
                "a device without channels cannot say that it is ready; say `\"by\": \"adb\"`".to_owned(),
            );
        }
        match self.vehicle {
            // QEMU's own network, without its gateway, name server, device, name and broadcast.
            Vehicle::GuestAddress(address)
                if address.port() == 0
                    || address.ip().octets()[..3] != [10, 0, 2]
                    || [0, 2, 3, 15, 255].contains(&address.ip().octets()[3]) =>
            {
                return wrong(format!("{address} cannot lead to a car; use 10.0.2.100:9300"));
            }
            Vehicle::Port(port)
                if port == 0
                    || port == ADB_PORT
                    || self.network.ports.iter().any(|other| other.host == port) =>
            {
                return wrong(format!("port {port} of the device's address is not free for its car"));
            }
            _ => {}
        }
        // Each file ends up in one folder, beside the others.
        let own = self.disks.iter().filter(|disk| !disk.read_only).map(|disk| disk.file.as_str());
        for file in self.files().into_iter().chain(own) {
            let mut parts = Path::new(file).components();
            if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
                || file == FILE_NAME
            {
                return wrong(format!("{file:?} must be the name of a file beside the profile"));
            }
        }
        Ok(())
    }

    /// The files besides the device's own disk that a machine needs, by their names.
    pub fn files(&self) -> Vec<&str> {
        let mut files = match &self.boot {
            Boot::Kernel { kernel, initramfs, .. } => {
                [Some(kernel), initramfs.as_ref()].into_iter().flatten().collect::<Vec<_>>()
            }
            Boot::Bios { firmware } => firmware.iter().collect(),
        };
        files.extend(self.disks.iter().filter(|disk| disk.read_only).map(|disk| &disk.file));
        files.into_iter().map(String::as_str).collect()
    }

    /// The image of this profile, with its disk in the folder where the profile was found.
    pub fn image(&self, name: String, folder: &Path) -> Image {
        let own = self.disks.iter().find(|disk| !disk.read_only);
        let mut capabilities = self.capabilities.clone();
        if matches!(self.vehicle, Vehicle::Port(_)) {
            capabilities.push(BRINGS_VEHICLE.to_owned());
        }
        Image {
            name,
            device_type: self.device_type,
            android_version: self.android_version.clone(),
            abi: self.abi.clone(),
            memory_bytes: self.machine.memory_mib << 20,
            cpus: self.machine.cpus,
            capabilities,
            disk: own.map(|disk| folder.join(&disk.file)).unwrap_or_default(),
        }
    }
}

/// The port on the device's address where ADB answers, whatever the device's own port is.
pub const ADB_PORT: u16 = 5555;

/// What a profile is called in the folder of its image.
pub const FILE_NAME: &str = "profile.json";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PHONE: &str = include_str!("../../../../image/phone.profile.json");

    #[test]
    fn the_reference_devices_profiles_are_understood() {
        for text in [PHONE, include_str!("../../../../image/automotive.profile.json")] {
            let profile = Profile::parse(text.as_bytes()).expect("a profile");

            assert_eq!(profile.files(), ["vmlinux", "initramfs.cpio"]);
            let image = profile.image("x".to_owned(), Path::new("/images"));
            assert_eq!(image.memory_bytes, 256 << 20);
            assert_eq!(image.disk, Path::new("/images").join(format!("{}.qcow2", image.device_type.name())));
        }
    }

    #[test]
    fn a_profile_that_cannot_work_is_refused_with_the_reason() {
        for (place, value, reason) in [
            ("/profile", json!(2), "version 2"),
            ("/name", json!("../x"), "cannot be a name"),
            ("/name", json!(""), "cannot be a name"),
            ("/disks", json!([]), "exactly one disk"),
            ("/boot/kernel", json!("/etc/shadow"), "beside the profile"),
            ("/boot/kernel", json!("../vmlinux"), "beside the profile"),
            ("/boot/kernel", json!("profile.json"), "beside the profile"),
            ("/boot/kind", json!("magic"), "magic"),
            ("/channels", json!(null), "cannot say that it is ready"),
            ("/machine/cpus", json!(0), "processor"),
            ("/vehicle", json!({"port": 5555}), "not free"),
            ("/vehicle", json!({"port": 0}), "not free"),
            ("/vehicle", json!({"guestAddress": "10.0.2.2:9300"}), "10.0.2.100:9300"),
            ("/vehicle", json!({"guestAddress": "192.168.98.1:9300"}), "10.0.2.100:9300"),
            ("/vehicle", json!({"address": "x"}), "guestAddress"),
        ] {
            let mut profile: Value = serde_json::from_str(PHONE).expect("JSON");
            profile["vehicle"] = json!({"port": 9300});
            *profile.pointer_mut(place).expect("a place") = value;
            let refused = Profile::parse(profile.to_string().as_bytes()).expect_err(place).to_string();
            assert!(refused.contains(reason), "{place}: {refused}");
        }
    }
}
