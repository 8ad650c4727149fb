//! The audit: events are added and never changed; each carries a digest over itself and the one before it.

use paddock_model::Timestamp;
use paddock_model::audit::{Event, EventFilter, Outcome, Verified};
use paddock_model::page::{Page, PageRequest};
use paddock_model::scopes::Scope;
use paddock_model::tenants::TenantId;
use ring::digest::{SHA256, digest};
use uuid::Uuid;

use crate::row::{FromRow, Row};
use crate::select::Select;
use crate::value::Value;
use crate::{Error, Result, Tx, args};

/// The installation's own chain.
const PLATFORM: &str = "";

/// Makes the chain if there is none, and holds it until the commit: events are numbered in the order in which they are seen.
const NEXT: &str = "
    INSERT INTO audit_chains (chain, number, digest) VALUES ($1, 1, $2)
    ON CONFLICT (chain) DO UPDATE SET number = audit_chains.number + 1
    RETURNING number, digest";

const ADVANCE: &str = "
    UPDATE audit_chains SET digest = $2 WHERE chain = $1";

const INSERT: &str = "
    INSERT INTO audit_events
        (id, chain, number, at, actor, credential, credential_id, action, object, outcome, code, request_id, address, details, digest)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";

const LIST: &str = "
    SELECT id, chain, number, at, actor, credential, credential_id, action, object, outcome, code, request_id, address, details, digest
    FROM audit_events";

const CHAINS: &str = "
    SELECT chain, number, digest FROM audit_chains ORDER BY chain";

const PART: &str = "
    SELECT id, chain, number, at, actor, credential, credential_id, action, object, outcome, code, request_id, address, details, digest
    FROM audit_events WHERE chain = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT 1000";

/// Events to which no chain leads: one statement, so that what is being written is seen whole or not at all.
const STRAY: &str = "
    SELECT e.chain, MIN(e.number), COUNT(*) FROM audit_events e
    LEFT JOIN audit_chains c ON c.chain = e.chain
    WHERE c.chain IS NULL OR e.number > c.number GROUP BY e.chain ORDER BY e.chain";

/// Adds an event to the end of its chain; its number is given here.
pub async fn append(tx: &mut Tx, mut event: Event) -> Result<()> {
    let chain = chain_of(event.tenant);
    let next: Option<(i64, Vec<u8>)> = tx.row(NEXT, args![&chain, &START[..]]).await?;
    let (number, previous) = next.ok_or_else(|| Error::unexpected("no chain of events"))?;
    event.number = number;
    let sum = digest(&SHA256, &event.link(&previous));
    tx.execute_one(ADVANCE, args![&chain, sum.as_ref()]).await?;
    let args = args![
        event.id,
        &chain,
        event.number,
        event.at,
        event.actor.as_deref(),
        event.credential.as_deref(),
        event.credential_id.as_deref(),
        &event.action,
        &event.object,
        event.outcome.name(),
        event.code.as_deref(),
        &event.request_id,
        event.address.as_deref(),
        &event.details,
        sum.as_ref()
    ];
    tx.execute_one(INSERT, args).await
}

/// What the first digest of a chain stands on.
const START: [u8; 32] = [0; 32];

pub async fn list(
    tx: &mut Tx,
    scope: &Scope,
    filter: &EventFilter,
    page: PageRequest,
) -> Result<Page<Event>> {
    let text = |text: &str| [Value::String(text.to_owned())];
    let mut select = Select::new(LIST);
    if let Scope::Tenants(tenants) = scope {
        select.one_of("chain", tenants.iter().map(|tenant| Value::String(chain_of(Some(*tenant)))));
    }
    if let Some(tenant) = filter.tenant {
        select.and("chain = ?", [Value::String(chain_of(Some(tenant)))]);
    }
    if let Some(actor) = &filter.actor {
        select.and("actor = ?", text(actor));
    }
    if let Some(action) = &filter.action {
        match action.strip_suffix('.') {
            Some(noun) => {
                // A point is followed by a slash in ASCII: all that begin with `noun.` lie between the two.
                let values = [Value::String(action.clone()), Value::String(format!("{noun}/"))];
                select.and("action >= ? AND action < ?", values);
            }
            None => select.and("action = ?", text(action)),
        }
    }
    if let Some(object) = &filter.object {
        select.and("object = ?", text(object));
    }
    if let Some(outcome) = filter.outcome {
        select.and("outcome = ?", text(outcome.name()));
    }
    if let Some(since) = filter.since {
        // An id begins with its milliseconds: by that the index leads to the place.
        select.and("id >= ? AND at >= ?", [Value::Uuid(first_id_of(since, 0)), Value::Time(since)]);
    }
    if let Some(until) = filter.until {
        select.and("id < ? AND at < ?", [Value::Uuid(first_id_of(until, 1)), Value::Time(until)]);
    }
    select.may_scan();
    let events = tx.rows_of(select.page(page, "id")).await?;
    let events: Vec<Event> = events.into_iter().map(|Written { event, .. }: Written| event).collect();
    Ok(Page::of(events, &page, |event: &Event| event.id))
}

