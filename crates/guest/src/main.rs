//! paddock-guest: the first process, the agent and the tools of the reference device, told apart by name.

mod activities;
mod adb;
mod agent;
mod apk;
mod channel;
mod control;
mod device;
mod files;
mod freezer;
mod health;
mod identity;
mod init;
mod kernel;
mod log_port;
mod logcat;
mod logs;
mod network;
mod packages;
mod processes;
mod properties;
mod screen;
mod settings;
mod tools;
mod touches;
mod vehicle;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    match run(&name, args.collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            if std::process::id() == 1 {
                // The kernel panics when the first process ends; the message has to be seen before.
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, mut args: Vec<String>) -> Result<ExitCode> {
    if tools::NAMES.contains(&name) {
        return tools::ask(name, args);
    }
    if name == "init" {
        init::from_initramfs()?;
    }
    if args.is_empty() {
        bail!(
            "usage: paddock-guest init | agent [--root DIR --adb ADDRESS:PORT --control SOCKET --log SOCKET --identity FILE] | TOOL ..."
        );
    }
    let verb = args.remove(0);
    match verb.as_str() {
        "init" => init::on_disk().map(|()| ExitCode::SUCCESS),
        "agent" => agent::run(&args).map(|()| ExitCode::SUCCESS),
        tool if tools::NAMES.contains(&tool) => tools::ask(tool, args),
        other => bail!("no such command: {other}"),
    }
}
