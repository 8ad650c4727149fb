//! Tenants: the walls between customers.

use clap::{Args, Subcommand};
use paddock_api::client::{self, Client, Versioned};
use paddock_api::labels::Labels;
use paddock_api::page::ListPage;
use paddock_api::tenants::{ListTenants, Tenant, TenantSpec};

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};

pub const EXAMPLES: &str = "\
Examples:
  paddock tenant create acme --display-name 'Acme Motors' --label team=maps
  paddock tenant list
  paddock tenant update acme --label tier=gold
  paddock tenant delete acme --dry-run";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock tenant list
  paddock tenant list -l team=maps,tier!=test,owner      all three must hold
  paddock tenant list --limit 10 -o wide
  paddock tenant list -o json | jq -r '.items[].id'";

const GET_EXAMPLES: &str = "\
Examples:
  paddock tenant get acme
  paddock tenant get ten_01jcr8e8v0e9bvqz3tz4d0wq2h -o yaml";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock tenant create acme --display-name 'Acme Motors' --label team=maps --label tier=gold
  id=$(paddock tenant create acme)       into a pipe or a variable goes only the id";

const UPDATE_EXAMPLES: &str = "\
Examples:
  paddock tenant update acme --display-name 'Acme Motors GmbH'
  paddock tenant update acme --name acme-motors
  paddock tenant update acme --label tier=gold --remove-label owner

What you do not name stays as it is. If somebody else changes the tenant at the same time, nothing is \
overwritten: the exit code is 6, and you can run the command again.";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock tenant delete acme                 asks you first
  paddock tenant delete acme --dry-run       shows what would go, and deletes nothing
  paddock tenant delete acme --yes           for scripts";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the tenants that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Show one tenant
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
    /// Make a tenant
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Change a tenant
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update),
    /// Delete a tenant
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
}

#[derive(Args)]
pub struct List {
    /// Only the tenant of this name
    #[arg(long)]
    name: Option<String>,
    /// Only tenants that carry these labels, such as team=maps,tier!=test,owner
    #[arg(short, long, value_name = "SELECTOR")]
    label_selector: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Its id (ten_…) or its name
    tenant: String,
}

#[derive(Args)]
pub struct Create {
    /// Unique; lower-case letters, digits and inner hyphens
    name: String,
    /// Name for people [default: the name]
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Label to write on it; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

#[derive(Args)]
pub struct Update {
    /// Its id (ten_…) or its name
    tenant: String,
    #[command(flatten)]
    changes: Changes,
}

#[derive(Args, Default)]
#[group(required = true, multiple = true)]
struct Changes {
    /// Its new name
    #[arg(long)]
    name: Option<String>,
    /// Its new name for people
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Label to write on it or to change; may be given more than once
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Label to take off it; may be given more than once
    #[arg(long = "remove-label", value_name = "KEY")]
    removed_labels: Vec<String>,
}

#[derive(Args)]
pub struct Delete {
    /// Its id (ten_…) or its name
    tenant: String,
    #[command(flatten)]
    removal: Removal,
}

/// The tenant that a command works in.
#[derive(Args)]
pub struct InTenant {
    /// The tenant: its id (ten_…) or its name
    #[arg(long, value_name = "TENANT", env = "PADDOCK_TENANT")]
    pub tenant: String,
}

impl InTenant {
    pub async fn id(&self, client: &Client) -> Result<String, Failure> {
        id(&self.tenant, client).await
    }
}

impl Row for Tenant {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |tenant| tenant.name.clone()),
        Column::new("ID", |tenant| tenant.id.clone()),
        Column::new("DISPLAY NAME", |tenant| tenant.display_name.clone()),
        Column::new("CREATED", |tenant| tenant.created_at.clone()),
        Column::wide("UPDATED", |tenant| tenant.updated_at.clone()),
        Column::wide("LABELS", |tenant| labels(&tenant.labels)),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&find(&wanted.tenant, client).await?.value),
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Update(wanted) => update(wanted, client, output).await,
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let List { name, label_selector, pages } = wanted;
    let get = async |page: ListPage| {
        let (name, label_selector) = (name.clone(), label_selector.clone());
        let query = ListTenants { name, label_selector, limit: page.limit, cursor: page.cursor };
        client.list_tenants(&query).await
    };
    pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let labels = Labels(wanted.labels.into_iter().collect());
    let spec = TenantSpec { name: wanted.name, display_name: wanted.display_name, labels };
    let tenant = client.create_tenant(&spec).await?.value;
    output.created(&tenant, &tenant.id)
}

async fn update(wanted: Update, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant = find(&wanted.tenant, client).await?;
    let id = tenant.value.id.clone();
    let spec = wanted.changes.made_to(tenant.value);
    output.one(&client.update_tenant(&id, &spec, tenant.etag.as_deref()).await?.value)
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let Versioned { value: tenant, etag } = find(&wanted.tenant, client).await?;
    let what = output::printable(&format!("tenant {} ({})", tenant.name, tenant.id));
    if !intent.agreed("delete", &what)? {
        return output.one(&tenant);
    }
    // What goes is what was asked about, not what it has become since.
    client.delete_tenant(&tenant.id, etag.as_deref()).await?;
    output::notice(&format!("Deleted {what}."));
    Ok(())
}

