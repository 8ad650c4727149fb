//! QEMU's monitor: the few commands that a device's life needs, and the events that matter to it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::arguments::QMP_SOCKET;
use super::conversation::{Conversation, Trouble, connect};

#[derive(Clone)]
pub struct Qmp(Conversation);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The disk could not be written.
    BlockIoError {
        no_space: bool,
    },
    Stop,
    Resume,
    /// The machine starts anew without QEMU ending.
    Reset,
    /// QEMU is about to end.
    Shutdown {
        by_guest: bool,
    },
    /// The device's kernel gave up.
    Panicked,
}

/// What the machine does, as `query-status` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    Running,
    IoError,
    Shutdown,
    /// It stands still for another reason, by QEMU's name for it.
    Halted(String),
}

impl Qmp {
    /// Connects and makes the monitor take commands.
    pub async fn open(folder: &Path, patience: Duration) -> Result<(Qmp, mpsc::Receiver<Value>), Trouble> {
        let stream = connect(folder, QMP_SOCKET).await.map_err(|_| Trouble::Gone)?;
        let (conversation, events) = Conversation::start(stream);
        let qmp = Qmp(conversation);
        qmp.execute("qmp_capabilities", patience).await?;
        Ok((qmp, events))
    }

    async fn execute(&self, command: &str, patience: Duration) -> Result<Value, Trouble> {
        let mut answer = self.0.ask(json!({"execute": command}), patience).await?;
        match answer.get_mut("return") {
            Some(value) => Ok(value.take()),
            None => Err(Trouble::Refused(answer["error"].take())),
        }
    }

    pub async fn status(&self, patience: Duration) -> Result<RunState, Trouble> {
        let answer = self.execute("query-status", patience).await?;
        Ok(run_state(answer["status"].as_str().unwrap_or_default()))
    }

    /// Whether a disk could not be written for want of room.
    pub async fn lacks_space(&self, patience: Duration) -> Result<bool, Trouble> {
        let answer = self.execute("query-block", patience).await?;
        Ok(answer.as_array().into_iter().flatten().any(|disk| disk["io-status"] == "nospace"))
    }

    pub async fn cont(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("cont", patience).await.map(drop)
    }

    pub async fn stop(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("stop", patience).await.map(drop)
    }

    /// Presses the power button.
    pub async fn system_powerdown(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("system_powerdown", patience).await.map(drop)
    }

    /// Ends QEMU, with its disks flushed but without asking the device.
    pub async fn quit(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("quit", patience).await.map(drop)
    }
}

fn run_state(status: &str) -> RunState {
    match status {
        "running" => RunState::Running,
        "io-error" => RunState::IoError,
        "shutdown" => RunState::Shutdown,
        other => RunState::Halted(other.to_owned()),
    }
}

/// Nothing for what is not of interest.
pub fn event(line: &Value) -> Option<Event> {
    let data = &line["data"];
    Some(match line["event"].as_str()? {
        "BLOCK_IO_ERROR" if data["action"] == "stop" => {
            Event::BlockIoError { no_space: data["nospace"] == true }
        }
        "STOP" => Event::Stop,
        "RESUME" => Event::Resume,
        "RESET" => Event::Reset,
        "SHUTDOWN" => Event::Shutdown { by_guest: data["guest"] == true },
        "GUEST_PANICKED" => Event::Panicked,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_what_qemu_tells() {
        for (line, expected) in [
            (
                json!({"event": "BLOCK_IO_ERROR", "data": {"action": "stop", "nospace": true}}),
                Some(Event::BlockIoError { no_space: true }),
            ),
            (json!({"event": "BLOCK_IO_ERROR", "data": {"action": "report", "nospace": true}}), None),
            (json!({"event": "STOP"}), Some(Event::Stop)),
            (json!({"event": "RESUME"}), Some(Event::Resume)),
            (json!({"event": "RESET", "data": {"guest": true}}), Some(Event::Reset)),
            (json!({"event": "SHUTDOWN", "data": {"guest": true}}), Some(Event::Shutdown { by_guest: true })),
            (
                json!({"event": "SHUTDOWN", "data": {"guest": false}}),
                Some(Event::Shutdown { by_guest: false }),
            ),
            (json!({"event": "GUEST_PANICKED"}), Some(Event::Panicked)),
            (json!({"event": "RTC_CHANGE"}), None),
            (json!({"QMP": {}}), None),
        ] {
            assert_eq!(event(&line), expected, "{line}");
        }
    }

    #[test]
    fn states_are_read_from_qemu_s_names() {
        for (name, expected) in [
            ("running", RunState::Running),
            ("io-error", RunState::IoError),
            ("shutdown", RunState::Shutdown),
            ("guest-panicked", RunState::Halted("guest-panicked".to_owned())),
        ] {
            assert_eq!(run_state(name), expected);
        }
    }
}
