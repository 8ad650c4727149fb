//! The control channel: what the host asks the device to do, and what the device tells unasked. See PROTOCOL.md.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::channel::{self, Conversation, Place, Wake};
use crate::device::{Device, Power};
use crate::freezer::LONGEST;
use crate::health;
use crate::identity::Given;

pub const PORT: &str = "org.paddock.control";
const PROTOCOL: u32 = 1;
const MAX_EVENTS: usize = 64;

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    id: Value,
    #[serde(flatten)]
    act: Act,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Act {
    Hello,
    Health {
        /// All properties too.
        #[serde(default)]
        properties: bool,
    },
    Freeze {
        #[serde(default = "freeze_time")]
        timeout_ms: u64,
        /// All other processes too, for whom the next thing is to be a clone's.
        #[serde(default)]
        processes: bool,
    },
    Thaw,
    Resume {
        /// Milliseconds since 1970.
        time: Option<u64>,
        #[serde(default)]
        identity: Box<Given>,
    },
    Properties {
        #[serde(default)]
        set: BTreeMap<String, String>,
        #[serde(default)]
        get: Vec<String>,
    },
    Shutdown {
        #[serde(default)]
        restart: bool,
    },
}

fn freeze_time() -> u64 {
    5000
}

/// What the device tells unasked. While nobody listens, the newest are kept.
#[derive(Clone)]
pub struct Events {
    waiting: Arc<Mutex<VecDeque<String>>>,
    wake: Wake,
}

impl Events {
    pub fn new() -> io::Result<Events> {
        Ok(Events { waiting: Arc::default(), wake: Wake::new()? })
    }

    pub fn tell(&self, event: &Value) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == MAX_EVENTS {
            waiting.pop_front();
        }
        waiting.push_back(event.to_string());
        self.wake.up();
    }
}

pub fn start(device: &Arc<Device>, events: &Events, place: Place) -> io::Result<()> {
    let control = Control { device: device.clone(), events: events.clone() };
    channel::start(place, events.wake.clone(), control)
}

struct Control {
    device: Arc<Device>,
    events: Events,
}

impl Conversation for Control {
    fn greeted(&mut self) -> Vec<String> {
        let mut hello = hello(&self.device);
        hello["event"] = "hello".into();
        vec![hello.to_string()]
    }

    fn heard(&mut self, line: &str) -> Vec<String> {
        let request: Request = match serde_json::from_str(line) {
            Ok(request) => request,
            Err(error) => {
                let id = serde_json::from_str::<Value>(line).ok().and_then(|line| line.get("id").cloned());
                return vec![json!({"id": id, "error": {"message": error.to_string()}}).to_string()];
            }
        };
        let answer = match self.carry_out(request.act) {
            Ok(answer) => json!({"id": request.id, "ok": answer}),
            Err(error) => json!({"id": request.id, "error": {"message": format!("{error:#}")}}),
        };
        vec![answer.to_string()]
    }

    fn unasked(&mut self) -> Vec<String> {
        self.events.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

fn hello(device: &Device) -> Value {
    json!({
        "protocol": PROTOCOL,
        "agent": env!("CARGO_PKG_VERSION"),
        "ready": device.properties.get("sys.boot_completed") == "1",
        "bootDurationMs": health::boot_duration(device),
        "identity": device.identity(),
        "lastLog": device.log.last(),
    })
}

impl Control {
    fn carry_out(&self, act: Act) -> Result<Value> {
        let device = &self.device;
        match act {
            Act::Hello => Ok(hello(device)),
            Act::Health { properties } => Ok(health::report(device, properties)),
            Act::Freeze { timeout_ms, processes } => {
                let time = Duration::from_millis(timeout_ms);
                ensure!(!time.is_zero() && time <= LONGEST, "timeoutMs: 1 to {}", LONGEST.as_millis());
                let (events, told) = (self.events.clone(), device.clone());
                device.freezer.freeze(time, processes, move || {
                    told.log.warn("freezer", "the host did not thaw in time; the watchdog did");
                    events.tell(&json!({"event": "thawed", "reason": "watchdog"}));
                })?;
                Ok(json!({"timeoutMs": timeout_ms}))
            }
            Act::Thaw => Ok(json!({"wasFrozen": device.freezer.thaw()})),
            Act::Resume { time, identity } => {
                device.freezer.thaw_disk();
                let taken_on = || {
                    if let Some(time) = time {
                        device.set_clock(Duration::from_millis(time))?;
                    }
                    device.take_identity(&identity)
                };
                let taken_on = taken_on();
                device.connections.drop_all();
                // Only now does anybody else run: nobody has seen the other's identity, clock or randomness.
                device.freezer.thaw();
                taken_on?;
                device.log.info("paddock", &format!("resumed as {}", device.identity().serial));
                Ok(hello(device))
            }
            Act::Properties { set, get } => {
                // Keeping a property writes to the disk, which would wait for the thaw, and the thaw for us.
                ensure!(set.is_empty() || !device.freezer.is_frozen(), "the device is frozen; thaw it first");
                for (name, value) in &set {
                    device.properties.set(name, value).map_err(anyhow::Error::msg)?;
                }
                let values: BTreeMap<_, _> =
                    get.iter().map(|name| (name, device.properties.get(name))).collect();
                Ok(json!(values))
            }
            Act::Shutdown { restart } => {
                let power = if restart { Power::Restart } else { Power::Off };
                let device = device.clone();
                // The answer goes out first.
                std::thread::Builder::new()
                    .spawn(move || {
                        std::thread::sleep(Duration::from_millis(50));
                        device.power(power)
                    })
                    .context("start the shutdown")?;
                Ok(json!({}))
            }
        }
    }
}
