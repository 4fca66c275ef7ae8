//! Times as users write them on a command line.

use cketerm_model::time::span;
use jiff::{Timestamp, civil::Date, tz::TimeZone};

/// Parses a time in the past: RFC 3339, a day (UTC), or an age (`90m`, `12h`, `7d`, `1h30m`).
pub fn parse_past(text: &str) -> Result<Timestamp, String> {
    from(text, Timestamp::now())
}

fn from(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(day) = text.parse::<Date>() {
        let start = day.to_zoned(TimeZone::UTC).map_err(|e| e.to_string())?;
        return Ok(start.timestamp());
    }
    let span_ago =
        span(text).ok_or("expected a time such as 2026-11-21T10:00:00Z, a day such as 2026-11-21, or 90m, 12h, 7d")?;
    Ok(now.checked_sub(span_ago).unwrap_or(Timestamp::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_days_and_durations_are_parsed() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for (text, at) in [
            ("2026-11-20T09:00:00Z", "2026-11-20T09:00:00Z"),
            ("2026-11-20T09:00:00+09:00", "2026-11-20T00:00:00Z"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("90m", "2026-11-21T08:30:00Z"),
            ("1h30m", "2026-11-21T08:30:00Z"),
            ("7d", "2026-11-14T10:00:00Z"),
        ] {
            assert_eq!(from(text, now).unwrap().to_string(), at, "{text}");
        }
        for bad in ["", "yesterday", "5", "5x", "m", "1m1h", "-1h", "9999999999999999999d"] {
            assert!(from(bad, now).is_err(), "{bad}");
        }
    }
}
