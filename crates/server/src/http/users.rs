//! Users: the people that Paddock knows.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ETAG, LOCATION};
use paddock_api::users::{ListUsers, NewUser, User, UserPage, UserPath, UserSpec};
use paddock_engine::users::{self, Seen};
use paddock_model::users::{self as model, Account, UserFilter, UserId};
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
use super::invitations;
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, update))
}

/// List users
///
/// Everyone, for global admins; for others themselves and the members of their tenants, by name.
#[utoipa::path(get, path = "/users", tag = "users", params(ListUsers), responses((status = 200, body = UserPage, description = "A page of users.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ListUsers>,
) -> Answer<Json<UserPage>> {
    let listing = Listing::of("users", &(&query.login, &query.email));
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let filter = UserFilter { login: query.login, email: query.email };
    let page = users::list(&app.engine, &caller, &filter, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(UserPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Create a user
///
/// Makes an account here, without a password: its owner chooses one by the invitation in the answer.
#[utoipa::path(post, path = "/users", tag = "users", request_body = NewUser, responses((status = 201, body = User, description = "The account was made.")))]
async fn create(
    State(app): State<App>,
    Submission { caller, body }: Submission<NewUser>,
) -> Answer<Response> {
    app.rates.count_costly(&caller.subject)?;
    let name = body.name.unwrap_or_else(|| body.login.clone());
    let new = users::NewUser { login: body.login, name, email: body.email };
    let (user, invited) = users::create(&app.engine, &caller, new).await?;
    let location = format!("/api/v1/users/{}", user.id);
    let tag = etag(user.generation);
    let invitation = Some(invitations::wire(invited));
    let user = User { invitation, ..wire(Seen { user, in_full: true }) };
    Ok((StatusCode::CREATED, [(LOCATION, location)], [(ETAG, tag)], Json(user)).into_response())
}

/// Read a user
#[utoipa::path(get, path = "/users/{id}", tag = "users", params(UserPath), responses((status = 200, body = User, description = "The user.")))]
async fn get(State(app): State<App>, Caller(caller): Caller, Path(id): Path) -> Answer<Response> {
    let seen = users::get(&app.engine, &caller, read_id(&id)?).await?;
    Ok(versioned(seen).into_response())
}

/// Replace what is said of a user
///
/// People change themselves, global admins everyone. A role is never changed here.
#[utoipa::path(put, path = "/users/{id}", tag = "users", params(UserPath), request_body = UserSpec, responses((status = 200, body = User, description = "The user as it stands now.")))]
async fn update(
    State(app): State<App>,
    Caller(caller): Caller,
    Path(id): Path,
    IfMatch(expected): IfMatch,
    Body(body): Body<UserSpec>,
) -> Answer<Response> {
    let id = read_id(&id)?;
    let spec = model::UserSpec { name: body.name, email: body.email, disabled: body.disabled };
    let user = users::update(&app.engine, &caller, id, spec, &expected).await?;
    Ok(versioned(Seen { user, in_full: true }).into_response())
}

fn read_id(text: &str) -> Result<UserId> {
    UserId::parse(text).ok_or_else(|| Error::not_found("user"))
}

fn versioned(seen: Seen) -> impl IntoResponse {
    ([(ETAG, etag(seen.user.generation))], Json(wire(seen)))
}

fn wire(Seen { user, in_full }: Seen) -> User {
    let (login, issuer) = match user.account {
        Account::Local { login } => (Some(login), None),
        Account::External { issuer, .. } => (None, Some(issuer)),
    };
    User {
        id: user.id.to_string(),
        name: user.name,
        login: login.filter(|_| in_full),
        email: user.email.filter(|_| in_full),
        issuer: issuer.filter(|_| in_full),
        disabled: user.disabled_at.is_some(),
        created_at: time(user.created_at),
        updated_at: time(user.updated_at),
        invitation: None,
    }
}
