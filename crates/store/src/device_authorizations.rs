//! Device authorizations: found by the machine's code and by the person's.

use std::time::Duration;

use paddock_model::Timestamp;
use paddock_model::device_authorizations::{DeviceAuthorization, State};
use paddock_model::users::UserId;

use crate::row::{FromRow, Row};
use crate::{Error, Result, Tx, args};

const FIND_BY_DEVICE: &str = "
    SELECT client, address, state, user_id, authenticated_at, interval_seconds, polled_at, created_at, expires_at
    FROM device_authorizations WHERE device_digest = $1";

const FIND_BY_USER: &str = "
    SELECT client, address, state, user_id, authenticated_at, interval_seconds, polled_at, created_at, expires_at
    FROM device_authorizations WHERE user_digest = $1";

const INSERT: &str = "
    INSERT INTO device_authorizations
        (device_digest, user_digest, client, address, state, interval_seconds, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const DECIDE: &str = "
    UPDATE device_authorizations SET state = $2, user_id = $3, authenticated_at = $4
    WHERE user_digest = $1 AND state = 'pending'";

const POLLED: &str = "
    UPDATE device_authorizations SET polled_at = $2 WHERE device_digest = $1";

const DELETE: &str = "
    DELETE FROM device_authorizations WHERE device_digest = $1";

const DELETE_OF_USER: &str = "
    DELETE FROM device_authorizations WHERE user_id = $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM device_authorizations WHERE expires_at <= $1 LIMIT 1";

const DELETE_EXPIRED: &str = "
    DELETE FROM device_authorizations WHERE expires_at <= $1";

pub async fn find_by_device(tx: &mut Tx, digest: &[u8]) -> Result<Option<DeviceAuthorization>> {
    tx.row(FIND_BY_DEVICE, args![digest]).await
}

/// The same, for a transaction that goes on to answer the machine, and holds the row of who has approved already.
pub async fn find_by_device_to_change(tx: &mut Tx, digest: &[u8]) -> Result<Option<DeviceAuthorization>> {
    tx.row_to_change(FIND_BY_DEVICE, args![digest]).await
}

pub async fn find_by_user(tx: &mut Tx, digest: &[u8]) -> Result<Option<DeviceAuthorization>> {
    tx.row(FIND_BY_USER, args![digest]).await
}

/// The same, for a transaction that goes on to decide.
pub async fn find_by_user_to_change(tx: &mut Tx, digest: &[u8]) -> Result<Option<DeviceAuthorization>> {
    tx.row_to_change(FIND_BY_USER, args![digest]).await
}

/// `Taken` if the user's code is in use.
pub async fn insert(
    tx: &mut Tx,
    authorization: &DeviceAuthorization,
    device_digest: &[u8],
    user_digest: &[u8],
) -> Result<()> {
    let args = args![
        device_digest,
        user_digest,
        &authorization.client,
        authorization.address.as_deref(),
        authorization.state.name(),
        seconds(authorization.interval),
        authorization.created_at,
        authorization.expires_at
    ];
    tx.execute_one(INSERT, args).await
}

pub async fn decide(tx: &mut Tx, user_digest: &[u8], state: State) -> Result<()> {
    let (user, authenticated_at) = match state {
        State::Approved { user, authenticated_at } => (Some(user), Some(authenticated_at)),
        State::Pending | State::Denied => (None, None),
    };
    tx.execute_one(DECIDE, args![user_digest, state.name(), user, authenticated_at]).await
}

pub async fn mark_polled(tx: &mut Tx, device_digest: &[u8], now: Timestamp) -> Result<()> {
    tx.execute_one(POLLED, args![device_digest, now]).await
}

pub async fn delete(tx: &mut Tx, device_digest: &[u8]) -> Result<()> {
    tx.execute(DELETE, args![device_digest]).await.map(drop)
}

pub async fn delete_of(tx: &mut Tx, user: UserId) -> Result<u64> {
    tx.execute(DELETE_OF_USER, args![user]).await
}

pub async fn any_expired(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![now]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    tx.execute(DELETE_EXPIRED, args![now]).await
}

fn seconds(interval: Duration) -> i64 {
    i64::try_from(interval.as_secs()).unwrap_or(i64::MAX)
}

impl FromRow for DeviceAuthorization {
    fn from_row(row: &mut Row) -> Result<Self> {
        let (client, address) = (row.take()?, row.take_optional()?);
        let (state, user, authenticated_at) =
            (row.take::<String>()?, row.take_optional()?, row.take_optional()?);
        let state = match (state.as_str(), user, authenticated_at) {
            ("pending", ..) => State::Pending,
            ("denied", ..) => State::Denied,
            ("approved", Some(user), Some(authenticated_at)) => State::Approved { user, authenticated_at },
            _ => return Err(Error::unexpected("a device authorization without a state")),
        };
        Ok(DeviceAuthorization {
            client,
            address,
            state,
            interval: Duration::from_secs(u64::try_from(row.take::<i64>()?).unwrap_or_default()),
            polled_at: row.take_optional()?,
            created_at: row.take()?,
            expires_at: row.take()?,
        })
    }
}
