//! Admins of the whole installation.

use clap::{Args, Subcommand};
use paddock_api::admins::{Admin, AdminSpec};
use paddock_api::client::Client;
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::{self, Pages};
use crate::output::{self, Column, Output, Row};
use crate::subjects;
use crate::words::word;

pub const EXAMPLES: &str = "\
Examples:
  paddock admin list
  paddock admin add ada
  paddock admin add service_account:cluster/ops/deployer
  paddock admin remove ada

An admin of the installation may do everything in every tenant. For an admin of one tenant: paddock member add \
--role admin";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the admins of the installation
    List(Pages),
    /// Make someone an admin of the installation
    #[command(visible_alias = "create", after_help = EXAMPLES)]
    Add(Add),
    /// Take the admin's right from someone; the last admin keeps it
    #[command(visible_alias = "delete", after_help = EXAMPLES)]
    Remove(Remove),
}

#[derive(Args)]
pub struct Add {
    /// A user's login or id (usr_…), or a machine's name, such as cluster/ops/deployer
    subject: String,
}

#[derive(Args)]
pub struct Remove {
    /// A user's login or id (usr_…), or a machine's name, such as cluster/ops/deployer
    subject: String,
    #[command(flatten)]
    removal: Removal,
}

impl Row for Admin {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |admin| admin.name.clone()),
        Column::new("SUBJECT", |admin| admin.subject.clone()),
        Column::new("ADDED", |admin| admin.added_at.clone()),
        Column::wide("TYPE", |admin| word(&admin.r#type)),
    ];

    fn name(&self) -> &str {
        self.subject.as_str()
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    let get = async |page: ListPage| client.list_admins(&page).await;
    match verb {
        Verb::List(pages) => pages.show(output, get).await,
        Verb::Add(wanted) => {
            let subject = subjects::find(&wanted.subject, client).await?.to_string();
            let admin = client.create_admin(&AdminSpec { subject }).await?;
            output.created(&admin, &admin.subject)
        }
        Verb::Remove(wanted) => {
            let intent = wanted.removal.intent()?;
            let subject = subjects::find(&wanted.subject, client).await?.to_string();
            let Some(admin) = listing::find(get, |admin| admin.subject == subject).await? else {
                return Err(Failure::NotFound(format!("{subject} is no admin of the installation.")));
            };
            let what = output::printable(&format!("{} ({subject}) from the admins", admin.name));
            if !intent.agreed("remove", &what)? {
                return output.one(&admin);
            }
            client.delete_admin(&subject).await?;
            output::notice(&format!("Removed {what}."));
            Ok(())
        }
    }
}
