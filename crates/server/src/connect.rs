//! `paddockd connect SOCKET`: carries standard input and output to a socket and back, for QEMU, whose network starts it.
//!
//! Standard error is the connection too, so nothing is ever printed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;

/// Until either side ends.
pub fn relay(socket: &Path) -> io::Result<()> {
    // A path to a socket has no room for more than 107 bytes, and a data folder may lie deeper than that.
    if let (Some(folder), Some(name)) =
        (socket.parent().filter(|folder| *folder != Path::new("")), socket.file_name())
    {
        std::env::set_current_dir(folder)?;
        return carry(&UnixStream::connect(name)?);
    }
    carry(&UnixStream::connect(socket)?)
}

fn carry(stream: &UnixStream) -> io::Result<()> {
    let from = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let to = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (ended, end) = mpsc::channel();
    for (mut from, mut to) in [
        (from, File::from(stream.as_fd().try_clone_to_owned()?)),
        (File::from(stream.as_fd().try_clone_to_owned()?), to),
    ] {
        let ended = ended.clone();
        std::thread::Builder::new().spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = ended.send(());
        })?;
    }
    let _ = end.recv();
    Ok(())
}
