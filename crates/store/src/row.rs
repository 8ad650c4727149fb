//! Rows on their way out of a statement, the same for both databases.

use jiff::Timestamp;
use rusqlite::types::ValueRef;
use serde::de::DeserializeOwned;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::{Error, Result};

/// One row; its columns are taken in the order in which the statement names them.
pub struct Row<'a> {
    source: Source<'a>,
    next: usize,
}

enum Source<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

pub trait FromRow: Sized {
    fn from_row(row: &mut Row) -> Result<Self>;
}

impl<'a> Row<'a> {
    pub(crate) fn sqlite(row: &'a rusqlite::Row<'a>) -> Self {
        Row { source: Source::Sqlite(row), next: 0 }
    }

    pub(crate) fn postgres(row: &'a tokio_postgres::Row) -> Self {
        Row { source: Source::Postgres(row), next: 0 }
    }

    /// The next column.
    pub fn take<T: Column>(&mut self) -> Result<T> {
        self.take_optional()?.ok_or_else(|| Error::unexpected(format!("column {} is null", self.next - 1)))
    }

    pub fn take_optional<T: Column>(&mut self) -> Result<Option<T>> {
        let at = self.next;
        self.next += 1;
        match self.source {
            Source::Sqlite(row) => match row.get_ref(at)? {
                ValueRef::Null => Ok(None),
                value => T::from_sqlite(value).map(Some),
            },
            Source::Postgres(row) => {
                row.try_get::<_, Option<T::Postgres>>(at)?.map(T::from_postgres).transpose()
            }
        }
    }

    /// The next column, a JSON document, as the type it was written from.
    pub fn take_json<T: DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_value(self.take()?).map_err(Error::unexpected)
    }

    pub fn take_optional_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let value: Option<serde_json::Value> = self.take_optional()?;
        value.map(|value| serde_json::from_value(value).map_err(Error::unexpected)).transpose()
    }

    /// The same for a column that may be empty.
    pub fn take_optional_text<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let text: Option<String> = self.take_optional()?;
        let broken = || Error::unexpected(format!("column {} breaks its rule", self.next - 1));
        text.map(|text| read(&text).ok_or_else(broken)).transpose()
    }

    /// The next column, a text with a rule of its own.
    pub fn take_text<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        let text: String = self.take()?;
        read(&text).ok_or_else(|| Error::unexpected(format!("column {} breaks its rule", self.next - 1)))
    }
}

/// A type that a column can hold.
pub trait Column: Sized {
    type Postgres: for<'a> FromSql<'a>;

    fn from_sqlite(value: ValueRef<'_>) -> Result<Self>;
    fn from_postgres(value: Self::Postgres) -> Result<Self>;
}

macro_rules! column {
    ($($type:ty, $postgres:ty, |$sqlite:ident| $from_sqlite:expr, |$value:ident| $from_postgres:expr;)*) => {
        $(impl Column for $type {
            type Postgres = $postgres;

            fn from_sqlite($sqlite: ValueRef<'_>) -> Result<Self> {
                $from_sqlite
            }

            fn from_postgres($value: $postgres) -> Result<Self> {
                Ok($from_postgres)
            }
        })*
    };
}

column! {
    i64, i64, |value| value.as_i64().map_err(Error::unexpected), |value| value;
    String, String, |value| value.as_str().map(str::to_owned).map_err(Error::unexpected), |value| value;
    Vec<u8>, Vec<u8>, |value| value.as_blob().map(<[u8]>::to_vec).map_err(Error::unexpected), |value| value;
    Uuid, Uuid,
        |value| Uuid::from_slice(value.as_blob().map_err(Error::unexpected)?).map_err(Error::unexpected), |value| value;
    Timestamp, Timestamp,
        |value| Timestamp::from_microsecond(value.as_i64().map_err(Error::unexpected)?).map_err(Error::unexpected),
        |value| value;
    serde_json::Value, serde_json::Value,
        |value| serde_json::from_str(value.as_str().map_err(Error::unexpected)?).map_err(Error::unexpected), |value| value;
    paddock_model::tenants::TenantId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::groups::GroupId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::api_keys::ApiKeyId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::backups::BackupId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::restores::RestoreId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::emulators::EmulatorId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::layers::LayerId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::layers::DiskId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::retention_policies::RetentionPolicyId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::templates::TemplateId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
    paddock_model::users::UserId, Uuid, |value| Uuid::from_sqlite(value).map(Self), |value| Self(value);
}

impl<A: Column> FromRow for (A,) {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok((row.take()?,))
    }
}

impl<A: Column, B: Column, C: Column> FromRow for (A, B, C) {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok((row.take()?, row.take()?, row.take()?))
    }
}

impl<A: Column, B: Column, C: Column, D: Column> FromRow for (A, B, C, D) {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok((row.take()?, row.take()?, row.take()?, row.take()?))
    }
}

impl<A: Column, B: Column> FromRow for (A, B) {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok((row.take()?, row.take()?))
    }
}
