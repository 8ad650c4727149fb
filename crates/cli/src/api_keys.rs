//! API keys: what opens the device API.

use clap::{Args, Subcommand};
use paddock_api::api_keys::{ApiKey, ApiKeyScope, ApiKeySpec, ListApiKeys};
use paddock_api::client::Client;
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::tenants;
use crate::times;
use crate::words::{one_of, words};

pub const EXAMPLES: &str = "\
Examples:
  paddock api-key create 'CI of the maps app' --tenant acme --scope device:read --scope device:write
  paddock api-key list
  paddock api-key delete key_01jcr8e8v0e9bvqz3tz4d0wq2h";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock api-key create ci --tenant acme --scope device:read
  paddock api-key create ci --tenant acme --scope device:write --expires-in 30d > key
  paddock api-key create ci --tenant acme --scope device:read -o json

Standard output gets only the key, which is shown once and never again; -o json and -o yaml give everything about it. \
It ends when you leave the tenant.";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock api-key delete key_01jcr8e8v0e9bvqz3tz4d0wq2h            asks you first
  paddock api-key delete key_01jcr8e8v0e9bvqz3tz4d0wq2h --yes      for scripts

It opens nothing from then on.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show your keys, and those of the tenants whose members you manage
    List(List),
    /// Make a key and show it, once
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Show what may be known of a key
    Get(Get),
    /// Revoke a key
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
}

#[derive(Args)]
pub struct List {
    /// Only keys of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Create {
    /// What it is for
    name: String,
    /// The tenant that it opens: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    /// What it may do; may be given more than once
    #[arg(long = "scope", required = true, value_name = "SCOPE", value_parser = one_of::<ApiKeyScope>(&["device:read", "device:write"]))]
    scopes: Vec<ApiKeyScope>,
    /// How long it is valid, such as 12h or 30d, a year at most [default: 90d]
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    expires_in: Option<u64>,
}

#[derive(Args)]
pub struct Get {
    /// Its id (key_…)
    key: String,
}

#[derive(Args)]
pub struct Delete {
    /// Its id (key_…)
    key: String,
    #[command(flatten)]
    removal: Removal,
}

impl Row for ApiKey {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |key| key.name.clone()),
        Column::new("ID", |key| key.id.clone()),
        Column::new("KEY", |key| key.hint.clone()),
        Column::new("SCOPES", |key| words(&key.scopes)),
        Column::new("EXPIRES", |key| key.expires_at.clone()),
        Column::new("LAST USED", |key| key.last_used_at.clone().unwrap_or_else(|| "never".to_owned())),
        Column::wide("TENANT", |key| key.tenant_id.clone()),
        Column::wide("OWNER", |key| key.owner_id.clone()),
        Column::wide("CREATED", |key| key.created_at.clone()),
    ];

    fn name(&self) -> &str {
        self.id.as_str()
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&client.get_api_key(&wanted.key).await?),
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant_id = tenants::optional_id(wanted.tenant.as_deref(), client).await?;
    let get = async |page: ListPage| {
        let tenant_id = tenant_id.clone();
        client.list_api_keys(&ListApiKeys { tenant_id, limit: page.limit, cursor: page.cursor }).await
    };
    wanted.pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant = wanted.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let key = client
        .create_api_key(&ApiKeySpec {
            tenant_id: tenants::optional_id(tenant, client).await?,
            name: wanted.name,
            scopes: wanted.scopes,
            expires_in_seconds: wanted.expires_in,
        })
        .await?;
    let Some(secret) = &key.key else {
        return Err(Failure::Lost(format!(
            "The key {id} was made, but the answer that held it did not arrive, and it is not told again. Delete it \
             and make another: paddock api-key delete {id}",
            id = key.id
        )));
    };
    output.secret(&key, secret)?;
    output::notice(&output::printable(&format!(
        "Shown once: keep it now. Its id is {}, and it is valid until {}.",
        key.id, key.expires_at
    )));
    Ok(())
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let key = client.get_api_key(&wanted.key).await?;
    let what = output::printable(&format!("API key {} ({})", key.name, key.id));
    if !intent.agreed("delete", &what)? {
        return output.one(&key);
    }
    client.delete_api_key(&key.id).await?;
    output::notice(&format!("Deleted {what}."));
    Ok(())
}
