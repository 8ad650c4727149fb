//! Runs the loops: wakes them, backs off, and keeps account of how they fare.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use paddock_model::{Error, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Loop, Report, Retry, Trouble, lease};
use crate::Engine;

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a replica that has died keeps the others from taking over.
    pub lease: Duration,
    /// A run that takes longer is stuck, and the server says that it is not ready.
    pub stuck_after: Duration,
}

pub struct Runner {
    account: Arc<Account>,
    stop_loops: CancellationToken,
    loops: JoinSet<()>,
    give_lease_back: CancellationToken,
    lease: JoinSet<()>,
}

/// What `/-/readyz?verbose` and the metrics tell of the loops.
#[derive(Clone)]
pub struct Status(Arc<Account>);

struct Account {
    engine: Engine,
    settings: Settings,
    leading: watch::Sender<bool>,
    loops: Mutex<BTreeMap<&'static str, LoopStatus>>,
}

#[derive(Debug, Clone, Default)]
pub struct LoopStatus {
    pub running_since: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    pub failures: u32,
    pub stuck: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Settled,
    Changed(u64),
    Failed,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Settled => "settled",
            Outcome::Changed(_) => "changed",
            Outcome::Failed => "failed",
        }
    }
}

impl Runner {
    pub fn start(engine: &Engine, loops: &'static [Loop], settings: Settings) -> Runner {
        let account = Arc::new(Account {
            engine: engine.clone(),
            settings,
            leading: watch::Sender::new(false),
            loops: Mutex::new(loops.iter().map(|each| (each.name, LoopStatus::default())).collect()),
        });
        let (stop_loops, give_lease_back) = (CancellationToken::new(), CancellationToken::new());
        let (mut running, mut lease) = (JoinSet::new(), JoinSet::new());
        for each in loops {
            running.spawn(keep_running(account.clone(), *each, stop_loops.clone()));
        }
        if engine.devices.is_some() {
            running.spawn(super::emulators::follow(engine.clone(), stop_loops.clone()));
            running.spawn(super::logs::follow(engine.clone(), stop_loops.clone()));
            let leading = account.leading.subscribe();
            running.spawn(super::vehicles::follow(engine.clone(), leading, stop_loops.clone()));
        }
        lease.spawn(keep_lease(account.clone(), give_lease_back.clone()));
        Runner { account, stop_loops, loops: running, give_lease_back, lease }
    }

    pub fn status(&self) -> Status {
        Status(self.account.clone())
    }

    /// Lets every loop finish its run, within the grace, and only then gives the lease back.
    pub async fn stop(mut self, grace: Duration) {
        self.stop_loops.cancel();
        if let Some(vault) = self.account.engine.devices.as_ref().and_then(|devices| devices.vault.as_ref()) {
            vault.close();
        }
        let ended = async { while self.loops.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!("a loop did not end in time and is cut off; it goes on from what is recorded");
            self.loops.shutdown().await;
        }
        self.give_lease_back.cancel();
        let given_back = async { while self.lease.join_next().await.is_some() {} };
        // A database that does not answer: then the lease runs out by itself.
        let _ = tokio::time::timeout(Duration::from_secs(5), given_back).await;
    }
}

impl Status {
    /// Whether this replica is the one that runs the loops.
    pub fn is_leading(&self) -> bool {
        *self.0.leading.borrow()
    }

    pub fn loops(&self) -> BTreeMap<&'static str, LoopStatus> {
        let now = self.0.engine.now();
        let mut loops = self.0.loops().clone();
        for status in loops.values_mut() {
            status.stuck = status.running_since.is_some_and(|since| {
                Duration::try_from(now.duration_since(since))
                    .is_ok_and(|running| running > self.0.settings.stuck_after)
            });
        }
        loops
    }
}

impl Account {
    fn loops(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, LoopStatus>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, name: &'static str, change: impl FnOnce(&mut LoopStatus)) {
        change(self.loops().entry(name).or_default());
    }
}

async fn keep_lease(account: Arc<Account>, stop: CancellationToken) {
    let mut id = [0; 8];
    account.engine.random.fill(&mut id);
    let me = format!("{:016x}", u64::from_be_bytes(id));
    let settings = account.settings;
    lease::hold(&account.engine, &me, settings.lease, &account.leading, &stop).await;
}

async fn keep_running(account: Arc<Account>, each: Loop, stop: CancellationToken) {
    let engine = &account.engine;
    let mut leading = account.leading.subscribe();
    let mut changes = engine.store.watch(each.watches);
    loop {
        tokio::select! {
            outcome = leading.wait_for(|leads| *leads) => if outcome.is_err() { return },
            () = stop.cancelled() => return,
        }
        // Whatever changes from here on wakes the next run.
        changes.forget();
        let (pause, backs_off) = run_once(&account, each).await;
        tokio::select! {
            () = engine.clock.sleep(pause) => {}
            () = changes.changed(), if !backs_off => {}
            () = stop.cancelled() => return,
        }
    }
}

/// One run; returns how long to wait for the next, and whether a change must not cut that short.
async fn run_once(account: &Account, each: Loop) -> (Duration, bool) {
    let started = account.engine.now();
    account.note(each.name, |status| status.running_since = Some(started));
    let run = AssertUnwindSafe((each.run)(&account.engine)).catch_unwind();
    let result = run.await.unwrap_or_else(|_| {
        Err(Trouble { retry: Retry::Later, error: Error::internal("the loop panicked") })
    });
    let finished = account.engine.now();
    let outcome = match &result {
        Ok(Report { changed: 0, .. }) => Outcome::Settled,
        Ok(Report { changed, .. }) => Outcome::Changed(*changed),
        Err(_) => Outcome::Failed,
    };
    metrics::counter!("paddock_loop_runs_total", "loop" => each.name, "outcome" => outcome.name())
        .increment(1);
    metrics::gauge!("paddock_loop_last_run_timestamp_seconds", "loop" => each.name)
        .set(finished.as_microsecond() as f64 / 1e6);
    metrics::histogram!("paddock_loop_run_duration_seconds", "loop" => each.name)
        .record(finished.duration_since(started).as_secs_f64());

    let (mut pause, mut backs_off) = (each.every, false);
    if let Ok(Report { next: Some(next), .. }) = &result {
        // Due already counts as soon: a run that cannot finish its work must not spin.
        const SHORTEST: Duration = Duration::from_millis(50);
        pause =
            pause.min(Duration::try_from(next.duration_since(finished)).unwrap_or_default().max(SHORTEST));
    }
    account.note(each.name, |status| {
        status.running_since = None;
        status.finished_at = Some(finished);
        status.outcome = Some(outcome);
        status.failures = if outcome == Outcome::Failed { status.failures + 1 } else { 0 };
        if let Err(Trouble { retry, .. }) = &result {
            pause = super::delay(*retry, status.failures, each.every);
            backs_off = *retry != Retry::Never;
        }
    });
    if let Err(Trouble { retry, error }) = result {
        tracing::warn!(loop_name = each.name, ?retry, %error, "a loop had trouble; it tries again");
    }
    (pause, backs_off)
}
