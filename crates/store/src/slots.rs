//! Slots: each stands for a loopback address. One that was given back is used again last, so that a client that still
//! knows it does not meet someone else's device.

use paddock_model::Timestamp;

use crate::{Error, Result, Tx, args};

/// Holds up others who take one, until the commit.
const TAKE_NEW: &str = "
    UPDATE slots SET next = next + 1 WHERE id = 1 AND next <= $1 RETURNING next";

const OLDEST_FREE: &str = "
    SELECT slot FROM free_slots ORDER BY released_at, slot LIMIT 1";

const TAKE_FREE: &str = "
    DELETE FROM free_slots WHERE slot = $1";

const RELEASE: &str = "
    INSERT INTO free_slots (slot, released_at) VALUES ($1, $2)";

/// A slot from 1 to `most` that is nobody's; none when all are taken.
pub async fn take(tx: &mut Tx, most: i64) -> Result<Option<i64>> {
    if let Some((next,)) = tx.row::<(i64,)>(TAKE_NEW, args![most]).await? {
        return Ok(Some(next - 1));
    }
    // Two who find the same one: the second finds it gone, and tries the next.
    for _ in 0..100 {
        let Some((slot,)) = tx.row::<(i64,)>(OLDEST_FREE, &[]).await? else { return Ok(None) };
        if tx.execute(TAKE_FREE, args![slot]).await? > 0 {
            return Ok(Some(slot));
        }
    }
    Err(Error::unavailable("no free slot could be taken"))
}

pub async fn release(tx: &mut Tx, slot: i64, now: Timestamp) -> Result<()> {
    tx.execute_one(RELEASE, args![slot, now]).await
}
