//! nginx as a party: a server that answers fixed bytes, and a reverse proxy in front of it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::http::Answer;
use crate::{Bench, http};

const PATIENCE: Duration = Duration::from_secs(10);

/// Where Debian has it.
const NCHAN: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";

pub struct Nginx {
    pub address: SocketAddr,
    prefix: PathBuf,
    master: Child,
}

impl Nginx {
    /// Answers every request with these bytes, from memory.
    pub fn answering(bench: &Bench, answer: &Answer) -> Result<Self> {
        let Answer { content_type, body, .. } = answer;
        ensure!(!body.contains(['\'', '\\', '$']), "nginx cannot quote {body}");
        Self::start(
            bench,
            "nginx-origin",
            "",
            &format!("default_type '{content_type}'; location / {{ return 200 '{body}'; }}"),
        )
    }

    /// Serves these bytes as a file, which the kernel sends by itself.
    pub fn serving(bench: &Bench, name: &str, answer: &Answer) -> Result<Self> {
        let folder = bench.folder("nginx-files")?;
        std::fs::write(folder.join(name), &answer.body)?;
        let Answer { content_type, .. } = answer;
        let server =
            format!("default_type '{content_type}'; sendfile on; tcp_nopush on; root {};", folder.display());
        let nginx = Self::start(bench, "nginx-file-server", "", &server)?;
        let served = http::get(nginx.address, &format!("/{name}"), "")?;
        ensure!(served.body == answer.body, "nginx serves other bytes");
        Ok(nginx)
    }

    /// Passes what is posted to `/say` on to everybody who follows `/hear`, as Server-Sent Events, by the module nchan.
    pub fn with_nchan(bench: &Bench) -> Result<Self> {
        ensure!(Path::new(NCHAN).exists(), "there is no {NCHAN}; Debian's package is libnginx-mod-nchan");
        let upstream = "nchan_shared_memory_size 512M;";
        let server = "location = /say { nchan_publisher; nchan_channel_id bench; nchan_message_buffer_length 20000; nchan_message_timeout 1h; }
            location = /hear { nchan_subscriber eventsource; nchan_channel_id bench; nchan_subscriber_first_message newest; }";
        Self::start(bench, "nginx-nchan", upstream, server)
    }

    pub fn in_front_of(bench: &Bench, origin: &Nginx) -> Result<Self> {
        Self::start(
            bench,
            "nginx-proxy",
            &format!(
                "upstream origin {{ server {}; keepalive 256; keepalive_requests 1000000000; }}",
                origin.address
            ),
            "location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ''; }",
        )
    }

    fn start(bench: &Bench, name: &str, upstream: &str, server: &str) -> Result<Self> {
        let prefix = bench.folder(name)?;
        let address = http::free_address()?;
        std::fs::write(prefix.join("nginx.conf"), configuration(address, upstream, server))?;
        let master = command(&prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start nginx")?;
        let mut nginx = Nginx { address, prefix, master };
        nginx.wait_until_listening()?;
        Ok(nginx)
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect_timeout(&self.address, PATIENCE).is_err() {
            let ended = self.master.try_wait()?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(self.prefix.join("error.log")).unwrap_or_default();
                bail!("nginx does not listen ({ended:?}); it said:\n{said}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master must end its workers itself: killed, it would leave them behind.
        let _ = command(&self.prefix).args(["-s", "stop"]).stderr(Stdio::null()).status();
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if !matches!(self.master.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}

fn configuration(address: SocketAddr, upstream: &str, server: &str) -> String {
    let nchan = if server.contains("nchan") { format!("load_module {NCHAN};") } else { String::new() };
    format!(
        "daemon off;
{nchan}
worker_processes 2;
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {upstream}
    server {{ listen {address}; {server} }}
}}
"
    )
}

fn command(prefix: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("-p").arg(prefix).args(["-e", "error.log", "-c", "nginx.conf"]);
    command
}

/// Debian keeps it where only root looks.
fn program() -> &'static str {
    let debian = "/usr/sbin/nginx";
    if Path::new(debian).exists() { debian } else { "nginx" }
}

pub fn version() -> Result<String> {
    let output = Command::new(program()).arg("-v").output().context("run nginx -v; is nginx installed?")?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(said.trim().trim_start_matches("nginx version: ").to_owned())
}
