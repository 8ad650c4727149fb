//! Request bodies: the right type, not too large, not too slow, well-formed, and valid by the published schema.

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use paddock_model::Error;
use paddock_model::error::Fault;
use paddock_model::idempotency_keys::Once;
use ring::digest;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::problem::Failure;
use super::schemas::{UNKNOWN_MEMBER, reference};
use crate::auth::Caller;
use crate::http::App;

/// How much of a body that is too large is read and dropped.
pub const DROPPED: usize = 16 << 20;

/// The body of a request that replaces something.
pub struct Body<T>(pub T);

/// The body and the caller of a POST, which may be sent twice and must be carried out once. Where an operation allows
/// less than all bodies may have, `MOST` says how many bytes.
pub struct Submission<T, const MOST: usize = { usize::MAX }> {
    pub caller: paddock_model::caller::Caller,
    pub body: T,
}

impl<T: DeserializeOwned + ToSchema + 'static> FromRequest<App> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        require_json(request.headers())?;
        let bytes = read(request, app).await?;
        parse(&bytes, app).map(Body)
    }
}

impl<T: DeserializeOwned + ToSchema + 'static, const MOST: usize> FromRequest<App> for Submission<T, MOST> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let Caller(mut caller) = Caller::from_request_parts(&mut parts, app).await?;
        let request = Request::from_parts(parts, body);
        require_json(request.headers())?;
        let key = idempotency_key(request.headers())?;
        let operation = format!("{} {}", request.method(), request.uri());
        let bytes = read_at_most(request, app, MOST).await?;
        let body = parse(&bytes, app)?;
        caller.once = key.map(|key| Once { key, fingerprint: fingerprint(&operation, &bytes) });
        Ok(Submission { caller, body })
    }
}

/// The caller of a POST that has no body.
pub struct Bare(pub paddock_model::caller::Caller);

impl FromRequest<App> for Bare {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let Caller(mut caller) = Caller::from_request_parts(&mut parts, app).await?;
        let request = Request::from_parts(parts, body);
        let key = idempotency_key(request.headers())?;
        let operation = format!("{} {}", request.method(), request.uri());
        let bytes = read(request, app).await?;
        caller.once = key.map(|key| Once { key, fingerprint: fingerprint(&operation, &bytes) });
        Ok(Bare(caller))
    }
}

/// The body and the caller of a POST whose body may be left out.
pub struct Perhaps<T> {
    pub caller: paddock_model::caller::Caller,
    pub body: T,
}

impl<T: DeserializeOwned + ToSchema + Default + 'static> FromRequest<App> for Perhaps<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        if request.body().is_end_stream() {
            let Bare(caller) = Bare::from_request(request, app).await?;
            return Ok(Perhaps { caller, body: T::default() });
        }
        let Submission { caller, body } = Submission::<T>::from_request(request, app).await?;
        Ok(Perhaps { caller, body })
    }
}

fn require_json(headers: &HeaderMap) -> Result<(), Failure> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "Send the body as JSON, with Content-Type: application/json.";
    Err(Failure::of_transport(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

/// The whole body, if it is neither too large nor too slow.
pub async fn read(request: Request, app: &App) -> Result<Bytes, Failure> {
    read_at_most(request, app, usize::MAX).await
}

async fn read_at_most(request: Request, app: &App, most: usize) -> Result<Bytes, Failure> {
    let most = most.min(app.limits.body_bytes);
    let mut body = request.into_body();
    let whole = async {
        let announced = body.size_hint().lower();
        let mut bytes = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0).min(most));
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| incomplete())?.into_data() else { continue };
            length += data.len();
            // What is too large is read on for a while and dropped: a client that still sends would miss the answer.
            if length <= most {
                bytes.extend_from_slice(&data);
            } else if length > most + DROPPED {
                break;
            }
        }
        if length <= most { Ok(bytes.freeze()) } else { Err(too_large(most)) }
    };
    let in_time = tokio::time::timeout(app.limits.body_time, whole).await;
    in_time.unwrap_or_else(|_| Err(too_slow()))
}

pub fn incomplete() -> Failure {
    Failure::of_transport(StatusCode::BAD_REQUEST, "incomplete_body", "The body ended before its end.")
}

fn too_large(most: usize) -> Failure {
    Failure::of_transport(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("The body is larger than {most} bytes."),
    )
}

pub fn too_slow() -> Failure {
    Failure::of_transport(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body did not arrive in time.")
}

fn parse<T: DeserializeOwned + ToSchema + 'static>(bytes: &[u8], app: &App) -> Result<T, Failure> {
    let malformed = |error: serde_json::Error| {
        Error::malformed("malformed_json", format!("The body is not valid JSON: {error}."))
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(malformed)?;
    let faults = app.schemas.faults::<T>(&value, || reference(&T::name()))?;
    if !faults.is_empty() {
        return Err(invalid(faults).into());
    }
    // From the text once more, not from the value: that notices a member that stands twice.
    Ok(serde_json::from_slice(bytes).map_err(malformed)?)
}

/// A member that nobody knows makes a request malformed, anything else makes it invalid.
fn invalid(faults: Vec<Fault>) -> Error {
    if faults.iter().any(|fault| fault.code == UNKNOWN_MEMBER) {
        let detail = "The request has members that are not known here; see errors.";
        Error::malformed("unknown_member", detail).with_faults(faults)
    } else {
        Error::invalid(faults)
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=255).contains(&key.len()));
    let problem = || {
        let detail = "An Idempotency-Key is 1 to 255 visible ASCII characters.";
        Failure::of_transport(StatusCode::BAD_REQUEST, "invalid_idempotency_key", detail)
    };
    key.map(|key| Some(key.to_owned())).ok_or_else(problem)
}

fn fingerprint(operation: &str, body: &[u8]) -> [u8; 32] {
    let mut sum = digest::Context::new(&digest::SHA256);
    sum.update(operation.as_bytes());
    sum.update(b"\n");
    sum.update(body);
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(sum.finish().as_ref());
    fingerprint
}
