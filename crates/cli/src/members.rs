//! Members: who belongs to a tenant, and in which role.

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::members::{Member, MemberSpec, Role};
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::tenants::InTenant;
use crate::words::{one_of, word};
use crate::{invitations, subjects};

pub const EXAMPLES: &str = "\
Examples:
  paddock member add --tenant acme --login ada --role member
  paddock member list --tenant acme
  paddock member remove ada --tenant acme

PADDOCK_TENANT may name the tenant instead.";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock member list --tenant acme
  paddock member list --tenant acme -o json | jq -r '.items[] | select(.role == \"admin\") | .name'";

const ADD_EXAMPLES: &str = "\
Examples:
  paddock member add --tenant acme --login ada --role member
  paddock member add --tenant acme --user usr_01jcr8e8v0e9bvqz3tz4d0wq2h --role admin
  paddock member add --tenant acme --service-account cluster/ci/runner --role operator

Each role has the rights of those behind it: admin, operator, member. An auditor sees everything and changes nothing. \
Who is a member already gets the new role. A login that nobody has yet becomes an account, and the link on standard \
error, shown once, lets its owner choose a password.";

const GET_EXAMPLES: &str = "\
Examples:
  paddock member get ada --tenant acme
  paddock member get cluster/ci/runner --tenant acme -o yaml";

const REMOVE_EXAMPLES: &str = "\
Examples:
  paddock member remove ada --tenant acme            asks you first
  paddock member remove ada --tenant acme --yes      for scripts

They lose at once all that they have in the tenant: roles, groups, grants and keys.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the members of a tenant
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Let someone into a tenant, or change their role
    #[command(after_help = ADD_EXAMPLES)]
    Add(Add),
    /// Show one member
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
    /// Take someone out of a tenant
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(Remove),
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    place: InTenant,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Add {
    #[command(flatten)]
    place: InTenant,
    #[command(flatten)]
    newcomer: Newcomer,
    /// What they may do
    #[arg(long, value_parser = one_of::<Role>(&["admin", "operator", "member", "auditor"]))]
    role: Role,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Newcomer {
    /// Someone by their login; if nobody has it, they are invited
    #[arg(long)]
    login: Option<String>,
    /// Someone who has an account: their id (usr_…) or login
    #[arg(long)]
    user: Option<String>,
    /// A machine: its issuer and the name it has there, such as cluster/ci/runner
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
}

#[derive(Args)]
pub struct Get {
    /// Their login or id (usr_…), or the machine's name, such as cluster/ci/runner
    member: String,
    #[command(flatten)]
    place: InTenant,
}

#[derive(Args)]
pub struct Remove {
    /// Their login or id (usr_…), or the machine's name, such as cluster/ci/runner
    member: String,
    #[command(flatten)]
    place: InTenant,
    #[command(flatten)]
    removal: Removal,
}

impl Row for Member {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |member| member.name.clone()),
        Column::new("ID", |member| member.id.clone()),
        Column::new("LOGIN", |member| member.login.clone().unwrap_or_default()),
        Column::new("ROLE", |member| word(&member.role)),
        Column::new("ADDED", |member| member.added_at.clone()),
        Column::wide("TYPE", |member| word(&member.r#type)),
    ];

    fn name(&self) -> &str {
        self.id.as_str()
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => {
            let tenant = wanted.place.id(client).await?;
            let get = async |page: ListPage| client.list_members(&tenant, &page).await;
            wanted.pages.show(output, get).await
        }
        Verb::Add(wanted) => add(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&find(&wanted.member, &wanted.place, client).await?.1),
        Verb::Remove(wanted) => remove(&wanted, client, output).await,
    }
}

async fn add(wanted: Add, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant = wanted.place.id(client).await?;
    let Newcomer { login, user, service_account } = wanted.newcomer;
    let user_id = match user {
        Some(user) => Some(subjects::user_id(&user, client).await?),
        None => None,
    };
    let spec = MemberSpec { user_id, login, service_account, role: wanted.role };
    let mut member = client.add_member(&tenant, &spec).await?;
    member.invitation = member.invitation.map(|invitation| invitations::written_out(invitation, client));
    output.created(&member, &member.id)?;
    if let Some(invitation) = &member.invitation {
        invitations::tell(invitation, member.login.as_deref().unwrap_or(&member.id));
    }
    Ok(())
}

async fn remove(wanted: &Remove, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let (tenant, member) = find(&wanted.member, &wanted.place, client).await?;
    let place = &wanted.place.tenant;
    let what = output::printable(&format!("{} ({}) from tenant {place}", member.name, member.id));
    if !intent.agreed("remove", &what)? {
        return output.one(&member);
    }
    client.remove_member(&tenant, &member.id).await?;
    output::notice(&format!("Removed {what}."));
    Ok(())
}

/// The tenant's id, and the member.
async fn find(member: &str, place: &InTenant, client: &Client) -> Result<(String, Member), Failure> {
    let tenant = place.id(client).await?;
    let subject = subjects::find(member, client).await?;
    let member = client.get_member(&tenant, subject.id()).await?;
    Ok((tenant, member))
}
