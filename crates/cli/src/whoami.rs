//! Who the server takes the user for.

use paddock_api::client::Client;
use paddock_api::permissions::Whoami;

use crate::failure::Failure;
use crate::output::{Column, Output, Row};
use crate::words::word;

pub const EXAMPLES: &str = "\
Examples:
  paddock whoami
  paddock whoami -o wide
  paddock whoami -o name                 only your id

What you may do: paddock permission me";

impl Row for Whoami {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", |me| me.name.clone()),
        Column::new("ID", |me| me.id.clone()),
        Column::new("EMAIL", |me| me.email.clone().unwrap_or_default()),
        Column::new("CREDENTIAL", |me| word(&me.credential.r#type)),
        Column::new("EXPIRES", |me| me.expires_at.clone().unwrap_or_else(|| "never".to_owned())),
        Column::wide("TYPE", |me| word(&me.r#type)),
        Column::wide("PROVIDER", |me| me.credential.provider.clone().unwrap_or_default()),
        Column::wide("SCOPES", |me| me.credential.scopes.join(",")),
        Column::wide("OPENS", |me| me.credential.ceiling.join(",")),
    ];

    fn name(&self) -> &str {
        self.id.as_str()
    }
}

pub async fn run(client: &Client, output: Output) -> Result<(), Failure> {
    output.one(&client.whoami().await?)
}
