//! Emulators and snapshots by the hundred thousand: what one more costs must not feel how many there are.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::{Bench, http};

const FEW: u64 = 10;
const MANY: u64 = 100_000;
/// Requests of a kind in one measurement.
const REQUESTS: usize = 100;
/// So many emulators are asked for by one request, when they are only to be there.
const TOGETHER: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = snapshots(bench)?;
    rows.extend(emulators(bench)?);
    Ok(rows)
}

/// A deploy with so many snapshots in the catalogue.
fn snapshots(bench: &Bench) -> Result<Vec<Row>> {
    let [few, many] = [
        Yard::with_snapshots(bench, "few-snapshots", FEW)?,
        Yard::with_snapshots(bench, "many-snapshots", MANY)?,
    ];
    let mut deploys = Pairs::default();
    for _ in 0..bench.rounds {
        let (small, large) = (few.measure_deploys()?, many.measure_deploys()?);
        deploys.push(large, small);
    }
    Ok(vec![row("deploy, 100,000 snapshots ÷ 10", &deploys)])
}

/// One more, a page and one less, where so many simulated devices run.
fn emulators(bench: &Bench) -> Result<Vec<Row>> {
    let [few, many] = [
        Yard::with_emulators(bench, "few-emulators", FEW)?,
        Yard::with_emulators(bench, "many-emulators", MANY)?,
    ];
    let (mut create, mut list, mut up, mut gone) = Default::default();
    let pairs: [&mut Pairs; 4] = [&mut create, &mut list, &mut up, &mut gone];
    for _ in 0..bench.rounds {
        let (small, large) = (few.measure()?, many.measure()?);
        pairs[0].push(large.create, small.create);
        pairs[1].push(large.list, small.list);
        pairs[2].push(large.up, small.up);
        pairs[3].push(large.gone, small.gone);
    }
    Ok(vec![
        row("deploy, 100,000 emulators ÷ 10", &create),
        row("100 deployed until all run, 100,000 emulators ÷ 10", &up),
        row("100 deleted until all are gone, 100,000 emulators ÷ 10", &gone),
        row("list of emulators, 100,000 ÷ 10", &list),
    ])
}

fn row(name: &str, pairs: &Pairs) -> Row {
    Row {
        name: name.to_owned(),
        figures: pairs.ratios(),
        goal: Some(Goal::AtMost(1.5)),
        note: pairs.note("µs"),
    }
}

/// A server with simulated devices.
struct Yard {
    paddock: Paddock,
    tenant: String,
    snapshot: String,
}

/// In microseconds.
struct Measured {
    /// The median of one request.
    create: f64,
    list: f64,
    /// A hundred that come up, or go, together, by their number.
    up: f64,
    gone: f64,
}

impl Yard {
    fn open(bench: &Bench, name: &str) -> Result<Yard> {
        let paddock = Paddock::start_with_flags(bench, name, &flags())?;
        let tenant = paddock.create_tenant("bench")?;
        let tenant = tenant.rsplit('/').next().context("a path has parts")?.to_owned();
        let snapshot = image(&paddock)?;
        Ok(Yard { paddock, tenant, snapshot })
    }

