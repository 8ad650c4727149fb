//! QEMU's monitor: the few commands that a device's life needs, and the events that matter to it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::arguments::{BlockNode, QMP_SOCKET};
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

/// Which memory a machine's state is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    All,
    /// What is in a file already is left there.
    Shared,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Migration {
    UnderWay,
    Done,
    Failed(String),
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
        self.execute_with(command, json!({}), patience).await
    }

    async fn execute_with(
        &self,
        command: &str,
        arguments: Value,
        patience: Duration,
    ) -> Result<Value, Trouble> {
        let mut answer = self.0.ask(json!({"execute": command, "arguments": arguments}), patience).await?;
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

    /// The disk with this number that the device uses, in time that hardly grows with its lineage.
    pub async fn top_node(&self, disk: u32, patience: Duration) -> Result<Option<BlockNode>, Trouble> {
        let answer = self.execute("query-blockstats", patience).await?;
        let names = answer.as_array().into_iter().flatten().filter_map(|found| found["node-name"].as_str());
        Ok(names.filter_map(BlockNode::parse).find(|node| node.disk == disk))
    }

    /// The disk that the device writes to and its file. QEMU describes the whole lineage for it, and then describes each
    /// description: with a hundred disks that takes seconds, during which the device stands still.
    pub async fn top(&self, patience: Duration) -> Result<Top, Trouble> {
        let blocks = self.execute("query-block", patience).await?;
        let nodes = self.execute_with("query-named-block-nodes", json!({"flat": true}), patience).await?;
        top(&blocks, &nodes).ok_or_else(|| Trouble::Refused("QEMU tells of no disk to write to".into()))
    }

    /// Opens a file beside what the device uses.
    pub async fn add_block_node(&self, node: Value, patience: Duration) -> Result<(), Trouble> {
        self.execute_with("blockdev-add", node, patience).await.map(drop)
    }

    pub async fn remove_block_node(&self, node: &BlockNode, patience: Duration) -> Result<(), Trouble> {
        self.execute_with("blockdev-del", json!({"node-name": node.name()}), patience).await.map(drop)
    }

    /// From now on what is written goes to `to`, and `from` is only read. One or the other, never between.
    pub async fn put_on_top(
        &self,
        from: &BlockNode,
        to: &BlockNode,
        patience: Duration,
    ) -> Result<(), Trouble> {
        let arguments = json!({"node": from.name(), "overlay": to.name()});
        self.execute_with("blockdev-snapshot", arguments, patience).await.map(drop)
    }

    pub async fn cont(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("cont", patience).await.map(drop)
    }

    pub async fn stop(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("stop", patience).await.map(drop)
    }

    /// Writes the machine's state to where the shell command takes it. `shared` memory is left out.
    pub async fn migrate(&self, command: &str, shared: Memory, patience: Duration) -> Result<(), Trouble> {
        self.prepare_migration(shared, patience).await?;
        let arguments = json!({"uri": format!("exec:{command}")});
        self.execute_with("migrate", arguments, patience).await.map(drop)
    }

    /// Reads the machine's state from a shell command. If that fails, QEMU ends.
    pub async fn migrate_incoming(
        &self,
        command: &str,
        shared: Memory,
        patience: Duration,
    ) -> Result<(), Trouble> {
        self.prepare_migration(shared, patience).await?;
        let arguments = json!({"uri": format!("exec:{command}")});
        self.execute_with("migrate-incoming", arguments, patience).await.map(drop)
    }

    async fn prepare_migration(&self, memory: Memory, patience: Duration) -> Result<(), Trouble> {
        let capability = json!({"capability": "x-ignore-shared", "state": memory == Memory::Shared});
        let arguments = json!({"capabilities": [capability]});
        self.execute_with("migrate-set-capabilities", arguments, patience).await?;
        // Nothing but a file is on the other side, and the device waits.
        let arguments = json!({"max-bandwidth": 16i64 << 30});
        self.execute_with("migrate-set-parameters", arguments, patience).await.map(drop)
    }

    pub async fn migration(&self, patience: Duration) -> Result<Migration, Trouble> {
        let answer = self.execute("query-migrate", patience).await?;
        Ok(match answer["status"].as_str() {
            Some("completed") => Migration::Done,
            Some("failed" | "cancelled") => {
                Migration::Failed(answer["error-desc"].as_str().unwrap_or("it was broken off").to_owned())
            }
            _ => Migration::UnderWay,
        })
    }

    pub async fn cancel_migration(&self, patience: Duration) -> Result<(), Trouble> {
        self.execute("migrate_cancel", patience).await.map(drop)
    }

    /// Lets a part of the device's network answer at an address; one that does so already is no error.
    pub async fn forward(&self, forward: &str, patience: Duration) -> Result<(), Trouble> {
        let command = format!("hostfwd_add network {forward}");
        let said = self.ask_person(&command, patience).await?;
        if said.trim().is_empty() {
            return Ok(());
        }
        // `tcp:ADDRESS:PORT-:PORT` is listed with the address and the port in columns of their own.
        let known = self.ask_person("info usernet", patience).await?;
        let mut parts = forward.split([':', '-']).skip(1);
        let wanted = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let is_there = known.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            line.contains("HOST_FORWARD") && words.contains(&wanted.0) && words.contains(&wanted.1)
        });
        if is_there { Ok(()) } else { Err(Trouble::Refused(said.trim().into())) }
    }

    /// For what only the monitor for people knows.
    async fn ask_person(&self, line: &str, patience: Duration) -> Result<String, Trouble> {
        let arguments = json!({"command-line": line});
        let answer = self.execute_with("human-monitor-command", arguments, patience).await?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
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

/// What QEMU says of the disk that the device writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Top {
    pub node: BlockNode,
    /// As it was named when it was opened.
    pub path: String,
}

/// A disk's own name for its file may be a description of the whole lineage; the file below it is told plainly.
fn top(blocks: &Value, nodes: &Value) -> Option<Top> {
    let mut writable = blocks.as_array()?.iter().map(|block| &block["inserted"]);
    let inserted = writable.find(|inserted| inserted["ro"] == false)?;
    let node = BlockNode::parse(inserted["node-name"].as_str()?)?;
    let file = nodes.as_array()?.iter().find(|found| found["node-name"] == *node.file())?;
    Some(Top { path: file["file"].as_str()?.to_owned(), node })
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
    fn the_disk_on_top_is_read_from_what_qemu_tells() {
        let blocks = json!([
            {"device": "", "inserted": {"node-name": "disk0", "ro": true}},
            {"device": "floppy"},
            {"device": "", "inserted": {"node-name": "disk1.2", "ro": false, "file": "json:{}"}},
        ]);
        let nodes = json!([
            {"node-name": "disk1.3", "file": "/d/4"}, {"node-name": "file1.3", "file": "/d/4"},
            {"node-name": "disk1.2", "file": "json:{}"}, {"node-name": "file1.2", "file": "/d/3"},
            {"node-name": "disk1.1", "file": "/d/2"}, {"node-name": "#block1", "file": "/l/1"},
            {"node-name": "disk0", "file": "/i"}, {"node-name": "file0", "file": "/i"},
        ]);
        let expected = Top { node: BlockNode { disk: 1, turn: 2 }, path: "/d/3".to_owned() };
        assert_eq!(top(&blocks, &nodes), Some(expected));
        assert_eq!(top(&json!([]), &nodes), None);
        assert_eq!(top(&blocks, &json!([])), None);
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
