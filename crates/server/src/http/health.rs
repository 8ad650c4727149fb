//! Whether this server is alive and ready, and if not, why.

use std::fmt::Write;
use std::sync::Arc;

use paddock_engine::Engine;
use paddock_engine::reconcile::{LoopStatus, Status};
use tokio_util::sync::CancellationToken;

use crate::auth::issuers::{Issuer, Issuers};

pub struct Health {
    engine: Engine,
    loops: Status,
    issuers: Arc<Issuers>,
    draining: CancellationToken,
}

/// One thing that must hold for the server to be ready.
struct Check {
    name: String,
    /// What is wrong.
    trouble: Option<String>,
    note: String,
    /// Whether the note tells of something that operators should look at, although the server is ready.
    dubious: bool,
}

impl Health {
    pub fn new(engine: Engine, loops: Status, issuers: Arc<Issuers>, draining: CancellationToken) -> Self {
        Health { engine, loops, issuers, draining }
    }

    /// Whether the server is ready, and every check in words.
    pub async fn report(&self) -> (bool, String) {
        let mut checks = vec![self.serving(), self.database().await];
        checks.push(Check {
            name: "lease".to_owned(),
            trouble: None,
            note: if self.loops.is_leading() {
                "this replica runs the loops"
            } else {
                "another replica runs the loops"
            }
            .to_owned(),
            dubious: false,
        });
        checks.extend(self.loops.loops().into_iter().map(|(name, status)| of_loop(name, &status)));
        checks.extend(self.issuers.iter().map(|issuer| of_issuer(issuer)));
        let ready = checks.iter().all(|check| check.trouble.is_none());
        let mut text = String::new();
        for Check { name, trouble, note, dubious } in checks {
            let sign = if dubious { '!' } else { '+' };
            let (sign, words) = trouble.map_or((sign, note), |trouble| ('-', trouble));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "[{sign}] {name}: {words}");
        }
        text.push_str(if ready { "ok\n" } else { "not ready\n" });
        (ready, text)
    }

    /// Figures that are read rather than counted.
    pub fn write_metrics(&self) {
        metrics::gauge!("paddock_leader").set(f64::from(u8::from(self.loops.is_leading())));
        for (name, status) in self.loops.loops() {
            metrics::gauge!("paddock_loop_stuck", "loop" => name).set(f64::from(u8::from(status.stuck)));
        }
    }

    fn serving(&self) -> Check {
        let draining = self.draining.is_cancelled();
        Check {
            name: "serving".to_owned(),
            trouble: draining.then(|| "shutting down".to_owned()),
            note: "ok".to_owned(),
            dubious: false,
        }
    }

    async fn database(&self) -> Check {
        let trouble = match self.engine.ping().await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "the database does not answer the readiness check");
                Some("does not answer".to_owned())
            }
        };
        Check { name: "database".to_owned(), trouble, note: "ok".to_owned(), dubious: false }
    }
}

fn of_loop(name: &str, status: &LoopStatus) -> Check {
    let since =
        |at: Option<paddock_model::Timestamp>| at.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let note = match status.outcome {
        Some(outcome) => format!(
            "{} at {}, {} failures in a row",
            outcome.name(),
            since(status.finished_at),
            status.failures
        ),
        None => "has not run here".to_owned(),
    };
    Check {
        name: format!("loop {name}"),
        trouble: status.stuck.then(|| format!("stuck since {}", since(status.running_since))),
        note,
        dubious: false,
    }
}

/// Others than its own people are served without it, so the server stays ready.
fn of_issuer(issuer: &Issuer) -> Check {
    let health = issuer.health();
    let dubious = health.is_err();
    let note = health.unwrap_or_else(|trouble| trouble);
    Check { name: format!("issuer {}", issuer.settings.id), trouble: None, note, dubious }
}
