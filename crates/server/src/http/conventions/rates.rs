//! How often: requests of one caller, and failed authentications from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use http::HeaderValue;
use paddock_model::error::Kind;
use paddock_model::sign_in_failures::network;
use paddock_model::subjects::Subject;
use paddock_model::{Error, Result};

const MINUTE: Duration = Duration::from_secs(60);
/// Fifty machines behind one address may wait at once.
const POLLS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(600).expect("not zero");

type Keyed<K, M> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, M>;

pub struct Rates {
    requests: Keyed<Subject, StateInformationMiddleware>,
    costly: Keyed<Subject, NoOpMiddleware<<DefaultClock as Clock>::Instant>>,
    polls: Keyed<IpAddr, NoOpMiddleware<<DefaultClock as Clock>::Instant>>,
    failures: Failures,
    clock: DefaultClock,
}

impl Rates {
    pub fn new(
        requests_per_minute: u64,
        burst: u64,
        costly_per_minute: u64,
        failures_per_minute: u64,
    ) -> Self {
        let requests = Quota::per_minute(positive(requests_per_minute)).allow_burst(positive(burst));
        Rates {
            requests: RateLimiter::dashmap(requests).with_middleware(),
            costly: RateLimiter::dashmap(Quota::per_minute(positive(costly_per_minute))),
            polls: RateLimiter::dashmap(Quota::per_minute(POLLS_PER_MINUTE)),
            failures: Failures::new(positive(failures_per_minute)),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a request of this caller; returns what is left, as the `RateLimit` header says it.
    pub fn count_request(&self, caller: &Subject) -> Result<HeaderValue> {
        match self.requests.check_key(caller) {
            Ok(state) => {
                let text = format!("\"requests\";r={}", state.remaining_burst_capacity());
                HeaderValue::try_from(text).map_err(Error::internal)
            }
            Err(until) => Err(too_many(
                "rate_limited",
                "You send requests too fast.",
                until.wait_time_from(self.clock.now()),
            )),
        }
    }

    /// Counts a request that costs more than others, or makes something that lasts: a key, an account, a search.
    pub fn count_costly(&self, caller: &Subject) -> Result<()> {
        self.costly.check_key(caller).map_err(|until: NotUntil<_>| {
            let detail = "You send requests of this kind too fast.";
            too_many("rate_limited", detail, until.wait_time_from(self.clock.now()))
        })
    }

    /// Counts a failure from there; an error once there were too many.
    pub fn count_failed_authentication(&self, from: IpAddr) -> Result<()> {
        self.failures.count(network(from), Instant::now()).map_err(|wait| {
            let detail = "Too many failed authentications from your address.";
            too_many("authentication_rate_limited", detail, wait)
        })
    }

    /// Takes a failure back that was counted before it was known to be none.
    pub fn forgive(&self, from: IpAddr) {
        self.failures.forgive(network(from));
    }

    /// Counts a machine's question whether somebody has let it in.
    pub fn count_poll(&self, from: IpAddr) -> Result<()> {
        self.polls.check_key(&network(from)).map_err(|until: NotUntil<_>| {
            let detail = "Too many machines ask from your address.";
            too_many("rate_limited", detail, until.wait_time_from(self.clock.now()))
        })
    }

    /// Drops the account of whoever has been quiet long enough, so that memory does not grow with strangers.
    pub fn forget_idle(&self) {
        self.requests.retain_recent();
        self.costly.retain_recent();
        self.polls.retain_recent();
        self.failures.forget_idle(Instant::now());
    }
}

/// What is counted before its outcome is known, and can be taken back: for each network the moment at which all its
/// failures are made up for, which may lie a minute ahead.
struct Failures {
    each: Duration,
    even_at: Mutex<HashMap<IpAddr, Instant>>,
}

impl Failures {
    fn new(per_minute: NonZeroU32) -> Self {
        Failures { each: MINUTE / per_minute.get(), even_at: Mutex::default() }
    }

    /// How long to wait if there were too many.
    fn count(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut all = self.even_at();
        let even_at = all.get(&from).copied().unwrap_or(now).max(now) + self.each;
        // What division has cut off must not cost the last one.
        let wait = even_at.duration_since(now).saturating_sub(MINUTE + self.each / 2);
        if !wait.is_zero() {
            return Err(wait);
        }
        all.insert(from, even_at);
        Ok(())
    }

    fn forgive(&self, from: IpAddr) {
        if let Some(even_at) = self.even_at().get_mut(&from) {
            *even_at = even_at.checked_sub(self.each).unwrap_or(*even_at);
        }
    }

    fn forget_idle(&self, now: Instant) {
        self.even_at().retain(|_, even_at| now < *even_at);
    }

    fn even_at(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.even_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_many(code: &'static str, detail: &'static str, wait: Duration) -> Error {
    let seconds = wait.as_secs_f64().ceil().max(1.0);
    Error::new(Kind::TooMany, code, format!("{detail} Wait {seconds} s.")).with_retry_after(wait)
}

fn positive(number: u64) -> NonZeroU32 {
    u32::try_from(number).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_at_once_and_taken_back() {
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let (start, each) = (Instant::now(), Duration::from_secs(20));
        let failures = Failures::new(positive(3));
        let count = |from, after| failures.count(from, start + after).map_err(|wait| wait.as_secs() + 1);
        for _ in 0..3 {
            assert_eq!(count(here, Duration::ZERO), Ok(()));
        }
        assert!(count(here, Duration::ZERO).is_err());
        assert_eq!(count(there, Duration::ZERO), Ok(()));
        failures.forgive(here);
        assert_eq!(count(here, Duration::ZERO), Ok(()));
        assert!(count(here, each / 4).is_err());
        assert_eq!(count(here, each), Ok(()));
        failures.forget_idle(start + each);
        assert_eq!(failures.even_at().len(), 1);
    }
}
