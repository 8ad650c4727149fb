//! Restores: a backup becomes a snapshot again.

use std::time::Duration;

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::page::ListPage;
use paddock_api::restores::{ListRestores, Restore, RestorePhase, RestoreSpec};

use crate::backups::Meter;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::snapshots::size;
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock restore create backup-01jcr8e8v0e9bvqz3tz4d0wq2h --name with-maps-again --wait
  paddock restore list
  paddock restore get restore-01jcr8e8v0e9bvqz3tz4d0wq2h";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock restore create backup-01jcr8e8v0e9bvqz3tz4d0wq2h
  paddock restore create backup-01jcr8e8v0e9bvqz3tz4d0wq2h --name with-maps-again --wait

The new snapshot can be deployed once a throw-away clone of it has booted: paddock snapshot get NAME.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the restores that you may see, newest first
    List(List),
    /// Show one restore
    #[command(visible_alias = "show")]
    Get(Get),
    /// Make a snapshot of a backup
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
}

#[derive(Args)]
pub struct List {
    /// Only restores of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only those of this backup (backup-…)
    #[arg(long)]
    backup: Option<String>,
    /// Only those in this phase
    #[arg(long, value_parser = one_of::<RestorePhase>(&["queued", "running", "completed", "failed"]))]
    phase: Option<RestorePhase>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Its name (restore-…)
    restore: String,
}

#[derive(Args)]
pub struct Create {
    /// The backup (backup-…)
    backup: String,
    /// What the new snapshot is to be called
    #[arg(long)]
    name: Option<String>,
    /// Wait until every byte is back
    #[arg(long)]
    wait: bool,
}

impl Row for Restore {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |restore| restore.pod_name.clone()),
        Column::new("SNAPSHOT", |restore| restore.snapshot.clone()),
        Column::new("PHASE", |restore| word(&restore.phase)),
        Column::new("DONE", |restore| size(restore.progress.bytes_done)),
        Column::new("AGE", |restore| times::age(&restore.created_at)),
        Column::wide("BACKUP", |restore| restore.backup.clone()),
        Column::wide("TENANT", |restore| restore.tenant_id.clone()),
    ];

    fn name(&self) -> &str {
        &self.pod_name
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&client.get_restore(&wanted.restore).await?.value),
        Verb::Create(wanted) => create(wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let filters = ListRestores {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        backup: wanted.backup,
        phase: wanted.phase,
        ..ListRestores::default()
    };
    let get = async |page: ListPage| {
        let query = ListRestores { limit: page.limit, cursor: page.cursor, ..filters.clone() };
        client.list_restores(&query).await
    };
    wanted.pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let spec = RestoreSpec { backup: wanted.backup, name: wanted.name };
    let mut restore = client.create_restore(&spec).await?.value;
    let name = restore.pod_name.clone();
    let mut meter = Meter::new();
    while wanted.wait && matches!(restore.phase, RestorePhase::Queued | RestorePhase::Running) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        restore = client.get_restore(&name).await?.value;
        meter.show(&restore.progress);
    }
    meter.end();
    output.created(&restore, &name)?;
    if wanted.wait && restore.phase != RestorePhase::Completed {
        let why = restore.error.map(|error| error.message).unwrap_or_default();
        return Err(Failure::NotReached(output::printable(&format!("The restore {name} has failed: {why}"))));
    }
    if output.is_table() {
        output::notice(&format!("Next: paddock snapshot get {}", restore.snapshot));
    }
    Ok(())
}
