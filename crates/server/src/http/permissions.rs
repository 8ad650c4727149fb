//! Permissions: who one is, and what one may do.

use std::collections::{HashMap, HashSet};

use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paddock_api::permissions::{
    Check, CheckAnswer, CheckError, CheckExplanation, CheckQuery, CheckRequest, CheckResult, CheckResults,
    Credential, CredentialType, GlobalPermissions, GroupName, HeldGrant, LimitReason, MyPermissions,
    NamedResult, PermissionSummary, SubjectType, SummarySubject, TenantPermissions, Whoami,
};
use paddock_engine::permissions::{self, Decision, Explanation, Unknown};
use paddock_engine::{groups, tenants, users};
use paddock_model::caller;
use paddock_model::credentials::{self, CredentialKind, Limit};
use paddock_model::error::Fault;
use paddock_model::permissions::tuples::Thing;
use paddock_model::subjects::Subject;
use paddock_model::users::User;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::revision::revision;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(whoami)).routes(routes!(me)).routes(routes!(check, check_many))
}

/// Who am I?
///
/// The identity that your credential stands for.
#[utoipa::path(get, path = "/whoami", tag = "permissions", responses((status = 200, body = Whoami, description = "You.")))]
async fn whoami(State(app): State<App>, Caller(caller): Caller) -> Answer<Json<Whoami>> {
    let user = users::whoami(&app.engine, &caller).await?;
    let (name, email) = name(&caller.subject, user);
    Ok(Json(Whoami {
        id: caller.subject.thing().id.to_string(),
        r#type: subject_type(&caller.subject),
        name,
        email,
        credential: credential(&caller.credential),
        linked_accounts: Vec::new(),
        issued_at: caller.credential.issued_at.map(time),
        expires_at: caller.credential.expires_at.map(time),
    }))
}

/// What may I?
///
/// Your roles, rights and grants, as far as this credential opens them.
#[utoipa::path(get, path = "/permissions/me", tag = "permissions", params(MyPermissions), responses((status = 200, body = PermissionSummary, description = "What you may.")))]
async fn me(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<MyPermissions>,
) -> Answer<Json<PermissionSummary>> {
    let after = query.cursor.as_deref().map(read_cursor).transpose()?;
    let summary = permissions::summarise(&app.engine, &caller, after.as_deref());
    let (name, email) = name(&caller.subject, users::whoami(&app.engine, &caller).await?);
    let subject =
        SummarySubject { id: caller.subject.to_string(), r#type: subject_type(&caller.subject), name, email };
    let mut described = Vec::with_capacity(summary.tenants.len());
    let names = tenants::names(&app.engine, summary.tenants.iter().map(|tenant| tenant.id).collect()).await?;
    let names: HashMap<_, _> = names.into_iter().map(|tenant| (tenant.id, tenant.name)).collect();
    for tenant in summary.tenants {
        // One that has gone this moment is not told.
        let Some(name) = names.get(&tenant.id) else { continue };
        let groups = groups::names(&app.engine, tenant.id, &tenant.groups).await?;
        described.push(TenantPermissions {
            id: tenant.id.to_string(),
            name: name.to_string(),
            relations: tenant.relations,
            permissions: tenant.permissions,
            groups: groups
                .into_iter()
                .map(|group| GroupName { id: group.id.to_string(), name: group.name.to_string() })
                .collect(),
        });
    }
    let grants = summary.grants.into_iter().map(|grant| HeldGrant {
        object: grant.object,
        relation: grant.relation,
        via: grant.via,
    });
    Ok(Json(PermissionSummary {
        subject,
        credential: credential(&caller.credential),
        global: GlobalPermissions { admin: summary.admin, permissions: summary.global },
        tenants: described,
        grants: grants.collect(),
        next_cursor: summary.next.map(|key| URL_SAFE_NO_PAD.encode(key)),
        revision: format!("r-{}", summary.revision),
    }))
}

/// May I?
///
/// Whether you hold one relation on one object. What does not exist, or what you may not see, you do not hold.
#[utoipa::path(get, path = "/permissions/check", tag = "permissions", params(CheckQuery), responses((status = 200, body = CheckResult, description = "Whether you may.")))]
async fn check(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<CheckQuery>,
) -> Answer<Json<CheckResult>> {
    let missing = |name: &str| {
        let fault = Fault {
            pointer: format!("/{name}"),
            code: "required".into(),
            message: format!("{name:?} is missing"),
        };
        Error::malformed("invalid_parameter", "A query parameter is missing.").with_faults(vec![fault])
    };
    let relation = query.relation.ok_or_else(|| missing("relation"))?;
    let object = query.object.ok_or_else(|| missing("object"))?;
    let asking = Asking { app: &app, caller: &caller, subject: caller.subject.clone(), explains: false };
    Ok(Json(asking.one(relation, object)?))
}

/// May I, many times over?
///
/// One question as in the GET, or up to a hundred, answered in their order.
#[utoipa::path(post, path = "/permissions/check", tag = "permissions", request_body = CheckRequest, responses((status = 200, body = CheckAnswer, description = "Whether you may.")))]
async fn check_many(
    State(app): State<App>,
    Submission { caller, body }: Submission<CheckRequest, { 64 << 10 }>,
) -> Answer<Json<CheckAnswer>> {
    if let Some(revision) = &body.at_least_revision {
        let number = revision.trim_start_matches("r-").parse().unwrap_or(i64::MAX);
        permissions::reach(&app.engine, number).await?;
    }
    let subject = match &body.subject {
        Some(text) => Subject::parse(text).ok_or_else(|| {
            let detail = "A subject is user:usr_… or service_account:…, and this is neither.";
            Error::malformed("invalid_subject", detail)
        })?,
        None => caller.subject.clone(),
    };
    if subject != caller.subject {
        let many = body.checks.iter().flatten().map(|check| check.object.as_str());
        permissions::require_insight(&app.engine, &caller, many.chain(body.object.as_deref()))?;
    }
    let explains = body.explain.unwrap_or(false);
    let asking = Asking { app: &app, caller: &caller, subject, explains };
    match body {
        CheckRequest { checks: Some(checks), relation: None, object: None, .. } => {
            Ok(Json(CheckAnswer::Many(asking.many(checks)?)))
        }
        CheckRequest { checks: None, relation: Some(relation), object: Some(object), .. } => {
            Ok(Json(CheckAnswer::One(asking.one(relation, object)?)))
        }
        _ => Err(Error::malformed("ambiguous_request", "Send either relation and object, or checks.").into()),
    }
}

/// Who asks about whom.
struct Asking<'a> {
    app: &'a App,
    caller: &'a caller::Caller,
    subject: Subject,
    explains: bool,
}

