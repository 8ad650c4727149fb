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
