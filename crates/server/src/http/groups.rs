//! Groups: people and machines of one tenant that are given rights together.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::groups::{
    Group, GroupMember, GroupMemberPage, GroupMemberPath, GroupMemberSpec, GroupPage, GroupPath, GroupSpec,
};
use paddock_api::members::MemberType;
use paddock_api::page::ListPage;
use paddock_api::tenants::TenantPath;
use paddock_engine::groups::{self, NamedMember};
use paddock_model::error::Fault;
use paddock_model::groups::{self as model, GroupId};
use paddock_model::slug::Slug;
use paddock_model::subjects::Subject;
use paddock_model::users::UserId;
use paddock_model::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::{Body, Submission};
use super::conventions::conditional::{IfMatch, etag};
use super::conventions::cursor::Listing;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::query::Query;
use super::conventions::time::time;
use super::conventions::{revision, subject};
use super::tenants;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get, update, delete))
        .routes(routes!(list_members, add_member))
        .routes(routes!(remove_member))
}

/// List a tenant's groups
#[utoipa::path(get, path = "/tenants/{id}/groups", tag = "groups", params(TenantPath, ListPage), responses((status = 200, body = GroupPage, description = "A page of groups.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<ListPage>,
) -> Answer<Json<GroupPage>> {
    let listing = Listing::of("groups", &id);
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let page = groups::list(&app.engine, &caller, tenants::read_id(&id)?, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(GroupPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Create a group
#[utoipa::path(post, path = "/tenants/{id}/groups", tag = "groups", params(TenantPath), request_body = GroupSpec, responses((status = 201, body = Group, description = "The group was created.")))]
async fn create(
    State(app): State<App>,
    Path(id): Path,
    Submission { caller, body }: Submission<GroupSpec>,
) -> Answer<Response> {
    let group = groups::create(&app.engine, &caller, tenants::read_id(&id)?, spec(body)?).await?;
    let location = format!("/api/v1/groups/{}", group.id);
    let headers = ([(LOCATION, location)], [revision::header(&app)]);
    Ok((StatusCode::CREATED, headers.0, headers.1, versioned(group)).into_response())
}

/// Read a group
#[utoipa::path(get, path = "/groups/{id}", tag = "groups", params(GroupPath), responses((status = 200, body = Group, description = "The group.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Response> {
    Ok(versioned(groups::get(&app.engine, &caller, read_id(&id)?).await?).into_response())
}

/// Replace what is said of a group
#[utoipa::path(put, path = "/groups/{id}", tag = "groups", params(GroupPath), request_body = GroupSpec, responses((status = 200, body = Group, description = "The group as it stands now.")))]
async fn update(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
    Body(body): Body<GroupSpec>,
) -> Answer<Response> {
    let group = groups::update(&app.engine, &caller, read_id(&id)?, spec(body)?, &expected).await?;
    Ok(([revision::header(&app)], versioned(group)).into_response())
}

/// Delete a group
///
/// All that was given to the group goes with it.
#[utoipa::path(delete, path = "/groups/{id}", tag = "groups", params(GroupPath), responses((status = 204, description = "The group is gone.")))]
async fn delete(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
) -> Answer<Response> {
    groups::delete(&app.engine, &caller, read_id(&id)?, &expected).await?;
    Ok((StatusCode::NO_CONTENT, [revision::header(&app)]).into_response())
}

/// List a group's members
#[utoipa::path(get, path = "/groups/{id}/members", tag = "groups", params(GroupPath, ListPage), responses((status = 200, body = GroupMemberPage, description = "A page of members.")))]
async fn list_members(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    Query(query): Query<ListPage>,
) -> Answer<Json<GroupMemberPage>> {
    let listing = Listing::of("group_members", &id);
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let page = groups::list_members(&app.engine, &caller, read_id(&id)?, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(GroupMemberPage { items: page.items.into_iter().map(wire_member).collect(), next_cursor }))
}

/// Put someone into a group
///
/// A person or a machine of the group's tenant, or everyone in another of its groups.
#[utoipa::path(post, path = "/groups/{id}/members", tag = "groups", params(GroupPath), request_body = GroupMemberSpec, responses((status = 201, body = GroupMember, description = "They are in the group.")))]
async fn add_member(
    State(app): State<App>,
    Path(id): Path,
    Submission { caller, body }: Submission<GroupMemberSpec>,
) -> Answer<Response> {
    let group = read_id(&id)?;
    let member = groups::add_member(&app.engine, &caller, group, member(body)?).await?;
    let member = wire_member(member);
    let location = format!("/api/v1/groups/{group}/members/{}", member.id.replace('/', "%2F"));
    Ok((StatusCode::CREATED, [(LOCATION, location)], [revision::header(&app)], Json(member)).into_response())
}

/// Take someone out of a group
#[utoipa::path(delete, path = "/groups/{id}/members/{memberId}", tag = "groups", params(GroupMemberPath), responses((status = 204, description = "They are in it no more.")))]
async fn remove_member(
    State(app): State<App>,
    Caller(caller): Caller,
    Path((id, member)): Path<(String, String)>,
) -> Answer<Response> {
    let member = named(&member).ok_or_else(|| Error::not_found("member"))?;
    groups::remove_member(&app.engine, &caller, read_id(&id)?, &member).await?;
    Ok((StatusCode::NO_CONTENT, [revision::header(&app)]).into_response())
}

/// A text that is no id names a group that does not exist.
pub(super) fn read_id(text: &str) -> Result<GroupId> {
    GroupId::parse(text).ok_or_else(|| Error::not_found("group"))
}

fn named(text: &str) -> Option<groups::GroupMember> {
    if text.starts_with("grp_") {
        return GroupId::parse(text).map(groups::GroupMember::Group);
    }
    subject::named(text).map(groups::GroupMember::Subject)
}

fn member(body: GroupMemberSpec) -> Result<groups::GroupMember> {
    match (body.user_id, body.group_id, body.service_account) {
        (Some(id), None, None) => {
            let id = UserId::parse(&id).ok_or_else(|| subject::not_an_id("/userId"))?;
            Ok(groups::GroupMember::Subject(Subject::User(id)))
        }
        (None, Some(id), None) => {
            let id = GroupId::parse(&id).ok_or_else(|| subject::not_an_id("/groupId"))?;
            Ok(groups::GroupMember::Group(id))
        }
        (None, None, Some(name)) => {
            Ok(groups::GroupMember::Subject(subject::machine(&name, "/serviceAccount")?))
        }
        _ => Err(subject::exactly_one("userId, groupId and serviceAccount")),
    }
}

fn spec(body: GroupSpec) -> Result<model::GroupSpec> {
    let name = Slug::parse(&body.name).ok_or_else(|| {
        let message = "it is no valid name".to_owned();
        Error::invalid(vec![Fault { pointer: "/name".to_owned(), code: "wrong_pattern".into(), message }])
    })?;
    Ok(model::GroupSpec { name, display_name: body.display_name })
}

fn versioned(group: model::Group) -> impl IntoResponse {
    ([(ETAG, etag(group.generation))], Json(wire(group)))
}

fn wire(group: model::Group) -> Group {
    Group {
        id: group.id.to_string(),
        tenant_id: group.tenant.to_string(),
        name: group.name.to_string(),
        display_name: group.display_name,
        created_at: time(group.created_at),
        updated_at: time(group.updated_at),
    }
}

fn wire_member(member: NamedMember) -> GroupMember {
    let (r#type, id) = match &member.member {
        groups::GroupMember::Subject(Subject::User(id)) => (MemberType::User, id.to_string()),
        groups::GroupMember::Subject(Subject::ServiceAccount(name)) => {
            (MemberType::ServiceAccount, name.to_string())
        }
        groups::GroupMember::Group(id) => (MemberType::Group, id.to_string()),
    };
    let name = member.user.map(|user| user.name).or_else(|| member.group.map(|group| group.display_name));
    GroupMember { r#type, name: name.unwrap_or_else(|| id.clone()), id, added_at: time(member.since) }
}
