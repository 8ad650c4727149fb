//! The real binary for tests: started on a free port, spoken to, and ended.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running paddockd; killed when dropped.
pub struct Daemon {
    pub child: Child,
    pub address: String,
    data: PathBuf,
    flags: Vec<String>,
}

pub fn paddockd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddockd"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PADDOCK_")) {
        command.env_remove(name);
    }
    command
}

/// Waits until the server serves: it listens before it is ready, and then any answer will do, be it a TLS alert.
pub fn wait_for(address: &str) {
    let started = Instant::now();
    loop {
        let asked = std::net::TcpStream::connect(address).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(b"GET /-/alivez HTTP/1.0\r\n\r\n")?;
            stream.read(&mut [0; 16])
        });
        if asked.is_ok_and(|length| length > 0) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "nobody answers at {address}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

impl Daemon {
    pub fn start(data: &Path, flags: &[&str]) -> Daemon {
        let quiet = ["--log-level", "warn"];
        Daemon::spawn(data, &[&quiet, flags].concat(), &[], (Stdio::null(), Stdio::inherit()))
    }

    /// One that finds more in its environment.
    pub fn start_in(data: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Daemon {
        let quiet = ["--log-level", "warn"];
        Daemon::spawn(data, &[&quiet, flags].concat(), environment, (Stdio::null(), Stdio::inherit()))
    }

    /// One that tells everything to a file.
    pub fn start_talkative(data: &Path, flags: &[&str], log: &Path) -> Daemon {
        let log = File::create(log).expect("a file");
        let output = (Stdio::from(log.try_clone().expect("a second handle")), Stdio::from(log));
        let talkative = ["--log-level", "trace", "--log-format", "json"];
        Daemon::spawn(data, &[&talkative, flags].concat(), &[], output)
    }

    fn spawn(
        data: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
        (stdout, stderr): (Stdio, Stdio),
    ) -> Daemon {
        let address = format!("127.0.0.1:{}", free_port());
        let child = paddockd()
            .args(["--listen", &address, "--data"])
            .arg(data)
            .args(flags)
            .envs(environment.iter().copied())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("a process");
        wait_for(&address);
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Daemon { child, address, data: data.to_owned(), flags }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn token(&self) -> String {
        let output = paddockd()
            .args(["admin", "token", "--data"])
            .arg(&self.data)
            .args(&self.flags)
            .output()
            .expect("output");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(Duration::from_secs(30)).build().expect("a client")
}
