//! The line to a car: the generated client over any connection that speaks HTTP/2.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tower::Service;

use crate::proto::vehicle_server_client::VehicleServerClient;

/// One connection, on which several calls may go on at once.
#[derive(Clone)]
pub struct Line(SendRequest<Body>);

/// Speaks to the car at the other end.
pub async fn connect(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<VehicleServerClient<Line>, hyper::Error> {
    let (line, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // Ends when nobody speaks on it any more; what goes wrong is told to whoever asks next.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Line(line).client())
}

impl Line {
    /// Over a connection that was made elsewhere.
    pub fn over(line: SendRequest<Body>) -> Line {
        Line(line)
    }

    pub fn client(self) -> VehicleServerClient<Line> {
        VehicleServerClient::with_origin(self, http::Uri::from_static("http://vehicle"))
    }
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
