//! Loops: each compares what is wanted with what is, and acts until they match.
//!
//! A loop takes no argument and may run at any moment, twice, and after a crash at any point. It is woken by commits
//! to the tables it watches and by time. Over a settled world it writes nothing. One replica runs them, all the others wait.

pub mod backups;
pub mod capacity;
pub mod captures;
pub mod consolidation;
pub mod emulators;
pub mod expiry;
mod hitch;
pub mod idempotency_keys;
pub mod images;
pub mod imports;
pub mod integrity;
pub mod layers;
mod lease;
pub mod logs;
pub mod relation_changes;
pub mod retention;
mod runner;
pub mod sign_ins;
pub mod signing_keys;
pub mod snapshots;
pub(crate) mod templates;
pub mod usage;
pub mod vehicles;
pub mod verification;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use paddock_model::error::Kind;
use paddock_model::{Error, Timestamp};

use crate::Engine;

use paddock_model::drivers::DriverError;
pub use paddock_model::drivers::Retry;
pub use runner::{LoopStatus, Outcome, Runner, Settings, Status};

/// Every loop there is.
pub const LOOPS: &[Loop] = &[
    backups::LOOP,
    capacity::LOOP,
    captures::LOOP,
    consolidation::LOOP,
    emulators::LOOP,
    expiry::LOOP,
    idempotency_keys::LOOP,
    images::LOOP,
    imports::LOOP,
    integrity::LOOP,
    layers::LOOP,
    logs::LOOP,
    relation_changes::LOOP,
    retention::LOOP,
    sign_ins::LOOP,
    signing_keys::LOOP,
    snapshots::LOOP,
    templates::LOOP,
    usage::LOOP,
    vehicles::LOOP,
    verification::LOOP,
];

#[derive(Clone, Copy)]
pub struct Loop {
    pub name: &'static str,
    /// A commit to one of these wakes the loop.
    pub watches: &'static [&'static str],
    /// It runs at least this often.
    pub every: Duration,
    pub run: fn(&Engine) -> Run<'_>,
}

pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Report, Trouble>> + Send + 'a>>;

/// What one run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// How many things were changed; nothing in a settled world.
    pub changed: u64,
    /// When it has something to do again, if it knows.
    pub next: Option<Timestamp>,
}

/// Why a run ended early, and when another try may help.
#[derive(Debug)]
pub struct Trouble {
    pub retry: Retry,
    pub error: Error,
}

/// How long to wait after the n-th failure in a row.
fn delay(retry: Retry, failures: u32, every: Duration) -> Duration {
    let doubled =
        |first: u64, most: u64| Duration::from_secs((first << failures.saturating_sub(1).min(16)).min(most));
    match retry {
        Retry::Soon => doubled(1, 60),
        Retry::Later => doubled(60, 900),
        Retry::Never => every,
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let retry = match error.kind {
            Kind::Unavailable | Kind::TooMany | Kind::Stale => Retry::Soon,
            _ => Retry::Later,
        };
        Trouble { retry, error }
    }
}

impl From<DriverError> for Trouble {
    fn from(error: DriverError) -> Self {
        let retry = error.retry;
        Trouble { retry, error: Error::internal(error) }
    }
}

impl From<paddock_store::Error> for Trouble {
    fn from(error: paddock_store::Error) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_backs_off_as_its_trouble_says() {
        let every = Duration::from_secs(300);
        for (retry, failures, seconds) in [
            (Retry::Soon, 1, 1),
            (Retry::Soon, 3, 4),
            (Retry::Soon, 40, 60),
            (Retry::Later, 1, 60),
            (Retry::Later, 9, 900),
            (Retry::Never, 5, 300),
        ] {
            assert_eq!(delay(retry, failures, every), Duration::from_secs(seconds), "{retry:?} {failures}");
        }
    }
}
