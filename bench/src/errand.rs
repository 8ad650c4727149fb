//! What this program measures in a process of its own, since a flush can be slowed only for a whole process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::flush::Flush;
use crate::{disk, sqlite};

#[derive(Debug, PartialEq)]
pub enum Errand {
    /// Commits a second in this database, for so many seconds.
    Commits { database: PathBuf, seconds: u64 },
    /// Microseconds of an append to this file and its fdatasync.
    Fdatasync { file: PathBuf },
}

impl Errand {
    /// Sends this program on it, with such flushes, and waits for the figure.
    pub fn under(&self, flush: Flush) -> Result<f64> {
        let mut command = flush.command(&std::env::current_exe()?);
        command.args(self.words()).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("start {command:?}"))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {complaint}");
        let said = String::from_utf8_lossy(&output.stdout);
        said.trim().parse().with_context(|| format!("{command:?} told {said:?}: {complaint}"))
    }

    /// In this process.
    pub fn run(&self) -> Result<f64> {
        match self {
            Errand::Commits { database, seconds } => sqlite::commits_per_second(database, *seconds),
            Errand::Fdatasync { file } => disk::fdatasync_microseconds(file),
        }
    }

    fn words(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        match self {
            Errand::Commits { database, seconds } => {
                vec!["sqlite-writer".to_owned(), path(database), seconds.to_string()]
            }
            Errand::Fdatasync { file } => vec!["fdatasync".to_owned(), path(file)],
        }
    }

    /// Nothing where the words are a person's.
    pub fn parse(words: &[String]) -> Option<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["sqlite-writer", database, seconds] => {
                Some(Errand::Commits { database: database.into(), seconds: seconds.parse().ok()? })
            }
            ["fdatasync", file] => Some(Errand::Fdatasync { file: file.into() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_is_understood_by_the_process_that_is_sent() {
        for errand in [
            Errand::Commits { database: "/var/tmp/peer.db".into(), seconds: 2 },
            Errand::Fdatasync { file: "/var/tmp/appended".into() },
        ] {
            assert_eq!(Errand::parse(&errand.words()), Some(errand));
        }
        assert_eq!(Errand::parse(&["--only".to_owned(), "create".to_owned()]), None);
    }
}
