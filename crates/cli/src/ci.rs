//! CI: two commands around a job. The first starts its device from what an earlier job left, the second ends it and leaves something for the next.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use paddock_api::ci::{CaptureSpec, CaptureWhen, CiSpec, DeleteEmulator, EmulatorRestoreSpec, JobOutcome};
use paddock_api::client::Client;
use paddock_api::emulators::{DeviceType, EmulatorSpec, EmulatorStatus};
use paddock_api::labels::Labels;

use crate::emulators::{CAPTURES, OUTCOMES, adb, captured, come_up, not_reached, settled};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::snapshots::DEVICE_TYPES;
use crate::tenants;
use crate::times;
use crate::words::{one_of, word};

pub const EXAMPLES: &str = "\
Examples:
  paddock ci start --env-file paddock.env      starts the job's device and says what it was started from
  . ./paddock.env && adb connect $PADDOCK_ADB_SERIAL
  paddock ci finish --outcome success          captures it, if PADDOCK_SNAPSHOT_CAPTURE asks for it, and deletes it

The variables that they read are the same on GitLab, GitHub and anywhere else:
  PADDOCK_URL, PADDOCK_TOKEN (or CI_JOB_TOKEN), PADDOCK_TENANT
  PADDOCK_SNAPSHOT_RESTORE       off, auto (default), required, or the name of a snapshot
  PADDOCK_SNAPSHOT_CAPTURE       never (default), success, failure, always
  PADDOCK_SNAPSHOT_KEY           default: project, branch and device type
  PADDOCK_SNAPSHOT_FALLBACK_KEYS up to five, one a line or separated by commas; one that ends in * stands for all that begin so
  PADDOCK_SNAPSHOT_LABELS        key=value, separated by commas
  PADDOCK_EMULATOR_TTL           after which the device goes by itself, such as 1h
  PADDOCK_BOOT_TIMEOUT           how long to wait for it, such as 3m";

#[derive(Subcommand)]
pub enum Verb {
    /// Start the job's device, wait until it is up, and write down what it is
    Start(Start),
    /// End the job's device, and capture it first if that was asked for
    Finish(Finish),
}

