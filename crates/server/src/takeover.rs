//! Takes a connection out of HTTP's hands once the head of an answer is sent, for answers that last.
//!
//! HTTP keeps buffers and a state for whatever a client may ask next, many times what it takes to follow a log. So an answer may ask for the
//! connection: HTTP/1.1 writes the head, with the flush behind it the socket goes to whoever writes the body, in chunks, and to HTTP the
//! connection is lost.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Version};
use http_body::Frame;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// What the system takes for a client that does not read, beside what is on its way. By itself it takes megabytes, and so does the work
/// for one that is not there.
const UNSENT: u32 = 32 << 10;

type Writer = Box<dyn FnOnce(Taken) + Send>;

/// A connection as the listener serves it.
pub struct Connection {
    /// None once it is taken.
    held: Option<Taken>,
    takeover: Takeover,
}

/// A connection that is HTTP's no more.
pub struct Taken {
    socket: TcpStream,
    /// Among the connections that may be open at once.
    _place: OwnedSemaphorePermit,
}

/// The way to take a connection over; the listener puts it into each request that can.
#[derive(Clone, Default)]
pub struct Takeover(Arc<Mutex<Wish>>);

#[derive(Default)]
enum Wish {
    #[default]
    None,
    /// The head is written, if perhaps not sent.
    Wanted(Writer),
    Granted,
}

/// Other versions share a connection or know no chunks, and other methods may have no body.
pub fn is_possible<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && request.method() == Method::GET
}

impl Takeover {
    /// A body that is written by somebody else. Nothing comes of it where HTTP does not ask for one.
    pub fn body(&self, writer: impl FnOnce(Taken) + Send + 'static) -> Body {
        Body::new(Elsewhere { takeover: self.clone(), writer: Some(Box::new(writer)) })
    }

    pub fn is_granted(&self) -> bool {
        matches!(*self.wish(), Wish::Granted)
    }

    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Elsewhere {
    takeover: Takeover,
    writer: Option<Writer>,
}

impl http_body::Body for Elsewhere {
    type Data = Bytes;
    type Error = io::Error;

    /// HTTP asks for the body when it has written the head, and flushes when there is none yet.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(writer) = self.writer.take() {
            *self.takeover.wish() = Wish::Wanted(writer);
        }
        Poll::Pending
    }
}

impl Connection {
    pub fn new(socket: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Connection { held: Some(Taken { socket, _place: place }), takeover: Takeover::default() }
    }

    pub fn takeover(&self) -> Takeover {
        self.takeover.clone()
    }

    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.held.as_ref().map(|held| held.socket.as_fd())
    }

    fn io(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        match &mut self.held {
            Some(held) => Ok(Pin::new(&mut held.socket)),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io()?.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Everything that was written has been given to the system by now, so a socket that is wanted can go.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wish = self.takeover.wish();
        if !matches!(*wish, Wish::Wanted(_)) {
            drop(wish);
            return self.io()?.poll_flush(context);
        }
        let wanted = std::mem::replace(&mut *wish, Wish::Granted);
        drop(wish);
        if let (Wish::Wanted(writer), Some(taken)) = (wanted, self.held.take()) {
            taken.keep_little();
            writer(taken);
        }
        Poll::Ready(Err(io::Error::other("taken over")))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_shutdown(context)
    }
}

impl Taken {
    /// Has the system take little that it cannot send.
    fn keep_little(&self) {
        if let Err(error) = SockRef::from(&self.socket).set_tcp_notsent_lowat(UNSENT) {
            tracing::debug!(%error, "the system takes much for clients that do not read");
        }
    }

    /// Returns when the client has gone. What it says meanwhile is no request any more and is dropped.
    pub async fn gone(&self) {
        poll_fn(|context| {
            while let Ok(()) = ready!(self.socket.poll_read_ready(context)) {
                match self.socket.try_read(&mut [0; 512]) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break,
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// As fast as the client takes it. How long it may take nothing is up to the system, which the listener has told.
    pub async fn write(&self, chunk: &Chunk) -> io::Result<()> {
        self.write_all(&chunk.0).await
    }

    /// Says that the body is complete, and hangs up.
    pub async fn end(self) {
        // Who is not there any more does not miss it.
        let _ = self.write_all(b"0\r\n\r\n").await;
    }

    async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        poll_fn(|context| {
            while !bytes.is_empty() {
                match self.socket.try_write(bytes) {
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(self.socket.poll_write_ready(context))?;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

/// A piece of a body with HTTP/1.1's frame around it, so that many can be sent the same bytes.
#[derive(Debug, Clone)]
pub struct Chunk(Bytes);

impl Chunk {
    /// The size always takes as much room, so that the content is found without reading it.
    const BEFORE: usize = "00000000\r\n".len();
    const BEHIND: &[u8] = b"\r\n";

    /// `fill` appends the content, which must not be empty: that would be the end of the body.
    pub fn of(fill: impl FnOnce(&mut Vec<u8>)) -> Chunk {
        let mut text = vec![b'0'; Self::BEFORE];
        fill(&mut text);
        let size = format!("{:08x}\r\n", text.len() - Self::BEFORE);
        text[..Self::BEFORE].copy_from_slice(size.as_bytes());
        text.extend_from_slice(Self::BEHIND);
        Chunk(text.into())
    }

    /// One that was made before.
    pub fn again(framed: Bytes) -> Chunk {
        Chunk(framed)
    }

    pub fn framed(self) -> Bytes {
        self.0
    }

    pub fn content(&self) -> Bytes {
        self.0.slice(Self::BEFORE..self.0.len() - Self::BEHIND.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_its_size_before_its_content() {
        let chunk = Chunk::of(|text| text.extend_from_slice(&[b'x'; 300]));
        assert_eq!(chunk.content(), vec![b'x'; 300]);
        assert_eq!(chunk.framed(), [b"0000012c\r\n".as_slice(), &[b'x'; 300], b"\r\n"].concat());
    }
}
