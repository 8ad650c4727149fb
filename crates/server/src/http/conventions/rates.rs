//! How often: requests of one caller, and failed authentications from one address.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use http::HeaderValue;
use paddock_model::error::Kind;
use paddock_model::subjects::Subject;
use paddock_model::{Error, Result};

type Keyed<K, M> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, M>;

pub struct Rates {
    requests: Keyed<Subject, StateInformationMiddleware>,
    costly: Keyed<Subject, NoOpMiddleware<<DefaultClock as Clock>::Instant>>,
    failures: Keyed<IpAddr, NoOpMiddleware<<DefaultClock as Clock>::Instant>>,
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
            failures: RateLimiter::dashmap(Quota::per_minute(positive(failures_per_minute))),
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

    pub fn count_failed_authentication(&self, from: IpAddr) -> Result<()> {
        let outcome = self.failures.check_key(&network(from));
        outcome.map_err(|until: NotUntil<_>| {
            let detail = "Too many failed authentications from your address.";
            too_many("authentication_rate_limited", detail, until.wait_time_from(self.clock.now()))
        })
    }

    /// Drops the account of whoever has been quiet long enough, so that memory does not grow with strangers.
    pub fn forget_idle(&self) {
        self.requests.retain_recent();
        self.costly.retain_recent();
        self.failures.retain_recent();
    }
}

/// One subscriber has a whole /64 of IPv6 addresses, but one of IPv4.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

fn too_many(code: &'static str, detail: &'static str, wait: Duration) -> Error {
    let seconds = wait.as_secs_f64().ceil().max(1.0);
    Error::new(Kind::TooMany, code, format!("{detail} Wait {seconds} s.")).with_retry_after(wait)
}

fn positive(number: u64) -> NonZeroU32 {
    u32::try_from(number).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}
