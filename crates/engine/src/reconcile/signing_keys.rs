//! Replaces the key that signs access tokens before it grows old, and forgets keys whose last token is over.

use std::time::Duration;

use paddock_model::lifetimes::ACCESS_TOKEN;
use paddock_model::signing_keys::SigningKey;
use paddock_model::{Result as Outcome, Timestamp};
use paddock_store::signing_keys::{delete, insert, list};

use super::{Loop, Report, Trouble};
use crate::{Engine, signing_keys};

/// For a token that was being signed while the next key was made, and for clocks that differ.
const MARGIN: Duration = Duration::from_secs(300);

/// Watches no table: keys change by time alone.
pub const LOOP: Loop = Loop {
    name: "signing_keys",
    watches: &[],
    every: Duration::from_secs(600),
    run: |engine| Box::pin(run(engine)),
};

async fn run(engine: &Engine) -> Result<Report, Trouble> {
    let now = engine.now();
    let (old, over) =
        changes(&list(&mut engine.store.read().await?).await?, engine.lifetimes.signing_key, now);
    if !old && over.is_empty() {
        return Ok(Report::default());
    }
    Ok(carry_out(engine, now).await?)
}

async fn carry_out(engine: &Engine, now: Timestamp) -> Outcome<Report> {
    let mut tx = engine.store.begin().await?;
    let (old, over) = changes(&list(&mut tx).await?, engine.lifetimes.signing_key, now);
    if old {
        insert(&mut tx, &signing_keys::generate(engine)?).await?;
    }
    for id in &over {
        delete(&mut tx, id).await?;
    }
    tx.commit().await?;
    Ok(Report { changed: u64::from(old) + over.len() as u64, ..Report::default() })
}

/// Whether the newest key is too old to sign, and which of the others have signed nothing that is still good. The very
/// first key is made when it is first needed, not here.
fn changes(newest_first: &[SigningKey], lifetime: Duration, now: Timestamp) -> (bool, Vec<String>) {
    let old = newest_first.first().is_some_and(|newest| now >= newest.created_at + lifetime);
    let pairs = newest_first.iter().zip(newest_first.iter().skip(1));
    let over = pairs
        .filter(|(newer, _)| now >= newer.created_at + ACCESS_TOKEN + MARGIN)
        .map(|(_, older)| older.id.clone());
    (old, over.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_for_a_month_and_verifies_as_long_as_its_last_token() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let key = |id: &str, created_at| SigningKey {
            id: id.to_owned(),
            private: Vec::new(),
            public: Vec::new(),
            created_at: at(created_at),
        };
        let two = [key("new", 10_000), key("old", 0)];
        for (keys, now, old, over) in [
            (&[][..], 99_999, false, vec![]),
            (&two[1..], 9_999, false, vec![]),
            (&two[1..], 10_000, true, vec![]),
            (&two[..], 11_199, false, vec![]),
            (&two[..], 11_200, false, vec!["old".to_owned()]),
            (&two[..], 20_000, true, vec!["old".to_owned()]),
        ] {
            assert_eq!(changes(keys, Duration::from_secs(10_000), at(now)), (old, over), "{now}");
        }
    }
}
