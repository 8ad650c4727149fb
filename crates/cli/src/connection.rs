//! Where the server is, and the token by which it knows the user.

use std::path::PathBuf;

use clap::Args;
use http::Uri;
use paddock_api::client::Client;

use crate::credentials;
use crate::failure::Failure;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";
const TOKEN: &str = "PADDOCK_TOKEN";
const JOB_TOKEN: &str = "CI_JOB_TOKEN";

#[derive(Args)]
#[command(next_help_heading = "Global options")]
pub struct Connection {
    /// Address of the server
    #[arg(long, global = true, env = "PADDOCK_URL", default_value = DEFAULT_URL, value_parser = address)]
    url: String,
    /// Token to show to the server; others on this machine can see it in the list of processes [env: PADDOCK_TOKEN]
    #[arg(long, global = true, conflicts_with = "token_file")]
    token: Option<String>,
    /// File that holds the token; goes before PADDOCK_TOKEN, which goes before the sign-in
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Root certificates in PEM to trust besides the system's
    #[arg(long, global = true, value_name = "FILE", env = "PADDOCK_CA_FILE")]
    ca_file: Option<PathBuf>,
}

impl Connection {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// With the token that was given, or else the one of the sign-in.
    pub async fn client(&self) -> Result<Client, Failure> {
        let token = self.token().await?;
        self.client_with(token.as_deref())
    }

    /// With this token, or with none.
    pub fn client_with(&self, token: Option<&str>) -> Result<Client, Failure> {
        let roots = self.ca_file.as_ref().filter(|file| !file.as_os_str().is_empty()).map(|file| {
            let unreadable = |error| Failure::Usage(format!("cannot read {}: {error}", file.display()));
            std::fs::read(file).map_err(unreadable)
        });
        Ok(Client::trusting(&self.url, token, roots.transpose()?.as_deref())?)
    }

    pub async fn token(&self) -> Result<Option<String>, Failure> {
        match self.given_token()? {
            Some(token) => Ok(Some(token)),
            None => credentials::access_token(&self.url, || self.client_with(None)).await,
        }
    }

    /// The token that stands in a flag, a file or the environment.
    pub fn given_token(&self) -> Result<Option<String>, Failure> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(file)) => match std::fs::read_to_string(file) {
                Ok(text) if text.trim().is_empty() => {
                    return Err(Failure::Usage(format!("{} holds no token", file.display())));
                }
                Ok(text) => Some(text),
                Err(error) => return Err(Failure::Usage(format!("cannot read {}: {error}", file.display()))),
            },
            // A pipeline's own token goes after ours; one that leaves a variable empty has none.
            (None, None) => {
                let given = |name| std::env::var(name).ok().filter(|token: &String| !token.trim().is_empty());
                given(TOKEN).or_else(|| given(JOB_TOKEN))
            }
        };
        Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
    }
}

/// An address as the client takes it; an empty one, as a script leaves it, is none.
fn address(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Ok(DEFAULT_URL.to_owned());
    }
    let written_out = text.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    });
    if written_out { Ok(text.to_owned()) } else { Err("write it out, such as http://127.0.0.1:8080") }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_URL, address};

    #[test]
    fn an_address_is_written_out() {
        for (text, expected) in [
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("https://paddock.example/behind/a/proxy/", Some("https://paddock.example/behind/a/proxy/")),
            ("http://[::1]:8080", Some("http://[::1]:8080")),
            ("", Some(DEFAULT_URL)),
            ("127.0.0.1:8080", None),
            ("localhost", None),
            ("ftp://paddock.example", None),
            ("http://", None),
            ("http://paddock.example/?a=b", None),
        ] {
            assert_eq!(address(text).ok().as_deref(), expected, "{text}");
        }
    }
}
