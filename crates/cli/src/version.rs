//! Which builds speak with each other.

use paddock_api::client::Client;
use paddock_api::meta::Version;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Column, Output, Row};

pub const EXAMPLES: &str = "\
Examples:
  paddock version
  paddock version -o json
  paddock --version        only this program, without asking the server";

#[derive(Serialize)]
struct Versions {
    client: ClientVersion,
    /// Null where no server answers.
    server: Option<Version>,
}

#[derive(Serialize)]
struct ClientVersion {
    version: &'static str,
}

struct Part {
    part: &'static str,
    version: String,
    commit: String,
    built_at: String,
}

impl Row for Part {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("PART", |part| part.part.to_owned()),
        Column::new("VERSION", |part| part.version.clone()),
        Column::wide("COMMIT", |part| part.commit.clone()),
        Column::wide("BUILT", |part| part.built_at.clone()),
    ];

    fn name(&self) -> &str {
        &self.version
    }
}

pub async fn run(client: &Client, output: Output) -> Result<(), Failure> {
    let server = match client.version().await {
        Ok(version) => Some(version),
        Err(error) => {
            output::notice(&output::printable(&format!("no server: {error}")));
            None
        }
    };
    let versions = Versions { client: ClientVersion { version: env!("CARGO_PKG_VERSION") }, server };
    output.list(&versions, &parts(&versions))
}

fn parts(versions: &Versions) -> Vec<Part> {
    let client = Part {
        part: "client",
        version: versions.client.version.to_owned(),
        commit: String::new(),
        built_at: String::new(),
    };
    let server = versions.server.iter().map(|server| Part {
        part: "server",
        version: server.version.clone(),
        commit: server.commit.clone(),
        built_at: server.built_at.clone(),
    });
    std::iter::once(client).chain(server).collect()
}
