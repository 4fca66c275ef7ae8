//! Windows against the calendar, including midnight and changes of the clock (I8).

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse::<jiff::Zoned>().map_or_else(|_| text.parse().unwrap(), |z| z.timestamp())
}

fn window(zone_name: &str, allow: &[&str], deny: &[&str]) -> Window {
    let read = |all: &[&str]| all.iter().map(|e| Expression::parse(e).unwrap()).collect();
    Window { zone: zone(zone_name).unwrap(), allow: read(allow), deny: read(deny) }
}

fn berlin(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".to_owned(), |t| t.to_zoned(TimeZone::get("Europe/Berlin").unwrap()).to_string())
}

#[test]
fn a_weekday_night_wraps_over_midnight() {
    let nights = window("Europe/Berlin", &["* 22-23 * * 1-5", "* 0-4 * * 2-6"], &[]);
    // A Friday.
    let evening = at("2026-08-07T21:59:59+02:00[Europe/Berlin]");
    assert!(!nights.open(evening));
    assert_eq!(berlin(nights.next_open(evening)), "2026-08-07T22:00:00+02:00[Europe/Berlin]");
    let window_state = nights.state_at(at("2026-08-07T23:30:00+02:00[Europe/Berlin]"));
    assert!(window_state.open);
    assert_eq!(berlin(window_state.closes), "2026-08-08T05:00:00+02:00[Europe/Berlin]");
    assert_eq!(berlin(window_state.opens), "2026-08-10T22:00:00+02:00[Europe/Berlin]", "over the weekend");
}

#[test]
fn i8_deny_beats_allow_and_no_allow_is_always() {
    let first = window("UTC", &[], &["* * 1 * *"]);
    assert!(!first.open(at("2026-08-01T12:00:00Z")) && first.open(at("2026-08-02T00:00:00Z")));
    assert_eq!(first.closes(at("2026-08-02T00:00:00Z")), Some(at("2026-09-01T00:00:00Z")));
    let both = window("UTC", &["* 2 * * *"], &["* 2 1 * *"]);
    assert_eq!(both.next_open(at("2026-08-01T00:00:00Z")), Some(at("2026-08-02T02:00:00Z")));
    let never = window("UTC", &["* 2 * * *"], &["* 1-3 * * *"]);
    assert_eq!(never.state_at(at("2026-08-01T00:00:00Z")), WindowState { open: false, closes: None, opens: None });
    let always = window("UTC", &[], &[]);
    assert_eq!(always.state_at(at("2026-08-01T00:00:00Z")), WindowState { open: true, closes: None, opens: None });
}

#[test]
fn dst_changes_skip_missing_minutes_and_count_repeated_ones_twice() {
    let half_past_two = window("Europe/Berlin", &["30-34 2 * * *"], &[]);
    let openings = |from: &str, n: usize| -> Vec<String> {
        let all = half_past_two.openings(at(from)).take(n);
        all.map(|(opens, closes)| format!("{} {}", opens, closes.unwrap())).collect()
    };
    // The night to 29 March 2026 has no 02:30.
    assert_eq!(
        openings("2026-03-28T12:00:00Z", 1),
        ["2026-03-30T00:30:00Z 2026-03-30T00:35:00Z"],
        "02:30 of the 30th, summer time"
    );
    // The night to 25 October has two.
    assert_eq!(
        openings("2026-10-24T12:00:00Z", 3),
        [
            "2026-10-25T00:30:00Z 2026-10-25T00:35:00Z",
            "2026-10-25T01:30:00Z 2026-10-25T01:35:00Z",
            "2026-10-26T01:30:00Z 2026-10-26T01:35:00Z"
        ]
    );
    // A window over the gap ends by local time, an hour of real time earlier.
    let night = window("Europe/Berlin", &["* 1-3 * * *"], &[]);
    assert_eq!(night.closes(at("2026-03-29T00:00:00Z")), Some(at("2026-03-29T02:00:00Z")));
    assert_eq!(night.closes(at("2026-10-25T00:00:00Z")), Some(at("2026-10-25T03:00:00Z")));
}

