//! The way to vehicles: who calls, which emulator is meant, whether that is allowed; then the car answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use paddock_engine::permissions;
use paddock_engine::streams::Stream;
use paddock_engine::vehicles::{self, Way};
use paddock_model::emulators::{Emulator, EmulatorId};
use paddock_model::permissions::Relation;
use paddock_model::{Error, caller};
use paddock_vehicle::{Client, ClientName, Vehicle};
use tonic::Status;
use tower::ServiceExt;

use super::cars::Cars;
use super::ending::{self, Ending};
use super::status;
use crate::auth::{Caller, Recognised};
use crate::http::App;
use crate::http::conventions::problem::Failure;
use crate::http::conventions::refusals;
use crate::http::conventions::request_id::RequestId;
use crate::http::emulators::EMULATOR_HEADER;

/// What a method needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Read,
    Drive,
    /// To read, for as long as the answer lasts.
    Follow,
}

/// None for a method that nobody knows.
fn need(method: &str) -> Option<Need> {
    Some(match method {
        "GetAllPropertyConfig"
        | "GetValues"
        | "UpdateSampleRate"
        | "CheckHealth"
        | "Dump"
        | "Subscribe"
        | "Unsubscribe"
        | "GetMinMaxSupportedValues"
        | "GetSupportedValuesLists" => Need::Read,
        "SetValues" => Need::Drive,
        "StartPropertyValuesStream" | "StartSupportedValuesChangeStream" => Need::Follow,
        _ => return None,
    })
}

/// What calls to vehicles need.
#[derive(Clone)]
pub struct Gateway {
    pub app: App,
    pub cars: Arc<Cars>,
}

