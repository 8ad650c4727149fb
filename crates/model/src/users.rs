//! Users: the people that Paddock knows, whether they have a password here or come from an identity provider.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::permissions::Object;
use crate::permissions::tuples::{Holder, Thing, Tuple};
use crate::tenants::TenantId;

crate::id!(UserId, "usr");

impl UserId {
    /// The account, as something that can be looked at and changed.
    pub fn account(self) -> Object {
        Object::new("user_account", self)
    }
}

/// The login of the account that the first start makes.
pub const FIRST_ADMIN: &str = "admin";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: UserId,
    /// What people call them.
    pub name: String,
    pub email: Option<String>,
    pub account: Account,
    /// The tenant whose admin made the account; only a platform admin lets it in elsewhere.
    #[serde(default)]
    pub home: Option<TenantId>,
    pub disabled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

/// Where a user's sign-in takes place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Account {
    /// Here, by this login and a password.
    Local { login: String },
    /// At an identity provider, which knows the user by this subject.
    External { issuer: String, subject: String },
}

/// What a caller may say about a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSpec {
    pub name: String,
    pub email: Option<String>,
    /// As it is where nothing is said: nobody is let in again by a change of name.
    pub disabled: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserFilter {
    pub login: Option<String>,
    pub email: Option<String>,
}

impl User {
    pub fn new(id: UserId, name: String, email: Option<String>, account: Account, now: Timestamp) -> Self {
        User {
            id,
            name,
            email,
            account,
            home: None,
            disabled_at: None,
            created_at: now,
            updated_at: now,
            generation: 1,
        }
    }

    /// The user as it stands after the change.
    #[must_use]
    pub fn changed(self, spec: UserSpec, now: Timestamp) -> Self {
        let disabled_at = match spec.disabled {
            Some(true) => Some(self.disabled_at.unwrap_or(now)),
            Some(false) => None,
            None => self.disabled_at,
        };
        let generation = self.generation + 1;
        User { name: spec.name, email: spec.email, disabled_at, updated_at: now, generation, ..self }
    }

    pub fn object(&self) -> Object {
        self.id.account()
    }

    pub fn login(&self) -> Option<&str> {
        match &self.account {
            Account::Local { login } => Some(login),
            Account::External { .. } => None,
        }
    }

    /// Holds as long as the account is open: whoever does not hold their own account is nobody.
    pub fn holds_account(&self) -> Tuple {
        self.object().given_to("holder", Holder::One(Thing::new("user", &self.id.to_string())))
    }

    pub fn account_belongs_to_system(&self) -> Tuple {
        self.object().given_to("system", Holder::One(Object::system().thing()))
    }
}

/// What is wrong with a password, in words that complete "the password …".
pub fn weakness(password: &str, login: &str) -> Option<&'static str> {
    // Length is what protects; composition rules make people write passwords down (NIST SP 800-63B).
    let letters = password.chars().count();
    let mut distinct: Vec<char> = password.chars().collect();
    distinct.sort_unstable();
    distinct.dedup();
    if letters < 12 {
        Some("needs at least 12 characters")
    } else if letters > 256 {
        Some("is longer than 256 characters")
    } else if distinct.len() < 5 {
        Some("repeats the same few characters")
    } else if !login.is_empty()
        && password.to_lowercase().contains(&login.to_lowercase())
        && letters < login.len() + 12
    {
        Some("is hardly more than the login")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_long_and_not_the_login() {
        for (password, fits) in [
            ("short", false),
            ("aaaaaaaaaaaaaaaa", false),
            ("correct horse battery", true),
            ("admin-12345678", false),
            ("a much longer phrase with admin in it", true),
        ] {
            assert_eq!(weakness(password, "admin").is_none(), fits, "{password}");
        }
    }
}
