//! Logs: what a device and its life have said, merged in the order in which it was heard.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::emulators::{Emulator, EmulatorId, Reason, Status};

/// Longer lines are cut into several.
pub const LONGEST_LINE: usize = 8 << 10;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The device's serial port: firmware, kernel, init.
    Console,
    /// Android's log.
    Logcat,
    /// What became of the emulator, and why.
    Lifecycle,
}

impl Source {
    pub const ALL: [Source; 3] = [Source::Console, Source::Logcat, Source::Lifecycle];
}

/// How grave it is, the least grave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Verbose,
    Debug,
    Info,
    Warn,
    Error,
    Fatal,
}

/// One entry of an emulator's log, in the incarnation of the device that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    #[serde(rename = "t")]
    pub at: Timestamp,
    #[serde(rename = "i")]
    pub incarnation: i64,
    #[serde(flatten)]
    pub entry: Entry,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    Line(Line),
    Status {
        status: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// Something was overwritten before anybody could read it: so many entries, or so many bytes.
    Lost {
        source: Source,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entries: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub source: Source,
    pub level: Level,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logcat: Option<Logcat>,
}

/// What only Android's log says of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logcat {
    pub tag: String,
    pub pid: i64,
    pub buffer: String,
}

/// How far each source has been taken into the journal; written in one piece with what was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The incarnation whose console is read, and how many bytes of it.
    pub console: (i64, u64),
    pub logcat: LogcatMark,
    /// The version of the emulator that was told last.
    pub generation: i64,
    /// That was the end.
    pub ended: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogcatMark {
    pub incarnation: i64,
    pub number: u64,
    /// The time of that entry in milliseconds: numbers begin anew when a device restarts by itself.
    pub time: u64,
}

/// What a change of an emulator tells its log; it waits beside the row until a journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub emulator: EmulatorId,
    pub generation: i64,
    pub at: Timestamp,
    pub incarnation: i64,
    pub status: Status,
    pub reason: Option<Reason>,
}

impl Change {
    /// Nothing where the log would say the same once more.
    pub fn between(before: Option<&Emulator>, after: &Emulator, at: Timestamp) -> Option<Change> {
        let told = |emulator: &Emulator| (emulator.status(), emulator.incarnation, emulator.reason.clone());
        if before.is_some_and(|before| told(before) == told(after)) {
            return None;
        }
        Some(Change {
            emulator: after.id,
            generation: after.generation,
            at,
            incarnation: after.incarnation,
            status: after.status(),
            reason: after.reason.clone(),
        })
    }

    /// For people a line, for programs a status.
    pub fn records(&self) -> [Record; 2] {
        let level = match self.status {
            Status::Failed => Level::Error,
            Status::Unreachable => Level::Warn,
            _ => Level::Info,
        };
        let mut text = format!("{} (incarnation {})", self.status.name(), self.incarnation);
        if let Some(reason) = &self.reason {
            text += &format!(": {} ({})", reason.message, reason.code);
        }
        let line = Line { source: Source::Lifecycle, level, text, logcat: None };
        let record = |entry| Record { at: self.at, incarnation: self.incarnation, entry };
        [
            record(Entry::Line(line)),
            record(Entry::Status { status: self.status, reason: self.reason.clone() }),
        ]
    }
}

/// Which lines a reader wants. Whatever else there is concerns everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    pub source: Option<Source>,
    pub level: Option<Level>,
    pub since: Option<Timestamp>,
}

impl Filter {
    pub fn passes(&self, record: &Record) -> bool {
        if self.since.is_some_and(|since| record.at < since) {
            return false;
        }
        match &record.entry {
            Entry::Line(line) => {
                self.source.is_none_or(|source| line.source == source)
                    && self.level.is_none_or(|level| line.level >= level)
            }
            Entry::Lost { source, .. } => self.source.is_none_or(|wanted| *source == wanted),
            Entry::Status { .. } => true,
        }
    }
}

