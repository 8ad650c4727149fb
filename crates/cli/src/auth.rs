//! Signing in and out: by a browser on this machine, by a code that is typed elsewhere, or with a token at hand.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Subcommand;
use paddock_api::client::{self, Client};
use paddock_api::sign_in::{RevocationRequest, TokenAnswer, TokenRequest};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;

use crate::connection::Connection;
use crate::credentials::{self, CLIENT_ID, Saved};
use crate::failure::Failure;
use crate::loopback::Loopback;
use crate::output::{self, Column, Output, Row};

pub const EXAMPLES: &str = "\
Examples:
  paddock auth login
  paddock auth login --device                       on a machine without a browser
  paddockd admin token --data DIR | paddock auth login --with-token
  paddock auth status
  curl -H \"Authorization: Bearer $(paddock auth token)\" $PADDOCK_URL/api/v1/whoami
  paddock auth logout

A sign-in is kept for each server in $XDG_CONFIG_HOME/paddock/credentials.json, for your eyes only. PADDOCK_TOKEN, --token
and --token-file go before it.";

/// How long to wait for a person at a browser.
const PATIENCE: Duration = Duration::from_secs(600);
/// Who signs in proves to be there; a browser that has done so longer ago is asked once more.
const MAX_AGE: u32 = 600;

#[derive(Subcommand)]
pub enum Verb {
    /// Sign in
    Login {
        /// Show a code to type into a browser elsewhere
        #[arg(long, conflicts_with = "with_token")]
        device: bool,
        /// Read an access token from standard input
        #[arg(long)]
        with_token: bool,
        /// Only show the address, and open no browser
        #[arg(long)]
        no_browser: bool,
    },
    /// Sign out, here and at the server
    Logout,
    /// Show who is signed in
    Status,
    /// Print an access token, fresh if the last one is over
    Token,
}

pub async fn run(verb: Verb, connection: Connection, output: Output) -> Result<(), Failure> {
    let url = connection.url().to_owned();
    match verb {
        Verb::Login { device, with_token, no_browser } => {
            let client = connection.client_with(None)?;
            let saved = if with_token {
                given()?
            } else if device {
                Saved::new(by_device(&client).await?)
            } else {
                Saved::new(by_browser(&client, no_browser).await?)
            };
            // Before it is kept: what the server does not take is not worth it.
            let name = connection.client_with(Some(&saved.access_token))?.whoami().await?.name;
            let before = credentials::find(&url)?;
            credentials::save(&url, Some(&saved))?;
            if let Some(token) = before.and_then(|before| before.refresh_token) {
                // It would be of use to nobody but a thief; that it stays is no reason to fail.
                let _ = client.revoke(&revocation(token)).await;
            }
            output::notice(&output::printable(&format!("Signed in at {url} as {name}.")));
            Ok(())
        }
        Verb::Logout => logout(&url, &connection).await,
        Verb::Status => status(&url, &connection, output).await,
        Verb::Token => {
            let token = connection.token().await?.ok_or_else(|| nobody(&url))?;
            output::write(format!("{token}\n").as_bytes())
        }
    }
}

/// Line by line, for people.
fn say(lines: &[&str]) {
    for line in lines {
        output::notice(&output::printable(line));
    }
}

fn nobody(url: &str) -> Failure {
    Failure::NotSignedIn(format!("you are not signed in at {url}"))
}

fn given() -> Result<Saved, Failure> {
    let mut text = String::new();
    let read = io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::Usage(format!("cannot read standard input: {error}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::Usage("there is no token on standard input".to_owned()));
    }
    Ok(Saved {
        access_token: token.to_owned(),
        expires_at: end_of(token).unwrap_or(u64::MAX),
        refresh_token: None,
    })
}

/// When a token says that it ends, if it does.
fn end_of(token: &str) -> Option<u64> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<serde_json::Value>(&claims).ok()?["exp"].as_u64()
}

