//! The service: what Android's vehicle HAL and tests say to a car over gRPC.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use futures_util::stream::{self, BoxStream};
use http_body::Frame;
use http_body_util::StreamBody;
use paddock_model::vehicles::{AreaId, PropertyId};
use prost::Message as _;
use tonic::codegen::{BoxFuture, StdError};
use tonic::{Request, Response, Status, async_trait};
use tower::Service;

use crate::dump::{self, Dumped};
use crate::proto::vehicle_server_server::{SERVICE_NAME, VehicleServer, VehicleServerServer};
use crate::proto::{
    DumpOptions, DumpResult, GetMinMaxSupportedValuesRequest, GetMinMaxSupportedValuesResult,
    GetSupportedValuesListsRequest, GetSupportedValuesListsResult, GetValueResult, GetValueResults,
    MinMaxSupportedValueResult, PropIdAreaId, SetValueResult, SetValueResults, StatusCode, SubscribeRequest,
    SupportedValuesChange, SupportedValuesListResult, UnsubscribeRequest, UpdateSampleRateRequest,
    VehicleHalCallStatus, VehiclePropConfig, VehiclePropValueRequests, VehiclePropValues,
};
use crate::rings::Ended;
use crate::subscriptions::{ClientName, Full};
use crate::values;
use crate::vehicle::{Stream, Vehicle};

const MOST_BYTES_IN: usize = 1 << 20;
const MOST_BYTES_OUT: usize = 16 << 20;
/// In one call.
const MOST_REQUESTS: usize = 8192;

/// Who speaks to the car.
#[derive(Debug, Clone)]
pub struct Client {
    pub name: ClientName,
    /// It may change the car, not only look at it. Which calls that takes is decided where callers are known; only what a `Dump`
    /// does is not to be seen from outside, and is decided here.
    pub may_drive: bool,
}

impl Client {
    /// The device inside the car.
    pub fn guest() -> Client {
        Client { name: ClientName::guest(), may_drive: true }
    }
}

/// The car's service for one client; made for every request, if need be.
pub fn service(vehicle: Arc<Vehicle>, client: Client) -> VehicleService {
    let door = Arc::new(Door { vehicle, client });
    let calls = VehicleServerServer::from_arc(door.clone()).max_decoding_message_size(MOST_BYTES_IN);
    VehicleService { door, calls }
}

#[derive(Clone)]
pub struct VehicleService {
    door: Arc<Door>,
    calls: VehicleServerServer<Door>,
}

struct Door {
    vehicle: Arc<Vehicle>,
    client: Client,
}

type Answer = http::Response<tonic::body::Body>;

impl<B> Service<http::Request<B>> for VehicleService
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Either<Ready<Result<Answer, Infallible>>, BoxFuture<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // Streams are answered with what was encoded once for all of them; the rest is generated.
        let method = request.uri().path().rsplit_once('/');
        let method = method.filter(|(service, _)| service.strip_prefix('/') == Some(SERVICE_NAME));
        match method.map(|(_, method)| method) {
            Some("StartPropertyValuesStream") => {
                let stream = self.door.vehicle.stream(&self.door.client.name);
                let answer = stream.map_or_else(|full| exhausted(full).into_http(), streamed);
                Either::Left(ready(Ok(answer)))
            }
            Some("StartSupportedValuesChangeStream") => {
                Either::Left(ready(Ok(streamed(self.door.vehicle.limits_stream()))))
            }
            _ => Either::Right(Service::call(&mut self.calls, request)),
        }
    }
}

impl tonic::server::NamedService for VehicleService {
    const NAME: &'static str = SERVICE_NAME;
}

fn exhausted(full: Full) -> Status {
    Status::resource_exhausted(full.to_string())
}

