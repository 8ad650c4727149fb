//! What is written down of a device in its folder, so that another process can take it over.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use paddock_model::Timestamp;
use paddock_model::devices::{NOT_STARTED, Phase};
use paddock_model::drivers::emulator_hosts::Launch;
use paddock_model::emulators::EmulatorId;
use paddock_model::templates::NOT_RESUMED;
use serde::{Deserialize, Serialize};

use super::arguments::marker;
use super::processes::{Ended, ProcessName};
use crate::durable;
use crate::emulator_hosts::profile::{Profile, ReadyBy, Vehicle};

const FILE_NAME: &str = "device.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub emulator: EmulatorId,
    pub incarnation: i64,
    pub address: Ipv4Addr,
    /// What it wrote to at its start.
    pub volume: String,
    /// Where it has moved since, in turn. QEMU says in which turn it is, so what was noted in vain does no harm.
    #[serde(default)]
    pub moves: Vec<String>,
    /// Which of its disks that is.
    #[serde(default)]
    pub disk: u32,
    pub has_agent: bool,
    pub ready_by: ReadyBy,
    /// Where a VehicleServer of its own listens, at the device's address.
    #[serde(default)]
    pub vehicle_port: Option<u16>,
    pub started_at: Timestamp,
    /// Missing while it is being started: then only the marker can tell whether it was.
    pub process: Option<ProcessName>,
    /// What its memory depends on; none if nothing could resume from it.
    #[serde(default)]
    pub fingerprint: Option<String>,
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub memory_bytes: i64,
    #[serde(default)]
    pub cpus: i64,
    /// How far it is with resuming from a template; none if it boots.
    #[serde(default)]
    pub resume: Option<Resume>,
    /// It is being held still by us; whoever finds that without holding it lets it go.
    #[serde(default)]
    pub held: bool,
    /// Once it was up.
    pub boot_ms: Option<u64>,
    pub ready_at: Option<Timestamp>,
    /// Once it has ended.
    pub ended: Option<Ending>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// It has yet to take over the memory, or to be told who it is.
    UnderWay {
        /// What is to answer at its address afterwards.
        forwards: Vec<String>,
    },
    Done,
    /// For this reason.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub kind: EndingKind,
    pub message: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingKind {
    /// The device switched itself off.
    SwitchedOff,
    /// QEMU was killed by a signal.
    Killed,
    /// QEMU gave up.
    Failed,
    /// QEMU ended, and nobody knows why.
    Ended,
    /// It ended while nobody watched.
    Lost,
    /// Everything was prepared, and it never began.
    NotStarted,
    /// It was to resume from a template, and did not.
    NotResumed,
}

impl Record {
    pub fn new(launch: &Launch, profile: &Profile, now: Timestamp) -> Record {
        Record {
            emulator: launch.emulator,
            incarnation: launch.incarnation,
            address: launch.address,
            volume: launch.volume.0.clone(),
            moves: Vec::new(),
            disk: profile.disks.iter().take_while(|disk| disk.read_only).count() as u32,
            has_agent: profile.channels.is_some(),
            ready_by: profile.ready.by,
            vehicle_port: match profile.vehicle {
                Vehicle::Port(port) => Some(port),
                Vehicle::GuestAddress(_) => None,
            },
            started_at: now,
            process: None,
            fingerprint: None,
            image: launch.image.clone(),
            memory_bytes: launch.memory_bytes,
            cpus: launch.cpus,
            resume: None,
            held: false,
            boot_ms: None,
            ready_at: None,
            ended: None,
        }
    }

    /// Whether it says what was about to be started, and of no process.
    pub fn is_intent(&self) -> bool {
        self.process.is_none() && self.ended.is_none() && !self.volume.is_empty()
    }

    /// For a device of which only a folder or a process is left.
    pub fn of_a_stranger(emulator: EmulatorId, incarnation: i64, now: Timestamp) -> Record {
        Record {
            emulator,
            incarnation,
            address: Ipv4Addr::UNSPECIFIED,
            volume: String::new(),
            moves: Vec::new(),
            disk: 0,
            has_agent: true,
            ready_by: ReadyBy::Control,
            vehicle_port: None,
            started_at: now,
            process: None,
            fingerprint: None,
            image: String::new(),
            memory_bytes: 0,
            cpus: 0,
            resume: None,
            held: false,
            boot_ms: None,
            ready_at: None,
            ended: None,
        }
    }

