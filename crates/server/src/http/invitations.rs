//! Invitations: a link by which someone chooses their password, once.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::invitations::Invitation;
use paddock_api::users::UserPath;
use paddock_engine::invitations::{self, Invited};
use paddock_model::Error;
use paddock_model::users::UserId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Bare;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::time::time;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create))
}

/// Invite a user again
///
/// A new link to choose a password, for who has lost the first one or forgotten the password. Earlier links end.
#[utoipa::path(post, path = "/users/{id}/invitations", tag = "invitations", params(UserPath), responses((status = 201, body = Invitation, description = "The invitation, told once.")))]
async fn create(State(app): State<App>, Path(id): Path, Bare(caller): Bare) -> Answer<Response> {
    app.rates.count_costly(&caller.subject)?;
    let user = UserId::parse(&id).ok_or_else(|| Error::not_found("user"))?;
    let invited = invitations::create(&app.engine, &caller, user).await?;
    let location = format!("/api/v1/users/{user}");
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(wire(invited))).into_response())
}

pub(super) fn wire(invited: Option<Invited>) -> Invitation {
    match invited {
        Some(Invited { token, expires_at }) => {
            let url = format!("/invitation?token={}", token.reveal());
            Invitation { url: Some(url), expires_at: Some(time(expires_at)) }
        }
        None => Invitation { url: None, expires_at: None },
    }
}
