//! A certified OpenID server for tests, npm `oidc-provider`, in a process of its own.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A running server, with its keys in a folder.
pub struct Provider {
    process: Child,
    port: u16,
    pub folder: Arc<tempfile::TempDir>,
}

impl Provider {
    pub fn start(keys: &[&str]) -> Provider {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        Provider::on(port, Arc::new(tempfile::tempdir().expect("a folder")), keys)
    }

    pub fn on(port: u16, folder: Arc<tempfile::TempDir>, keys: &[&str]) -> Provider {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/oidc/provider.mjs");
        let mut process = Command::new("node")
            .arg(script)
            .arg(modules())
            .arg(port.to_string())
            .args(keys.iter().map(|key| folder.path().join(key)))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node; `make test` installs it");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let listening = lines.any(|line| line.is_ok_and(|line| line == "listening"));
        assert!(listening, "the OpenID server does not start; has `scripts/setup test` run?");
        // It dies if nobody takes what it says.
        std::thread::spawn(move || lines.count());
        Provider { process, port, folder }
    }

    /// The same server with other keys.
    pub fn restart(mut self, keys: &[&str]) -> Provider {
        self.stop();
        Provider::on(self.port, self.folder.clone(), keys)
    }

    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}

fn modules() -> PathBuf {
    let cache = std::env::var_os("CACHE").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache/paddock");
    cache.unwrap_or_else(home).join("tools/npm-oidc/node_modules")
}
