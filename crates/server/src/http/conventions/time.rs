//! Times on the wire: RFC 3339 in UTC.

use paddock_model::Timestamp;

/// Always with six digits of a second, so that times sort as their texts do.
pub fn time(at: Timestamp) -> String {
    format!("{at:.6}")
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
