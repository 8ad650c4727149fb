//! Groups: people and machines of one tenant that are given rights together.

use clap::{Args, Subcommand};
use paddock_api::client::{Client, Versioned};
use paddock_api::groups::{Group, GroupMember, GroupMemberSpec, GroupSpec};
use paddock_api::page::ListPage;

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::{self, Pages};
use crate::output::{self, Column, Output, Row};
use crate::subjects::{self, Subject};
use crate::tenants::{self, InTenant};
use crate::words::word;

pub const EXAMPLES: &str = "\
Examples:
  paddock group create qa --tenant acme --display-name 'Quality assurance'
  paddock group member add qa ada --tenant acme
  paddock grant create qa operator tenant:acme --tenant acme
  paddock group list --tenant acme

PADDOCK_TENANT may name the tenant instead. A group that you name by its id needs none.";

const LIST_EXAMPLES: &str = "\
Examples:
  paddock group list --tenant acme
  paddock group list --tenant acme -o name";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock group create qa --tenant acme --display-name 'Quality assurance'
  id=$(paddock group create qa --tenant acme)     into a pipe or a variable goes only the id";

const GET_EXAMPLES: &str = "\
Examples:
  paddock group get qa --tenant acme
  paddock group get grp_01jcr8e8v0e9bvqz3tz4d0wq2h -o yaml";

const UPDATE_EXAMPLES: &str = "\
Examples:
  paddock group update qa --tenant acme --display-name 'Quality'
  paddock group update qa --tenant acme --name quality

What you do not name stays as it is. If somebody else changes the group at the same time, nothing is overwritten: the \
exit code is 6, and you can run the command again.";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock group delete qa --tenant acme                 asks you first
  paddock group delete qa --tenant acme --dry-run       shows what would go, and deletes nothing
  paddock group delete qa --tenant acme --yes           for scripts

All that was given to the group goes with it.";

const MEMBER_EXAMPLES: &str = "\
Examples:
  paddock group member list qa --tenant acme
  paddock group member add qa ada --tenant acme
  paddock group member add qa cluster/ci/runner --tenant acme
  paddock group member add qa group:testers --tenant acme      everyone in another group
  paddock group member remove qa ada --tenant acme --yes";

#[derive(Subcommand)]
pub enum Verb {
    /// Show the groups of a tenant, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Make a group
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Show one group
    #[command(after_help = GET_EXAMPLES)]
    Get(WhichGroup),
    /// Change a group
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update),
    /// Delete a group
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
    /// Who is in a group
    #[command(visible_alias = "members", subcommand, after_help = MEMBER_EXAMPLES)]
    Member(MemberVerb),
}

#[derive(Subcommand)]
pub enum MemberVerb {
    /// Show who is in a group
    #[command(after_help = MEMBER_EXAMPLES)]
    List(ListMembers),
    /// Put someone of the same tenant into a group
    #[command(after_help = MEMBER_EXAMPLES)]
    Add(AddMember),
    /// Take someone out of a group
    #[command(after_help = MEMBER_EXAMPLES)]
    Remove(RemoveMember),
}

/// A group that exists.
#[derive(Args)]
pub struct WhichGroup {
    /// Its id (grp_…), or its name within the tenant
    pub group: String,
    /// The tenant of a group that is named: its id (ten_…) or its name
    #[arg(long, value_name = "TENANT", env = "PADDOCK_TENANT")]
    tenant: Option<String>,
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    place: InTenant,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct Create {
    /// Unique in the tenant; lower-case letters, digits and inner hyphens
    name: String,
    #[command(flatten)]
    place: InTenant,
    /// Name for people [default: the name]
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
}

#[derive(Args)]
pub struct Update {
    #[command(flatten)]
    which: WhichGroup,
    #[command(flatten)]
    changes: Changes,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Changes {
    /// Its new name
    #[arg(long)]
    name: Option<String>,
    /// Its new name for people
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
}

#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    which: WhichGroup,
    #[command(flatten)]
    removal: Removal,
}

#[derive(Args)]
pub struct ListMembers {
    #[command(flatten)]
    which: WhichGroup,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args)]
pub struct AddMember {
    #[command(flatten)]
    which: WhichGroup,
    /// A user's login or id (usr_…), a machine's name, or another group (grp_… or group:NAME)
    member: String,
}

#[derive(Args)]
pub struct RemoveMember {
    #[command(flatten)]
    which: WhichGroup,
    /// A user's login or id (usr_…), a machine's name, or another group (grp_… or group:NAME)
    member: String,
    #[command(flatten)]
    removal: Removal,
}

impl Row for Group {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |group| group.name.clone()),
        Column::new("ID", |group| group.id.clone()),
        Column::new("DISPLAY NAME", |group| group.display_name.clone()),
        Column::new("CREATED", |group| group.created_at.clone()),
        Column::wide("UPDATED", |group| group.updated_at.clone()),
        Column::wide("TENANT", |group| group.tenant_id.clone()),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

