//! A drive on its way back into a car.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddock_model::ports::Clock;
use paddock_model::vehicles::{AreaId, PropertyStatus};
use tokio_util::sync::CancellationToken;

use super::lock;
use super::shelf::{Line, Progress, Shelf};
use crate::catalogue::Catalogue;
use crate::values::{self, Key, Raw};
use crate::vehicle::Vehicle;

/// How often a replay writes down how far it has come.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// A trace that repeats itself takes at least so long.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
/// How many events go into the car at once.
const MOST_AT_ONCE: usize = 1024;

pub struct Running {
    pub progress: Arc<Mutex<Progress>>,
    pub stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn event(catalogue: &Catalogue, line: &Line) -> Result<(Key, Raw, PropertyStatus), String> {
    let property = &line.property;
    let id = catalogue.find(property);
    let entry = id.and_then(|id| Some((id, catalogue.entry(id)?)));
    let (id, entry) = entry.ok_or_else(|| format!("this car has no property {property}"))?;
    if entry.area(AreaId(line.area)).is_none() {
        return Err(format!("{property} has no area {:#x}", line.area));
    }
    let raw =
        values::from_json(entry.kind, &line.value).map_err(|problem| format!("{property} {problem}"))?;
    let raw = values::shaped(entry.kind, &entry.config.config_array, raw);
    Ok(((id, AreaId(line.area)), raw.map_err(|problem| format!("{property} {problem}"))?, line.status))
}

/// A replay on its way.
pub struct Run {
    pub shelf: Shelf,
    pub catalogue: Arc<Catalogue>,
    pub clock: Arc<dyn Clock>,
    /// A car that is gone needs no replay.
    pub vehicle: std::sync::Weak<Vehicle>,
    pub progress: Arc<Mutex<Progress>>,
}

impl Run {
    pub async fn until_it_ends(self) {
        let problem = self.rounds().await.err();
        let mut progress = lock(&self.progress);
        progress.ended_at = Some(self.clock.now());
        if problem.is_some() {
            progress.problem = problem;
        }
        if let Err(error) = self.shelf.mark(&progress) {
            tracing::warn!(%error, "the end of a replay could not be written down");
        }
    }

    async fn rounds(&self) -> Result<(), String> {
        loop {
            let began = self.clock.elapsed();
            self.round().await?;
            let mut progress = lock(&self.progress).clone();
            if !progress.repeat {
                return Ok(());
            }
            let rest = SHORTEST_ROUND.saturating_sub(self.clock.elapsed().saturating_sub(began));
            self.clock.sleep(rest).await;
            progress.events_done = 0;
            *lock(&self.progress) = progress;
        }
    }

    /// From where it is to the end of the trace.
    async fn round(&self) -> Result<(), String> {
        let (trace, speed, skip) = {
            let progress = lock(&self.progress);
            (progress.trace, progress.speed, usize::try_from(progress.events_done).unwrap_or(0))
        };
        let file = File::open(self.shelf.lines(trace)).map_err(|_| "the trace is gone".to_owned())?;
        let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
        let events = lines
            .filter(|line| !line.trim().is_empty())
            .map_while(|line| serde_json::from_str::<Line>(&line).ok());
        let mut events = events.skip(skip).peekable();
        let began = self.clock.elapsed();
        // What comes first comes at once, or when it came if this is the beginning.
        let origin = if skip == 0 { 0 } else { events.peek().map_or(0, |first| first.at_ms) };
        let mut marked = began;
        while let Some(first) = events.next() {
            let due = began + Duration::from_secs_f64((first.at_ms - origin).max(0) as f64 / 1000.0 / speed);
            self.clock.sleep(due.saturating_sub(self.clock.elapsed())).await;
            let at_ms = first.at_ms;
            let mut together = vec![first];
            while together.len() < MOST_AT_ONCE
                && let Some(next) = events.next_if(|next| next.at_ms <= at_ms)
            {
                together.push(next);
            }
            self.tell(&together)?;
            let now = self.clock.elapsed();
            if now.saturating_sub(marked) >= MARK_EVERY {
                marked = now;
                let progress = lock(&self.progress);
                if let Err(error) = self.shelf.mark(&progress) {
                    tracing::warn!(%error, "how far a replay has come could not be written down");
                }
            }
        }
        Ok(())
    }

    fn tell(&self, lines: &[Line]) -> Result<(), String> {
        let Some(vehicle) = self.vehicle.upgrade() else { return Err("the car is gone".to_owned()) };
        let (mut refused, mut wanted) = (Vec::new(), Vec::new());
        for line in lines {
            match event(&self.catalogue, line) {
                Ok((key, raw, status)) => wanted.push((key, raw, status)),
                Err(problem) => refused.push(problem),
            }
        }
        refused
            .extend(vehicle.set(wanted).into_iter().filter_map(Result::err).map(|refusal| refusal.message));
        let mut progress = lock(&self.progress);
        progress.events_done += lines.len() as i64;
        if let Some(first) = refused.into_iter().next()
            && progress.problem.is_none()
        {
            progress.problem = Some(format!("not everything was taken by the car; the first: {first}"));
        }
        Ok(())
    }
}
