//! What can go wrong between us and a database, in the terms that a use-case decides by.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A unique name or key is held by another row.
    #[error("a row with this {constraint} is there already")]
    Taken { constraint: String },
    /// The row was changed, or removed, since it was read.
    #[error("the row changed since it was read")]
    Stale,
    #[error(
        "this database was made by a newer Paddock (its tables are at version {found}, this program knows {known}); start the newer version, or restore a backup made before the upgrade"
    )]
    Newer { found: i64, known: i64 },
    #[error("this database has not been brought up to date; start paddockd on it once")]
    Older,
    #[error(
        "migration {version} of this database is not the one that this program ships; it was changed by hand or made by a development build"
    )]
    Altered { version: i64 },
    /// The database cannot be reached, is full, or is broken.
    #[error("the database does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A statement or a row is not what the code expects: a defect of ours.
    #[error("unexpected answer of the database")]
    Unexpected(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Unavailable(cause.into())
    }

    pub fn unexpected(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Unexpected(cause.into())
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
        match &error {
            rusqlite::Error::SqliteFailure(failure, message)
                if matches!(
                    failure.extended_code,
                    SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_PRIMARYKEY
                ) =>
            {
                // "UNIQUE constraint failed: tenants.name"
                let constraint =
                    message.as_deref().and_then(|text| text.rsplit(": ").next()).unwrap_or_default();
                Error::Taken { constraint: constraint.to_owned() }
            }
            rusqlite::Error::SqliteFailure(failure, _)
                if matches!(failure.code, ErrorCode::ConstraintViolation | ErrorCode::Unknown) =>
            {
                Error::unexpected(error)
            }
            rusqlite::Error::SqliteFailure(..) => Error::unavailable(error),
            _ => Error::unexpected(error),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        use tokio_postgres::error::SqlState;
        let Some(answer) = error.as_db_error() else { return Error::unavailable(error) };
        match answer.code() {
            &SqlState::UNIQUE_VIOLATION => {
                Error::Taken { constraint: answer.constraint().unwrap_or_default().to_owned() }
            }
            // 42: syntax or access rule; 22: data exception; 23: integrity.
            code if ["42", "22", "23"].iter().any(|class| code.code().starts_with(class)) => {
                Error::unexpected(error)
            }
            _ => Error::unavailable(error),
        }
    }
}

impl From<Error> for paddock_model::Error {
    fn from(error: Error) -> Self {
        use paddock_model::Error as Answer;
        match error {
            Error::Taken { .. } => {
                Answer::conflict("already_exists", "One with this name or key exists already.")
                    .with_cause(error)
            }
            Error::Stale => Answer::stale(),
            Error::Unavailable(_) => Answer::unavailable(
                "database_unavailable",
                "The database does not answer right now. Try again shortly; a change may have been carried out, \
                 so look before you repeat it, or send an Idempotency-Key.",
            )
            .with_cause(error),
            Error::Newer { .. } | Error::Older | Error::Altered { .. } | Error::Unexpected(_) => Answer::internal(error),
        }
    }
}
