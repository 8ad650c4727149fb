//! Reading one object as an authorized caller, against nginx with the same bytes and against nginx as a proxy.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::figures::{Goal, Pairs, Row};
use crate::nginx::Nginx;
use crate::paddock::Paddock;
use crate::wrk::{Load, Requests};
use crate::{Bench, http};

const GOAL_CONNECTIONS: u32 = 32;
const OTHER_CONNECTIONS: [u32; 2] = [1, 256];

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let paddock = Paddock::start(bench, "read")?;
    let path = paddock.create_tenant("bench-read")?;
    let token = paddock.token()?;
    let answer = http::get(paddock.address, &path, &token)?;
    let origin = Nginx::answering(bench, &answer)?;
    let proxy = Nginx::in_front_of(bench, &origin)?;
    for nginx in [&origin, &proxy] {
        let same = http::get(nginx.address, &path, &token)?;
        ensure!(same.body == answer.body, "nginx answers other bytes than Paddock");
        ensure!(same.content_type == answer.content_type, "nginx answers {}", same.content_type);
    }

    let mut rows = Vec::new();
    for connections in std::iter::once(GOAL_CONNECTIONS).chain(OTHER_CONNECTIONS) {
        let has_goal = connections == GOAL_CONNECTIONS;
        let seconds = if has_goal { bench.seconds } else { bench.short_seconds() };
        let (mut direct, mut proxied) = (Pairs::default(), Pairs::default());
        for _ in 0..bench.rounds {
            // All three get the same request: nginx is sent the token too.
            let token = paddock.token()?;
            let per_second = |address: SocketAddr| -> Result<f64> {
                let load = Load {
                    address,
                    path: &path,
                    token: &token,
                    connections,
                    seconds,
                    rest_milliseconds: 0,
                    requests: Requests::Gets,
                };
                Ok(load.run()?.per_second)
            };
            let ours = per_second(paddock.address)?;
            direct.push(ours, per_second(origin.address)?);
            proxied.push(ours, per_second(proxy.address)?);
        }
        for (peer, pairs, least) in [("nginx", direct, 0.5), ("nginx as proxy", proxied, 2.0)] {
            rows.push(Row {
                name: format!("read ÷ {peer}, {connections} at once"),
                figures: pairs.ratios(),
                goal: has_goal.then_some(Goal::AtLeast(least)),
                note: pairs.note("/s"),
            });
        }
    }
    Ok(rows)
}
