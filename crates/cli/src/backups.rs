//! Backups: what a disk held, kept apart from the pool.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::backups::{Backup, BackupPhase, BackupSource, BackupSpec, ListBackups, TransferProgress};
use paddock_api::client::{Client, Versioned};
use paddock_api::labels::Labels;
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::emulators;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::snapshots::size;
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock backup create --snapshot with-maps-installed --wait
  paddock backup create --emulator maps-nightly --expires-in 30d
  paddock backup list --phase completed
  paddock restore create backup-01jcr8e8v0e9bvqz3tz4d0wq2h --wait";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock backup create --snapshot with-maps-installed
  paddock backup create --emulator maps-nightly --wait           it keeps running
  paddock backup create --volume dsk_01jcr8e8v0e9bvqz3tz4d0wq2h --expires-in 30d --label team=maps

Of a disk that stands on what was backed up before, only the difference is read.";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock backup list
  paddock backup list --tenant acme --snapshot with-maps-installed
  paddock backup list --phase completed --limit 1 -o name        the newest that can be restored";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock backup delete backup-01jcr8e8v0e9bvqz3tz4d0wq2h            asks you first
  paddock backup delete backup-01jcr8e8v0e9bvqz3tz4d0wq2h --yes      for scripts

One that is under way is given up.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the backups that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Show one backup
    #[command(visible_alias = "show")]
    Get(Get),
    /// Back up a snapshot, or an emulator while it runs
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Delete a backup, or give up one that is under way
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
}

const PHASES: &[&str] = &["queued", "running", "completed", "failed", "deleting"];

#[derive(Args)]
pub struct List {
    /// Only backups of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only those of this snapshot
    #[arg(long)]
    snapshot: Option<String>,
    /// Only those in this phase
    #[arg(long, value_parser = one_of::<BackupPhase>(PHASES))]
    phase: Option<BackupPhase>,
    /// Only those with these labels, such as team=maps,tier!=test
    #[arg(short = 'l', long = "selector", value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Its name (backup-…)
    backup: String,
}

#[derive(Args)]
pub struct Create {
    /// The snapshot to back up
    #[arg(long, required_unless_present_any = ["emulator", "volume"], conflicts_with_all = ["emulator", "volume"])]
    snapshot: Option<String>,
    /// The emulator whose disk to back up: its id (emu_…) or its name
    #[arg(long, conflicts_with = "volume")]
    emulator: Option<String>,
    /// The disk to back up (dsk_…)
    #[arg(long)]
    volume: Option<String>,
    /// The tenant: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    /// A label, as often as you like
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = tenants::label)]
    labels: Vec<(String, String)>,
    /// After this long it is deleted by itself, such as 30d
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    expires_in: Option<u64>,
    /// Wait until it is done
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub struct Delete {
    /// Its name (backup-…)
    backup: String,
    #[command(flatten)]
    removal: Removal,
}

impl Row for Backup {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |backup| backup.pod_name.clone()),
        Column::new("SOURCE", |backup| source(&backup.source).to_owned()),
        Column::new("PHASE", |backup| word(&backup.phase)),
        Column::new("DISK", |backup| backup.disk_bytes.map(size).unwrap_or_default()),
        Column::new("ADDED", |backup| backup.added_bytes.map(size).unwrap_or_default()),
        Column::new("AGE", |backup| times::age(&backup.created_at)),
        Column::wide("READ", |backup| size(backup.progress.bytes_done)),
        Column::wide("TENANT", |backup| backup.tenant_id.clone()),
        Column::wide("EXPIRES", |backup| backup.expires_at.clone().unwrap_or_default()),
        Column::wide("LABELS", |backup| tenants::labels(&backup.labels)),
        Column::wide("LOCATION", |backup| backup.location.clone().unwrap_or_default()),
    ];

    fn name(&self) -> &str {
        &self.pod_name
    }
}

fn source(source: &BackupSource) -> &str {
    let BackupSource { emulator_id, snapshot, volume } = source;
    snapshot.as_deref().or(emulator_id.as_deref()).or(volume.as_deref()).unwrap_or_default()
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&client.get_backup(&wanted.backup).await?.value),
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let filters = ListBackups {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        snapshot: wanted.snapshot,
        phase: wanted.phase,
        label_selector: wanted.selector,
        ..ListBackups::default()
    };
    let get = async |page: ListPage| {
        let query = ListBackups { limit: page.limit, cursor: page.cursor, ..filters.clone() };
        client.list_backups(&query).await
    };
    wanted.pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let emulator_id = match &wanted.emulator {
        Some(emulator) => Some(emulators::id(emulator, client).await?),
        None => None,
    };
    let tenant = wanted.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let spec = BackupSpec {
        tenant_id: tenants::optional_id(tenant, client).await?,
        source: BackupSource { emulator_id, snapshot: wanted.snapshot, volume: wanted.volume },
        labels: (!wanted.labels.is_empty()).then(|| Labels(wanted.labels.into_iter().collect())),
        expires_in_seconds: wanted.expires_in.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
    };
    let mut backup = client.create_backup(&spec).await?.value;
    let name = backup.pod_name.clone();
    let mut meter = Meter::new();
    while wanted.wait && matches!(backup.phase, BackupPhase::Queued | BackupPhase::Running) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        backup = client.get_backup(&name).await?.value;
        meter.show(&backup.progress);
    }
    meter.end();
    output.created(&backup, &name)?;
    if wanted.wait && backup.phase != BackupPhase::Completed {
        let why = backup.error.map_or_else(|| "somebody has deleted it".to_owned(), |error| error.message);
        return Err(Failure::NotReached(output::printable(&format!("The backup {name} has failed: {why}"))));
    }
    if !wanted.wait && output.is_table() {
        output::notice(&format!("It is on its way. Next: paddock backup get {name}"));
    }
    Ok(())
}

/// How far something has come, for whoever looks on.
pub struct Meter {
    shown: bool,
    terminal: bool,
}

impl Meter {
    pub fn new() -> Meter {
        Meter { shown: false, terminal: io::stderr().is_terminal() }
    }

    pub fn show(&mut self, progress: &TransferProgress) {
        if self.terminal && progress.bytes_total > 0 {
            let percent = progress.bytes_done.saturating_mul(100) / progress.bytes_total;
            let _ = write!(io::stderr(), "\r{percent:3} % of {}   ", size(progress.bytes_total));
            self.shown = true;
        }
    }

    pub fn end(self) {
        if self.shown {
            let _ = writeln!(io::stderr());
        }
    }
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let Versioned { value: backup, .. } = client.get_backup(&wanted.backup).await?;
    let what = output::printable(&format!("{} of {}", backup.pod_name, source(&backup.source)));
    if !intent.agreed("delete", &what)? {
        return output.one(&backup);
    }
    client.delete_backup(&backup.pod_name, None).await?;
    output::notice(&format!("Deleting {what}."));
    Ok(())
}
