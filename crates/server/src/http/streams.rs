//! Streams: ways into a device that stay open, as WebSockets.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use paddock_api::emulators::EmulatorPath;
use paddock_api::streams::OpenStream;
use paddock_engine::streams;
use paddock_model::drivers::emulator_hosts::Channel;
use paddock_model::error::Kind;
use paddock_model::{Error, Result};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::browser::base;
use super::conventions::path::Path;
use super::conventions::problem::{Answer, Failure};
use super::conventions::query::Query;
use super::emulators::read_id;
use crate::auth::Caller;
use crate::bridge::carry;

/// What ADB's bytes are called between us and our clients.
const ADB_PROTOCOLS: &[&str] = &["adb.paddock.v1"];
/// `binary` is what VNC clients in browsers have always called it.
const DISPLAY_PROTOCOLS: &[&str] = &["rfb.paddock.v1", "binary"];

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(adb)).routes(routes!(display))
}

/// Connect to ADB
///
/// A WebSocket whose binary frames are the bytes that `adb` and the device exchange, as over TCP. It is closed with 4401
/// when the credential expires, 4403 when the right is lost, 4404 when the device is gone, 4410 when it is started anew,
/// 1001 when the server stops.
#[utoipa::path(get, path = "/emulators/{id}/adb/proxy", tag = "streams", params(EmulatorPath, OpenStream), responses((status = 101, description = "The connection is a WebSocket from now on, with the subprotocol `adb.paddock.v1` if it was offered.")))]
async fn adb(
    State(app): State<App>,
    Path(id): Path,
    Query(query): Query<OpenStream>,
    parts: Parts,
) -> Answer<Response> {
    open(&app, parts, &id, query.ticket, Channel::Adb, ADB_PROTOCOLS).await
}

/// Connect to the display
///
/// A WebSocket whose binary frames are RFB, as VNC clients in browsers speak it. It is closed as that to ADB is.
#[utoipa::path(get, path = "/emulators/{id}/display", tag = "streams", params(EmulatorPath, OpenStream), responses((status = 101, description = "The connection is a WebSocket from now on, with the subprotocol `rfb.paddock.v1` or `binary` if one was offered.")))]
async fn display(
    State(app): State<App>,
    Path(id): Path,
    Query(query): Query<OpenStream>,
    parts: Parts,
) -> Answer<Response> {
    open(&app, parts, &id, query.ticket, Channel::Display, DISPLAY_PROTOCOLS).await
}

/// Everything that can be refused is refused before the connection changes its nature.
async fn open(
    app: &App,
    mut parts: Parts,
    id: &str,
    ticket: Option<String>,
    channel: Channel,
    protocols: &[&'static str],
) -> Answer<Response> {
    let caller = caller(app, &mut parts, id, ticket.as_deref(), channel).await?;
    require_known_origin(app, &parts)?;
    let id = read_id(id)?;
    let handshake = Handshake::read(&mut parts, protocols);
    let (handshake, device, stream) = match handshake {
        Ok(handshake) => {
            let (device, stream) = streams::connect(&app.engine, &caller, id, channel).await?;
            (handshake, device, stream)
        }
        // Who may not is told so first, however it asks.
        Err(failure) => {
            streams::admit(&app.engine, &caller, id, channel).await?;
            return Err(failure);
        }
    };
    let Handshake { answer, upgrade } = handshake;
    let asked_every = app.limits.stall_time / 3;
    tokio::spawn(async move {
        let Ok(socket) = upgrade.await else { return };
        let carried = carry(socket, device, stream, asked_every).await;
        let (up, down, code) = (carried.up, carried.down, carried.reason);
        let request_id = &*caller.request_id;
        tracing::info!(request_id, emulator = %id, channel = channel.name(), up, down, code, "a stream has ended");
    });
    Ok(answer)
}

/// The caller by its credential, or by a ticket in its place.
pub(super) async fn caller(
    app: &App,
    parts: &mut Parts,
    id: &str,
    ticket: Option<&str>,
    channel: Channel,
) -> Result<paddock_model::caller::Caller, Failure> {
    let Caller(caller) = match ticket {
        Some(ticket) => Caller::by_ticket(app, parts, ticket, id, channel).await?,
        None => Caller::of_request(app, parts).await?,
    };
    Ok(caller)
}

/// A browser opens a WebSocket for any page; pages of others are held to what may call the API.
fn require_known_origin(app: &App, parts: &Parts) -> Result<()> {
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let ours = base(app, parts)?;
    if origin.as_bytes().eq_ignore_ascii_case(ours.as_bytes()) || app.cross_origin.0.contains(origin) {
        return Ok(());
    }
    let detail = "This page is of another origin. An admin can let it in with the setting cors.origins.";
    Err(Error::new(Kind::Forbidden, "foreign_origin", detail))
}

/// A request to make a WebSocket of the connection, and the answer to it (RFC 6455, section 4.2).
struct Handshake {
    answer: Response,
    upgrade: OnUpgrade,
}

impl Handshake {
    fn read(parts: &mut Parts, protocols: &[&'static str]) -> Result<Handshake, Failure> {
        let headers = &parts.headers;
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| key.len() == 24);
        let asked = lists(headers, &CONNECTION, "upgrade")
            && lists(headers, &UPGRADE, "websocket")
            && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let (true, Some(key)) = (asked, key) else { return Err(no_web_socket()) };
        let accept = accept(key)?;
        let protocol = choose(headers, protocols)?;
        let upgrade = parts.extensions.remove::<OnUpgrade>().ok_or_else(no_web_socket)?;
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        headers.extend(protocol.map(|protocol| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol))));
        Ok(Handshake { answer, upgrade })
    }
}

fn no_web_socket() -> Failure {
    let detail =
        "This is served as a WebSocket (version 13, over HTTP/1.1). Open it with a WebSocket client.";
    Failure::of_transport(StatusCode::BAD_REQUEST, "websocket_required", detail)
}

/// The first of ours that is offered; none if nothing is.
fn choose(headers: &HeaderMap, ours: &[&'static str]) -> Result<Option<&'static str>, Failure> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Ok(None);
    }
    let offered = |protocol: &&&str| items(headers, &SEC_WEBSOCKET_PROTOCOL).any(|offer| offer == **protocol);
    let chosen = ours.iter().find(offered).copied();
    chosen.map(Some).ok_or_else(|| {
        let detail = format!("Offer the subprotocol {}, or none.", ours.join(" or "));
        Failure::of_transport(StatusCode::BAD_REQUEST, "unsupported_subprotocol", detail)
    })
}

fn items<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn lists(headers: &HeaderMap, name: &http::HeaderName, wanted: &str) -> bool {
    items(headers, name).any(|item| item.eq_ignore_ascii_case(wanted))
}

fn accept(key: &HeaderValue) -> Result<HeaderValue> {
    const NAMESPACE: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), NAMESPACE].concat());
    HeaderValue::try_from(STANDARD.encode(sum)).map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_handshake_is_the_one_in_the_book() {
        // RFC 6455, section 1.3.
        let answer = accept(&HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==")).expect("an answer");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_subprotocol_that_is_offered_must_be_ours() {
        for (offered, chosen) in [
            (None, Some(None)),
            (Some("adb.paddock.v1"), Some(Some("adb.paddock.v1"))),
            (Some("chat, adb.paddock.v1"), Some(Some("adb.paddock.v1"))),
            (Some("chat"), None),
            (Some(""), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(offered.map(|text| (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(text))));
            assert_eq!(choose(&headers, ADB_PROTOCOLS).ok(), chosen, "{offered:?}");
        }
    }
}
