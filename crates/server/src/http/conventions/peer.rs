//! The address that a request came from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{Extensions, HeaderMap, Request};

/// Put into every request by the listener.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Peer {
    fn of(extensions: &Extensions) -> IpAddr {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        extensions.get::<Peer>().map_or(unspecified, |peer| peer.0.ip().to_canonical())
    }
}

/// The proxies that stand in front of this server.
pub struct Proxies(pub Vec<IpAddr>);

impl Proxies {
    /// The address that the request came from: behind proxies of ours, the last one that is none of them. What stands
    /// further left in the header was written by the client, who may write anything.
    pub fn client<B>(&self, request: &Request<B>) -> IpAddr {
        self.client_of(request.extensions(), request.headers())
    }

    /// The same, for a request whose parts are at hand.
    pub fn client_of(&self, extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
        let mut client = Peer::of(extensions);
        let headers: Vec<_> =
            headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
        let hops = headers.iter().rev().flat_map(|value| value.rsplit(','));
        for hop in hops {
            if !self.0.contains(&client) {
                break;
            }
            let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
            client = address.to_canonical();
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proxies_of_ours_are_believed() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let proxies = Proxies(vec![ip("10.0.0.1"), ip("10.0.0.2")]);
        for (peer, forwarded, client) in [
            ("203.0.113.9:1", "198.51.100.1", "203.0.113.9"),
            ("10.0.0.1:1", "", "10.0.0.1"),
            ("10.0.0.1:1", "198.51.100.1", "198.51.100.1"),
            ("10.0.0.1:1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
            ("10.0.0.1:1", "1.1.1.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("10.0.0.1:1", "nonsense", "10.0.0.1"),
            ("[::ffff:10.0.0.1]:1", "2001:db8::1", "2001:db8::1"),
        ] {
            let request =
                Request::builder().header("x-forwarded-for", forwarded).body(()).expect("a request");
            let mut request = request;
            request.extensions_mut().insert(Peer(peer.parse().expect("an address")));
            assert_eq!(proxies.client(&request), ip(client), "{peer} {forwarded}");
        }
    }
}
