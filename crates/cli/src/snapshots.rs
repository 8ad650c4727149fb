//! Snapshots: what emulators boot from.

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::emulators::DeviceType;
use paddock_api::page::ListPage;
use paddock_api::snapshots::{ListSnapshots, Snapshot};

use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{Column, Output, Row};
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock snapshot list --deployable
  paddock snapshot get paddock-phone-3fe30cce5940 -o yaml";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock snapshot list
  paddock snapshot list --root --device-type phone
  paddock snapshot list --tenant acme -l team=maps -o wide
  paddock snapshot list --deployable --limit 1 -o name      the newest that can be deployed";

const GET_EXAMPLES: &str = "\
Examples:
  paddock snapshot get paddock-phone-3fe30cce5940
  paddock snapshot get paddock-phone-3fe30cce5940 -o json | jq -r .checksum";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the snapshots that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Show one snapshot
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
}

#[derive(Args)]
pub struct List {
    /// Only snapshots of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    /// Only snapshots that can be deployed
    #[arg(long)]
    deployable: bool,
    /// Only promoted roots
    #[arg(long)]
    root: bool,
    /// Only snapshots of this kind of device
    #[arg(long, value_name = "TYPE", value_parser = one_of::<DeviceType>(DEVICE_TYPES))]
    device_type: Option<DeviceType>,
    /// Only snapshots that carry these labels, such as team=maps,tier!=test,owner
    #[arg(short, long, value_name = "SELECTOR")]
    label_selector: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Its name
    snapshot: String,
}

pub const DEVICE_TYPES: &[&str] = &["phone", "tablet", "automotive", "tv", "wear"];

impl Row for Snapshot {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |snapshot| snapshot.name.clone()),
        Column::new("STATE", |snapshot| word(&snapshot.state)),
        Column::new("DEPLOYABLE", |snapshot| yes_or_no(snapshot.deployable)),
        Column::new("ROOT", |snapshot| yes_or_no(snapshot.root)),
        Column::new("TYPE", |snapshot| word(&snapshot.android.device_type)),
        Column::new("ANDROID", |snapshot| snapshot.android.version.clone()),
        Column::new("SIZE", |snapshot| size(snapshot.size_bytes)),
        Column::new("AGE", |snapshot| times::age(&snapshot.created_at)),
        Column::wide("ALLOCATED", |snapshot| size(snapshot.allocated_bytes)),
        Column::wide("ABI", |snapshot| snapshot.android.abi.clone()),
        Column::wide("PARENT", |snapshot| snapshot.parent.clone().unwrap_or_default()),
        Column::wide("TENANT", |snapshot| snapshot.tenant_id.clone().unwrap_or_default()),
        Column::wide("USES", |snapshot| snapshot.use_count.to_string()),
        Column::wide("PROBLEMS", |snapshot| snapshot.deployable_problems.join(",")),
        Column::wide("LABELS", |snapshot| tenants::labels(&snapshot.labels)),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&client.get_snapshot(&wanted.snapshot).await?.value),
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let filter = ListSnapshots {
        tenant_id: tenants::optional_id(wanted.tenant.as_deref(), client).await?,
        deployable: wanted.deployable.then_some(true),
        root: wanted.root.then_some(true),
        device_type: wanted.device_type,
        label_selector: wanted.label_selector,
        limit: None,
        cursor: None,
    };
    let get = async |page: ListPage| {
        let query = ListSnapshots { limit: page.limit, cursor: page.cursor, ..filter.clone() };
        client.list_snapshots(&query).await
    };
    wanted.pages.show(output, get).await
}

fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

/// So many bytes, in the unit that people would name.
fn size(bytes: i64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = None;
    let mut amount = bytes as f64;
    for larger in UNITS {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = Some(larger);
    }
    unit.map_or_else(|| format!("{bytes} B"), |unit| format!("{amount:.1} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_size_is_shown_in_a_fitting_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (7_217_152, "6.9 MiB"),
            (2_147_483_648, "2.0 GiB"),
            (5 << 50, "5120.0 TiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
