//! Subjects: how a command line names people and machines.

use std::fmt;

use paddock_api::client::{self, Client};
use paddock_api::users::ListUsers;

use crate::failure::Failure;

/// Someone who can be given something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    User(String),
    ServiceAccount(String),
}

impl Subject {
    /// The user's id, or the machine's name.
    pub fn id(&self) -> &str {
        match self {
            Subject::User(id) | Subject::ServiceAccount(id) => id,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(id) => write!(f, "user:{id}"),
            Subject::ServiceAccount(name) => write!(f, "service_account:{name}"),
        }
    }
}

/// A subject as it is written; a login has to be looked up.
#[derive(Debug, PartialEq, Eq)]
enum Written<'a> {
    Subject(Subject),
    Login(&'a str),
}

fn read(text: &str) -> Written<'_> {
    if let Some(name) = text.strip_prefix("service_account:") {
        return Written::Subject(Subject::ServiceAccount(name.to_owned()));
    }
    match text.strip_prefix("user:").unwrap_or(text) {
        // No login holds an underscore.
        id if id.starts_with("usr_") => Written::Subject(Subject::User(id.to_owned())),
        // A machine has its issuer before its name; no login holds a slash.
        name if name.contains('/') => Written::Subject(Subject::ServiceAccount(name.to_owned())),
        login => Written::Login(login),
    }
}

/// The subject by its login, its id (usr_…), its name (cluster/ci/runner), or written out (user:…, service_account:…).
pub async fn find(text: &str, client: &Client) -> Result<Subject, Failure> {
    match read(text) {
        Written::Subject(subject) => Ok(subject),
        Written::Login(login) => user_id(login, client).await.map(Subject::User),
    }
}

/// The user's id by itself or by their login.
pub async fn user_id(id_or_login: &str, client: &Client) -> Result<String, Failure> {
    if id_or_login.starts_with("usr_") {
        return Ok(id_or_login.to_owned());
    }
    let query = ListUsers { login: Some(id_or_login.to_owned()), ..ListUsers::default() };
    let found = match client.list_users(&query).await {
        Ok(page) => page.items.into_iter().next(),
        // A text that is no login is nobody's.
        Err(client::Error::Refused(problem)) if problem.code == "invalid_parameter" => None,
        Err(error) => return Err(error.into()),
    };
    found.map(|user| user.id).ok_or_else(|| {
        Failure::NotFound(format!("There is no user with the login {id_or_login}, or you may not see them."))
    })
}

#[cfg(test)]
mod tests {
    use super::{Subject, Written, read};

    #[test]
    fn a_subject_is_recognised_by_its_form() {
        let user = |id: &str| Written::Subject(Subject::User(id.to_owned()));
        let machine = |name: &str| Written::Subject(Subject::ServiceAccount(name.to_owned()));
        for (text, expected) in [
            ("ada", Written::Login("ada")),
            ("user:ada", Written::Login("ada")),
            ("ada@acme.example", Written::Login("ada@acme.example")),
            ("usr_01jcr8e8v0e9bvqz3tz4d0wq2h", user("usr_01jcr8e8v0e9bvqz3tz4d0wq2h")),
            ("user:usr_01jcr8e8v0e9bvqz3tz4d0wq2h", user("usr_01jcr8e8v0e9bvqz3tz4d0wq2h")),
            ("cluster/ci/runner", machine("cluster/ci/runner")),
            ("service_account:runner", machine("runner")),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
