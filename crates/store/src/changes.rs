//! Which tables a commit has changed, told to whoever watches them.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use tokio::sync::broadcast;

/// Tables that one commit changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    Tables(Vec<String>),
    /// Some news was lost; anything may have changed.
    Anything,
}

/// Enough for a burst of commits; whoever falls behind is told that anything may have changed.
const KEPT: usize = 256;

pub(crate) struct Changes {
    news: broadcast::Sender<Changed>,
    revisions: RwLock<Revisions>,
}

/// How often what has changed.
#[derive(Default)]
struct Revisions {
    tables: HashMap<String, u64>,
    /// Each of these may have been a change of any table.
    anything: u64,
}

impl Default for Changes {
    fn default() -> Self {
        Changes { news: broadcast::Sender::new(KEPT), revisions: RwLock::default() }
    }
}

impl Changes {
    /// To be called after the change is visible and before it is acknowledged.
    pub fn tell(&self, changed: Changed) {
        self.revisions.write().unwrap_or_else(PoisonError::into_inner).count(&changed);
        // Nobody watches: nobody needs to know.
        let _ = self.news.send(changed);
    }

    pub fn watch(&self, tables: &'static [&'static str]) -> Watch {
        Watch { tables, news: self.news.subscribe() }
    }

    pub fn revision(&self, tables: &[&str]) -> u64 {
        let revisions = self.revisions.read().unwrap_or_else(PoisonError::into_inner);
        let each = tables.iter().filter_map(|table| revisions.tables.get(*table));
        each.sum::<u64>() + revisions.anything
    }
}

impl Revisions {
    fn count(&mut self, changed: &Changed) {
        let Changed::Tables(tables) = changed else {
            self.anything += 1;
            return;
        };
        for table in tables {
            match self.tables.get_mut(table) {
                Some(count) => *count += 1,
                None => drop(self.tables.insert(table.clone(), 1)),
            }
        }
    }
}

/// Wakes when one of its tables has changed.
pub struct Watch {
    tables: &'static [&'static str],
    news: broadcast::Receiver<Changed>,
}

impl Watch {
    /// Returns at the next change since the last call; many changes may wake once.
    pub async fn changed(&mut self) {
        loop {
            match self.news.recv().await {
                Ok(Changed::Tables(tables))
                    if !tables.iter().any(|table| self.tables.contains(&table.as_str())) => {}
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
                // The store is gone; whoever still waits for it has to look.
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    /// Forgets what has changed up to now.
    pub fn forget(&mut self) {
        self.news = self.news.resubscribe();
    }
}

/// The table that a writing statement changes; none for a statement that only reads.
pub(crate) fn changed_table(sql: &str) -> Option<&str> {
    let mut words =
        sql.split(|letter: char| letter.is_whitespace() || letter == '(').filter(|word| !word.is_empty());
    match words.next()? {
        "INSERT" | "DELETE" => words.nth(1),
        "UPDATE" => words.next(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_grows_with_its_tables_and_with_no_others() {
        let changes = Changes::default();
        let tell = |tables: &[&str]| {
            changes.tell(Changed::Tables(tables.iter().map(|&table| table.to_owned()).collect()));
        };
        let revision = || changes.revision(&["snapshots", "layers"]);
        let at_first = revision();
        tell(&["tenants"]);
        assert_eq!(revision(), at_first);
        tell(&["tenants", "layers"]);
        let after_a_layer = revision();
        assert!(after_a_layer > at_first);
        changes.tell(Changed::Anything);
        assert!(revision() > after_a_layer);
    }

    #[test]
    fn a_statement_names_the_table_it_changes() {
        for (sql, table) in [
            ("\n INSERT INTO tenants (id) VALUES ($1)", Some("tenants")),
            ("INSERT INTO tenants(id) VALUES ($1)", Some("tenants")),
            ("DELETE FROM leases WHERE name = $1", Some("leases")),
            ("UPDATE tenants SET name = $1", Some("tenants")),
            ("SELECT 1", None),
        ] {
            assert_eq!(changed_table(sql), table);
        }
    }
}
