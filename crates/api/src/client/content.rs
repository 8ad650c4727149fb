//! Bytes on their way to the server, read while they are sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

const PIECE: usize = 256 << 10;

/// So many bytes of a reader.
pub struct Content<R> {
    reader: R,
    left: u64,
    buffer: Vec<u8>,
}

impl<R> Content<R> {
    pub fn new(reader: R, length: u64) -> Self {
        Content { reader, left: length, buffer: vec![0; PIECE] }
    }
}

impl<R: AsyncRead + Unpin> Body for Content<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Content { reader, left, buffer } = &mut *self;
        if *left == 0 {
            return Poll::Ready(None);
        }
        let most = usize::try_from(*left).unwrap_or(PIECE).min(PIECE);
        let mut buffer = ReadBuf::new(&mut buffer[..most]);
        ready!(Pin::new(reader).poll_read(context, &mut buffer))?;
        let piece = buffer.filled();
        if piece.is_empty() {
            let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than it was");
            return Poll::Ready(Some(Err(error)));
        }
        *left -= piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
