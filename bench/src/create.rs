//! Durable creates by many writers, against SQLite committing one row at a time and against one fdatasync.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use rusqlite::Connection;

use crate::errand::Errand;
use crate::figures::{Goal, Pairs, Row};
use crate::flush::Flush;
use crate::paddock::Paddock;
use crate::wrk::{Load, Outcome, Requests};
use crate::{Bench, machine, sqlite, tenant_rows};

const GOAL_WRITERS: u32 = 64;
const OTHER_WRITERS: [u32; 3] = [1, 8, 256];
/// With as many writers as the goal has, some 3,000 creates a second.
const REST_MILLISECONDS: u64 = 20;

struct Contest<'a> {
    bench: &'a Bench,
    /// Of every party, the disk as a party included.
    flush: Flush,
    paddock: Paddock,
    peer: PathBuf,
    appended: PathBuf,
    acknowledged: Vec<Acknowledged>,
}

/// What one run of the load client was told.
struct Acknowledged {
    prefix: String,
    creates: u64,
    writers: u32,
}

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let kind = machine::file_system(&bench.folder)?;
    ensure!(
        !["tmpfs", "ramfs"].contains(&kind.as_str()),
        "{} is in memory ({kind}), where nothing is durable; choose another with --folder",
        bench.folder.display()
    );
    let mut rows = contest(bench, Flush::Slowed, &[])?;
    rows.extend(contest(bench, Flush::AsTheDisk, &OTHER_WRITERS)?);
    Ok(rows)
}

/// The rows that have a goal, and those of other numbers of writers.
fn contest(bench: &Bench, flush: Flush, other_writers: &[u32]) -> Result<Vec<Row>> {
    let mut contest = Contest::new(bench, flush)?;
    let mut rows = contest.saturate(GOAL_WRITERS, bench.seconds, Some(Goal::AtLeast(20.0)))?;
    rows.push(contest.at_ease()?);
    for writers in other_writers {
        rows.extend(contest.saturate(*writers, bench.short_seconds(), None)?);
    }
    let Contest { paddock, acknowledged, .. } = contest;
    check(&Connection::open(paddock.kill())?, &acknowledged)?;
    Ok(rows)
}

impl<'a> Contest<'a> {
    fn new(bench: &'a Bench, flush: Flush) -> Result<Self> {
        let name = format!("create-{flush:?}");
        let paddock = Paddock::start_with(bench, &name, flush)?;
        let beside = bench.folder(&format!("{name}-peers"))?;
        let (peer, appended) = (beside.join("peer.db"), beside.join("appended"));
        sqlite::create(&peer, &tenant_rows::schema(&paddock.database())?)?;
        Ok(Contest { bench, flush, paddock, peer, appended, acknowledged: Vec::new() })
    }

    /// Every writer creates again as soon as it is answered.
    fn saturate(&mut self, writers: u32, seconds: u64, goal: Option<Goal>) -> Result<Vec<Row>> {
        let (mut throughput, mut latency) = (Pairs::default(), Pairs::default());
        for _ in 0..self.bench.rounds {
            let peer = Errand::Commits { database: self.peer.clone(), seconds };
            let commits = peer.under(self.flush)?;
            let (ours, fdatasync) = self.create(writers, seconds, 0)?;
            throughput.push(ours.per_second, commits);
            latency.push(ours.p50_microseconds, fdatasync);
        }
        let suffix = self.flush.suffix();
        let caution = match self.flush {
            Flush::AsTheDisk => ": depends on the disk",
            Flush::Slowed => "",
        };
        let fdatasync = latency.peer().median();
        Ok(vec![
            Row {
                name: format!("create ÷ SQLite, {writers} at once{suffix}"),
                figures: throughput.ratios(),
                goal,
                note: format!("{}, fdatasync {fdatasync:.0} µs{caution}", throughput.note("/s")),
            },
            Row {
                name: format!("create p50 ÷ fdatasync, {writers} saturating{suffix}"),
                figures: latency.ratios(),
                goal: None,
                note: latency.note("µs"),
            },
        ])
    }

    /// Writers that rest in between: how long a create takes while the server has time for it.
    fn at_ease(&mut self) -> Result<Row> {
        let mut latency = Pairs::default();
        for _ in 0..self.bench.rounds {
            let (ours, fdatasync) = self.create(GOAL_WRITERS, self.bench.seconds, REST_MILLISECONDS)?;
            latency.push(ours.p50_microseconds, fdatasync);
        }
        Ok(Row {
            name: format!("create p50 ÷ fdatasync, {GOAL_WRITERS} at ease{}", self.flush.suffix()),
            figures: latency.ratios(),
            goal: Some(Goal::AtMost(2.0)),
            note: latency.note("µs"),
        })
    }

    /// Also tells the microseconds of one fdatasync: before and after, since a disk has moods.
    fn create(&mut self, writers: u32, seconds: u64, rest_milliseconds: u64) -> Result<(Outcome, f64)> {
        let before = self.fdatasync()?;
        let prefix = format!("run{}-", self.acknowledged.len());
        let outcome = Load {
            address: self.paddock.address,
            path: "/api/v1/tenants",
            token: &self.paddock.token()?,
            connections: writers,
            seconds,
            rest_milliseconds,
            requests: Requests::Creates { prefix: &prefix },
        }
        .run()?;
        let after = self.fdatasync()?;
        self.acknowledged.push(Acknowledged { prefix, creates: outcome.answers, writers });
        Ok((outcome, f64::midpoint(before, after)))
    }

    fn fdatasync(&self) -> Result<f64> {
        let time = Errand::Fdatasync { file: self.appended.clone() }.under(self.flush)?;
        // Where it may not trace, strace starts the program all the same.
        ensure!(
            time >= f64::from(self.flush.least_microseconds()),
            "strace slows no flush: one takes {time:.0} µs; is ptrace allowed?"
        );
        Ok(time)
    }
}

/// A figure counts only if every create that was acknowledged outlived the daemon, which was just killed.
fn check(database: &Connection, acknowledged: &[Acknowledged]) -> Result<()> {
    for Acknowledged { prefix, creates, writers } in acknowledged {
        let kept: i64 = database.query_row(
            "SELECT count(*) FROM tenants WHERE name GLOB ?1 || '*'",
            [prefix],
            |row| row.get(0),
        )?;
        let kept = u64::try_from(kept)?;
        ensure!(kept >= *creates, "{creates} creates {prefix}* were acknowledged, only {kept} are kept");
        // Each writer may have had one more under way when its time was over.
        ensure!(
            kept <= creates + u64::from(*writers),
            "{kept} tenants {prefix}* are kept, but only {creates} creates were acknowledged"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acknowledged_create_must_be_kept() {
        let database = Connection::open_in_memory().expect("a database");
        database
            .execute_batch(
                "CREATE TABLE tenants (name); INSERT INTO tenants VALUES ('a-1'), ('a-2'), ('b-1')",
            )
            .expect("three tenants");

        for (creates, writers, kept) in [(2, 1, true), (1, 1, true), (3, 1, false), (0, 1, false)] {
            let run = Acknowledged { prefix: "a-".to_owned(), creates, writers };
            assert_eq!(check(&database, &[run]).is_ok(), kept, "{creates} by {writers}");
        }
    }
}
