//! The lease: which replica runs the loops.

use std::time::Duration;

use paddock_store::leases::{self, Lease};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Engine;

const NAME: &str = "loops";
const WATCHES: &[&str] = &["leases"];

/// Holds the lease while it can; `leading` says whether it does. Returns when stopped, with the lease given back.
pub(super) async fn hold(
    engine: &Engine,
    me: &str,
    length: Duration,
    leading: &watch::Sender<bool>,
    stop: &CancellationToken,
) {
    if !engine.store.is_shared() {
        // The data folder's lock has picked this process already; an idle machine writes nothing.
        leading.send_replace(true);
        stop.cancelled().await;
        leading.send_replace(false);
        return;
    }
    let mut candidate = Candidate { me, length, renewed_at: None, seen: None };
    let mut released = engine.store.watch(WATCHES);
    while !stop.is_cancelled() {
        released.forget();
        let leads = candidate.try_once(engine).await;
        if leading.send_replace(leads) != leads {
            tracing::info!(leads, "the lease that picks who runs the loops has changed hands");
        }
        tokio::select! {
            () = engine.clock.sleep(length / 3) => {}
            () = released.changed(), if !leads => {}
            () = stop.cancelled() => {}
        }
    }
    leading.send_replace(false);
    if let Err(error) = candidate.give_back(engine).await {
        tracing::warn!(%error, "could not give the lease back; another replica takes over when it has run out");
    }
}

struct Candidate<'a> {
    me: &'a str,
    length: Duration,
    /// By the clock that never jumps, like every time here that is compared with another.
    renewed_at: Option<Duration>,
    /// The other's lease as it was first seen in its present state, and when.
    seen: Option<(Lease, Duration)>,
}

impl Candidate<'_> {
    /// Whether this replica leads now.
    async fn try_once(&mut self, engine: &Engine) -> bool {
        let started = engine.clock.elapsed();
        // A database that does not answer must not keep us from noticing that our time is over.
        let patience = engine.clock.sleep(self.length / 3);
        let claimed = tokio::select! {
            claimed = self.claim(engine) => claimed.map_err(|error| error.to_string()),
            () = patience => Err("the database took too long".to_owned()),
        };
        match claimed {
            Ok(true) => {
                // From when it was asked for: others count from when it was granted, which is later.
                self.renewed_at = Some(started);
                true
            }
            Ok(false) => {
                self.renewed_at = None;
                false
            }
            Err(error) => {
                tracing::warn!(%error, "could not renew the lease");
                // Others may take over once they have seen it stand still for its length: stop before that.
                let now = engine.clock.elapsed();
                self.renewed_at.is_some_and(|at| now.saturating_sub(at) < self.length * 2 / 3)
            }
        }
    }

    async fn claim(&mut self, engine: &Engine) -> paddock_store::Result<bool> {
        let now = engine.now();
        let mut tx = engine.store.begin().await?;
        let claimed = match leases::find(&mut tx, NAME).await? {
            None => leases::insert(&mut tx, NAME, self.me, now).await?,
            Some(lease) if lease.holder == self.me || self.has_run_out(&lease, engine.clock.elapsed()) => {
                leases::take(&mut tx, NAME, self.me, &lease, now).await?
            }
            Some(_) => return Ok(false),
        };
        tx.commit().await?;
        Ok(claimed)
    }

    fn has_run_out(&mut self, lease: &Lease, now: Duration) -> bool {
        match &self.seen {
            Some((seen, since)) if seen == lease => now.saturating_sub(*since) >= self.length,
            _ => {
                self.seen = Some((lease.clone(), now));
                false
            }
        }
    }

    async fn give_back(&self, engine: &Engine) -> paddock_store::Result<()> {
        let mut tx = engine.store.begin().await?;
        leases::release(&mut tx, NAME, self.me).await?;
        tx.commit().await
    }
}
