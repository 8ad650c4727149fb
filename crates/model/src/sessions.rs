//! Sessions: browsers in which somebody has signed in.

use std::time::Duration;

use uuid::Uuid;

use crate::Timestamp;
use crate::lifetimes::Lifetimes;
use crate::users::UserId;

/// How far the end of a session must have moved before it is written down: not with every click.
const WORTH_WRITING: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Names it in the audit; opens nothing.
    pub id: Uuid,
    pub user: UserId,
    /// When the person proved to be there.
    pub authenticated_at: Timestamp,
    pub created_at: Timestamp,
    /// Moves on while the session is used.
    pub expires_at: Timestamp,
    /// Does not.
    pub ends_at: Timestamp,
}

impl Session {
    pub fn new(
        id: Uuid,
        user: UserId,
        authenticated_at: Timestamp,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Self {
        let ends_at = now + lifetimes.session;
        let expires_at = ends_at.min(now + lifetimes.idle_session);
        Session { id, user, authenticated_at, created_at: now, expires_at, ends_at }
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// When it ends after it was used now, if that is worth writing down.
    pub fn prolonged(&self, lifetimes: &Lifetimes, now: Timestamp) -> Option<Timestamp> {
        let expires_at = self.ends_at.min(now + lifetimes.idle_session);
        (expires_at > self.expires_at + WORTH_WRITING).then_some(expires_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_moves_on_while_it_is_used_but_not_for_ever() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let lifetimes = Lifetimes {
            idle_session: Duration::from_secs(1000),
            session: Duration::from_secs(5000),
            ..Lifetimes::default()
        };
        let session = Session::new(Uuid::nil(), UserId(Uuid::nil()), at(0), &lifetimes, at(0));
        for (now, prolonged) in
            [(30, None), (60, None), (61, Some(1061)), (900, Some(1900)), (4500, Some(5000))]
        {
            assert_eq!(session.prolonged(&lifetimes, at(now)), prolonged.map(at), "{now}");
        }
        assert!(!session.is_over(at(999)) && session.is_over(at(1000)));
    }
}
