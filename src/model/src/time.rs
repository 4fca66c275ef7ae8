//! Times in Go's form: RFC 3339 in UTC, with `0001-01-01T00:00:00Z` for "none" (STO-5).

use jiff::{SignedDuration, Span, Timestamp, civil::Time, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serializer};

use crate::boot_time::Seconds;

/// Go's zero `time.Time` in JSON.
pub const GO_ZERO: &str = "0001-01-01T00:00:00Z";

/// Reads an RFC 3339 time. Go's zero time and the empty string are "none".
pub fn parse(text: &str) -> Result<Option<Timestamp>, jiff::Error> {
    if text.is_empty() || text == GO_ZERO {
        return Ok(None);
    }
    text.parse().map(Some)
}

/// Writes a time as Go does: UTC, with fractions only if there are any.
pub fn write(time: Option<Timestamp>) -> String {
    time.map_or_else(|| GO_ZERO.to_owned(), |t| t.to_string())
}

/// Cuts a time to whole seconds, the precision of transitions.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns `time + seconds`, saturating at the ends of the calendar.
pub fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Returns the time from `earlier` to `later`; negative if the order is reversed.
pub fn seconds_between(earlier: Timestamp, later: Timestamp) -> Seconds {
    later.duration_since(earlier).into()
}

/// Parses a span such as `90m`, `1h30m` or `7d`: days, hours, minutes and seconds, each at most once, largest first.
pub fn span(text: &str) -> Option<SignedDuration> {
    let (mut total, mut digits, mut last) = (0_i64, String::new(), i64::MAX);
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        if unit >= last {
            return None;
        }
        total = total.checked_add(std::mem::take(&mut digits).parse::<i64>().ok()?.checked_mul(unit)?)?;
        last = unit;
    }
    (digits.is_empty() && last < i64::MAX).then(|| SignedDuration::from_secs(total))
}

/// Parses a future time: RFC 3339, or a span from `now` on. A past time is refused.
pub fn ahead(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let at = if let Ok(at) = text.parse::<Timestamp>() {
        at
    } else {
        let span = span(text).ok_or_else(|| {
            format!(
                "{text:?}: expected a time such as 2026-11-21T10:00:00Z or `tomorrow 08:00`, or a duration: 90m, 12h, 7d"
            )
        })?;
        whole_seconds(now.checked_add(span).unwrap_or(Timestamp::MAX))
    };
    if at > now { Ok(at) } else { Err(format!("{text:?} is in the past: it is {}", whole_seconds(now))) }
}

/// Parses a future time at the beginning of a text, and returns it with the rest: a time as for [`ahead`], or `today` or
/// `tomorrow` with the time of day in this zone, such as `tomorrow 08:00`.
pub fn ahead_words<'a>(text: &'a str, now: Timestamp, zone: &TimeZone) -> Result<(Timestamp, &'a str), String> {
    let word = |text: &'a str| text.trim_start().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let (first, rest) = word(text);
    let days = match first {
        "today" => 0,
        "tomorrow" => 1,
        _ => return ahead(first, now).map(|at| (at, rest)),
    };
    let (clock, rest) = word(rest);
    let wrong = || format!("{first} needs the time of day, such as {first} 08:00");
    let time = Time::strptime("%H:%M", clock).map_err(|_| wrong())?;
    let day = now.to_zoned(zone.clone()).date().checked_add(Span::new().days(days)).map_err(|_| wrong())?;
    let at = day.to_datetime(time).to_zoned(zone.clone()).map_err(|_| wrong())?.timestamp();
    if at > now { Ok((at, rest)) } else { Err(format!("{first} {clock} is in the past: it is {}", whole_seconds(now))) }
}

/// Parses a future time as [`ahead_words`], with nothing behind it.
pub fn ahead_in(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
    match ahead_words(text, now, zone)? {
        (at, rest) if rest.trim().is_empty() => Ok(at),
        (_, rest) => Err(format!("{text:?}: {:?} is no part of a time", rest.trim())),
    }
}