    /// The rows are copies of the first one under other names; they are written while the server is down.
    fn with_snapshots(bench: &Bench, name: &str, count: u64) -> Result<Yard> {
        let Yard { paddock, tenant, .. } = Yard::open(bench, name)?;
        let database = paddock.kill();
        let mut connection = Connection::open(&database)?;
        let transaction = connection.transaction()?;
        let copied: usize = {
            let mut copy = transaction.prepare(
                "INSERT INTO snapshots (name, id, tenant, parent, layer, state, problems, image, device_type, android_version,
                     rooted_at, rooted_by, origin, labels, created_by, created_at, updated_at, last_used_at, use_count, generation)
                 SELECT ?1, ?2, tenant, parent, layer, state, problems, image, device_type, android_version,
                     NULL, NULL, origin, labels, created_by, created_at, updated_at, last_used_at, use_count, generation
                 FROM snapshots ORDER BY name LIMIT 1",
            )?;
            let rows = (0..count).map(|number| {
                let id = (0x0190_0000_0000_7000_8000_0000_0000_0000_u128 + u128::from(number)).to_be_bytes();
                copy.execute(params![format!("row-{number:08}"), id])
            });
            rows.sum::<Result<usize, rusqlite::Error>>()?
        };
        ensure!(copied as u64 == count, "{copied} snapshots were made instead of {count}");
        transaction.commit()?;
        drop(connection);
        let paddock = Paddock::start_with_flags(bench, name, &flags())?;
        let snapshot = image(&paddock)?;
        let yard = Yard { paddock, tenant, snapshot };
        yard.come_to_rest()?;
        Ok(yard)
    }

    /// What is still to be done of its making, logs above all, is no part of what is measured.
    fn come_to_rest(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let before = self.paddock.processor_microseconds()?;
            std::thread::sleep(Duration::from_secs(1));
            if self.paddock.processor_microseconds()? - before < 1e5 {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the server does not come to rest");
        }
    }

    /// They are deployed by the API, and run.
    fn with_emulators(bench: &Bench, name: &str, count: u64) -> Result<Yard> {
        let yard = Yard::open(bench, name)?;
        let begun = Instant::now();
        let token = yard.paddock.token()?;
        let mut left = count;
        while left > 0 {
            let some = left.min(TOGETHER);
            let made = yard.post(&token, &format!(r#","count":{some}"#))?;
            let refused =
                made["items"].as_array().context("a list")?.iter().find(|made| made["emulator"].is_null());
            ensure!(refused.is_none(), "an emulator was refused: {refused:?}");
            left -= some;
        }
        let wanted = begun.elapsed();
        while yard.has_some_on_the_way()? {
            ensure!(begun.elapsed() < PATIENCE, "{count} simulated devices do not come up");
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("  {count} simulated devices wanted after {wanted:.1?}, up after {:.1?}", begun.elapsed());
        yard.come_to_rest()?;
        Ok(yard)
    }

    fn has_some_on_the_way(&self) -> Result<bool> {
        let token = self.paddock.token()?;
        let page = http::get(self.paddock.address, "/api/v1/emulators?status=provisioning&limit=1", &token)?;
        let page: Value = serde_json::from_str(&page.body)?;
        Ok(!page["items"][0].is_null())
    }

    fn create(&self, token: &str) -> Result<String> {
        let made = self.post(token, "")?;
        Ok(made["id"].as_str().context("an emulator has an id")?.to_owned())
    }

    fn post(&self, token: &str, more: &str) -> Result<Value> {
        let body = format!(r#"{{"tenantId":"{}","snapshot":"{}"{more}}}"#, self.tenant, self.snapshot);
        let made = http::post(self.paddock.address, "/api/v1/emulators", token, &body)?;
        Ok(serde_json::from_str(&made.body)?)
    }

    /// Only until they are wanted: a simulated pool forgets its layers when the server ends, so these never come up.
    fn measure_deploys(&self) -> Result<f64> {
        let token = self.paddock.token()?;
        let mut times = Vec::new();
        for _ in 0..REQUESTS {
            let begun = Instant::now();
            let id = self.create(&token)?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            http::delete(self.paddock.address, &format!("/api/v1/emulators/{id}"), &token)?;
        }
        Ok(Figures::of(times).median())
    }

    fn measure(&self) -> Result<Measured> {
        let (address, token) = (self.paddock.address, self.paddock.token()?);
        let median =
            |times: Vec<Duration>| Figures::of(times.iter().map(|time| time.as_secs_f64() * 1e6)).median();
        let timed = |act: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
            let times: Result<Vec<Duration>> = (0..REQUESTS)
                .map(|_| {
                    let begun = Instant::now();
                    act().map(|()| begun.elapsed())
                })
                .collect();
            times.map(median)
        };
        let mut ids = Vec::new();
        let begun = Instant::now();
        let create = timed(&mut || {
            ids.push(self.create(&token)?);
            Ok(())
        })?;
        ids.iter().try_for_each(|id| wait(address, id, &token, "running"))?;
        let up = begun.elapsed();
        let list = timed(&mut || http::get(address, "/api/v1/emulators?limit=10", &token).map(drop))?;
        let begun = Instant::now();
        for id in &ids {
            http::delete(address, &format!("/api/v1/emulators/{id}"), &token)?;
        }
        ids.iter().try_for_each(|id| wait(address, id, &token, "terminated"))?;
        let gone = begun.elapsed();
        let each = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
        Ok(Measured { create, up: each(up), list, gone: each(gone) })
    }
}

fn wait(address: SocketAddr, id: &str, token: &str, wanted: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let seen = http::get(address, &format!("/api/v1/emulators/{id}/status?wait=5"), token)?;
        let seen: Value = serde_json::from_str(&seen.body)?;
        if seen["status"] == wanted {
            return Ok(());
        }
        ensure!(begun.elapsed() < Duration::from_secs(60), "{id} is {} and not {wanted}", seen["status"]);
    }
}

/// The first snapshot that can be deployed.
fn image(paddock: &Paddock) -> Result<String> {
    let (token, begun) = (paddock.token()?, Instant::now());
    loop {
        let page = http::get(paddock.address, "/api/v1/snapshots?deployable=true&root=true", &token)?;
        let page: Value = serde_json::from_str(&page.body)?;
        if let Some(name) = page["items"][0]["name"].as_str() {
            return Ok(name.to_owned());
        }
        ensure!(begun.elapsed() < Duration::from_secs(60), "no image came in");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn flags() -> Vec<String> {
    let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../image");
    ["--devices-simulated", "true", "--devices-images", images, "--quotas-emulators", "1000000"]
        .into_iter()
        .chain(["--quotas-memory-bytes", "9000000000000000", "--quotas-disk-bytes", "9000000000000000"])
        .map(str::to_owned)
        .collect()
}