pub async fn call(State(gateway): State<Gateway>, Path(method): Path<String>, request: Request) -> Response {
    let app = &gateway.app;
    let (parts, body) = request.into_parts();
    let deadline = match deadline(&parts.headers) {
        Ok(deadline) => deadline,
        Err(refusal) => return status::answer(&refusal, None),
    };
    let Some(need) = need(&method) else {
        let refusal = Status::unimplemented(format!("VehicleServer has no method {method:?}."));
        return status::answer(&refusal, None);
    };
    let asked = admit(app, &parts, need).await;
    let outcome = match asked {
        Ok(admitted) => {
            let request = Request::from_parts(parts.clone(), body);
            let answered = answer(&gateway, admitted, need, request);
            match deadline {
                // A stream's deadline holds for as long as it lasts; until it begins it is a call like any other.
                Some(deadline) => match tokio::time::timeout_at(deadline, answered).await {
                    Ok(answered) => answered,
                    Err(_) => return status::answer(&status::too_late(), None),
                },
                None => answered.await,
            }
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok((response, stream)) => limited(response, stream, deadline),
        Err(error) => refuse(app, &parts, &method, &error).await,
    }
}

struct Admitted {
    caller: caller::Caller,
    emulator: Emulator,
    way: Way,
    stream: Option<Stream>,
}

async fn admit(app: &App, parts: &Parts, need: Need) -> Result<Admitted, Error> {
    let Caller(caller) = Caller::of_request(app, parts).await.map_err(Failure::into_error)?;
    let named = parts.headers.get(EMULATOR_HEADER).ok_or_else(|| {
        let detail = format!("Name the emulator in the metadata {EMULATOR_HEADER}.");
        Error::malformed("emulator_missing", detail)
    })?;
    // A text that is no id names an emulator that does not exist.
    let id = named.to_str().ok().and_then(EmulatorId::parse).ok_or_else(|| Error::not_found("emulator"))?;
    let (emulator, way, stream) = match need {
        Need::Follow => {
            let (emulator, way, stream) = vehicles::stream(&app.engine, &caller, id).await?;
            (emulator, way, Some(stream))
        }
        Need::Read | Need::Drive => {
            let relation =
                if need == Need::Drive { Relation::CanUseVehicle } else { Relation::CanReadVehicle };
            let (emulator, way) = vehicles::reach(&app.engine, &caller, id, relation).await?;
            (emulator, way, None)
        }
    };
    Ok(Admitted { caller, emulator, way, stream })
}

async fn answer(
    Gateway { app, cars }: &Gateway,
    admitted: Admitted,
    need: Need,
    request: Request,
) -> Result<(Response, Option<Stream>), Error> {
    let Admitted { caller, emulator, way, stream } = admitted;
    let held = match way {
        Way::Garage => app.garage.held(emulator.id),
        Way::Device => None,
    };
    let response = match held {
        Some(vehicle) => {
            let may_drive = need == Need::Drive
                || permissions::require(&app.engine, &caller, Relation::CanUseVehicle, &emulator.object())
                    .is_ok();
            ask(vehicle, &caller, may_drive, request).await
        }
        None => cars.forward(&app.engine, &emulator, &way, request).await?,
    };
    Ok((response, stream))
}

/// Nothing is sent anywhere: the car is in this process.
async fn ask(vehicle: Arc<Vehicle>, caller: &caller::Caller, may_drive: bool, request: Request) -> Response {
    let client = Client { name: ClientName::new(&caller.subject.to_string()), may_drive };
    match paddock_vehicle::service(vehicle, client).oneshot(request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

/// Has an answer end with the right to it, with its device, or with the time that the caller has for it.
fn limited(response: Response, stream: Option<Stream>, deadline: Option<tokio::time::Instant>) -> Response {
    if stream.is_none() {
        return response;
    }
    let end: ending::End = Box::pin(async move {
        let over = async {
            match stream {
                Some(mut stream) => status::of_end(stream.ended().await),
                None => std::future::pending().await,
            }
        };
        match deadline {
            Some(deadline) => {
                tokio::time::timeout_at(deadline, over).await.unwrap_or_else(|_| status::too_late())
            }
            None => over.await,
        }
    });
    response.map(|body| Body::new(Ending::new(body, end)))
}

async fn refuse(app: &App, parts: &Parts, method: &str, error: &Error) -> Response {
    let refusal = status::of_error(error);
    let recognised = parts.extensions.get::<Recognised>().cloned().unwrap_or_default();
    let id = parts.extensions.get::<RequestId>().cloned().unwrap_or_else(RequestId::unknown);
    let refused = refusals::Request {
        method: &parts.method,
        route: parts.uri.path(),
        path: parts.uri.path(),
        id: &id,
        address: app.proxies.client_of(&parts.extensions, &parts.headers),
        recognised: &recognised,
    };
    refusals::record(app, &refused, error).await;
    metrics::counter!("paddock_grpc_refusals_total", "code" => refusal.code().description()).increment(1);
    if refusal.code() == tonic::Code::Internal {
        tracing::error!(request_id = %id, method, %error, "failed");
    } else {
        tracing::info!(request_id = %id, method, code = error.code, "refused");
    }
    status::answer(&refusal, error.retry_after)
}

/// How long the caller wants to wait, as `grpc-timeout` says it: up to 8 digits and a unit.
fn deadline(headers: &HeaderMap) -> Result<Option<tokio::time::Instant>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let wrong = || Status::invalid_argument("grpc-timeout is at most 8 digits and one of H, M, S, m, u, n.");
    let text = value.to_str().map_err(|_| wrong())?;
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    if digits.is_empty() || digits.len() > 8 {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let after = match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(wrong()),
    };
    Ok(tokio::time::Instant::now().checked_add(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_read_as_grpc_writes_it() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().expect("a value"));
            deadline(&headers)
        };
        for good in ["1S", "99999999H", "100m", "5u", "7n", "2M"] {
            assert!(read(good).is_ok_and(|deadline| deadline.is_some()), "{good}");
        }
        for bad in ["", "S", "1", "123456789S", "1.5S", "-1S", "1x", "1µ"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(deadline(&HeaderMap::new()).is_ok_and(|deadline| deadline.is_none()));
    }

    #[test]
    fn every_method_of_the_service_has_its_need() {
        let service = include_str!("../../../vehicle/proto/vehicle_server.proto");
        let methods = service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let mut known = 0;
        for method in methods {
            assert!(need(method).is_some(), "{method}");
            known += 1;
        }
        assert_eq!(known, 12);
        assert_eq!(need("SetValues"), Some(Need::Drive));
        assert_eq!(need("Nothing"), None);
    }
}
