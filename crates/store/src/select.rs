//! A list statement that grows with its filters: fixed pieces of text, and values only as arguments.

use paddock_model::labels::{LabelSelector, Requirement};
use paddock_model::page::PageRequest;
use paddock_model::scopes::Scope;

use crate::value::Value;

/// Values in one statement: PostgreSQL takes 65,535, and SQLite looks each up among all that stand before it.
pub const AT_ONCE: usize = 500;

pub(crate) struct Select {
    sql: String,
    args: Vec<Value<'static>>,
    conditions: usize,
    scans: bool,
}

/// A statement that is ready to run.
pub(crate) struct Finished {
    pub sql: String,
    pub args: Vec<Value<'static>>,
    /// No index helps with its conditions.
    pub scans: bool,
}

impl Select {
    pub fn new(from: &'static str) -> Self {
        Select { sql: from.to_owned(), args: Vec::new(), conditions: 0, scans: false }
    }

    /// Adds a condition; each `?` in it stands for one of the values.
    pub fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value<'static>>) {
        self.sql.push_str(if self.conditions == 0 { " WHERE " } else { " AND " });
        self.conditions += 1;
        let mut values = values.into_iter();
        for letter in condition.chars() {
            if letter == '?' {
                self.args.push(values.next().expect("a value for every place"));
                self.sql.push_str(&format!("${}", self.args.len()));
            } else {
                self.sql.push(letter);
            }
        }
    }

    /// Only what belongs to a tenant that the scope covers.
    pub fn within(&mut self, scope: &Scope, tenant_column: &'static str) {
        match scope {
            Scope::Everything => {}
            Scope::Tenants(tenants) => {
                self.one_of(tenant_column, tenants.iter().map(|id| Value::Uuid(id.0)));
            }
        }
    }

    /// The same, and besides what belongs to no tenant: the platform's own, which everyone may see.
    pub fn within_or_nobodys(&mut self, scope: &Scope, tenant_column: &'static str) {
        let Scope::Tenants(tenants) = scope else { return };
        let places = vec!["?"; tenants.len()].join(", ");
        let condition = if tenants.is_empty() {
            format!("{tenant_column} IS NULL")
        } else {
            format!("({tenant_column} IS NULL OR {tenant_column} IN ({places}))")
        };
        self.and(&condition, tenants.iter().map(|id| Value::Uuid(id.0)));
    }

    /// Only where the column holds one of the values; nothing where there are none. Where there may be many, [`AT_ONCE`] at most.
    pub fn one_of(&mut self, column: &'static str, values: impl ExactSizeIterator<Item = Value<'static>>) {
        if values.len() == 0 {
            self.and("1 = 0", []);
        } else {
            let places = vec!["?"; values.len()].join(", ");
            self.and(&format!("{column} IN ({places})"), values);
        }
    }

    /// Says that no index may help with what was asked for, or that there may be very much of it.
    pub fn may_scan(&mut self) {
        self.scans = true;
    }

    pub fn labelled(&mut self, selector: &LabelSelector) {
        for requirement in &selector.0 {
            self.scans = true;
            match requirement.clone() {
                Requirement::Equals(key, value) => {
                    self.and("labels ->> CAST(? AS TEXT) = ?", [Value::String(key), Value::String(value)]);
                }
                Requirement::Differs(key, value) => self.and(
                    "COALESCE(labels ->> CAST(? AS TEXT) <> ?, 1 = 1)",
                    [Value::String(key), Value::String(value)],
                ),
                Requirement::Exists(key) => {
                    self.and("labels ->> CAST(? AS TEXT) IS NOT NULL", [Value::String(key)]);
                }
            }
        }
    }

    /// Everything that it finds; the caller knows that this is little.
    pub fn all(self) -> Finished {
        Finished { sql: self.sql, args: self.args, scans: self.scans }
    }

    /// Everything that it finds, newest first.
    pub fn newest_first(mut self, key_column: &'static str) -> Finished {
        self.sql.push_str(&format!(" ORDER BY {key_column} DESC"));
        self.all()
    }

    /// The first so many in an order.
    pub fn first(mut self, order: &'static str, most: i64) -> Finished {
        self.args.push(Value::from(most));
        self.sql.push_str(&format!(" ORDER BY {order} LIMIT ${}", self.args.len()));
        self.all()
    }

    /// Newest first, one row more than a page holds.
    pub fn page<K: Into<Value<'static>>>(
        mut self,
        request: PageRequest<K>,
        key_column: &'static str,
    ) -> Finished {
        if let Some(after) = request.after {
            self.and(&format!("{key_column} < ?"), [after.into()]);
        }
        self.args.push(Value::from(request.limit + 1));
        self.sql.push_str(&format!(" ORDER BY {key_column} DESC LIMIT ${}", self.args.len()));
        Finished { sql: self.sql, args: self.args, scans: self.scans }
    }
}