    /// What is to answer at its address once it has resumed; none if it is not about to.
    pub fn resuming(&self) -> Option<&[String]> {
        match &self.resume {
            Some(Resume::UnderWay { forwards }) => Some(forwards),
            _ => None,
        }
    }

    /// What it writes to in this turn, if that is written down.
    pub fn volume_of(&self, turn: u32) -> Option<&str> {
        let volume = match turn.checked_sub(1) {
            None => Some(&self.volume),
            Some(moves) => self.moves.get(moves as usize),
        };
        volume.map(String::as_str).filter(|volume| !volume.is_empty())
    }

    /// Before it moves from the disk of this turn to another.
    pub fn note_move(&mut self, from: u32, to: &str) {
        self.moves.resize(from as usize, String::new());
        self.moves.push(to.to_owned());
    }

    pub fn marker(&self) -> String {
        marker(self.emulator, self.incarnation)
    }

    pub fn read(folder: &Path) -> Option<Record> {
        serde_json::from_slice(&fs::read(folder.join(FILE_NAME)).ok()?).ok()
    }

    /// Before the start: what is about to happen.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        durable::write(&folder.join(FILE_NAME), &self.text()?, 0o600)
    }

    /// After the start: what is said of a process needs to outlive us, but not a power cut, which the process does not either.
    pub fn update(&self, folder: &Path) -> io::Result<()> {
        durable::replace(&folder.join(FILE_NAME), &self.text()?, 0o600)
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(io::Error::other)
    }
}

impl Ending {
    /// `last_words` is what QEMU wrote last.
    pub fn of(ended: Ended, switched_off: bool, last_words: Option<String>, at: Timestamp) -> Ending {
        let words = last_words.map(|words| format!(": {words}")).unwrap_or_default();
        let (kind, message) = match ended {
            Ended::Signal(signal) => (EndingKind::Killed, format!("QEMU was killed by signal {signal}")),
            _ if switched_off => (EndingKind::SwitchedOff, "the device switched itself off".to_owned()),
            Ended::Status(0) => (EndingKind::Ended, "QEMU ended".to_owned()),
            Ended::Status(status) => {
                (EndingKind::Failed, format!("QEMU gave up with status {status}{words}"))
            }
            Ended::Unknown => (EndingKind::Ended, format!("QEMU ended{words}")),
        };
        Ending { kind, message, at }
    }

    pub fn lost(at: Timestamp) -> Ending {
        let message = "it ended while nobody watched, perhaps with the machine".to_owned();
        Ending { kind: EndingKind::Lost, message, at }
    }

    pub fn not_started(at: Timestamp) -> Ending {
        let message = "it was about to be started when the server ended".to_owned();
        Ending { kind: EndingKind::NotStarted, message, at }
    }

    pub fn not_resumed(why: &str, at: Timestamp) -> Ending {
        Ending { kind: EndingKind::NotResumed, message: format!("it did not resume: {why}"), at }
    }

    pub fn phase(&self) -> Phase {
        let code = match self.kind {
            EndingKind::NotResumed => NOT_RESUMED,
            EndingKind::SwitchedOff => "switched_off",
            EndingKind::Killed => "killed",
            EndingKind::Failed => "failed",
            EndingKind::Ended => "ended",
            EndingKind::Lost => "lost",
            EndingKind::NotStarted => NOT_STARTED,
        };
        Phase::Exited { code, message: self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_tells_the_disk() {
        let mut record = Record::of_a_stranger(EmulatorId(Default::default()), 1, Timestamp::UNIX_EPOCH);
        assert_eq!(record.volume_of(0), None);
        record.volume = "a".to_owned();
        record.note_move(0, "b");
        record.note_move(1, "in vain");
        record.note_move(1, "c");
        let told = [0, 1, 2, 3].map(|turn| record.volume_of(turn));
        assert_eq!(told, [Some("a"), Some("b"), Some("c"), None]);
        // Taken over without what was written down.
        record.moves.clear();
        record.note_move(2, "d");
        assert_eq!([1, 2, 3].map(|turn| record.volume_of(turn)), [None, None, Some("d")]);
    }
}
