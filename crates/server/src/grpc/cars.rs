//! Connections to cars that are not held here: those that devices bring themselves. Calls are passed on as they are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST};
use http::{Uri, Version};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddock_engine::Engine;
use paddock_engine::vehicles::{self, Way};
use paddock_model::emulators::{Emulator, EmulatorId};
use paddock_model::{Error, Result};

use crate::http::emulators::EMULATOR_HEADER;

/// One connection a device, shared by all calls.
#[derive(Default)]
pub struct Cars(Mutex<HashMap<EmulatorId, (i64, SendRequest<Body>)>>);

impl Cars {
    /// Passes a call on without looking into it.
    pub async fn forward(
        &self,
        engine: &Engine,
        emulator: &Emulator,
        way: &Way,
        mut request: Request,
    ) -> Result<Response> {
        let mut car = self.connection(engine, emulator, way).await?;
        let headers = request.headers_mut();
        for name in [HOST, AUTHORIZATION, CONTENT_LENGTH, CONNECTION] {
            headers.remove(name);
        }
        headers.remove(EMULATOR_HEADER);
        let uri = format!("http://vehicle{}", request.uri().path());
        *request.uri_mut() = uri.parse::<Uri>().map_err(Error::internal)?;
        *request.version_mut() = Version::HTTP_2;
        match car.send_request(request).await {
            Ok(response) => Ok(response.map(Body::new)),
            Err(cause) => {
                self.forget(emulator.id);
                let detail =
                    "The vehicle does not answer just now. Read the emulator's status, and try again.";
                Err(Error::unavailable("vehicle_unreachable", detail).with_cause(cause))
            }
        }
    }

    async fn connection(&self, engine: &Engine, emulator: &Emulator, way: &Way) -> Result<SendRequest<Body>> {
        let known = self.all().get(&emulator.id).cloned();
        if let Some((incarnation, car)) = known
            && incarnation == emulator.incarnation
            && !car.is_closed()
        {
            return Ok(car);
        }
        let stream = vehicles::connect(engine, emulator.id, way).await?;
        let (car, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|cause| {
                Error::unavailable("vehicle_unreachable", "The vehicle does not speak gRPC.")
                    .with_cause(cause)
            })?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a vehicle has ended");
            }
        });
        let mut all = self.all();
        all.retain(|_, (_, car)| !car.is_closed());
        all.insert(emulator.id, (emulator.incarnation, car.clone()));
        Ok(car)
    }

    fn forget(&self, emulator: EmulatorId) {
        self.all().remove(&emulator);
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<EmulatorId, (i64, SendRequest<Body>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