impl Row for GroupMember {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |member| member.name.clone()),
        Column::new("ID", |member| member.id.clone()),
        Column::new("TYPE", |member| word(&member.r#type)),
        Column::new("ADDED", |member| member.added_at.clone()),
    ];

    fn name(&self) -> &str {
        self.id.as_str()
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => {
            let tenant = wanted.place.id(client).await?;
            let get = async |page: ListPage| client.list_groups(&tenant, &page).await;
            wanted.pages.show(output, get).await
        }
        Verb::Create(wanted) => {
            let tenant = wanted.place.id(client).await?;
            let spec = GroupSpec { name: wanted.name, display_name: wanted.display_name };
            let group = client.create_group(&tenant, &spec).await?.value;
            output.created(&group, &group.id)
        }
        Verb::Get(which) => output.one(&which.find(client).await?.value),
        Verb::Update(wanted) => update(wanted, client, output).await,
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
        Verb::Member(MemberVerb::List(wanted)) => {
            let group = wanted.which.id(client).await?;
            let get = async |page: ListPage| client.list_group_members(&group, &page).await;
            wanted.pages.show(output, get).await
        }
        Verb::Member(MemberVerb::Add(wanted)) => add_member(&wanted, client, output).await,
        Verb::Member(MemberVerb::Remove(wanted)) => remove_member(&wanted, client, output).await,
    }
}

async fn update(wanted: Update, client: &Client, output: Output) -> Result<(), Failure> {
    let Versioned { value: group, etag } = wanted.which.find(client).await?;
    let Changes { name, display_name } = wanted.changes;
    let spec = GroupSpec {
        name: name.unwrap_or(group.name),
        display_name: Some(display_name.unwrap_or(group.display_name)),
    };
    output.one(&client.update_group(&group.id, &spec, etag.as_deref()).await?.value)
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let Versioned { value: group, etag } = wanted.which.find(client).await?;
    let what = output::printable(&format!("group {} ({})", group.name, group.id));
    if !intent.agreed("delete", &what)? {
        return output.one(&group);
    }
    // What goes is what was asked about, not what it has become since.
    client.delete_group(&group.id, etag.as_deref()).await?;
    output::notice(&format!("Deleted {what}."));
    Ok(())
}

async fn add_member(wanted: &AddMember, client: &Client, output: Output) -> Result<(), Failure> {
    let group = wanted.which.id(client).await?;
    let mut spec = GroupMemberSpec { user_id: None, group_id: None, service_account: None };
    match wanted.which.member(&wanted.member, client).await? {
        Someone::Subject(Subject::User(id)) => spec.user_id = Some(id),
        Someone::Subject(Subject::ServiceAccount(name)) => spec.service_account = Some(name),
        Someone::Group(id) => spec.group_id = Some(id),
    }
    let member = client.add_group_member(&group, &spec).await?;
    output.created(&member, &member.id)
}

async fn remove_member(wanted: &RemoveMember, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let group = wanted.which.find(client).await?.value;
    let someone = wanted.which.member(&wanted.member, client).await?;
    let get = async |page: ListPage| client.list_group_members(&group.id, &page).await;
    let Some(member) = listing::find(get, |member| member.id == someone.id()).await? else {
        return Err(Failure::NotFound(format!("{} is not in group {}.", wanted.member, group.name)));
    };
    let what = output::printable(&format!("{} ({}) from group {}", member.name, member.id, group.name));
    if !intent.agreed("remove", &what)? {
        return output.one(&member);
    }
    client.remove_group_member(&group.id, &member.id).await?;
    output::notice(&format!("Removed {what}."));
    Ok(())
}

/// Who can be in a group.
enum Someone {
    Subject(Subject),
    Group(String),
}

impl Someone {
    fn id(&self) -> &str {
        match self {
            Someone::Subject(subject) => subject.id(),
            Someone::Group(id) => id,
        }
    }
}

impl WhichGroup {
    async fn find(&self, client: &Client) -> Result<Versioned<Group>, Failure> {
        Ok(client.get_group(&self.id(client).await?).await?)
    }

    /// The id of the group; one that is given as an id need not exist.
    pub async fn id(&self, client: &Client) -> Result<String, Failure> {
        self.id_of(&self.group, client).await
    }

    /// The id of this group or of another one beside it.
    async fn id_of(&self, id_or_name: &str, client: &Client) -> Result<String, Failure> {
        // No name holds an underscore.
        if id_or_name.starts_with("grp_") {
            return Ok(id_or_name.to_owned());
        }
        let Some(tenant) = self.tenant.as_deref().filter(|tenant| !tenant.is_empty()) else {
            return Err(Failure::Usage(format!(
                "whose group is {id_or_name}? Name the tenant with --tenant or PADDOCK_TENANT, or give the id of the group"
            )));
        };
        let tenant = tenants::id(tenant, client).await?;
        let get = async |page: ListPage| client.list_groups(&tenant, &page).await;
        let found = listing::find(get, |group| group.name == id_or_name).await?;
        found.map(|group| group.id).ok_or_else(|| {
            Failure::NotFound(format!(
                "There is no group named {id_or_name} in this tenant, or you may not see it."
            ))
        })
    }

    async fn member(&self, text: &str, client: &Client) -> Result<Someone, Failure> {
        let group = text.strip_prefix("group:").or_else(|| text.starts_with("grp_").then_some(text));
        match group {
            Some(group) => self.id_of(group, client).await.map(Someone::Group),
            None => subjects::find(text, client).await.map(Someone::Subject),
        }
    }
}
