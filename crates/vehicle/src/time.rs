//! A car's own time, which never goes back: not after a kill, and not when the emulator is given another car.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use paddock_model::ports::Clock;

use crate::journal::ClockMark;

/// So far ahead a time is written down before the clock reaches it.
const RESERVED: Duration = Duration::from_secs(60);

/// The car's own time.
pub struct Time {
    /// What it was when the clock that we are given showed `since`.
    base: i64,
    since: Duration,
    last: i64,
    mark: Option<Arc<ClockMark>>,
    /// Written down as not reached yet.
    reserved: i64,
}

impl Time {
    /// Later than everything that was written down.
    pub fn after(mark: Option<Arc<ClockMark>>, clock: &dyn Clock) -> Time {
        let base = mark.as_ref().map_or(0, |mark| mark.written()) + 1;
        Time { base, since: clock.elapsed(), last: base, mark, reserved: base }
    }

    /// What was told last.
    pub fn last(&self) -> i64 {
        self.last
    }

    pub fn now(&self, clock: &dyn Clock) -> i64 {
        (self.base + nanos(clock.elapsed().saturating_sub(self.since))).max(self.last)
    }

    /// Later than every time before.
    pub fn next(&mut self, clock: &dyn Clock) -> io::Result<i64> {
        let next = self.now(clock).max(self.last + 1);
        if next >= self.reserved {
            self.reserved = match &self.mark {
                Some(mark) => mark.write(next + nanos(RESERVED))?,
                None => i64::MAX,
            };
        }
        self.last = next;
        Ok(next)
    }

    /// Goes on from a later time.
    pub fn not_before(&mut self, time: i64, clock: &dyn Clock) {
        self.base += (time - self.now(clock)).max(0);
    }

    /// A time to be written down before it is reached, so that nobody waits for that.
    pub fn reservation(&self) -> Option<(Arc<ClockMark>, i64)> {
        let mark = self.mark.as_ref().filter(|_| self.reserved - self.last < nanos(RESERVED) / 2)?;
        Some((mark.clone(), self.last + nanos(RESERVED)))
    }

    pub fn reserved(&mut self, until: i64) {
        self.reserved = self.reserved.max(until);
    }
}

pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