async fn find(id_or_name: &str, client: &Client) -> Result<Versioned<Tenant>, Failure> {
    Ok(client.get_tenant(&id(id_or_name, client).await?).await?)
}

/// The id of the tenant; one that is given as an id need not exist.
pub async fn id(id_or_name: &str, client: &Client) -> Result<String, Failure> {
    // No name holds an underscore.
    if id_or_name.starts_with("ten_") {
        return Ok(id_or_name.to_owned());
    }
    if id_or_name.is_empty() {
        return Err(Failure::Usage("the tenant has no empty name; name it with --tenant".to_owned()));
    }
    let query = ListTenants { name: Some(id_or_name.to_owned()), ..ListTenants::default() };
    let found = match client.list_tenants(&query).await {
        Ok(page) => page.items.into_iter().find(|tenant| tenant.name == id_or_name),
        // A text that is no name names a tenant that does not exist.
        Err(client::Error::Refused(problem)) if problem.code == "invalid_parameter" => None,
        Err(error) => return Err(error.into()),
    };
    found.map(|tenant| tenant.id).ok_or_else(|| {
        Failure::NotFound(format!("There is no tenant named {id_or_name}, or you may not see it."))
    })
}

pub async fn optional_id(id_or_name: Option<&str>, client: &Client) -> Result<Option<String>, Failure> {
    match id_or_name {
        Some(tenant) => id(tenant, client).await.map(Some),
        None => Ok(None),
    }
}

/// An object such as emulator:emu_…; of a tenant, the name will do.
pub async fn object(text: String, client: &Client) -> Result<String, Failure> {
    match text.strip_prefix("tenant:") {
        Some(tenant) => Ok(format!("tenant:{}", id(tenant, client).await?)),
        None => Ok(text),
    }
}

impl Changes {
    /// What is to be said of the tenant now; what was not named stays.
    fn made_to(self, tenant: Tenant) -> TenantSpec {
        let Labels(mut labels) = tenant.labels;
        labels.retain(|key, _| !self.removed_labels.contains(key));
        labels.extend(self.labels);
        TenantSpec {
            name: self.name.unwrap_or(tenant.name),
            display_name: Some(self.display_name.unwrap_or(tenant.display_name)),
            labels: Labels(labels),
        }
    }
}

/// Labels, as a table shows them.
pub fn labels(labels: &Labels) -> String {
    labels.0.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// A label, as a command line takes it.
pub fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key=value"),
    }
}

#[cfg(test)]
mod tests {
    use paddock_api::labels::Labels;
    use paddock_api::tenants::{Tenant, TenantSpec};

    use super::{Changes, label};

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn spec(name: &str, display_name: &str, pairs: &[(&str, &str)]) -> TenantSpec {
        TenantSpec {
            name: name.to_owned(),
            display_name: Some(display_name.to_owned()),
            labels: Labels(labels(pairs).into_iter().collect()),
        }
    }

    #[test]
    fn an_update_keeps_what_is_not_named() {
        let tenant = Tenant {
            id: "ten_01jcr8e8v0e9bvqz3tz4d0wq2h".to_owned(),
            name: "acme".to_owned(),
            display_name: "Acme Motors".to_owned(),
            labels: Labels(labels(&[("team", "maps"), ("tier", "test")]).into_iter().collect()),
            created_at: "2026-11-15T04:00:00Z".to_owned(),
            updated_at: "2026-11-15T04:00:00Z".to_owned(),
        };
        let unchanged = [("team", "maps"), ("tier", "test")];

        for (changes, expected) in [
            (
                Changes { name: Some("ajax".to_owned()), ..Changes::default() },
                spec("ajax", "Acme Motors", &unchanged),
            ),
            (
                Changes { display_name: Some("A".to_owned()), ..Changes::default() },
                spec("acme", "A", &unchanged),
            ),
            (
                Changes { labels: labels(&[("tier", "gold"), ("new", "")]), ..Changes::default() },
                spec("acme", "Acme Motors", &[("new", ""), ("team", "maps"), ("tier", "gold")]),
            ),
            (
                Changes {
                    removed_labels: vec!["tier".to_owned(), "absent".to_owned()],
                    ..Changes::default()
                },
                spec("acme", "Acme Motors", &[("team", "maps")]),
            ),
        ] {
            assert_eq!(changes.made_to(tenant.clone()), expected);
        }
    }

    #[test]
    fn a_label_is_a_key_and_a_value() {
        for (text, expected) in [
            ("team=maps", Some(("team", "maps"))),
            ("team=", Some(("team", ""))),
            ("a=b=c", Some(("a", "b=c"))),
            ("team", None),
            ("=maps", None),
        ] {
            let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
            assert_eq!(label(text).ok(), expected, "{text}");
        }
    }
}
