//! Subjects in paths and bodies: a user by its id, a machine by its name.

use paddock_model::error::Fault;
use paddock_model::subjects::Subject;
use paddock_model::users::UserId;
use paddock_model::{Error, Result};

/// The subject that a path names: anything that is no user's id is a machine's name.
pub fn named(text: &str) -> Option<Subject> {
    if text.starts_with("usr_") {
        return UserId::parse(text).map(Subject::User);
    }
    Subject::parse(&format!("service_account:{text}"))
}

/// The machine that a body names by its issuer and the name it has there. In a path it must not be taken for a
/// user or a group, nor need more than visible ASCII.
pub fn machine(name: &str, pointer: &str) -> Result<Subject> {
    let fits = name.contains('/')
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"#*:".contains(&byte))
        && !["usr_", "grp_"].iter().any(|prefix| name.starts_with(prefix));
    if fits { Ok(Subject::ServiceAccount(name.into())) } else { Err(not_an_id(pointer)) }
}

/// Refuses a body that names none or several where it must name exactly one.
pub fn exactly_one(names: &str) -> Error {
    let fault = Fault {
        pointer: String::new(),
        code: "ambiguous".into(),
        message: format!("exactly one of {names} is needed"),
    };
    Error::invalid(vec![fault])
}

/// A member of a body that is no id of the right kind.
pub fn not_an_id(pointer: &str) -> Error {
    let fault =
        Fault { pointer: pointer.to_owned(), code: "invalid".into(), message: "it is no such id".to_owned() };
    Error::invalid(vec![fault])
}
