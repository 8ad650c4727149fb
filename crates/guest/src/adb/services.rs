//! What a host can ask for by name: a shell, files, sockets of the device, and a few switches.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;

use super::connection::{Connection, Stream};
use super::shell::{self, Request};
use super::{reverse, sync};
use crate::device::Power;

/// Serves one stream to its end. A service that cannot be had is refused by not accepting it.
pub fn serve(connection: &Arc<Connection>, stream: &Arc<Stream>, name: &str) {
    let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
    let outcome = match kind {
        "sync" => sync::serve(&connection.device, stream),
        "tcp" | "local" | "localabstract" | "localreserved" | "localfilesystem" => {
            match dial(connection, kind, rest) {
                Ok(socket) => stream.accept().and_then(|()| relay(stream, socket)),
                Err(error) => Err(error),
            }
        }
        "reverse" => reverse::serve(connection, stream, rest),
        "root" => say(stream, "adbd is already running as root\n"),
        "remount" => say(stream, "remount succeeded\n"),
        "unroot" => say(stream, "this device has no other user than root\n"),
        "tcpip" | "usb" => say(stream, "this device is reached over TCP port 5555 only\n"),
        "reboot" => {
            let _ = say(stream, "");
            stream.close();
            let power = if rest.starts_with("poweroff") || rest == "p" { Power::Off } else { Power::Restart };
            connection.device.power(power)
        }
        _ => match Request::parse(name) {
            Some(request) => shell::serve(&connection.device, stream, &request),
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "no such service")),
        },
    };
    if let Err(error) = outcome
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        connection.device.log.warn("adbd", &format!("service {kind}: {error}"));
    }
}

fn say(stream: &Arc<Stream>, text: &str) -> io::Result<()> {
    stream.accept()?;
    stream.writer().write_all(text.as_bytes())
}

/// A socket of either family.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

fn dial(connection: &Connection, kind: &str, address: &str) -> io::Result<Socket> {
    if kind == "tcp" {
        let (port, host) = address.split_once(':').unwrap_or((address, "127.0.0.1"));
        let parse = |_| io::Error::new(io::ErrorKind::InvalidInput, "tcp wants PORT or PORT:IPv4 address");
        let port: u16 = port.parse().map_err(|_| parse(()))?;
        let host: Ipv4Addr = host.parse().map_err(|_| parse(()))?;
        return Ok(Socket::Tcp(TcpStream::connect(SocketAddrV4::new(host, port))?));
    }
    let unix = if kind == "localabstract" || kind == "local" {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)?
    } else {
        let address =
            if kind == "localreserved" { format!("/dev/socket/{address}") } else { address.to_owned() };
        UnixStream::connect(connection.device.path(&address))?
    };
    Ok(Socket::Unix(unix))
}

/// Carries bytes both ways until both sides have ended.
pub fn relay(stream: &Arc<Stream>, socket: Socket) -> io::Result<()> {
    match socket {
        Socket::Tcp(socket) => {
            let _ = socket.set_nodelay(true);
            relay_halves(stream, socket.try_clone()?, socket.try_clone()?, move |how| socket.shutdown(how))
        }
        Socket::Unix(socket) => {
            relay_halves(stream, socket.try_clone()?, socket.try_clone()?, move |how| socket.shutdown(how))
        }
    }
}

fn relay_halves<S: Read + Write + Send + 'static>(
    stream: &Arc<Stream>,
    mut from: S,
    mut to: S,
    shutdown: impl Fn(Shutdown) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let mut reader = stream.reader();
    std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
        let _ = copy(&mut reader, &mut to);
        // The peer's stream knows no half-close: once it has ended, so has the whole connection.
        let _ = shutdown(Shutdown::Both);
    })?;
    copy(&mut from, &mut stream.writer())
}

/// Copies in pieces as large as a packet.
pub fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..length])?;
    }
}
