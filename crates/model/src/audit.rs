//! The audit: who did what, by which credential, and what became of it. Nothing in it can be changed unnoticed.

use serde::Serialize;
use uuid::Uuid;

use crate::Timestamp;
use crate::tenants::TenantId;

/// One act, or one refusal of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    pub id: Uuid,
    /// None for what concerns the installation itself. Each tenant has a chain of its own.
    pub tenant: Option<TenantId>,
    /// The place in the chain, from 1.
    pub number: i64,
    pub at: Timestamp,
    /// `user:usr_…`, or nothing when nobody could be recognised.
    pub actor: Option<String>,
    pub credential: Option<String>,
    pub credential_id: Option<String>,
    pub action: String,
    pub object: String,
    pub outcome: Outcome,
    /// Why it was refused.
    pub code: Option<String>,
    pub request_id: String,
    pub address: Option<String>,
    /// What is worth knowing besides, as JSON; never a secret.
    pub details: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Refused,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Outcome::Done, Outcome::Refused].into_iter().find(|outcome| outcome.name() == text)
    }
}

impl Event {
    /// What the digest of the next event is made over: every field in this order, behind the digest before it.
    pub fn link(&self, previous: &[u8]) -> Vec<u8> {
        let mut bytes = previous.to_vec();
        // Writing a struct of texts and numbers to memory cannot fail.
        serde_json::to_writer(&mut bytes, self).expect("an event can be written as JSON");
        bytes
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only this chain; without it, every chain that the caller may see.
    pub tenant: Option<TenantId>,
    pub actor: Option<String>,
    /// An action, or all that begin with it where it ends in a point.
    pub action: Option<String>,
    pub object: Option<String>,
    pub outcome: Option<Outcome>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// A chain as far as it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub tenant: Option<TenantId>,
    pub events: i64,
    /// The first event that is not what was written, if there is one.
    pub broken_at: Option<i64>,
}
