//! Optimistic concurrency: which version of a row a caller expects to change.

use crate::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    Any,
    OneOf(Vec<i64>),
}

impl Expected {
    /// Refuses when the caller has not seen this generation.
    pub fn require(&self, current: i64) -> Result<()> {
        match self {
            Expected::OneOf(generations) if !generations.contains(&current) => Err(Error::stale()),
            _ => Ok(()),
        }
    }
}
