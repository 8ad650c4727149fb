//! Where sign-ins are kept, one a server, and how each is kept fresh.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paddock_api::client::{self, Client};
use paddock_api::sign_in::{TokenAnswer, TokenRequest};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// As the server knows us.
pub const CLIENT_ID: &str = "paddock-cli";
/// An access token is replaced this long before its end: a request takes time, and clocks differ.
const MARGIN: u64 = 60;

/// One sign-in.
#[derive(Clone, Serialize, Deserialize)]
pub struct Saved {
    pub access_token: String,
    /// In seconds since 1970.
    pub expires_at: u64,
    /// None for a token that was given by hand.
    pub refresh_token: Option<String>,
}

impl Saved {
    pub fn new(tokens: TokenAnswer) -> Self {
        Saved {
            access_token: tokens.access_token,
            expires_at: now() + u64::from(tokens.expires_in),
            refresh_token: Some(tokens.refresh_token),
        }
    }

    pub fn is_fresh(&self) -> bool {
        now() + MARGIN < self.expires_at
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Book {
    servers: BTreeMap<String, Saved>,
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// An access token for the server that is good for a while; none where nobody has signed in.
pub async fn access_token(
    url: &str,
    client: impl FnOnce() -> Result<Client, Failure>,
) -> Result<Option<String>, Failure> {
    let Some(saved) = find(url)? else { return Ok(None) };
    if saved.is_fresh() {
        return Ok(Some(saved.access_token));
    }
    // One at a time: a refresh token that two commands use at once looks stolen to the server.
    let held = Held::take()?;
    let Some(saved) = find(url)? else { return Ok(None) };
    let Some(refresh_token) = saved.refresh_token.clone().filter(|_| !saved.is_fresh()) else {
        return Ok(Some(saved.access_token));
    };
    let request = TokenRequest {
        grant_type: "refresh_token".to_owned(),
        client_id: CLIENT_ID.to_owned(),
        refresh_token: Some(refresh_token),
        ..TokenRequest::default()
    };
    match client()?.token(&request).await {
        Ok(tokens) => {
            let saved = Saved::new(tokens);
            held.save(url, Some(&saved))?;
            Ok(Some(saved.access_token))
        }
        Err(client::Error::NoTokens(refused)) if refused.error == "invalid_grant" => {
            held.save(url, None)?;
            Err(Failure::NotSignedIn(format!("your sign-in at {url} is over")))
        }
        Err(error) => Err(error.into()),
    }
}

/// What is kept for the server, fresh or not.
pub fn find(url: &str) -> Result<Option<Saved>, Failure> {
    let Some(folder) = folder() else { return Ok(None) };
    Ok(read(&folder)?.servers.remove(&key(url)))
}

/// Keeps a sign-in, or with `None` forgets it.
pub fn save(url: &str, saved: Option<&Saved>) -> Result<(), Failure> {
    Held::take()?.save(url, saved)
}

/// The right to write, as long as it lives.
struct Held {
    folder: PathBuf,
    _lock: File,
}

impl Held {
    fn take() -> Result<Held, Failure> {
        let folder = folder().ok_or_else(|| {
            Failure::Usage("there is no place to keep a sign-in: set HOME or XDG_CONFIG_HOME".to_owned())
        })?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| unusable(&folder, &error))?;
        let path = folder.join("credentials.lock");
        let lock = private(&path).and_then(|file| file.lock().map(|()| file));
        Ok(Held { _lock: lock.map_err(|error| unusable(&path, &error))?, folder })
    }

    /// Whole or not at all, and for its owner alone.
    fn save(&self, url: &str, saved: Option<&Saved>) -> Result<(), Failure> {
        let mut book = read(&self.folder)?;
        match saved {
            Some(saved) => book.servers.insert(key(url), saved.clone()),
            None => book.servers.remove(&key(url)),
        };
        let (path, draft) = (self.folder.join(FILE), self.folder.join("credentials.draft"));
        let written = serde_json::to_vec_pretty(&book).map_err(io::Error::other).and_then(|text| {
            let _ = fs::remove_file(&draft);
            let mut file = private(&draft)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        });
        written.map_err(|error| unusable(&path, &error))
    }
}

const FILE: &str = "credentials.json";

fn folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    config.map(|config| config.join("paddock"))
}

fn read(folder: &std::path::Path) -> Result<Book, Failure> {
    let path = folder.join(FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|_| {
            Failure::Usage(format!("{} cannot be read; delete it and sign in again", path.display()))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Book::default()),
        Err(error) => Err(unusable(&path, &error)),
    }
}

fn private(path: &std::path::Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn unusable(path: &std::path::Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("cannot use {}: {error}", path.display()))
}

/// One server may be written with or without a slash at its end.
fn key(url: &str) -> String {
    url.trim_end_matches('/').to_owned()
}
