//! Device authorizations: a machine without a browser shows a code, and a person types it in elsewhere (RFC 8628).

use std::time::Duration;

use crate::Timestamp;
use crate::ports::Random;
use crate::users::UserId;

pub const LIFETIME: Duration = Duration::from_secs(15 * 60);
/// How often the machine may ask at first, and how much more seldom after it has asked too often.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Without vowels, so that no code is a word.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceAuthorization {
    pub client: String,
    /// Where the machine asked from, for the person who decides.
    pub address: Option<String>,
    pub state: State,
    pub interval: Duration,
    pub polled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Pending,
    /// By whom, and when they had proved to be there.
    Approved {
        user: UserId,
        authenticated_at: Timestamp,
    },
    Denied,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Approved { .. } => "approved",
            State::Denied => "denied",
        }
    }
}

/// What the machine is told when it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    Pending,
    /// It asks too often.
    SlowDown,
    Expired,
    Denied,
    Approved {
        user: UserId,
        authenticated_at: Timestamp,
    },
}

impl DeviceAuthorization {
    pub fn poll(&self, now: Timestamp) -> Poll {
        if now >= self.expires_at {
            return Poll::Expired;
        }
        match self.state {
            State::Denied => Poll::Denied,
            State::Approved { user, authenticated_at } => Poll::Approved { user, authenticated_at },
            State::Pending if self.polled_at.is_some_and(|at| now < at + self.interval) => Poll::SlowDown,
            State::Pending => Poll::Pending,
        }
    }

    /// Whether somebody can still decide.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.state == State::Pending && now < self.expires_at
    }
}

/// A new code for a person to type, in its plain form.
pub fn user_code(random: &dyn Random) -> String {
    let mut code = String::with_capacity(LENGTH);
    while code.len() < LENGTH {
        let mut byte = [0];
        random.fill(&mut byte);
        // The largest multiple of 20 in a byte: each letter is as likely as any other.
        if byte[0] < 240 {
            code.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
        }
    }
    code
}

/// The plain form of what a person has typed: case, blanks and hyphens do not matter.
pub fn read_user_code(text: &str) -> Option<String> {
    let ignored = |letter: &char| !letter.is_whitespace() && *letter != '-';
    let code: String = text.chars().filter(ignored).map(|letter| letter.to_ascii_uppercase()).collect();
    (code.len() == LENGTH && code.bytes().all(|letter| LETTERS.contains(&letter))).then_some(code)
}

/// The form in which a person reads it.
pub fn show_user_code(code: &str) -> String {
    let (start, end) = code.split_at_checked(LENGTH / 2).unwrap_or((code, ""));
    format!("{start}-{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SeededRandom;

    #[test]
    fn a_code_is_read_however_it_was_typed() {
        let code = user_code(&SeededRandom::new(1));
        assert_eq!(read_user_code(&code).as_deref(), Some(code.as_str()));
        for (text, plain) in [
            ("WDJB-MJHT", Some("WDJBMJHT")),
            (" wdjb mjht ", Some("WDJBMJHT")),
            ("WDJB-MJH", None),
            ("WDJB-MJHA", None),
            ("", None),
            ("WDJBMJHÄ", None),
        ] {
            assert_eq!(read_user_code(text).as_deref(), plain, "{text}");
        }
        assert_eq!(show_user_code("WDJBMJHT"), "WDJB-MJHT");
    }

    #[test]
    fn a_machine_is_told_to_wait_to_slow_down_or_to_stop() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let of = |state, polled_at: Option<i64>| DeviceAuthorization {
            client: "paddock-cli".to_owned(),
            address: None,
            state,
            interval: INTERVAL,
            polled_at: polled_at.map(at),
            created_at: at(0),
            expires_at: at(900),
        };
        for (state, polled_at, now, poll) in [
            (State::Pending, None, 0, Poll::Pending),
            (State::Pending, Some(0), 4, Poll::SlowDown),
            (State::Pending, Some(0), 5, Poll::Pending),
            (State::Pending, Some(0), 900, Poll::Expired),
            (State::Denied, Some(0), 1, Poll::Denied),
        ] {
            assert_eq!(of(state, polled_at).poll(at(now)), poll, "{state:?} {now}");
        }
    }
}
