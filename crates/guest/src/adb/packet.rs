//! ADB packets: a header of 24 bytes and a payload.

use std::io::{self, Read, Write};

/// What a packet asks for. Four letters on the wire, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Connect,
    Auth,
    Open,
    Okay,
    Write,
    Close,
}

const COMMANDS: [(Command, &[u8; 4]); 6] = [
    (Command::Connect, b"CNXN"),
    (Command::Auth, b"AUTH"),
    (Command::Open, b"OPEN"),
    (Command::Okay, b"OKAY"),
    (Command::Write, b"WRTE"),
    (Command::Close, b"CLSE"),
];

/// The largest payload we take and send. Memory per stream is bounded by it.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// The largest payload of a peer that has not shown who it is.
pub const MAX_STRANGER_PAYLOAD: usize = 8 * 1024;
pub const VERSION: u32 = 0x0100_0001;
const HEADER: usize = 24;

#[derive(Debug, PartialEq, Eq)]
pub struct Packet {
    pub command: Command,
    pub arg0: u32,
    pub arg1: u32,
    pub data: Vec<u8>,
}

impl Packet {
    /// Reads one packet; a payload over `limit` is an error before anything is allocated for it.
    pub fn read(from: &mut impl Read, limit: usize) -> io::Result<Packet> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let word = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if word(5) != !word(0) {
            return Err(invalid("the magic does not match the command"));
        }
        let name = word(0).to_le_bytes();
        let command = COMMANDS.iter().find(|(_, known)| **known == name);
        let Some((command, _)) = command else {
            return Err(invalid("an unknown command"));
        };
        let length = word(3) as usize;
        if length > limit {
            return Err(invalid("the payload is longer than was agreed"));
        }
        let mut data = vec![0; length];
        from.read_exact(&mut data)?;
        Ok(Packet { command: *command, arg0: word(1), arg1: word(2), data })
    }
}

/// Writes one packet. Peers older than `VERSION` want the sum of the payload's bytes.
pub fn write(
    to: &mut impl Write,
    command: Command,
    args: (u32, u32),
    data: &[u8],
    with_sum: bool,
) -> io::Result<()> {
    let name = COMMANDS.iter().find(|(known, _)| *known == command).map_or(*b"CLSE", |(_, name)| **name);
    let word = u32::from_le_bytes(name);
    let sum =
        if with_sum { data.iter().fold(0u32, |sum, byte| sum.wrapping_add(u32::from(*byte))) } else { 0 };
    let length = u32::try_from(data.len()).map_err(|_| invalid("the payload is too long"))?;
    let mut header = [0; HEADER];
    for (place, value) in header.chunks_exact_mut(4).zip([word, args.0, args.1, length, sum, !word]) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    // Both at once, as far as the socket takes them: a header alone would cost a packet of the network.
    let sent = to.write_vectored(&[io::IoSlice::new(&header), io::IoSlice::new(data)])?;
    to.write_all(header.get(sent..).unwrap_or_default())?;
    to.write_all(data.get(sent.saturating_sub(HEADER)..).unwrap_or_default())
}

pub fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::{Command, MAX_PAYLOAD, Packet, write};

    fn bytes(command: Command, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, command, (1, 2), data, true).expect("memory");
        bytes
    }

    #[test]
    fn a_packet_survives_the_way_over_the_wire() {
        let bytes = bytes(Command::Open, b"shell:\0");

        let packet = Packet::read(&mut bytes.as_slice(), MAX_PAYLOAD).expect("a packet");

        assert_eq!(packet, Packet { command: Command::Open, arg0: 1, arg1: 2, data: b"shell:\0".to_vec() });
    }

    #[test]
    fn what_is_no_packet_is_refused_with_a_reason() {
        let good = bytes(Command::Write, b"abc");
        let changed = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        for (bytes, reason) in [
            (Vec::new(), "failed to fill whole buffer"),
            (good[..23].to_vec(), "failed to fill whole buffer"),
            (good[..25].to_vec(), "failed to fill whole buffer"),
            (changed(20, 0), "the magic does not match the command"),
            (changed(15, 0xff), "the payload is longer than was agreed"),
            ([b"NOPE".as_slice(), &[0; 16], &[!b'N', !b'O', !b'P', !b'E']].concat(), "an unknown command"),
        ] {
            let error = Packet::read(&mut bytes.as_slice(), MAX_PAYLOAD).expect_err("no packet");
            assert_eq!(error.to_string(), reason);
        }
    }
}
