//! The issuers whose tokens are accepted: a list in the file, `[[issuers]]`, or one by the settings `sso.…`.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;
use url::{Host, Url};

use crate::jwt::{Algorithm, Typ};

/// One issuer, and what is accepted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Its name here; the accounts of its people are kept under it.
    pub id: String,
    /// What its tokens say in `iss`, byte for byte.
    pub url: String,
    pub audience: String,
    pub kind: Kind,
    pub typ: Typ,
    pub client_id: Option<String>,
    pub client_secret_file: Option<PathBuf>,
    /// Clients for whom tokens may be issued that name other audiences, too.
    pub clients: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    pub longest_life: Duration,
    pub jwks_hosts: Vec<String>,
    pub ca_file: Option<PathBuf>,
    /// Subjects that become global admins when they are first seen.
    pub admins: Vec<String>,
    /// Our own token for asking this issuer, read anew each time.
    pub token_file: Option<PathBuf>,
    pub api_server: Option<Url>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// People.
    Sso,
    /// Machines, verified by the issuer's keys.
    ServiceAccount,
    /// Machines, verified by asking the issuer.
    ReviewedServiceAccount,
}

/// A member of `[[issuers]]`, for the reference.
struct Member {
    name: &'static str,
    help: &'static str,
}

const MEMBERS: &[Member] = &[
    Member {
        name: "id",
        help: "Its name here, such as `keycloak`: small letters, digits and `-`. Required, and never to be changed: accounts are kept under it.",
    },
    Member {
        name: "url",
        help: "What its tokens say in `iss`, byte for byte; discovery starts there. `https`, or `http` on this machine. Required.",
    },
    Member { name: "audience", help: "What its tokens must say in `aud`. Required." },
    Member { name: "kind", help: "`sso` (people, the default) or `service_account` (Kubernetes)." },
    Member {
        name: "mode",
        help: "For service accounts: `jwks` (by the issuer's keys, the default) or `token_review` (by asking the API server).",
    },
    Member {
        name: "token_type",
        help: "For people: `at+jwt` (the default), `jwt` (for issuers whose access tokens have no type of their own) or `any`.",
    },
    Member { name: "accept_id_tokens", help: "Whether identity tokens open the API, too; by default not." },
    Member { name: "client_id", help: "Our client there, for signing in with a browser." },
    Member {
        name: "client_secret_file",
        help: "File with that client's secret; without one, the client is public.",
    },
    Member {
        name: "clients",
        help: "Other clients (`azp`) whose tokens are accepted although they name several audiences.",
    },
    Member { name: "algorithms", help: "How tokens may be signed; by default `RS256`, `ES256` and `EdDSA`." },
    Member {
        name: "max_lifetime_seconds",
        help: "Tokens that live longer are refused; by default 86400, which is also the most.",
    },
    Member { name: "jwks_hosts", help: "Other hosts than the issuer's from which its keys may come." },
    Member {
        name: "ca_file",
        help: "File with the certificate authority (PEM) to trust instead of the machine's.",
    },
    Member { name: "admins", help: "Subjects (`sub`) that become global admins when they are first seen." },
    Member {
        name: "token_file",
        help: "File with our own token for asking the API server; read anew each time.",
    },
    Member {
        name: "api_server",
        help: "The API server's address, for `token_review` and for keys that the issuer's address does not serve.",
    },
];

/// For tokens that name no algorithm list of their own.
const USUAL: [Algorithm; 3] = [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);

impl Issuer {
    /// An issuer of people with everything at its default.
    pub fn sso(id: &str, url: &str, audience: &str) -> Self {
        Issuer {
            id: id.to_owned(),
            url: url.to_owned(),
            audience: audience.to_owned(),
            kind: Kind::Sso,
            typ: Typ::AccessToken,
            client_id: None,
            client_secret_file: None,
            clients: Vec::new(),
            algorithms: USUAL.to_vec(),
            longest_life: LONGEST_LIFE,
            jwks_hosts: Vec::new(),
            ca_file: None,
            admins: Vec::new(),
            token_file: None,
            api_server: None,
        }
    }

