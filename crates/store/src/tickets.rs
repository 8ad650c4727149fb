//! Tickets: found by their digest, once.

use paddock_model::Timestamp;
use paddock_model::credentials::CredentialKind;
use paddock_model::drivers::emulator_hosts::Channel;
use paddock_model::emulators::EmulatorId;
use paddock_model::subjects::Subject;
use paddock_model::tickets::Ticket;

use crate::row::{FromRow, Row};
use crate::{Result, Tx, args};

const FIND: &str = "
    SELECT emulator, channel, subject, expires_at, credential_kind, credential_id, credential_issuer, credential_tenant,
        credential_expires_at
    FROM tickets WHERE digest = $1 AND emulator = $2 AND channel = $3 AND expires_at > $4";

const INSERT: &str = "
    INSERT INTO tickets (digest, emulator, channel, subject, expires_at, credential_kind, credential_id, credential_issuer,
        credential_tenant, credential_expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const DELETE: &str = "
    DELETE FROM tickets WHERE digest = $1";

const ANY_EXPIRED: &str = "
    SELECT CAST(1 AS BIGINT) FROM tickets WHERE expires_at <= $1 LIMIT 1";

const DELETE_EXPIRED: &str = "
    DELETE FROM tickets WHERE expires_at <= $1";

pub async fn insert(tx: &mut Tx, ticket: &Ticket, digest: &[u8]) -> Result<()> {
    let args = args![
        digest,
        ticket.emulator,
        ticket.channel.name(),
        ticket.subject.to_string(),
        ticket.expires_at,
        ticket.kind.name(),
        ticket.id.as_deref(),
        ticket.issuer.as_deref(),
        ticket.tenant,
        ticket.credential_expires_at
    ];
    tx.execute_one(INSERT, args).await
}

/// Takes the ticket away, if it is valid now for this stream; of many who try at once, one gets it.
pub async fn take(
    tx: &mut Tx,
    digest: &[u8],
    emulator: EmulatorId,
    channel: Channel,
    now: Timestamp,
) -> Result<Option<Ticket>> {
    let found = tx.row_to_change(FIND, args![digest, emulator, channel.name(), now]).await?;
    if found.is_some() && tx.execute(DELETE, args![digest]).await? == 0 {
        return Ok(None);
    }
    Ok(found)
}

pub async fn any_expired(tx: &mut Tx, now: Timestamp) -> Result<bool> {
    Ok(tx.row::<(i64,)>(ANY_EXPIRED, args![now]).await?.is_some())
}

pub async fn delete_expired(tx: &mut Tx, now: Timestamp) -> Result<u64> {
    tx.execute(DELETE_EXPIRED, args![now]).await
}

impl FromRow for Ticket {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Ticket {
            emulator: row.take()?,
            channel: row.take_text(Channel::parse)?,
            subject: row.take_text(Subject::parse)?,
            expires_at: row.take()?,
            kind: row.take_text(CredentialKind::parse)?,
            id: row.take_optional()?,
            issuer: row.take_optional()?,
            tenant: row.take_optional()?,
            credential_expires_at: row.take_optional()?,
        })
    }
}
