//! The disk as a party: what one small append costs until it is durable.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::figures::Figures;

/// One page of a database.
const APPEND: [u8; 4096] = [0x5a; 4096];
const SAMPLES: usize = 40;
const LONGEST: Duration = Duration::from_millis(500);

/// The median time of an append and its fdatasync, in microseconds.
pub fn fdatasync_microseconds(path: &Path) -> Result<f64> {
    let mut file = File::options().create(true).append(true).open(path)?;
    let begun = Instant::now();
    let mut samples = Vec::new();
    while samples.len() < SAMPLES && (samples.is_empty() || begun.elapsed() < LONGEST) {
        let one = Instant::now();
        file.write_all(&APPEND)?;
        file.sync_data()?;
        samples.push(one.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Figures::of(samples).median())
}
