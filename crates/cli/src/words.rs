//! The contract's own words, such as roles: how a command line takes them and a table shows them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Takes one of these words.
pub fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(Value::String(word)))
}

/// The word for it.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The words for them, in a row.
pub fn words(values: &[impl Serialize]) -> String {
    values.iter().map(word).collect::<Vec<_>>().join(",")
}
