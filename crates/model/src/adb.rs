//! The first words of ADB, as far as one needs them to see whether somebody answers.

pub const HEADER_BYTES: usize = 24;

const CNXN: &[u8; 4] = b"CNXN";
const VERSION: u32 = 0x0100_0001;
const MAX_PAYLOAD: u32 = 1 << 20;

/// A host's greeting.
pub fn hello() -> Vec<u8> {
    let banner = b"host::features=shell_v2\0";
    let command = u32::from_le_bytes(*CNXN);
    let sum = banner.iter().map(|byte| u32::from(*byte)).sum();
    let length = u32::try_from(banner.len()).unwrap_or(0);
    let header = [command, VERSION, MAX_PAYLOAD, length, sum, !command];
    header.iter().flat_map(|word| word.to_le_bytes()).chain(banner.iter().copied()).collect()
}

/// Whether this is how a device answers: it lets us in, or asks who we are.
pub fn is_welcome(header: &[u8; HEADER_BYTES]) -> bool {
    let command = &header[..4];
    let inverted: Vec<u8> = command.iter().map(|byte| !byte).collect();
    [&b"CNXN"[..], b"AUTH", b"STLS"].contains(&command) && header[20..] == inverted[..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_one_that_a_device_would_give() {
        let greeting = hello();
        let header: [u8; HEADER_BYTES] = greeting[..HEADER_BYTES].try_into().expect("a header");
        assert!(is_welcome(&header));
        assert_eq!(greeting.len(), HEADER_BYTES + usize::from(header[12]));
        assert!(!is_welcome(&[0; HEADER_BYTES]));
    }
}
