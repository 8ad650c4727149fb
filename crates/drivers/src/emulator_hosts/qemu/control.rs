//! The agent inside the reference device, over its control channel; `crates/guest/PROTOCOL.md` says what it understands.

use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use paddock_model::Timestamp;
use paddock_model::devices::{DeviceIdentity, DeviceState, VehicleLink};
use paddock_model::drivers::emulator_hosts::Launch;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::arguments::CONTROL_SOCKET;
use super::conversation::{Conversation, Trouble, connect};

/// Asked for more, the agent refuses.
const LONGEST_FREEZE_MS: u64 = 60_000;

#[derive(Clone)]
pub struct Control(Conversation);

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub boot_duration_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Ready {
        boot_duration: Duration,
    },
    /// The identity could not be used.
    Fault(String),
}

/// What `health` answers; a device is not to be trusted, so everything may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Health {
    uptime_ms: u64,
    clock_ms: i64,
    adb: Connections,
    memory: Bytes,
    disk: Bytes,
    properties: std::collections::BTreeMap<String, String>,
    vehicle: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Connections {
    connections: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bytes {
    total_bytes: i64,
    available_bytes: i64,
}

impl Control {
    pub async fn open(folder: &Path) -> Result<(Control, mpsc::Receiver<Value>), Trouble> {
        let stream = connect(folder, CONTROL_SOCKET).await.map_err(|_| Trouble::Gone)?;
        let (conversation, events) = Conversation::start(stream);
        Ok((Control(conversation), events))
    }

    async fn ask(&self, request: Value, patience: Duration) -> Result<Value, Trouble> {
        let mut answer = self.0.ask(request, patience).await?;
        match answer.get_mut("ok") {
            Some(value) => Ok(value.take()),
            None => Err(Trouble::Refused(answer["error"].take())),
        }
    }

    /// A device that does not run yet answers once it does.
    pub async fn hello(&self, patience: Duration) -> Result<Hello, Trouble> {
        let answer = self.ask(json!({"op": "hello"}), patience).await?;
        serde_json::from_value(answer).map_err(|_| Trouble::Refused(Value::Null))
    }

    /// Whether it is up and how long it took, as `hello`, by a question that costs the device little.
    pub async fn health(&self, patience: Duration) -> Result<Hello, Trouble> {
        let answer = self.ask(json!({"op": "health"}), patience).await?;
        serde_json::from_value(answer).map_err(|_| Trouble::Refused(Value::Null))
    }

    pub async fn state(
        &self,
        now: impl Fn() -> Timestamp,
        patience: Duration,
    ) -> Result<DeviceState, Trouble> {
        let asked = now();
        let answer = self.ask(json!({"op": "health", "properties": true}), patience).await?;
        let middle = (asked.as_millisecond() + now().as_millisecond()) / 2;
        let health: Health = serde_json::from_value(answer).map_err(|_| Trouble::Refused(Value::Null))?;
        Ok(DeviceState {
            uptime: Duration::from_millis(health.uptime_ms),
            clock_offset_ms: health.clock_ms.saturating_sub(middle),
            adb_connections: health.adb.connections,
            memory_total_bytes: health.memory.total_bytes,
            memory_available_bytes: health.memory.available_bytes,
            disk_total_bytes: health.disk.total_bytes,
            disk_available_bytes: health.disk.available_bytes,
            properties: health.properties,
            vehicle: VehicleLink::parse(&health.vehicle),
        })
    }

    /// After a clone of the memory: from now on it is another device, at another time.
    pub async fn resume(
        &self,
        now: Timestamp,
        identity: &Value,
        patience: Duration,
    ) -> Result<Hello, Trouble> {
        let request = json!({"op": "resume", "time": now.as_millisecond(), "identity": identity});
        let answer = self.ask(request, patience).await?;
        serde_json::from_value(answer).map_err(|_| Trouble::Refused(Value::Null))
    }

    /// Everything written is on the disk, and nothing is written until the thaw, at most for this long.
    /// With `processes`, nobody runs either, here or in a clone of the memory, until then or until the clone is told who it is.
    pub async fn freeze(&self, processes: bool, patience: Duration) -> Result<(), Trouble> {
        let longest = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).clamp(1, LONGEST_FREEZE_MS);
        let request = json!({"op": "freeze", "timeoutMs": longest, "processes": processes});
        self.ask(request, patience).await.map(drop)
    }

    /// Whether it was frozen until now.
    pub async fn thaw(&self, patience: Duration) -> Result<bool, Trouble> {
        let answer = self.ask(json!({"op": "thaw"}), patience).await?;
        Ok(answer["wasFrozen"] == true)
    }

    /// Has the device switch itself off, with everything on its disk.
    pub async fn shutdown(&self, patience: Duration) -> Result<(), Trouble> {
        self.ask(json!({"op": "shutdown"}), patience).await.map(drop)
    }
}

/// Nothing for what is not of interest.
pub fn event(line: &Value) -> Option<Event> {
    let duration = || Duration::from_millis(line["bootDurationMs"].as_u64().unwrap_or_default());
    match line["event"].as_str()? {
        "hello" if line["ready"] == true => Some(Event::Ready { boot_duration: duration() }),
        "ready" => Some(Event::Ready { boot_duration: duration() }),
        "fault" => Some(Event::Fault(line["message"].as_str().unwrap_or_default().to_owned())),
        _ => None,
    }
}

/// The identity that the device is given at its start, and where it finds its car.
pub fn identity(launch: &Launch, car: Option<SocketAddrV4>) -> Value {
    let DeviceIdentity { serial, android_id, machine_id, mac, seed, vin } = &launch.identity;
    let adb = match launch.adb_keys.as_slice() {
        [] => json!({"access": "open"}),
        keys => json!({"access": "keys", "keys": keys}),
    };
    let mut identity = json!({
        "serial": serial,
        "androidId": android_id,
        "machineId": machine_id,
        "mac": mac,
        "deviceName": launch.name,
        "seed": BASE64_STANDARD.encode(bytes_of(seed)),
        "adb": adb,
    });
    if let Some(vin) = vin {
        identity["properties"] = json!({"ro.vehicle.vin": vin});
    }
    if let Some(car) = car {
        identity["vehicle"] = json!(car);
    }
    identity
}

/// Whatever is no hexadecimal digit is taken as it stands: a seed needs no form, only to be nobody else's.
fn bytes_of(seed: &str) -> Vec<u8> {
    let pairs: Option<Vec<u8>> = seed
        .as_bytes()
        .chunks(2)
        .map(|pair| str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    pairs.unwrap_or_else(|| seed.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_handed_over_as_the_bytes_it_stands_for() {
        for (seed, bytes) in [("00ff10", vec![0, 255, 16]), ("zz", b"zz".to_vec()), ("", vec![])] {
            assert_eq!(bytes_of(seed), bytes);
        }
    }

    #[test]
    fn events_are_read_from_what_the_agent_tells() {
        let ready = Event::Ready { boot_duration: Duration::from_millis(7) };
        for (line, expected) in [
            (json!({"event": "ready", "bootDurationMs": 7}), Some(ready.clone())),
            (json!({"event": "hello", "ready": true, "bootDurationMs": 7}), Some(ready)),
            (json!({"event": "hello", "ready": false}), None),
            (json!({"event": "fault", "message": "no"}), Some(Event::Fault("no".to_owned()))),
            (json!({"event": "thawed"}), None),
            (json!([]), None),
        ] {
            assert_eq!(event(&line), expected, "{line}");
        }
    }
}
