//! Admins of the whole installation.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::admins::{Admin, AdminPage, AdminPath, AdminSpec};
use paddock_api::page::ListPage;
use paddock_api::permissions::SubjectType;
use paddock_engine::admins;
use paddock_model::Error;
use paddock_model::subjects::Subject;
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
use crate::auth::Caller;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(delete))
}

/// List the admins of everything
#[utoipa::path(get, path = "/admins", tag = "admins", params(ListPage), responses((status = 200, body = AdminPage, description = "A page of admins.")))]
async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Query(query): Query<ListPage>,
) -> Answer<Json<AdminPage>> {
    let listing = Listing::of("admins", &());
    let page = listing.page(query.limit, query.cursor.as_deref())?;
    let page = admins::list(&app.engine, &caller, page).await?;
    let next_cursor = page.next.map(|next| listing.write(&next));
    Ok(Json(AdminPage { items: page.items.into_iter().map(wire).collect(), next_cursor }))
}

/// Make someone an admin of everything
#[utoipa::path(post, path = "/admins", tag = "admins", request_body = AdminSpec, responses((status = 201, body = Admin, description = "The admin.")))]
async fn create(
    State(app): State<App>,
    Submission { caller, body }: Submission<AdminSpec>,
) -> Answer<Response> {
    let subject = Subject::parse(&body.subject).ok_or_else(|| subject::not_an_id("/subject"))?;
    let subject = match subject {
        Subject::ServiceAccount(name) => subject::machine(&name, "/subject")?,
        person => person,
    };
    let admin = wire(admins::create(&app.engine, &caller, subject).await?);
    let location = format!("/api/v1/admins/{}", admin.subject.replace('/', "%2F"));
    Ok((StatusCode::CREATED, [(LOCATION, location)], [revision::header(&app)], Json(admin)).into_response())
}

/// Take the admin's right from someone
///
/// The last one keeps it.
#[utoipa::path(delete, path = "/admins/{subject}", tag = "admins", params(AdminPath), responses((status = 204, description = "They are no admin any more.")))]
async fn delete(State(app): State<App>, Caller(caller): Caller, Path(text): Path) -> Answer<Response> {
    let subject = Subject::parse(&text).ok_or_else(|| Error::not_found("admin"))?;
    admins::delete(&app.engine, &caller, &subject).await?;
    Ok((StatusCode::NO_CONTENT, [revision::header(&app)]).into_response())
}

fn wire(admin: admins::Admin) -> Admin {
    Admin {
        r#type: match admin.subject {
            Subject::User(_) => SubjectType::User,
            Subject::ServiceAccount(_) => SubjectType::ServiceAccount,
        },
        name: admin.user.map_or_else(|| admin.subject.thing().id.to_string(), |user| user.name),
        subject: admin.subject.to_string(),
        added_at: time(admin.since),
    }
}
