//! The kinds of values that settings have: how they are read, shown, and described when refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use paddock_model::emulators::slot_of;
use paddock_model::retention::{Factor, Weights};

pub trait Value: Sized {
    /// Completes the sentence "allowed: …".
    fn allowed() -> String;

    fn read(text: &str) -> Result<Self, String>;

    /// The value for people; a secret shows no more than that it is there.
    fn show(&self) -> String;
}

impl Value for String {
    fn allowed() -> String {
        "a text".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for bool {
    fn allowed() -> String {
        "true or false".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "it is neither".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    fn allowed() -> String {
        "a path".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for SocketAddr {
    fn allowed() -> String {
        "an address and a port, such as 127.0.0.1:8080 or [::]:8080".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "it is not an address with a port".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Empty means none.
impl<T: Value> Value for Option<T> {
    fn allowed() -> String {
        T::allowed()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::read(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

/// A whole number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole<const LEAST: u64, const MOST: u64>(pub u64);

impl<const LEAST: u64, const MOST: u64> Value for Whole<LEAST, MOST> {
    fn allowed() -> String {
        format!("a whole number from {LEAST} to {MOST}")
    }

    fn read(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Whole(number)),
            _ => Err("it is not one of these".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A number of seconds within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds<const LEAST: u64, const MOST: u64>(pub Duration);

impl<const LEAST: u64, const MOST: u64> Value for Seconds<LEAST, MOST> {
    fn allowed() -> String {
        format!("a number of seconds from {LEAST} to {MOST}")
    }

    fn read(text: &str) -> Result<Self, String> {
        let Whole(seconds) = Whole::<LEAST, MOST>::read(text)?;
        Ok(Seconds(Duration::from_secs(seconds)))
    }

    fn show(&self) -> String {
        self.0.as_secs().to_string()
    }
}

/// How much each factor of a retention score counts, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreWeights(pub Weights, String);

impl Value for ScoreWeights {
    fn allowed() -> String {
        let names: Vec<&str> = Factor::ALL.iter().map(|factor| factor.name()).collect();
        format!(
            "numbers from 0 to 1000000 as name=number, separated by commas, for any of {}",
            names.join(", ")
        )
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut proportions = [0; Factor::ALL.len()];
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or_else(|| format!("{part} is no name=number"))?;
            let place = Factor::ALL.iter().position(|factor| factor.name() == name.trim());
            let place = place.ok_or_else(|| format!("there is no factor {}", name.trim()))?;
            proportions[place] =
                number.trim().parse().map_err(|_| format!("{} is no number", number.trim()))?;
        }
        let weights = Weights::of(proportions).ok_or("nothing would count, or a number is out of bounds")?;
        Ok(ScoreWeights(weights, text.to_owned()))
    }

    fn show(&self) -> String {
        self.1.clone()
    }
}

/// A loopback address that a device may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAddress {
    pub address: Ipv4Addr,
    pub slot: i64,
}

impl Value for DeviceAddress {
    fn allowed() -> String {
        "an address from 127.80.0.1 to 127.95.255.254".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let address = text.parse().map_err(|_| "it is not an address".to_owned())?;
        let slot = slot_of(address).ok_or_else(|| "it is not one of these".to_owned())?;
        Ok(DeviceAddress { address, slot })
    }

    fn show(&self) -> String {
        self.address.to_string()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

impl Value for LogFormat {
    fn allowed() -> String {
        "auto, human or json".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(LogFormat::Auto),
            "human" => Ok(LogFormat::Human),
            "json" => Ok(LogFormat::Json),
            _ => Err("there is no such format".to_owned()),
        }
    }

    fn show(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Addresses without ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub Vec<IpAddr>);

impl Value for Addresses {
    fn allowed() -> String {
        "addresses such as 10.0.0.1 or fd00::1, separated by commas".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        let addresses: Result<Vec<_>, _> = texts.map(str::parse).collect();
        addresses.map(Addresses).map_err(|_| "one of them is not an address".to_owned())
    }

    fn show(&self) -> String {
        self.0.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Folders by their absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders(pub Vec<PathBuf>);

impl Value for Folders {
    fn allowed() -> String {
        "absolute paths such as /srv/images, separated by commas".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        let folders: Vec<PathBuf> = texts.map(PathBuf::from).collect();
        match folders.iter().all(|folder| folder.is_absolute()) {
            true => Ok(Folders(folders)),
            false => Err("one of them is not absolute".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.0.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Origins of web pages, as browsers send them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins(pub Vec<http::HeaderValue>);

impl Value for Origins {
    fn allowed() -> String {
        "origins such as https://console.example.com, separated by commas".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let origin = |text: &str| {
            let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
            let plain = !host.is_empty() && !host.contains(['/', '*', ' ']);
            http::HeaderValue::try_from(text).ok().filter(|_| plain)
        };
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        let origins: Option<Vec<_>> = texts.map(origin).collect();
        origins.map(Origins).ok_or_else(|| "one of them is not an origin".to_owned())
    }

    fn show(&self) -> String {
        self.0.iter().filter_map(|origin| origin.to_str().ok()).collect::<Vec<_>>().join(",")
    }
}

/// The address of a server as browsers write it: a scheme and a host, nothing behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(pub String);

impl Value for PublicUrl {
    fn allowed() -> String {
        "an address such as https://paddock.example.com".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim_end_matches('/');
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let plain = |host: &&str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte))
        };
        match host.filter(plain) {
            Some(_) => Ok(PublicUrl(text.to_ascii_lowercase())),
            None => Err("it is not a scheme and a host alone".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// May hold a password, so nothing of it is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

impl Value for DatabaseUrl {
    fn allowed() -> String {
        "postgres://user:password@host:port/database".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Ok(DatabaseUrl(text.to_owned()))
        } else {
            Err("it is not the URL of a PostgreSQL database".to_owned())
        }
    }

    /// No part of it: a password may stand in the user info, in an option, or by mistake anywhere.
    fn show(&self) -> String {
        "postgres://***".to_owned()
    }
}

/// What is logged: a level, or a filter by parts of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevel(pub String);

impl Value for LogLevel {
    fn allowed() -> String {
        "error, warn, info, debug, trace or off, or a filter such as info,paddock_store=debug".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
        let directive = |part: &str| LEVELS.contains(&part.rsplit('=').next().unwrap_or_default().trim());
        if text.split(',').all(directive) {
            Ok(LogLevel(text.to_owned()))
        } else {
            Err("there is no such level".to_owned())
        }
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_url_shows_nothing_of_itself() {
        assert_eq!(DatabaseUrl("postgres://ada:hunter2?x@db/paddock".to_owned()).show(), "postgres://***");
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused() {
        for (text, fits) in
            [("info", true), ("info,paddock_store=debug", true), ("inof", false), ("info,", false)]
        {
            assert_eq!(LogLevel::read(text).is_ok(), fits, "{text}");
        }
    }
}
