//! A world for tests: a server of its own, and the program as a user calls it.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use paddock_api::client::Client;
use paddock_api::labels::Labels;
use paddock_api::tenants::TenantSpec;
use paddock_engine::users;
use paddock_model::users::UserId;
use paddock_server::auth::access_token;
use paddock_server::config::{self, Config};
use paddock_server::http::meta::Build;
use paddock_server::wiring::{self, Server};
use serde_json::Value;
use tokio::runtime::Runtime;

pub const EXIT_DONE: i32 = 0;
pub const EXIT_FAILED: i32 = 1;
pub const EXIT_USAGE: i32 = 2;
pub const EXIT_NOT_AUTHENTICATED: i32 = 3;
pub const EXIT_FORBIDDEN: i32 = 4;
pub const EXIT_NOT_FOUND: i32 = 5;
pub const EXIT_CONFLICT: i32 = 6;
pub const EXIT_TOO_MANY: i32 = 7;
pub const EXIT_SERVER: i32 = 11;
pub const EXIT_NOT_ALLOWED: i32 = 12;

/// A server of its own, and a user who may do everything there.
pub struct World {
    pub server: Server,
    pub token: String,
    // Dropped in this order: the tasks end before their folder goes.
    runtime: Runtime,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
pub struct Outcome {
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl World {
    pub fn new() -> World {
        World::with(&[])
    }

    pub fn with(flags: &[&str]) -> World {
        World::within(tempfile::tempdir().expect("a folder"), flags)
    }

    /// One whose data are in this folder.
    pub fn within(folder: tempfile::TempDir, flags: &[&str]) -> World {
        let data = folder.path().display().to_string();
        let config = config(&[&["--data", &data, "--listen", "127.0.0.1:0"], flags].concat());
        let runtime = Runtime::new().expect("a runtime");
        let (server, token) = runtime.block_on(async {
            let build = Build { commit: "unknown", built_at: "1970-01-01T00:00:00Z" };
            let server = wiring::start(&config, wiring::World::real(build)).await.expect("a server");
            let admin = users::first_admin(&server.engine).await.expect("the first admin");
            let token =
                access_token::mint(&server.engine, admin.id, server.engine.now()).await.expect("a token");
            (server, token)
        });
        World { server, token, runtime, folder }
    }

    /// Where the server keeps everything.
    pub fn data(&self) -> &Path {
        self.folder.path()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// The program with the address of the server, and none of the tester's own settings.
    pub fn stranger(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
        command.env_clear().env("PADDOCK_URL", self.url()).stdin(Stdio::null()).args(arguments);
        command
    }

    pub fn paddock(&self, arguments: &[&str]) -> Command {
        let mut command = self.stranger(arguments);
        command.env("PADDOCK_TOKEN", &self.token);
        command
    }

    /// The outcome for someone else than the admin.
    pub fn run_as(&self, token: &str, arguments: &[&str]) -> Outcome {
        outcome(self.stranger(arguments).env("PADDOCK_TOKEN", token))
    }

    /// A credential of a user, as if they had just signed in.
    pub fn token_of(&self, user: &str) -> String {
        let (user, engine) = (UserId::parse(user).expect("a user's id"), &self.server.engine);
        self.runtime.block_on(access_token::mint(engine, user, engine.now())).expect("a token")
    }

    pub fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.paddock(arguments))
    }

    /// Makes a tenant and returns its id.
    pub fn create(&self, arguments: &[&str]) -> String {
        let created = self.run(&[&["tenant", "create"], arguments].concat()).expect(EXIT_DONE);
        created.stdout.trim().to_owned()
    }

    pub fn tenant(&self, id_or_name: &str) -> Value {
        self.run(&["tenant", "get", id_or_name, "-o", "json"]).expect(EXIT_DONE).json()
    }

    /// Makes an account and returns its id.
    pub fn user(&self, login: &str) -> String {
        self.run(&["user", "create", login]).expect(EXIT_DONE).stdout.trim().to_owned()
    }

    /// Makes an account that has this role in the tenant, and returns its id.
    pub fn member(&self, tenant: &str, login: &str, role: &str) -> String {
        let add = ["member", "add", "--tenant", tenant, "--login", login, "--role", role];
        self.run(&add).expect(EXIT_DONE).stdout.trim().to_owned()
    }

    pub fn names(&self) -> Vec<String> {
        self.run(&["tenant", "list", "-o", "name"]).expect(EXIT_DONE).lines()
    }

    /// Makes tenants without a process for each; so fast that their order is by chance.
    pub fn tenants(&self, names: &BTreeSet<String>) {
        let client = Client::new(&self.url(), Some(&self.token)).expect("a client");
        self.runtime.block_on(async {
            for name in names {
                let spec = TenantSpec { name: name.clone(), display_name: None, labels: Labels::default() };
                client.create_tenant(&spec).await.expect("a tenant");
            }
        });
    }
}

impl Outcome {
    #[track_caller]
    pub fn expect(self, exit: i32) -> Self {
        assert_eq!(self.exit, Some(exit), "{self:?}");
        self
    }

    /// Nothing on standard output, which a program may read, and these words on standard error.
    #[track_caller]
    pub fn says_only(self, words: &str) {
        assert_eq!(self.stdout, "", "{self:?}");
        assert!(self.stderr.contains(words), "{self:?}");
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn yaml(&self) -> Value {
        yaml_serde::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn lines(&self) -> Vec<String> {
        self.stdout.lines().map(str::to_owned).collect()
    }

    /// The words of every line; no value in these tests holds two spaces.
    pub fn cells(&self) -> Vec<Vec<&str>> {
        self.stdout
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect()
    }
}

pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().expect("paddock starts");
    let text = |bytes| String::from_utf8(bytes).expect("paddock writes UTF-8");
    Outcome { exit: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub fn with_input(command: &mut Command, input: &str) -> Outcome {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    command.stdin(reader);
    writer.write_all(input.as_bytes()).expect("a short text fits into a pipe");
    drop(writer);
    outcome(command)
}

fn config(flags: &[&str]) -> Config {
    let arguments = ["paddockd"].into_iter().chain(flags.iter().copied());
    let matches =
        config::command(clap::Command::new("paddockd")).try_get_matches_from(arguments).expect("known flags");
    config::load(&matches, std::iter::empty()).expect("valid settings").0
}
