//! Values on their way into a statement, the same for both databases.

use std::fmt;

use jiff::Timestamp;
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

#[derive(Clone)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    String(String),
    Bytes(&'a [u8]),
    Uuid(Uuid),
    Time(Timestamp),
    /// Objects and arrays only: SQLite would turn a bare number in a JSONB column into an integer.
    Json(serde_json::Value),
}

/// PostgreSQL's driver logs arguments at the level of debug, and among them are private keys and hashes of passwords.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("Null"),
            Value::Int(number) => write!(f, "{number}"),
            Value::Text(_) | Value::String(_) => f.write_str("Text(***)"),
            Value::Bytes(_) => f.write_str("Bytes(***)"),
            Value::Uuid(uuid) => write!(f, "{uuid}"),
            Value::Time(time) => write!(f, "{time}"),
            Value::Json(_) => f.write_str("Json(***)"),
        }
    }
}

/// The arguments of a statement, in the order of `$1, $2, …`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::value::Value::from($value)),*] };
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        use rusqlite::types::Value as Owned;
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::String(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Uuid(uuid) => ToSqlOutput::Borrowed(ValueRef::Blob(uuid.as_bytes())),
            Value::Time(time) => ToSqlOutput::Borrowed(ValueRef::Integer(time.as_microsecond())),
            Value::Json(json) => ToSqlOutput::Owned(Owned::Text(json.to_string())),
        })
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Value::Int(number) => number.to_sql(ty, out),
            Value::Text(text) => text.to_sql(ty, out),
            Value::String(text) => text.to_sql(ty, out),
            Value::Bytes(bytes) => bytes.to_sql(ty, out),
            Value::Uuid(uuid) => uuid.to_sql(ty, out),
            Value::Time(time) => time.to_sql(ty, out),
            Value::Json(json) => json.to_sql(ty, out),
        }
    }

    /// Every variant checks for itself when it is written.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

macro_rules! from {
    ($($source:ty => |$value:ident| $made:expr),* $(,)?) => {
        $(impl<'a> From<$source> for Value<'a> {
            fn from($value: $source) -> Self {
                $made
            }
        })*
    };
}

from! {
    i64 => |number| Value::Int(number),
    u32 => |number| Value::Int(number.into()),
    &'a str => |text| Value::Text(text),
    &'a String => |text| Value::Text(text),
    String => |text| Value::String(text),
    &'a [u8] => |bytes| Value::Bytes(bytes),
    &'a Vec<u8> => |bytes| Value::Bytes(bytes),
    Uuid => |uuid| Value::Uuid(uuid),
    Timestamp => |time| Value::Time(time),
    serde_json::Value => |json| Value::Json(json),
    &'a paddock_model::slug::Slug => |slug| Value::Text(slug.as_str()),
    paddock_model::tenants::TenantId => |id| Value::Uuid(id.0),
    paddock_model::groups::GroupId => |id| Value::Uuid(id.0),
    paddock_model::api_keys::ApiKeyId => |id| Value::Uuid(id.0),
    paddock_model::backups::BackupId => |id| Value::Uuid(id.0),
    paddock_model::restores::RestoreId => |id| Value::Uuid(id.0),
    paddock_model::emulators::EmulatorId => |id| Value::Uuid(id.0),
    paddock_model::layers::LayerId => |id| Value::Uuid(id.0),
    paddock_model::layers::DiskId => |id| Value::Uuid(id.0),
    paddock_model::retention_policies::RetentionPolicyId => |id| Value::Uuid(id.0),
    paddock_model::templates::TemplateId => |id| Value::Uuid(id.0),
    paddock_model::users::UserId => |id| Value::Uuid(id.0),
}

impl<'a> From<&paddock_model::labels::Labels> for Value<'a> {
    fn from(labels: &paddock_model::labels::Labels) -> Self {
        Value::Json(serde_json::json!(labels))
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}