/// Names a record of one emulator for ever, in the order of the journal.
///
/// The upper bits count the starts of the machine at which something was written, the lower ones the records. What a power cut takes
/// away was counted under the earlier start, so its numbers are never given to other records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// Together less than 2^53, so that every program can hold it in a number.
    const COUNTED: u32 = 40;

    pub const fn new(start: u64, number: u64) -> Offset {
        Offset(start << Self::COUNTED | number)
    }

    pub const fn start(self) -> u64 {
        self.0 >> Self::COUNTED
    }

    pub const fn number(self) -> u64 {
        self.0 & ((1 << Self::COUNTED) - 1)
    }

    #[must_use]
    pub const fn plus(self, records: u64) -> Offset {
        Offset(self.0 + records)
    }

    /// How many records stand between this one and a later one.
    pub const fn until(self, later: Offset) -> u64 {
        later.number().saturating_sub(self.number()).saturating_sub(1)
    }
}

/// Takes whole lines out of a console's bytes.
#[derive(Debug, Default)]
pub struct Lines {
    pub texts: Vec<String>,
    /// How many bytes they were.
    pub taken: usize,
}

impl Lines {
    /// Without `all`, a last line without an end is left until it has one or is too long.
    pub fn of(bytes: &[u8], all: bool) -> Lines {
        let mut lines = Lines::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n');
            let length = match end {
                Some(end) => end + 1,
                None if rest.len() >= LONGEST_LINE => LONGEST_LINE,
                None if all => rest.len(),
                None => break,
            };
            let (line, behind) = rest.split_at(length);
            lines.texts.push(legible(line));
            lines.taken += length;
            rest = behind;
        }
        lines
    }
}

/// Text without what only a terminal understands: colours, cursor moves, carriage returns.
fn legible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.peek() == Some(&'[') => {
                letters.next();
                // Parameters, then one letter that says what they are for.
                for letter in letters.by_ref() {
                    if ('@'..='~').contains(&letter) {
                        break;
                    }
                }
            }
            '\t' => shown.push('\t'),
            letter if letter.is_control() => {}
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_taken_and_the_rest_waits() {
        for (bytes, all, texts, taken) in [
            ("one\ntwo\nthr", false, vec!["one", "two"], 8),
            ("one\ntwo\nthr", true, vec!["one", "two", "thr"], 11),
            ("", true, vec![], 0),
            ("\r\n\n", false, vec!["", ""], 3),
            ("\u{1b}[1;32mgreen\u{1b}[0m\u{7}\tlawn\n", false, vec!["green\tlawn"], 23),
        ] {
            let lines = Lines::of(bytes.as_bytes(), all);
            assert_eq!((lines.texts, lines.taken), (texts.into_iter().map(str::to_owned).collect(), taken));
        }
        let long = vec![b'x'; LONGEST_LINE + 5];
        assert_eq!(Lines::of(&long, false).taken, LONGEST_LINE);
        assert_eq!(Lines::of(&[b'x', 0xff, b'\n'], false).texts, ["x\u{fffd}"]);
    }

    #[test]
    fn an_offset_of_a_later_start_is_later_and_counts_on() {
        let (before, after) = (Offset::new(1, 100), Offset::new(2, 91));
        assert!(after > before);
        assert_eq!(before.until(after), 0);
        assert_eq!(Offset::new(1, 10).until(Offset::new(2, 91)), 80);
        assert!(Offset::new((1 << 13) - 1, (1 << 40) - 1).0 < 1 << 53);
        assert_eq!((after.start(), after.number()), (2, 91));
    }

    #[test]
    fn a_record_is_kept_as_it_is() {
        let change = Change {
            emulator: EmulatorId(Default::default()),
            generation: 3,
            at: "2026-11-15T04:00:00Z".parse().expect("a time"),
            incarnation: 2,
            status: Status::Failed,
            reason: Some(Reason::new("crashed", "It crashed.")),
        };
        for record in change.records() {
            let text = serde_json::to_string(&record).expect("JSON");
            assert_eq!(serde_json::from_str::<Record>(&text).expect("a record"), record, "{text}");
        }
    }
}
