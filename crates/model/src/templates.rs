//! Templates: the memory of a captured device, kept so that many clones resume from it at once.
//!
//! A template is never more than a shorter way: the same disk boots without it.

use serde::{Deserialize, Serialize};

crate::id!(TemplateId, "tpl");

/// The code of a device that was to resume from a template and did not; nothing keeps it from booting.
pub const NOT_RESUMED: &str = "not_resumed";

/// What is known of a template once it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateFacts {
    /// What it takes on the host.
    pub allocated_bytes: i64,
    /// What a host must be like for the memory to mean anything there: digest over its programs, its processor and the machine.
    pub fingerprint: String,
}

/// How far a template has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateState {
    /// The device's memory is to be taken with its disk.
    Wanted,
    /// The disk was taken; what came of the memory is to become a template.
    Taken,
    /// It stands; a clone has yet to resume from it.
    Made,
    /// A clone is resuming from it.
    Proving,
    Ready,
    /// It is of no use, and what is left of it is to go.
    Failed,
    /// Its snapshot is gone, and so is to be everything of it.
    Removing,
}

impl TemplateState {
    pub const ALL: [TemplateState; 7] = [
        TemplateState::Wanted,
        TemplateState::Taken,
        TemplateState::Made,
        TemplateState::Proving,
        TemplateState::Ready,
        TemplateState::Failed,
        TemplateState::Removing,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            TemplateState::Wanted => "wanted",
            TemplateState::Taken => "taken",
            TemplateState::Made => "made",
            TemplateState::Proving => "proving",
            TemplateState::Ready => "ready",
            TemplateState::Failed => "failed",
            TemplateState::Removing => "removing",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        TemplateState::ALL.into_iter().find(|state| state.name() == text)
    }

    /// Whether it is known what has become of it.
    pub const fn is_settled(self) -> bool {
        matches!(self, TemplateState::Ready | TemplateState::Failed | TemplateState::Removing)
    }
}
