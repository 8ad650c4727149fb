//! Tickets: what opens one stream, once, within seconds, where a browser cannot send a credential.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::caller::Caller;
use crate::credentials::{Ceiling, Credential, CredentialKind};
use crate::drivers::emulator_hosts::Channel;
use crate::emulators::EmulatorId;
use crate::subjects::Subject;
use crate::tenants::TenantId;

/// Long enough for a page to open a stream with what it has just been given.
pub const LIFETIME: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub emulator: EmulatorId,
    pub channel: Channel,
    pub subject: Subject,
    pub expires_at: Timestamp,
    /// Of the credential that it was got with.
    pub kind: CredentialKind,
    pub id: Option<String>,
    pub issuer: Option<String>,
    pub tenant: Option<TenantId>,
    pub credential_expires_at: Option<Timestamp>,
}

/// What a request for a ticket that is repeated is told: the ticket itself is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub expires_at: Timestamp,
}

impl Ticket {
    /// For a caller that may open the stream.
    pub fn new(caller: &Caller, emulator: EmulatorId, channel: Channel, now: Timestamp) -> Self {
        let credential = &caller.credential;
        let end = now + LIFETIME;
        Ticket {
            emulator,
            channel,
            subject: caller.subject.clone(),
            // It opens nothing that the credential would not.
            expires_at: credential.expires_at.map_or(end, |at| at.min(end)),
            kind: credential.kind,
            id: credential.id.clone(),
            issuer: credential.issuer.clone(),
            tenant: credential.tenant,
            credential_expires_at: credential.expires_at,
        }
    }

    /// As the credential that it was got with, but for this alone.
    pub fn credential(self) -> Credential {
        Credential {
            id: self.id,
            issuer: self.issuer,
            expires_at: self.credential_expires_at,
            ceiling: Ceiling::Only(Cow::Borrowed(match self.channel {
                Channel::Adb | Channel::Display => &["emulator:can_view", "emulator:can_connect_adb"],
                Channel::Log => &["emulator:can_view", "emulator:can_view_logs"],
                Channel::Vehicle => &["emulator:can_view", "emulator:can_read_vehicle"],
            })),
            tenant: self.tenant,
            ..Credential::new(self.kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_its_stream_and_nothing_else() {
        for channel in [Channel::Adb, Channel::Display, Channel::Log, Channel::Vehicle] {
            let ticket = Ticket {
                emulator: EmulatorId(uuid::Uuid::nil()),
                channel,
                subject: Subject::ServiceAccount("cluster/ci/runner".into()),
                expires_at: Timestamp::UNIX_EPOCH,
                kind: CredentialKind::Sso,
                id: None,
                issuer: None,
                tenant: None,
                credential_expires_at: None,
            };
            let ceiling = ticket.credential().ceiling;
            for relation in ["can_view", "can_connect_adb", "can_view_logs", "can_delete", "can_restart"] {
                let open = relation == "can_view" || relation == channel.relation().name();
                assert_eq!(ceiling.allows("emulator", relation), open, "{channel:?} {relation}");
            }
            assert!(!ceiling.allows("tenant", "can_view"));
        }
    }
}
