//! Failures to sign in: how many wrong passwords are free, and how long to wait after more.

use std::net::IpAddr;
use std::time::Duration;

use crate::Timestamp;

/// After so long without another one, all are forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// Wrong passwords in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    pub count: i64,
    pub paused_until: Option<Timestamp>,
    pub updated_at: Timestamp,
}

/// What is guarded against guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// A login, against one network.
    FromNetwork,
    /// A login, against all of them at once. Anyone can bring this about, so it slows guesses down and no more.
    FromAnywhere,
}

impl Failures {
    /// How much longer nothing is tried.
    pub fn pause(&self, now: Timestamp) -> Option<Duration> {
        let until = self.paused_until.filter(|until| now < *until)?;
        Some(until.duration_since(now).try_into().unwrap_or_default())
    }

    /// With one more.
    #[must_use]
    pub fn counted(&self, guarded: Guarded, now: Timestamp) -> Self {
        let before = if now < self.updated_at + FORGOTTEN_AFTER { self.count } else { 0 };
        let count = before.saturating_add(1);
        let pause = guarded.pause_after(count);
        Failures { count, paused_until: (!pause.is_zero()).then(|| now + pause), updated_at: now }
    }
}

impl Guarded {
    /// How long to wait after so many in a row: nothing for honest mistakes, then longer and longer.
    pub fn pause_after(self, failures: i64) -> Duration {
        let (free, most) = match self {
            Guarded::FromNetwork => (4, 15 * 60),
            Guarded::FromAnywhere => (99, 60),
        };
        match u32::try_from(failures - free) {
            Ok(beyond) if beyond > 0 => Duration::from_secs(1_u64.wrapping_shl(beyond.min(20)).min(most)),
            _ => Duration::ZERO,
        }
    }
}

/// Who counts as one: a subscriber has a whole /64 of IPv6 addresses, but one of IPv4.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn wrong_passwords_cost_longer_and_longer() {
        for (guarded, failures, seconds) in [
            (Guarded::FromNetwork, 0, 0),
            (Guarded::FromNetwork, 4, 0),
            (Guarded::FromNetwork, 5, 2),
            (Guarded::FromNetwork, 6, 4),
            (Guarded::FromNetwork, 9, 32),
            (Guarded::FromNetwork, 40, 900),
            (Guarded::FromAnywhere, 99, 0),
            (Guarded::FromAnywhere, 100, 2),
            (Guarded::FromAnywhere, 1_000_000, 60),
        ] {
            assert_eq!(guarded.pause_after(failures), Duration::from_secs(seconds), "{guarded:?} {failures}");
        }
    }

    #[test]
    fn an_hour_of_quiet_forgets_them() {
        let many = Failures { count: 40, paused_until: None, updated_at: at(0) };
        assert_eq!(
            many.counted(Guarded::FromNetwork, at(3599)).pause(at(3599)),
            Some(Duration::from_secs(900))
        );
        assert_eq!(many.counted(Guarded::FromNetwork, at(3600)).count, 1);
    }

    #[test]
    fn a_subscriber_is_one_network() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(network(address).to_string(), expected);
        }
    }
}
