//! Emulators: devices that run.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::ci::{
    CaptureSpec, CaptureWhen, DeleteEmulator, EmulatorCaptureState, EmulatorRestoreSpec, EmulatorResult,
    JobOutcome,
};
use paddock_api::client::{self, Client};
use paddock_api::emulators::{
    ConditionStatus, DeviceType, Emulator, EmulatorSpec, EmulatorStatus, EmulatorStatusReport, IdentityMode,
    IdentitySpec, ListEmulators, SnapshotSwap, Wait,
};
use paddock_api::labels::Labels;
use paddock_api::page::ListPage;
use tokio::time::Instant;

use crate::confirmation::Removal;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::logs::{self, Logs};
use crate::output::{self, Column, Output, Row};
use crate::snapshots::DEVICE_TYPES;
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock emulator create --tenant acme --name maps-nightly --wait
  paddock emulator list --tenant acme
  paddock emulator logs maps-nightly --follow
  paddock emulator restart maps-nightly --wait
  paddock emulator park maps-nightly
  paddock emulator delete maps-nightly";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock emulator list
  paddock emulator list --tenant acme --status running
  paddock emulator list -l team=maps,tier!=test -o wide
  paddock emulator list -o json | jq -r '.items[].endpoints.adb.host'";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock emulator create --tenant acme --wait
  paddock emulator create --tenant acme --device-type automotive --name maps-nightly --label team=maps
  paddock emulator create --tenant acme --snapshot paddock-phone-3fe30cce5940 --expires-in 1h --idle-timeout 10m
  paddock emulator create --tenant acme --keep-identity 'test car 7'      always the same device
  paddock emulator create --tenant acme --restore-key 'app main' --fallback-key 'app *' --capture success
  paddock emulator create --tenant acme --snapshot with-maps-installed --count 8
  id=$(paddock emulator create --wait 120)      into a pipe or a variable goes only the id

With --wait the exit code is 1 where it does not come up, or not in time; it is there all the same, and its id is \
shown.";

const GET_EXAMPLES: &str = "\
Examples:
  paddock emulator get maps-nightly
  paddock emulator get emu_01jcr8e8v0e9bvqz3tz4d0wq2h -o json | jq .live";

const STATUS_EXAMPLES: &str = "\
Examples:
  paddock emulator status maps-nightly
  paddock emulator status maps-nightly --wait        until it is up, has failed or is gone
  paddock emulator status maps-nightly -o json | jq -r .status";

const RESTART_EXAMPLES: &str = "\
Examples:
  paddock emulator restart maps-nightly
  paddock emulator restart maps-nightly --wait 120

It keeps its id, its address and its disk. One that is parked wakes.";

const SWAP_EXAMPLES: &str = "\
Examples:
  paddock emulator swap maps-nightly with-maps-installed
  paddock emulator swap maps-nightly with-maps-installed --wait 120

It keeps its id and its address. If the new snapshot does not come up, the old disk takes over again.";

const PARK_EXAMPLES: &str = "\
Examples:
  paddock emulator park maps-nightly
  paddock emulator restart maps-nightly      wakes it";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock emulator delete maps-nightly                asks you first
  paddock emulator delete maps-nightly --dry-run      shows what would go, and deletes nothing
  paddock emulator delete maps-nightly --yes --wait   for scripts; until it is gone
  paddock emulator delete maps-nightly --yes --outcome success      captures it first, if it was created so

Its disk goes with it.";

/// How long one request waits; between two of them, the user sees how far it is.
const A_WHILE: Duration = Duration::from_secs(2);