    /// The issuer as it may be shown; it holds no secret, only where one is kept.
    pub fn show(&self) -> String {
        let mut text = format!(
            "[[issuers]]\nid = {:?}\nurl = {:?}\naudience = {:?}\n",
            self.id, self.url, self.audience
        );
        let (kind, mode) = match self.kind {
            Kind::Sso => ("sso", None),
            Kind::ServiceAccount => ("service_account", Some("jwks")),
            Kind::ReviewedServiceAccount => ("service_account", Some("token_review")),
        };
        let algorithms: Vec<&str> = self.algorithms.iter().map(|algorithm| algorithm.name()).collect();
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let list = |list: &[String]| (!list.is_empty()).then(|| format!("{list:?}"));
        let quoted = |text: Option<String>| text.map(|text| format!("{text:?}"));
        let (typ, identity) = match self.typ {
            Typ::AccessToken => ("at+jwt", false),
            Typ::Plain => ("jwt", false),
            Typ::Any => ("any", false),
            Typ::Identity | Typ::AnyOrIdentity => ("any", true),
        };
        let people = self.kind == Kind::Sso;
        let members = [
            ("kind", Some(format!("{kind:?}"))),
            ("mode", mode.map(|mode| format!("{mode:?}"))),
            ("token_type", people.then(|| format!("{typ:?}"))),
            ("accept_id_tokens", people.then(|| identity.to_string())),
            ("client_id", quoted(self.client_id.clone())),
            ("client_secret_file", quoted(path(&self.client_secret_file))),
            ("clients", list(&self.clients)),
            ("algorithms", Some(format!("{algorithms:?}"))),
            ("max_lifetime_seconds", Some(self.longest_life.as_secs().to_string())),
            ("jwks_hosts", list(&self.jwks_hosts)),
            ("ca_file", quoted(path(&self.ca_file))),
            ("admins", list(&self.admins)),
            ("token_file", quoted(path(&self.token_file))),
            ("api_server", quoted(self.api_server.as_ref().map(Url::to_string))),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{name} = {value}");
            }
        }
        text
    }
}

/// The members of `[[issuers]]` as a part of the reference.
pub fn reference() -> String {
    let mut text = String::from(
        "\n## Issuers\n\nTokens of other issuers than Paddock itself are accepted if the file lists the issuer. `sso.issuer` and its companions \
         above set up one without a file;\nits id is `sso`. [Identity](identity.md) shows whole examples.\n\n```toml\n[[issuers]]\nid = \"keycloak\"\n\
         url = \"https://id.example.com/realms/main\"\naudience = \"paddock\"\n```\n\n| member | what it is |\n|---|---|\n",
    );
    for Member { name, help } in MEMBERS {
        let _ = writeln!(text, "| `{name}` | {help} |");
    }
    text
}

/// Reads the list, and says everything that is wrong with it.
pub fn read(listed: &Value, place: &str, problems: &mut Vec<String>) -> Vec<Issuer> {
    let Value::Array(tables) = listed else {
        problems
            .push(format!("issuers ({place}): it is not a list; write each issuer as a section [[issuers]]"));
        return Vec::new();
    };
    let mut issuers: Vec<Issuer> = Vec::new();
    for (index, each) in tables.iter().enumerate() {
        let Value::Table(table) = each else {
            problems.push(format!("issuers ({place}): one is not a section; write each as [[issuers]]"));
            continue;
        };
        let name =
            table.get("id").and_then(Value::as_str).map_or_else(|| (index + 1).to_string(), str::to_owned);
        let mut section = Section { table, name, place, problems };
        let issuer = section.read();
        for other in &issuers {
            if other.id == issuer.id || other.url == issuer.url {
                section.refuse("id", "another issuer has the same id or url; each must be its own");
            }
        }
        issuers.push(issuer);
    }
    issuers
}

/// One section while it is read.
struct Section<'a> {
    table: &'a toml::Table,
    name: String,
    place: &'a str,
    problems: &'a mut Vec<String>,
}

