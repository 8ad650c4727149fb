//! The two ends of a bridge: each is read by one direction and written to by the other, and may be a plain socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::upgrade::downcast;
use paddock_model::drivers::emulator_hosts::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_io_timeout::TimeoutStream;

use crate::takeover;

/// What the listener makes of a connection without TLS.
type Connection = TokioIo<Pin<Box<TimeoutStream<takeover::Connection>>>>;

/// A client's side, as an upgrade leaves it.
pub fn of_client(upgraded: Upgraded) -> Box<dyn ByteStream> {
    match downcast::<Connection>(upgraded) {
        Ok(parts) => {
            // A part of a buffer, even an empty one, keeps all of it.
            let early = Bytes::copy_from_slice(&parts.read_buf);
            Box::new(Plain { connection: parts.io.into_inner(), early })
        }
        Err(upgraded) => Box::new(Wrapped(TokioIo::new(upgraded))),
    }
}

/// A connection without TLS, and what came on it before the upgrade was done.
struct Plain {
    connection: Pin<Box<TimeoutStream<takeover::Connection>>>,
    early: Bytes,
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return self.connection.as_mut().poll_read(context, buffer);
        }
        let length = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.as_mut().poll_shutdown(context)
    }
}

impl ByteStream for Plain {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().get_ref().get_ref().socket()
    }
}

/// Any other connection.
struct Wrapped(TokioIo<Upgraded>);

impl AsyncRead for Wrapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wrapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl ByteStream for Wrapped {}

/// One side, held by both directions; they run on one thread and never wait for each other here.
#[derive(Clone)]
pub struct Side(Arc<Mutex<Box<dyn ByteStream>>>);

impl Side {
    pub fn new(stream: Box<dyn ByteStream>) -> Self {
        Side(Arc::new(Mutex::new(stream)))
    }

    pub fn stream(&self) -> MutexGuard<'_, Box<dyn ByteStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Side {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_read(context, buffer)
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream()).poll_shutdown(context)
    }
}