#[derive(Subcommand)]
pub enum Verb {
    /// Show the emulators that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Deploy an emulator
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Show one emulator, with what the device says of itself
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
    /// Show where an emulator is in its life, and why
    #[command(after_help = STATUS_EXAMPLES)]
    Status(Status),
    /// Show what an emulator and its device have said, and follow it
    #[command(after_help = logs::EXAMPLES)]
    Logs(Logs),
    /// Restart an emulator, or wake one that is parked
    #[command(after_help = RESTART_EXAMPLES)]
    Restart(Restart),
    /// Put another snapshot under an emulator
    #[command(after_help = SWAP_EXAMPLES)]
    Swap(Swap),
    /// Give an emulator's compute back and keep its disk
    #[command(after_help = PARK_EXAMPLES)]
    Park(Park),
    /// Delete an emulator and its disk
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
}

#[derive(Args)]
pub struct List {
    /// Only emulators of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only emulators in this status
    #[arg(long, value_name = "STATUS", value_parser = one_of::<EmulatorStatus>(STATUSES))]
    status: Option<EmulatorStatus>,
    /// Only emulators that run from this snapshot
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Only emulators of this name
    #[arg(long)]
    name: Option<String>,
    /// Only emulators that carry these labels, such as team=maps,tier!=test,owner
    #[arg(short, long, value_name = "SELECTOR")]
    label_selector: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Create {
    /// The tenant that it is for: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    /// The snapshot that it boots from [default: the newest deployable promoted root]
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Start from the newest capture under this key, instead of a snapshot that is named
    #[arg(long, value_name = "KEY", conflicts_with = "snapshot")]
    restore_key: Option<String>,
    /// Key to look for where there is none under the first; one that ends in * stands for all that begin so. May be given up to five times
    #[arg(long = "fallback-key", value_name = "KEY", requires = "restore_key")]
    fallback_keys: Vec<String>,
    /// Do not start from a root where no key is found
    #[arg(long, requires = "restore_key")]
    restore_required: bool,
    /// Capture it when it is deleted with this outcome of its job
    #[arg(long, value_name = "WHEN", value_parser = one_of::<CaptureWhen>(CAPTURES))]
    capture: Option<CaptureWhen>,
    /// Key under which the capture is found again [default: the one to restore]
    #[arg(long, value_name = "KEY", requires = "capture")]
    capture_key: Option<String>,
    /// Make so many of the same snapshot
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with_all = ["wait", "keep_identity"])]
    count: Option<u32>,
    /// Which kind of device to take where no snapshot is named
    #[arg(long, value_name = "TYPE", value_parser = one_of::<DeviceType>(DEVICE_TYPES))]
    device_type: Option<DeviceType>,
    /// What to call it
    #[arg(long)]
    name: Option<String>,
    /// Label to write on it; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = tenants::label)]
    labels: Vec<(String, String)>,
    /// Delete it after so long, such as 90m or 12h [default: never]
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    expires_in: Option<u64>,
    /// Park it after nobody has used ADB for so long, such as 10m [default: never]
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    idle_timeout: Option<u64>,
    /// Make the same device for the same seed [default: one that nobody has seen before]
    #[arg(long, value_name = "SEED")]
    keep_identity: Option<String>,
    /// Wait until it is up, or so many seconds at most
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = patience)]
    wait: Option<Option<u64>>,
}

#[derive(Args)]
pub struct Get {
    /// Its id (emu_…) or its name
    emulator: String,
}

#[derive(Args)]
pub struct Status {
    /// Its id (emu_…) or its name
    emulator: String,
    /// Wait while it comes up or goes, or so many seconds at most
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = patience)]
    wait: Option<Option<u64>>,
}

#[derive(Args)]
pub struct Restart {
    /// Its id (emu_…) or its name
    emulator: String,
    /// Wait until it is up again, or so many seconds at most
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = patience)]
    wait: Option<Option<u64>>,
}

#[derive(Args)]
pub struct Swap {
    /// Its id (emu_…) or its name
    emulator: String,
    /// The snapshot that takes over
    snapshot: String,
    /// Wait until it is up, or so many seconds at most
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = patience)]
    wait: Option<Option<u64>>,
}

#[derive(Args)]
pub struct Park {
    /// Its id (emu_…) or its name
    emulator: String,
}

