//! Paddock as a party: a daemon of its own, in a data folder of its own, ended when it is dropped.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::flush::Flush;
use crate::{Bench, http, machine};

const START_PATIENCE: Duration = Duration::from_secs(30);

/// No caller of the bench is to be throttled: the limits would be measured, not the server.
const UNLIMITED: &str = "100000000";

pub struct Paddock {
    pub address: SocketAddr,
    data: PathBuf,
    program: PathBuf,
    daemon: Child,
}

impl Paddock {
    /// Ready to serve. `name` is the data folder's; under the same name the same data come back.
    pub fn start(bench: &Bench, name: &str) -> Result<Self> {
        Self::start_with(bench, name, Flush::AsTheDisk)
    }

    pub fn start_with(bench: &Bench, name: &str, flush: Flush) -> Result<Self> {
        Self::start_as(bench, name, flush, &[])
    }

    /// One with settings of its own.
    pub fn start_with_flags(bench: &Bench, name: &str, flags: &[String]) -> Result<Self> {
        Self::start_as(bench, name, Flush::AsTheDisk, flags)
    }

    fn start_as(bench: &Bench, name: &str, flush: Flush, flags: &[String]) -> Result<Self> {
        let data = bench.folder(name)?;
        let address = http::free_address()?;
        let log_path = bench.folder.join(format!("{name}.log"));
        let log = File::create(&log_path)?;
        let daemon = command(&bench.paddockd, &data, flush)
            .args(["--listen", &address.to_string(), "--log-level", "warn"])
            .args(["--limits-burst", UNLIMITED, "--limits-requests-per-minute", UNLIMITED])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", bench.paddockd.display()))?;
        let mut paddock = Paddock { address, data, program: bench.paddockd.clone(), daemon };
        paddock.wait_until_ready(&log_path)?;
        Ok(paddock)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let begun = Instant::now();
        while http::get(self.address, "/-/readyz", "").is_err() {
            let ended = self.daemon.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_PATIENCE {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("paddockd is not ready ({ended:?}); it said:\n{said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The first admin's, valid for 15 minutes.
    pub fn token(&self) -> Result<String> {
        let output =
            command(&self.program, &self.data, Flush::AsTheDisk).args(["admin", "token"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "paddockd admin token failed: {said}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Creates a tenant and tells its path.
    pub fn create_tenant(&self, name: &str) -> Result<String> {
        let created =
            http::post(self.address, "/api/v1/tenants", &self.token()?, &format!(r#"{{"name":"{name}"}}"#))?;
        let tenant: serde_json::Value = serde_json::from_str(&created.body)?;
        let id = tenant["id"].as_str().context("a created tenant has an id")?;
        Ok(format!("/api/v1/tenants/{id}"))
    }

    /// Deploys a device in a tenant of its own, waits until it runs, and tells its id.
    pub fn deploy(&self) -> Result<String> {
        self.deploy_a("phone")
    }

    /// The same with a device of this type.
    pub fn deploy_a(&self, device_type: &str) -> Result<String> {
        let tenant = self.create_tenant("bench-device")?;
        let tenant = tenant.rsplit('/').next().context("a tenant's id")?;
        let body = format!(r#"{{"tenantId":"{tenant}","deviceType":"{device_type}"}}"#);
        let token = self.token()?;
        let begun = Instant::now();
        loop {
            // The image comes in a moment after the start.
            if let Ok(answer) = http::post(self.address, "/api/v1/emulators?wait=8", &token, &body) {
                let emulator: serde_json::Value = serde_json::from_str(&answer.body)?;
                ensure!(emulator["status"] == "running", "the device is not up: {emulator}");
                return Ok(emulator["id"].as_str().context("an emulator has an id")?.to_owned());
            }
            ensure!(begun.elapsed() < START_PATIENCE, "no emulator can be deployed");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn resident_megabytes(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kibibytes * 1024.0 / 1e6)
    }

    /// What it has spent on all processors since its start.
    pub fn processor_microseconds(&self) -> Result<f64> {
        machine::processor_microseconds(self.daemon.id())
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn database(&self) -> PathBuf {
        self.data.join("paddock.db")
    }

    /// Ends it without a warning, as `kill -9` does, and tells where its database stays.
    pub fn kill(self) -> PathBuf {
        self.database()
    }
}

impl Drop for Paddock {
    fn drop(&mut self) {
        // It may have ended by itself; what matters is that it is gone and reaped.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Settings of the machine's own Paddock do not reach the one that is measured.
fn command(program: &Path, data: &Path, flush: Flush) -> Command {
    let mut command = flush.command(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PADDOCK_") {
            command.env_remove(name);
        }
    }
    command.arg("--config").arg("/dev/null").arg("--data").arg(data);
    command
}
