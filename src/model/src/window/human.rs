//! Moments and spans for display.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

/// Returns a moment as a clock in this zone shows it: `22:00 JST`, `Mon 22:00 JST` on another day of the next six, else
/// with the date.
pub fn clock(zone: &TimeZone, at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let days = at.date().since(now.date()).map_or(i32::MAX, |span| span.get_days());
    let form = match days {
        0 => "%H:%M %Z",
        1..=6 => "%a %H:%M %Z",
        _ => "%Y-%m-%d %H:%M %Z",
    };
    at.strftime(form).to_string()
}

/// Returns a span in its two largest units: `5h`, `1d 2h`, `30m`, `45s`.
pub fn length(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let named = parts.iter().skip_while(|(n, _)| *n == 0).take(2).filter(|(n, _)| *n > 0);
    let text = named.map(|(n, unit)| format!("{n}{unit}")).collect::<Vec<_>>().join(" ");
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_formatted_for_humans() {
        let zone = super::super::zone("Asia/Tokyo").unwrap();
        let now = "2026-08-01T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-08-01T13:00:00Z", "22:00 JST"),
            ("2026-08-01T15:00:00Z", "Sun 00:00 JST"),
            ("2026-08-07T13:00:00Z", "Fri 22:00 JST"),
            ("2026-08-08T13:00:00Z", "2026-08-08 22:00 JST"),
            ("2026-07-31T13:00:00Z", "2026-07-31 22:00 JST"),
        ] {
            assert_eq!(clock(&zone, at.parse().unwrap(), now), text, "{at}");
        }
        for (seconds, text) in
            [(0, "0s"), (45, "45s"), (1800, "30m"), (18_000, "5h"), (93_600, "1d 2h"), (86_460, "1d")]
        {
            assert_eq!(length(SignedDuration::from_secs(seconds)), text);
        }
    }
}
