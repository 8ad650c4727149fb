//! The device's log: entries in buffers of bounded size, each entry under a number.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Verbose,
    Debug,
    Info,
    Warn,
    Error,
    Fatal,
    /// Above all: as a filter, nothing passes.
    Silent,
}

impl Level {
    pub fn letter(self) -> char {
        match self {
            Level::Verbose => 'V',
            Level::Debug => 'D',
            Level::Info => 'I',
            Level::Warn => 'W',
            Level::Error => 'E',
            Level::Fatal => 'F',
            Level::Silent => 'S',
        }
    }

    /// A letter, or a number as in Android's own levels.
    pub fn parse(text: &str) -> Option<Level> {
        Some(match text.to_ascii_lowercase().as_str() {
            "v" | "2" | "verbose" | "*" => Level::Verbose,
            "d" | "3" | "debug" => Level::Debug,
            "i" | "4" | "info" => Level::Info,
            "w" | "5" | "warn" => Level::Warn,
            "e" | "6" | "error" => Level::Error,
            "f" | "7" | "fatal" | "a" => Level::Fatal,
            "s" | "8" | "silent" => Level::Silent,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffer {
    Main,
    System,
    Crash,
    Events,
    Radio,
    Kernel,
}

impl Buffer {
    pub const ALL: [Buffer; 6] =
        [Buffer::Main, Buffer::System, Buffer::Crash, Buffer::Events, Buffer::Radio, Buffer::Kernel];
    /// What `logcat` shows unless asked for others.
    pub const DEFAULT: [Buffer; 3] = [Buffer::Main, Buffer::System, Buffer::Crash];

    pub fn name(self) -> &'static str {
        match self {
            Buffer::Main => "main",
            Buffer::System => "system",
            Buffer::Crash => "crash",
            Buffer::Events => "events",
            Buffer::Radio => "radio",
            Buffer::Kernel => "kernel",
        }
    }

    pub fn parse(name: &str) -> Option<Buffer> {
        Buffer::ALL.into_iter().find(|buffer| buffer.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub number: u64,
    pub time: Duration,
    pub pid: u32,
    pub level: Level,
    pub buffer: Buffer,
    pub tag: String,
    pub message: String,
}

impl Entry {
    /// What it counts for in its buffer.
    fn size(&self) -> usize {
        self.tag.len() + self.message.len() + 32
    }
}

pub const CAPACITY: usize = 256 * 1024;
const MAX_TAG: usize = 128;
const MAX_MESSAGE: usize = 4068;

#[derive(Default)]
struct State {
    /// One queue a buffer, in the order of `Buffer::ALL`.
    buffers: [VecDeque<Entry>; 6],
    sizes: [usize; 6],
    /// The newest entry of each buffer that had to make room.
    evicted: [u64; 6],
    last: u64,
}

#[derive(Default)]
pub struct Logs {
    state: Mutex<State>,
    added: Condvar,
}

impl Logs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry; the oldest of its buffer make room.
    pub fn add(&self, buffer: Buffer, level: Level, tag: &str, pid: u32, message: &str) {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut state = self.lock();
        state.last += 1;
        let entry = Entry {
            number: state.last,
            time,
            pid,
            level,
            buffer,
            tag: cut(tag, MAX_TAG),
            message: cut(message.trim_end_matches('\n'), MAX_MESSAGE),
        };
        let at = buffer as usize;
        state.sizes[at] += entry.size();
        state.buffers[at].push_back(entry);
        while state.sizes[at] > CAPACITY
            && let Some(oldest) = state.buffers[at].pop_front()
        {
            state.sizes[at] -= oldest.size();
            state.evicted[at] = oldest.number;
        }
        self.added.notify_all();
    }

    pub fn info(&self, tag: &str, message: &str) {
        self.add(Buffer::System, Level::Info, tag, std::process::id(), message);
    }

    pub fn warn(&self, tag: &str, message: &str) {
        self.add(Buffer::System, Level::Warn, tag, std::process::id(), message);
    }

    /// At most `at_most` entries after number `after` in these buffers, in order of their numbers.
    pub fn after(&self, after: u64, buffers: &[Buffer], at_most: usize) -> Vec<Entry> {
        let state = self.lock();
        let mut found: Vec<Entry> = buffers
            .iter()
            .flat_map(|buffer| {
                let queue = &state.buffers[*buffer as usize];
                let first = queue.partition_point(|entry| entry.number <= after);
                queue.range(first..).take(at_most).cloned()
            })
            .collect();
        found.sort_by_key(|entry| entry.number);
        found.truncate(at_most);
        found
    }

    pub fn last(&self) -> u64 {
        self.lock().last
    }

    /// The newest entry of these buffers that is gone because others needed its room.
    pub fn evicted(&self, buffers: &[Buffer]) -> u64 {
        let state = self.lock();
        buffers.iter().map(|buffer| state.evicted[*buffer as usize]).max().unwrap_or(0)
    }

    /// Waits until there is an entry after this one, or the time is over.
    pub fn wait(&self, after: u64, at_most: Duration) {
        let nothing_new = |state: &mut State| state.last <= after;
        drop(self.added.wait_timeout_while(self.lock(), at_most, nothing_new));
    }

    pub fn clear(&self, buffers: &[Buffer]) {
        let mut state = self.lock();
        for buffer in buffers {
            state.buffers[*buffer as usize].clear();
            state.sizes[*buffer as usize] = 0;
        }
    }

    pub fn size(&self, buffer: Buffer) -> usize {
        self.lock().sizes[buffer as usize]
    }
}

fn cut(text: &str, at_most: usize) -> String {
    let mut end = text.len().min(at_most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::{Buffer, CAPACITY, Level, Logs};

    #[test]
    fn entries_come_back_in_order_and_only_from_the_buffers_asked_for() {
        let logs = Logs::default();
        logs.add(Buffer::Main, Level::Info, "a", 1, "one");
        logs.add(Buffer::Events, Level::Info, "b", 1, "two");
        logs.add(Buffer::System, Level::Info, "c", 1, "three\n");

        let found = logs.after(0, &[Buffer::System, Buffer::Main], 10);

        let texts: Vec<_> = found.iter().map(|entry| (entry.number, entry.message.as_str())).collect();
        assert_eq!(texts, [(1, "one"), (3, "three")]);
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let logs = Logs::default();
        for number in 0..1000 {
            logs.add(Buffer::Main, Level::Info, "t", 1, &format!("{number} {}", "é".repeat(3000)));
        }

        let kept = logs.after(0, &[Buffer::Main], 10_000);

        assert!(logs.size(Buffer::Main) <= CAPACITY);
        assert!(kept.len() > 10 && kept[0].number > 900, "{} kept", kept.len());
    }
}