#[derive(Args)]
pub struct Delete {
    /// Its id (emu_…) or its name
    emulator: String,
    #[command(flatten)]
    removal: Removal,
    /// How its job ended; what it was created to have captured then is captured first
    #[arg(long, value_name = "OUTCOME", value_parser = one_of::<JobOutcome>(OUTCOMES))]
    outcome: Option<JobOutcome>,
    /// Wait until it is gone, or so many seconds at most
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = patience)]
    wait: Option<Option<u64>>,
}

pub const OUTCOMES: &[&str] = &["success", "failure"];
pub const CAPTURES: &[&str] = &["never", "success", "failure", "always"];

const STATUSES: &[&str] = &[
    "provisioning",
    "running",
    "restarting",
    "swapping",
    "parked",
    "unreachable",
    "failed",
    "terminating",
    "terminated",
];

impl Row for Emulator {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |emulator| emulator.name.clone()),
        Column::new("ID", |emulator| emulator.id.clone()),
        Column::new("STATUS", |emulator| word(&emulator.status)),
        Column::new("SNAPSHOT", |emulator| emulator.snapshot.name.clone()),
        Column::new("ADB", |emulator| adb(emulator).unwrap_or_default()),
        Column::new("AGE", |emulator| times::age(&emulator.created_at)),
        Column::wide("TYPE", |emulator| word(&emulator.device_type)),
        Column::wide("ANDROID", |emulator| emulator.android_version.clone()),
        Column::wide("SERIAL", |emulator| emulator.serial.clone()),
        Column::wide("TENANT", |emulator| emulator.tenant_id.clone()),
        Column::wide("OWNER", |emulator| emulator.owner_id.clone()),
        Column::wide("EXPIRES", |emulator| emulator.expires_at.clone().unwrap_or_else(|| "never".to_owned())),
        Column::wide("LABELS", |emulator| tenants::labels(&emulator.labels)),
    ];

    // Names may be taken more than once.
    fn name(&self) -> &str {
        self.id.as_str()
    }
}

/// A status, and whose it is.
struct StatusOf {
    id: String,
    report: EmulatorStatusReport,
}

impl Row for StatusOf {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", |of| of.id.clone()),
        Column::new("STATUS", |of| word(&of.report.status)),
        Column::new("REACHED", |of| reached(&of.report)),
        Column::new("REASON", |of| {
            of.report.status_reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default()
        }),
        Column::wide("INCARNATION", |of| of.report.incarnation.to_string()),
        Column::wide("ALLOWED", |of| of.report.allowed_actions.join(",")),
        Column::wide("UPDATED", |of| of.report.updated_at.clone()),
    ];

    fn name(&self) -> &str {
        &self.id
    }
}

