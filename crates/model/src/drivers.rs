//! The doors to devices, cars, disks, journals and backups, and what everyone behind them has in common: how it fails.

pub mod backup_repositories;
pub mod disk_pools;
pub mod emulator_hosts;
pub mod garages;
pub mod journals;

use std::fmt;

/// When another try may help; the loop obeys, a driver does not repeat anything by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Likely to pass: a busy host, a lost connection.
    Soon,
    /// Unlikely to pass by itself at once: a full pool, a missing file.
    Later,
    /// Not before something changes: an image that cannot boot here.
    Never,
}

#[derive(Debug)]
pub struct DriverError {
    pub retry: Retry,
    /// Stable and machine-readable: `no_space`, `image_missing`, `host_busy`, …
    pub code: &'static str,
    /// For people: what happened, and what to do.
    pub message: String,
    /// For the log only.
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type DriverResult<T> = Result<T, DriverError>;

impl DriverError {
    pub fn new(retry: Retry, code: &'static str, message: impl Into<String>) -> Self {
        DriverError { retry, code, message: message.into(), cause: None }
    }

    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        let mut cause = self.cause.as_deref().map(|cause| cause as &dyn std::error::Error);
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}
