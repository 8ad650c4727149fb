//! Names that stand in URLs and command lines.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Lower-case letters, digits and inner hyphens, at most 63: what DNS and file systems agree on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Slug(String);

impl Slug {
    pub const PATTERN: &'static str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

    pub fn parse(text: &str) -> Option<Self> {
        let inner = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9');
        let bytes = text.as_bytes();
        let fits = (1..=63).contains(&bytes.len())
            && bytes.iter().all(|&letter| inner(letter) || letter == b'-')
            && inner(bytes[0])
            && inner(bytes[bytes.len() - 1]);
        fits.then(|| Slug(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Slug {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Slug::parse(&text).ok_or("lower-case letters, digits and inner hyphens, at most 63")
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_what_dns_would_take() {
        for (text, fits) in [
            ("a", true),
            ("acme", true),
            ("acme-cars-2", true),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("ä", false),
            ("a b", false),
            ("a\n", false),
        ] {
            assert_eq!(Slug::parse(text).is_some(), fits, "{text:?}");
        }
    }
}
