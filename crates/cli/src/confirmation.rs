//! Asks before something is gone for good.

use std::io::{self, IsTerminal, Write};

use clap::Args;

use crate::failure::Failure;
use crate::output;

/// What a command takes that deletes or removes something.
#[derive(Args)]
pub struct Removal {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Only show what would go
    #[arg(long)]
    dry_run: bool,
}

/// What is to be done about it, once it is found.
pub enum Intent {
    Show,
    Remove(Consent),
}

impl Removal {
    pub fn intent(&self) -> Result<Intent, Failure> {
        if self.dry_run { Ok(Intent::Show) } else { Ok(Intent::Remove(Consent::from_flag(self.yes)?)) }
    }
}

impl Intent {
    /// Whether to go ahead; `verb` is such as "delete". Fails where the user says no.
    pub fn agreed(self, verb: &str, what: &str) -> Result<bool, Failure> {
        match self {
            Intent::Show => {
                output::notice(&format!("Would {verb} {what}; nothing was changed."));
                Ok(false)
            }
            Intent::Remove(consent) => {
                let (first, rest) = verb.split_at(1);
                consent.ask(&format!("{}{rest} {what}?", first.to_uppercase())).map(|()| true)
            }
        }
    }
}

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
