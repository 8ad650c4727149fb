//! paddockd: the command line of the server.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use paddock_engine::{audit, doctor, usage, users};
use paddock_model::audit::Verified;
use paddock_model::emulators::address_of;
use paddock_server::auth::access_token;
use paddock_server::config::{self, Config, InForce};
use paddock_server::connect;
use paddock_server::http::{self, meta::Build};
use paddock_server::logging;
use paddock_server::wiring::{self, World};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

const BUILD: Build = Build {
    commit: match option_env!("BUILD_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
    built_at: match option_env!("BUILD_TIME") {
        Some(time) => time,
        None => "1970-01-01T00:00:00Z",
    },
};

const ABOUT: &str = "Serves Paddock: a control plane for emulated Android devices and their snapshots.

Needs no setting: `paddockd` keeps everything in ./paddock-data and listens on 127.0.0.1:8080.
Each setting can stand in a file (TOML), in the environment (PADDOCK_…) or in a flag; the later wins.";

fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paddockd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let version = format!("{} ({})", env!("CARGO_PKG_VERSION"), BUILD.commit);
    let token =
        "Print an access token for the first admin, valid for 15 minutes; needs access to the data folder";
    config::command(Command::new("paddockd").about(ABOUT).version(version))
        .subcommand(
            Command::new("config").about("Print the settings in force and where each comes from").arg(
                Arg::new("reference")
                    .long("reference")
                    .action(ArgAction::SetTrue)
                    .help("Print what can be set instead, as Markdown"),
            ),
        )
        .subcommand(Command::new("openapi").about("Print the contract (OpenAPI 3.1, JSON)"))
        .subcommand(
            Command::new("doctor").about(
                "Hold the catalogue of disks against what lies in the pool, both ways; changes nothing",
            ),
        )
        .subcommand(
            Command::new("audit")
                .about("Look after the audit")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(
                    Command::new("verify").about(
                        "Follow every chain of events from its beginning, and say where one was changed",
                    ),
                ),
        )
        .subcommand(
            Command::new("admin")
                .about("Break-glass help for the first admin")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(Command::new("token").about(token)),
        )
        .subcommand(
            Command::new("connect")
                .hide(true)
                .about("Carry standard input and output to a socket, as the way from a device to its car")
                .arg(Arg::new("socket").required(true).value_parser(clap::value_parser!(PathBuf))),
        )
}

fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let matches = command().get_matches_from(arguments);
    if let Some(socket) =
        matches.subcommand_matches("connect").and_then(|own| own.get_one::<PathBuf>("socket"))
    {
        // Whoever called hears of a failure by the end of the connection: there is nobody else to tell.
        let _ = connect::relay(socket);
        return Ok(());
    }
    if matches.subcommand_matches("openapi").is_some() {
        print!("{}", std::str::from_utf8(&http::document(&Config::default()).json)?);
        return Ok(());
    }
    if matches.subcommand_matches("config").is_some_and(|config| config.get_flag("reference")) {
        print!("{}", config::reference());
        return Ok(());
    }
    let (config, sources) = config::load(innermost(&matches), environment())?;
    match matches.subcommand_name() {
        Some("config") => {
            for InForce { setting, value, source } in sources {
                println!("{} = {value:?}  # {source}", setting.key);
            }
            config.issuers.iter().for_each(|issuer| print!("\n{}", issuer.show()));
            Ok(())
        }
        Some("doctor") => runtime()?.block_on(examine(&config)),
        Some("audit") => runtime()?.block_on(verify_audit(&config)),
        Some("admin") => runtime()?.block_on(print_token(&config)),
        _ => runtime()?.block_on(serve(&config)),
    }
}

/// Global flags are known to the subcommand that they stand behind.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

fn environment() -> impl Iterator<Item = (String, String)> {
    // A variable that is no UTF-8 is none of ours.
    std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

async fn print_token(config: &Config) -> anyhow::Result<()> {
    let engine = wiring::join(config, &World::real(BUILD)).await?;
    let admin = users::first_admin(&engine).await.map_err(|error| anyhow::anyhow!("{}", error.detail))?;
    println!("{}", access_token::mint(&engine, admin.id, engine.now()).await?);
    Ok(())
}

async fn examine(config: &Config) -> anyhow::Result<()> {
    let engine = wiring::join(config, &World::real(BUILD)).await?;
    let pool = wiring::pool(config)?;
    let mut findings = doctor::examine(&engine, &pool, &wiring::device_traces(config)?).await?;
    findings.extend(doctor::examine_templates(&engine, &wiring::template_traces(config)?).await?);
    findings.extend(doctor::examine_cars(&engine, &wiring::car_traces(config)?).await?);
    findings.extend(doctor::examine_backups(&engine, &wiring::backup_repositories(config)?).await?);
    for finding in &findings {
        println!("{finding}");
    }
    anyhow::ensure!(
        findings.is_empty(),
        "{} things do not fit; nothing was changed. See docs/operations/devices.md",
        findings.len()
    );
    println!("Every layer, disk, device and backup is recorded and there.");
    println!("{}", usage::measure(&engine, &pool).await?.figures);
    let addresses = doctor::addresses(&engine).await?;
    println!(
        "{} addresses are in use, {} have been given back, the last of all is {}.",
        addresses.held,
        addresses.free,
        address_of(addresses.highest)
    );
    Ok(())
}

async fn verify_audit(config: &Config) -> anyhow::Result<()> {
    let engine = wiring::join(config, &World::real(BUILD)).await?;
    let chains = audit::verify(&engine).await?;
    let mut broken = 0;
    for Verified { tenant, events, broken_at } in chains {
        let chain = tenant.map_or_else(|| "the installation".to_owned(), |tenant| tenant.to_string());
        match broken_at {
            None => println!("{chain}: {events} events, as they were written"),
            Some(number) => {
                broken += 1;
                println!("{chain}: {events} events, CHANGED at number {number} or removed from there on");
            }
        }
    }
    anyhow::ensure!(broken == 0, "{broken} chains are not as they were written; compare with a backup");
    Ok(())
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    logging::start(config.log_format, &config.log_level.0).map_err(anyhow::Error::msg)?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let server = wiring::start(config, World::real(BUILD)).await?;
    metrics::gauge!("paddock_build_info", "version" => env!("CARGO_PKG_VERSION"), "commit" => BUILD.commit)
        .set(1.0);
    tracing::info!(address = %server.address, data = %config.data.display(), "serving");
    if let Some(password) = &server.first_password {
        let scheme = if config.tls_certificate.is_some() { "https" } else { "http" };
        welcome(password, &format!("{scheme}://{}", server.address));
    }
    // Outside systemd nobody listens, and that is fine.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("shutting down; once more to stop at once");
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    tokio::select! {
        () = server.stop() => {
            tracing::info!("stopped");
            Ok(())
        }
        _ = terminate.recv() => anyhow::bail!("stopped before everything had ended"),
        _ = interrupt.recv() => anyhow::bail!("stopped before everything had ended"),
    }
}

/// Shown once, and only on a terminal: everything else is a log, and no log may hold a password.
fn welcome(password: &str, url: &str) {
    if std::io::stdout().is_terminal() {
        println!("The first admin is `admin` with the password {password}");
    }
    println!("The first admin's password is kept in the data folder, in the file admin-password.");
    println!("Open {url} to sign in as `admin`, or sign in with `paddock auth login`.");
    println!("Whoever can read the data folder gets in with `paddockd admin token --data DIR`, too.");
}
