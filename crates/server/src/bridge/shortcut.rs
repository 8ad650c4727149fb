//! A way from one socket to another on which the kernel passes pages on instead of copying them twice.

use std::io;
use std::net;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SendFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe holds at most; the system may give less.
const ROOM: usize = 256 << 10;

/// Open while there is much to carry. The sockets stay with their owner; what is here are second handles to them.
pub struct Shortcut {
    source: TcpStream,
    target: TcpStream,
    inlet: OwnedFd,
    outlet: OwnedFd,
}

impl Shortcut {
    pub fn open(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<Shortcut> {
        let (outlet, inlet) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one only takes more turns.
        let _ = rustix::pipe::fcntl_setpipe_size(&inlet, ROOM);
        Ok(Shortcut {
            source: TcpStream::from_std(net::TcpStream::from(source.try_clone_to_owned()?))?,
            target: TcpStream::from_std(net::TcpStream::from(target.try_clone_to_owned()?))?,
            inlet,
            outlet,
        })
    }

    /// Takes what has come, and tells how much; nothing at the end. May be dropped at any moment: nothing is lost by that.
    pub async fn take(&self) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let splice =
            || Ok(rustix::pipe::splice(self.source.as_fd(), None, self.inlet.as_fd(), None, ROOM, flags)?);
        self.source.async_io(Interest::READABLE, splice).await
    }

    /// Sends a few bytes, and then what was taken.
    pub async fn give(&self, mut before: &[u8], mut taken: usize) -> io::Result<()> {
        while !before.is_empty() {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let send = || Ok(rustix::net::send(&self.target, before, flags)?);
            let sent = self.target.async_io(Interest::WRITABLE, send).await?;
            before = &before[sent..];
        }
        while taken > 0 {
            let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
            let splice = || {
                Ok(rustix::pipe::splice(self.outlet.as_fd(), None, self.target.as_fd(), None, taken, flags)?)
            };
            let sent = self.target.async_io(Interest::WRITABLE, splice).await?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            taken -= sent;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a way");
        (near, listener.accept().await.expect("its other end").0)
    }

    #[tokio::test]
    async fn everything_arrives_in_order_however_slowly_it_is_read() {
        let ((mut speaker, source), (target, mut listener)) = (pair().await, pair().await);
        let content: Vec<u8> =
            (0..5_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let said = content.clone();
        let speaking = tokio::spawn(async move { speaker.write_all(&said).await });
        let shortcut = Shortcut::open(source.as_fd(), target.as_fd()).expect("a shortcut");
        let passing = tokio::spawn(async move {
            let mut pieces = Vec::new();
            while let Ok(taken @ 1..) = shortcut.take().await {
                pieces.push(taken);
                shortcut.give(b"<>", taken).await.expect("given");
            }
            pieces
        });

        // So long that everything on the way is full.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        drop((source, target));
        let mut heard = Vec::new();
        listener.read_to_end(&mut heard).await.expect("heard");

        speaking.await.expect("a speaker").expect("everything said");
        let (mut heard, mut content) = (&heard[..], &content[..]);
        for piece in passing.await.expect("pieces") {
            assert!(heard[..2] == *b"<>" && heard[2..2 + piece] == content[..piece]);
            (heard, content) = (&heard[2 + piece..], &content[piece..]);
        }
        assert!(heard.is_empty() && content.is_empty());
    }
}
