//! Tickets: what opens one stream, once, where a browser cannot send a credential.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::LOCATION;
use paddock_api::emulators::EmulatorPath;
use paddock_api::tickets::{StreamChannel, Ticket, TicketSpec};
use paddock_engine::tickets;
use paddock_model::drivers::emulator_hosts::Channel;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::conventions::body::Submission;
use super::conventions::path::Path;
use super::conventions::problem::Answer;
use super::conventions::time::time;
use super::emulators::read_id;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create))
}

/// Get a ticket
///
/// It opens one stream to this emulator, once, within 30 s, as your credential would: for browsers, which cannot send a
/// credential with a WebSocket.
#[utoipa::path(post, path = "/emulators/{id}/tickets", tag = "tickets", params(EmulatorPath), request_body = TicketSpec, responses((status = 201, body = Ticket, description = "The ticket; `Location` is what it opens.")))]
async fn create(
    State(app): State<App>,
    Path(id): Path,
    Submission { caller, body }: Submission<TicketSpec>,
) -> Answer<Response> {
    let (channel, place) = match body.channel {
        StreamChannel::Adb => (Channel::Adb, "adb/proxy"),
        StreamChannel::Display => (Channel::Display, "display"),
        StreamChannel::Logs => (Channel::Log, "logs"),
    };
    let id = read_id(&id)?;
    let (told, secret) = tickets::create(&app.engine, &caller, id, channel).await?;
    let ticket =
        Ticket { ticket: secret.map(|secret| secret.reveal().to_owned()), expires_at: time(told.expires_at) };
    let location = format!("/api/v1/emulators/{id}/{place}");
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(ticket)).into_response())
}
