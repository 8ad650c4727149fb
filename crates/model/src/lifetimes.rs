//! Lifetimes: how long what a sign-in gives is good for.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// How long an access token is good for. Nothing takes one back before, so this is short.
pub const ACCESS_TOKEN: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// A browser that is not used for so long has to sign in again.
    pub idle_session: Duration,
    /// So does one that has been used all the time.
    pub session: Duration,
    /// A command line that is not used for so long has to sign in again.
    pub refresh_token: Duration,
    /// How long a key signs; it verifies for as long as what it has signed.
    pub signing_key: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes {
            idle_session: 8 * HOUR,
            session: 30 * 24 * HOUR,
            refresh_token: 30 * 24 * HOUR,
            signing_key: 30 * 24 * HOUR,
        }
    }
}
