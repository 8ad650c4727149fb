//! paddock: the command line. Parses it, hands it to the noun, and turns the outcome into an exit code.

use std::process::ExitCode;

use clap::{ColorChoice, Parser, Subcommand};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{Format, Output};

mod adb;
mod admins;
mod api;
mod api_keys;
mod audit;
mod auth;
mod backups;
mod ci;
mod confirmation;
mod connection;
mod credentials;
mod emulators;
mod failure;
mod grants;
mod groups;
mod invitations;
mod listing;
mod logs;
mod loopback;
mod members;
mod output;
mod permissions;
mod restores;
mod retention_policies;
mod snapshots;
mod subjects;
mod tenants;
mod times;
mod users;
mod vehicles;
mod version;
mod whoami;
mod words;

const EXAMPLES: &str = "\
Examples:
  Sign in, by a browser:
    paddock auth login

  Make a tenant and look at it:
    paddock tenant create acme --display-name 'Acme Motors'
    paddock tenant get acme -o yaml

  Deploy an emulator and wait until it is up:
    paddock emulator create --tenant acme --wait

  Use it with Android's own adb, from anywhere:
    paddock adb connect maps-nightly

  Let people in, and see what was done:
    paddock member add --tenant acme --login ada --role member
    paddock audit list --tenant acme

  Ask for anything in the API:
    paddock api GET '/tenants?limit=5'

Answers go to standard output, everything else to standard error.
What an exit code says: paddock help exit-codes";

/// Paddock runs cloud Android emulators and keeps the disk snapshots that boot them
///
/// A command is a noun and a verb, such as `paddock tenant list`. Add --help to any of them for its options and
/// for examples.
#[derive(Parser)]
#[command(name = "paddock", version, color = ColorChoice::Never, after_help = EXAMPLES)]
struct CommandLine {
    #[command(flatten)]
    connection: Connection,
    /// How to show the answer [default: table]
    #[arg(short, long, global = true, value_name = "FORMAT", help_heading = "Global options")]
    output: Option<Format>,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Tenants: the walls between customers
    #[command(visible_alias = "tenants", subcommand, after_help = tenants::EXAMPLES)]
    Tenant(tenants::Verb),
    /// Emulators: devices that run
    #[command(visible_alias = "emulators", subcommand, after_help = emulators::EXAMPLES)]
    Emulator(emulators::Verb),
    /// ADB: connect Android's own adb to an emulator
    #[command(subcommand, after_help = adb::EXAMPLES)]
    Adb(adb::Verb),
    /// Vehicles: the cars around automotive emulators
    #[command(visible_alias = "vehicles", subcommand, after_help = vehicles::EXAMPLES)]
    Vehicle(vehicles::Verb),
    /// Snapshots: what emulators boot from
    #[command(visible_alias = "snapshots", subcommand, after_help = snapshots::EXAMPLES)]
    Snapshot(snapshots::Verb),
    /// CI: start a job's device warm, and leave something for the next
    #[command(subcommand, after_help = ci::EXAMPLES)]
    Ci(ci::Verb),
    /// Backups: what disks held, kept apart from the pool
    #[command(visible_alias = "backups", subcommand, after_help = backups::EXAMPLES)]
    Backup(backups::Verb),
    /// Restores: backups that become snapshots again
    #[command(visible_alias = "restores", subcommand, after_help = restores::EXAMPLES)]
    Restore(restores::Verb),
    /// Retention policies: which snapshots are kept
    #[command(visible_alias = "retention-policies", subcommand, after_help = retention_policies::EXAMPLES)]
    RetentionPolicy(retention_policies::Verb),
    /// Sign in and out
    #[command(subcommand, after_help = auth::EXAMPLES)]
    Auth(auth::Verb),
    /// Members: who belongs to a tenant, and in which role
    #[command(visible_alias = "members", subcommand, after_help = members::EXAMPLES)]
    Member(members::Verb),
    /// Groups: people and machines of one tenant that are given rights together
    #[command(visible_alias = "groups", subcommand, after_help = groups::EXAMPLES)]
    Group(groups::Verb),
    /// Grants: rights on one tenant's things, given to one of its groups
    #[command(visible_alias = "grants", subcommand, after_help = grants::EXAMPLES)]
    Grant(grants::Verb),
    /// Users: the people that Paddock knows
    #[command(visible_alias = "users", subcommand, after_help = users::EXAMPLES)]
    User(users::Verb),
    /// Admins of the whole installation
    #[command(visible_alias = "admins", subcommand, after_help = admins::EXAMPLES)]
    Admin(admins::Verb),
    /// API keys: what opens the device API
    #[command(visible_alias = "api-keys", subcommand, after_help = api_keys::EXAMPLES)]
    ApiKey(api_keys::Verb),
    /// The audit: who did what, and what became of it
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(audit::Verb),
    /// Permissions: what you may do, and why
    #[command(visible_alias = "permissions", subcommand, after_help = permissions::EXAMPLES)]
    Permission(permissions::Verb),
    /// Show who you are to the server
    #[command(after_help = whoami::EXAMPLES)]
    Whoami,
    /// Send any request to the API
    #[command(after_help = api::EXAMPLES)]
    Api(api::Request),
    /// Show the version of this program, and of the server if it can be reached
    #[command(after_help = version::EXAMPLES)]
    Version,
    // A topic rather than a command: clap's own `help` finds it.
    #[command(hide = true, about = failure::EXIT_CODES, help_template = "{about}\n")]
    ExitCodes,
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let output = Output::new(line.output);
    let Err(failure) = carry_out(line, output) else {
        return ExitCode::SUCCESS;
    };
    if let Some(report) = failure.report(output) {
        output::notice(&report);
    }
    ExitCode::from(failure.exit() as u8)
}

