//! Rows as Paddock keeps snapshots, written without Paddock while it is down, to fill it quickly.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, params};

use crate::http;
use crate::paddock::Paddock;

/// How long the server may take to look at all of them once.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is derived from one snapshot.
const CHILDREN: u64 = 10;

/// Put aside, as a layer is whose bytes are not there: no loop looks for them, and they show like any others.
const LAYER: &str = "
    INSERT INTO layers (id, parent, state, source, virtual_bytes, allocated_bytes, digest, created_at, refs, depth, reach_bytes)
    VALUES (?1, ?2, 'quarantined', NULL, 8589934592, 1048576, ?3, ?4, ?5, ?6, ?6 * 1048576)";

const SNAPSHOT: &str = r#"
    INSERT INTO snapshots (name, id, tenant, parent, layer, state, problems, image, device_type, android_version, rooted_at, rooted_by,
        origin, labels, created_by, created_at, updated_at, last_used_at, use_count, generation, trust, consistency)
    VALUES (?1, ?2, NULL, ?3, ?2, 'ready', '[]', ?5, 'phone', '14', NULL, NULL,
        '{"kind":"import","file":"phone.qcow2"}', '{"team":"maps"}', NULL, ?4, ?4, ?4, 3, 1, 'internal', 'filesystem')"#;

const IMAGE: &str = r#"{"name":"bench","device_type":"phone","android_version":"14","abi":"x86_64","memory_bytes":2147483648,
    "cpus":2,"capabilities":[],"disk":"/phone.qcow2"}"#;

const OF_EVERYONE: &str = "
    INSERT INTO snapshot_children (snapshot, tenant, children) VALUES (?1, ?2, ?3)";

/// So many, each on a layer of its own; ten are derived from each, for as long as there are any.
pub fn fill(database: &std::path::Path, count: u64) -> Result<()> {
    let mut connection = Connection::open(database)?;
    let transaction = connection.transaction()?;
    for number in 0..count {
        insert(&transaction, number, count).context("insert a snapshot; has its table changed?")?;
    }
    Ok(transaction.commit()?)
}

/// Waits until the loops that look at all of them after the start have written down what they think of each: until then snapshots change under the
/// eyes of whoever reads them. Returns the tree of all, which is remembered by then.
pub fn settled(paddock: &Paddock) -> Result<http::Answer> {
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let tree = http::get(paddock.address, "/api/v1/snapshots/tree", &paddock.token()?)?;
        let took = asked.elapsed();
        slowest = slowest.max(took);
        let scored = !tree.body.contains(r#""retentionScore":null"#);
        // A tree that is put together takes many times as long as one that is remembered; a small one takes no time at all.
        if scored && (took < slowest / 4 || slowest < Duration::from_millis(100)) {
            return Ok(tree);
        }
        ensure!(begun.elapsed() < PATIENCE, "the snapshots still change after {PATIENCE:?}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn insert(connection: &Connection, number: u64, count: u64) -> Result<()> {
    let time = 1_770_000_000_000_000 + i64::try_from(number)?;
    let parent = (number > 0).then(|| (number - 1) / CHILDREN);
    let children = count.saturating_sub(number * CHILDREN + 1).min(CHILDREN);
    let depth =
        std::iter::successors(Some(number), |&number| (number > 0).then(|| (number - 1) / CHILDREN)).count();
    connection.prepare_cached(LAYER)?.execute(params![
        id(number),
        parent.map(id),
        format!("{number:064x}"),
        time,
        1 + i64::try_from(children)?,
        i64::try_from(depth)?
    ])?;
    let snapshot = params![name(number), id(number), parent.map(name), time, IMAGE];
    connection.prepare_cached(SNAPSHOT)?.execute(snapshot)?;
    if children > 0 {
        // The platform's own have one sum, under the nil tenant.
        let sum = params![name(number), [0u8; 16], i64::try_from(children)?];
        connection.prepare_cached(OF_EVERYONE)?.execute(sum)?;
    }
    Ok(())
}

fn name(number: u64) -> String {
    format!("row-{number:08}")
}

fn id(number: u64) -> [u8; 16] {
    (0x0190_0000_0000_7000_8000_0000_0000_0000_u128 + u128::from(number)).to_be_bytes()
}
