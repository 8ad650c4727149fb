//! Trouble by lot, and the same trouble again for the same seed.

use paddock_model::drivers::{DriverError, DriverResult, Retry};
use paddock_model::ports::{Random, SeededRandom};

/// How often something goes wrong: 0 is never, 1 is always.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FaultRates {
    /// A verb fails, and the next try may pass.
    pub soon: f64,
    /// A verb fails, and time is needed.
    pub later: f64,
    /// A device ends by itself some time after it was up.
    pub crash: f64,
    /// A device takes ten times as long to come up.
    pub slow_boot: f64,
}

pub struct Faults {
    random: SeededRandom,
    pub rates: FaultRates,
}

impl Faults {
    pub fn new(seed: u64, rates: FaultRates) -> Faults {
        Faults { random: SeededRandom::new(seed), rates }
    }

    /// Whether something that happens at this rate happens now.
    pub fn happens(&self, rate: f64) -> bool {
        rate > 0.0 && self.share() < rate
    }

    /// From 0 to less than 1.
    pub fn share(&self) -> f64 {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
    }

    /// Fails if the lot says so; to be called before anything is done.
    pub fn strike(&self, what: &str) -> DriverResult<()> {
        if self.happens(self.rates.soon) {
            return Err(DriverError::new(
                Retry::Soon,
                "host_busy",
                format!("could not {what}: a simulated fault"),
            ));
        }
        if self.happens(self.rates.later) {
            return Err(DriverError::new(
                Retry::Later,
                "host_down",
                format!("could not {what}: a simulated fault"),
            ));
        }
        Ok(())
    }
}
