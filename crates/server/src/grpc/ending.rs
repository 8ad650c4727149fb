//! The body of an answer that may have to end before its time: the caller's right, the device or the deadline is over.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

/// When a body has to end, and how.
pub type End = Pin<Box<dyn Future<Output = Status> + Send>>;

pub struct Ending<B> {
    body: B,
    /// None once it has ended.
    end: Option<End>,
}

impl<B> Ending<B> {
    pub fn new(body: B, end: End) -> Self {
        Ending { body, end: Some(end) }
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
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
