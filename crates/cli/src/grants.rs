//! Grants: rights on one tenant's things, given to one of its groups.

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::grants::{Grant, GrantSpec};
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::groups::WhichGroup;
use crate::listing::{self, Pages};
use crate::output::{self, Column, Output, Row};
use crate::tenants;

pub const EXAMPLES: &str = "\
Examples:
  paddock grant list qa --tenant acme
  paddock grant create qa granted_operator emulator:emu_01jcr8e8v0e9bvqz3tz4d0wq2h --tenant acme
  paddock grant create qa operator tenant:acme --tenant acme
  paddock grant delete qa operator@tenant:acme --tenant acme

On a thing the relation is granted_operator, granted_viewer or granted_editor; on the tenant itself it is a role.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show what a group was given
    #[command(after_help = EXAMPLES)]
    List(List),
    /// Give a group a right
    #[command(after_help = EXAMPLES)]
    Create(Create),
    /// Take a right back from a group
    #[command(after_help = EXAMPLES)]
    Delete(Delete),
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    which: WhichGroup,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Create {
    #[command(flatten)]
    which: WhichGroup,
    /// The right, such as granted_viewer; on the tenant a role
    relation: String,
    /// A thing of the group's tenant, such as emulator:emu_…, or the tenant itself, such as tenant:acme
    object: String,
}

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    which: WhichGroup,
    /// The grant as the list names it: RELATION@OBJECT
    #[arg(value_parser = grant)]
    grant: (String, String),
    #[command(flatten)]
    removal: Removal,
}

impl Row for Grant {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("RELATION", |grant| grant.relation.clone()),
        Column::new("OBJECT", |grant| grant.object.clone()),
        Column::new("GRANTED", |grant| grant.granted_at.clone()),
        Column::wide("ID", |grant| grant.id.clone()),
    ];

    fn name(&self) -> &str {
        &self.id
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => {
            let group = wanted.which.id(client).await?;
            let get = async |page: ListPage| client.list_grants(&group, &page).await;
            wanted.pages.show(output, get).await
        }
        Verb::Create(wanted) => {
            let group = wanted.which.id(client).await?;
            let object = tenants::object(wanted.object, client).await?;
            let grant = client.create_grant(&group, &GrantSpec { object, relation: wanted.relation }).await?;
            output.created(&grant, &grant.id)
        }
        Verb::Delete(wanted) => delete(wanted, client, output).await,
    }
}

async fn delete(wanted: Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let group = wanted.which.id(client).await?;
    let (relation, object) = wanted.grant;
    let id = format!("{relation}@{}", tenants::object(object, client).await?);
    let get = async |page: ListPage| client.list_grants(&group, &page).await;
    let Some(grant) = listing::find(get, |grant| grant.id == id).await? else {
        return Err(Failure::NotFound(format!("The group was not given {id}.")));
    };
    let what = output::printable(&format!("{id} from group {}", wanted.which.group));
    if !intent.agreed("take", &what)? {
        return output.one(&grant);
    }
    client.delete_grant(&group, &id).await?;
    output::notice(&format!("Took {what}."));
    Ok(())
}

fn grant(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('@') {
        Some((relation, object)) if !relation.is_empty() && object.contains(':') => {
            Ok((relation.to_owned(), object.to_owned()))
        }
        _ => Err("write RELATION@OBJECT, such as granted_viewer@emulator:emu_…"),
    }
}
