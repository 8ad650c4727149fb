//! How long a flush takes: as long as the disk needs, or 4 ms longer, so that a fast disk cannot hide what one costs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flush {
    AsTheDisk,
    Slowed,
}

impl Flush {
    /// Starts the program with such flushes. What is spawned is the program itself, and can be killed as such.
    pub fn command(self, program: &Path) -> Command {
        if self == Flush::AsTheDisk {
            return Command::new(program);
        }
        let mut command = Command::new("strace");
        command
            // The tracer is a grandchild, which ends with the program.
            .arg("--daemonize")
            .args(["--follow-forks", "--quiet=all", "--output=/dev/null"])
            // Only what is traced stops for strace, yet in a new thread everything does until its first traced call.
            // Hence the last two, which a thread makes when it starts and hardly again.
            .arg("--seccomp-bpf")
            .arg("--trace=fsync,fdatasync,set_robust_list,sigaltstack")
            .arg(format!("--inject=fsync,fdatasync:delay_exit={}", self.least_microseconds()))
            .arg("--")
            .arg(program);
        command
    }

    pub fn least_microseconds(self) -> u32 {
        match self {
            Flush::AsTheDisk => 0,
            Flush::Slowed => 4000,
        }
    }

    /// How the name of a row ends.
    pub fn suffix(self) -> &'static str {
        match self {
            Flush::AsTheDisk => "",
            Flush::Slowed => ", flush 4 ms",
        }
    }
}

pub fn strace_version() -> Result<String> {
    let output = Command::new("strace")
        .arg("--version")
        .output()
        .context("run strace --version; is strace installed?")?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or_default().replace("-- version ", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_arguments_come_last() {
        for (flush, first) in [(Flush::AsTheDisk, "paddockd"), (Flush::Slowed, "strace")] {
            let mut command = flush.command(Path::new("paddockd"));
            command.arg("--version");

            let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();

            assert_eq!(words[0], first);
            assert!(words.ends_with(&["paddockd".as_ref(), "--version".as_ref()]), "{words:?}");
        }
    }
}
