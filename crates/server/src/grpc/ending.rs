//! The body of an answer that may have to end before its time: the caller's right, the device or the deadline is over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::{Code, Status};

/// When a body has to end, and how.
pub type End = Pin<Box<dyn Future<Output = Status> + Send>>;

pub struct Ending<B> {
    body: B,
    /// None once it has ended.
    end: Option<End>,
    /// How the car has ended it, which is told if no better reason comes up in time.
    aborted: Option<(HeaderMap, Pin<Box<Sleep>>)>,
}

/// A car goes with its device, and may be gone before it is known here that the device is.
const REASON_WAITED_FOR: Duration = Duration::from_secs(1);

impl<B> Ending<B> {
    pub fn new(body: B, end: End) -> Self {
        Ending { body, end: Some(end), aborted: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Ending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if let Poll::Ready(status) = end.as_mut().poll(cx) {
            self.end = None;
            let trailers = status.into_http::<tonic::body::Body>().into_parts().0.headers;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Some((trailers, wait)) = &mut self.aborted {
            std::task::ready!(wait.as_mut().poll(cx));
            let trailers = std::mem::take(trailers);
            self.end = None;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        match frame {
            Some(Ok(frame)) if frame.trailers_ref().is_some_and(is_aborted) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                self.aborted = Some((trailers, Box::pin(tokio::time::sleep(REASON_WAITED_FOR))));
                self.poll_frame(cx)
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.aborted.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn is_aborted(trailers: &HeaderMap) -> bool {
    trailers.get(Status::GRPC_STATUS).is_some_and(|code| Code::from_bytes(code.as_bytes()) == Code::Aborted)
}
