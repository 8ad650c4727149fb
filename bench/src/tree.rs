//! The whole tree of a hundred thousand snapshots, against nginx that serves the same bytes from a file; and a branch of it, against
//! the same branch where there is nothing else.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::nginx::Nginx;
use crate::paddock::Paddock;
use crate::wrk::{Load, Requests};
use crate::{Bench, http, snapshot_rows};

const SNAPSHOTS: u64 = 100_000;
const CONNECTIONS: u32 = 4;
const PATH: &str = "/api/v1/snapshots/tree";
/// A snapshot and the ten that are derived from it, and a server that has no others.
const BRANCH: &str = "/api/v1/snapshots/tree?root=row-00000000&depth=2";
const FEW: u64 = 11;
/// Anything that changes has every tree read anew.
const CHANGE: &str = "/api/v1/snapshots/row-00000001";
/// Changes a round.
const CHANGES: usize = 20;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let database = Paddock::start(bench, "tree")?.kill();
    snapshot_rows::fill(&database, SNAPSHOTS)?;
    let paddock = Paddock::start(bench, "tree")?;
    let token = paddock.token()?;
    let begun = Instant::now();
    let tree = http::get(paddock.address, PATH, &token)?;
    let first = begun.elapsed().as_secs_f64() * 1e3;
    let drawn: Value = serde_json::from_str(&tree.body)?;
    let drawn: u64 = drawn["roots"].as_array().into_iter().flatten().map(count).sum();
    ensure!(drawn == SNAPSHOTS, "the tree has {drawn} snapshots");
    let nginx = Nginx::serving(bench, "tree.json", &tree)?;

    let mut throughput = Pairs::default();
    let megabytes = tree.body.len() as f64 / 1e6;
    for _ in 0..bench.rounds {
        let load = |address, path| {
            Load {
                address,
                path,
                token: &token,
                connections: CONNECTIONS,
                seconds: bench.seconds,
                rest_milliseconds: 0,
                requests: Requests::Gets,
            }
            .run()
        };
        let (ours, peer) = (load(paddock.address, PATH)?, load(nginx.address, "/tree.json")?);
        throughput.push(ours.per_second * megabytes, peer.per_second * megabytes);
    }
    let few = branch_alone(bench)?;
    let (mut anew, mut again) = (Pairs::default(), Pairs::default());
    for _ in 0..bench.rounds {
        anew.push(after_a_change(&paddock)?, after_a_change(&few)?);
        let p99 = |paddock: &Paddock| {
            let token = paddock.token()?;
            let load = Load {
                address: paddock.address,
                path: BRANCH,
                token: &token,
                connections: CONNECTIONS,
                seconds: bench.short_seconds(),
                rest_milliseconds: 1,
                requests: Requests::Gets,
            };
            anyhow::Ok(load.run()?.p99_microseconds)
        };
        again.push(p99(&paddock)?, p99(&few)?);
    }
    Ok(vec![
        Row {
            name: "tree of 100,000 ÷ nginx, the same bytes".to_owned(),
            figures: throughput.ratios(),
            goal: Some(Goal::AtLeast(0.4)),
            note: throughput.note("MB/s"),
        },
        Row {
            name: "tree of 100,000, the first after a change, ms".to_owned(),
            figures: Figures::of([first]),
            goal: None,
            note: format!("{megabytes:.1} MB"),
        },
        Row {
            name: format!("branch of {FEW} after a change, of 100,000 ÷ alone"),
            figures: anew.ratios(),
            goal: Some(Goal::AtMost(1.5)),
            note: anew.note("µs"),
        },
        Row {
            name: format!("branch of {FEW} p99, of 100,000 ÷ alone"),
            figures: again.ratios(),
            goal: None,
            note: again.note("µs"),
        },
    ])
}

/// A server with one branch and nothing else.
fn branch_alone(bench: &Bench) -> Result<Paddock> {
    let database = Paddock::start(bench, "tree-few")?.kill();
    snapshot_rows::fill(&database, FEW)?;
    Paddock::start(bench, "tree-few")
}

/// The median time of a branch that was not read since the last change, in microseconds.
fn after_a_change(paddock: &Paddock) -> Result<f64> {
    let token = paddock.token()?;
    let mut times = Vec::with_capacity(CHANGES);
    for number in 0..CHANGES {
        let change = if number % 2 == 0 { "promote-root" } else { "demote-root" };
        let body = if number % 2 == 0 { r#"{"force":true}"# } else { "{}" };
        http::post(paddock.address, &format!("{CHANGE}/{change}"), &token, body)?;
        let begun = Instant::now();
        let branch = http::get(paddock.address, BRANCH, &token)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        let branch: Value = serde_json::from_str(&branch.body)?;
        let drawn: u64 = branch["roots"].as_array().into_iter().flatten().map(count).sum();
        ensure!(drawn == FEW, "the branch has {drawn} snapshots");
    }
    Ok(Figures::of(times).median())
}

fn count(node: &Value) -> u64 {
    1 + node["children"].as_array().into_iter().flatten().map(count).sum::<u64>()
}
