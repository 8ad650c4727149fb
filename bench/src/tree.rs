//! The whole tree of a hundred thousand snapshots, against nginx that serves the same bytes from a file.

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
    ])
}

fn count(node: &Value) -> u64 {
    1 + node["children"].as_array().into_iter().flatten().map(count).sum::<u64>()
}
