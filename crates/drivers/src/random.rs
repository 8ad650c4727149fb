//! The operating system's randomness.

use paddock_model::ports::Random;
use ring::rand::{SecureRandom, SystemRandom};

pub struct OsRandom(SystemRandom);

impl Default for OsRandom {
    fn default() -> Self {
        OsRandom(SystemRandom::new())
    }
}

impl Random for OsRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // An operating system without randomness cannot run anything that needs a key.
        self.0.fill(bytes).expect("the operating system gives randomness");
    }
}
