//! Asks before something is gone for good.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// How the user agrees to something that cannot be undone.
pub enum Consent {
    Given,
    OnTerminal,
}

impl Consent {
    /// Fails where nobody can be asked, so that a script learns of it before anything is sent.
    pub fn from_flag(yes: bool) -> Result<Self, Failure> {
        if yes {
            Ok(Consent::Given)
        } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
            Ok(Consent::OnTerminal)
        } else {
            Err(Failure::Usage("there is no terminal to ask you on; add --yes if you are sure".to_owned()))
        }
    }

    pub fn ask(self, question: &str) -> Result<(), Failure> {
        if matches!(self, Consent::Given) {
            return Ok(());
        }
        let mut stderr = io::stderr();
        let mut answer = String::new();
        let asked = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
        match asked.and_then(|()| io::stdin().read_line(&mut answer)) {
            Ok(_) if means_yes(&answer) => Ok(()),
            _ => Err(Failure::Declined),
        }
    }
}

fn means_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::means_yes;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for (answer, expected) in [
            ("y\n", true),
            ("YES\n", true),
            (" y ", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yep", false),
        ] {
            assert_eq!(means_yes(answer), expected, "{answer:?}");
        }
    }
}
