//! Labels: what users write on things to find them again.

use std::collections::BTreeMap;

pub type Labels = BTreeMap<String, String>;

/// `team=maps,tier!=test,owner`: every part must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(pub Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    Equals(String, String),
    /// Holds as well where the label is absent.
    Differs(String, String),
    Exists(String),
}

impl LabelSelector {
    pub const MOST: usize = 10;

    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let requirements = parts.map(requirement).collect::<Result<Vec<_>, _>>()?;
        if requirements.len() > Self::MOST {
            return Err(format!("at most {} requirements", Self::MOST));
        }
        Ok(LabelSelector(requirements))
    }
}

fn requirement(part: &str) -> Result<Requirement, String> {
    let (key, rest) = match part.find(['=', '!']) {
        Some(at) => part.split_at(at),
        None => (part, ""),
    };
    if !is_key(key) {
        return Err(format!("{key:?} is not a label key"));
    }
    let key = key.to_owned();
    let value = |text: &str| {
        if text.contains(['=', '!']) {
            Err(format!("{text:?} is not a label value"))
        } else {
            Ok(text.to_owned())
        }
    };
    if rest.is_empty() {
        Ok(Requirement::Exists(key))
    } else if let Some(text) = rest.strip_prefix("!=") {
        Ok(Requirement::Differs(key, value(text)?))
    } else if let Some(text) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        Ok(Requirement::Equals(key, value(text)?))
    } else {
        Err(format!("{part:?}: write key=value, key!=value or key"))
    }
}

/// A letter, then letters, digits, dots, slashes, hyphens and underscores, at most 63.
pub fn is_key(key: &str) -> bool {
    key.len() <= 63
        && key.starts_with(|first: char| first.is_ascii_lowercase())
        && key.bytes().all(|letter| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_reads_as_kubernetes_users_write_it() {
        let equals = |key: &str, value: &str| Requirement::Equals(key.into(), value.into());
        for (text, expected) in [
            ("", Some(vec![])),
            ("team=maps", Some(vec![equals("team", "maps")])),
            ("team==maps", Some(vec![equals("team", "maps")])),
            (
                "a!=b, c",
                Some(vec![Requirement::Differs("a".into(), "b".into()), Requirement::Exists("c".into())]),
            ),
            ("a=", Some(vec![equals("a", "")])),
            ("=a", None),
            ("a!b", None),
            ("a=b=c", None),
            ("9=a", None),
        ] {
            assert_eq!(LabelSelector::parse(text).ok().map(|selector| selector.0), expected, "{text}");
        }
    }
}
