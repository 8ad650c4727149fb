//! Retention policies: which snapshots of a group are kept.

use clap::{Args, Subcommand};
use paddock_api::client::{Client, Versioned};
use paddock_api::page::ListPage;
use paddock_api::retention_policies::{
    JudgedSnapshot, ListRetentionPolicies, RetentionMode, RetentionPolicy, RetentionPolicyChange,
    RetentionPolicySpec, RetentionRules,
};

use crate::confirmation::Removal;
use crate::failure::Failure;
use crate::listing::Pages;
use crate::output::{self, Column, Output, Row};
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock retention-policy preview --tenant acme --group nightly --keep-last 5 --keep-daily 7
  paddock retention-policy create --tenant acme --group nightly --keep-last 5 --keep-daily 7
  paddock retention-policy create --tenant acme --mode pressure --keep-last 2
  paddock retention-policy list

Whatever any of the keep rules names is kept, and of that what the caps (--max-…) allow. Never released: promoted roots, \
snapshots that a device runs on, what is being captured or verified, and the newest deployable of each group.";

const CREATE_EXAMPLES: &str = "\
Examples:
  paddock retention-policy create --tenant acme --keep-last 10
  paddock retention-policy create --tenant acme --group 'ci-*' --keep-within 7d --max-count 50
  paddock retention-policy create --tenant acme --mode pressure --keep-daily 7

See first what it would do: paddock retention-policy preview with the same options.";

const UPDATE_EXAMPLES: &str = "\
Examples:
  paddock retention-policy update pol_01jcr8e8v0e9bvqz3tz4d0wq2h --keep-last 20

What you do not name stays as it is; 0 takes a rule away. If somebody else changes the policy at the same time, nothing is \
overwritten: the exit code is 6, and you can run the command again.";

const DELETE_EXAMPLES: &str = "\
Examples:
  paddock retention-policy delete pol_01jcr8e8v0e9bvqz3tz4d0wq2h            asks you first
  paddock retention-policy delete pol_01jcr8e8v0e9bvqz3tz4d0wq2h --yes      for scripts";

const PREVIEW_EXAMPLES: &str = "\
Examples:
  paddock retention-policy preview pol_01jcr8e8v0e9bvqz3tz4d0wq2h
  paddock retention-policy preview --tenant acme --group nightly --keep-last 5
  paddock retention-policy preview --tenant acme --keep-last 5 -o json

Nothing is released by a preview.";

#[derive(Subcommand)]
pub enum Verb {
    /// Show retention policies, newest first
    List(List),
    /// Make a retention policy
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// Show one retention policy
    Get(Get),
    /// Change a retention policy
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(Update),
    /// Delete a retention policy
    #[command(after_help = DELETE_EXAMPLES)]
    Delete(Delete),
    /// Show what a policy would release, what that would free, and what keeps the rest
    #[command(after_help = PREVIEW_EXAMPLES)]
    Preview(Preview),
}