#[test]
fn the_29th_of_february_is_found_eight_years_ahead() {
    let leap = window("UTC", &["0 0 29 2 *"], &[]);
    assert_eq!(leap.next_open(at("2096-03-01T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
}

#[test]
fn every_second_of_an_open_minute_is_open() {
    let w = window("Asia/Tokyo", &["30 7 * * *"], &[]);
    let within = at("2026-01-01T22:30:42Z");
    assert_eq!(w.next_open(within), Some(within));
    assert_eq!(w.closes(within), Some(at("2026-01-01T22:31:00Z")));
}

#[test]
fn windows_are_parsed_evaluated_and_serialized() {
    let text = "time_zone: Asia/Tokyo\nallow: ['* 22-23 * * 1-5']\ndeny: ['* * 1 * *']\nqueues: [reboot]\nmachines:\n\
                - {name: storage, role: ss, allow: ['* 2 * * 0']}\n- {name: third, rack: 3, selector: 'a=1'}\n";
    let windows = Windows::read(text).unwrap();
    assert!(windows.bind(QueueKind::Reboot) && !windows.bind(QueueKind::Repair));
    let labels = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Labels>();
    assert_eq!(windows.index_for(&labels(&[("cke.cybozu.com/role", "ss")])), 1);
    assert_eq!(windows.index_for(&labels(&[("cke.cybozu.com/rack", "3"), ("a", "1")])), 2);
    assert_eq!(windows.index_for(&labels(&[("cke.cybozu.com/rack", "3")])), 0);
    let (_, storage) = windows.all().nth(1).unwrap();
    assert_eq!(storage.deny.len(), 1, "the general `deny` applies to all machines");
    let back: Windows = serde_json::from_value(serde_json::to_value(&windows).unwrap()).unwrap();
    assert_eq!(back, windows);
}

#[test]
fn an_invalid_window_is_refused_with_its_field() {
    for (text, expected) in [
        ("allow: []", "missing field `time_zone`"),
        ("time_zone: Asia/Tokio", "did you mean Asia/Tokyo?"),
        ("time_zone: Mars/Olympus", "unknown time zone"),
        ("time_zone: UTC\nallow: ['* 22-4 * * *']", "allow[0] \"* 22-4 * * *\": \"22-4\" goes backwards"),
        ("time_zone: UTC\ndeny: ['* * * * *', '30 2 30 2 *']", "deny[1] \"30 2 30 2 *\" never matches"),
        ("time_zone: UTC\nmachines: [{name: a}]", "machines[0] (a) selects no machines"),
        ("time_zone: UTC\nmachines: [{name: a, selector: '=3'}]", "machines[0] (a).selector: "),
        ("time_zone: UTC\ntimezone: UTC", "unknown field timezone"),
        ("time_zone: UTC\nmachines: [{name: a, rack: 1, allows: []}]", "unknown field machines[0].allows"),
        ("time_zone: UTC\nqueues: [boot]", "unknown variant `boot`"),
    ] {
        let why = Windows::read(text).unwrap_err();
        assert!(why.contains(expected), "{text}: {why}");
        assert_eq!(why.matches("windows: ").count(), 1, "{text}: {why}");
    }
}

#[test]
fn windows_too_short_for_any_start_are_reported() {
    let now = at("2026-08-01T00:00:00Z");
    let unusable_reason = |text: &str| Windows::read(text).unwrap().unusable_reason(now);
    assert_eq!(unusable_reason("time_zone: UTC\nallow: ['* 2 * * *']"), None);
    assert!(
        unusable_reason("time_zone: UTC\nallow: ['0-4 2 * * *']").unwrap().contains("longer than margin_seconds (300)")
    );
    assert_eq!(unusable_reason("time_zone: UTC\nallow: ['0-4 2 * * *']\nmargin_seconds: 60"), None);
    assert!(
        unusable_reason("time_zone: UTC\nallow: ['* 2 * * *']\ndeny: ['* * * * *']").unwrap().contains("never opens")
    );
    let of = unusable_reason("time_zone: UTC\nmachines: [{name: ss, role: ss, allow: ['0 0 * * *']}]").unwrap();
    assert!(of.contains("no opening of ss"), "{of}");
}

/// Valid and invalid expressions.
fn expression() -> impl Strategy<Value = String> {
    let minute = prop_oneof![Just("*".to_owned()), (0..60u32).prop_map(|m| m.to_string()), Just("*/17".to_owned())];
    let hour = prop_oneof![
        Just("*".to_owned()),
        (0..24u32).prop_map(|h| h.to_string()),
        (0..4u32, 0..4u32).prop_map(|(a, b)| format!("{a}-{}", a + b)),
    ];
    let day = prop_oneof![3 => Just("*".to_owned()), 1 => (1..32u32).prop_map(|d| d.to_string())];
    let weekday = prop_oneof![2 => Just("*".to_owned()), 1 => (0..8u32).prop_map(|d| d.to_string())];
    (minute, hour, day, weekday).prop_map(|(m, h, d, w)| format!("{m} {h} {d} * {w}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Compared minute by minute by brute force, across both changes of the clock. Berlin changes at 01:00 UTC, Lord
    /// Howe by half an hour, Tokyo never.
    #[test]
    fn next_open_is_the_first_open_minute(
        allow in prop::collection::vec(expression(), 0..3),
        deny in prop::collection::vec(expression(), 0..3),
        zone_name in prop_oneof![Just("Europe/Berlin"), Just("America/New_York"), Just("Australia/Lord_Howe"), Just("Asia/Tokyo")],
        start in prop_oneof![Just("2026-03-07T00:00:00Z"), Just("2026-03-28T12:00:00Z"), Just("2026-04-04T00:00:00Z"),
                             Just("2026-10-03T00:00:00Z"), Just("2026-10-24T12:00:00Z"), Just("2026-10-31T12:00:00Z")],
        offset in 0..2000_i64,
    ) {
        let refs = |all: &[String]| -> Vec<Expression> { all.iter().map(|e| Expression::parse(e).unwrap()).collect() };
        let w = Window { zone: zone(zone_name).unwrap(), allow: refs(&allow), deny: refs(&deny) };
        let from = at(start) + SignedDuration::from_mins(offset);
        let minute = |i: i64| from + SignedDuration::from_mins(i);
        // Three days by brute force.
        let brute = |open: bool| (0..4320).map(minute).find(|t| is_open_by_definition(&w, *t) == open);
        for open in [true, false] {
            let found = if open { w.next_open(from) } else { w.closes(from) };
            match brute(open) {
                Some(first) => prop_assert_eq!(found, Some(first)),
                None => prop_assert!(found.is_none_or(|f| f >= minute(4320)), "{:?}", found),
            }
        }
        prop_assert_eq!(w.open(from), is_open_by_definition(&w, from));
    }
}

/// The obvious reference: fields of local time against each expression.
fn is_open_by_definition(w: &Window, t: Timestamp) -> bool {
    let local = t.to_zoned(w.zone.clone());
    let hit = |e: &Expression| {
        let minutes = e.minutes(usize::try_from(local.hour()).unwrap());
        e.on(local.date()) && minutes >> local.minute() & 1 == 1
    };
    (w.allow.is_empty() || w.allow.iter().any(hit)) && !w.deny.iter().any(hit)
}