impl Section<'_> {
    fn refuse(&mut self, member: &str, what: &str) {
        self.problems.push(format!("issuers {} {member} ({}): {what}", self.name, self.place));
    }

    fn read(&mut self) -> Issuer {
        for unknown in self.table.keys().filter(|name| MEMBERS.iter().all(|member| member.name != *name)) {
            let near = |member: &&Member| strsim::damerau_levenshtein(unknown, member.name);
            let nearest = MEMBERS.iter().min_by_key(near).filter(|member| near(member) <= 3);
            match nearest {
                Some(member) => {
                    let what = format!("there is no such member; did you mean {}?", member.name);
                    self.refuse(unknown, &what);
                }
                None => {
                    let all: Vec<&str> = MEMBERS.iter().map(|member| member.name).collect();
                    self.refuse(unknown, &format!("there is no such member; allowed: {}", all.join(", ")));
                }
            }
        }
        let mut issuer = Issuer::sso("", "", "");
        issuer.id = self.required("id");
        let slug = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if !slug(&issuer.id) || issuer.id.len() > 63 {
            self.refuse("id", "allowed: up to 63 small letters, digits and -");
        }
        issuer.url = self.required("url");
        if !issuer.url.is_empty()
            && let Err(reason) = check_url(&issuer.url)
        {
            self.refuse("url", &reason);
        }
        issuer.audience = self.required("audience");
        issuer.kind = match (
            self.one_of("kind", &["sso", "service_account"]),
            self.one_of("mode", &["jwks", "token_review"]),
        ) {
            (Some(1), Some(1)) => Kind::ReviewedServiceAccount,
            (Some(1), _) => Kind::ServiceAccount,
            (_, Some(_)) => {
                self.refuse(
                    "mode",
                    "it is for service accounts; set kind = \"service_account\" or leave it out",
                );
                Kind::Sso
            }
            _ => Kind::Sso,
        };
        let typ = self.one_of("token_type", &["at+jwt", "jwt", "any"]);
        let identity = self.flag("accept_id_tokens");
        issuer.typ = match (issuer.kind, typ, identity) {
            // Kubernetes gives its tokens no type.
            (Kind::ServiceAccount | Kind::ReviewedServiceAccount, _, _) => Typ::Plain,
            (Kind::Sso, _, true) => Typ::AnyOrIdentity,
            (Kind::Sso, Some(1), _) => Typ::Plain,
            (Kind::Sso, Some(2), _) => Typ::Any,
            (Kind::Sso, _, _) => Typ::AccessToken,
        };
        issuer.client_id = self.text("client_id");
        issuer.client_secret_file = self.text("client_secret_file").map(PathBuf::from);
        issuer.clients = self.list("clients");
        issuer.clients.extend(issuer.client_id.clone());
        issuer.algorithms = self.algorithms();
        issuer.longest_life = self.longest_life();
        issuer.jwks_hosts = self.list("jwks_hosts");
        issuer.ca_file = self.text("ca_file").map(PathBuf::from);
        issuer.admins = self.list("admins");
        issuer.token_file = self.text("token_file").map(PathBuf::from);
        issuer.api_server = self.text("api_server").and_then(|text| match check_url(&text) {
            Ok(url) => Some(url),
            Err(reason) => {
                self.refuse("api_server", &reason);
                None
            }
        });
        self.check_kind(&issuer);
        issuer
    }

    /// What must not be left out, or not be there, for its kind.
    fn check_kind(&mut self, issuer: &Issuer) {
        if issuer.kind == Kind::ReviewedServiceAccount {
            for (name, there) in
                [("api_server", issuer.api_server.is_some()), ("token_file", issuer.token_file.is_some())]
            {
                if !there {
                    self.refuse(name, "it is missing; mode = \"token_review\" needs it");
                }
            }
        }
        let misplaced: &[&str] = match issuer.kind {
            Kind::Sso => &["api_server", "token_file"],
            _ => &["token_type", "accept_id_tokens", "client_id", "client_secret_file", "admins"],
        };
        for name in misplaced {
            if self.table.contains_key(*name) {
                self.refuse(name, "it does not belong to this kind of issuer; leave it out");
            }
        }
        if issuer.client_secret_file.is_some() && issuer.client_id.is_none() {
            self.refuse("client_secret_file", "there is no client_id to which it would belong");
        }
    }

    fn required(&mut self, member: &str) -> String {
        self.text(member).unwrap_or_else(|| {
            if !self.table.contains_key(member) {
                self.refuse(member, "it is missing");
            }
            String::new()
        })
    }

    fn text(&mut self, member: &str) -> Option<String> {
        match self.table.get(member)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            _ => {
                self.refuse(member, "allowed: a text that is not empty");
                None
            }
        }
    }

    fn flag(&mut self, member: &str) -> bool {
        match self.table.get(member) {
            None => false,
            Some(Value::Boolean(flag)) => *flag,
            Some(_) => {
                self.refuse(member, "allowed: true or false");
                false
            }
        }
    }

    fn list(&mut self, member: &str) -> Vec<String> {
        let Some(value) = self.table.get(member) else { return Vec::new() };
        let texts =
            value.as_array().map(|all| all.iter().map(Value::as_str).map(|text| text.map(str::to_owned)));
        match texts.and_then(Iterator::collect) {
            Some(texts) => texts,
            None => {
                self.refuse(member, "allowed: a list of texts, such as [\"a\", \"b\"]");
                Vec::new()
            }
        }
    }

    fn one_of(&mut self, member: &str, allowed: &[&str]) -> Option<usize> {
        let text = self.table.get(member)?;
        let found = allowed.iter().position(|each| text.as_str() == Some(each));
        if found.is_none() {
            self.refuse(member, &format!("allowed: {}", allowed.join(", ")));
        }
        found
    }

    fn algorithms(&mut self) -> Vec<Algorithm> {
        if !self.table.contains_key("algorithms") {
            return USUAL.to_vec();
        }
        let known: Option<Vec<_>> =
            self.list("algorithms").iter().map(|name| Algorithm::parse(name)).collect();
        match known {
            Some(algorithms) if !algorithms.is_empty() => algorithms,
            _ => {
                let all: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
                self.refuse("algorithms", &format!("allowed: {}", all.join(", ")));
                Vec::new()
            }
        }
    }

    fn longest_life(&mut self) -> Duration {
        let most = LONGEST_LIFE.as_secs() as i64;
        match self.table.get("max_lifetime_seconds") {
            None => LONGEST_LIFE,
            Some(Value::Integer(seconds)) if (60..=most).contains(seconds) => {
                Duration::from_secs(seconds.unsigned_abs())
            }
            Some(_) => {
                self.refuse("max_lifetime_seconds", &format!("allowed: a whole number from 60 to {most}"));
                LONGEST_LIFE
            }
        }
    }
}

