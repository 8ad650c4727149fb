//! One page of a list, of few rows against one of many: the page must not feel what lies behind it.

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

use crate::figures::{Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::wrk::{Load, Outcome, Requests};
use crate::{Bench, http, snapshot_rows, tenant_rows};

const FEW: u64 = 10;
const MANY: u64 = 100_000;
const CONNECTIONS: u32 = 4;
/// As many as there are in the small list, so that both answers are equally long.
const PAGE: &str = "/api/v1/tenants?limit=10";
/// Snapshots cost more to describe than tenants do: what they take, and what was derived from them.
const SNAPSHOTS_PAGE: &str = "/api/v1/snapshots?limit=50";
const FEW_SNAPSHOTS: u64 = 50;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let few = filled(bench, "list-few", FEW)?;
    let many = filled(bench, "list-many", MANY)?;
    let mut rows = compare(bench, [&few, &many], PAGE, "list")?;
    drop((few, many));
    let few = filled_with_snapshots(bench, "list-few-snapshots", FEW_SNAPSHOTS)?;
    let many = filled_with_snapshots(bench, "list-many-snapshots", MANY)?;
    rows.extend(compare(bench, [&few, &many], SNAPSHOTS_PAGE, "list of snapshots")?);
    Ok(rows)
}

fn compare(bench: &Bench, [few, many]: [&Paddock; 2], page: &str, name: &str) -> Result<Vec<Row>> {
    let behind = if page == PAGE { FEW } else { FEW_SNAPSHOTS };
    let (mut p99, mut median) = (Pairs::default(), Pairs::default());
    for _ in 0..bench.rounds {
        let (small, large) = (measure(bench, few, page)?, measure(bench, many, page)?);
        p99.push(large.p99_microseconds, small.p99_microseconds);
        median.push(large.p50_microseconds, small.p50_microseconds);
    }
    Ok(vec![
        Row {
            name: format!("{name} p99, 100,000 rows ÷ {behind}"),
            figures: p99.ratios(),
            goal: Some(Goal::AtMost(1.5)),
            note: p99.note("µs"),
        },
        Row {
            name: format!("{name} p50, 100,000 rows ÷ {behind}"),
            figures: median.ratios(),
            goal: None,
            note: median.note("µs"),
        },
    ])
}

fn measure(bench: &Bench, paddock: &Paddock, page: &str) -> Result<Outcome> {
    Load {
        address: paddock.address,
        path: page,
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
    check_page(&paddock, PAGE, FEW, tenants)?;
    Ok(paddock)
}

fn filled_with_snapshots(bench: &Bench, name: &str, count: u64) -> Result<Paddock> {
    let database = Paddock::start(bench, name)?.kill();
    snapshot_rows::fill(&database, count)?;
    let paddock = Paddock::start(bench, name)?;
    snapshot_rows::settled(&paddock)?;
    check_page(&paddock, SNAPSHOTS_PAGE, FEW_SNAPSHOTS, count)?;
    Ok(paddock)
}

fn check_page(paddock: &Paddock, path: &str, wanted: u64, rows: u64) -> Result<()> {
    let page = http::get(paddock.address, path, &paddock.token()?)?;
    let page: serde_json::Value = serde_json::from_str(&page.body)?;
    let items = page["items"].as_array().context("a page has items")?;
    ensure!(items.len() as u64 == wanted, "a page has {} items instead of {wanted}", items.len());
    let has_more = !page["nextCursor"].is_null();
    ensure!(has_more == (rows > wanted), "{path} of {rows} says nextCursor {}", page["nextCursor"]);
    Ok(())
}