fn carry_out(line: CommandLine, output: Output) -> Result<(), Failure> {
    if matches!(line.noun, Noun::ExitCodes) {
        return output::write(format!("{}\n", failure::EXIT_CODES).as_bytes());
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let outcome = runtime.block_on(async {
        if let Noun::Auth(verb) = line.noun {
            return auth::run(verb, line.connection, output).await;
        }
        if let Noun::Adb(verb) = line.noun {
            return adb::run(verb, line.connection, output).await;
        }
        let client = line.connection.client().await?;
        match line.noun {
            Noun::Tenant(verb) => tenants::run(verb, &client, output).await,
            Noun::Member(verb) => members::run(verb, &client, output).await,
            Noun::Emulator(verb) => emulators::run(verb, &line.connection, &client, output).await,
            Noun::Vehicle(verb) => vehicles::run(verb, &client, output).await,
            Noun::Snapshot(verb) => snapshots::run(verb, &client, output).await,
            Noun::Ci(verb) => ci::run(verb, &client, output).await,
            Noun::Backup(verb) => backups::run(verb, &client, output).await,
            Noun::Restore(verb) => restores::run(verb, &client, output).await,
            Noun::RetentionPolicy(verb) => retention_policies::run(verb, &client, output).await,
            Noun::Group(verb) => groups::run(verb, &client, output).await,
            Noun::Grant(verb) => grants::run(verb, &client, output).await,
            Noun::User(verb) => users::run(verb, &client, output).await,
            Noun::Admin(verb) => admins::run(verb, &client, output).await,
            Noun::ApiKey(verb) => api_keys::run(verb, &client, output).await,
            Noun::Audit(verb) => audit::run(verb, &client, output).await,
            Noun::Permission(verb) => permissions::run(verb, &client, output).await,
            Noun::Whoami => whoami::run(&client, output).await,
            Noun::Api(request) => api::run(request, &client, output).await,
            Noun::Version => version::run(&client, output).await,
            Noun::Adb(_) | Noun::Auth(_) | Noun::ExitCodes => Ok(()),
        }
    });
    // A name that the resolver is still looking up must not hold back the exit.
    runtime.shutdown_background();
    outcome
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::CommandLine;

    #[test]
    fn the_command_line_holds_no_contradiction() {
        CommandLine::command().debug_assert();
    }
}
