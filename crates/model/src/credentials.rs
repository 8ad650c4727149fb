//! Credentials: how a caller has proved who it is, and what it may do at most by that.
//!
//! A right is held when the relation holds and the credential's ceiling allows it: a narrow token that leaks is no admin.

use std::borrow::Cow;
use std::time::Duration;

use crate::Timestamp;
use crate::ci::JobContext;
use crate::tenants::TenantId;
use crate::trust::Trust;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub kind: CredentialKind,
    /// Names it in the audit without giving it away: a token's, a key's or a job's id.
    pub id: Option<String>,
    /// The issuer or provider that vouches for it; none for our own.
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    pub issued_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// When the person behind it last proved to be there, if the issuer says so.
    pub authenticated_at: Option<Timestamp>,
    pub ceiling: Ceiling,
    /// The only tenant whose things it opens; none for one that goes wherever its holder may.
    pub tenant: Option<TenantId>,
    /// What the issuer proves of the job that it was given to; only a job's credential has it.
    pub job: Option<Box<JobContext>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// Signed by us, after a sign-in here.
    AccessToken,
    /// Signed by a configured OpenID issuer.
    Sso,
    ServiceAccount,
    ApiKey,
    VcsPersonalAccessToken,
    CiJob,
}

impl CredentialKind {
    pub const fn name(self) -> &'static str {
        match self {
            CredentialKind::AccessToken => "access_token",
            CredentialKind::Sso => "sso",
            CredentialKind::ServiceAccount => "service_account",
            CredentialKind::ApiKey => "api_key",
            CredentialKind::VcsPersonalAccessToken => "vcs_personal_access_token",
            CredentialKind::CiJob => "ci_job",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all = [
            CredentialKind::AccessToken,
            CredentialKind::Sso,
            CredentialKind::ServiceAccount,
            CredentialKind::ApiKey,
            CredentialKind::VcsPersonalAccessToken,
            CredentialKind::CiJob,
        ];
        all.into_iter().find(|kind| kind.name() == text)
    }
}

/// The most that a credential opens, as patterns `type:relation`; `*` stands for any type or any end of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ceiling {
    Everything,
    AllBut(&'static [&'static str]),
    Only(Cow<'static, [&'static str]>),
}

/// A personal token of a version control host that may write there.
pub const VCS_WRITING: Ceiling = Ceiling::AllBut(&[
    "system:can_manage_admins",
    "system:can_manage_users",
    "tenant:can_delete",
    "tenant:can_manage_vcs",
    "tenant:can_bootstrap",
]);

/// A personal token of a version control host that may only read there.
pub const VCS_READING: Ceiling = Ceiling::Only(Cow::Borrowed(&["*:can_view*", "emulator:can_read_vehicle"]));

/// A pipeline's job; its tenant is checked besides.
pub const CI_JOB: Ceiling = Ceiling::Only(Cow::Borrowed(&[
    "tenant:can_view",
    "tenant:can_create_emulator",
    "emulator:can_*",
    "snapshot:can_view",
    "snapshot:can_deploy",
]));

/// What needs a person who has signed in just now, where the credential says when that was.
const NEEDS_PRESENCE: &[(&str, &str)] =
    &[("tenant", "can_delete"), ("system", "can_manage_admins"), ("system", "can_manage_users")];
const PRESENT_FOR: Duration = Duration::from_secs(15 * 60);

/// Why a credential does not open what its holder may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Ceiling,
    /// The sign-in is too long ago.
    Presence,
}

impl Credential {
    /// A credential that opens everything, of which nothing else is known.
    pub const fn new(kind: CredentialKind) -> Self {
        Credential {
            kind,
            id: None,
            issuer: None,
            scopes: Vec::new(),
            issued_at: None,
            expires_at: None,
            authenticated_at: None,
            ceiling: Ceiling::Everything,
            tenant: None,
            job: None,
        }
    }

    /// How far what its holder does is believed: as far as any member, unless it is a job's.
    pub fn trust(&self) -> Trust {
        self.job.as_deref().map_or(Trust::Internal, JobContext::trust)
    }

    /// Whether this credential opens the relation on things of this type.
    pub fn limit(&self, kind: &str, relation: &str, now: Timestamp) -> Option<Limit> {
        if !self.ceiling.allows(kind, relation) {
            return Some(Limit::Ceiling);
        }
        let away = self.authenticated_at.is_some_and(|at| now > at + PRESENT_FOR);
        (away && NEEDS_PRESENCE.contains(&(kind, relation))).then_some(Limit::Presence)
    }
}

impl Ceiling {
    pub fn allows(&self, kind: &str, relation: &str) -> bool {
        let matches = |pattern: &&str| {
            let (of_kind, of_relation) = pattern.split_once(':').unwrap_or((pattern, "*"));
            (of_kind == "*" || of_kind == kind)
                && of_relation
                    .strip_suffix('*')
                    .map_or(of_relation == relation, |start| relation.starts_with(start))
        };
        match self {
            Ceiling::Everything => true,
            Ceiling::AllBut(patterns) => !patterns.iter().any(matches),
            Ceiling::Only(patterns) => patterns.iter().any(matches),
        }
    }

    /// For people: what it opens, or with a leading `!` what it does not.
    pub fn describe(&self) -> Vec<String> {
        match self {
            Ceiling::Everything => vec!["*:*".to_owned()],
            Ceiling::AllBut(patterns) => {
                let closed = patterns.iter().map(|pattern| format!("!{pattern}"));
                ["*:*".to_owned()].into_iter().chain(closed).collect()
            }
            Ceiling::Only(patterns) => patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_opens_what_its_patterns_say() {
        for (ceiling, kind, relation, open) in [
            (Ceiling::Everything, "system", "can_manage_admins", true),
            (VCS_WRITING, "tenant", "can_delete", false),
            (VCS_WRITING, "system", "can_manage_users", false),
            (VCS_WRITING, "emulator", "can_delete", true),
            (VCS_READING, "emulator", "can_view_logs", true),
            (VCS_READING, "emulator", "can_restart", false),
            (VCS_READING, "tenant", "admin", false),
            (CI_JOB, "emulator", "can_restart", true),
            (CI_JOB, "tenant", "can_manage_members", false),
            (CI_JOB, "snapshot", "can_promote_root", false),
        ] {
            assert_eq!(ceiling.allows(kind, relation), open, "{ceiling:?} {kind}:{relation}");
        }
    }

    #[test]
    fn a_sign_in_of_long_ago_does_not_delete_a_tenant() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let credential =
            |authenticated_at| Credential { authenticated_at, ..Credential::new(CredentialKind::Sso) };
        for (authenticated_at, kind, relation, limit) in [
            (Some(at(1000)), "tenant", "can_delete", None),
            (Some(at(99)), "tenant", "can_delete", Some(Limit::Presence)),
            (Some(at(99)), "system", "can_manage_admins", Some(Limit::Presence)),
            (Some(at(99)), "system", "can_manage_users", Some(Limit::Presence)),
            (Some(at(99)), "tenant", "can_update", None),
            // An issuer that does not say is believed.
            (None, "tenant", "can_delete", None),
        ] {
            assert_eq!(
                credential(authenticated_at).limit(kind, relation, at(1000)),
                limit,
                "{kind}:{relation}"
            );
        }
    }
}
