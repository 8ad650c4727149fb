//! Members: who belongs to a tenant, and in which role.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::members::{Member, MemberPage, MemberPath, MemberSpec, MemberType, Role};
use paddock_api::page::ListPage;
use paddock_api::tenants::TenantPath;
use paddock_engine::members::{self, Named, Newcomer};
use paddock_model::members as model;
use paddock_model::permissions::tuples::Holder;
use paddock_model::subjects::Subject;
use paddock_model::users::UserId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::time;
use super::conventions::{revision, subject};
use super::invitations;
use super::tenants::read_id;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, add)).routes(routes!(get, remove))
}

/// List members
#[utoipa::path(get, path = "/tenants/{id}/members", tag = "members", params(TenantPath, ListPage), responses((status = 200, body = MemberPage, description = "A page of members.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<ListPage>,
) -> Answer<Json<MemberPage>> {
    let listing = Listing::of("members", &id);
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let page = members::list(&app.engine, &caller, read_id(&id)?, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(MemberPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Add a member
///
/// Gives someone a role in the tenant, in place of the one they had. A login that nobody has yet is invited.
#[utoipa::path(post, path = "/tenants/{id}/members", tag = "members", params(TenantPath), request_body = MemberSpec, responses(
    (status = 201, body = Member, description = "The member.")))]
async fn add(
    State(app): State<App>,
    Path(id): Path,
    Submission { caller, body }: Submission<MemberSpec>,
) -> Answer<Response> {
    let tenant = read_id(&id)?;
    let role = match body.role {
        Role::Admin => model::Role::Admin,
        Role::Operator => model::Role::Operator,
        Role::Member => model::Role::Member,
        Role::Auditor => model::Role::Auditor,
    };
    let newcomer = newcomer(body)?;
    if matches!(newcomer, Newcomer::Login(_)) {
        app.rates.count_costly(&caller.subject)?;
    }
    let added = members::add(&app.engine, &caller, tenant, newcomer, role).await?;
    let invitation = added.invited.map(|invited| invitations::wire(Some(invited)));
    let member = Member { invitation, ..wire(added.member) };
    let location = format!("/api/v1/tenants/{tenant}/members/{}", member.id.replace('/', "%2F"));
    Ok((StatusCode::CREATED, [(LOCATION, location)], [revision::header(&app)], Json(member)).into_response())
}

/// Read a member
#[utoipa::path(get, path = "/tenants/{id}/members/{userId}", tag = "members", params(MemberPath), responses((status = 200, body = Member, description = "The member.")))]
async fn get(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, member)): Path<(String, String)>,
) -> Answer<Json<Member>> {
    let member = members::get(&app.engine, &caller, read_id(&id)?, &named(&member)?).await?;
    Ok(Json(wire(member)))
}

/// Remove a member
///
/// They lose at once all that they have in the tenant: roles, groups, grants, keys. You may remove yourself.
#[utoipa::path(delete, path = "/tenants/{id}/members/{userId}", tag = "members", params(MemberPath), responses((status = 204, description = "They are no member any more.")))]
async fn remove(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, member)): Path<(String, String)>,
) -> Answer<Response> {
    members::remove(&app.engine, &caller, read_id(&id)?, &named(&member)?).await?;
    Ok((StatusCode::NO_CONTENT, [revision::header(&app)]).into_response())
}

fn named(text: &str) -> Result<Subject> {
    subject::named(text).ok_or_else(|| Error::not_found("member"))
}

fn newcomer(body: MemberSpec) -> Result<Newcomer> {
    match (body.user_id, body.login, body.service_account) {
        (Some(id), None, None) => {
            let id = UserId::parse(&id).ok_or_else(|| subject::not_an_id("/userId"))?;
            Ok(Newcomer::Known(Subject::User(id)))
        }
        (None, Some(login), None) => Ok(Newcomer::Login(login)),
        (None, None, Some(name)) => Ok(Newcomer::Known(subject::machine(&name, "/serviceAccount")?)),
        _ => Err(subject::exactly_one("userId, login and serviceAccount")),
    }
}

fn wire(Named { member, user }: Named) -> Member {
    let (r#type, id) = match &member.holder {
        Holder::One(one) if &*one.kind == "user" => (MemberType::User, &one.id),
        Holder::One(one) => (MemberType::ServiceAccount, &one.id),
        Holder::Set(group, _) => (MemberType::Group, &group.id),
        Holder::Everyone(kind) => (MemberType::Group, kind),
    };
    let login = user.as_ref().and_then(|user| user.login().map(str::to_owned));
    Member {
        r#type,
        name: user.map_or_else(|| id.to_string(), |user| user.name),
        id: id.to_string(),
        login,
        role: match member.role {
            model::Role::Admin => Role::Admin,
            model::Role::Operator => Role::Operator,
            model::Role::Member => Role::Member,
            model::Role::Auditor => Role::Auditor,
        },
        added_at: time(member.since),
        invitation: None,
    }
}
