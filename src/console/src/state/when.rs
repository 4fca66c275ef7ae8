//! Ages and times as screens show them. Seconds are shown only under a minute, so that an idle screen stays idle.

use cketerm_model::boot_time::Seconds;
use jiff::{SignedDuration, Timestamp};

/// Returns the age of `then`, for example `42s`, `3m`, `2h05m`, `4d`. It is `0s` for the future, and `?` for a time
/// that could not be read.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    if is_unknown(then) { UNKNOWN.to_owned() } else { span(now.duration_since(then)) }
}

/// Text for a time that could not be read.
pub const UNKNOWN: &str = "?";

/// Returns true for a time that could not be read. Such a time is kept as the nearest end of the calendar.
pub fn is_unknown(at: Timestamp) -> bool {
    at == Timestamp::MIN || at == Timestamp::MAX
}

/// Returns the time until `then`, for example `in 4m`, or `now` if it has passed.
pub fn until(then: Timestamp, now: Timestamp) -> String {
    let left = then.duration_since(now);
    if left <= SignedDuration::ZERO { "now".to_owned() } else { format!("in {}", span(left)) }
}

/// Returns the time left until `then`, for example `4m`, or `0s` if it has passed.
pub fn left(then: Timestamp, now: Timestamp) -> String {
    span(then.duration_since(now))
}

/// Formats a duration in at most six characters.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a span of boot time as an age.
pub fn seconds(seconds: Seconds) -> String {
    span(seconds.max(Seconds::ZERO).signed_duration())
}

/// Formats a time in UTC: the time of day, with the date if it is another day.
pub fn moment(then: Timestamp, now: Timestamp) -> String {
    if is_unknown(then) {
        return UNKNOWN.to_owned();
    }
    let same_day = then.strftime("%F").to_string() == now.strftime("%F").to_string();
    then.strftime(if same_day { "%H:%M:%SZ" } else { "%F %H:%M:%SZ" }).to_string()
}

/// Formats a time in UTC in at most eleven columns: the time of day, another day without seconds, another year as the
/// date.
pub fn short(then: Timestamp, now: Timestamp) -> String {
    if is_unknown(then) {
        return UNKNOWN.to_owned();
    }
    let same = |format: &str| then.strftime(format).to_string() == now.strftime(format).to_string();
    let format = match (same("%F"), same("%Y")) {
        (true, _) => "%H:%M:%SZ",
        (false, true) => "%m-%d %H:%M",
        (false, false) => "%F",
    };
    then.strftime(format).to_string()
}

/// Formats a span as an age that advances by minutes.
pub fn coarse(seconds: Seconds) -> String {
    if seconds < Seconds::new(60.0) { "less than 1m".to_owned() } else { self::seconds(seconds) }
}

/// Returns the age of `then` as [`age`], but advances by minutes.
pub fn coarse_age(then: Timestamp, now: Timestamp) -> String {
    let is_fresh = now.duration_since(then) < SignedDuration::from_mins(1);
    if is_fresh && !is_unknown(then) { "less than 1m".to_owned() } else { age(then, now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that could not be read must not show as the year -9999.
    #[test]
    fn an_unreadable_time_is_shown_as_a_question_mark() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        for odd in [Timestamp::MIN, Timestamp::MAX] {
            assert_eq!([age(odd, now), moment(odd, now), short(odd, now)], ["?", "?", "?"]);
        }
    }

    #[test]
    fn ages_below_one_minute_are_shown_in_seconds() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let ago = |s: i64| age(cketerm_model::time::after(now, -s), now);
        assert_eq!([ago(-5), ago(0), ago(59), ago(60), ago(119)], ["0s", "0s", "59s", "1m", "1m"]);
        assert_eq!([ago(3600), ago(7500), ago(86_400 * 4)], ["1h00m", "2h05m", "4d"]);
    }

    #[test]
    fn a_time_on_another_day_includes_its_date() {
        let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        assert_eq!(moment(now, now), "10:00:00Z");
        assert_eq!(moment("2026-11-20T23:00:01Z".parse().unwrap(), now), "2026-11-20 23:00:01Z");
    }
}
