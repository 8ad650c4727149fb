//! Permissions: who one is, and what one may do.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use paddock_api::permissions::{
    Check, CheckAnswer, CheckError, CheckQuery, CheckRequest, CheckResult, CheckResults, Credential,
    CredentialType, NamedResult, SubjectType, Whoami,
};
use paddock_engine::{permissions, users};
use paddock_model::error::Fault;
use paddock_model::{Error, Result, caller};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::time;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(whoami)).routes(routes!(check, check_many))
}

/// Who am I?
///
/// The identity that your credential stands for.
#[utoipa::path(get, path = "/whoami", tag = "permissions", responses((status = 200, body = Whoami, description = "You.")))]
async fn whoami(State(app): State<App>, Caller(caller): Caller) -> Answer<Json<Whoami>> {
    let user = users::whoami(&app.engine, &caller).await?;
    let credential = Credential { r#type: CredentialType::AccessToken, expires_at: time(caller.expires_at) };
    Ok(Json(Whoami { id: user.id.to_string(), r#type: SubjectType::User, name: user.name, credential }))
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
    Ok(Json(one(&app, &caller, relation, object)?))
}

/// May I, many times over?
///
/// One question as in the GET, or up to a hundred, answered in their order.
#[utoipa::path(post, path = "/permissions/check", tag = "permissions", request_body = CheckRequest, responses((status = 200, body = CheckAnswer, description = "Whether you may.")))]
async fn check_many(
    State(app): State<App>,
    Submission { caller, body }: Submission<CheckRequest>,
) -> Answer<Json<CheckAnswer>> {
    if let Some(revision) = &body.at_least_revision {
        let number = revision.trim_start_matches("r-").parse().unwrap_or(i64::MAX);
        permissions::reach(&app.engine, number).await?;
    }
    match body {
        CheckRequest { checks: Some(checks), relation: None, object: None, .. } => {
            Ok(Json(CheckAnswer::Many(many(&app, &caller, checks)?)))
        }
        CheckRequest { checks: None, relation: Some(relation), object: Some(object), .. } => {
            Ok(Json(CheckAnswer::One(one(&app, &caller, relation, object)?)))
        }
        _ => Err(Error::malformed("ambiguous_request", "Send either relation and object, or checks.").into()),
    }
}

fn one(app: &App, caller: &caller::Caller, relation: String, object: String) -> Result<CheckResult> {
    let allowed = permissions::ask(&app.engine, caller, &relation, &object).map_err(|unknown| {
        Error::malformed(unknown.code, format!("It cannot be asked: {}.", unknown.message))
    })?;
    Ok(CheckResult {
        allowed,
        relation,
        object,
        subject: caller.subject.to_string(),
        revision: revision(app),
    })
}

fn many(app: &App, caller: &caller::Caller, checks: Vec<Check>) -> Result<CheckResults> {
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
        let answer = permissions::ask(&app.engine, caller, &relation, &object);
        let error = answer
            .as_ref()
            .err()
            .map(|unknown| CheckError { code: unknown.code.to_owned(), message: unknown.message.clone() });
        results.push(NamedResult { id, relation, object, allowed: answer.unwrap_or(false), error });
    }
    Ok(CheckResults { results, revision: revision(app) })
}

fn revision(app: &App) -> String {
    format!("r-{}", permissions::revision(&app.engine))
}
