//! What memory saves: a clone that resumes against one that boots from the same disk, and a dozen that resume at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::figures::{Figures, Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::start::{images, status, wait_for_image};
use crate::{Bench, http};

const PATIENCE: Duration = Duration::from_secs(120);
const EMULATORS: &str = "/api/v1/emulators";
const SNAPSHOTS: &str = "/api/v1/snapshots";
const AT_ONCE: usize = 12;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let flags = ["--devices-images", &images()?.display().to_string()].map(str::to_owned);
    let paddock = Paddock::start_with_flags(bench, "warm", &flags)?;
    let tenant = paddock.create_tenant("bench")?;
    let tenant = tenant.rsplit('/').next().context("a path has parts")?.to_owned();
    wait_for_image(&paddock)?;
    let world = World { paddock: &paddock, tenant };
    let origin = world.create(&json!({ "tenantId": world.tenant, "deviceType": "phone" }))?;
    world.until_running(&origin)?;
    // One after the other of a device at rest: the disks differ by what it logs.
    for (name, memory) in [("cold", false), ("warm", true)] {
        world.capture(&origin, name, memory)?;
    }
    world.delete(&origin)?;

    let (mut pairs, mut dozens) = (Pairs::default(), Vec::new());
    for _ in 0..bench.rounds {
        let warm = world.clones("warm", 1)?;
        let cold = world.clones("cold", 1)?;
        pairs.push(warm.as_secs_f64() * 1e3, cold.as_secs_f64() * 1e3);
        dozens.push(world.clones("warm", AT_ONCE)?.as_secs_f64() * 1e3);
    }
    Ok(vec![
        Row {
            name: "warm: POST until ADB answers, resumed ÷ booted".to_owned(),
            figures: pairs.ratios(),
            goal: Some(Goal::AtMost(0.12)),
            note: pairs.note("ms"),
        },
        Row {
            name: format!("warm: {AT_ONCE} clones at once until ADB of each answers, ms"),
            figures: Figures::of(dozens),
            goal: None,
            note: String::new(),
        },
    ])
}

struct World<'a> {
    paddock: &'a Paddock,
    tenant: String,
}

struct Device {
    id: String,
    host: String,
}

impl World<'_> {
    fn create(&self, body: &Value) -> Result<Device> {
        let answer = http::post(self.paddock.address, EMULATORS, &self.paddock.token()?, &body.to_string())?;
        let made: Value = serde_json::from_str(&answer.body)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("{made}"));
        Ok(Device { id: text(&made["id"])?, host: text(&made["endpoints"]["adb"]["host"])? })
    }

    fn until_running(&self, device: &Device) -> Result<()> {
        self.until(device, "running")
    }

    fn until(&self, device: &Device, wanted: &str) -> Result<()> {
        let (token, begun) = (self.paddock.token()?, Instant::now());
        let path = format!("{EMULATORS}/{}/status?wait=8", device.id);
        while status(self.paddock, &path, &token)? != wanted {
            ensure!(begun.elapsed() < PATIENCE, "{} is not {wanted}", device.id);
        }
        Ok(())
    }

    fn delete(&self, device: &Device) -> Result<()> {
        let path = format!("{EMULATORS}/{}", device.id);
        http::delete(self.paddock.address, &path, &self.paddock.token()?)?;
        self.until(device, "terminated")
    }

    fn capture(&self, device: &Device, name: &str, memory: bool) -> Result<()> {
        let body = json!({ "emulatorId": device.id, "name": name, "memory": memory }).to_string();
        let token = self.paddock.token()?;
        http::post(self.paddock.address, SNAPSHOTS, &token, &body)?;
        let begun = Instant::now();
        loop {
            let seen = http::get(self.paddock.address, &format!("{SNAPSHOTS}/{name}"), &token)?;
            let seen: Value = serde_json::from_str(&seen.body)?;
            if seen["state"] == "ready" {
                ensure!(seen["hasMemory"] == memory, "the memory is not there: {seen}");
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE && seen["state"] != "faulted", "{seen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How long it takes until ADB of each of so many has answered.
    fn clones(&self, snapshot: &str, count: usize) -> Result<Duration> {
        let body = json!({ "tenantId": self.tenant, "snapshot": snapshot });
        let begun = Instant::now();
        let devices: Vec<Device> = (0..count).map(|_| self.create(&body)).collect::<Result<_>>()?;
        for device in &devices {
            self.until_running(device)?;
            until_adb(&device.host)?;
        }
        let took = begun.elapsed();
        for device in &devices {
            let path = format!("{EMULATORS}/{}", device.id);
            let seen: Value =
                serde_json::from_str(&http::get(self.paddock.address, &path, &self.paddock.token()?)?.body)?;
            ensure!(seen["start"]["kind"] == snapshot, "it did not start {snapshot}: {}", seen["start"]);
            self.delete(device)?;
        }
        Ok(took)
    }
}

/// Says hello as `adb` does.
fn until_adb(host: &str) -> Result<()> {
    let begun = Instant::now();
    let banner = b"host::\0";
    let checksum: u32 = banner.iter().map(|byte| u32::from(*byte)).sum();
    let connect = u32::from_le_bytes(*b"CNXN");
    let words = [connect, 0x0100_0000, 4096, banner.len() as u32, checksum, !connect];
    let mut hello: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    hello.extend_from_slice(banner);
    loop {
        ensure!(begun.elapsed() < PATIENCE, "ADB at {host} does not answer");
        let attempt = || -> std::io::Result<[u8; 4]> {
            let mut stream = TcpStream::connect((host, 5555))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(&hello)?;
            let mut answer = [0; 4];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        if matches!(attempt().as_ref(), Ok(b"CNXN" | b"AUTH")) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
