//! Streams: ways into a device that stay open, what each needs, and when it has to end.

use crate::drivers::emulator_hosts::Channel;
use crate::emulators::{EmulatorId, Seen, Wanted};
use crate::permissions::Relation;

/// Why a stream ends although neither side has closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    CredentialExpired,
    PermissionLost,
    DeviceGone,
    NewIncarnation,
    ServerGoingAway,
}

impl End {
    pub const fn name(self) -> &'static str {
        match self {
            End::CredentialExpired => "credential_expired",
            End::PermissionLost => "permission_lost",
            End::DeviceGone => "device_gone",
            End::NewIncarnation => "new_incarnation",
            End::ServerGoingAway => "server_going_away",
        }
    }

    /// The code that closes a WebSocket.
    pub const fn code(self) -> u16 {
        match self {
            End::CredentialExpired => 4401,
            End::PermissionLost => 4403,
            End::DeviceGone => 4404,
            End::NewIncarnation => 4410,
            End::ServerGoingAway => 1001,
        }
    }
}

impl Channel {
    pub const fn name(self) -> &'static str {
        match self {
            Channel::Adb => "adb",
            Channel::Display => "display",
            Channel::Log => "logs",
            Channel::Vehicle => "vehicle",
        }
    }

    /// Those that are streams of the API; a car has a door of its own.
    pub fn parse(text: &str) -> Option<Self> {
        [Channel::Adb, Channel::Display, Channel::Log, Channel::Vehicle]
            .into_iter()
            .find(|channel| channel.name() == text)
    }

    /// What a caller needs to hold on the emulator. Who sees the display can also type.
    pub const fn relation(self) -> Relation {
        match self {
            Channel::Adb | Channel::Display => Relation::CanConnectAdb,
            Channel::Log => Relation::CanViewLogs,
            Channel::Vehicle => Relation::CanReadVehicle,
        }
    }

    /// Whether it leads to one start of the device; a log goes on over all of them.
    pub const fn is_of_one_incarnation(self) -> bool {
        !matches!(self, Channel::Log)
    }
}

/// As much of an emulator as tells whether its streams may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub id: EmulatorId,
    pub wanted: Wanted,
    pub incarnation: i64,
    pub seen: Seen,
    pub seen_incarnation: i64,
    pub failed: bool,
    pub terminated: bool,
}

/// Whether a stream that was opened to an incarnation has to end; nothing stands for an emulator without a trace.
pub fn verdict(channel: Channel, incarnation: i64, standing: Option<&Standing>) -> Option<End> {
    let Some(standing) = standing else { return Some(End::DeviceGone) };
    if !channel.is_of_one_incarnation() {
        return standing.terminated.then_some(End::DeviceGone);
    }
    let ended = standing.failed
        || (standing.seen == Seen::Exited && standing.seen_incarnation == standing.incarnation);
    match standing.wanted {
        Wanted::Gone | Wanted::Parked => Some(End::DeviceGone),
        Wanted::Running if standing.incarnation != incarnation => Some(End::NewIncarnation),
        Wanted::Running => ended.then_some(End::DeviceGone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_ends_with_what_it_leads_to() {
        let up = Standing {
            id: EmulatorId(uuid::Uuid::nil()),
            wanted: Wanted::Running,
            incarnation: 2,
            seen: Seen::Ready,
            seen_incarnation: 2,
            failed: false,
            terminated: false,
        };
        let wanted = |wanted| Some(Standing { wanted, ..up });
        let seen = |seen| Some(Standing { seen, ..up });
        for (standing, device, log) in [
            (None, Some(End::DeviceGone), Some(End::DeviceGone)),
            (Some(up), None, None),
            (wanted(Wanted::Parked), Some(End::DeviceGone), None),
            (wanted(Wanted::Gone), Some(End::DeviceGone), None),
            (
                Some(Standing { wanted: Wanted::Gone, terminated: true, ..up }),
                Some(End::DeviceGone),
                Some(End::DeviceGone),
            ),
            (Some(Standing { incarnation: 3, ..up }), Some(End::NewIncarnation), None),
            // What was seen of the start before says nothing of this one.
            (Some(Standing { seen: Seen::Exited, seen_incarnation: 1, ..up }), None, None),
            (seen(Seen::Exited), Some(End::DeviceGone), None),
            // It may come back.
            (seen(Seen::Silent), None, None),
            (seen(Seen::Paused), None, None),
            (Some(Standing { failed: true, ..up }), Some(End::DeviceGone), None),
        ] {
            assert_eq!(verdict(Channel::Adb, 2, standing.as_ref()), device, "{standing:?}");
            assert_eq!(verdict(Channel::Display, 2, standing.as_ref()), device, "{standing:?}");
            assert_eq!(verdict(Channel::Log, 2, standing.as_ref()), log, "{standing:?}");
        }
    }
}