#[derive(Args)]
pub struct Start {
    /// The tenant that it is for: its id (ten_…) or its name [default: yours, if you have one]
    #[arg(long, env = "PADDOCK_TENANT")]
    tenant: Option<String>,
    /// Which kind of device
    #[arg(long, value_name = "TYPE", env = "PADDOCK_DEVICE_TYPE", default_value = "phone", value_parser = one_of::<DeviceType>(DEVICE_TYPES))]
    device_type: DeviceType,
    /// off, auto, required, or the name of a snapshot
    #[arg(long, env = "PADDOCK_SNAPSHOT_RESTORE", default_value = "auto")]
    restore: String,
    /// After which outcome it is captured
    #[arg(long, env = "PADDOCK_SNAPSHOT_CAPTURE", default_value = "never", value_parser = one_of::<CaptureWhen>(CAPTURES))]
    capture: CaptureWhen,
    /// Under which it is looked for and captured [default: project, branch and device type]
    #[arg(long, env = "PADDOCK_SNAPSHOT_KEY")]
    key: Option<String>,
    /// Keys to look for where there is none under the first, one a line or separated by commas
    #[arg(long, env = "PADDOCK_SNAPSHOT_FALLBACK_KEYS", value_name = "KEYS")]
    fallback_keys: Option<String>,
    /// Labels of what is captured, as key=value, separated by commas
    #[arg(long, env = "PADDOCK_SNAPSHOT_LABELS")]
    labels: Option<String>,
    /// After so long it goes by itself, if nobody ends it
    #[arg(long, env = "PADDOCK_EMULATOR_TTL", default_value = "2h", value_name = "TIME", value_parser = times::seconds)]
    ttl: u64,
    /// How long to wait until it is up
    #[arg(long, env = "PADDOCK_BOOT_TIMEOUT", default_value = "3m", value_name = "TIME", value_parser = times::seconds)]
    boot_timeout: u64,
    /// Write the variables into this file, too
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

#[derive(Args)]
pub struct Finish {
    /// The job's device
    #[arg(long, env = "PADDOCK_EMULATOR_ID", value_name = "ID")]
    emulator: String,
    /// How the job ended [default: as CI_JOB_STATUS says]
    #[arg(long, value_name = "OUTCOME", value_parser = one_of::<JobOutcome>(OUTCOMES))]
    outcome: Option<JobOutcome>,
    /// Write the variables into this file, too
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

pub async fn run(verb: Verb, client: &Client, output: Output) -> Result<(), Failure> {
    match verb {
        Verb::Start(wanted) => start(wanted, client, output).await,
        Verb::Finish(wanted) => finish(wanted, client, output).await,
    }
}

/// What is not empty; a variable that a pipeline leaves empty is none.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn first_of(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| variable(name))
}

/// What the pipeline says of the job. It is a statement: the server believes of it what can only lower its trust.
fn statement() -> CiSpec {
    CiSpec {
        project: first_of(&["CI_PROJECT_PATH", "GITHUB_REPOSITORY"]),
        r#ref: first_of(&["CI_COMMIT_REF_NAME", "GITHUB_REF_NAME"]),
        ref_protected: first_of(&["CI_COMMIT_REF_PROTECTED", "GITHUB_REF_PROTECTED"])
            .and_then(|text| text.parse().ok()),
        fork: None,
        commit: first_of(&["CI_COMMIT_SHA", "GITHUB_SHA"]),
        job_id: first_of(&["CI_JOB_ID", "GITHUB_RUN_ID"]),
        target_branch: first_of(&["CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "GITHUB_BASE_REF"]),
        default_branch: first_of(&["CI_DEFAULT_BRANCH"]),
    }
}

async fn start(wanted: Start, client: &Client, output: Output) -> Result<(), Failure> {
    let ci = statement();
    let key = match wanted.key.filter(|key| !key.is_empty()) {
        Some(key) => Some(key),
        None => default_key(&ci, wanted.device_type),
    };
    let nothing = wanted.capture == CaptureWhen::Never;
    let (snapshot, restore) = match wanted.restore.as_str() {
        "off" => (None, None),
        mode @ ("auto" | "required" | "") => {
            let Some(key) = key.clone() else {
                return Err(Failure::Usage(
                    "set PADDOCK_SNAPSHOT_KEY: outside of a pipeline there is no project to make a key of"
                        .to_owned(),
                ));
            };
            let fallback_keys = list(wanted.fallback_keys.as_deref());
            let required = (mode == "required").then_some(true);
            let fallback_keys = (!fallback_keys.is_empty()).then_some(fallback_keys);
            (None, Some(EmulatorRestoreSpec { key, fallback_keys, required }))
        }
        name => (Some(name.to_owned()), None),
    };
    let named = snapshot.is_some();
    let labels =
        list(wanted.labels.as_deref()).iter().map(|text| tenants::label(text)).collect::<Result<_, _>>();
    let labels = labels.map_err(|words| Failure::Usage(format!("PADDOCK_SNAPSHOT_LABELS: {words}")))?;
    let tenant = wanted.tenant.as_deref().filter(|tenant| !tenant.is_empty());
    let spec = EmulatorSpec {
        tenant_id: tenants::optional_id(tenant, client).await?,
        name: ci.job_id.as_ref().map(|job| format!("job-{job}")),
        snapshot,
        restore,
        capture: (!nothing).then_some(CaptureSpec {
            when: wanted.capture,
            key,
            labels: Some(Labels(labels)),
        }),
        ci: (ci != CiSpec::default()).then_some(ci),
        device_type: Some(wanted.device_type),
        expires_in_seconds: Some(wanted.ttl),
        ..EmulatorSpec::default()
    };
    let emulator = client.create_emulator(&spec).await?.value;
    let hit = match &emulator.restore {
        Some(restore) => word(&restore.hit),
        None if named => "exact".to_owned(),
        None => "none".to_owned(),
    };
    let restored = if hit == "none" { String::new() } else { emulator.snapshot.name.clone() };
    let (emulator, outcome) = come_up(emulator, Some(wanted.boot_timeout), client, output).await;
    // Written down even where it did not come up, so that the end of the job finds it.
    tell(
        &[
            ("PADDOCK_EMULATOR_ID", &emulator.id),
            ("PADDOCK_ADB_SERIAL", &adb(&emulator).unwrap_or_default()),
            ("PADDOCK_SNAPSHOT_RESTORED", &restored),
            ("PADDOCK_SNAPSHOT_HIT", &hit),
        ],
        wanted.env_file,
    )?;
    outcome
}

fn default_key(ci: &CiSpec, device_type: DeviceType) -> Option<String> {
    let project = ci.project.as_ref()?;
    let branch = ci.r#ref.as_deref().unwrap_or_default();
    Some(format!("{project} {branch} {}", word(&device_type)))
}

async fn finish(wanted: Finish, client: &Client, output: Output) -> Result<(), Failure> {
    let outcome = match (wanted.outcome, variable("CI_JOB_STATUS").as_deref()) {
        (Some(outcome), _) => outcome,
        (None, Some("success")) => JobOutcome::Success,
        (None, Some(_)) => JobOutcome::Failure,
        (None, None) => {
            return Err(Failure::Usage(
                "say how the job ended: --outcome success or --outcome failure".to_owned(),
            ));
        }
    };
    let id = wanted.emulator;
    client.delete_emulator(&id, &DeleteEmulator { outcome: Some(outcome) }, None).await?;
    let report = settled(&id, None, client, output).await?;
    if report.status != EmulatorStatus::Terminated {
        return Err(not_reached(&id, "gone", &report));
    }
    let captured = captured(&id, client).await;
    let name = captured.as_ref().ok().cloned().flatten().unwrap_or_default();
    tell(&[("PADDOCK_SNAPSHOT_CAPTURED", &name)], wanted.env_file)?;
    captured.map(drop)
}

/// Parts by line or comma.
fn list(text: Option<&str>) -> Vec<String> {
    let parts = text.unwrap_or_default().split(['\n', ',']).map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Variables as a shell and dotenv reports read them.
fn tell(variables: &[(&str, &str)], file: Option<PathBuf>) -> Result<(), Failure> {
    let mut text = String::new();
    for (name, value) in variables {
        let _ = writeln!(text, "{name}={}", output::printable(value));
    }
    if let Some(file) = file {
        std::fs::write(&file, &text)
            .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", file.display())))?;
    }
    output::write(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn keys_are_given_by_line_or_comma() {
        assert_eq!(list(Some("app main *, app *\n\n lib *")), ["app main *", "app *", "lib *"]);
        assert_eq!(list(None), [] as [&str; 0]);
    }
}
