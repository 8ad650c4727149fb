//! Trust: how far content is to be believed, by what ran before it came to be.

use serde::{Deserialize, Serialize};

/// How far a snapshot's content is to be believed: what ran before may have been anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    Untrusted,
    Internal,
    Protected,
}

impl Trust {
    pub const ALL: [Trust; 3] = [Trust::Untrusted, Trust::Internal, Trust::Protected];

    pub const fn name(self) -> &'static str {
        match self {
            Trust::Untrusted => "untrusted",
            Trust::Internal => "internal",
            Trust::Protected => "protected",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Trust::ALL.into_iter().find(|trust| trust.name() == text)
    }
}
