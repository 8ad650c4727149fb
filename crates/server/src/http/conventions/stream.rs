//! Request bodies of any length: never in memory as a whole, as slow as their sender is, but never silent for long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::body::{DROPPED, incomplete, too_slow};
use super::patience::Patience;
use super::problem::Failure;
use crate::http::App;

/// The bytes of a request's body, as they come. Who takes it is bound by no limit on the time of requests.
pub struct Stream {
    body: Body,
    /// Come, and not yet taken.
    rest: Bytes,
    silence: Pin<Box<Sleep>>,
    /// Whether it is the sender whom we wait for.
    waiting: bool,
    most_silent: Duration,
    /// It is of the wrong type. Who may not send anything is told that first, so it is said when somebody begins to read.
    refused: Option<Failure>,
    /// What is wrong with the body; whoever reads it cannot know.
    trouble: Option<Failure>,
    ended: bool,
}

impl FromRequest<App> for Stream {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        if let Some(patience) = request.extensions().get::<Patience>() {
            patience.lift();
        }
        let most_silent = app.limits.stall_time;
        let refused = require_bytes(request.headers()).err();
        Ok(Stream {
            body: request.into_body(),
            rest: Bytes::new(),
            silence: Box::pin(tokio::time::sleep(most_silent)),
            waiting: false,
            most_silent,
            refused,
            trouble: None,
            ended: false,
        })
    }
}

fn require_bytes(headers: &HeaderMap) -> Result<(), Failure> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/octet-stream") && !headers.contains_key(CONTENT_ENCODING) {
        return Ok(());
    }
    let detail =
        "Send the bytes as they are, with Content-Type: application/octet-stream and no Content-Encoding.";
    Err(Failure::of_transport(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

impl Stream {
    /// If the sender has said it.
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// The outcome of reading it, or what was wrong with the body itself. After a failure some more of the body is read and dropped:
    /// a client that still sends would miss the answer.
    pub async fn unless_troubled<T>(&mut self, outcome: paddock_model::Result<T>) -> Result<T, Failure> {
        match (outcome, self.trouble.take()) {
            (Ok(done), _) => Ok(done),
            (Err(_), Some(trouble)) => Err(trouble),
            (Err(error), None) => {
                let (time, mut rest) = (self.most_silent, self.take(DROPPED as u64));
                let mut nowhere = tokio::io::sink();
                let _ = tokio::time::timeout(time, tokio::io::copy(&mut rest, &mut nowhere)).await;
                Err(error.into())
            }
        }
    }

    fn fail(&mut self, trouble: Failure) -> Poll<io::Result<()>> {
        self.trouble = Some(trouble);
        self.ended = true;
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        if let Some(refused) = stream.refused.take() {
            return stream.fail(refused);
        }
        while stream.rest.is_empty() && !stream.ended {
            match Pin::new(&mut stream.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    stream.waiting = false;
                    stream.rest = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(Some(Err(_))) => return stream.fail(incomplete()),
                Poll::Ready(None) => stream.ended = true,
                Poll::Pending => {
                    // While we were busy ourselves, the sender was not to blame.
                    if !stream.waiting {
                        stream.waiting = true;
                        stream.silence.as_mut().reset(Instant::now() + stream.most_silent);
                    }
                    ready!(stream.silence.as_mut().poll(context));
                    return stream.fail(too_slow());
                }
            }
        }
        let length = stream.rest.len().min(buffer.remaining());
        buffer.put_slice(&stream.rest.split_to(length));
        Poll::Ready(Ok(()))
    }
}
