//! Opening times of a window, by minutes of a named time zone, across changes of the clock.
//!
//! A moment is in the window if its local minute is. A local minute that spring skips never comes; one that autumn
//! repeats counts both times. So the search goes through the periods between two changes of the clock. In each of them
//! local time runs evenly.

use std::sync::OnceLock;

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, DateTime},
    tz::{TimeZone, TimeZoneDatabase},
};

use super::expression::Expression;
use crate::text::nearest;

/// Maximum time ahead to search for an opening: 29 February may be eight years away.
const OPENING_HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366 * 9);
/// Maximum time ahead to search for an end.
const CLOSING_HORIZON: SignedDuration = SignedDuration::from_hours(24 * 400);
/// All minutes of an hour, one bit each.
const FULL_HOUR: u64 = (1 << 60) - 1;

/// Returns the time zone database in the program. It is the same on every host, whatever its `/usr/share/zoneinfo`
/// holds.
fn zones() -> &'static TimeZoneDatabase {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    ZONES.get_or_init(TimeZoneDatabase::bundled)
}

/// Returns a time zone by its IANA name, from the database in the program.
pub fn zone(name: &str) -> Result<TimeZone, String> {
    zones().get(name).map_err(|_| {
        let known: Vec<String> = zones().available().map(|n| n.to_string()).collect();
        match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("unknown time zone {name:?}; did you mean {near}?"),
            None => format!("unknown time zone {name:?}: use a name such as Asia/Tokyo, Europe/Berlin or UTC"),
        }
    })
}

/// Expressions that allow and expressions that deny minutes, in one zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Time zone of the expressions.
    pub zone: TimeZone,
    /// Allowed minutes; empty = all.
    pub allow: Vec<Expression>,
    /// Denied minutes, which override allowed ones.
    pub deny: Vec<Expression>,
}

/// State of a window at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// Whether work may start.
    pub open: bool,
    /// While it is open: the first moment at which it is closed; none = it stays open for a year.
    pub closes: Option<Timestamp>,
    /// The next opening, after `closes` while it is open; none = not for years.
    pub opens: Option<Timestamp>,
}

impl Window {
    /// Returns true if the window is open at this moment.
    pub fn open(&self, at: Timestamp) -> bool {
        let local = self.zone.to_offset(at).to_datetime(at);
        let hour = usize::try_from(local.hour()).unwrap_or(0);
        self.day(local.date()).is_some_and(|hours| hours[hour] >> local.minute() & 1 == 1)
    }

    /// Returns the first moment from `at` on at which the window is open: `at` itself, or the beginning of a minute.
    /// `None` = not for years.
    pub fn next_open(&self, at: Timestamp) -> Option<Timestamp> {
        self.first(at, true, OPENING_HORIZON)
    }

    /// Returns the first moment from `at` on at which the window is closed; `None` = it stays open for a year.
    pub fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        self.first(at, false, CLOSING_HORIZON)
    }

    /// Returns its state at this moment.
    pub fn state_at(&self, at: Timestamp) -> WindowState {
        if !self.open(at) {
            return WindowState { open: false, closes: None, opens: self.next_open(at) };
        }
        let closes = self.closes(at);
        WindowState { open: true, closes, opens: closes.and_then(|closes| self.next_open(closes)) }
    }

    /// Returns the openings from `at` on, each with its end. If `at` lies in an opening, that one begins with `at`.
    pub fn openings(&self, at: Timestamp) -> impl Iterator<Item = (Timestamp, Option<Timestamp>)> {
        let mut from = Some(at);
        std::iter::from_fn(move || {
            let opens = self.next_open(from?)?;
            from = self.closes(opens);
            Some((opens, from))
        })
    }

    /// Returns the open minutes of this local day, as one word of bits for each hour, or `None` if there is none.
    fn day(&self, date: Date) -> Option<[u64; 24]> {
        let all = self.allow.is_empty();
        let allow: Vec<&Expression> = self.allow.iter().filter(|e| e.on(date)).collect();
        if !all && allow.is_empty() {
            return None;
        }
        let deny: Vec<&Expression> = self.deny.iter().filter(|e| e.on(date)).collect();
        let mut hours = [0; 24];
        for (hour, minutes) in hours.iter_mut().enumerate() {
            let any = |of: &[&Expression]| of.iter().fold(0, |bits, e| bits | e.minutes(hour));
            *minutes = (if all { FULL_HOUR } else { any(&allow) }) & !any(&deny);
        }
        Some(hours)
    }

    fn first(&self, from: Timestamp, open: bool, within: SignedDuration) -> Option<Timestamp> {
        let end = from.checked_add(within).unwrap_or(Timestamp::MAX);
        let mut at = from;
        while at < end {
            let offset = self.zone.to_offset(at);
            let change = self.zone.following(at).next().map(|t| t.timestamp());
            let until = change.map_or(end, |change| change.min(end));
            if let Some(found) = self.first_within(offset.to_datetime(at), offset.to_datetime(until), open) {
                return offset.to_timestamp(found).ok().map(|found| found.max(from));
            }
            at = until;
        }
        None
    }

    /// Returns the first open or closed minute of a period in which local time runs evenly, its end excluded. The
    /// beginning of that minute may lie before the period.
    fn first_within(&self, from: DateTime, until: DateTime, open: bool) -> Option<DateTime> {
        let mut date = from.date();
        while date <= until.date() {
            let open_minutes = self.day(date);
            let first_hour = if date == from.date() { from.hour() } else { 0 };
            if open && open_minutes.is_none() {
                date = date.checked_add(1.day()).ok()?;
                continue;
            }
            for (hour, bits) in
                (0_i8..).zip(open_minutes.unwrap_or_default()).skip(usize::try_from(first_hour).unwrap_or(0))
            {
                let matching = if open { bits } else { !bits & FULL_HOUR };
                let first_minute = if date == from.date() && hour == from.hour() {
                    u32::try_from(from.minute()).unwrap_or(0)
                } else {
                    0
                };
                let remaining = matching >> first_minute << first_minute;
                if remaining != 0 {
                    let found = date.at(hour, i8::try_from(remaining.trailing_zeros()).unwrap_or(0), 0, 0);
                    return (found < until).then_some(found);
                }
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }
}
