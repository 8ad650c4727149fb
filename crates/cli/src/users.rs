//! Users: the people that Paddock knows.

use clap::{ArgGroup, Args, Subcommand};
use paddock_api::client::{Client, Versioned};
use paddock_api::page::ListPage;
use paddock_api::users::{ListUsers, NewUser, User, UserSpec};

use crate::confirmation::Consent;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::{invitations, subjects};

pub const EXAMPLES: &str = "\
Examples:
  paddock user create ada --name 'Ada Lovelace' --email ada@acme.example
  paddock user list
  paddock user invite ada
  paddock user update ada --disable";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock user list
  paddock user list --login ada
  paddock user list -o json | jq -r '.items[] | select(.disabled) | .login'

An admin of the installation sees everyone; others see themselves and the members of their tenants, by name.";

const GET_EXAMPLES: &str = "\
Examples:
  paddock user get ada
  paddock user get usr_01jcr8e8v0e9bvqz3tz4d0wq2h -o yaml";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock user create ada --name 'Ada Lovelace' --email ada@acme.example
  id=$(paddock user create ada)          into a pipe or a variable goes only the id
  paddock user create ada -o json | jq -r .invitation.url

The account has no password yet. The link on standard error lets its owner choose one; it is shown once. To let \
someone into a tenant in the same step: paddock member add --login ada --role member --tenant acme";

const UPDATE_EXAMPLES: &str = "\
Examples:
  paddock user update ada --name 'Ada King'
  paddock user update ada --no-email
  paddock user update ada --disable          asks you first: it closes every session, token and key
  paddock user update ada --enable

What you do not name stays as it is. If somebody else changes the user at the same time, nothing is overwritten: the \
exit code is 6, and you can run the command again.";

const INVITE_EXAMPLES: &str = "\
Examples:
  paddock user invite ada
  link=$(paddock user invite ada)        standard output gets only the link

For who has lost the first link, or forgotten the password. Earlier links end.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the users that you may see, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Show one user
    #[command(after_help = GET_EXAMPLES)]
    Get(Get),
    /// Make an account and invite its owner
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Change a user, or disable the account
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update),
    /// Make a new link by which a user chooses a password
    #[command(after_help = INVITE_EXAMPLES)]
    Invite(Get),
}

#[derive(Args)]
pub struct List {
    /// Only the user with this login
    #[arg(long)]
    login: Option<String>,
    /// Only users with this e-mail address
    #[arg(long)]
    email: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Get {
    /// Their id (usr_…) or login
    user: String,
}

#[derive(Args)]
pub struct Create {
    /// Unique; what they sign in with
    login: String,
    /// Their name [default: the login]
    #[arg(long)]
    name: Option<String>,
    /// Their e-mail address
    #[arg(long)]
    email: Option<String>,
}

#[derive(Args)]
#[command(group = ArgGroup::new("changes").required(true).multiple(true))]
pub struct Update {
    /// Their id (usr_…) or login
    user: String,
    /// Their new name
    #[arg(long, group = "changes")]
    name: Option<String>,
    /// Their new e-mail address
    #[arg(long, group = "changes")]
    email: Option<String>,
    /// Forget their e-mail address
    #[arg(long, group = "changes", conflicts_with = "email")]
    no_email: bool,
    /// Close the account at once
    #[arg(long, group = "changes")]
    disable: bool,
    /// Open a disabled account again
    #[arg(long, group = "changes", conflicts_with = "disable")]
    enable: bool,
    /// Do not ask before an account is disabled
    #[arg(short, long)]
    yes: bool,
}

impl Row for User {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("LOGIN", |user| user.login.clone().unwrap_or_default()),
        Column::new("ID", |user| user.id.clone()),
        Column::new("NAME", |user| user.name.clone()),
        Column::new("EMAIL", |user| user.email.clone().unwrap_or_default()),
        Column::new("STATE", |user| if user.disabled { "disabled" } else { "active" }.to_owned()),
        Column::wide("ISSUER", |user| user.issuer.clone().unwrap_or_default()),
        Column::wide("CREATED", |user| user.created_at.clone()),
        Column::wide("UPDATED", |user| user.updated_at.clone()),
    ];

    fn name(&self) -> &str {
        self.login.as_deref().unwrap_or(&self.id)
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Get(wanted) => output.one(&find(&wanted.user, client).await?.value),
        Verb::Create(wanted) => create(wanted, client, output).await,
        Verb::Update(wanted) => update(wanted, client, output).await,
        Verb::Invite(wanted) => invite(&wanted.user, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let List { login, email, pages } = wanted;
    let get = async |page: ListPage| {
        let (login, email) = (login.clone(), email.clone());
        client.list_users(&ListUsers { login, email, limit: page.limit, cursor: page.cursor }).await
    };
    pages.show(output, get).await
}

async fn create(wanted: Create, client: &Client, output: Output) -> Result<(), Failure> {
    let new = NewUser { login: wanted.login, name: wanted.name, email: wanted.email };
    let mut user = client.create_user(&new).await?.value;
    user.invitation = user.invitation.map(|invitation| invitations::written_out(invitation, client));
    output.created(&user, &user.id)?;
    if let Some(invitation) = &user.invitation {
        invitations::tell(invitation, user.name());
    }
    Ok(())
}

async fn update(wanted: Update, client: &Client, output: Output) -> Result<(), Failure> {
    let consent = if wanted.disable { Some(Consent::from_flag(wanted.yes)?) } else { None };
    let Versioned { value: user, etag } = find(&wanted.user, client).await?;
    if let Some(consent) = consent {
        let who = output::printable(&format!("{} ({})", user.name, user.id));
        consent.ask(&format!("Disable {who}, and close every session, token and key of theirs?"))?;
    }
    let id = user.id.clone();
    let spec = wanted.made_to(user);
    output.one(&client.update_user(&id, &spec, etag.as_deref()).await?.value)
}

async fn invite(user: &str, client: &Client, output: Output) -> Result<(), Failure> {
    let id = subjects::user_id(user, client).await?;
    let invitation = invitations::written_out(client.create_invitation(&id).await?, client);
    let Some(url) = invitation.url.as_deref() else {
        return Err(Failure::Lost(invitations::lost(user)));
    };
    output.secret(&invitation, url)?;
    let until = invitation.expires_at.as_deref().unwrap_or("it is used");
    output::notice(&format!("Shown once. It works until {until}; earlier links have ended."));
    Ok(())
}

async fn find(id_or_login: &str, client: &Client) -> Result<Versioned<User>, Failure> {
    Ok(client.get_user(&subjects::user_id(id_or_login, client).await?).await?)
}

impl Update {
    /// What is to be said of the user now; what was not named stays.
    fn made_to(self, user: User) -> UserSpec {
        let email = if self.no_email { None } else { self.email.or(user.email) };
        let disabled = if self.disable || self.enable { Some(self.disable) } else { None };
        UserSpec { name: self.name.unwrap_or(user.name), email, disabled }
    }
}
