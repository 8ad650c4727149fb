//! Envoy as a party: a proxy in front of a car's socket, with one worker.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{Bench, http, machine};

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Envoy {
    pub address: SocketAddr,
    process: Child,
}

impl Envoy {
    pub fn in_front_of(bench: &Bench, socket: &Path) -> Result<Self> {
        let folder = bench.folder("envoy")?;
        let address = http::free_address()?;
        let configuration = folder.join("envoy.json");
        std::fs::write(&configuration, configured(address, socket)?.to_string())?;
        let log_path = folder.join("envoy.log");
        let log = File::create(&log_path)?;
        let process = Command::new(program()?)
            .arg("--config-path")
            .arg(&configuration)
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start Envoy")?;
        let mut envoy = Envoy { address, process };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = envoy.process.try_wait()?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(&log_path).unwrap_or_default();
                bail!("Envoy does not listen ({ended:?}); it said:\n{said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(envoy)
    }

    pub fn processor_microseconds(&self) -> Result<f64> {
        machine::processor_microseconds(self.process.id())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Nothing is logged, nothing has a deadline, nothing is tried again.
fn configured(address: SocketAddr, socket: &Path) -> Result<Value> {
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let socket = socket.to_str().context("a path that is text")?;
    // The addresses of sockets are short.
    ensure!(socket.len() < 108, "{socket} is too long; name another --folder");
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "car", "timeout": "0s" } });
    Ok(json!({ "static_resources": {
        "listeners": [{
            "address": { "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } },
            "filter_chains": [{ "filters": [{
                "name": "http",
                "typed_config": {
                    "@type": manager,
                    "stat_prefix": "http",
                    "codec_type": "HTTP2",
                    "stream_idle_timeout": "0s",
                    "generate_request_id": false,
                    "route_config": { "virtual_hosts": [{ "name": "car", "domains": ["*"], "routes": [route] }] },
                    "http_filters": [{ "name": "router", "typed_config": { "@type": router, "suppress_envoy_headers": true } }],
                },
            }] }],
        }],
        "clusters": [{
            "name": "car",
            "type": "STATIC",
            "typed_extension_protocol_options": { options: {
                "@type": format!("type.googleapis.com/{options}"),
                "explicit_http_config": { "http2_protocol_options": {} },
            } },
            "circuit_breakers": { "thresholds": [{ "max_requests": 100_000, "max_pending_requests": 100_000 }] },
            "load_assignment": { "cluster_name": "car", "endpoints": [{ "lb_endpoints": [
                { "endpoint": { "address": { "pipe": { "path": socket } } } },
            ] }] },
        }],
    } }))
}

/// Where `scripts/setup bench` has put it.
fn program() -> Result<PathBuf> {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/paddock"));
    let cache = cache.or_else(home).context("HOME is not set")?;
    let program = cache.join("tools/python-bench/bin/envoy");
    ensure!(program.exists(), "there is no {}; run `scripts/setup bench`", program.display());
    Ok(program)
}
