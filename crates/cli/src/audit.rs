//! The audit: who did what, by which credential, and what became of it.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use paddock_api::audit::{Event, ListEvents, Outcome};
use paddock_api::client::Client;
use paddock_api::page::ListPage;

use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{Column, Output, Row};
use crate::words::{one_of, word};
use crate::{subjects, tenants, times};

pub const EXAMPLES: &str = "\
Examples:
  paddock audit list --tenant acme
  paddock audit list --actor ada --since 24h
  paddock audit list --action members. --outcome refused --all
  paddock audit list --object tenant:acme --since 2026-11-01 --until 2026-12-01 --all -o json";

/// How many events are shown where nobody says how many; there is no end to them.
const DEFAULT_LIMIT: u32 = 50;

#[derive(Subcommand)]
pub enum Verb {
    /// Show every change and every refusal that you may see, newest first
    #[command(after_help = EXAMPLES)]
    List(List),
}

#[derive(Args)]
pub struct List {
    /// Only events of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only what this one did: a user's login or id (usr_…), or a machine's name, such as cluster/ci/runner
    #[arg(long, value_name = "SUBJECT")]
    actor: Option<String>,
    /// Only this action, such as members.add; with a point at the end, all that begin so
    #[arg(long)]
    action: Option<String>,
    /// Only what concerns this object, such as group:grp_… or tenant:acme
    #[arg(long)]
    object: Option<String>,
    /// Only what was carried out, or only what was refused
    #[arg(long, value_parser = one_of::<Outcome>(&["done", "refused"]))]
    outcome: Option<Outcome>,
    /// Only from this time on, such as 2026-11-15T04:00:00Z, 2026-11-15, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    since: Option<Timestamp>,
    /// Only before this time
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    until: Option<Timestamp>,
    /// Show at most this many [default: 50]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show them all, however many pages it takes
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier list ended: its nextCursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl Row for Event {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("TIME", |event| event.occurred_at.clone()),
        Column::new("ACTOR", |event| event.actor.clone().unwrap_or_else(|| "nobody known".to_owned())),
        Column::new("ACTION", |event| event.action.clone()),
        Column::new("OBJECT", |event| event.object.clone()),
        Column::new("OUTCOME", outcome),
        Column::wide("TENANT", |event| event.tenant_id.clone().unwrap_or_default()),
        Column::wide("CREDENTIAL", |event| event.credential.clone().unwrap_or_default()),
        Column::wide("ADDRESS", |event| event.address.clone().unwrap_or_default()),
        Column::wide("REQUEST", |event| event.request_id.clone()),
        Column::wide("DETAILS", |event| event.details.to_string()),
    ];

    fn name(&self) -> &str {
        &self.id
    }
}

fn outcome(event: &Event) -> String {
    match &event.code {
        Some(code) => format!("{} ({code})", word(&event.outcome)),
        None => word(&event.outcome),
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    let Verb::List(wanted) = verb;
    let limit = if wanted.all { None } else { Some(wanted.limit.unwrap_or(DEFAULT_LIMIT)) };
    let filter = ListEvents {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        actor: match wanted.actor {
            Some(actor) => Some(subjects::find(&actor, client).await?.to_string()),
            None => None,
        },
        action: wanted.action,
        object: match wanted.object {
            Some(object) => Some(tenants::object(object, client).await?),
            None => None,
        },
        outcome: wanted.outcome,
        since: wanted.since.map(|time| time.to_string()),
        until: wanted.until.map(|time| time.to_string()),
        limit: None,
        cursor: None,
    };
    let get = async |page: ListPage| {
        let query = ListEvents { limit: page.limit, cursor: page.cursor, ..filter.clone() };
        client.list_events(&query).await
    };
    Pages { limit, cursor: wanted.cursor }.show(output, get).await
}
