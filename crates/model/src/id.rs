//! Identifiers: a prefix that names the noun, and a UUIDv7 in lower-case base32, so that newer sorts later.

use uuid::Uuid;

use crate::Timestamp;
use crate::ports::Random;

/// Crockford's alphabet keeps the order of the bytes and has no letter that reads like a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// A UUIDv7: milliseconds, then the fraction of the millisecond, then randomness.
pub fn uuid_v7(now: Timestamp, random: &dyn Random) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes[8..]);
    let micros = u64::try_from(now.as_microsecond()).unwrap_or(0);
    let fraction = (micros % 1000) * 4096 / 1000;
    bytes[..6].copy_from_slice(&(micros / 1000).to_be_bytes()[2..]);
    bytes[6..8].copy_from_slice(&(0x7000 | fraction as u16).to_be_bytes());
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// The 26 letters of an id, without its prefix.
pub fn encode(uuid: Uuid) -> String {
    let bits = uuid.as_u128();
    (0..LENGTH).map(|at| ALPHABET[(bits >> (5 * (LENGTH - 1 - at))) as usize & 31] as char).collect()
}

/// The reverse of [`encode`]; nothing but exactly what it makes is accepted.
pub fn decode(text: &str) -> Option<Uuid> {
    if text.len() != LENGTH || text.as_bytes()[0] > b'7' {
        return None;
    }
    let bits = text.bytes().try_fold(0u128, |bits, letter| {
        let value = ALPHABET.iter().position(|&known| known == letter)?;
        Some(bits << 5 | value as u128)
    })?;
    Some(Uuid::from_u128(bits))
}

/// Declares the identifier of a noun: `id!(TenantId, "ten")` reads and writes `ten_…`. Where something else than `_` is
/// needed before the letters, it comes third.
#[macro_export]
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $crate::id!($(#[$doc])* $name, $prefix, "_");
    };
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $mark:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn new(now: $crate::Timestamp, random: &dyn $crate::ports::Random) -> Self {
                Self($crate::id::uuid_v7(now, random))
            }

            /// Nothing when the text is not an id of this noun; to a caller that is the same as an absent one.
            pub fn parse(text: &str) -> Option<Self> {
                $crate::id::decode(text.strip_prefix(concat!($prefix, $mark))?).map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, $mark, "{}"), $crate::id::encode(self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom(concat!("not an id of the form ", $prefix, $mark, "…")))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_survives_being_written_and_read(bits: u128) {
            prop_assert_eq!(decode(&encode(Uuid::from_u128(bits))), Some(Uuid::from_u128(bits)));
        }

        #[test]
        fn ids_sort_as_their_bytes_do(a: u128, b: u128) {
            prop_assert_eq!(encode(Uuid::from_u128(a)).cmp(&encode(Uuid::from_u128(b))), a.cmp(&b));
        }

        #[test]
        fn arbitrary_text_is_never_read_as_two_ids(text in ".{0,40}") {
            if let Some(uuid) = decode(&text) {
                prop_assert_eq!(encode(uuid), text);
            }
        }
    }

    #[test]
    fn a_later_id_sorts_later() {
        struct Zeros;
        impl Random for Zeros {
            fn fill(&self, bytes: &mut [u8]) {
                bytes.fill(0);
            }
        }
        let at = |micros| encode(uuid_v7(Timestamp::from_microsecond(micros).expect("a time"), &Zeros));

        assert!(at(1_700_000_000_000_000) < at(1_700_000_000_000_300));
        assert!(at(1_700_000_000_000_999) < at(1_700_000_000_001_000));
    }
}