fn streamed(stream: Stream) -> Answer {
    let frames = stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let (frame, rest) = match stream.next().await {
            Ok(batch) => (Frame::data(batch), Some(stream)),
            Err(ended) => {
                let status = match ended {
                    Ended::Behind => Status::resource_exhausted(
                        "this stream was read too slowly, and values were lost; open it again, and read faster",
                    ),
                    Ended::Closed => {
                        Status::aborted("the car is not served here any more; open the stream again")
                    }
                };
                let mut trailers = http::HeaderMap::new();
                // Only a text that is no header could fail here.
                let _ = status.add_header(&mut trailers);
                (Frame::trailers(trailers), None)
            }
        };
        Some((Ok::<_, Status>(frame), rest))
    });
    let mut answer = http::Response::new(tonic::body::Body::new(StreamBody::new(frames)));
    let kind = tonic::metadata::GRPC_CONTENT_TYPE;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    answer
}

#[async_trait]
impl VehicleServer for Door {
    type GetAllPropertyConfigStream = BoxStream<'static, Result<VehiclePropConfig, Status>>;
    type StartPropertyValuesStreamStream = BoxStream<'static, Result<VehiclePropValues, Status>>;
    type StartSupportedValuesChangeStreamStream = BoxStream<'static, Result<SupportedValuesChange, Status>>;

    async fn get_all_property_config(
        &self,
        _: Request<()>,
    ) -> Result<Response<Self::GetAllPropertyConfigStream>, Status> {
        Ok(Response::new(Box::pin(stream::iter(self.vehicle.configs().into_iter().map(Ok)))))
    }

    async fn set_values(
        &self,
        request: Request<VehiclePropValueRequests>,
    ) -> Result<Response<SetValueResults>, Status> {
        let requests = request.into_inner().requests;
        bounded(requests.len())?;
        let mut results: Vec<SetValueResult> = Vec::with_capacity(requests.len());
        let (mut wanted, mut places) = (Vec::with_capacity(requests.len()), Vec::new());
        for request in requests {
            let status = if let Some(value) = request.value {
                let key = (PropertyId(value.prop), AreaId(value.area_id));
                let status = values::status(value.status);
                places.push(results.len());
                wanted.push((key, values::raw(value), status));
                StatusCode::Ok
            } else {
                StatusCode::InvalidArg
            };
            results.push(SetValueResult { request_id: request.request_id, status: status.into() });
        }
        for (place, result) in places.into_iter().zip(self.vehicle.set(wanted)) {
            if let Err(refusal) = result {
                results[place].status = refusal.code.into();
            }
        }
        Ok(Response::new(SetValueResults { results }))
    }

