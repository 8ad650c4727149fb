//! One page of a list, of few rows against one of many: the page must not feel what lies behind it.

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use crate::figures::{Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::wrk::{Load, Outcome, Requests};
use crate::{Bench, http, tenant_rows};

const FEW: u64 = 10;
const MANY: u64 = 100_000;
const CONNECTIONS: u32 = 4;
/// As many as there are in the small list, so that both answers are equally long.
const PAGE: &str = "/api/v1/tenants?limit=10";

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let few = filled(bench, "list-few", FEW)?;
    let many = filled(bench, "list-many", MANY)?;

    let (mut p99, mut median) = (Pairs::default(), Pairs::default());
    for _ in 0..bench.rounds {
        let (small, large) = (measure(bench, &few)?, measure(bench, &many)?);
        p99.push(large.p99_microseconds, small.p99_microseconds);
        median.push(large.p50_microseconds, small.p50_microseconds);
    }
    Ok(vec![
        Row {
            name: "list p99, 100,000 rows ÷ 10".to_owned(),
            figures: p99.ratios(),
            goal: Some(Goal::AtMost(1.5)),
            note: p99.note("µs"),
        },
        Row {
            name: "list p50, 100,000 rows ÷ 10".to_owned(),
            figures: median.ratios(),
            goal: None,
            note: median.note("µs"),
        },
    ])
}

fn measure(bench: &Bench, paddock: &Paddock) -> Result<Outcome> {
    Load {
        address: paddock.address,
        path: PAGE,
        token: &paddock.token()?,
        connections: CONNECTIONS,
        seconds: bench.seconds,
        rest_milliseconds: 1,
        requests: Requests::Gets,
    }
    .run()
}

/// A server with so many tenants; they are written while it is down, which takes a second instead of a minute.
fn filled(bench: &Bench, name: &str, tenants: u64) -> Result<Paddock> {
    let database = Paddock::start(bench, name)?.kill();
    let mut connection = Connection::open(database)?;
    let transaction = connection.transaction()?;
    for number in 0..tenants {
        tenant_rows::insert(&transaction, number)?;
    }
    transaction.commit()?;
    drop(connection);

    let paddock = Paddock::start(bench, name)?;
    let page = http::get(paddock.address, PAGE, &paddock.token()?)?;
    let page: serde_json::Value = serde_json::from_str(&page.body)?;
    let items = page["items"].as_array().context("a page has items")?;
    ensure!(items.len() == 10, "a page has {} items instead of 10", items.len());
    let has_more = !page["nextCursor"].is_null();
    ensure!(
        has_more == (tenants > FEW),
        "the list of {tenants} tenants says nextCursor {}",
        page["nextCursor"]
    );
    Ok(paddock)
}
