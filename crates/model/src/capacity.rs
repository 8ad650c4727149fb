//! How the room in a pool is taken: how fast over the last hour, and when it will be full if that goes on.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Timestamp;

/// What is kept reaches back so far.
const WINDOW: Duration = Duration::from_secs(3600);
const EVERY: Duration = Duration::from_secs(60);
/// Before so much is known nothing is foretold.
const LEAST: Duration = Duration::from_secs(300);
/// Beyond this it is no forecast.
const FURTHEST: f64 = 10.0 * 365.0 * 86_400.0;

/// How many bytes were taken, minute by minute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Course(VecDeque<(Timestamp, i64)>);

impl Course {
    /// Takes note of how much is taken now; more often than once a minute makes no difference.
    pub fn note(&mut self, now: Timestamp, taken_bytes: i64) {
        // A clock that was set back leaves nothing to go by.
        self.0.retain(|(at, _)| *at <= now && *at + WINDOW >= now);
        if self.0.back().is_none_or(|(at, _)| *at + EVERY <= now) {
            self.0.push_back((now, taken_bytes));
        }
    }

    /// Bytes a second, by the line that lies closest to all that was noted; none before enough was.
    pub fn growth(&self) -> Option<f64> {
        let (first, last) = (self.0.front()?.0, self.0.back()?.0);
        if last < first + LEAST {
            return None;
        }
        let count = self.0.len() as f64;
        let points = self.0.iter().map(|(at, bytes)| (at.duration_since(first).as_secs_f64(), *bytes as f64));
        let (times, bytes) = points.clone().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        let (time, mean) = (times / count, bytes / count);
        let (rise, run) = points.fold((0.0, 0.0), |sum, (at, bytes)| {
            (sum.0 + (at - time) * (bytes - mean), sum.1 + (at - time) * (at - time))
        });
        (run > 0.0).then(|| rise / run)
    }

    /// How long until so many free bytes are gone; none while nothing grows, or not within ten years.
    pub fn full_in(&self, free_bytes: i64) -> Option<Duration> {
        let growth = self.growth().filter(|growth| *growth > 0.0)?;
        let seconds = free_bytes.max(0) as f64 / growth;
        (seconds < FURTHEST).then(|| Duration::from_secs_f64(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(bytes: impl Fn(i64) -> i64, minutes: i64) -> Course {
        let mut course = Course::default();
        for minute in 0..=minutes {
            let at = Timestamp::from_second(1_800_000_000 + minute * 60).expect("a time");
            // As often as the pool is looked at.
            for more in [0, 5, 10] {
                course.note(at + Duration::from_secs(more), bytes(minute));
            }
        }
        course
    }

    #[test]
    fn a_pool_that_fills_up_is_full_when_its_rate_says() {
        type Bytes = fn(i64) -> i64;
        let cases: [(&str, Bytes, i64, i64, Option<u64>); 7] = [
            ("a megabyte a minute", |minute| minute * 1_000_000, 30, 60_000_000, Some(3600)),
            ("full", |minute| minute * 1_000_000, 30, 0, Some(0)),
            ("too early to say", |minute| minute * 1_000_000, 4, 60_000_000, None),
            ("nothing happens", |_| 500, 60, 60_000_000, None),
            ("it becomes less", |minute| -minute, 60, 60_000_000, None),
            ("so slow that it does not matter", |minute| minute, 60, 60_000_000_000, None),
            ("only the last hour counts", |minute| minute.max(100) * 600, 160, 60_000, Some(6000)),
        ];
        for (what, bytes, minutes, free, expected) in cases {
            let found = course(bytes, minutes).full_in(free).map(|left| left.as_secs());
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn no_more_is_kept_than_an_hour_and_a_clock_that_was_set_back_starts_anew() {
        let mut long = course(|minute| minute, 10_000);
        assert_eq!(long.0.len(), 60);

        long.note(Timestamp::from_second(1_700_000_000).expect("a time"), 7);

        assert_eq!(long.0.len(), 1);
        assert_eq!(long.growth(), None);
    }
}