    async fn get_values(
        &self,
        request: Request<VehiclePropValueRequests>,
    ) -> Result<Response<GetValueResults>, Status> {
        let requests = request.into_inner().requests;
        bounded(requests.len())?;
        let mut bytes = 0;
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            let asked = request.value.map(|value| (PropertyId(value.prop), AreaId(value.area_id)));
            let got = asked.ok_or(StatusCode::InvalidArg);
            let got = got.and_then(|key| self.vehicle.get(key).map_err(|refusal| refusal.code));
            let (status, value) = match got {
                Ok(value) => (StatusCode::Ok, Some(value)),
                Err(status) => (status, None),
            };
            bytes += value.as_ref().map_or(0, prost::Message::encoded_len);
            if bytes > MOST_BYTES_OUT {
                return Err(Status::resource_exhausted(
                    "these are too many large values; ask for fewer at once",
                ));
            }
            results.push(GetValueResult { request_id: request.request_id, status: status.into(), value });
        }
        Ok(Response::new(GetValueResults { results }))
    }

    async fn update_sample_rate(
        &self,
        request: Request<UpdateSampleRateRequest>,
    ) -> Result<Response<VehicleHalCallStatus>, Status> {
        let request = request.into_inner();
        let key = (PropertyId(request.prop), AreaId(request.area_id));
        answered(self.vehicle.update_sample_rate(&self.client.name, key, request.sample_rate))
    }

    async fn check_health(&self, _: Request<()>) -> Result<Response<VehicleHalCallStatus>, Status> {
        answered(Ok(StatusCode::Ok))
    }

    async fn dump(&self, request: Request<DumpOptions>) -> Result<Response<DumpResult>, Status> {
        let options = request.into_inner().options;
        let Dumped { text, configs_changed } = dump::dump(&self.vehicle, self.client.may_drive, &options)
            .map_err(|denied| Status::permission_denied(denied.0))?;
        Ok(Response::new(DumpResult {
            caller_should_dump_state: options.is_empty(),
            buffer: text,
            refresh_property_configs: configs_changed,
        }))
    }

    async fn start_property_values_stream(
        &self,
        _: Request<()>,
    ) -> Result<Response<Self::StartPropertyValuesStreamStream>, Status> {
        Err(Status::internal("streams are answered before they come here"))
    }

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<VehicleHalCallStatus>, Status> {
        match request.into_inner().options {
            Some(options) => answered(self.vehicle.subscribe(&self.client.name, &options)),
            None => answered(Ok(StatusCode::InvalidArg)),
        }
    }

    async fn unsubscribe(
        &self,
        request: Request<UnsubscribeRequest>,
    ) -> Result<Response<VehicleHalCallStatus>, Status> {
        let request = request.into_inner();
        let key = (PropertyId(request.prop_id), AreaId(request.area_id));
        answered(self.vehicle.unsubscribe(&self.client.name, key))
    }

    async fn get_min_max_supported_values(
        &self,
        request: Request<GetMinMaxSupportedValuesRequest>,
    ) -> Result<Response<GetMinMaxSupportedValuesResult>, Status> {
        let asked = request.into_inner().prop_id_area_id;
        bounded(asked.len())?;
        let result = asked.into_iter().map(|place| match self.vehicle.limits(key(place)) {
            Ok(limits) => MinMaxSupportedValueResult {
                status: StatusCode::Ok.into(),
                min_supported_value: limits.min,
                max_supported_value: limits.max,
            },
            Err(refusal) => MinMaxSupportedValueResult { status: refusal.code.into(), ..Default::default() },
        });
        Ok(Response::new(GetMinMaxSupportedValuesResult { result: result.collect() }))
    }

    async fn get_supported_values_lists(
        &self,
        request: Request<GetSupportedValuesListsRequest>,
    ) -> Result<Response<GetSupportedValuesListsResult>, Status> {
        let asked = request.into_inner().prop_id_area_id;
        bounded(asked.len())?;
        let mut bytes = 0;
        let mut result = Vec::with_capacity(asked.len());
        for place in asked {
            let one = match self.vehicle.limits(key(place)) {
                Ok(limits) => SupportedValuesListResult {
                    status: StatusCode::Ok.into(),
                    supported_values_list: limits.supported,
                },
                Err(refusal) => {
                    SupportedValuesListResult { status: refusal.code.into(), ..Default::default() }
                }
            };
            bytes += one.encoded_len();
            if bytes > MOST_BYTES_OUT {
                return Err(Status::resource_exhausted(
                    "these are too many long lists; ask for fewer at once",
                ));
            }
            result.push(one);
        }
        Ok(Response::new(GetSupportedValuesListsResult { result }))
    }

    async fn start_supported_values_change_stream(
        &self,
        _: Request<()>,
    ) -> Result<Response<Self::StartSupportedValuesChangeStreamStream>, Status> {
        Err(Status::internal("streams are answered before they come here"))
    }
}

fn key(place: PropIdAreaId) -> (PropertyId, AreaId) {
    (PropertyId(place.prop_id), AreaId(place.area_id))
}

fn bounded(requests: usize) -> Result<(), Status> {
    if requests <= MOST_REQUESTS {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("{requests} requests at once; the most are {MOST_REQUESTS}")))
}

fn answered(status: Result<StatusCode, Full>) -> Result<Response<VehicleHalCallStatus>, Status> {
    let status_code = status.map_err(exhausted)?.into();
    Ok(Response::new(VehicleHalCallStatus { status_code }))
}
