//! How long a request may take: as long as all may, unless its handler has found out that it may take longer.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Put with each request; a handler that takes it lifts the limit.
#[derive(Clone, Default)]
pub struct Patience(Arc<AtomicBool>);

impl Patience {
    /// From now on the handler itself sees to it that the request ends.
    pub fn lift(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// None when it took too long.
    pub async fn limit<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        match tokio::time::timeout(time, &mut work).await {
            Ok(done) => Some(done),
            Err(_) if self.0.load(Ordering::Relaxed) => Some(work.await),
            Err(_) => None,
        }
    }
}
