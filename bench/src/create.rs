//! Durable creates by many writers, against SQLite committing one row at a time and against one fdatasync.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use rusqlite::Connection;

use crate::figures::{Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::sqlite::Sqlite;
use crate::wrk::{Load, Outcome, Requests};
use crate::{Bench, disk, machine, tenant_rows};

const GOAL_WRITERS: u32 = 64;
const OTHER_WRITERS: [u32; 3] = [1, 8, 256];
/// With as many writers as the goal has, some 3,000 creates a second.
const REST_MILLISECONDS: u64 = 20;

struct Contest<'a> {
    bench: &'a Bench,
    paddock: Paddock,
    sqlite: Sqlite,
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
    let paddock = Paddock::start(bench, "create")?;
    let beside = bench.folder("create-peers")?;
    let schema = tenant_rows::schema(&paddock.database())?;
    let sqlite = Sqlite::create(&beside.join("peer.db"), &schema)?;
    let appended = beside.join("appended");
    let mut contest = Contest { bench, paddock, sqlite, appended, acknowledged: Vec::new() };

    let mut rows = contest.saturate(GOAL_WRITERS, bench.seconds, Some(Goal::AtLeast(20.0)))?;
    rows.push(contest.at_ease()?);
    for writers in OTHER_WRITERS {
        rows.extend(contest.saturate(writers, bench.short_seconds(), None)?);
    }
    let Contest { paddock, acknowledged, .. } = contest;
    check(&Connection::open(paddock.kill())?, &acknowledged)?;
    Ok(rows)
}

impl Contest<'_> {
    /// Every writer creates again as soon as it is answered.
    fn saturate(&mut self, writers: u32, seconds: u64, goal: Option<Goal>) -> Result<Vec<Row>> {
        let (mut throughput, mut latency) = (Pairs::default(), Pairs::default());
        for _ in 0..self.bench.rounds {
            let commits = self.sqlite.commits_per_second(seconds)?;
            let (ours, fdatasync) = self.create(writers, seconds, 0)?;
            throughput.push(ours.per_second, commits);
            latency.push(ours.p50_microseconds, fdatasync);
        }
        Ok(vec![
            Row {
                name: format!("create ÷ SQLite, {writers} at once"),
                figures: throughput.ratios(),
                goal,
                note: throughput.note("/s"),
            },
            Row {
                name: format!("create p50 ÷ fdatasync, {writers} saturating"),
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
            name: format!("create p50 ÷ fdatasync, {GOAL_WRITERS} at ease"),
            figures: latency.ratios(),
            goal: Some(Goal::AtMost(2.0)),
            note: latency.note("µs"),
        })
    }

    /// Also tells the microseconds of one fdatasync: before and after, since a disk has moods.
    fn create(&mut self, writers: u32, seconds: u64, rest_milliseconds: u64) -> Result<(Outcome, f64)> {
        let before = disk::fdatasync_microseconds(&self.appended)?;
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
        let after = disk::fdatasync_microseconds(&self.appended)?;
        self.acknowledged.push(Acknowledged { prefix, creates: outcome.answers, writers });
        Ok((outcome, f64::midpoint(before, after)))
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
