//! Who this device is: given by the host at the start or after a resume, and never written to the disk, so that a
//! clone of the disk carries nobody's identity.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::adb::auth::Access;

/// What the host says. Whatever it leaves out stays as it was, or is made up at the first start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Given {
    pub serial: Option<String>,
    pub android_id: Option<String>,
    pub machine_id: Option<String>,
    pub hostname: Option<String>,
    pub device_name: Option<String>,
    pub device_type: Option<DeviceType>,
    pub android_version: Option<String>,
    pub mac: Option<String>,
    pub network: Option<Network>,
    pub adb: Option<Access>,
    /// Base64 of bytes nobody else has.
    pub seed: Option<String>,
    /// Further properties, read-only ones too.
    pub properties: BTreeMap<String, String>,
    /// Where the car is. Left out, there is none, whatever was said before.
    pub vehicle: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeviceType {
    Phone,
    Automotive,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Ipv4Addr,
    pub dns: Ipv4Addr,
}

/// The addresses of QEMU's user network.
impl Default for Network {
    fn default() -> Network {
        Network {
            address: Ipv4Addr::new(10, 0, 2, 15),
            prefix: 24,
            gateway: Ipv4Addr::new(10, 0, 2, 2),
            dns: Ipv4Addr::new(10, 0, 2, 3),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    pub serial: String,
    pub android_id: String,
    pub machine_id: String,
    pub hostname: String,
    pub device_name: String,
    pub device_type: DeviceType,
    pub android_version: String,
    #[serde(skip)]
    pub mac: Option<[u8; 6]>,
    #[serde(skip)]
    pub network: Network,
    #[serde(skip)]
    pub adb: Access,
    /// Further properties that the host gave.
    #[serde(skip)]
    pub properties: BTreeMap<String, String>,
    #[serde(skip)]
    pub vehicle: Option<SocketAddr>,
}

impl Identity {
    /// An identity that nobody gave: random, and gone with the next start.
    pub fn made_up(device_type: DeviceType, android_version: &str) -> Result<Identity> {
        let mut random = [0; 32];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .context("no randomness")?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let serial = format!("PDK{}", hex[..12].to_uppercase());
        Ok(Identity {
            hostname: serial.to_lowercase(),
            serial,
            android_id: hex[16..32].to_owned(),
            machine_id: hex[32..].to_owned(),
            device_name: "Paddock reference device".to_owned(),
            device_type,
            android_version: android_version.to_owned(),
            mac: None,
            network: Network::default(),
            adb: Access::default(),
            properties: BTreeMap::new(),
            vehicle: None,
        })
    }

    /// This identity with what the host says instead; an error leaves everything as it was.
    pub fn with(&self, given: &Given) -> Result<Identity> {
        let mut new = self.clone();
        if let Some(serial) = &given.serial {
            let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
            ensure!(
                within(serial, 64) && serial.chars().all(legal),
                "serial: 1 to 64 letters, digits, - and _"
            );
            new.serial.clone_from(serial);
            new.hostname = hostname_from(serial);
        }
        if let Some(android_id) = &given.android_id {
            ensure!(android_id.len() == 16 && is_hex(android_id), "androidId: 16 hexadecimal digits");
            new.android_id = android_id.to_lowercase();
        }
        if let Some(machine_id) = &given.machine_id {
            ensure!(machine_id.len() == 32 && is_hex(machine_id), "machineId: 32 hexadecimal digits");
            new.machine_id = machine_id.to_lowercase();
        }
        if let Some(hostname) = &given.hostname {
            ensure!(
                hostname_from(hostname) == *hostname,
                "hostname: 1 to 63 lower-case letters, digits and -"
            );
            new.hostname.clone_from(hostname);
        }
        if let Some(name) = &given.device_name {
            ensure!(
                within(name, 100) && !name.chars().any(char::is_control),
                "deviceName: 1 to 100 printable bytes"
            );
            new.device_name.clone_from(name);
        }
        if let Some(version) = &given.android_version {
            let legal = |letter: char| letter.is_ascii_digit() || letter == '.';
            ensure!(
                within(version, 8) && version.chars().all(legal),
                "androidVersion: digits and dots, such as 14"
            );
            new.android_version.clone_from(version);
        }
        if let Some(mac) = &given.mac {
            new.mac =
                Some(parse_mac(mac).context("mac: six hexadecimal bytes with colons, not a group address")?);
        }
        if let Some(adb) = &given.adb {
            adb.parsed()?;
            new.adb.clone_from(adb);
        }
        new.device_type = given.device_type.unwrap_or(new.device_type);
        new.vehicle = given.vehicle;
        new.properties.extend(given.properties.clone());
        if let Some(network) = &given.network {
            ensure!(network.prefix <= 32, "network.prefix: at most 32");
            new.network.clone_from(network);
        }
        Ok(new)
    }

    /// All of it, as a host would give it to make this identity again.
    pub fn as_given(&self) -> Given {
        let mac = self.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        Given {
            serial: Some(self.serial.clone()),
            android_id: Some(self.android_id.clone()),
            machine_id: Some(self.machine_id.clone()),
            hostname: Some(self.hostname.clone()),
            device_name: Some(self.device_name.clone()),
            device_type: Some(self.device_type),
            android_version: Some(self.android_version.clone()),
            mac,
            network: Some(self.network.clone()),
            adb: Some(self.adb.clone()),
            seed: None,
            properties: self.properties.clone(),
            vehicle: self.vehicle,
        }
    }

    /// The API level that belongs to the version.
    pub fn sdk(&self) -> u32 {
        let major =
            self.android_version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(14u32);
        match major {
            ..=9 => 28,
            10 => 29,
            11 => 30,
            12 => 31,
            // From 13 on one level a year.
            major => (major + 20).min(99),
        }
    }
}

fn within(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
}

fn is_hex(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_hexdigit())
}

fn hostname_from(serial: &str) -> String {
    let name: String = serial
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-')
        .take(63)
        .collect();
    name.trim_matches('-').to_owned()
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    let mac: [u8; 6] = bytes.try_into().ok()?;
    (mac[0] & 1 == 0).then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::{DeviceType, Given, Identity};

    fn given(json: &str) -> Given {
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn what_the_host_leaves_out_stays() {
        let before = Identity::made_up(DeviceType::Phone, "14").expect("randomness");

        let after = before.with(&given(r#"{"serial": "EMU-1", "unknown": true}"#)).expect("an identity");

        assert_eq!((after.serial.as_str(), after.hostname.as_str()), ("EMU-1", "emu-1"));
        assert_eq!((&after.android_id, &after.machine_id), (&before.android_id, &before.machine_id));
    }

    #[test]
    fn an_identity_can_be_given_again() {
        let before = Identity::made_up(DeviceType::Phone, "14").expect("randomness");
        let json = r#"{"mac": "52:54:00:0a:bc:de", "properties": {"ro.a": "1"}, "adb": {"access": "open"}}"#;
        let identity = before.with(&given(json)).expect("an identity");
        let kept = serde_json::to_string(&identity.as_given()).expect("JSON");

        let other = Identity::made_up(DeviceType::Automotive, "9").expect("randomness");

        assert_eq!(other.with(&given(&kept)).expect("an identity"), identity);
    }

    #[test]
    fn a_wrong_identity_is_refused_with_what_would_be_right() {
        let identity = Identity::made_up(DeviceType::Phone, "14").expect("randomness");
        for (json, reason) in [
            (r#"{"serial": ""}"#, "serial: 1 to 64 letters, digits, - and _"),
            (r#"{"serial": "a b"}"#, "serial: 1 to 64 letters, digits, - and _"),
            (r#"{"androidId": "12"}"#, "androidId: 16 hexadecimal digits"),
            (r#"{"machineId": "zz"}"#, "machineId: 32 hexadecimal digits"),
            (r#"{"hostname": "Not_A_Host"}"#, "hostname: 1 to 63 lower-case letters, digits and -"),
            (
                r#"{"mac": "01:00:00:00:00:00"}"#,
                "mac: six hexadecimal bytes with colons, not a group address",
            ),
            (r#"{"adb": {"access": "keys", "keys": ["!"]}}"#, "the ADB key is not base64"),
        ] {
            assert_eq!(identity.with(&given(json)).expect_err("wrong").to_string(), reason);
        }
    }

    #[test]
    fn the_api_level_follows_the_version() {
        let identity = Identity::made_up(DeviceType::Phone, "14").expect("randomness");
        for (version, sdk) in
            [("9", 28), ("11", 30), ("12", 31), ("13", 33), ("14", 34), ("15", 35), ("16", 36)]
        {
            assert_eq!(Identity { android_version: version.to_owned(), ..identity.clone() }.sdk(), sdk);
        }
    }
}
