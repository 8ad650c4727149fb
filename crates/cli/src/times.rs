//! Times and durations, as a command line takes them.

use jiff::civil::Date;
use jiff::{SpanRelativeTo, Timestamp, Zoned};

/// A point in time: written out, a day where it begins here, or so long ago.
pub fn moment(text: &str) -> Result<Timestamp, &'static str> {
    at(text, &Zoned::now())
}

fn at(text: &str, now: &Zoned) -> Result<Timestamp, &'static str> {
    const FORM: &str =
        "write a time such as 2026-11-15T04:00:00Z, a day such as 2026-11-15, or 2h for two hours ago";
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(day) = text.parse::<Date>() {
        return day.to_zoned(now.time_zone().clone()).map(|day| day.timestamp()).map_err(|_| FORM);
    }
    let ago = i64::try_from(seconds(text).map_err(|_| FORM)?).map_err(|_| FORM)?;
    now.timestamp().checked_sub(jiff::SignedDuration::from_secs(ago)).map_err(|_| FORM)
}

/// A duration in whole seconds.
pub fn seconds(text: &str) -> Result<u64, &'static str> {
    const FORM: &str = "write a duration such as 90m, 12h or 30d";
    let span = text.parse::<jiff::Span>().map_err(|_| FORM)?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| FORM)?;
    u64::try_from(duration.as_secs()).map_err(|_| FORM)
}

/// How long ago a time of the server was, in its largest unit.
pub fn age(since: &str) -> String {
    since.parse().map(|since| age_at(since, Timestamp::now())).unwrap_or_default()
}

fn age_at(since: Timestamp, now: Timestamp) -> String {
    // The clocks of two machines differ a little.
    duration(now.duration_since(since).as_secs().max(0))
}

/// So many seconds, in their largest unit.
pub fn duration(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Zoned;

    use super::{age_at, at, seconds};

    #[test]
    fn a_moment_is_a_time_a_day_or_so_long_ago() {
        let now: Zoned = "2026-11-15T04:00:00+01:00[Europe/Berlin]"
            .parse()
            .or_else(|_| "2026-11-15T04:00:00+01:00[+01:00]".parse())
            .expect("a time");
        for (text, expected) in [
            ("2026-11-15T00:00:00Z", Some("2026-11-15T00:00:00Z")),
            ("2026-11-15T00:00:00+02:00", Some("2026-11-14T22:00:00Z")),
            ("2026-11-14", Some("2026-11-13T23:00:00Z")),
            ("2h", Some("2026-11-15T01:00:00Z")),
            ("90m", Some("2026-11-15T01:30:00Z")),
            ("7d", Some("2026-11-08T03:00:00Z")),
            ("yesterday", None),
            ("-2h", None),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(at(text, &now).ok().map(|time| time.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn an_age_is_shown_in_its_largest_unit() {
        let now = "2026-11-15T04:00:00Z".parse().expect("a time");
        for (since, expected) in [
            ("2026-11-15T03:59:59.5Z", "0s"),
            ("2026-11-15T03:59:01Z", "59s"),
            ("2026-11-15T03:01:00Z", "59m"),
            ("2026-11-14T05:00:00Z", "23h"),
            ("2026-11-01T04:00:00Z", "14d"),
            ("2026-11-15T04:00:09Z", "0s"),
        ] {
            assert_eq!(age_at(since.parse().expect("a time"), now), expected, "{since}");
        }
    }

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, expected) in [
            ("90m", Some(5400)),
            ("30d", Some(2_592_000)),
            ("1w", Some(604_800)),
            ("30", None),
            ("-1h", None),
            ("1 moon", None),
        ] {
            assert_eq!(seconds(text).ok(), expected, "{text}");
        }
    }
}