#[derive(Args)]
pub struct List {
    /// Only policies of this tenant: its id (ten_…) or its name
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

/// What a policy says.
#[derive(Args)]
struct Said {
    /// A group of snapshots, or several by their beginning and a * [default: all, each by itself]
    #[arg(long)]
    group: Option<String>,
    /// Carried out always, or only while the disk pool is short of room
    #[arg(long, value_parser = one_of::<RetentionMode>(&["always", "pressure"]))]
    mode: Option<RetentionMode>,
    /// Keep the newest so many
    #[arg(long, value_name = "COUNT")]
    keep_last: Option<i64>,
    /// Keep what is no older than this, such as 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    keep_within: Option<u64>,
    /// Keep the newest of each of so many hours
    #[arg(long, value_name = "COUNT")]
    keep_hourly: Option<i64>,
    /// Keep the newest of each of so many days
    #[arg(long, value_name = "COUNT")]
    keep_daily: Option<i64>,
    /// Keep the newest of each of so many weeks
    #[arg(long, value_name = "COUNT")]
    keep_weekly: Option<i64>,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    max_count: Option<i64>,
    /// At most so many bytes together
    #[arg(long, value_name = "BYTES")]
    max_total_bytes: Option<i64>,
    /// None older than this, such as 90d
    #[arg(long, value_name = "TIME", value_parser = times::seconds)]
    max_age: Option<u64>,
}

/// What a policy that is there says itself.
const RULES: [&str; 10] = [
    "group",
    "mode",
    "keep_last",
    "keep_within",
    "keep_hourly",
    "keep_daily",
    "keep_weekly",
    "max_count",
    "max_total_bytes",
    "max_age",
];

impl Said {
    /// What was said, over what stood there; 0 takes a rule away.
    fn rules(&self, before: &RetentionRules) -> RetentionRules {
        let seconds = |said: Option<u64>| said.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
        let over = |said: Option<i64>, before: Option<i64>| said.or(before).filter(|amount| *amount != 0);
        RetentionRules {
            keep_last: over(self.keep_last, before.keep_last),
            keep_within_seconds: over(seconds(self.keep_within), before.keep_within_seconds),
            keep_hourly: over(self.keep_hourly, before.keep_hourly),
            keep_daily: over(self.keep_daily, before.keep_daily),
            keep_weekly: over(self.keep_weekly, before.keep_weekly),
            max_count: over(self.max_count, before.max_count),
            max_total_bytes: over(self.max_total_bytes, before.max_total_bytes),
            max_age_seconds: over(seconds(self.max_age), before.max_age_seconds),
        }
    }
}

#[derive(Args)]
pub struct Create {
    /// The tenant: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    said: Said,
}

#[derive(Args)]
pub struct Get {
    /// Its id (pol_…)
    policy: String,
}

#[derive(Args)]
pub struct Update {
    /// Its id (pol_…)
    policy: String,
    #[command(flatten)]
    said: Said,
}

#[derive(Args)]
pub struct Delete {
    /// Its id (pol_…)
    policy: String,
    #[command(flatten)]
    removal: Removal,
}

#[derive(Args)]
pub struct Preview {
    /// The id of a policy (pol_…); without one, what the options say is tried
    #[arg(conflicts_with_all = RULES)]
    policy: Option<String>,
    /// The tenant: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    said: Said,
}

impl Row for RetentionPolicy {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", |policy| policy.id.clone()),
        Column::new("GROUP", |policy| policy.group.clone().unwrap_or_else(|| "(all)".to_owned())),
        Column::new("MODE", |policy| word(&policy.mode)),
        Column::new("RULES", |policy| in_words(&policy.rules)),
        Column::wide("TENANT", |policy| policy.tenant_id.clone()),
        Column::wide("CREATED", |policy| policy.created_at.clone()),
        Column::wide("UPDATED", |policy| policy.updated_at.clone()),
    ];

    fn name(&self) -> &str {
        &self.id
    }
}

impl Row for JudgedSnapshot {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("SNAPSHOT", |judged| judged.name.clone()),
        Column::new("GROUP", |judged| judged.group.clone().unwrap_or_default()),
        Column::new("SCORE", |judged| judged.score.map_or_else(String::new, |score| score.to_string())),
        Column::new("VERDICT", |judged| if judged.reason.is_some() { "released" } else { "kept" }.to_owned()),
        Column::new("BECAUSE", |judged| {
            let kept = judged.kept_because.as_ref().map(|reasons| reasons.join(", "));
            judged.reason.clone().or(kept).unwrap_or_default()
        }),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

/// The rules in one line.
fn in_words(rules: &RetentionRules) -> String {
    [
        ("keep last", rules.keep_last, ""),
        ("keep within", rules.keep_within_seconds, "s"),
        ("keep hourly", rules.keep_hourly, ""),
        ("keep daily", rules.keep_daily, ""),
        ("keep weekly", rules.keep_weekly, ""),
        ("max count", rules.max_count, ""),
        ("max bytes", rules.max_total_bytes, ""),
        ("max age", rules.max_age_seconds, "s"),
    ]
    .into_iter()
    .filter_map(|(name, amount, unit)| amount.map(|amount| format!("{name} {amount}{unit}")))
    .collect::<Vec<_>>()
    .join(", ")
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::List(wanted) => list(wanted, client, output).await,
        Verb::Create(wanted) => {
            let spec = spec(wanted.tenant.as_deref(), &wanted.said, client).await?;
            let policy = client.create_retention_policy(&spec).await?.value;
            output.created(&policy, &policy.id)
        }
        Verb::Get(wanted) => output.one(&client.get_retention_policy(&wanted.policy).await?.value),
        Verb::Update(wanted) => update(wanted, client, output).await,
        Verb::Delete(wanted) => delete(&wanted, client, output).await,
        Verb::Preview(wanted) => preview(wanted, client, output).await,
    }
}

