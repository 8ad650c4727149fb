//! Memory of a server that nobody uses, and of one that was just used.

use std::time::Duration;

use anyhow::Result;

use crate::Bench;
use crate::figures::{Figures, Goal, Row};
use crate::paddock::Paddock;
use crate::wrk::{Load, Requests};

const REST: Duration = Duration::from_secs(3);
/// More servers than this add time and no knowledge.
const SERVERS: usize = 5;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let servers: Vec<Paddock> = (0..bench.rounds.min(SERVERS))
        .map(|number| Paddock::start(bench, &format!("idle-{number}")))
        .collect::<Result<_>>()?;
    std::thread::sleep(REST);
    let idle: Vec<f64> = servers.iter().map(Paddock::resident_megabytes).collect::<Result<_>>()?;
    let used: Vec<f64> =
        servers.iter().map(|paddock| use_and_weigh(bench, paddock)).collect::<Result<_>>()?;
    Ok(vec![
        Row {
            name: "idle memory, MB".to_owned(),
            figures: Figures::of(idle),
            goal: Some(Goal::AtMost(40.0)),
            note: "resident, 3 s after the start".to_owned(),
        },
        Row {
            name: "memory after reads, MB".to_owned(),
            figures: Figures::of(used),
            goal: None,
            note: "resident, after one round of read with 32 connections".to_owned(),
        },
    ])
}

fn use_and_weigh(bench: &Bench, paddock: &Paddock) -> Result<f64> {
    Load {
        address: paddock.address,
        path: &paddock.create_tenant("bench-idle")?,
        token: &paddock.token()?,
        connections: 32,
        seconds: bench.seconds,
        rest_milliseconds: 0,
        requests: Requests::Gets,
    }
    .run()?;
    paddock.resident_megabytes()
}
