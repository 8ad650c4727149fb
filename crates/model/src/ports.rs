//! The doors to the world that every rule needs: the time and randomness. Tests hold both.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

use crate::Timestamp;

pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

pub trait Clock: Send + Sync + 'static {
    /// The present, in whole microseconds: what a database keeps, so that what is read equals what was written.
    fn now(&self) -> Timestamp;
    /// How long some fixed moment is past; unlike `now`, this never jumps.
    fn elapsed(&self) -> Duration;
    fn sleep(&self, duration: Duration) -> Sleep<'_>;
}

pub trait Random: Send + Sync + 'static {
    /// Fills the bytes with unpredictable values.
    fn fill(&self, bytes: &mut [u8]);
}

/// A clock that stands still until it is told to go on.
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    pub fn at(start: Timestamp) -> Self {
        ManualClock(watch::Sender::new(start))
    }

    pub fn advance(&self, duration: Duration) {
        self.0.send_modify(|now| *now += duration);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn elapsed(&self) -> Duration {
        self.now().duration_since(Timestamp::UNIX_EPOCH).try_into().unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        let mut time = self.0.subscribe();
        let until = self.now() + duration;
        Box::pin(async move {
            // The sender lives as long as `self`, so the wait can only end by the time being reached.
            let _ = time.wait_for(|now| *now >= until).await;
        })
    }
}

/// The same bytes for the same seed, for runs that must repeat themselves.
pub struct SeededRandom(Mutex<u64>);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        SeededRandom(Mutex::new(seed))
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64.
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = *state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}
