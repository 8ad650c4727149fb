//! Times on the wire: RFC 3339 in UTC.

use paddock_model::error::Fault;
use paddock_model::{Error, Result, Timestamp};

/// Always with six digits of a second, so that times sort as their texts do.
pub fn time(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// A time that a query parameter names.
pub fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>> {
    let refused = |_| {
        let message = format!("{name} is no time such as 2026-11-15T04:00:00Z");
        let fault = Fault { pointer: format!("/{name}"), code: "invalid".into(), message };
        Error::malformed("invalid_parameter", "A query parameter is not valid; see errors.")
            .with_faults(vec![fault])
    };
    text.map(|text| text.parse().map_err(refused)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_as_wide_as_any_other() {
        for (micros, text) in [(0, "1970-01-01T00:00:00.000000Z"), (1_500_000, "1970-01-01T00:00:01.500000Z")]
        {
            assert_eq!(time(Timestamp::from_microsecond(micros).expect("a time")), text);
        }
    }
}
