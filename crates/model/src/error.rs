//! One error for every layer: what went wrong in words for the caller, and the cause for the log.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of answer the caller gets; the server turns it into a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Malformed,
    Unauthenticated,
    Forbidden,
    NotFound,
    Conflict,
    Stale,
    TooLarge,
    Invalid,
    TooMany,
    Internal,
    Unavailable,
}

/// One fault in a request, at a place in its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub pointer: String,
    pub code: Cow<'static, str>,
    pub message: String,
}

/// One thing that stands in the way of a well-formed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub code: Cow<'static, str>,
    pub message: String,
}

/// Boxed, so that a `Result` stays as small as its value.
pub struct Error(Box<Details>);

type Cause = Box<dyn std::error::Error + Send + Sync>;

pub struct Details {
    pub kind: Kind,
    /// Stable and machine-readable; part of the contract.
    pub code: &'static str,
    /// For the caller: what to do. Never a cause, never a secret.
    pub detail: Cow<'static, str>,
    pub faults: Vec<Fault>,
    pub problems: Vec<Problem>,
    pub link: Option<String>,
    pub retry_after: Option<Duration>,
    /// What a refusal is about, for the audit.
    pub object: Option<String>,
    /// What was being done when it failed; for the log only.
    pub context: Vec<Cow<'static, str>>,
    pub cause: Option<Cause>,
}

impl Error {
    pub fn new(kind: Kind, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Details {
            kind,
            code,
            detail: detail.into(),
            faults: Vec::new(),
            problems: Vec::new(),
            link: None,
            retry_after: None,
            object: None,
            context: Vec::new(),
            cause: None,
        }))
    }

    pub fn malformed(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Malformed, code, detail)
    }

    pub fn unauthenticated(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unauthenticated, code, detail)
    }

    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Forbidden, "forbidden", detail)
    }

    /// The same words whether the thing is absent or merely invisible to the caller.
    pub fn not_found(noun: &'static str) -> Self {
        Self::new(Kind::NotFound, "not_found", format!("There is no such {noun}, or you may not see it."))
    }

    pub fn conflict(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Conflict, code, detail)
    }

    /// Somebody else changed the row first.
    pub fn stale() -> Self {
        Self::new(
            Kind::Stale,
            "precondition_failed",
            "It was changed in the meantime. Read it again and repeat your change on the newest version.",
        )
    }

    pub fn invalid(faults: Vec<Fault>) -> Self {
        let mut error =
            Self::new(Kind::Invalid, "invalid_request", "The request is well-formed but not valid.");
        error.0.faults = faults;
        error
    }

    pub fn internal(cause: impl Into<Cause>) -> Self {
        let mut error = Self::new(
            Kind::Internal,
            "internal",
            "Something went wrong on our side. Try again; if it stays, give your admin the request id.",
        );
        error.0.cause = Some(cause.into());
        error
    }

    pub fn unavailable(code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unavailable, code, detail).with_retry_after(Duration::from_secs(1))
    }

    #[must_use]
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.0.faults = faults;
        self
    }

    #[must_use]
    pub fn with_problems(mut self, problems: Vec<Problem>) -> Self {
        self.0.problems = problems;
        self
    }

    #[must_use]
    pub fn with_link(mut self, link: impl Into<String>) -> Self {
        self.0.link = Some(link.into());
        self
    }

    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Names what a refusal is about.
    #[must_use]
    pub fn about(mut self, object: impl Into<String>) -> Self {
        self.0.object = Some(object.into());
        self
    }

    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Says what was being done, for the log.
    #[must_use]
    pub fn context(mut self, doing: impl Into<Cow<'static, str>>) -> Self {
        self.0.context.push(doing.into());
        self
    }
}

impl Deref for Error {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

/// The line for the log: context, words, then every cause.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for doing in self.context.iter().rev() {
            write!(f, "{doing}: ")?;
        }
        write!(f, "{} ({})", self.detail, self.code)?;
        let mut cause = self.cause.as_deref().map(|cause| cause as &dyn std::error::Error);
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {self}", self.kind)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_for_the_log_and_never_for_the_caller() {
        let error = Error::internal(std::io::Error::other("disk on fire")).context("read the tenant");

        assert!(!error.detail.contains("fire"));
        assert!(error.to_string().starts_with("read the tenant: "));
        assert!(error.to_string().ends_with("disk on fire"));
    }
}