pub async fn run(
    verb: Verb,
    connection: &Connection,
    client: &Client,
    output: Output,
) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Get(wanted) => {
            let id = id(&wanted.emulator, client).await?;
            output.one(&client.get_emulator(&id).await?.value)
        }
        Verb::Status(wanted) => status(&wanted, client, output).await,
        Verb::Logs(wanted) => {
            let id = id(&wanted.emulator, client).await?;
            logs::run(&id, wanted, connection, output).await
        }
        Verb::Restart(wanted) => restart(&wanted, client, output).await,
        Verb::Swap(wanted) => swap(wanted, client, output).await,
        Verb::Park(wanted) => {
            let id = id(&wanted.emulator, client).await?;
            output.one(&client.park_emulator(&id).await?.value)
        }
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let filter = ListEmulators {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        status: wanted.status,
        snapshot: wanted.snapshot,
        name: wanted.name,
        label_selector: wanted.label_selector,
        limit: None,
        cursor: None,
    };
    let get = async |page: ListPage| {
        let query = ListEmulators { limit: page.limit, cursor: page.cursor, ..filter.clone() };
        client.list_emulators(&query).await
    };
    wanted.pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant = wanted.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let identity =
        wanted.keep_identity.map(|seed| IdentitySpec { mode: IdentityMode::Keep, seed: Some(seed) });
    let spec = EmulatorSpec {
        tenant_id: tenants::optional_id(tenant, client).await?,
        name: wanted.name,
        snapshot: wanted.snapshot,
        restore: wanted.restore_key.map(|key| EmulatorRestoreSpec {
            key,
            fallback_keys: (!wanted.fallback_keys.is_empty()).then_some(wanted.fallback_keys),
            required: wanted.restore_required.then_some(true),
        }),
        capture: wanted.capture.map(|when| CaptureSpec { when, key: wanted.capture_key, labels: None }),
        ci: None,
        count: wanted.count,
        device_type: wanted.device_type,
        labels: (!wanted.labels.is_empty()).then(|| Labels(wanted.labels.into_iter().collect())),
        identity,
        expires_in_seconds: wanted.expires_in,
        idle_timeout_seconds: wanted.idle_timeout,
    };
    if spec.count.is_some() {
        return create_many(&spec, client, output).await;
    }
    let emulator = client.create_emulator(&spec).await?.value;
    let id = emulator.id.clone();
    let Some(limit) = wanted.wait else {
        output.created(&emulator, &id)?;
        if output.is_table() {
            output::notice(&format!("It is coming up. Next: paddock emulator status {id} --wait"));
        }
        return Ok(());
    };
    let (emulator, outcome) = come_up(emulator, limit, client, output).await;
    output.created(&emulator, &id)?;
    outcome?;
    next_step(&emulator, output);
    Ok(())
}

/// Shows those that were made; fails where some were not.
async fn create_many(spec: &EmulatorSpec, client: &Client, output: Output) -> Result<(), Failure> {
    let batch = client.create_emulators(spec).await?;
    let made: Vec<Emulator> = batch.items.iter().filter_map(|item| item.emulator.clone()).collect();
    output.list(&batch, &made)?;
    let refused: Vec<&EmulatorResult> = batch.items.iter().filter(|item| item.emulator.is_none()).collect();
    let Some(first) = refused.first().and_then(|item| item.problem.as_ref()) else { return Ok(()) };
    let message = format!("{} of {} were not made. {}", refused.len(), batch.items.len(), first.message);
    Err(Failure::NotReached(output::printable(&message)))
}

async fn status(wanted: &Status, client: &Client, output: Output) -> Result<(), Failure> {
    let id = id(&wanted.emulator, client).await?;
    let report = match wanted.wait {
        Some(limit) => settled(&id, limit, client, output).await?,
        None => client.get_emulator_status(&id, &Wait::default()).await?,
    };
    let of = StatusOf { id, report };
    output.list(&of.report, std::slice::from_ref(&of))
}

async fn restart(wanted: &Restart, client: &Client, output: Output) -> Result<(), Failure> {
    let id = id(&wanted.emulator, client).await?;
    let emulator = client.restart_emulator(&id).await?.value;
    let Some(limit) = wanted.wait else {
        return output.one(&emulator);
    };
    let (emulator, outcome) = come_up(emulator, limit, client, output).await;
    output.one(&emulator)?;
    outcome?;
    next_step(&emulator, output);
    Ok(())
}

