//! The address that a request came from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::Request;

/// Put into every request by the listener.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Peer {
    pub fn of(request: &Request) -> IpAddr {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        request.extensions().get::<Peer>().map_or(unspecified, |peer| peer.0.ip().to_canonical())
    }
}
