//! Slots: each stands for a loopback address. One that was given back is used again last, so that a client that still
//! knows it does not meet someone else's device.

use paddock_model::Timestamp;

use crate::{Error, Result, Tx, args};

/// Holds up others who take one, until the commit.
const TAKE_NEW: &str = "
    UPDATE slots SET next = CASE WHEN next < $1 THEN $1 ELSE next END + 1 WHERE id = 1 AND next <= $2 RETURNING next";

const OLDEST_FREE: &str = "
    SELECT slot FROM free_slots WHERE slot >= $1 ORDER BY released_at, slot LIMIT 1";

const TAKE_FREE: &str = "
    DELETE FROM free_slots WHERE slot = $1";

const RELEASE: &str = "
    INSERT INTO free_slots (slot, released_at) VALUES ($1, $2)";

const GIVEN: &str = "
    SELECT next - 1 FROM slots WHERE id = 1";

const FREE: &str = "
    SELECT COUNT(*) FROM free_slots";

/// Those of emulators, and of clones that prove a snapshot.
const TWICE: &str = "
    SELECT slot FROM (
        SELECT slot FROM emulators WHERE slot IS NOT NULL
        UNION ALL SELECT slot FROM verifications WHERE slot IS NOT NULL
        UNION ALL SELECT slot FROM free_slots) AS known
    GROUP BY slot HAVING COUNT(*) > 1";

const HELD: &str = "
    SELECT (SELECT COUNT(*) FROM emulators WHERE slot IS NOT NULL)
         + (SELECT COUNT(*) FROM verifications WHERE slot IS NOT NULL)";

/// How the slots are distributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The highest that was ever given.
    pub highest: i64,
    pub free: i64,
    pub held: i64,
    /// Held by two, or held and free at once.
    pub twice: Vec<i64>,
}

/// For the doctor.
pub async fn examine(tx: &mut Tx) -> Result<Slots> {
    let mut count = async |text: &'static str| -> Result<i64> {
        Ok(tx.row::<(i64,)>(text, &[]).await?.map_or(0, |(count,)| count))
    };
    let (highest, free, held) = (count(GIVEN).await?, count(FREE).await?, count(HELD).await?);
    let twice: Vec<(i64,)> = tx.rows(TWICE, &[]).await?;
    Ok(Slots { highest, free, held, twice: twice.into_iter().map(|(slot,)| slot).collect() })
}

/// A slot from `first` to `most` that is nobody's; none when all are taken.
pub async fn take(tx: &mut Tx, first: i64, most: i64) -> Result<Option<i64>> {
    if let Some((next,)) = tx.row::<(i64,)>(TAKE_NEW, args![first, most]).await? {
        return Ok(Some(next - 1));
    }
    // Two who find the same one: the second finds it gone, and tries the next.
    for _ in 0..100 {
        let Some((slot,)) = tx.row::<(i64,)>(OLDEST_FREE, args![first]).await? else { return Ok(None) };
        if tx.execute(TAKE_FREE, args![slot]).await? > 0 {
            return Ok(Some(slot));
        }
    }
    Err(Error::unavailable("no free slot could be taken"))
}

pub async fn release(tx: &mut Tx, slot: i64, now: Timestamp) -> Result<()> {
    tx.execute_one(RELEASE, args![slot, now]).await
}