async fn swap(wanted: Swap, client: &Client, output: Output) -> Result<(), Failure> {
    let id = id(&wanted.emulator, client).await?;
    let to = SnapshotSwap { snapshot: wanted.snapshot };
    let emulator = client.swap_snapshot(&id, &to).await?.value;
    let Some(limit) = wanted.wait else {
        return output.one(&emulator);
    };
    let (emulator, outcome) = come_up(emulator, limit, client, output).await;
    output.one(&emulator)?;
    outcome?;
    if emulator.snapshot.name == to.snapshot {
        next_step(&emulator, output);
        return Ok(());
    }
    let reason = emulator.status_reason.map(|reason| reason.message).unwrap_or_default();
    let message = format!("It runs on its old disk again. {reason}");
    Err(Failure::NotReached(output::printable(&message)))
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let id = id(&wanted.emulator, client).await?;
    let emulator = client.get_emulator(&id).await?.value;
    let what = output::printable(&format!("emulator {} ({id})", emulator.name));
    if !intent.agreed("delete", &what)? {
        return output.one(&emulator);
    }
    // Its version changes with every step that it takes by itself, so that none is named here.
    client.delete_emulator(&id, &DeleteEmulator { outcome: wanted.outcome }, None).await?;
    let Some(limit) = wanted.wait else {
        output::notice(&format!("Deleting {what}."));
        return Ok(());
    };
    match settled(&id, limit, client, output).await {
        // Nothing is left that could be asked.
        Err(Failure::Client(client::Error::Refused(problem))) if problem.status == 404 => {}
        Err(failure) => return Err(failure),
        Ok(report) if report.status == EmulatorStatus::Terminated => {}
        Ok(report) => return Err(not_reached(&id, "gone", &report)),
    }
    output::notice(&format!("Deleted {what}."));
    captured(&id, client).await.map(drop)
}

