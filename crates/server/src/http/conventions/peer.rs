//! The address that a request came from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Extensions;

/// Put into every request by the listener.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Peer {
    pub fn of(extensions: &Extensions) -> IpAddr {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        extensions.get::<Peer>().map_or(unspecified, |peer| peer.0.ip().to_canonical())
    }
}