async fn by_browser(client: &Client, no_browser: bool) -> Result<TokenAnswer, Failure> {
    let server = client.authorization_server().await?;
    let loopback = Loopback::open().await.map_err(Failure::Runtime)?;
    let (verifier, state) = (secret()?, secret()?);
    let redirect_uri = loopback.redirect_uri.clone();
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", &redirect_uri),
        ("state", &state),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("max_age", &MAX_AGE.to_string()),
    ]);
    let page = format!("{}?{}", server.authorization_endpoint, query.finish());
    say(&["Sign in at this address:", "", &format!("    {page}"), ""]);
    if !no_browser {
        open_browser(&page);
    }
    let patience = tokio::time::timeout(PATIENCE, loopback.wait(&state));
    let told = patience
        .await
        .map_err(|_| Failure::NotSignedIn("nobody signed in within ten minutes".to_owned()))?
        .map_err(Failure::Runtime)?;
    if told.get("iss") != Some(&server.issuer) {
        return Err(Failure::NotSignedIn("the answer came from another server than was asked".to_owned()));
    }
    let code = told.get("code").ok_or_else(|| refused(told.get("error").map_or("", String::as_str)))?;
    let request = TokenRequest {
        grant_type: "authorization_code".to_owned(),
        client_id: CLIENT_ID.to_owned(),
        code: Some(code.clone()),
        redirect_uri: Some(redirect_uri),
        code_verifier: Some(verifier),
        ..TokenRequest::default()
    };
    Ok(client.token(&request).await?)
}

fn refused(error: &str) -> Failure {
    Failure::NotSignedIn(match error {
        "access_denied" => "you have declined; nothing was changed".to_owned(),
        error => format!("the server gave no tokens: {error}"),
    })
}

/// 256 bits that nobody can guess.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::Runtime(io::Error::other("the system gives no random numbers")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether there is a browser shows by itself; the address stands on the screen anyway.
fn open_browser(page: &str) {
    if !page.starts_with("https://") && !page.starts_with("http://") {
        return;
    }
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    let _ = command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

async fn by_device(client: &Client) -> Result<TokenAnswer, Failure> {
    let begun = client.device_authorization(CLIENT_ID).await?;
    let (page, code) = (format!("    {}", begun.verification_uri), format!("    {}", begun.user_code));
    say(&["Open this address in any browser:", "", &page, "", "and enter this code:", "", &code, ""]);
    let request = TokenRequest {
        grant_type: "urn:ietf:params:oauth:grant-type:device_code".to_owned(),
        client_id: CLIENT_ID.to_owned(),
        device_code: Some(begun.device_code),
        ..TokenRequest::default()
    };
    let mut interval = Duration::from_secs(begun.interval.max(1).into());
    loop {
        tokio::time::sleep(interval).await;
        match client.token(&request).await {
            Ok(tokens) => return Ok(tokens),
            Err(client::Error::NoTokens(answer)) => match answer.error.as_str() {
                "authorization_pending" => {}
                "slow_down" => interval += Duration::from_secs(5),
                error => return Err(refused(error)),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

async fn logout(url: &str, connection: &Connection) -> Result<(), Failure> {
    let Some(saved) = credentials::find(url)? else {
        output::notice(&output::printable(&format!("You were not signed in at {url}.")));
        return Ok(());
    };
    credentials::save(url, None)?;
    if let Some(token) = saved.refresh_token {
        connection.client_with(None)?.revoke(&revocation(token)).await?;
    }
    output::notice(&output::printable(&format!("Signed out at {url}.")));
    Ok(())
}

fn revocation(token: String) -> RevocationRequest {
    RevocationRequest { token, client_id: CLIENT_ID.to_owned() }
}

/// Who is signed in, and by what.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    url: String,
    name: String,
    /// `sign_in`, or `token` for one that was given.
    by: &'static str,
    expires_at: Option<String>,
}

impl Row for Standing {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("SERVER", |standing| standing.url.clone()),
        Column::new("NAME", |standing| standing.name.clone()),
        Column::new("BY", |standing| standing.by.to_owned()),
        Column::wide("TOKEN UNTIL", |standing| standing.expires_at.clone().unwrap_or_default()),
    ];

    fn name(&self) -> &str {
        &self.name
    }
}

async fn status(url: &str, connection: &Connection, output: Output) -> Result<(), Failure> {
    let by = if connection.given_token()?.is_some() { "token" } else { "sign_in" };
    let token = connection.token().await?.ok_or_else(|| nobody(url))?;
    let me = connection.client_with(Some(&token))?.whoami().await?;
    output.one(&Standing { url: url.to_owned(), name: me.name, by, expires_at: me.expires_at })
}
