//! The whole tree of a hundred thousand snapshots, against nginx that serves the same bytes from a file; and a branch of it, against
//! the same branch where there is nothing else.

use std::time::Instant;

use anyhow::{Result, ensure};
use paddock_model::permissions::tuples::{Holder, Thing, Tuple};
use serde_json::Value;

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::nginx::Nginx;
use crate::paddock::Paddock;
use crate::wrk::{Load, Requests};
use crate::{Bench, http, relation_rows, snapshot_rows};

const SNAPSHOTS: u64 = 100_000;
const CONNECTIONS: u32 = 4;
const PATH: &str = "/api/v1/snapshots/tree";
/// A snapshot and the ten that are derived from it, and a server that has no others.
const BRANCH: &str = "/api/v1/snapshots/tree?root=row-00000000&depth=2";
const FEW: u64 = 11;
const CHANGED: &str = "row-00000001";
/// Changes a round.
const CHANGES: usize = 20;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let paddock = filled(bench, "tree", SNAPSHOTS)?;
    let token = paddock.token()?;
    let tree = snapshot_rows::settled(&paddock)?;
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
    change(&paddock, &token, true)?;
    let begun = Instant::now();
    http::get(paddock.address, PATH, &token)?;
    let first = begun.elapsed().as_secs_f64() * 1e3;
    change(&paddock, &token, false)?;
    let few = filled(bench, "tree-few", FEW)?;
    snapshot_rows::settled(&few)?;
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

/// A server with so many snapshots, one of which its admin may change.
fn filled(bench: &Bench, name: &str, snapshots: u64) -> Result<Paddock> {
    let database = Paddock::start(bench, name)?.kill();
    snapshot_rows::fill(&database, snapshots)?;
    let system = Holder::One(Thing::new("system", "paddock"));
    let tuple = Tuple { object: Thing::new("snapshot", CHANGED), relation: "system".into(), holder: system };
    relation_rows::give(&database, std::iter::once(tuple))?;
    Paddock::start(bench, name)
}

/// Anything that changes has every tree read anew.
fn change(paddock: &Paddock, token: &str, promote: bool) -> Result<()> {
    let (act, body) = if promote { ("promote-root", r#"{"force":true}"#) } else { ("demote-root", "{}") };
    http::post(paddock.address, &format!("/api/v1/snapshots/{CHANGED}/{act}"), token, body)?;
    Ok(())
}

/// The median time of a branch that was not read since the last change, in microseconds.
fn after_a_change(paddock: &Paddock) -> Result<f64> {
    let token = paddock.token()?;
    let mut times = Vec::with_capacity(CHANGES);
    for number in 0..CHANGES {
        change(paddock, &token, number % 2 == 0)?;
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
