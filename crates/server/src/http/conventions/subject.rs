//! Subjects in paths and bodies: a user by its id, a machine by its name.

use paddock_model::Error;
use paddock_model::error::Fault;
use paddock_model::subjects::Subject;
use paddock_model::users::UserId;

/// The subject that a path names: anything that is no user's id is a machine's name.
pub fn named(text: &str) -> Option<Subject> {
    if text.starts_with("usr_") {
        return UserId::parse(text).map(Subject::User);
    }
    Subject::parse(&format!("service_account:{text}"))
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
