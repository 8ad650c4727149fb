//! Where values come from: the default, the file, the environment, the command line; the later wins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::issuers::{self, Issuer};
use super::{Config, SETTINGS, Setting};

const DEFAULT_FILE: &str = "/etc/paddock/paddockd.toml";
const FILE_VARIABLE: &str = "PADDOCK_CONFIG";

/// Variables of clients, CI jobs and (for a Service named paddock) Kubernetes: a server must not stumble over them.
const FOREIGN_VARIABLES: &[&str] = &[
    "PADDOCK_SERVICE_",
    "PADDOCK_PORT",
    "PADDOCK_URL",
    "PADDOCK_TOKEN",
    "PADDOCK_TENANT",
    "PADDOCK_PROFILE",
    "PADDOCK_SNAPSHOT_",
    "PADDOCK_EMULATOR_",
    "PADDOCK_BOOT_TIMEOUT",
    "PADDOCK_ADB_",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(name) => write!(f, "environment, {name}"),
            Source::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

/// A setting, its value as it may be shown, and where that comes from.
#[derive(Debug)]
pub struct InForce {
    pub setting: &'static Setting,
    pub value: String,
    pub source: Source,
}

/// Everything that is wrong with the configuration, at once.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration cannot be used:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for Refused {}

/// Gives the command a flag for every setting.
pub fn command(mut command: Command) -> Command {
    let file = Arg::new("config").long("config").value_name("FILE").global(true);
    command = command.arg(file.help(format!(
        "Configuration file (TOML) [env: {FILE_VARIABLE}] [default: {DEFAULT_FILE}, if it is there]"
    )));
    for setting in SETTINGS {
        let mut help = format!("{} [env: {}]", setting.help.trim(), setting.variable());
        if !setting.default.is_empty() {
            help.push_str(&format!(" [default: {}]", setting.default));
        }
        let arg = Arg::new(setting.key).long(setting.flag()).value_name(setting.value_name());
        command = command.arg(arg.help(help).action(ArgAction::Set).global(true));
    }
    command
}

impl Setting {
    pub fn flag(&self) -> String {
        self.key.replace(['.', '_'], "-")
    }

    pub fn variable(&self) -> String {
        format!("PADDOCK_{}", self.key.replace('.', "_").to_uppercase())
    }

    fn value_name(&self) -> &'static str {
        match self.key {
            "data" => "DIR",
            "listen" | "operations.listen" => "ADDR",
            _ => "VALUE",
        }
    }
}

/// Every setting as a page for people; `docs/operations/configuration.md` is this text.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\nEach setting can stand in a file (TOML; `--config` or `PADDOCK_CONFIG`, by default \
         `/etc/paddock/paddockd.toml` if it is there), in\nthe environment, or in a flag; the later wins. `paddockd config` \
         prints what is in force and where each value comes from. What cannot be\nused is refused at start, by name. This page \
         is made by `paddockd config --reference`.\n\n| setting | environment | flag | default | what it is | allowed |\n|---|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let default =
            if setting.default.is_empty() { "none".to_owned() } else { format!("`{}`", setting.default) };
        page.push_str(&format!(
            "| `{}` | `{}` | `--{}` | {default} | {} | {} |\n",
            setting.key,
            setting.variable(),
            setting.flag(),
            setting.help.trim(),
            (setting.allowed)()
        ));
    }
    page.push_str(&issuers::reference());
    page
}

/// What is in force, with the source of each value, or everything that is wrong.
pub fn load(
    flags: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(Config, Vec<InForce>), Refused> {
    let environment: BTreeMap<String, String> =
        environment.filter(|(name, _)| name.starts_with("PADDOCK_")).collect();
    let mut texts: BTreeMap<&str, (String, Source)> =
        SETTINGS.iter().map(|setting| (setting.key, (setting.default.to_owned(), Source::Default))).collect();
    let mut problems = Vec::new();
    let mut issuers = Vec::new();

    if let Some(path) = file(flags, &environment) {
        issuers = read_file(&path, &mut texts, &mut problems);
    }
    read_environment(&environment, &mut texts, &mut problems);
    for setting in SETTINGS {
        if let Some(text) = flags.get_one::<String>(setting.key) {
            texts.insert(setting.key, (text.clone(), Source::Flag(setting.flag())));
        }
    }

    let mut shown = Vec::new();
    for setting in SETTINGS {
        let (text, source) = &texts[setting.key];
        match (setting.check)(text) {
            Ok(value) => shown.push(InForce { setting, value, source: source.clone() }),
            // The value itself is left out: it may be a secret.
            Err(reason) => {
                problems.push(format!(
                    "{} ({source}): {reason}; allowed: {}",
                    setting.key,
                    (setting.allowed)()
                ));
            }
        }
    }
    if !problems.is_empty() {
        return Err(Refused(problems));
    }
    let mut config =
        Config::from_texts(|key| texts[key].0.clone()).map_err(|problem| Refused(vec![problem]))?;
    config.issuers = issuers;
    let contradictions = config.contradictions();
    config.add_sso_issuer();
    if contradictions.is_empty() { Ok((config, shown)) } else { Err(Refused(contradictions)) }
}

fn file(flags: &ArgMatches, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = flags.get_one::<String>("config").or_else(|| environment.get(FILE_VARIABLE));
    named.map(PathBuf::from).or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()))
}

