//! Which tables a commit has changed, told to whoever watches them.

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

pub(crate) struct Changes(broadcast::Sender<Changed>);

impl Default for Changes {
    fn default() -> Self {
        Changes(broadcast::Sender::new(KEPT))
    }
}

impl Changes {
    pub fn tell(&self, changed: Changed) {
        // Nobody watches: nobody needs to know.
        let _ = self.0.send(changed);
    }

    pub fn watch(&self, tables: &'static [&'static str]) -> Watch {
        Watch { tables, news: self.0.subscribe() }
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
