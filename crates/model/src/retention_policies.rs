//! Retention policies: what a tenant says of its groups of snapshots, and which of them speaks for which group.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::error::{Error, Fault, Result};
use crate::permissions::Object;
use crate::retention::{Mode, Rules};
use crate::tenants::TenantId;

crate::id!(RetentionPolicyId, "pol");

impl RetentionPolicyId {
    /// No type of the model: rights on a policy are those on its tenant.
    pub fn object(self) -> Object {
        Object::new("retention_policy", self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionPolicy {
    pub id: RetentionPolicyId,
    pub tenant: TenantId,
    /// A group's name, or the beginning of several with a `*`; none for all of the tenant's.
    pub group: Option<String>,
    pub mode: Mode,
    pub rules: Rules,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub generation: i64,
}

/// What a caller may say about a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicySpec {
    pub group: Option<String>,
    pub mode: Mode,
    pub rules: Rules,
}

impl RetentionPolicySpec {
    /// Refuses what would keep nothing.
    pub fn check(&self) -> Result<()> {
        if !self.rules.keep_nothing() {
            return Ok(());
        }
        let message = "the policy would keep nothing; give at least one keep rule or one cap, and none of the caps as 0";
        let fault =
            Fault { pointer: "/rules".into(), code: "keeps_nothing".into(), message: message.to_owned() };
        Err(Error::invalid(vec![fault]))
    }
}

impl RetentionPolicy {
    pub fn new(id: RetentionPolicyId, tenant: TenantId, spec: RetentionPolicySpec, now: Timestamp) -> Self {
        let RetentionPolicySpec { group, mode, rules } = spec;
        RetentionPolicy { id, tenant, group, mode, rules, created_at: now, updated_at: now, generation: 1 }
    }

    /// The policy as it stands after the change.
    #[must_use]
    pub fn changed(self, spec: RetentionPolicySpec, now: Timestamp) -> Self {
        let RetentionPolicySpec { group, mode, rules } = spec;
        RetentionPolicy { group, mode, rules, updated_at: now, generation: self.generation + 1, ..self }
    }

    pub fn object(&self) -> Object {
        self.id.object()
    }

    /// How closely it names a group; none where it does not.
    fn closeness(&self, group: Option<&str>) -> Option<usize> {
        match (&self.group, group) {
            (None, _) => Some(0),
            (Some(named), Some(group)) if named == group => Some(usize::MAX),
            (Some(named), group) => {
                let beginning = named.strip_suffix('*')?;
                group.unwrap_or_default().starts_with(beginning).then_some(1 + beginning.len())
            }
        }
    }
}

/// The policy that speaks for a group: of those of its tenant and this mode, the one that names it most closely.
pub fn in_force<'a>(
    policies: impl IntoIterator<Item = &'a RetentionPolicy>,
    group: Option<&str>,
    mode: Mode,
) -> Option<&'a RetentionPolicy> {
    let named = policies.into_iter().filter(|policy| policy.mode == mode);
    let close = named.filter_map(|policy| Some((policy.closeness(group)?, policy)));
    close.max_by_key(|(closeness, policy)| (*closeness, policy.id)).map(|(_, policy)| policy)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_policy_that_names_a_group_most_closely_speaks_for_it() {
        let policy = |number: u128, group: Option<&str>, mode| {
            let spec = RetentionPolicySpec { group: group.map(str::to_owned), mode, rules: Rules::default() };
            let id = RetentionPolicyId(Uuid::from_u128(number));
            RetentionPolicy::new(id, TenantId(Uuid::nil()), spec, Timestamp::UNIX_EPOCH)
        };
        let policies = [
            policy(1, None, Mode::Always),
            policy(2, Some("nightly"), Mode::Always),
            policy(3, Some("night*"), Mode::Always),
            policy(4, Some("n*"), Mode::Always),
            policy(5, Some("nightly"), Mode::Pressure),
        ];
        for (group, mode, chosen) in [
            (Some("nightly"), Mode::Always, Some(2)),
            (Some("nightly-2"), Mode::Always, Some(3)),
            (Some("new"), Mode::Always, Some(4)),
            (Some("other"), Mode::Always, Some(1)),
            (None, Mode::Always, Some(1)),
            (Some("nightly"), Mode::Pressure, Some(5)),
            (Some("nightly-2"), Mode::Pressure, None),
        ] {
            let found = in_force(&policies, group, mode).map(|policy| policy.id.0.as_u128());
            assert_eq!(found, chosen, "{group:?} {mode:?}");
        }
    }
}