fn read_file(
    path: &Path,
    texts: &mut BTreeMap<&str, (String, Source)>,
    problems: &mut Vec<String>,
) -> Vec<Issuer> {
    let mut listed = Vec::new();
    let table = std::fs::read_to_string(path)
        .map_err(|error| error.to_string())
        .and_then(|text| text.parse::<toml::Table>().map_err(|error| syntax(&text, &error)));
    match table {
        Ok(mut table) => {
            if let Some(issuers) = table.remove("issuers") {
                listed = issuers::read(&issuers, &path.display().to_string(), problems);
            }
            let mut values = Vec::new();
            flatten("", &table, &mut values);
            for (key, text) in values {
                match SETTINGS.iter().find(|setting| setting.key == key) {
                    Some(setting) => {
                        texts.insert(setting.key, (text, Source::File(path.to_owned())));
                    }
                    None => problems
                        .push(unknown(&key, &path.display().to_string(), |setting| setting.key.to_owned())),
                }
            }
        }
        Err(error) => problems.push(format!("{}: {}", path.display(), error.trim_end())),
    }
    listed
}

/// The line's number and what is wrong with it; not the line itself, which may hold a password.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
    format!("line {line}: {}", error.message())
}

fn flatten(prefix: &str, table: &toml::Table, values: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, values),
            toml::Value::String(text) => values.push((key, text.clone())),
            other => values.push((key, other.to_string())),
        }
    }
}

fn read_environment(
    environment: &BTreeMap<String, String>,
    texts: &mut BTreeMap<&str, (String, Source)>,
    problems: &mut Vec<String>,
) {
    for (name, text) in environment {
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == *name) {
            texts.insert(setting.key, (text.clone(), Source::Environment(name.clone())));
        } else if name != FILE_VARIABLE && !FOREIGN_VARIABLES.iter().any(|known| name.starts_with(known)) {
            problems.push(unknown(name, "environment", Setting::variable));
        }
    }
}

fn unknown(name: &str, place: &str, spelling: impl Fn(&Setting) -> String) -> String {
    let known: Vec<String> = SETTINGS.iter().map(spelling).collect();
    let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(name, known));
    match nearest.filter(|known| strsim::damerau_levenshtein(name, known) <= 3) {
        Some(known) => format!("{name} ({place}): there is no such setting; did you mean {known}?"),
        None => format!("{name} ({place}): there is no such setting; allowed: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_from(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[&str],
    ) -> Result<(Config, Vec<InForce>), Refused> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("paddockd.toml");
        std::fs::write(&path, file).expect("a file");
        let path = path.display().to_string();
        let arguments = ["paddockd", "--config", &path].into_iter().chain(flags.iter().copied());
        let matches = command(Command::new("paddockd")).try_get_matches_from(arguments).expect("known flags");
        load(&matches, environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn a_flag_beats_the_environment_and_that_beats_the_file() {
        let file = "listen = \"127.0.0.1:1\"\n[limits]\nburst = 7\nbody_bytes = 2048";
        let environment =
            [("PADDOCK_LISTEN", "127.0.0.1:2"), ("PADDOCK_LIMITS_BURST", "8"), ("PADDOCK_TOKEN", "x")];

        let (config, sources) = load_from(file, &environment, &["--listen", "127.0.0.1:3"]).expect("valid");

        assert_eq!((config.listen.port(), config.burst.0, config.body_bytes.0), (3, 8, 2048));
        let source =
            |key| sources.iter().find(|each| each.setting.key == key).map(|each| each.source.to_string());
        assert_eq!(source("listen").as_deref(), Some("flag --listen"));
        assert_eq!(source("limits.burst").as_deref(), Some("environment, PADDOCK_LIMITS_BURST"));
        assert_eq!(source("log.level").as_deref(), Some("default"));
    }

    #[test]
    fn everything_wrong_is_said_at_once_without_the_values() {
        let file = "lisen = 1\n[database]\nurl = \"mysql://root:hunter2@db\"";
        let Refused(problems) = load_from(file, &[("PADDOCK_LIMIT_BURST", "1")], &["--limits-burst", "none"])
            .expect_err("four faults");

        assert_eq!(problems.len(), 4, "{problems:#?}");
        assert!(problems.iter().any(|problem| problem.starts_with("lisen (") && problem.contains("listen")));
        assert!(problems.iter().any(|problem| problem.starts_with("limits.burst (flag --limits-burst): ")));
        assert!(!problems.concat().contains("hunter2"));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let refused = load_from("tls.key = \"key.pem\"", &[], &[]).expect_err("half of a pair");

        assert!(refused.to_string().contains("tls.certificate and tls.key belong together"));
    }

    #[test]
    fn issuers_come_from_the_file_and_one_from_the_settings() {
        let file = "[[issuers]]\nid = \"a\"\nurl = \"https://a.example\"\naudience = \"paddock\"";
        let sso = [("PADDOCK_SSO_ISSUER", "https://b.example"), ("PADDOCK_SSO_AUDIENCE", "paddock")];

        let (config, _) = load_from(file, &sso, &["--sso-client-id", "web"]).expect("valid");

        let known: Vec<(&str, &str)> =
            config.issuers.iter().map(|each| (each.id.as_str(), each.url.as_str())).collect();
        assert_eq!(known, [("a", "https://a.example"), ("sso", "https://b.example")]);
        assert_eq!(config.issuers[1].client_id.as_deref(), Some("web"));
        for half in [&sso[..1], &sso[1..]] {
            assert!(load_from(file, half, &[]).expect_err("half").to_string().contains("belong together"));
        }
        let twice = [("PADDOCK_SSO_ISSUER", "https://a.example"), sso[1]];
        assert!(load_from(file, &twice, &[]).expect_err("twice").to_string().contains("leave one out"));
    }

    #[test]
    fn the_reference_is_fresh() {
        let page = include_str!("../../../../docs/operations/configuration.md");
        assert!(page == reference(), "run `make reference` and commit docs/operations/configuration.md");
    }

    #[test]
    fn every_default_is_allowed() {
        for setting in SETTINGS {
            assert!((setting.check)(setting.default).is_ok(), "{}", setting.key);
        }
    }
}