/// For `#[serde(with = "go")]` on an `Option<Timestamp>`.
pub mod go {
    use super::{Deserialize, Deserializer, Serializer, Timestamp};

    /// Writes the time, or Go's zero.
    #[allow(clippy::ref_option)] // the signature is serde's
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&super::write(*time))
    }

    /// Reads the time. Absent, `null`, empty and Go's zero are "none".
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        super::parse(&text).map_err(|e| serde::de::Error::custom(format!("{text:?} is not an RFC 3339 time: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_go_zero_time_is_none_and_round_trips() {
        assert_eq!(parse(GO_ZERO).unwrap(), None);
        assert_eq!(write(None), GO_ZERO);
    }

    #[test]
    fn a_future_time_is_parsed_from_a_timestamp_or_a_duration() {
        let now = "2026-11-21T10:00:00.5Z".parse().unwrap();
        for (text, at) in [
            ("2026-11-22T08:00:00+09:00", "2026-11-21T23:00:00Z"),
            ("2h", "2026-11-21T12:00:00Z"),
            ("1d12h", "2026-11-22T22:00:00Z"),
        ] {
            assert_eq!(ahead(text, now).unwrap().to_string(), at, "{text}");
        }
        for (invalid, expected) in [
            ("", "expected a time"),
            ("tomorrow", "expected a time"),
            ("0h", "is in the past"),
            ("2026-11-21T10:00:00Z", "is in the past"),
        ] {
            assert!(ahead(invalid, now).unwrap_err().contains(expected), "{invalid}");
        }
    }

    #[test]
    fn a_time_for_the_command_line_has_the_same_forms_and_nothing_behind_it() {
        let now = "2026-11-21T20:00:00Z".parse().unwrap();
        for (text, at) in [("tomorrow 08:00", "2026-11-22T08:00:00Z"), ("2h", "2026-11-21T22:00:00Z")] {
            assert_eq!(ahead_in(text, now, &TimeZone::UTC).unwrap().to_string(), at);
        }
        assert!(ahead_in("2h move", now, &TimeZone::UTC).unwrap_err().contains("\"move\" is no part"));
    }

    #[test]
    fn a_time_of_tomorrow_is_meant_in_the_zone_of_the_windows() {
        let now = "2026-11-21T20:00:00Z".parse().unwrap();
        let tokyo = TimeZone::get("Asia/Tokyo").unwrap();
        for (text, zone, at, rest) in [
            ("tomorrow 08:00 quarter end", &TimeZone::UTC, "2026-11-22T08:00:00Z", "quarter end"),
            // it is 05:00 on the 22nd there
            ("tomorrow 08:00 x", &tokyo, "2026-11-22T23:00:00Z", "x"),
            ("today 8:30 x", &tokyo, "2026-11-21T23:30:00Z", "x"),
            ("90m x y", &tokyo, "2026-11-21T21:30:00Z", "x y"),
        ] {
            let (found, left) = ahead_words(text, now, zone).unwrap();
            assert_eq!((found.to_string().as_str(), left), (at, rest), "{text}");
        }
        for (invalid, expected) in [
            ("tomorrow", "needs the time of day, such as tomorrow 08:00"),
            ("tomorrow noon x", "needs the time of day"),
            ("today 19:59 x", "is in the past"),
            ("", "expected a time"),
        ] {
            let why = ahead_words(invalid, now, &TimeZone::UTC).unwrap_err();
            assert!(why.contains(expected), "{invalid}: {why}");
        }
    }

    #[test]
    fn whole_seconds_are_written_without_a_fraction_and_nanoseconds_survive() {
        for text in ["2026-08-01T10:20:30Z", "2026-08-01T10:20:30.123456789Z"] {
            assert_eq!(write(parse(text).unwrap()), text);
        }
        let t = parse("2026-08-01T10:20:30.9Z").unwrap().unwrap();
        assert_eq!(whole_seconds(t).to_string(), "2026-08-01T10:20:30Z");
    }
}