/// An address that we may ask: by TLS, or on this very machine.
pub fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| "it is not a URL such as https://id.example.com".to_owned())?;
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err("a user, a query or a fragment does not belong into it".to_owned());
    }
    if is_private(&url) {
        Ok(url)
    } else {
        Err("allowed: https, or http to this machine (127.0.0.1, [::1], localhost)".to_owned())
    }
}

/// Whether what is said to that address can be read by nobody on the way.
pub fn is_private(url: &Url) -> bool {
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(Host::Ipv6(address))) => address.is_loopback(),
        ("http", Some(Host::Domain(name))) => name == "localhost",
        _ => false,
    }
}

/// The URL of an issuer, as a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl(pub String);

impl super::Value for IssuerUrl {
    fn allowed() -> String {
        "a URL such as https://id.example.com; http only to this machine".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        check_url(text).map(|_| IssuerUrl(text.to_owned()))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Issuer>, Vec<String>> {
        let table: toml::Table = text.parse().expect("TOML");
        let mut problems = Vec::new();
        let issuers = read(&table["issuers"], "file", &mut problems);
        if problems.is_empty() { Ok(issuers) } else { Err(problems) }
    }

    #[test]
    fn an_issuer_needs_three_members_and_shows_itself_as_it_is_written() {
        let text =
            "[[issuers]]\nid = \"a\"\nurl = \"https://id.example/realms/main\"\naudience = \"paddock\"";
        let issuers = read_text(text).expect("valid");
        assert_eq!(issuers, [Issuer::sso("a", "https://id.example/realms/main", "paddock")]);

        let text = "[[issuers]]\nid = \"k\"\nurl = \"https://kubernetes.default.svc\"\naudience = \"paddock\"\nkind = \"service_account\"\n\
                    mode = \"token_review\"\napi_server = \"https://10.0.0.1\"\ntoken_file = \"/t\"\nalgorithms = [\"RS256\"]";
        let issuers = read_text(text).expect("valid");
        assert_eq!(read_text(&issuers[0].show()).expect("valid"), issuers);
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = "[[issuers]]\nid = \"A b\"\nurl = \"http://id.example\"\naudiense = \"x\"\nkind = \"people\"\nalgorithms = [\"HS256\"]\n\
                    max_lifetime_seconds = 5\nadmins = \"ada\"\n[[issuers]]\nid = \"k\"\nurl = \"https://k\"\naudience = \"p\"\n\
                    kind = \"service_account\"\nmode = \"token_review\"\nclient_id = \"c\"";
        let problems = read_text(text).expect_err("many");
        for part in [
            "A b id (file): allowed",
            "A b url (file): allowed: https",
            "A b audiense (file): there is no such member; did you mean audience?",
            "A b audience (file): it is missing",
            "A b kind (file): allowed: sso, service_account",
            "A b algorithms (file): allowed: RS256",
            "A b max_lifetime_seconds",
            "A b admins (file): allowed: a list",
            "k api_server (file): it is missing",
            "k token_file (file): it is missing",
            "k client_id (file): it does not belong",
        ] {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:#?}");
        }
        assert_eq!(problems.len(), 11, "{problems:#?}");
    }

    #[test]
    fn two_issuers_are_two() {
        let one = "[[issuers]]\nid = \"a\"\nurl = \"https://id.example\"\naudience = \"paddock\"\n";
        assert!(read_text(&one.repeat(2)).is_err());
    }

    #[test]
    fn a_url_is_private_or_refused() {
        for (text, fits) in [
            ("https://id.example.com/realms/main", true),
            ("http://127.0.0.1:3000", true),
            ("http://[::1]:3000", true),
            ("http://localhost:3000", true),
            ("http://id.example.com", false),
            ("http://localhost.example.com", false),
            ("https://ada:secret@id.example.com", false),
            ("https://id.example.com/?a=b", false),
            ("https://id.example.com/#x", false),
            ("ftp://id.example.com", false),
            ("id.example.com", false),
        ] {
            assert_eq!(check_url(text).is_ok(), fits, "{text}");
        }
    }
}
