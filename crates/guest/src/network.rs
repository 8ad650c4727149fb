//! The network card: address, route and name server, told to the kernel over netlink.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};

use crate::identity::Network;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const INET: u8 = 2;
const UP: u32 = 1;

/// Brings up the loopback and the first card. May be called again with other values.
pub fn configure(network: &Network, mac: Option<[u8; 6]>) -> Result<()> {
    link(index_of("lo")?, UP, None).context("bring up the loopback")?;
    let name = first_card().context("there is no network card")?;
    let card = index_of(&name)?;
    // Neighbours hear of a new hardware address at once.
    let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{name}/arp_notify"), "1");
    if let Some(mac) = mac.filter(|mac| Some(*mac) != mac_of(&name)) {
        link(card, 0, None).context("take down the card")?;
        link(card, 0, Some(mac)).context("set the hardware address")?;
    }
    link(card, UP, None).context("bring up the card")?;
    address(card, network).context("set the address")?;
    route(card, network.gateway).context("set the route")?;
    fs::write("/run/resolv.conf", format!("nameserver {}\n", network.dns)).context("write resolv.conf")
}

fn first_card() -> Option<String> {
    let cards = fs::read_dir("/sys/class/net").ok()?.flatten();
    cards.filter_map(|card| card.file_name().into_string().ok()).find(|name| name != "lo")
}

fn index_of(card: &str) -> Result<u32> {
    let text =
        fs::read_to_string(format!("/sys/class/net/{card}/ifindex")).context("read the card's number")?;
    text.trim().parse().context("the card's number")
}

fn mac_of(card: &str) -> Option<[u8; 6]> {
    let text = fs::read_to_string(format!("/sys/class/net/{card}/address")).ok()?;
    let bytes: Option<Vec<u8>> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

fn link(card: u32, flags: u32, mac: Option<[u8; 6]>) -> Result<()> {
    // struct ifinfomsg: family, padding, type, index, flags, change mask.
    let mut body = vec![0; 4];
    for word in [card, flags, UP] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    if let Some(mac) = mac {
        attribute(&mut body, 1, &mac);
    }
    request(NEW_LINK, 0, &body)
}

fn address(card: u32, network: &Network) -> Result<()> {
    // struct ifaddrmsg: family, prefix, flags, scope, index.
    let mut body = vec![INET, network.prefix, 0, 0];
    body.extend_from_slice(&card.to_ne_bytes());
    let host_bits = u32::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
    let broadcast = Ipv4Addr::from(u32::from(network.address) | host_bits);
    for (kind, address) in [(2, network.address), (1, network.address), (4, broadcast)] {
        attribute(&mut body, kind, &address.octets());
    }
    request(NEW_ADDRESS, CREATE | REPLACE, &body)
}

fn route(card: u32, gateway: Ipv4Addr) -> Result<()> {
    // struct rtmsg: family, destination length, source length, tos, table main, protocol boot, scope, unicast, flags.
    let mut body = vec![INET, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    attribute(&mut body, 5, &gateway.octets());
    attribute(&mut body, 4, &card.to_ne_bytes());
    request(NEW_ROUTE, CREATE | REPLACE, &body)
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Result<()> {
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
    message.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(body);
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // An acknowledgement is an error of number 0 behind the header.
    if length < 20 {
        bail!("the kernel's answer is too short");
    }
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error).into()),
    }
}
