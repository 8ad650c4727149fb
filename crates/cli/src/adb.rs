//! ADB: lets Android's own `adb` reach an emulator through the server, from anywhere.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::client;
use paddock_api::client::streams::{Ended, Stream};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::emulators;
use crate::failure::Failure;
use crate::output::{self, Output};

pub const EXAMPLES: &str = "\
Examples:
  paddock adb connect maps-nightly";

const CONNECT_EXAMPLES: &str = "\
Examples:
  paddock adb connect maps-nightly
  paddock adb connect emu_01jcr8e8v0e9bvqz3tz4d0wq2h --port 5555 --no-adb

The first line on standard output is the serial for adb -s; press Ctrl-C to disconnect.";

/// Between two tries of adb that lead nowhere.
const REST: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub enum Verb {
    /// Connect adb to an emulator, until Ctrl-C
    #[command(after_help = CONNECT_EXAMPLES)]
    Connect(Connect),
}

#[derive(Args)]
pub struct Connect {
    /// The emulator's id (emu_…) or its name
    emulator: String,
    /// Local port to listen on; any free one where none is given
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Only listen; do not run `adb connect`
    #[arg(long)]
    no_adb: bool,
}

pub async fn run(verb: Verb, connection: Connection, output: Output) -> Result<(), Failure> {
    let Verb::Connect(wanted) = verb;
    let client = connection.client().await?;
    let id = emulators::id(&wanted.emulator, &client).await?;
    // Whatever stands in the way is said now, and not in the log of adb.
    drop(client.connect_adb(&id).await?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.port)).await.map_err(|error| {
        Failure::Usage(format!("cannot listen on port {}: {error}; choose another with --port", wanted.port))
    })?;
    let address = listener.local_addr().map_err(Failure::Runtime)?;
    say(address, &id, output)?;
    let serial = address.to_string();
    let mut connecting = JoinSet::new();
    if !wanted.no_adb {
        let serial = serial.clone();
        connecting.spawn_blocking(move || adb(&["connect", &serial]));
    }
    let outcome = tokio::select! {
        outcome = serve(&listener, &connection, &id) => outcome,
        failure = failed(&mut connecting) => Err(failure),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    if !wanted.no_adb {
        let _ = adb(&["disconnect", &serial]);
    }
    outcome
}

fn say(address: SocketAddr, emulator: &str, output: Output) -> Result<(), Failure> {
    if output.is_json() {
        let line = json!({ "serial": address.to_string(), "emulatorId": emulator });
        return output::write(format!("{line}\n").as_bytes());
    }
    output::write(format!("{address}\n").as_bytes())
}

/// Has each connection of adb a stream of its own.
async fn serve(listener: &TcpListener, connection: &Connection, emulator: &str) -> Result<(), Failure> {
    let mut open: JoinSet<Ended> = JoinSet::new();
    let mut said = String::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (local, _) = accepted.map_err(Failure::Runtime)?;
                let _ = local.set_nodelay(true);
                // With a token that is fresh now; the one before may have expired.
                match connection.client().await?.connect_adb(emulator).await {
                    Ok(stream) => {
                        said.clear();
                        open.spawn(carry(stream, local));
                    }
                    Err(error) => {
                        let words = passing(error)?;
                        // Once is enough, and adb asks again as soon as it is turned away.
                        if words != said {
                            output::notice(&words);
                            said = words;
                        }
                        tokio::time::sleep(REST).await;
                    }
                }
            }
            Some(Ok(ended)) = open.join_next() => after(ended)?,
        }
    }
}

async fn carry(stream: Stream, local: TcpStream) -> Ended {
    stream.carry(local).await
}

/// Whether another try may go better: adb makes one, again and again.
fn passing(error: client::Error) -> Result<String, Failure> {
    let passes = match &error {
        client::Error::Unreachable(_) => true,
        client::Error::Refused(problem) => matches!(problem.status, 409 | 429 | 500..),
        _ => false,
    };
    if !passes {
        return Err(error.into());
    }
    Ok(format!("adb could not connect: {error}"))
}

/// What the end of a connection says of the others.
fn after(ended: Ended) -> Result<(), Failure> {
    let code = match ended {
        Ended::Here => return Ok(()),
        Ended::There(code) => code,
        Ended::Broken => 1006,
    };
    match code {
        4403 => Err(Failure::NotReached("you may not use this emulator any more".to_owned())),
        4404 => Err(Failure::NotReached("the emulator does not run any more".to_owned())),
        code => {
            let why = match code {
                4401 => "the token has expired",
                4410 => "the emulator was started anew",
                1001 => "the server is stopping",
                _ => "it broke off",
            };
            output::notice(&format!("a connection has ended: {why}; adb connects again by itself"));
            Ok(())
        }
    }
}

/// Returns only if `adb connect` did not do its work.
async fn failed(connecting: &mut JoinSet<io::Result<String>>) -> Failure {
    const HELP: &str = "install Android's platform tools, or use --no-adb and connect yourself";
    match connecting.join_next().await {
        Some(Ok(Ok(said))) if said.contains("connected to") => std::future::pending().await,
        Some(Ok(Ok(said))) => Failure::NotReached(format!("adb could not connect: {}", said.trim())),
        Some(Ok(Err(error))) => Failure::Usage(format!("cannot run adb: {error}; {HELP}")),
        Some(Err(error)) => Failure::Runtime(io::Error::other(error)),
        None => std::future::pending().await,
    }
}

fn adb(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("adb").args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(text(&output.stdout) + &text(&output.stderr))
}