async fn list(wanted: List, client: &Client, output: Output) -> Result<(), Failure> {
    let tenant_id = tenants::optional_id(wanted.tenant.as_deref(), client).await?;
    let get = async |page: ListPage| {
        let tenant_id = tenant_id.clone();
        let query = ListRetentionPolicies { tenant_id, limit: page.limit, cursor: page.cursor };
        client.list_retention_policies(&query).await
    };
    wanted.pages.show(output, get).await
}

async fn spec(tenant: Option<&str>, said: &Said, client: &Client) -> Result<RetentionPolicySpec, Failure> {
    Ok(RetentionPolicySpec {
        tenant_id: tenants::optional_id(tenant.filter(|tenant| !tenant.is_empty()), client).await?,
        group: said.group.clone(),
        mode: said.mode.unwrap_or_default(),
        rules: said.rules(&RetentionRules::default()),
    })
}

async fn update(wanted: Update, client: &Client, output: Output) -> Result<(), Failure> {
    let Versioned { value: policy, etag } = client.get_retention_policy(&wanted.policy).await?;
    let change = RetentionPolicyChange {
        rules: wanted.said.rules(&policy.rules),
        group: wanted.said.group.or(policy.group),
        mode: wanted.said.mode.unwrap_or(policy.mode),
    };
    output.one(&client.update_retention_policy(&policy.id, &change, etag.as_deref()).await?.value)
}

async fn delete(wanted: &Delete, client: &Client, output: Output) -> Result<(), Failure> {
    let intent = wanted.removal.intent()?;
    let Versioned { value: policy, etag } = client.get_retention_policy(&wanted.policy).await?;
    let what = output::printable(&format!("retention policy {} ({})", policy.id, in_words(&policy.rules)));
    if !intent.agreed("delete", &what)? {
        return output.one(&policy);
    }
    // What goes is what was asked about, not what it has become since.
    client.delete_retention_policy(&policy.id, etag.as_deref()).await?;
    output::notice(&format!("Deleted {what}."));
    Ok(())
}

async fn preview(wanted: Preview, client: &Client, output: Output) -> Result<(), Failure> {
    let (mode, seen) = match &wanted.policy {
        Some(id) => {
            let policy = client.get_retention_policy(id).await?.value;
            (policy.mode, client.preview_retention_policy(id).await?)
        }
        None => {
            let spec = spec(wanted.tenant.as_deref(), &wanted.said, client).await?;
            (spec.mode, client.preview_proposed_retention_policy(&spec).await?)
        }
    };
    let rows: Vec<JudgedSnapshot> = seen.released.iter().chain(&seen.kept).cloned().collect();
    output.list(&seen, &rows)?;
    if output.is_table() {
        let (released, bytes, kept) = (seen.released_count, seen.frees_bytes, seen.kept_count);
        output::notice(&match mode {
            RetentionMode::Always => {
                format!("{released} would be released, which frees {bytes} bytes; {kept} would be kept.")
            }
            RetentionMode::Pressure => format!(
                "Nothing while the disk pool has room; when it is short of room, up to {released}, the lowest scores first and no more than it \
                 takes, which frees up to {bytes} bytes; {kept} would be kept."
            ),
        });
    }
    Ok(())
}