impl Asking<'_> {
    fn one(&self, relation: String, object: String) -> Result<CheckResult> {
        let decision = self.ask(&relation, &object).map_err(|unknown| {
            Error::malformed(unknown.code, format!("It cannot be asked: {}.", unknown.message))
        })?;
        Ok(CheckResult {
            allowed: decision == Decision::Allowed,
            reason: reason(decision),
            explanation: self.explain(&relation, &object),
            relation,
            object,
            subject: self.subject.to_string(),
            revision: revision(self.app),
        })
    }

    fn many(&self, checks: Vec<Check>) -> Result<CheckResults> {
        let mut seen = HashSet::new();
        let mut results = Vec::new();
        for (index, Check { id, relation, object }) in checks.into_iter().enumerate() {
            let id = id.unwrap_or_else(|| index.to_string());
            if !seen.insert(id.clone()) {
                return Err(Error::malformed(
                    "duplicate_id",
                    "Two checks have the same id; each needs one of its own.",
                ));
            }
            let (decision, error) = match self.ask(&relation, &object) {
                Ok(decision) => (decision, None),
                Err(Unknown { code, message }) => {
                    (Decision::Missing, Some(CheckError { code: code.to_owned(), message }))
                }
            };
            results.push(NamedResult {
                id,
                allowed: decision == Decision::Allowed,
                reason: reason(decision),
                explanation: if error.is_none() { self.explain(&relation, &object) } else { None },
                relation,
                object,
                error,
            });
        }
        Ok(CheckResults { results, revision: revision(self.app) })
    }

    fn ask(&self, relation: &str, object: &str) -> Result<Decision, Unknown> {
        permissions::ask(&self.app.engine, self.caller, Some(&self.subject), relation, object)
    }

    fn explain(&self, relation: &str, object: &str) -> Option<CheckExplanation> {
        if !self.explains {
            return None;
        }
        let object = Thing::parse(object)?;
        let (engine, caller) = (&self.app.engine, self.caller);
        Some(match permissions::explain(engine, caller, &self.subject, relation, &object) {
            Explanation::Because(because) => CheckExplanation { because, missing: Vec::new() },
            Explanation::Missing(missing) => CheckExplanation { because: Vec::new(), missing },
        })
    }
}

fn reason(decision: Decision) -> Option<LimitReason> {
    match decision {
        Decision::Limited(Limit::Ceiling) => Some(LimitReason::CredentialCeiling),
        Decision::Limited(Limit::Presence) => Some(LimitReason::ReauthenticationRequired),
        Decision::Allowed | Decision::Missing => None,
    }
}

fn read_cursor(cursor: &str) -> Result<String> {
    let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Error::malformed("invalid_cursor", "This is no cursor. Start again without one."))
}

fn name(subject: &Subject, user: Option<User>) -> (String, Option<String>) {
    match user {
        Some(user) => (user.name, user.email),
        None => (subject.thing().id.to_string(), None),
    }
}

const fn subject_type(subject: &Subject) -> SubjectType {
    match subject {
        Subject::User(_) => SubjectType::User,
        Subject::ServiceAccount(_) => SubjectType::ServiceAccount,
    }
}

fn credential(credential: &credentials::Credential) -> Credential {
    Credential {
        r#type: match credential.kind {
            CredentialKind::AccessToken => CredentialType::AccessToken,
            CredentialKind::Sso => CredentialType::Sso,
            CredentialKind::ServiceAccount => CredentialType::ServiceAccount,
            CredentialKind::ApiKey => CredentialType::ApiKey,
            CredentialKind::VcsPersonalAccessToken => CredentialType::VcsPersonalAccessToken,
            CredentialKind::CiJob => CredentialType::CiJob,
        },
        provider: credential.issuer.clone(),
        scopes: credential.scopes.clone(),
        expires_at: credential.expires_at.map(time),
        ceiling: credential.ceiling.describe(),
    }
}
