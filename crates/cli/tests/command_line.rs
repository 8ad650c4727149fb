//! What a user meets at the command line before any server does.

use std::io;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

const EXIT_USAGE: i32 = 2;
const EXIT_SERVER: i32 = 11;

/// The program with none of the tester's own settings.
fn paddock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
    command.env_clear().stdin(Stdio::null()).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    paddock(arguments).output().expect("paddock starts")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("paddock writes UTF-8")
}

/// An address at which nobody listens any more.
fn dead_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("its address"))
}

#[test]
fn a_command_line_without_sense_is_a_usage_error() {
    for arguments in [
        &[][..],
        &["cow"],
        &["tenant"],
        &["tenant", "get"],
        &["tenant", "create", "acme", "--label", "team"],
        &["tenant", "update", "acme"],
        &["tenant", "delete", "acme"],
        &["tenant", "list", "--limit", "0"],
        &["tenant", "list", "-o", "xml"],
        &["tenant", "list", "--url", "localhost:8080"],
        &["tenant", "list", "--token", "a", "--token-file", "b"],
        &["tenant", "list", "--token", "line\nbreak"],
        &["tenant", "list", "--token-file", "/nonexistent/token"],
        &["tenant", "list", "--token-file", "/dev/null"],
        &["tenant", "list", "--ca-file", "/nonexistent/root.pem"],
        &["tenant", "list", "--ca-file", "/dev/null"],
        &["user", "create"],
        &["user", "update", "ada"],
        &["user", "update", "ada", "--disable", "--enable"],
        &["user", "update", "ada", "--disable"],
        &["member", "list"],
        &["member", "add", "--tenant", "acme", "--role", "member"],
        &["member", "add", "--tenant", "acme", "--login", "a", "--user", "b", "--role", "member"],
        &["member", "add", "--tenant", "acme", "--login", "a", "--role", "king"],
        &["member", "remove", "ada", "--tenant", "acme"],
        &["group", "update", "qa", "--tenant", "acme"],
        &["group", "get", "qa"],
        &["group", "member"],
        &["grant", "delete", "qa", "operator", "--tenant", "acme", "--yes"],
        &["admin", "remove", "ada"],
        &["api-key", "create", "ci"],
        &["api-key", "create", "ci", "--scope", "device:fly"],
        &["api-key", "create", "ci", "--scope", "device:read", "--expires-in", "soon"],
        &["backup", "create"],
        &["backup", "create", "--snapshot", "a", "--emulator", "b"],
        &["backup", "list", "--phase", "lost"],
        &["restore", "create"],
        &["audit", "list", "--all", "--limit", "5"],
        &["audit", "list", "--outcome", "maybe"],
        &["permission", "check", "can_view"],
        &["api", "GET"],
        &["api", "GET", "/tenants", "-o", "table"],
        &["api", "POST", "/tenants", "--paginate"],
        &["api", "POST", "/tenants", "--body", "@/nonexistent/body"],
    ] {
        let outcome = run(arguments);

        assert_eq!(outcome.status.code(), Some(EXIT_USAGE), "{arguments:?}");
        assert!(outcome.stdout.is_empty(), "{arguments:?}");
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let url = dead_address();

    let by_option = run(&["tenant", "list", "--url", &url]);
    let by_environment =
        paddock(&["tenant", "list"]).env("PADDOCK_URL", &url).output().expect("paddock starts");

    for outcome in [by_option, by_environment] {
        assert_eq!(outcome.status.code(), Some(EXIT_SERVER));
        assert!(outcome.stdout.is_empty());
        assert!(text(&outcome.stderr).contains(&url), "{}", text(&outcome.stderr));
    }
}

#[test]
fn a_program_can_read_the_failure() {
    let outcome = run(&["tenant", "list", "-o", "json", "--url", &dead_address()]);

    let document: serde_json::Value = serde_json::from_slice(&outcome.stderr).expect("the failure is JSON");
    assert_eq!(document["code"], "unreachable");
}

#[test]
fn the_version_needs_no_server() {
    let outcome = run(&["version", "-o", "json", "--url", &dead_address()]);

    let document: serde_json::Value = serde_json::from_slice(&outcome.stdout).expect("the version is JSON");
    assert!(outcome.status.success());
    assert_eq!(document["client"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(document["server"].is_null());
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let url = dead_address();
    for arguments in [&["--help"][..], &["help", "exit-codes"], &["exit-codes"], &["version", "--url", &url]]
    {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);

        let outcome = paddock(arguments).stdout(writer).output().expect("paddock starts");

        assert!(outcome.status.success(), "{arguments:?}");
        assert!(!text(&outcome.stderr).contains("panicked"), "{}", text(&outcome.stderr));
    }
}

#[test]
fn closed_standard_error_is_no_panic() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);

    let status = paddock(&["tenant", "list", "--url", &dead_address()]).stderr(writer).status();

    assert_eq!(status.expect("paddock starts").code(), Some(EXIT_SERVER));
}

#[test]
fn help_teaches_with_examples() {
    for (arguments, mention) in [
        (&["--help"][..], "paddock help exit-codes"),
        (&["--help"], "paddock auth login"),
        (&["tenant", "--help"], "paddock tenant create acme"),
        (&["tenants", "list", "--help"], "paddock tenant list -l team=maps"),
        (&["tenant", "get", "--help"], "paddock tenant get acme"),
        (&["tenant", "create", "--help"], "only the id"),
        (&["tenant", "update", "--help"], "--remove-label <KEY>"),
        (&["tenant", "delete", "--help"], "--dry-run"),
        (&["tenant", "list", "--help"], "--cursor <CURSOR>"),
        (&["tenant", "list", "--help"], "--ca-file <FILE>"),
        (&["whoami", "--help"], "paddock permission me"),
        (&["emulator", "--help"], "paddock emulator create --tenant acme"),
        (&["emulators", "create", "--help"], "--wait [<SECONDS>]"),
        (&["emulator", "delete", "--help"], "--dry-run"),
        (&["emulator", "restart", "--help"], "wakes"),
        (&["snapshots", "list", "--help"], "paddock snapshot list --root"),
        (&["backups", "create", "--help"], "only the difference is read"),
        (&["restore", "create", "--help"], "--name with-maps-again --wait"),
        (&["user", "create", "--help"], "jq -r .invitation.url"),
        (&["user", "update", "--help"], "--disable"),
        (&["member", "add", "--help"], "--service-account <NAME>"),
        (&["members", "remove", "--help"], "paddock member remove ada --tenant acme --yes"),
        (&["group", "--help"], "PADDOCK_TENANT"),
        (&["group", "member", "add", "--help"], "group:testers"),
        (&["grant", "create", "--help"], "granted_operator"),
        (&["admin", "add", "--help"], "paddock admin add ada"),
        (&["api-key", "create", "--help"], "--expires-in <TIME>"),
        (&["audit", "list", "--help"], "--since 24h"),
        (&["permission", "check", "--help"], "12 where it is not"),
        (&["help", "exit-codes"], "12  no"),
        (&["api", "--help"], "paddock api GET /tenants"),
        (&["version", "--help"], "PADDOCK_TOKEN"),
        (&["help", "exit-codes"], "130  interrupted"),
    ] {
        let outcome = run(arguments);

        assert!(outcome.status.success(), "{arguments:?}");
        assert!(text(&outcome.stdout).contains(mention), "{arguments:?}: {}", text(&outcome.stdout));
    }
}