/// Before every id that was made in the millisecond of this time, or so many later.
fn first_id_of(time: Timestamp, later: u128) -> Uuid {
    let millis = u128::try_from(time.as_millisecond()).unwrap_or(0) + later;
    Uuid::from_u128(millis << 80)
}

/// Follows every chain from its beginning to where its end was; what is written meanwhile is left for the next time.
pub async fn verify(tx: &mut Tx) -> Result<Vec<Verified>> {
    let chains: Vec<Chain> = tx.rows(CHAINS, &[]).await?;
    let mut verified = Vec::new();
    for chain in chains {
        let (mut number, mut sum, mut broken_at) = (0, START.to_vec(), None);
        loop {
            let part: Vec<Written> = tx.rows(PART, args![&chain.name, number, chain.number]).await?;
            if part.is_empty() {
                break;
            }
            for written in part {
                let made = digest(&SHA256, &written.event.link(&sum));
                let follows = written.event.number == number + 1 && made.as_ref() == written.digest;
                if !follows && broken_at.is_none() {
                    broken_at = Some(number + 1);
                }
                (number, sum) = (written.event.number, written.digest);
            }
        }
        if (number, &sum) != (chain.number, &chain.digest) && broken_at.is_none() {
            // Events are missing at the end.
            broken_at = Some(number + 1);
        }
        verified.push(Verified { tenant: tenant_of(&chain.name)?, events: number, broken_at });
    }
    let stray: Vec<(String, i64, i64)> = tx.rows(STRAY, &[]).await?;
    for (name, first, events) in stray {
        let tenant = tenant_of(&name)?;
        match verified.iter_mut().find(|chain| chain.tenant == tenant) {
            Some(chain) => chain.broken_at = chain.broken_at.or(Some(first)),
            None => verified.push(Verified { tenant, events, broken_at: Some(first) }),
        }
    }
    Ok(verified)
}

fn chain_of(tenant: Option<TenantId>) -> String {
    tenant.map_or_else(|| PLATFORM.to_owned(), |tenant| tenant.to_string())
}

fn tenant_of(chain: &str) -> Result<Option<TenantId>> {
    if chain == PLATFORM {
        return Ok(None);
    }
    TenantId::parse(chain).map(Some).ok_or_else(|| Error::unexpected("a chain of no tenant"))
}

/// An event with the digest that was written beside it.
struct Written {
    event: Event,
    digest: Vec<u8>,
}

struct Chain {
    name: String,
    number: i64,
    digest: Vec<u8>,
}

impl FromRow for Chain {
    fn from_row(row: &mut Row) -> Result<Self> {
        Ok(Chain { name: row.take()?, number: row.take()?, digest: row.take()? })
    }
}

impl FromRow for Written {
    fn from_row(row: &mut Row) -> Result<Self> {
        let event = Event {
            id: row.take::<Uuid>()?,
            tenant: tenant_of(&row.take::<String>()?)?,
            number: row.take()?,
            at: row.take()?,
            actor: row.take_optional()?,
            credential: row.take_optional()?,
            credential_id: row.take_optional()?,
            action: row.take()?,
            object: row.take()?,
            outcome: row.take_text(Outcome::parse)?,
            code: row.take_optional()?,
            request_id: row.take()?,
            address: row.take_optional()?,
            details: row.take()?,
        };
        Ok(Written { event, digest: row.take()? })
    }
}