/// The snapshot that was captured of it before it went, if one was asked for; fails where it could not be.
pub async fn captured(id: &str, client: &Client) -> Result<Option<String>, Failure> {
    let capture = loop {
        let emulator = match client.get_emulator(id).await {
            Ok(emulator) => emulator.value,
            Err(client::Error::Refused(problem)) if problem.status == 404 => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(capture) = emulator.capture else { return Ok(None) };
        if capture.state != EmulatorCaptureState::Capturing {
            break capture;
        }
        // The device is gone, its disk is being sealed: a matter of moments.
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    match capture.state {
        EmulatorCaptureState::Failed => {
            let why = capture.problem.unwrap_or_default();
            Err(Failure::NotReached(output::printable(&format!("Nothing was captured. {why}"))))
        }
        EmulatorCaptureState::Capturing | EmulatorCaptureState::Captured => {
            let name = capture.snapshot.unwrap_or_default();
            output::notice(&output::printable(&format!("Captured {name}.")));
            Ok(Some(name))
        }
        EmulatorCaptureState::Pending | EmulatorCaptureState::NotAsked => Ok(None),
    }
}

/// Waits until it is up. It exists in any case, and is shown as it is then.
pub async fn come_up(
    emulator: Emulator,
    limit: Option<u64>,
    client: &Client,
    output: Output,
) -> (Emulator, Result<(), Failure>) {
    let outcome = match settled(&emulator.id, limit, client, output).await {
        Ok(report) if report.status == EmulatorStatus::Running => Ok(()),
        Ok(report) => Err(not_reached(&emulator.id, "up", &report)),
        Err(failure) => Err(failure),
    };
    match client.get_emulator(&emulator.id).await {
        Ok(now) => (now.value, outcome),
        Err(error) => (emulator, outcome.and(Err(error.into()))),
    }
}

/// Waits while it comes up or goes, and tells the user how far it is; returns where it is at the end.
pub async fn settled(
    id: &str,
    limit: Option<u64>,
    client: &Client,
    output: Output,
) -> Result<EmulatorStatusReport, Failure> {
    let start = Instant::now();
    let limit = limit.map(Duration::from_secs);
    let mut progress = Progress::new(output);
    loop {
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
        let wait = left.map_or(A_WHILE, |left| left.min(A_WHILE)).as_secs_f64().ceil() as u32;
        match client.get_emulator_status(id, &Wait { wait: Some(wait) }).await {
            Ok(report) => {
                progress.show(id, &report, start.elapsed());
                let over = limit.is_some_and(|limit| start.elapsed() >= limit);
                if over || !is_on_the_way(report.status) {
                    return Ok(report);
                }
            }
            // It is only the question that comes too often.
            Err(client::Error::Refused(problem)) if problem.status == 429 && left != Some(Duration::ZERO) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

const fn is_on_the_way(status: EmulatorStatus) -> bool {
    matches!(
        status,
        EmulatorStatus::Provisioning
            | EmulatorStatus::Restarting
            | EmulatorStatus::Swapping
            | EmulatorStatus::Terminating
    )
}

pub fn not_reached(id: &str, wanted: &str, report: &EmulatorStatusReport) -> Failure {
    let why = report.status_reason.as_ref().map(|reason| format!(" {}", reason.message)).unwrap_or_default();
    let status = word(&report.status);
    if is_on_the_way(report.status) {
        let again = format!("Wait on: paddock emulator status {id} --wait");
        Failure::NotReached(format!("The emulator {id} is not {wanted} yet; it is {status}.{why} {again}"))
    } else {
        Failure::NotReached(format!("The emulator {id} is not {wanted}; it is {status}.{why}"))
    }
}

fn next_step(emulator: &Emulator, output: Output) {
    if let Some(address) = adb(emulator).filter(|_| output.is_table()) {
        output::notice(&output::printable(&format!("It is up. Next: adb connect {address}")));
    }
}

/// Where ADB answers, as `adb connect` takes it.
pub fn adb(emulator: &Emulator) -> Option<String> {
    emulator.endpoints.adb.as_ref().map(|adb| format!("{}:{}", adb.host, adb.port))
}

/// The steps that lie behind it.
fn reached(report: &EmulatorStatusReport) -> String {
    let done = report.conditions.iter().filter(|step| step.status == ConditionStatus::True);
    done.map(|step| word(&step.r#type)).collect::<Vec<_>>().join(",")
}

/// A line on standard error that says how far it is: rewritten on a terminal, and elsewhere written anew where it
/// differs.
struct Progress {
    wanted: bool,
    terminal: bool,
    last: String,
}

impl Progress {
    fn new(output: Output) -> Progress {
        Progress { wanted: output.is_table(), terminal: io::stderr().is_terminal(), last: String::new() }
    }

    fn show(&mut self, id: &str, report: &EmulatorStatusReport, elapsed: Duration) {
        if !self.wanted {
            return;
        }
        let line = output::printable(&progress_line(id, report));
        if self.terminal {
            // Where standard error is closed there is nobody left to tell.
            let _ = write!(io::stderr(), "\r\x1b[K{line} {}s", elapsed.as_secs());
        } else if line != self.last {
            output::notice(&line);
        }
        self.last = line;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && !self.last.is_empty() {
            output::notice("");
        }
    }
}

fn progress_line(id: &str, report: &EmulatorStatusReport) -> String {
    let (status, reached) = (word(&report.status), reached(report));
    if reached.is_empty() { format!("{id}: {status}") } else { format!("{id}: {status} ({reached})") }
}

/// The id of the emulator; one that is given as an id need not exist.
pub async fn id(id_or_name: &str, client: &Client) -> Result<String, Failure> {
    if id_or_name.starts_with("emu_") {
        return Ok(id_or_name.to_owned());
    }
    if id_or_name.is_empty() {
        return Err(Failure::Usage("no emulator has an empty name; give its id or its name".to_owned()));
    }
    let query = ListEmulators { name: Some(id_or_name.to_owned()), ..ListEmulators::default() };
    let mut found = match client.list_emulators(&query).await {
        Ok(page) => page.items,
        // A text that is no name names an emulator that does not exist.
        Err(client::Error::Refused(problem)) if problem.code == "invalid_parameter" => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    found.retain(|emulator| emulator.name == id_or_name);
    match &found[..] {
        [] => {
            Err(Failure::NotFound(format!("There is no emulator named {id_or_name}, or you may not see it.")))
        }
        [emulator] => Ok(emulator.id.clone()),
        several => {
            let ids = several.iter().map(|emulator| emulator.id.as_str()).collect::<Vec<_>>().join(", ");
            Err(Failure::Usage(format!("more than one emulator is named {id_or_name}; give an id: {ids}")))
        }
    }
}

fn patience(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "after --wait come seconds or nothing; put the emulator before it")
}
