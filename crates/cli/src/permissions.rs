//! Permissions: what one may do, and why.

use clap::{Args, Subcommand};
use paddock_api::client::Client;
use paddock_api::permissions::{
    CheckRequest, CheckResult, GlobalPermissions, HeldGrant, LimitReason, MyPermissions, PermissionSummary,
    TenantPermissions,
};

use crate::failure::Failure;
use crate::output::{self, Column, Output, Row};
use crate::{subjects, tenants};

pub const EXAMPLES: &str = "\
Examples:
  paddock permission me
  paddock permission check can_update tenant:acme
  paddock permission check can_create_tenant system:paddock --subject ada --explain";

const CHECK_EXAMPLES: &str = "\
Examples:
  paddock permission check can_update tenant:acme
  paddock permission check can_view_audit tenant:acme --subject ada --explain
  if paddock permission check can_create_tenant system:paddock > /dev/null; then ...

The exit code is 0 where it is allowed and 12 where it is not; any other says that the question could not be asked. \
What does not exist, or what you may not see, is not allowed.";

#[derive(Subcommand)]
pub enum Verb {
    /// Ask whether you, or someone else, may do something
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Check),
    /// Show what you were given, as far as your credential opens it
    Me,
}

#[derive(Args)]
pub struct Check {
    /// What it is about, such as can_update or admin
    relation: String,
    /// On which object, such as emulator:emu_…, tenant:acme or system:paddock
    object: String,
    /// Ask about someone else: a user's login or id (usr_…), or a machine's name, such as cluster/ci/runner
    #[arg(long)]
    subject: Option<String>,
    /// Also say why, or what is missing
    #[arg(long)]
    explain: bool,
}

impl Row for CheckResult {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ALLOWED", |answer| if answer.allowed { "yes" } else { "no" }.to_owned()),
        Column::new("RELATION", |answer| answer.relation.clone()),
        Column::new("OBJECT", |answer| answer.object.clone()),
        Column::new("SUBJECT", |answer| answer.subject.clone()),
        Column::wide("REVISION", |answer| answer.revision.clone()),
    ];

    fn name(&self) -> &str {
        if self.allowed { "yes" } else { "no" }
    }
}

/// One line of what a subject holds.
struct Held {
    object: String,
    place: String,
    relations: String,
    through: String,
    permissions: String,
}

impl Row for Held {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("OBJECT", |held| held.object.clone()),
        Column::new("NAME", |held| held.place.clone()),
        Column::new("RELATIONS", |held| held.relations.clone()),
        Column::new("THROUGH", |held| held.through.clone()),
        Column::wide("PERMISSIONS", |held| held.permissions.clone()),
    ];

    fn name(&self) -> &str {
        &self.object
    }
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::Check(question) => check(question, client, output).await,
        Verb::Me => me(client, output).await,
    }
}

async fn check(question: Check, client: &Client, output: Output) -> Result<(), Failure> {
    let subject = match question.subject {
        Some(subject) => Some(subjects::find(&subject, client).await?.to_string()),
        None => None,
    };
    let request = CheckRequest {
        relation: Some(question.relation),
        object: Some(tenants::object(question.object, client).await?),
        checks: None,
        subject,
        explain: question.explain.then_some(true),
        at_least_revision: None,
    };
    let answer = client.check(&request).await?;
    output.one(&answer)?;
    if output.is_table() {
        output::write(reasons(&answer).as_bytes())?;
    }
    if answer.allowed { Ok(()) } else { Err(Failure::NotAllowed) }
}

/// What is to be said besides yes or no.
fn reasons(answer: &CheckResult) -> String {
    let limit = answer.reason.map(|reason| match reason {
        LimitReason::CredentialCeiling => "It is held, but this credential does not open it.",
        LimitReason::ReauthenticationRequired => "It is held, but you have to sign in anew to use it.",
    });
    let list = |heading: &str, entries: &[String]| {
        let lines = entries.iter().map(|entry| format!("\n  {}", output::printable(entry)));
        (!entries.is_empty()).then(|| format!("{heading}{}", lines.collect::<String>()))
    };
    let explanation = answer.explanation.iter().flat_map(|explanation| {
        [list("Because:", &explanation.because), list("Any of these would do:", &explanation.missing)]
    });
    let parts = limit.map(str::to_owned).into_iter().chain(explanation.flatten());
    parts.map(|part| format!("\n{part}\n")).collect()
}

async fn me(client: &Client, output: Output) -> Result<(), Failure> {
    let mut summary = client.my_permissions(&MyPermissions::default()).await?;
    while let Some(cursor) = summary.next_cursor.take() {
        let more = client.my_permissions(&MyPermissions { cursor: Some(cursor) }).await?;
        summary.grants.extend(more.grants);
        summary.next_cursor = more.next_cursor;
    }
    let rows = held(&summary);
    if rows.is_empty() && output.is_table() {
        output::notice("You were given nothing yet. Ask an admin of a tenant to let you in.");
        return Ok(());
    }
    output.list(&summary, &rows)
}

fn held(summary: &PermissionSummary) -> Vec<Held> {
    let GlobalPermissions { admin, permissions } = &summary.global;
    let system = (*admin || !permissions.is_empty()).then(|| Held {
        object: "system:paddock".to_owned(),
        place: String::new(),
        relations: if *admin { "admin".to_owned() } else { String::new() },
        through: String::new(),
        permissions: permissions.join(","),
    });
    let tenants =
        summary.tenants.iter().map(|TenantPermissions { id, name, relations, permissions, groups }| {
            let groups: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            Held {
                object: format!("tenant:{id}"),
                place: name.clone(),
                relations: relations.join(","),
                through: groups.join(","),
                permissions: permissions.join(","),
            }
        });
    let grants = summary.grants.iter().map(|HeldGrant { object, relation, via }| Held {
        object: object.clone(),
        place: String::new(),
        relations: relation.clone(),
        through: via.clone(),
        permissions: String::new(),
    });
    system.into_iter().chain(tenants).chain(grants).collect()
}
