//! The ADB daemon: listens, and serves each host on a thread of its own.

pub mod auth;
mod connection;
mod packet;
mod reverse;
mod services;
pub mod shell;
mod sync;

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::device::Device;

const MAX_CONNECTIONS: usize = 16;

/// The connections that are open now.
#[derive(Default)]
pub struct Connections {
    sockets: Mutex<Vec<(usize, TcpStream)>>,
    next: AtomicUsize,
}

impl Connections {
    pub fn count(&self) -> usize {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Drops every connection: in the clone of a memory, their other ends are gone.
    pub fn drop_all(&self) {
        for (_, socket) in &*self.sockets.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn add(&self, socket: &TcpStream) -> io::Result<Option<usize>> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if sockets.len() >= MAX_CONNECTIONS {
            return Ok(None);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        sockets.push((number, socket.try_clone()?));
        Ok(Some(number))
    }

    fn remove(&self, number: usize) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != number);
    }
}

/// Listens for ever on threads of its own.
pub fn start(device: &Arc<Device>, listener: TcpListener) -> io::Result<()> {
    let device = device.clone();
    std::thread::Builder::new().name("adbd".to_owned()).spawn(move || {
        loop {
            let accepted =
                listener.accept().and_then(|(socket, _)| Ok((device.connections.add(&socket)?, socket)));
            match accepted {
                Ok((Some(number), socket)) => serve(&device, number, socket),
                Ok((None, _)) => device.log.warn("adbd", "refused a connection: too many are open"),
                // Descriptors may have run out; they come back.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(())
}

fn serve(device: &Arc<Device>, number: usize, socket: TcpStream) {
    let served = device.clone();
    let thread = std::thread::Builder::new().name("adb".to_owned()).spawn(move || {
        if let Err(error) = connection::serve(&served, socket) {
            served.log.warn("adbd", &format!("dropped a connection: {error}"));
        }
        served.connections.remove(number);
    });
    if thread.is_err() {
        device.connections.remove(number);
    }
}
